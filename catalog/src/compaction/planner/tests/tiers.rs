//! Plans of the downsampled tiers.

use std::collections::BTreeMap;
use std::sync::Arc;

use athanor_chassis::{Tier, Timestamp};

use super::{BlockSimulator, START_TIME, minutes, row};
use crate::block::{BlockEntry, PartId};
use crate::compaction::PartFailures;

const BYTES_PER_MIB: u64 = 1 << 20;
const HOUR_MINUTES: u64 = 60;
const DAY_MINUTES: u64 = 24 * HOUR_MINUTES;

/// Start of a window of 30 days.
fn month_start() -> Timestamp {
    START_TIME.plus(minutes(10 * DAY_MINUTES))
}

/// Simulation in which no block is too large.
fn unsplit_simulator() -> BlockSimulator {
    let mut simulator = BlockSimulator::new(month_start());
    simulator.input.settings.max_block_bytes = u64::MAX;
    simulator.input.settings.max_job_bytes = u64::MAX;
    simulator
}

/// Flushes one block per hour and merges all closed windows.
fn run_hours(simulator: &mut BlockSimulator, hours: u64, rates: &[(&str, u64)]) {
    for _ in 0..hours {
        let time = simulator.input.now.plus(minutes(30));
        simulator.advance(minutes(HOUR_MINUTES));
        let rows: Vec<_> = rates.iter().map(|(name, bytes)| row(name, time, *bytes)).collect();
        simulator.flush(1, &rows);
        simulator.run_until_idle();
    }
}

/// Returns the number of blocks by level.
fn levels(simulator: &BlockSimulator, tier: Tier) -> BTreeMap<u8, usize> {
    let mut levels = BTreeMap::new();
    for block in simulator.blocks_of_tier(tier) {
        *levels.entry(block.level).or_default() += 1;
    }
    levels
}

fn max_passes(simulator: &BlockSimulator, tier: Tier) -> u32 {
    simulator.rows_of_tier(tier).iter().map(|row| row.passes).max().unwrap()
}

#[test]
fn tiers_end_in_blocks_of_a_day_and_of_30_days() {
    let mut simulator = unsplit_simulator();
    // The first tenant has final raw blocks of an hour, the other one of a day.
    run_hours(&mut simulator, 30 * 24, &[("large", 100 * BYTES_PER_MIB), ("small", 1000)]);
    simulator.advance(minutes(3 * HOUR_MINUTES));
    simulator.run_until_idle();
    simulator.check_tiers();
    assert_eq!(levels(&simulator, Tier::Raw), [(2, 30 * 24), (3, 30)].into());
    assert_eq!(levels(&simulator, Tier::FiveMinutes), [(3, 60)].into());
    assert_eq!(levels(&simulator, Tier::OneHour), [(4, 2)].into());
    assert_eq!(levels(&simulator, Tier::OneDay), [(4, 2)].into());
    let passes = Tier::DOWNSAMPLED.map(|tier| max_passes(&simulator, tier));
    assert_eq!(passes, [2, 3, 3], "a row is written once per level");
    let status = simulator.status();
    assert_eq!(status.blocks_by_level, [(2, 30 * 24), (3, 30)].into());
    let by_tier = [(Tier::Raw, 750), (Tier::FiveMinutes, 60), (Tier::OneHour, 2), (Tier::OneDay, 2)];
    assert_eq!(status.blocks_by_tier, by_tier.into());
    assert_eq!((status.waiting_jobs, status.oldest_open_window), (0, None));
}

#[test]
fn single_part_of_a_tier_is_not_rewritten() {
    let mut simulator = BlockSimulator::new(month_start());
    run_hours(&mut simulator, 1, &[("large", 100 * BYTES_PER_MIB)]);
    for _ in 0..40 {
        simulator.advance(minutes(DAY_MINUTES));
        simulator.run_until_idle();
    }
    simulator.check_tiers();
    assert_eq!(simulator.finished_tier_jobs, BTreeMap::new());
    for tier in Tier::DOWNSAMPLED {
        assert_eq!(levels(&simulator, tier), [(2, 1)].into());
    }
}

#[test]
fn month_with_raw_rows_to_come_waits_for_them() {
    let mut simulator = BlockSimulator::new(month_start());
    run_hours(&mut simulator, 30 * 24, &[("small", 1000)]);
    // The day of the last rows closes with the window of 30 days.
    simulator.advance(minutes(HOUR_MINUTES));
    let jobs = simulator.plan(10);
    assert_eq!(jobs.iter().map(|job| (job.tier, job.level)).collect::<Vec<_>>(), [(Tier::Raw, 3)]);
    let token = simulator.claim(&jobs[0]);
    assert_eq!(simulator.plan(10), [], "the raw job runs");
    simulator.finish(token, &jobs[0]);
    simulator.run_until_idle();
    assert_eq!(simulator.finished_tier_jobs, [((Tier::OneHour, 4), 1), ((Tier::OneDay, 4), 1)].into());
    assert_eq!(max_passes(&simulator, Tier::OneDay), 2);
}

