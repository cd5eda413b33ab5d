//! The house stands as it was drawn: dependencies point down, roles do not know each other, folders are tidy.

mod invariants;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Crates by layer; a crate may use those of lower layers only.
const LAYERS: [&[&str]; 7] = [
    &["proto", "chassis"],
    &["profile", "storage"],
    &["block", "query", "cluster", "consensus"],
    &["catalog", "agent"],
    &[
        "distributor",
        "ingester",
        "querier",
        "store-gateway",
        "compactor",
        "metastore",
        "symbolizer",
        "agent-ebpf",
    ],
    &["server"],
    &["integration"],
];
const LINES: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder above").to_owned()
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version=1", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

fn layers() -> BTreeMap<String, usize> {
    let numbered = LAYERS.iter().enumerate();
    numbered
        .flat_map(|(layer, names)| names.iter().map(move |name| (format!("athanor-{name}"), layer)))
        .collect()
}

/// What is wrong with a set of crates and what they use; development dependencies count.
fn violations(crates: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let layers = layers();
    let mut wrong = Vec::new();
    for (name, used) in crates {
        let Some(layer) = layers.get(name) else {
            wrong.push(format!("{name} stands in no layer; add it to the table"));
            continue;
        };
        for other in used.iter().filter(|other| other.starts_with("athanor-")) {
            match layers.get(other) {
                Some(below) if below < layer => {}
                Some(_) => wrong.push(format!("{name} uses {other}, which is not below it")),
                None => wrong.push(format!("{name} uses {other}, which stands in no layer")),
            }
        }
    }
    wrong
}

fn workspace() -> BTreeMap<String, Vec<String>> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
    let used =
        |package: &Value| package["dependencies"].as_array().expect("a list").iter().map(name).collect();
    packages.iter().map(|package| (name(package), used(package))).collect()
}

#[test]
fn dependencies_point_strictly_down() {
    let crates = workspace();
    assert!(crates.contains_key("athanor-profile"));
    assert_eq!(violations(&crates), [""; 0]);
}

#[test]
fn the_check_sees_what_it_is_for() {
    let wrong = |name: &str, used: &str| {
        violations(&BTreeMap::from([(name.to_owned(), vec!["serde".to_owned(), used.to_owned()])])).len()
    };
    assert_eq!(wrong("athanor-block", "athanor-profile"), 0);
    assert_eq!(wrong("athanor-querier", "athanor-ingester"), 1);
    assert_eq!(wrong("athanor-profile", "athanor-block"), 1);
    assert_eq!(wrong("athanor-block", "athanor-query"), 1);
    assert_eq!(wrong("athanor-common", "serde"), 1);
}

#[test]
fn each_crate_lies_in_the_folder_of_its_name() {
    for package in metadata()["packages"].as_array().expect("packages") {
        let manifest = PathBuf::from(package["manifest_path"].as_str().expect("a path"));
        let name = package["name"].as_str().expect("a name");
        let folder = name.strip_prefix("athanor-").expect("all crates begin with athanor-");
        assert_eq!(manifest, root().join(folder).join("Cargo.toml"));
    }
}

/// Finds all folders below a folder and the files with these extensions, without what is built.
fn walk(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    let is_wanted = |extension: &OsStr| extensions.iter().any(|wanted| extension == *wanted);
    for entry in std::fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name.starts_with('.') || name == "target" || name == "node_modules" {
            continue;
        }
        if path.is_dir() {
            found.push(path.clone());
            walk(&path, extensions, found);
        } else if path.extension().is_some_and(is_wanted) {
            found.push(path);
        }
    }
}

fn tree() -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(&root(), &["rs"], &mut found);
    found
}

/// Lines that are neither empty nor comments, without items that only tests have.
fn lines_of_code(text: &str) -> usize {
    let mut lines = text.lines();
    let mut count = 0;
    while let Some(line) = lines.next() {
        let code = line.trim_start();
        if code == "#[cfg(test)]" {
            let indent = line.len() - code.len();
            // As it is formatted, an item ends with the first of its lines that is as far in and closes what it opened.
            let is_last = |line: &str| {
                let inner = line.trim_start();
                line.len() - inner.len() == indent
                    && !inner.starts_with('#')
                    && line.ends_with([';', '}', ','])
            };
            lines.find(|line| is_last(line));
        } else if !code.is_empty() && !code.starts_with("//") {
            count += 1;
        }
    }
    count
}

#[test]
fn only_what_tests_have_does_not_count() {
    let text = "// a\nfn a() {}\n\n#[cfg(test)]\nmod tests;\n\nstruct B {\n    #[cfg(test)]\n    seen: u8,\n    c: u8,\n}\n";
    assert_eq!(lines_of_code(text), 4);
    let tests = "\n#[cfg(test)]\n#[expect(x)]\nmod tests {\n    fn a(\n    ) {\n    }\n}\nfn b() {}\n";
    assert_eq!(lines_of_code(&format!("{text}{tests}")), 5);
}

#[test]
fn folders_and_files_have_names_that_say_something() {
    for path in tree() {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(
            !["mod.rs", "common", "utils", "util", "helpers"].contains(&name.as_str()),
            "{}",
            path.display()
        );
    }
}

#[test]
fn files_are_short_and_nothing_is_left_undone() {
    // Written in two parts, so that this file does not find itself.
    let forbidden = [concat!("#[igno", "re"), concat!("todo", "!("), concat!("unimplemented", "!(")];
    for path in tree().iter().filter(|path| path.is_file()) {
        let text = std::fs::read_to_string(path).expect("readable");
        let folder = |name: &str| path.iter().any(|part| part == name);
        let is_test = folder("tests") || folder("benches") || path.ends_with("tests.rs");
        let lines = lines_of_code(&text);
        assert!(is_test || lines <= LINES, "{} has {lines} lines of code", path.display());
        for pattern in forbidden {
            assert!(!text.contains(pattern), "{} contains {pattern}", path.display());
        }
    }
}
