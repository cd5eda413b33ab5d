//! Each bug that the simulated disk, or a reader, has found in a log like this one; each has a mutant as well.

use super::*;

/// Fills the first segment so that the next commit of `length` bytes goes into the second.
fn at_the_end_of_a_segment() -> (MemoryDisk, Log) {
    let disk = MemoryDisk::new();
    let (log, _) = open(&disk);
    for index in 1..=12 {
        must(&log, vec![entry(1, index, 1, 1_000)]);
    }
    (disk, log)
}

/// The power goes inside the commit of an entry, after so many changes of the disk: the disk as the next start finds it.
fn lose_power(disk: &MemoryDisk, log: Log, after: u64, inside: LogRecord, seed: u64) -> MemoryDisk {
    disk.lose_power_after(after);
    assert!(!put(&log, vec![inside]));
    drop(log);
    disk.crash(seed)
}

const SECOND: &str = "000000000002.log";

/// The first frame of a segment and the first commit in it share a sync; so that commit must not call the frame
/// durable: if the frame is torn, both were never acknowledged, and nothing is lost.
#[test]
fn a_torn_first_frame_before_a_whole_commit_is_no_loss() {
    let mut seen = 0;
    for seed in 0..64 {
        let (disk, log) = at_the_end_of_a_segment();
        // Rename, sync of the folder, first frame, commit, and the power goes inside the sync.
        let disk = lose_power(&disk, log, 4, entry(1, 13, 1, 14_000), seed);
        let bytes = disk.read(SECOND).unwrap_or_default();
        let whole = |at: usize| bytes.get(at..at + 8).is_some_and(|magic| magic == b"athlog\x01\n");
        seen += usize::from(!whole(0) && whole(4096));
        let (log, recovery) = open(&disk);
        assert_eq!(recovery.damage, vec![], "seed {seed}");
        assert!(matches!(log.group_state(1).last, Some((12 | 13, 1))), "seed {seed}");
    }
    assert!(seen > 3, "{seen}");
}

/// Behind a torn first frame the log ends in the segment before, and goes on there.
#[test]
fn after_a_torn_first_frame_the_log_goes_on_in_the_old_segment() {
    for seed in 0..64 {
        let (disk, log) = at_the_end_of_a_segment();
        let disk = lose_power(&disk, log, 4, entry(1, 13, 1, 14_000), seed);
        let (log, _) = open(&disk);
        let next = log.group_state(1).end;
        must(&log, vec![entry(1, next, 2, 100)]);
        must(&log, vec![entry(1, next + 1, 2, 9_000)]);
        let disk = disk.crash(seed + 1);
        drop(log);
        let (log, recovery) = open(&disk);
        assert_eq!((recovery.damage, recovery.cut), (vec![], None), "seed {seed}");
        assert_eq!(log.group_state(1).last, Some((next + 1, 2)), "seed {seed}");
    }
}

/// What is durable then is the end of the old segment, not the start of the new one: the next try may be torn in the
/// same way, and nothing is lost.
#[test]
fn a_first_frame_that_is_torn_twice_is_no_loss() {
    let mut seen = 0;
    for seed in 0..128 {
        let (disk, log) = at_the_end_of_a_segment();
        let disk = lose_power(&disk, log, 4, entry(1, 13, 1, 14_000), seed);
        let (log, _) = open(&disk);
        // Only where the first frame is gone, so that it is written once more.
        if disk.list().unwrap().iter().any(|name| name == SECOND) {
            continue;
        }
        seen += 1;
        let (log, recovery) = open(&lose_power(&disk, log, 4, entry(1, 13, 2, 14_000), seed + 1_000));
        assert_eq!(recovery.damage, vec![], "seed {seed}");
        assert!(matches!(log.group_state(1).last, Some((12, 1) | (13, 2))), "seed {seed}");
    }
    assert!(seen > 20, "{seen}");
}

/// A frame that was cut off, its head whole, may stay behind where the log went on in the next segment: it is
/// neither the end of the log nor a loss.
#[test]
fn a_frame_that_was_cut_off_before_a_roll_hides_nothing() {
    let mut seen = 0;
    for seed in 0..64 {
        let (disk, log) = at_the_end_of_a_segment();
        // It still fits; the power goes inside its sync.
        let disk = lose_power(&disk, log, 1, entry(1, 13, 1, 5_000), seed);
        let (log, recovery) = open(&disk);
        if recovery.cut.is_none() {
            continue;
        }
        seen += 1;
        for commits in 1..=3_u64 {
            must(&log, vec![entry(1, 12 + commits, 2, 14_000)]);
            let (log, recovery) = open(&disk.fork(seed));
            assert_eq!(recovery.damage, vec![], "seed {seed}");
            assert_eq!(log.group_state(1).last, Some((12 + commits, 2)), "seed {seed}");
        }
    }
    assert!(seen > 3, "{seen}");
}

/// An empty entry lives, too.
#[test]
fn a_segment_of_empty_entries_is_not_dead() {
    let (disk, log) = at_the_end_of_a_segment();
    for index in 1..=40 {
        must(&log, vec![entry(2, index, 1, 0)]);
    }
    must(&log, vec![LogRecord::Purge { group: 1, index: 12, term: 1 }]);
    for index in 13..=200 {
        must(&log, vec![entry(1, index, 1, 9_000), LogRecord::Purge { group: 1, index, term: 1 }]);
    }
    assert_eq!(log.read(2, 17).unwrap().unwrap().data, Bytes::new());
    let disk = disk.crash(1);
    drop(log);
    let (log, recovery) = open(&disk);
    assert_eq!(recovery.damage, vec![]);
    let held = log.group_state(2);
    assert_eq!((held.first, held.end, held.hurt), (1, 41, false));
}

