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
    let (sources, filter) = match words.get(1..).unwrap_or_default() {
        ["--test", program, filter @ ..] => {
            let tests = crate_folder.join("tests");
            let sources = [tests.join(format!("{program}.rs")), tests.join(program)];
            if !sources[0].is_file() && !sources[1].join("main.rs").is_file() {
                return Some(format!("`{killer}` names no test program in {}", tests.display()));
            }
            (sources.to_vec(), filter)
        }
        ["--test"] => return Some(format!("`{killer}` names no test program")),
        ["--lib", filter @ ..] => (vec![crate_folder.join("src")], filter),
        filter => (vec![crate_folder.join("src"), crate_folder.join("tests")], filter),
    };
    let filter = filter.iter().find(|word| !word.starts_with('-'))?;
    (!meets_test(&sources, filter))
        .then(|| format!("no test in {} has `{filter}` in its path", crate_folder.display()))
}

/// Returns whether the sources declare each part of a test filter as a module, and its end as a function or module.
fn meets_test(sources: &[PathBuf], filter: &str) -> bool {
    let mut files = Vec::new();
    for source in sources.iter().filter(|source| source.is_dir()) {
        walk(source, &["rs"], &mut files);
    }
    files.extend(sources.iter().filter(|source| source.is_file()).cloned());
    let texts: Vec<String> = files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    let declares = |keyword: &str, is_named: &dyn Fn(&str) -> bool| {
        texts.iter().flat_map(|text| text.split(keyword).skip(1)).any(|rest| {
            let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
            is_named(&rest[..end.unwrap_or(rest.len())])
        })
    };
    let mut parts = filter.split("::").collect::<Vec<_>>();
    let end = parts.pop().unwrap_or_default();
    let has_modules = parts.iter().enumerate().all(|(place, part)| match place {
        0 => declares("mod ", &|name| name.ends_with(part)),
        _ => declares("mod ", &|name| name == *part),
    });
    let has_end = end.is_empty()
        || declares("fn ", &|name| name.contains(end))
        || declares("mod ", &|name| name.contains(end));
    has_modules && has_end
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
        "A bug.\nKilled-by: cargo test -p athanor-block --lib merge::no_such_test\n",
        "A bug.\nKilled-by: cargo test -p athanor-integration --test tidy no_such_module::\n",
    ];
    for header in wrong {
        assert!(problem(header).is_some(), "{header}");
    }
}
