//! Structure of the workspace: dependencies point to lower layers, roles do not use each other, and folders and files
//! have specific names.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::source::{root, walk};

/// Crates by layer; a crate may use those of lower layers only. The agent is above the sampler, because it contains
/// the program and the sampler is one of its collectors.
const LAYERS: [&[&str]; 8] = [
    &["proto", "chassis", "ui"],
    &["profile", "storage"],
    &["block", "query", "arrow-format", "cluster", "consensus", "client", "http-server"],
    &["catalog", "agent-ebpf"],
    &["distributor", "ingester", "querier", "store-gateway", "compactor", "metastore", "symbolizer", "agent"],
    &["server"],
    &["cli"],
    &["integration"],
];

/// Returns the description of the workspace that cargo prints.
fn read_metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version=1", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

/// Returns the number of each crate's layer, counted from the lowest.
fn layer_numbers() -> BTreeMap<String, usize> {
    let numbered = LAYERS.iter().enumerate();
    numbered
        .flat_map(|(layer, names)| names.iter().map(move |name| (format!("athanor-{name}"), layer)))
        .collect()
}

/// Returns the dependencies that point to no lower layer. Development dependencies count.
fn layer_problems(crates: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let layers = layer_numbers();
    let mut problems = Vec::new();
    for (name, used) in crates {
        let Some(layer) = layers.get(name) else {
            problems.push(format!("{name} has no layer; add it to LAYERS"));
            continue;
        };
        for other in used.iter().filter(|other| other.starts_with("athanor-")) {
            match layers.get(other) {
                Some(below) if below < layer => {}
                Some(_) => problems.push(format!("{name} uses {other}, which is not below it")),
                None => problems.push(format!("{name} uses {other}, which has no layer")),
            }
        }
    }
    problems
}

/// Returns the crates of the workspace with their direct dependencies.
fn workspace_crates() -> BTreeMap<String, Vec<String>> {
    let metadata = read_metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
    let used =
        |package: &Value| package["dependencies"].as_array().expect("a list").iter().map(name).collect();
    packages.iter().map(|package| (name(package), used(package))).collect()
}

#[test]
fn dependencies_point_strictly_down() {
    let crates = workspace_crates();
    assert!(crates.contains_key("athanor-profile"));
    assert_eq!(layer_problems(&crates), [""; 0]);
}

#[test]
fn dependency_that_points_up_or_sideways_is_reported() {
    let count_problems = |name: &str, used: &str| {
        let crates = BTreeMap::from([(name.to_owned(), vec!["serde".to_owned(), used.to_owned()])]);
        layer_problems(&crates).len()
    };
    assert_eq!(count_problems("athanor-block", "athanor-profile"), 0);
    assert_eq!(count_problems("athanor-querier", "athanor-ingester"), 1);
    assert_eq!(count_problems("athanor-profile", "athanor-block"), 1);
    assert_eq!(count_problems("athanor-block", "athanor-query"), 1);
    assert_eq!(count_problems("athanor-common", "serde"), 1);
}

#[test]
fn each_crate_lies_in_the_folder_of_its_name() {
    for package in read_metadata()["packages"].as_array().expect("packages") {
        let manifest = PathBuf::from(package["manifest_path"].as_str().expect("a path"));
        let name = package["name"].as_str().expect("a name");
        let folder = name.strip_prefix("athanor-").expect("all crates begin with athanor-");
        assert_eq!(manifest, root().join(folder).join("Cargo.toml"));
    }
}

/// Returns all folders and Rust files of the repository.
fn source_paths() -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(&root(), &["rs"], &mut found);
    found
}

#[test]
fn folders_and_files_have_specific_names() {
    for path in source_paths() {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(
            !["mod.rs", "common", "utils", "util", "helpers"].contains(&name.as_str()),
            "{}",
            path.display()
        );
    }
}

#[test]
fn nothing_is_left_undone() {
    // Written in two parts, so that this file does not find itself.
    let forbidden = [concat!("todo", "!("), concat!("unimplemented", "!(")];
    let left_out = concat!("#[igno", "re");
    for path in source_paths().iter().filter(|path| path.is_file()) {
        let text = std::fs::read_to_string(path).expect("readable");
        for pattern in forbidden {
            assert!(!text.contains(pattern), "{} contains {pattern}", path.display());
        }
        // Parts of tests that need a process of their own, and tests that a command runs.
        let is_run = |line: &str| line.contains("started by another test") || line.contains("`just ");
        for line in text.lines().filter(|line| line.contains(left_out)) {
            assert!(is_run(line), "{} leaves out a test that nothing runs: {line}", path.display());
        }
    }
}
