//! Any bytes as what a shard keeps: entries of its log, snapshots, and files of ids. Refused, or read without harm, and the same
//! when it is written and read again. The first byte says which.
#![no_main]

use std::sync::Arc;

use athanor_catalog::BlockId;
use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::{Clock, Disk, Timestamp};
use athanor_consensus::StateMachine;
use athanor_consensus::replicated::RestoreContext;
use athanor_ingester::{DedupWindow, RunFiles, ShardLogEntry, ShardStateMachine};
use athanor_profile::encoding::codec::put_varint;
use athanor_profile::encoding::hash;
use libfuzzer_sys::fuzz_target;

/// So many ids go to a file.
const BATCH: usize = 4;
/// Where snapshots are labelled.
const INDEX: u64 = 5;
/// The parts of a file of ids.
const PAGE: usize = 4096;
const TAIL: usize = 64;
/// The number of the file that is looked at.
const NUMBER: u64 = 7;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    match first % 4 {
        0 => entry(rest),
        1 => log(rest),
        2 => snapshot(rest, first / 4 % 2 == 1),
        _ => file(rest.to_vec()),
    }
});

fn machine(disk: &Arc<MemoryDisk>) -> ShardStateMachine {
    let shelf = RunFiles::open(Arc::clone(disk) as _, 1, 1, BATCH).expect("the disk is sound");
    let clock = Clock::manual(Timestamp::UNIX_EPOCH).0;
    ShardStateMachine::new(Arc::default(), Arc::default(), clock, DedupWindow::new(shelf))
}

fn restored(
    disk: &Arc<MemoryDisk>,
    index: u64,
    bytes: &[u8],
    alone: bool,
) -> Result<ShardStateMachine, String> {
    let mut machine = machine(disk);
    machine.restore(RestoreContext { index, bytes, alone, arrive: &mut || Ok(()) })?;
    Ok(machine)
}

/// What a machine writes of itself says the same of another one.
fn same_again(machine: &ShardStateMachine, disk: &Arc<MemoryDisk>) {
    let (known, written) = ((machine.flushed_index(), machine.lost_ids_index()), machine.snapshot());
    let bytes = (written.write)().expect("the disk is sound");
    let other = restored(disk, written.index, &bytes, false).expect("what was written is read");
    assert_eq!((other.flushed_index(), other.lost_ids_index()), known);
    let again = other.snapshot();
    assert_eq!((again.index, (again.write)().expect("the disk is sound")), (written.index, bytes));
}

fn entry(bytes: &[u8]) {
    let head = ShardLogEntry::decode_batch_header(bytes);
    let Ok(entry) = ShardLogEntry::decode(bytes) else { return };
    // What of a batch every member reads is a part of it.
    assert_eq!(head.expect("all of it was read").is_some(), matches!(entry, ShardLogEntry::Batch(_)));
    let written = written(&entry);
    let again = ShardLogEntry::decode(&written).expect("what was written is read");
    assert_eq!(self::written(&again), written);
}

fn written(entry: &ShardLogEntry) -> Vec<u8> {
    match entry {
        ShardLogEntry::TermStart { token, node, stamp } => {
            ShardLogEntry::encode_term_start(*token, *node, *stamp)
        }
        ShardLogEntry::Batch(batch) => batch.encode(),
        ShardLogEntry::GenerationEnd { generation } => ShardLogEntry::encode_generation_end(*generation),
        ShardLogEntry::FlushMarker { to, stamp, block } => ShardLogEntry::encode_flush_marker(*to, *stamp, *block),
        ShardLogEntry::Fence { version, from, revision } => {
            ShardLogEntry::encode_fence(*version, *from, *revision)
        }
        ShardLogEntry::FenceVoided { version } => ShardLogEntry::encode_fence_voided(*version),
        ShardLogEntry::Seal => ShardLogEntry::encode_seal(),
        ShardLogEntry::InheritIds(inherit) => inherit.encode(),
        ShardLogEntry::ForeignIds(ids) => ShardLogEntry::encode_foreign_ids(ids),
        ShardLogEntry::HoldReleased { shard } => ShardLogEntry::encode_hold_released(*shard),
        ShardLogEntry::DeltaState(piece) => ShardLogEntry::encode_delta_state(piece),
    }
}

/// Entries, each behind two bytes of length, the lower first.
fn log(bytes: &[u8]) {
    let disk = Arc::new(MemoryDisk::new());
    let mut machine = machine(&disk);
    apply_all(&mut machine, 0, bytes);
    same_again(&machine, &disk);
}

