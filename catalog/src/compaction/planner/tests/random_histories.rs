//! Random histories of flushes, merges, failures and lost workers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use athanor_chassis::{Random, TenantId, Tier, Timestamp};
use proptest::prelude::*;

use super::{BlockSimulator, NewRow, START_TIME, minutes, row};
use crate::block::PartId;
use crate::compaction::planner::plan_jobs;
use crate::compaction::window::level_window_end;
use crate::compaction::{CompactionJob, JobRequest};

const DAY_MINUTES: u64 = 24 * 60;
/// Limit of the times that a row is written to one tier, with late rows of wrong clocks in its window.
const MAX_TIER_PASSES: u32 = 8;

/// Job of a worker that has not finished.
struct RunningJob {
    token: u64,
    job: CompactionJob,
}

/// Key of a final block: tenant, level, window and interval of arrivals.
type FinalKey = (TenantId, u8, i64, i64);

fn random_time(random: &Random, now: Timestamp) -> Timestamp {
    let back = |limit: u64| Duration::from_secs(random.next_below(limit));
    match random.next_below(40) {
        0 => Timestamp::from_nanos(i64::MIN),
        1 => Timestamp::from_nanos(i64::MAX),
        2 => Timestamp::UNIX_EPOCH.plus(back(1_000_000)),
        3 => Timestamp::from_seconds(4_102_444_800).plus(back(1_000_000)),
        4 => now.minus(back(3 * 86_400)),
        5 => now.plus(back(7200)),
        _ => now.minus(back(90)),
    }
}

fn random_rows(random: &Random, now: Timestamp) -> Vec<NewRow> {
    let names = [("large", 100), ("medium", 20), ("small", 1), ("tiny", 1)];
    let mut rows = Vec::new();
    for (name, bytes) in names {
        for _ in 0..random.next_below(4) {
            rows.push(row(name, random_time(random, now), bytes + random.next_below(bytes)));
        }
    }
    rows
}

/// Lets a worker claim a job, finish one or fail.
fn step_worker(simulator: &mut BlockSimulator, running: &mut Vec<RunningJob>, random: &Random) {
    let max_bytes = if random.next_below(4) == 0 { 300 } else { u64::MAX };
    let request = JobRequest { worker: 1, max_bytes, limit: 3 };
    let mut jobs = plan_jobs(&simulator.input, &request);
    if !jobs.is_empty() {
        let job = jobs.swap_remove(random.next_below(jobs.len() as u64) as usize);
        running.push(RunningJob { token: simulator.claim(&job), job });
    }
    // A claim whose lease ran out ends without a result, because others may claim its parts.
    let now = simulator.input.now;
    simulator.input.claims.retain(|_, claim| now < claim.expires_at);
    running.retain(|running| simulator.input.claims.contains_key(&running.token));
    if running.is_empty() || random.next_below(4) == 0 {
        return;
    }
    let RunningJob { token, job } = running.swap_remove(random.next_below(running.len() as u64) as usize);
    match random.next_below(10) {
        0 => simulator.fail(token),
        _ => simulator.finish(token, &job),
    }
}

/// Simulation after some hours of random flushes and merges, with small thresholds.
fn run_history(seed: u64) -> BlockSimulator {
    let random = Random::from_seed(seed);
    let mut simulator = BlockSimulator::new(START_TIME);
    let settings = &mut simulator.input.settings;
    settings.shared_below_bytes = 200;
    settings.hour_from_bytes = 2000;
    settings.max_block_bytes = 1500;
    let mut running = Vec::new();
    for _ in 0..150 {
        let step = if random.next_below(30) == 0 { 300 } else { 3 };
        simulator.advance(Duration::from_secs(random.next_below(step * 60)));
        let rows = random_rows(&random, simulator.input.now);
        if !rows.is_empty() {
            simulator.flush(random.next_below(4) as u32, &rows);
        }
        for _ in 0..random.next_below(3) {
            step_worker(&mut simulator, &mut running, &random);
        }
    }
    simulator
}

fn list_parts(job: &CompactionJob) -> Vec<PartId> {
    job.parts().iter().collect()
}

/// Tokens of the jobs that wrote each final block.
fn final_tokens(simulator: &BlockSimulator) -> BTreeMap<FinalKey, BTreeSet<Option<u64>>> {
    let mut tokens: BTreeMap<FinalKey, BTreeSet<Option<u64>>> = BTreeMap::new();
    for block in simulator.raw_blocks() {
        for span in &block.tenants {
            let end = level_window_end(span.max_time, block.level);
            let arrival = block.newest_arrival(span);
            let interval = simulator.input.settings.arrival_interval(arrival, end, block.level);
            let key = (span.tenant.clone(), block.level, end, interval);
            tokens.entry(key).or_default().insert(block.job);
        }
    }
    tokens
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn histories_end_in_one_final_block_per_window(seed: u64) {
        let mut simulator = run_history(seed);
        simulator.check_tiers();
        let rows = simulator.row_ids(Tier::Raw);
        simulator.input.failures.clear();
        for days in [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 30, 1, 30, 1] {
            simulator.advance(minutes(days * DAY_MINUTES));
            simulator.run_until_idle();
        }
        prop_assert_eq!(simulator.row_ids(Tier::Raw), rows);
        prop_assert!(simulator.raw_blocks().all(|block| block.is_covered));
        simulator.check_tiers();
        for tier in Tier::DOWNSAMPLED {
            let passes = simulator.rows_of_tier(tier).iter().map(|row| row.passes).max();
            prop_assert!(passes <= Some(MAX_TIER_PASSES), "tier {}: {:?}", tier, passes);
        }
        prop_assert_eq!(simulator.plan(1), []);
        prop_assert_eq!(simulator.status().oldest_open_window, None);
        for (key, tokens) in final_tokens(&simulator) {
            prop_assert!(key.1 >= 2 && tokens.len() == 1, "{:?}: {:?}", key, tokens);
        }
    }

    #[test]
    fn planned_jobs_share_no_part_and_are_equal_for_equal_input(seed: u64) {
        let simulator = run_history(seed);
        let jobs = simulator.plan(u32::MAX);
        prop_assert_eq!(&jobs, &simulator.plan(u32::MAX));
        let parts: Vec<PartId> = jobs.iter().flat_map(list_parts).collect();
        let distinct: BTreeSet<&PartId> = parts.iter().collect();
        prop_assert_eq!(distinct.len(), parts.len());
    }
}
