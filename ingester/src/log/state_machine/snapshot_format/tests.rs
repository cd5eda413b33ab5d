//! Snapshots of other builds.

use std::sync::Arc;

use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::{Clock, Timestamp};
use athanor_consensus::StateMachine;
use athanor_consensus::replicated::RestoreContext;
use proptest::prelude::*;

use crate::log::entry::{BatchUpload, ProfileRecord, TenantDictionaryDelta, UploadBatch};
use crate::log::state_machine::{ShardApplyResult, ShardStateMachine, UploadOutcome};
use crate::window::{DedupWindow, RunFiles};

/// Stamps are told apart to so many nanoseconds.
const TICK: u64 = 1 << 30;
/// A snapshot with the label 5, as builds wrote it that knew one table.
#[rustfmt::skip]
const EARLIER: [u8; 71] = [
    // The version.
    3,
    // The stamp, the span and the horizon, of 2^30 ns: 100, 50, 50.
    0x80, 0x80, 0x80, 0x80, 0x90, 3, 0x80, 0x80, 0x80, 0x80, 0xc8, 1, 0x80, 0x80, 0x80, 0x80, 0xc8, 1,
    // Two entries with ids in no file.
    2,
    // 60 after nothing, index 2, one id.
    0x80, 0x80, 0x80, 0x80, 0xf0, 1, 2, 1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    // 40 later, 3 further, one id.
    0x80, 0x80, 0x80, 0x80, 0xa0, 1, 3, 1, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    // No files.
    0,
    // No states of series.
    0,
    // Of the ids of records up to entry 1 it was not told yet that they are lost.
    1,
];

fn machine() -> ShardStateMachine {
    let shelf = RunFiles::open(Arc::new(MemoryDisk::new()), 1, 1, 4).unwrap();
    let clock = Clock::manual(Timestamp::UNIX_EPOCH).0;
    ShardStateMachine::new(Arc::default(), Arc::default(), clock, DedupWindow::new(shelf))
}

fn restore(machine: &mut ShardStateMachine, bytes: &[u8]) -> Result<(), String> {
    machine.restore(RestoreContext { index: 5, bytes, alone: true, arrive: &mut || Ok(()) })
}

/// For each id, in a batch of its own, whether it is new at a time of the log.
fn new(machine: &mut ShardStateMachine, stamp: u64, ids: &[u128]) -> Vec<bool> {
    let index = machine.snapshot().index.max(5) + stamp / TICK;
    let admitted = |id: &u128| {
        let records = vec![ProfileRecord { id: *id, time: 1, ..ProfileRecord::default() }];
        BatchUpload { tenant: 0, routed: 1, records }
    };
    let tenants = vec![TenantDictionaryDelta { tenant: "acme".into(), ..TenantDictionaryDelta::default() }];
    let uploads = ids.iter().map(admitted).collect();
    let batch = UploadBatch {
        token: index,
        generation: index,
        place: Some(0),
        stamp,
        window: 50 * TICK,
        tenants,
        uploads,
        rows: Vec::new(),
    };
    let ShardApplyResult::Batch(verdicts) = machine.apply(index, &batch.encode()) else { panic!("a batch") };
    let is_new = |verdict| matches!(verdict, UploadOutcome::Records(new) if new == [true]);
    verdicts.into_iter().map(is_new).collect()
}

#[test]
fn a_snapshot_of_builds_that_knew_one_table_is_read() {
    let mut machine = machine();
    restore(&mut machine, &EARLIER).unwrap();
    assert_eq!((machine.flushed_index(), machine.lost_ids_index()), (5, Some(1)));
    assert_eq!(new(&mut machine, 105 * TICK, &[7, 8, 9]), [false, false, true]);
    // What lay in blocks then is forgotten when it is old, no sooner.
    assert_eq!(new(&mut machine, 120 * TICK, &[7, 8, 9]), [true, false, false]);
    // It has taken profiles: nobody may have it forget what it knows.
    assert_eq!(machine.log_status().latest, Some(1));
}

/// It says no more what it was converted from, and says all of it.
#[test]
fn what_was_read_is_written_as_now() {
    let mut first = machine();
    restore(&mut first, &EARLIER).unwrap();
    assert_eq!(first.log_status().latest, Some(i64::MIN));
    let bytes = (first.snapshot().write)().unwrap();
    assert_eq!(bytes[0], 4);
    let mut second = machine();
    restore(&mut second, &bytes).unwrap();
    assert_eq!((first.log_status(), first.lost_ids_index()), (second.log_status(), second.lost_ids_index()));
    assert_eq!((second.snapshot().write)().unwrap(), bytes);
    assert_eq!(new(&mut second, 120 * TICK, &[7, 8, 9]), [true, false, true]);
}

#[test]
fn bytes_that_are_cut_short_go_on_or_are_of_another_version_are_refused() {
    for length in 0..EARLIER.len() {
        restore(&mut machine(), &EARLIER[..length]).unwrap_err();
    }
    restore(&mut machine(), &[&EARLIER[..], &[0]].concat()).unwrap_err();
    for version in (0..=255).filter(|version| *version != 3) {
        let mut bytes = EARLIER;
        bytes[0] = version;
        restore(&mut machine(), &bytes).unwrap_err();
    }
}

proptest! {
    /// A snapshot's sum finds bits that flipped; what passes it for another reason must do no harm.
    #[test]
    fn damage_does_not_panic(at in 0..EARLIER.len(), byte: u8, tail in prop::collection::vec(any::<u8>(), 0..40)) {
        let mut bytes = EARLIER;
        bytes[at] = byte;
        let _ = restore(&mut machine(), &bytes);
        let _ = restore(&mut machine(), &[&EARLIER[..at], &tail[..]].concat());
        let _ = machine().snapshot_files(&bytes);
    }
}