/// An empty payload lies where the next one begins, and is not that one.
#[test]
fn an_empty_entry_is_not_the_one_behind_it() {
    let (log, _) = open(&MemoryDisk::new());
    must(&log, vec![entry(1, 1, 1, 0), entry(1, 2, 1, 50)]);
    assert_eq!(log.read(1, 1).unwrap().unwrap().data, Bytes::new());
}

/// Segments are given away oldest first: of the renames any first few survive a crash, and what is left must be a
/// run.
#[test]
fn segments_are_given_away_oldest_first() {
    for seed in 0..32 {
        let disk = MemoryDisk::new();
        let (log, _) = open(&disk);
        for index in 1..=40 {
            must(&log, vec![entry(1, index, 1, 9_000)]);
        }
        // All that can go goes at once; the power goes a little later.
        must(&log, vec![LogRecord::Purge { group: 1, index: 39, term: 1 }]);
        let disk = disk.crash(seed);
        drop(log);
        let (log, recovery) = open(&disk);
        assert_eq!(recovery.damage, vec![], "seed {seed}");
        assert_eq!((log.group_state(1).first, log.group_state(1).last), (40, Some((40, 1))), "seed {seed}");
    }
}

/// A whole frame behind a torn one was cut off with it. What is written in the torn one's place must not bring it
/// back: it holds entries that nobody acknowledged, over ones that were.
#[test]
fn a_frame_that_was_cut_off_is_not_met_again() {
    let mut seen = 0;
    for seed in 0..400 {
        let disk = MemoryDisk::new();
        let (log, _) = open(&disk);
        must(&log, vec![entry(1, 1, 1, 100)]);
        log.attest();
        let disk = lose_power(&disk, log, 1, entry(1, 2, 1, 100), seed);
        let bytes = disk.read("000000000001.log").unwrap();
        let begun = |block: usize| bytes[block * 4096..].starts_with(b"athlog");
        let (log, _) = open(&disk);
        if begun(1) || !begun(2) || log.group_state(1).end != 2 {
            continue;
        }
        seen += 1;
        must(&log, vec![entry(1, 2, 2, 200)]);
        let (log, recovery) = open(&disk.fork(seed));
        assert_eq!(recovery.damage, vec![], "seed {seed}");
        assert_eq!(log.group_state(1).last, Some((2, 2)), "seed {seed}");
    }
    assert!(seen > 3, "{seen}");
}

/// The attestation in a segment that is left is synced before anything calls it durable.
#[test]
fn an_attestation_at_the_end_of_a_segment_is_no_loss() {
    for seed in 0..64 {
        let (disk, log) = at_the_end_of_a_segment();
        log.attest();
        must(&log, vec![entry(1, 13, 1, 14_000)]);
        must(&log, vec![entry(1, 14, 1, 9_000)]);
        let disk = disk.crash(seed);
        drop(log);
        assert_eq!(open(&disk).1.damage, vec![], "seed {seed}");
    }
}

/// What was read at a start may have been in the cache only: it is durable before anybody votes on it.
#[test]
fn what_a_start_has_read_survives_the_next_loss_of_power() {
    for seed in 0..32 {
        let disk = MemoryDisk::new();
        let (log, _) = open(&disk);
        must(&log, vec![entry(1, 1, 1, 100)]);
        // Written, not synced; then the process dies and the machine does not.
        disk.lose_power_after(1);
        assert!(!put(&log, vec![entry(1, 2, 1, 100)]));
        let disk = disk.restart();
        drop(log);
        let (log, _) = open(&disk);
        let last = log.group_state(1).last;
        let disk = disk.crash(seed);
        drop(log);
        assert_eq!(open(&disk).0.group_state(1).last, last, "seed {seed}");
    }
}

/// A sync fails, the process ends, and the next one finds in the cache what never reached the disk. What it logs then
/// hangs on that.
#[test]
fn what_a_failed_sync_dropped_is_written_again() {
    for (seed, length) in (0..32).zip([100, 9_000].into_iter().cycle()) {
        let disk = MemoryDisk::new();
        let (log, _) = open(&disk);
        must(&log, vec![entry(1, 1, 1, 100)]);
        disk.fail_syncs(1);
        assert!(!put(&log, vec![entry(1, 2, 1, length)]));
        drop(log);
        let disk = disk.restart();
        let (log, _) = open(&disk);
        let next = log.group_state(1).end;
        must(&log, vec![entry(1, next, 2, 100)]);
        drop(log);
        let (log, recovery) = open(&disk.crash(seed));
        assert_eq!((recovery.damage, log.group_state(1).last), (vec![], Some((next, 2))), "seed {seed}");
    }
}

/// Each restart of an idle log attests the last commit. The attestations stay within their segment.
#[test]
fn restarts_of_an_idle_log_stay_within_the_segment() {
    let (disk, log) = at_the_end_of_a_segment();
    drop(log);
    for _ in 0..2 * SEGMENT / 4096 {
        let (log, recovery) = open(&disk);
        assert_eq!((recovery.damage, recovery.cut), (vec![], None));
        log.attest();
        assert_eq!(log.failure(), None);
    }
    assert_eq!(disk.len("000000000001.log").unwrap(), SEGMENT);
    let (log, _) = open(&disk);
    must(&log, vec![entry(1, 13, 1, 1_000)]);
    assert_eq!(log.group_state(1).last, Some((13, 1)));
    drop(log);
    let (log, recovery) = open(&disk.crash(1));
    assert_eq!((recovery.damage, recovery.cut), (vec![], None));
    assert_eq!(log.group_state(1).last, Some((13, 1)));
}
