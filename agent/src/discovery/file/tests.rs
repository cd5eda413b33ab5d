use std::fs;
use std::path::Path;

use super::super::test_run::{DiscoveryRun, target_texts};
use super::super::{DiscoverySettings, StandardDiscovererFactory};
use super::*;

const INTERVAL: Duration = Duration::from_secs(300);

fn start(files: &[String]) -> DiscoveryRun {
    let settings = FileDiscoverySettings { files: files.to_vec(), refresh_interval: INTERVAL };
    DiscoveryRun::start(&DiscoverySettings::File(settings), StandardDiscovererFactory::system_dns_servers())
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

/// Replaces a file in one step.
fn replace(folder: &Path, name: &str, content: &str) {
    let next = folder.join("next");
    fs::write(&next, content).unwrap();
    fs::rename(next, folder.join(name)).unwrap();
}

/// Waits until a notification arrived, then lets the settle time pass.
async fn settle(run: &DiscoveryRun) {
    run.hand.wait_for_sleepers(2).await;
    run.hand.advance(Duration::from_millis(200));
}

#[tokio::test]
async fn files_of_patterns_have_groups_with_their_path() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    replace(
        folder,
        "a-1.json",
        r#"[{"targets": ["h:1", "h:2"], "labels": {"env": "x"}}, {"targets": ["h:3"]}]"#,
    );
    replace(folder, "b.yml", "- targets: [h:4]\n");
    replace(folder, "c.json", "[{\"targets\": [\"other\"]}]");
    let mut run = start(&[path(folder, "a*.json"), path(folder, "b.yml"), path(folder, "none*.json")]);
    let (a, b) = (path(folder, "a-1.json"), path(folder, "b.yml"));
    let expected = [
        (format!("{a}:0"), format!(r#"{{__address__="h:1", __meta_filepath="{a}", env="x"}}"#), false),
        (format!("{a}:0"), format!(r#"{{__address__="h:2", __meta_filepath="{a}", env="x"}}"#), false),
        (format!("{a}:1"), format!(r#"{{__address__="h:3", __meta_filepath="{a}"}}"#), false),
        (format!("{b}:0"), format!(r#"{{__address__="h:4", __meta_filepath="{b}"}}"#), false),
    ];
    assert_eq!(target_texts(&run.next().await), expected);
    run.stop().await;
}

#[tokio::test]
async fn notification_of_a_change_sends_only_changed_groups() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    replace(folder, "a.yml", "- targets: [h:1]\n- targets: [h:2]\n- targets: [h:3]\n");
    let mut run = start(&[path(folder, "*.yml")]);
    assert_eq!(run.next().await.len(), 3);
    replace(folder, "a.yml", "- targets: [h:1]\n- targets: [h:5]\n");
    settle(&run).await;
    let update = run.next().await;
    let a = path(folder, "a.yml");
    let sources: Vec<_> = update.iter().map(|group| (group.source.clone(), group.targets.len())).collect();
    assert_eq!(sources, [(format!("{a}:1"), 1), (format!("{a}:2"), 0)]);
    fs::remove_file(&a).unwrap();
    settle(&run).await;
    let update = run.next().await;
    assert_eq!(update.len(), 2);
    assert!(update.iter().all(|group| group.targets.is_empty()));
}

#[tokio::test]
async fn invalid_file_keeps_its_groups_until_it_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    replace(folder, "a.json", r#"[{"targets": ["h:1"]}]"#);
    let mut run = start(&[path(folder, "a.json")]);
    assert_eq!(run.next().await.len(), 1);
    replace(folder, "a.json", r#"[{"targets": ["h:2"]"#);
    settle(&run).await;
    run.hand.wait_for_sleepers(1).await;
    while run.stats.errors(DiscoveryKind::File) == 0 {
        tokio::task::yield_now().await;
    }
    replace(folder, "a.json", r#"[{"targets": ["h:3"]}]"#);
    settle(&run).await;
    let update = run.next().await;
    assert_eq!(update[0].targets[0].get("__address__"), Some("h:3"), "the invalid file sent no update");
    assert_eq!(run.stats.errors(DiscoveryKind::File), 1);
}

#[tokio::test]
async fn volume_whose_link_is_replaced_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (version, port) in [("..1", 1), ("..2", 2)] {
        fs::create_dir(folder.join(version)).unwrap();
        fs::write(folder.join(version).join("a.yml"), format!("- targets: [h:{port}]\n")).unwrap();
    }
    std::os::unix::fs::symlink("..1", folder.join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/a.yml", folder.join("a.yml")).unwrap();
    let mut run = start(&[path(folder, "*.yml")]);
    assert_eq!(run.next().await[0].targets[0].get("__address__"), Some("h:1"));
    std::os::unix::fs::symlink("..2", folder.join("..next")).unwrap();
    fs::rename(folder.join("..next"), folder.join("..data")).unwrap();
    settle(&run).await;
    assert_eq!(run.next().await[0].targets[0].get("__address__"), Some("h:2"));
}

#[tokio::test]
async fn folder_that_appears_later_is_found_at_the_next_interval() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("late");
    let mut run = start(&[path(&folder, "*.yml")]);
    assert_eq!(run.next().await, [], "the first update is empty");
    fs::create_dir(&folder).unwrap();
    replace(&folder, "a.yml", "- targets: [h:1]\n");
    run.hand.wait_for_sleepers(1).await;
    run.hand.advance(INTERVAL);
    assert_eq!(run.next().await.len(), 1);
}

#[tokio::test]
async fn file_over_the_limit_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = path(folder.path(), "a.yml");
    fs::write(&path, vec![b'#'; MAX_LIST_BYTES as usize + 10]).unwrap();
    let error = read_groups(&path).await.unwrap_err().to_string();
    assert!(error.contains("over the limit of 16MiB"), "{error}");
}
