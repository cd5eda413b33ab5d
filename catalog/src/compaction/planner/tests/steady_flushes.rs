//! Plans of rows that arrive in time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use athanor_chassis::{TenantId, Timestamp};

use super::{BlockSimulator, NewRow, START_TIME, minutes, row};
use crate::compaction::CompactionJob;
use crate::compaction::window::level_window_end;

const BYTES_PER_MIB: u64 = 1 << 20;

/// Flushes one block of each shard per minute, with rows of the minute before, and merges all closed windows.
fn flush_and_merge(simulator: &mut BlockSimulator, shards: u32, count: u64, rates: &[(&str, u64)]) {
    for _ in 0..count {
        simulator.advance(minutes(1));
        let time = simulator.input.now.minus(Duration::from_secs(5));
        for shard in 0..shards {
            let rows: Vec<NewRow> = rates.iter().map(|(name, bytes)| row(name, time, *bytes)).collect();
            simulator.flush(shard, &rows);
        }
        simulator.run_until_idle();
    }
}

#[test]
fn closed_windows_end_in_one_final_block_after_two_merges() {
    let mut simulator = BlockSimulator::new(START_TIME);
    let rates = [("large", BYTES_PER_MIB), ("medium", BYTES_PER_MIB / 4), ("small", 1000)];
    flush_and_merge(&mut simulator, 2, 24 * 60 + 90, &rates);
    let first_day = START_TIME.plus(minutes(24 * 60)).nanos();
    let mut final_blocks: BTreeMap<(TenantId, u8, i64), usize> = BTreeMap::new();
    for block in simulator.raw_blocks() {
        let rows = &simulator.rows[&block.id];
        let mut in_first_day = rows.values().flatten().filter(|row| row.time <= first_day).peekable();
        if in_first_day.peek().is_none() {
            continue;
        }
        assert!(in_first_day.all(|row| row.passes == 2));
        for span in &block.tenants {
            let end = level_window_end(span.max_time, block.level);
            *final_blocks.entry((span.tenant.clone(), block.level, end)).or_default() += 1;
        }
    }
    assert!(final_blocks.values().all(|count| *count == 1), "{final_blocks:?}");
    let count = |name: &str, level: u8| {
        final_blocks.keys().filter(|(tenant, l, _)| tenant.as_str() == name && *l == level).count()
    };
    assert_eq!((count("large", 2), count("large", 3)), (24, 0));
    assert_eq!((count("medium", 3), count("small", 3)), (1, 1));
    assert_eq!((count("medium", 2), count("small", 2)), (0, 0));
    let rows: u64 = (1..=3).map(|level| rows_bytes(&simulator, level)).sum();
    assert!(simulator.written_bytes.values().sum::<u64>() <= 2 * rows);
    assert_eq!(simulator.status().oldest_open_window, None);
}

fn rows_bytes(simulator: &BlockSimulator, level: u8) -> u64 {
    simulator.rows_at(level).iter().map(|row| row.bytes).sum()
}

#[test]
fn window_of_64_flushes_per_minute_has_its_jobs_when_it_closes() {
    let mut simulator = BlockSimulator::new(START_TIME);
    let names = ["large", "b", "c", "d", "e"];
    for _ in 0..12 {
        let time = simulator.input.now.plus(Duration::from_secs(30));
        simulator.advance(minutes(1));
        for shard in 0..64 {
            let rows: Vec<NewRow> = names
                .iter()
                .map(|name| row(name, time, if *name == "large" { BYTES_PER_MIB } else { 1000 }))
                .collect();
            simulator.flush(shard, &rows);
        }
    }
    simulator.input.now = START_TIME.plus(minutes(12)).minus(Duration::from_nanos(1));
    assert_eq!(simulator.plan(100), []);
    simulator.input.now = START_TIME.plus(minutes(12));
    let jobs = simulator.plan(100);
    let tenants = |job: &CompactionJob| job.parts().tenants.len();
    assert_eq!(jobs.iter().map(tenants).collect::<Vec<_>>(), [4, 1]);
    for job in &jobs {
        assert_eq!((job.level, job.inputs.len()), (1, 640));
        simulator.run(job);
    }
    let merged: BTreeSet<u64> = simulator.rows_at(1).iter().map(|row| row.id).collect();
    assert_eq!(merged.len(), 640 * names.len());
}

#[test]
fn profile_at_the_end_of_a_window_belongs_to_it() {
    let mut simulator = BlockSimulator::new(START_TIME);
    simulator.advance(minutes(10));
    let boundary: Timestamp = simulator.input.now;
    simulator.flush(1, &[row("a", boundary, 10)]);
    simulator.advance(minutes(2));
    assert_eq!(simulator.run_until_idle(), 1);
}

#[test]
fn final_merge_waits_for_flushed_blocks_of_its_window() {
    let mut simulator = BlockSimulator::new(START_TIME);
    simulator.advance(minutes(5));
    simulator.flush(1, &[row("a", START_TIME.plus(minutes(1)), 100 * BYTES_PER_MIB)]);
    simulator.advance(minutes(55));
    simulator.run_until_idle();
    simulator.flush(1, &[row("a", START_TIME.plus(minutes(59)), BYTES_PER_MIB)]);
    simulator.advance(minutes(15));
    let levels: Vec<u8> = simulator.plan(10).iter().map(|job| job.level).collect();
    assert_eq!(levels, [1]);
    assert_eq!(simulator.status().oldest_open_window, Some(START_TIME.plus(minutes(60))));
    simulator.run_until_idle();
    assert_eq!(simulator.finished_jobs[&2], 1);
    assert_eq!(simulator.status().oldest_open_window, None);
}

#[test]
fn large_window_is_split() {
    let mut simulator = BlockSimulator::new(START_TIME);
    simulator.advance(minutes(1));
    for shard in 0..5 {
        simulator.flush(shard, &[row("a", START_TIME.plus(minutes(1)), 1024 * BYTES_PER_MIB)]);
    }
    simulator.advance(minutes(15));
    let jobs = simulator.plan(10);
    assert_eq!(jobs.iter().map(|job| job.splits).collect::<Vec<_>>(), [5]);
    simulator.run_until_idle();
    simulator.advance(minutes(120));
    simulator.run_until_idle();
    assert_eq!(simulator.rows_at(2).len(), 5);
    assert_eq!(simulator.raw_blocks().count(), 5);
}
