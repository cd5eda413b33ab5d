//! Snapshots: their bytes, damage, and other versions.

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
/// Bytes of a snapshot with the label 5.
#[rustfmt::skip]
const SNAPSHOT: [u8; 85] = [
    // Version.
    1,
    // Stamp, span, horizon and floor, of 2^30 ns: 100, 50, 50, 100.
    0x80, 0x80, 0x80, 0x80, 0x90, 3, 0x80, 0x80, 0x80, 0x80, 0xc8, 1, 0x80, 0x80, 0x80, 0x80, 0xc8, 1,
    0x80, 0x80, 0x80, 0x80, 0x90, 3,
    // Two entries with ids in no file.
    2,
    // Stamp 60, index 2, one id.
    0x80, 0x80, 0x80, 0x80, 0xf0, 1, 2, 1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    // Stamp 40 later, index 3 further, one id.
    0x80, 0x80, 0x80, 0x80, 0xa0, 1, 3, 1, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    // No files.
    0,
    // No states of series.
    0,
    // The loss of ids up to entry 1 is not reported yet.
    1,
    // No fences, no latest profile, no seal, no inherited window, no holds; no inherited ids.
    0, 0, 0, 0, 0, 0, 0, 0,
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
        sequence: 0,
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
fn snapshot_bytes_restore_ids_until_they_expire() {
    let mut machine = machine();
    restore(&mut machine, &SNAPSHOT).unwrap();
    assert_eq!((machine.flushed_index(), machine.lost_ids_index()), (5, Some(1)));
    assert_eq!(machine.log_status().latest, None);
    assert_eq!(new(&mut machine, 105 * TICK, &[7, 8, 9]), [false, false, true]);
    assert_eq!(new(&mut machine, 120 * TICK, &[7, 8, 9]), [true, false, false]);
    assert_eq!(machine.log_status().latest, Some(1));
}

#[test]
fn restored_snapshot_is_written_unchanged() {
    let mut first = machine();
    restore(&mut first, &SNAPSHOT).unwrap();
    assert_eq!((first.snapshot().write)().unwrap(), SNAPSHOT);
}

#[test]
fn truncated_extended_or_unknown_snapshot_is_rejected() {
    for length in 0..SNAPSHOT.len() {
        restore(&mut machine(), &SNAPSHOT[..length]).unwrap_err();
    }
    restore(&mut machine(), &[&SNAPSHOT[..], &[0]].concat()).unwrap_err();
    for version in (0..=255).filter(|version| *version != 1) {
        let mut bytes = SNAPSHOT;
        bytes[0] = version;
        let error = restore(&mut machine(), &bytes).unwrap_err();
        assert!(error.contains("unknown snapshot version") || version >= 0x80, "{error}");
    }
}

proptest! {
    /// A snapshot's sum finds bits that flipped; what passes it for another reason must do no harm.
    #[test]
    fn damage_does_not_panic(at in 0..SNAPSHOT.len(), byte: u8, tail in prop::collection::vec(any::<u8>(), 0..40)) {
        let mut bytes = SNAPSHOT;
        bytes[at] = byte;
        let _ = restore(&mut machine(), &bytes);
        let _ = restore(&mut machine(), &[&SNAPSHOT[..at], &tail[..]].concat());
        let _ = machine().snapshot_files(&bytes);
    }
}
