//! What every disk must do, and what only the simulated one can.

use std::collections::BTreeSet;

use super::*;

fn read(disk: &dyn Disk, name: &str) -> Vec<u8> {
    disk.read(name).unwrap()
}

fn disk_conformance(disk: &dyn Disk) {
    assert_eq!(disk.list().unwrap(), Vec::<String>::new());
    assert!(matches!(disk.write_at("log", 0, &[b"x"]), Err(DiskError::NotFound { .. })));
    assert!(matches!(disk.read_at("log", 0, &mut [0]), Err(DiskError::NotFound { .. })));
    assert!(matches!(disk.sync("log"), Err(DiskError::NotFound { .. })));
    assert!(matches!(disk.len("log"), Err(DiskError::NotFound { .. })));
    let (free, size) = (disk.free_bytes().unwrap(), disk.capacity_bytes().unwrap());
    assert!(free > 1 << 20 && size >= free, "{free} of {size}");

    disk.create_new("log").unwrap();
    let taken = disk.create_new("log").unwrap_err();
    assert_eq!(
        (taken.code(), taken.to_string().as_str()),
        (ErrorCode::Conflict, "cannot create log: the file already exists")
    );
    disk.write_at("log", 0, &[b"hello", b"", b" "]).unwrap();
    disk.write_at("log", 6, &[b"world"]).unwrap();
    assert_eq!((disk.len("log").unwrap(), read(disk, "log")), (11, b"hello world".to_vec()));
    disk.write_at("log", 13, &[b"!"]).unwrap();
    disk.write_at("log", 0, &[b"H"]).unwrap();
    let mut buffer = [9; 20];
    assert_eq!(disk.read_at("log", 8, &mut buffer).unwrap(), 6);
    assert_eq!(buffer[..7], *b"rld\0\0!\x09");
    assert_eq!(disk.read_at("log", 100, &mut buffer).unwrap(), 0);
    disk.sync("log").unwrap();

    let many: Vec<Vec<u8>> = (0..3_000_u32).map(|n| n.to_le_bytes().to_vec()).collect();
    let parts: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
    disk.create_zeroed("zeros", 20_000).unwrap();
    assert_eq!(disk.create_zeroed("zeros", 1).unwrap_err().code(), ErrorCode::Conflict);
    disk.write_at("zeros", 4_096, &parts).unwrap();
    let expected = [vec![0; 4_096], many.concat(), vec![0; 20_000 - 4_096 - 12_000]].concat();
    assert_eq!(read(disk, "zeros"), expected);
    disk.remove("zeros").unwrap();

    disk.write("vote", b"one").unwrap();
    assert_eq!(read(disk, "vote"), b"one");
    disk.write("vote", b"two!").unwrap();
    assert_eq!(read(disk, "vote"), b"two!");
    disk.rename("log", "log.old").unwrap();
    disk.rename("vote", "vote").unwrap();
    assert_eq!(disk.list().unwrap(), ["log.old", "vote"]);
    assert_eq!(read(disk, "log.old").len(), 14);
    disk.rename("vote", "log.old").unwrap();
    disk.sync_dir().unwrap();
    assert_eq!(read(disk, "log.old"), b"two!");
    assert_eq!(disk.rename("vote", "x").unwrap_err().code(), ErrorCode::NotFound);
    disk.remove("log.old").unwrap();
    assert_eq!(disk.remove("log.old").unwrap_err().code(), ErrorCode::NotFound);
    assert_eq!(disk.list().unwrap(), Vec::<String>::new());

    for name in ["", ".", "..", "a/b", ".hidden", "é"] {
        assert_eq!(disk.create_new(name).unwrap_err().code(), ErrorCode::Invalid, "{name:?}");
    }
    assert_eq!(disk.rename("a", "../b").unwrap_err().code(), ErrorCode::Invalid);
}

#[test]
fn both_disks_conform() {
    disk_conformance(&MemoryDisk::new());
    let folder = tempfile::tempdir().unwrap();
    disk_conformance(&LocalDisk::open(folder.path().join("a/b")).unwrap());
}