#[test]
fn late_rows_do_not_rewrite_the_month_at_once() {
    let mut simulator = BlockSimulator::new(month_start());
    run_hours(&mut simulator, 30 * 24, &[("small", 1000)]);
    simulator.advance(minutes(3 * HOUR_MINUTES));
    simulator.run_until_idle();
    let before = simulator.finished_tier_jobs.clone();
    simulator.flush(1, &[row("small", month_start().plus(minutes(5)), 10)]);
    simulator.advance(minutes(DAY_MINUTES));
    assert_eq!(simulator.run_until_idle(), 1, "the rows become a block of their own");
    simulator.check_tiers();
    assert_eq!(simulator.finished_tier_jobs, before);
    simulator.advance(minutes(10 * DAY_MINUTES));
    simulator.run_until_idle();
    simulator.check_tiers();
    assert!(simulator.rows_of_tier(Tier::OneDay).iter().all(|row| row.passes <= 3));
}

/// Marks all raw blocks as uncovered and removes all tiers, as if an older version had merged them.
fn forget_tiers(simulator: &mut BlockSimulator) {
    let raw: Vec<Arc<BlockEntry>> = simulator
        .raw_blocks()
        .map(|block| Arc::new(BlockEntry { is_covered: false, ..block.clone() }))
        .collect();
    simulator.rows.retain(|id, _| raw.iter().any(|block| block.id == *id));
    simulator.input.blocks = raw;
}

#[test]
fn final_blocks_of_an_older_version_are_merged_once_more() {
    let mut simulator = BlockSimulator::new(month_start());
    run_hours(&mut simulator, 3 * 24 + 2, &[("large", 100 * BYTES_PER_MIB), ("small", 1000)]);
    forget_tiers(&mut simulator);
    let finals = simulator.raw_blocks().filter(|block| block.level > 1).count();
    assert_eq!(finals, 3 * 24 + 3 + 1);
    assert_eq!(simulator.run_until_idle(), finals);
    assert_eq!(simulator.plan(10), []);
    simulator.check_tiers();
    assert!(simulator.raw_blocks().all(|block| block.is_covered == (block.level > 1)));
    assert_eq!(max_passes(&simulator, Tier::Raw), 3);
}

#[test]
fn quarantined_and_claimed_parts_of_a_tier_are_left_out() {
    let mut simulator = unsplit_simulator();
    run_hours(&mut simulator, 24, &[("large", 100 * BYTES_PER_MIB)]);
    simulator.advance(minutes(20));
    simulator.run_until_idle();
    let parts: Vec<PartId> = simulator
        .blocks_of_tier(Tier::FiveMinutes)
        .map(|block| PartId { block: block.id, tenant: block.tenants[0].tenant.clone() })
        .collect();
    assert_eq!(parts.len(), 24);
    let at = simulator.input.now;
    let reason = String::from("failed");
    let failures = PartFailures { count: 0, max_parts: 1, is_quarantined: true, reason, at };
    simulator.input.failures.insert(parts[3].clone(), failures);
    simulator.advance(minutes(HOUR_MINUTES));
    let jobs = simulator.plan(10);
    let job = jobs.iter().find(|job| job.tier == Tier::FiveMinutes).unwrap();
    assert_eq!((job.level, job.parts().len()), (3, 23));
    assert!(!job.parts().contains(&parts[3]));
    let token = simulator.claim(job);
    let others = simulator.plan(10);
    assert!(others.iter().all(|other| other.tier != Tier::FiveMinutes));
    simulator.finish(token, job);
    simulator.run_until_idle();
    simulator.check_tiers();
    assert_eq!(levels(&simulator, Tier::FiveMinutes), [(2, 1), (3, 1)].into());
}

#[test]
fn large_month_is_split_and_cut_to_the_bytes_of_a_job() {
    let mut simulator = BlockSimulator::new(month_start());
    let settings = &mut simulator.input.settings;
    settings.max_block_bytes = 300 * BYTES_PER_MIB;
    settings.max_job_bytes = 5 * 1024 * BYTES_PER_MIB;
    run_hours(&mut simulator, 3 * 24, &[("large", 100 * BYTES_PER_MIB)]);
    simulator.advance(minutes(40 * DAY_MINUTES));
    simulator.run_until_idle();
    simulator.check_tiers();
    assert_eq!(simulator.plan(10), []);
    let mut blocks = simulator.blocks_of_tier(Tier::OneDay);
    assert!(blocks.all(|block| block.level >= 3), "{:?}", levels(&simulator, Tier::OneDay));
    assert!(max_passes(&simulator, Tier::OneDay) <= 3);
}
