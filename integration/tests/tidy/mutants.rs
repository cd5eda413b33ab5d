//! The bugs in `mutants/` can still be planted. That a test notices each is for `mutants/run` to show, which builds.

use std::path::{Path, PathBuf};
use std::process::Command;

fn patches() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("mutants");
    let files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("readable").path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "patch")).collect()
}

#[test]
fn each_mutant_applies_and_says_what_notices_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder above");
    let patches = patches();
    assert!(patches.len() > 4, "{patches:?}");
    for patch in patches {
        let text = std::fs::read_to_string(&patch).expect("readable");
        let (said, _) = text.split_once("\ndiff --git ").expect("a patch of git");
        let killers: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("Killed-by: ")).collect();
        assert!(
            matches!(killers[..], [killer] if killer.starts_with("cargo test -p athanor-")),
            "{}: one line `Killed-by: cargo test -p athanor-... TESTS` is wanted, found {killers:?}",
            patch.display()
        );
        assert!(!said.starts_with("Killed-by"), "{}: it does not say what the bug is", patch.display());
        let applied = Command::new("git").args(["apply", "--check"]).arg(&patch).current_dir(root).output();
        let applied = applied.expect("git is there");
        let why = String::from_utf8_lossy(&applied.stderr);
        assert!(
            applied.status.success(),
            "{} does not apply any more; plant its bug again by hand and take `git diff`: {why}",
            patch.display()
        );
    }
}