#[test]
fn a_local_disk_clears_what_was_left_unfinished_and_keeps_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(".unfinished-vote"), b"half").unwrap();
    std::fs::write(folder.path().join("vote"), b"whole").unwrap();
    let disk = LocalDisk::open(folder.path()).unwrap();
    assert_eq!(read(&disk, "vote"), b"whole");
    assert!(!folder.path().join(".unfinished-vote").exists());
}

#[test]
fn a_folder_has_one_owner_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let first = LocalDisk::open(folder.path()).unwrap();
    let refused = LocalDisk::open(folder.path()).unwrap_err();
    assert!(matches!(refused, DiskError::Locked { .. }), "{refused}");
    drop(first);
    LocalDisk::open(folder.path()).unwrap();
}

#[test]
fn a_local_disk_closes_handles_when_there_are_many() {
    let folder = tempfile::tempdir().unwrap();
    let disk = LocalDisk::open(folder.path()).unwrap();
    for number in 0..600_u32 {
        let name = format!("f{number}");
        disk.create_new(&name).unwrap();
        disk.write_at(&name, 0, &[&number.to_le_bytes()]).unwrap();
    }
    assert_eq!(read(&disk, "f3"), 3_u32.to_le_bytes());
}

#[test]
fn what_was_synced_survives_every_crash() {
    for seed in 0..200 {
        let disk = MemoryDisk::new();
        disk.create_zeroed("log", 4_096).unwrap();
        disk.write_at("log", 0, &[&[7; 1_024]]).unwrap();
        disk.sync("log").unwrap();
        disk.sync_dir().unwrap();
        disk.write_at("log", 1_024, &[&[8; 4_000]]).unwrap();
        disk.write("vote", b"3").unwrap();
        let disk = disk.crash(seed);
        assert_eq!(read(&disk, "log")[..1_024], [7; 1_024]);
        assert!((4_096..=5_024).contains(&disk.len("log").unwrap()));
        assert_eq!(read(&disk, "vote"), b"3");
    }
}

#[test]
fn any_sectors_that_were_not_synced_survive() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..200 {
        let disk = MemoryDisk::new();
        disk.create_zeroed("log", 3 * SECTOR_BYTES as u64).unwrap();
        disk.sync_dir().unwrap();
        disk.write_at("log", 0, &[&[1; 3 * SECTOR_BYTES]]).unwrap();
        let bytes = read(&disk.crash(seed), "log");
        let sectors: Vec<u8> = bytes.chunks(SECTOR_BYTES).map(|sector| sector[0]).collect();
        assert!(bytes.chunks(SECTOR_BYTES).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        outcomes.insert(sectors);
    }
    assert_eq!(outcomes.len(), 8, "{outcomes:?}");
}

#[test]
fn names_that_were_not_synced_come_back_as_they_were_or_as_they_are() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..50 {
        let disk = MemoryDisk::new();
        disk.write("new", b"2").unwrap();
        disk.write("old", b"1").unwrap();
        disk.rename("new", "old").unwrap();
        disk.remove("old").unwrap();
        outcomes.insert(disk.crash(seed).list().unwrap());
    }
    let expected: [&[&str]; 3] = [&[], &["new", "old"], &["old"]];
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn the_power_goes_inside_a_call() {
    let (mut written, mut made, mut replaced) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for seed in 0..100 {
        let disk = MemoryDisk::new();
        disk.write("log", &[0; 2 * SECTOR_BYTES]).unwrap();
        disk.lose_power_after(1);
        disk.write_at("log", 0, &[b"a"]).unwrap();
        assert!(disk.write_at("log", SECTOR_BYTES as u64, &[b"b"]).is_err());
        assert!(disk.list().is_err() && disk.read("log").is_err());
        let disk = disk.crash(seed);
        let bytes = read(&disk, "log");
        written.insert((bytes[0], bytes[SECTOR_BYTES]));

        disk.lose_power_after(0);
        disk.create_zeroed("zeros", 9).unwrap_err();
        let disk = disk.crash(seed);
        made.insert(disk.len("zeros").ok());

        disk.lose_power_after(0);
        disk.write("log", b"new").unwrap_err();
        let disk = disk.crash(seed);
        replaced.insert(disk.len("log").unwrap());
        assert_eq!(disk.operations(), 5);
    }
    assert_eq!(written.len(), 4);
    assert!(made.contains(&None) && made.contains(&Some(9)) && made.len() > 4, "{made:?}");
    assert_eq!(replaced.into_iter().collect::<Vec<_>>(), [3, 2 * SECTOR_BYTES as u64]);
}

