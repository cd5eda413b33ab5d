//! Mutants of `integration/mutants`: each patch applies and names tests that exist. `mutants/run` builds the mutants
//! and shows that the named tests fail.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::source::{root, walk};

/// Folder of the patches below the root.
const MUTANTS_FOLDER: &str = "integration/mutants";
const KILLER_PREFIX: &str = "cargo test -p ";
const PACKAGE_PREFIX: &str = "athanor-";

/// Returns the patches, those in folders below included.
fn patch_paths() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    walk(&root().join(MUTANTS_FOLDER), &["patch"], &mut paths);
    paths.retain(|path| path.is_file());
    paths
}

/// Returns what is wrong with the text of a patch: it describes its bug, and one line names the tests that must fail.
fn text_problem(root: &Path, text: &str) -> Option<String> {
    let Some((description, _)) = text.split_once("\ndiff --git ") else {
        return Some("it is no patch of git".to_owned());
    };
    if description.starts_with("Killed-by") {
        return Some("it does not describe its bug".to_owned());
    }
    let killers: Vec<&str> =
        description.lines().filter_map(|line| line.strip_prefix("Killed-by: ")).collect();
    match killers[..] {
        [killer] => killer_problem(root, killer),
        _ => Some(format!("it has {} lines `Killed-by: `, one is needed", killers.len())),
    }
}

/// Returns what is wrong with a command that runs the tests of one package.
fn killer_problem(root: &Path, killer: &str) -> Option<String> {
    let Some(arguments) = killer.strip_prefix(KILLER_PREFIX) else {
        return Some(format!("`{killer}` does not begin with `{KILLER_PREFIX}{PACKAGE_PREFIX}`"));
    };
    let words: Vec<&str> = arguments.split_whitespace().collect();
    let folder = words.first().and_then(|package| package.strip_prefix(PACKAGE_PREFIX)).unwrap_or_default();
    let crate_folder = root.join(folder);
    if folder.is_empty() || !crate_folder.join("Cargo.toml").is_file() {
        return Some(format!("`{killer}` names no package of the workspace"));
    }
    let option = words.iter().position(|word| *word == "--test")?;
    let program = words.get(option + 1).copied().unwrap_or_default();
    let tests = crate_folder.join("tests");
    let is_found =
        tests.join(format!("{program}.rs")).is_file() || tests.join(program).join("main.rs").is_file();
    (!is_found).then(|| format!("`{killer}` names no test program in {}", tests.display()))
}

/// Returns why a patch does not apply.
fn apply_problem(patch: &Path) -> Option<String> {
    let applied = Command::new("git").args(["apply", "--check"]).arg(patch).current_dir(root()).output();
    let applied = applied.expect("git is there");
    let reason = String::from_utf8_lossy(&applied.stderr);
    let advice = "it does not apply any more; plant its bug again by hand and take `git diff`";
    (!applied.status.success()).then(|| format!("{advice}: {reason}"))
}

#[test]
fn mutants_apply_and_name_tests_that_exist() {
    let paths = patch_paths();
    assert!(paths.len() > 4, "{paths:?}");
    let mut problems = Vec::new();
    for path in &paths {
        let text = std::fs::read_to_string(path).expect("readable");
        let found = text_problem(&root(), &text).into_iter().chain(apply_problem(path));
        problems.extend(found.map(|problem| format!("{}: {problem}", path.display())));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn wrong_descriptions_of_mutants_are_found() {
    let problem = |header: &str| text_problem(&root(), &format!("{header}\ndiff --git a/b b/b\n"));
    assert_eq!(problem("A bug.\n\nKilled-by: cargo test -p athanor-integration --test tidy layers\n"), None);
    assert_eq!(problem("A bug.\n\nKilled-by: cargo test -p athanor-integration --lib bodies\n"), None);
    let wrong = [
        "A bug.\n",
        "Killed-by: cargo test -p athanor-integration bodies\n",
        "A bug.\nKilled-by: cargo test -p athanor-block a\nKilled-by: cargo test -p athanor-block b\n",
        "A bug.\nKilled-by: cargo test --workspace\n",
        "A bug.\nKilled-by: cargo test -p athanor-missing\n",
        "A bug.\nKilled-by: cargo test -p athanor-\n",
        "A bug.\nKilled-by: cargo test -p athanor-block --test missing a\n",
        "A bug.\nKilled-by: cargo test -p athanor-block --test\n",
    ];
    for header in wrong {
        assert!(problem(header).is_some(), "{header}");
    }
}