fn apply_all(machine: &mut ShardStateMachine, mut index: u64, mut rest: &[u8]) {
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let (entry, after) = after.split_at(usize::from(u16::from_le_bytes(*length)).min(after.len()));
        index += 1;
        machine.apply(index, entry);
        rest = after;
    }
}

fn snapshot(bytes: &[u8], alone: bool) {
    let disk = Arc::new(MemoryDisk::new());
    let files = machine(&disk).snapshot_files(bytes);
    let Ok(machine) = restored(&disk, INDEX, bytes, alone) else { return };
    // Files that nobody has are done without only where nobody else is asked.
    let files = files.expect("it was read");
    assert!(alone || files.is_empty());
    assert_eq!(machine.flushed_index(), INDEX);
    same_again(&machine, &disk);
}

/// A file of ids whose length and sums are those of its bytes: chance does not find them.
fn file(mut bytes: Vec<u8>) {
    let Some(tail_at) = bytes.len().checked_sub(TAIL) else { return };
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|place| bytes[at + place]));
    let pages = usize::try_from(word(tail_at + 24)).unwrap_or(usize::MAX);
    let Some(begin) = pages.checked_mul(PAGE).filter(|begin| *begin <= tail_at) else { return };
    // What follows the pages is eight bytes for each, then the filter.
    let filter = (tail_at - begin) / 8;
    let Some(filter) = filter.checked_sub(pages) else { return };
    for (word, value) in [(1, NUMBER), (4, filter as u64)] {
        let at = tail_at + word * 8;
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    for (place, page) in (0u64..).zip(bytes[..begin].chunks_exact_mut(PAGE)) {
        let (records, sum) = page.split_at_mut(PAGE - 8);
        sum.copy_from_slice(
            &(hash::hash_tagged(NUMBER.rotate_left(32) ^ place, records) as u64).to_le_bytes(),
        );
    }
    let index = hash::hash_bytes(&bytes[begin..tail_at]) as u64;
    let sum = hash::hash_tagged(index, &bytes[tail_at..tail_at + TAIL - 8]) as u64;
    bytes[tail_at + TAIL - 8..].copy_from_slice(&sum.to_le_bytes());

    let disk = Arc::new(MemoryDisk::new());
    let named = naming(sum);
    let name = machine(&disk).snapshot_files(&named).expect("it is sound").remove(0);
    disk.write(&name, &bytes).expect("the disk is sound");
    let Ok(mut machine) = restored(&disk, INDEX, &named, false) else { return };
    // Ids of the file, and one that is not there.
    let ids = bytes[..begin].chunks_exact(20).take(BATCH);
    let ids = ids.map(|record| u128::from_be_bytes(std::array::from_fn(|place| record[place])));
    let ids: Vec<u128> = ids.chain([1]).collect();
    {
        let window = machine.window();
        let mut window = window.lock();
        ids.iter().for_each(|&id| assert!(window.contains(id) || !window.contains_applied(id)));
    }
    // Those after the first are cut, and go to a file beside it, or with it to one of both.
    let mut log = Vec::new();
    for entry in [
        ShardLogEntry::encode_generation_end(1),
        inherit(&ids),
        ShardLogEntry::encode_flush_marker(INDEX + 2, 9, BlockId::from_number(3)),
    ] {
        log.extend((entry.len() as u16).to_le_bytes());
        log.extend(entry);
    }
    apply_all(&mut machine, INDEX, &log);
    same_again(&machine, &disk);
}

/// A snapshot that names the file, and says nothing else.
fn naming(sum: u64) -> Vec<u8> {
    // The version; stamp, span, horizon and floor; no ids that are in no file, and one file.
    let mut out = vec![1, 0, 0, 0, 0, 0, 1];
    put_varint(&mut out, NUMBER);
    out.extend_from_slice(&sum.to_le_bytes());
    // No states; nothing forgotten; no fences, nothing taken, nor sealed, nor inherited, nor held; no ids of others.
    out.extend([0; 10]);
    out
}

/// An entry that takes over ids from the blocks of another shard.
fn inherit(ids: &[u128]) -> Vec<u8> {
    // The kind; where they come from, of which shard, and that there are no others; stamp and span.
    let mut out = vec![9, 2, 1, 3, 8, 100];
    put_varint(&mut out, ids.len() as u64);
    ids.iter().for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
    out.extend([0, 0]);
    out
}