#[test]
fn a_dead_process_writes_nothing_and_one_seed_gives_one_crash() {
    let run = |seed| {
        let disk = MemoryDisk::new();
        disk.create_new("log").unwrap();
        disk.sync_dir().unwrap();
        for byte in 0..20_u8 {
            disk.write_at("log", u64::from(byte) * 700, &[&[byte; 700]]).unwrap();
        }
        let after = disk.crash(seed);
        assert_eq!(disk.write_at("log", 0, &[b"x"]).unwrap_err().code(), ErrorCode::Internal);
        assert!(disk.list().is_err());
        read(&after, "log")
    };
    assert_eq!(run(9), run(9));
    assert_ne!(run(9), run(10));

    let disk = MemoryDisk::new();
    disk.write("log", b"old").unwrap();
    disk.write_at("log", 0, &[b"new"]).unwrap();
    let forks: BTreeSet<_> = (0..32).map(|seed| read(&disk.fork(seed), "log")).collect();
    assert_eq!((forks.len(), read(&disk, "log")), (2, b"new".to_vec()));
    let after = disk.restart();
    assert!(disk.list().is_err());
    assert_eq!(read(&after, "log"), b"new");
}

#[test]
fn faults_are_told_and_leave_the_file_as_it_was() {
    let disk = MemoryDisk::new();
    disk.write("log", &[0; 4]).unwrap();
    disk.set_capacity(Some(6));
    assert_eq!((disk.free_bytes().unwrap(), disk.capacity_bytes().unwrap()), (2, 6));
    assert_eq!(disk.write_at("log", 4, &[&[1; 3]]).unwrap_err().code(), ErrorCode::Exhausted);
    assert_eq!(disk.write("other", &[1; 3]).unwrap_err().code(), ErrorCode::Exhausted);
    assert_eq!(disk.create_zeroed("other", 3).unwrap_err().code(), ErrorCode::Exhausted);
    assert_eq!(disk.len("log").unwrap(), 4);
    disk.write_at("log", 0, &[&[1; 4]]).unwrap();
    // What was removed takes no room any more, synced or not.
    disk.write("other", &[1; 2]).unwrap();
    assert_eq!(disk.free_bytes().unwrap(), 0);
    disk.remove("other").unwrap();
    assert_eq!(disk.free_bytes().unwrap(), 2);
    disk.set_capacity(None);
    disk.write_at("log", 4, &[&[1; 3]]).unwrap();

    assert!(disk.flip_bit("log", 1, 3));
    assert!(!disk.flip_bit("log", 99, 0) && !disk.flip_bit("nothing", 0, 0));
    assert_eq!(read(&disk, "log"), [1, 9, 1, 1, 1, 1, 1]);
}

#[test]
fn after_a_sync_that_failed_or_a_write_that_lied_the_bytes_never_become_durable() {
    let disk = MemoryDisk::new();
    disk.write("log", &[0; 4]).unwrap();
    disk.write_at("log", 0, &[b"1"]).unwrap();
    disk.fail_syncs(2);
    assert_eq!(disk.sync("log").unwrap_err().code(), ErrorCode::Internal);
    assert!(disk.sync_dir().is_err());
    disk.sync("log").unwrap();
    assert_eq!(read(&disk, "log")[0], b'1');
    let disk = disk.crash(1);
    assert_eq!(read(&disk, "log")[0], 0);

    disk.lose_writes(1);
    disk.write_at("log", 0, &[b"1"]).unwrap();
    disk.sync("log").unwrap();
    assert_eq!(read(&disk.crash(1), "log")[0], 0);
}
