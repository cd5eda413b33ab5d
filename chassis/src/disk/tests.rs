//! What every disk must do, and what only the simulated one can.

use super::*;
use crate::compute::Compute;

async fn disk_conformance(disk: &dyn Disk) {
    assert_eq!(disk.list().await.unwrap(), Vec::<String>::new());
    assert!(matches!(disk.append("log", vec![1]).await, Err(DiskError::NotFound { .. })));
    assert!(matches!(disk.read_at("log", 0, 1).await, Err(DiskError::NotFound { .. })));
    assert!(matches!(disk.sync("log").await, Err(DiskError::NotFound { .. })));

    disk.create_new("log").await.unwrap();
    let taken = disk.create_new("log").await.unwrap_err();
    assert_eq!(
        (taken.code(), taken.to_string().as_str()),
        (Code::Conflict, "cannot create log: it exists already")
    );
    assert_eq!(disk.append("log", b"hello ".to_vec()).await.unwrap(), 0);
    assert_eq!(disk.append("log", b"world".to_vec()).await.unwrap(), 6);
    assert_eq!(disk.len("log").await.unwrap(), 11);
    assert_eq!(disk.read_at("log", 4, 3).await.unwrap(), b"o w");
    assert_eq!(disk.read_at("log", 9, 100).await.unwrap(), b"ld");
    assert_eq!(disk.read_at("log", 100, usize::MAX).await.unwrap(), b"");
    disk.sync("log").await.unwrap();

    disk.write("vote", b"one".to_vec()).await.unwrap();
    disk.write("vote", b"two!".to_vec()).await.unwrap();
    assert_eq!(disk.read_at("vote", 0, 10).await.unwrap(), b"two!");
    disk.rename("log", "log.old").await.unwrap();
    disk.rename("vote", "vote").await.unwrap();
    assert_eq!(disk.list().await.unwrap(), ["log.old", "vote"]);
    disk.rename("vote", "log.old").await.unwrap();
    disk.sync_dir().await.unwrap();
    assert_eq!(disk.read_at("log.old", 0, 10).await.unwrap(), b"two!");
    assert_eq!(disk.rename("vote", "x").await.unwrap_err().code(), Code::NotFound);
    disk.remove("log.old").await.unwrap();
    assert_eq!(disk.remove("log.old").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(disk.list().await.unwrap(), Vec::<String>::new());

    for name in ["", ".", "..", "a/b", ".hidden", "é"] {
        assert_eq!(disk.create_new(name).await.unwrap_err().code(), Code::Invalid, "{name:?}");
    }
    assert_eq!(disk.rename("a", "../b").await.unwrap_err().code(), Code::Invalid);
}

#[tokio::test]
async fn both_disks_conform() {
    disk_conformance(&MemoryDisk::new()).await;
    let folder = tempfile::tempdir().unwrap();
    let compute = Compute::threads(std::num::NonZeroUsize::MIN, 4).unwrap();
    disk_conformance(&LocalDisk::open(folder.path().join("a/b"), compute).await.unwrap()).await;
}

#[tokio::test]
async fn a_local_disk_clears_what_was_left_unfinished_and_keeps_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(".unfinished-vote"), b"half").unwrap();
    std::fs::write(folder.path().join("vote"), b"whole").unwrap();
    let disk = LocalDisk::open(folder.path(), Compute::inline()).await.unwrap();
    assert_eq!(disk.read_at("vote", 0, 9).await.unwrap(), b"whole");
    assert!(!folder.path().join(".unfinished-vote").exists());
}

#[tokio::test]
async fn what_was_synced_survives_every_crash() {
    for seed in 0..200 {
        let disk = MemoryDisk::new();
        disk.create_new("log").await.unwrap();
        disk.append("log", b"synced".to_vec()).await.unwrap();
        disk.sync("log").await.unwrap();
        disk.sync_dir().await.unwrap();
        disk.append("log", b"not".to_vec()).await.unwrap();
        disk.write("vote", b"3".to_vec()).await.unwrap();
        let disk = disk.crash(seed);
        assert_eq!(disk.read_at("log", 0, 6).await.unwrap(), b"synced");
        assert!(disk.len("log").await.unwrap() <= 9);
        assert_eq!(disk.read_at("vote", 0, 9).await.unwrap(), b"3");
    }
}

#[tokio::test]
async fn what_was_not_synced_may_be_kept_torn_or_lost() {
    let mut outcomes = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let disk = MemoryDisk::new();
        disk.create_new("log").await.unwrap();
        disk.sync_dir().await.unwrap();
        disk.append("log", b"ab".to_vec()).await.unwrap();
        disk.append("log", b"c".to_vec()).await.unwrap();
        let disk = disk.crash(seed);
        outcomes.insert(disk.read_at("log", 0, 9).await.unwrap());
    }
    for expected in [&b""[..], b"a", b"ab", b"abc", b"\0\0c", b"a\0c"] {
        assert!(outcomes.contains(expected), "{expected:?} not among {outcomes:?}");
    }
}

#[tokio::test]
async fn names_that_were_not_synced_come_back_as_they_were_or_as_they_are() {
    let mut outcomes = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let disk = MemoryDisk::new();
        disk.write("new", b"2".to_vec()).await.unwrap();
        disk.write("old", b"1".to_vec()).await.unwrap();
        disk.rename("new", "old").await.unwrap();
        disk.remove("old").await.unwrap();
        outcomes.insert(disk.crash(seed).list().await.unwrap());
    }
    let expected: [&[&str]; 3] = [&[], &["new", "old"], &["old"]];
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_dead_process_writes_nothing_and_one_seed_gives_one_crash() {
    let run = async |seed| {
        let disk = MemoryDisk::new();
        disk.create_new("log").await.unwrap();
        disk.sync_dir().await.unwrap();
        for byte in 0..20 {
            disk.append("log", vec![byte; 5]).await.unwrap();
        }
        let after = disk.crash(seed);
        assert_eq!(disk.append("log", vec![0]).await.unwrap_err().code(), Code::Internal);
        assert!(disk.list().await.is_err());
        after.read_at("log", 0, 100).await.unwrap()
    };
    assert_eq!(run(9).await, run(9).await);
    assert_ne!(run(9).await, run(10).await);
}

#[tokio::test]
async fn faults_are_told_and_leave_the_file_as_it_was() {
    let disk = MemoryDisk::new();
    disk.write("log", vec![0; 4]).await.unwrap();
    disk.set_capacity(Some(6));
    assert_eq!(disk.append("log", vec![1; 3]).await.unwrap_err().code(), Code::Exhausted);
    assert_eq!(disk.write("other", vec![1; 3]).await.unwrap_err().code(), Code::Exhausted);
    assert_eq!(disk.len("log").await.unwrap(), 4);
    disk.set_capacity(None);
    disk.append("log", vec![1; 3]).await.unwrap();

    disk.fail_syncs(2);
    assert_eq!(disk.sync("log").await.unwrap_err().code(), Code::Internal);
    assert!(disk.sync_dir().await.is_err());
    disk.sync("log").await.unwrap();

    assert!(disk.flip_bit("log", 1, 3));
    assert!(!disk.flip_bit("log", 99, 0) && !disk.flip_bit("nothing", 0, 0));
    assert_eq!(disk.read_at("log", 0, 9).await.unwrap(), [0, 8, 0, 0, 1, 1, 1]);
}
