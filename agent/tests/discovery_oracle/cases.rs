//! Cases of the oracle: configurations with the files, lists and objects that they refer to.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::stand_in::{ApiSettings, ApiStandIn};

const CONFIG_FILE: &str = "prometheus.yml";
const CLUSTER_FILE: &str = "kubernetes.json";
/// Text in files of a case that stands for the address of its server.
const SERVER_PLACEHOLDER: &str = "HTTP_ADDRESS";
/// Text in labels that stands for the folder of the case.
const FOLDER_PLACEHOLDER: &str = "FOLDER";

/// Configuration with its files and the verdict of Prometheus.
pub(crate) struct OracleCase {
    pub(crate) name: String,
    pub(crate) is_generated: bool,
    /// Texts by path.
    files: BTreeMap<String, String>,
    pub(crate) expected: Value,
}

/// Case with its folder and server.
pub(crate) struct RunningCase {
    pub(crate) config_text: String,
    pub(crate) config_file: PathBuf,
    folder: TempDir,
    server: ApiStandIn,
}

/// Returns all cases that have a verdict.
pub(crate) fn read_cases() -> Vec<OracleCase> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/discovery_oracle");
    let mut generated: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for line in read_lines(&root.join("generated.jsonl")) {
        let files = serde_json::from_value(line["files"].clone()).unwrap();
        generated.insert(line["name"].as_str().unwrap().to_owned(), files);
    }
    let verdicts = read_lines(&root.join("expected.jsonl")).into_iter();
    let cases: Vec<OracleCase> = verdicts
        .map(|expected| {
            let name = expected["name"].as_str().unwrap().to_owned();
            let found = generated.remove(&name);
            let is_generated = found.is_some();
            let files = found.unwrap_or_else(|| read_real_case(&root.join("real"), &name));
            OracleCase { name, is_generated, files, expected }
        })
        .collect();
    assert!(generated.is_empty(), "cases without a verdict: {:?}", generated.keys());
    cases
}

fn read_lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Reads the files of a folder. All of these cases share a cluster.
fn read_real_case(real: &Path, name: &str) -> BTreeMap<String, String> {
    let folder = real.join(name);
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.clone()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned();
            files.insert(name, fs::read_to_string(path).unwrap());
        }
    }
    files.insert(CLUSTER_FILE.to_owned(), fs::read_to_string(real.join(CLUSTER_FILE)).unwrap());
    files
}

impl RunningCase {
    /// Writes the files of a case and starts its server.
    pub(crate) async fn start(case: &OracleCase) -> Self {
        let served = case.files.clone();
        let serve_file = Box::new(move |path: &str| serve(&served, path));
        let settings = ApiSettings { serve_file: Some(serve_file), ..ApiSettings::default() };
        let server = ApiStandIn::start(settings).await;
        let objects: Vec<Value> =
            case.files.get(CLUSTER_FILE).map(|text| serde_json::from_str(text).unwrap()).unwrap_or_default();
        for object in objects {
            server.apply(object);
        }
        let folder = tempfile::tempdir().unwrap();
        let address = server.address.to_string();
        for (name, text) in &case.files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text.replace(SERVER_PLACEHOLDER, &address)).unwrap();
        }
        let config_text = case.files[CONFIG_FILE].replace(SERVER_PLACEHOLDER, &address);
        Self { config_text, config_file: folder.path().join(CONFIG_FILE), folder, server }
    }

    /// Replaces the folder and the address of the server by their placeholders.
    pub(crate) fn with_placeholders(&self, text: &str) -> String {
        let text = text.replace(self.folder.path().to_str().unwrap(), FOLDER_PLACEHOLDER);
        text.replace(&self.server.address.to_string(), SERVER_PLACEHOLDER)
    }
}

/// Returns the file of a path. The version of Docker's API is no part of its path.
fn serve(files: &BTreeMap<String, String>, path: &str) -> Option<String> {
    let rest = path.strip_prefix("/v1.").and_then(|rest| rest.split_once('/'));
    let path = rest.map_or(path.to_owned(), |(_, rest)| format!("/{rest}"));
    if path == "/_ping" {
        return Some("OK".to_owned());
    }
    files.get(&format!("http{path}")).cloned()
}
