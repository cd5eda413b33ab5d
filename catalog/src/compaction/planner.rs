//! Planner: derives jobs from the listed blocks. Pure: reads no clock and changes nothing.
//!
//! ```text
//!  blocks ─► PartTable ─┬─ level 0  ─► flushed_jobs: shared and single-tenant jobs of 10 minutes ─┬─► queue
//!                       ├─ level 1+ ─► final_jobs: jobs of an hour or a day per tenant ───────────┤
//!                       └─ tiers    ─► tier_jobs: jobs of a day or 30 days per tenant and tier ───┘
//! ```
//!
//! # Progress
//! A job at level 1 removes parts of level 0, which no job creates. A job at a final level takes parts below
//! it, or merges several earlier results of one window. Raw jobs at a final level cover their rows, and no
//! covered row becomes uncovered. So each job leaves fewer parts to merge, and the planner runs out of jobs if
//! no blocks are flushed.
//!
//! # Late rows
//! Rows that arrive after their window was merged wait until they justify a rewrite: until they are a tenth of
//! the window, 8 parts or a day old. If the final block of their window exists, they skip level 1.
//!
//! A block expires as a whole, by its newest arrival. So rows merge only with rows of the same interval of
//! arrivals: one for all rows that arrived before the window closed, then one per hour or day. A window with
//! late rows has one final block per interval.

mod final_jobs;
mod flushed_jobs;
mod late_rows;
mod part_table;
mod planned_job;
mod queue;
#[cfg(test)]
mod tests;
mod tier_jobs;
mod window_parts;
mod window_totals;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{Tier, Timestamp};

use crate::block::{BlockEntry, PartId};
use crate::compaction::window::{
    DAY_LEVEL, HOUR_LEVEL, arrival_interval_end, level_window_end, window_nanos,
};
use crate::compaction::{
    CompactionJob, CompactionStatus, JobRequest, MAX_JOB_PARTS, PartClaim, PartFailures,
};
use final_jobs::FinalPlanner;
use flushed_jobs::FlushedPlanner;
use part_table::{PartState, PartTable};
use planned_job::PlannedJob;
use queue::JobQueue;
use tier_jobs::TierPlanner;
use window_totals::WindowTotals;

/// Thresholds of the planner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannerSettings {
    /// Tenants with fewer flushed bytes per 10 minutes share blocks.
    pub shared_below_bytes: u64,
    /// Tenants with as many bytes in an hour have a final block of that hour. Others have one of the day.
    pub hour_from_bytes: u64,
    /// Limit of a block. Larger windows are split.
    pub max_block_bytes: u64,
    /// Limit of a job's inputs in bytes, unless one part is larger.
    pub max_job_bytes: u64,
    /// Limit of a job's parts.
    pub max_job_parts: usize,
    /// Time after the end of a window until jobs take it, for the levels 1, 2 and from 3 on.
    pub close_delays: [Duration; 3],
    /// Late rows wait until they are this fraction of their window, as its denominator.
    pub late_fraction: u64,
    /// Late rows wait until they are this number of parts.
    pub late_parts: usize,
    /// Limit of the time that late rows wait.
    pub max_late_wait: Duration,
    /// Limit of the difference between the arrivals of late rows in one block.
    pub max_expiry_spread: Duration,
}

/// State of the catalog from which jobs are derived.
#[derive(Clone, Debug)]
pub struct PlanInput {
    /// Time of the catalog.
    pub now: Timestamp,
    /// Listed blocks, ordered by id.
    pub blocks: Vec<Arc<BlockEntry>>,
    /// Running and expired claims by token.
    pub claims: BTreeMap<u64, PartClaim>,
    /// Failures of parts.
    pub failures: BTreeMap<PartId, PartFailures>,
    /// Number of workers that claim jobs.
    pub workers: u32,
    /// True if an operator paused compaction.
    pub is_paused: bool,
    /// Thresholds of the planner.
    pub settings: PlannerSettings,
}

/// Interval of arrivals that stands for all rows that arrived before their window closed.
const ON_TIME: i64 = i64::MIN;

/// Returns jobs that a worker can claim, the most urgent first. Cost: O(n log n) in the number of listed
/// parts.
pub fn plan_jobs(input: &PlanInput, request: &JobRequest) -> Vec<CompactionJob> {
    if input.is_paused {
        return Vec::new();
    }
    let table = PartTable::from_input(input);
    let max_bytes = request.max_bytes.min(input.settings.max_job_bytes);
    let jobs = plan_all_jobs(input, &table, max_bytes);
    let queue = JobQueue::new(input, &table, jobs);
    queue.take(request.limit as usize).iter().map(|job| job.to_job(&table)).collect()
}

/// Returns the state of compaction.
pub fn compaction_status(input: &PlanInput) -> CompactionStatus {
    let table = PartTable::from_input(input);
    let jobs = plan_all_jobs(input, &table, input.settings.max_job_bytes);
    let mut blocks_by_level: BTreeMap<u8, u64> = BTreeMap::new();
    let mut blocks_by_tier: BTreeMap<Tier, u64> = BTreeMap::new();
    for block in &input.blocks {
        *blocks_by_tier.entry(block.tier).or_default() += 1;
        if block.tier.is_raw() {
            *blocks_by_level.entry(block.level).or_default() += 1;
        }
    }
    let failures = input.failures.iter().map(|(part, failures)| (part.clone(), failures.clone()));
    CompactionStatus {
        time: input.now,
        is_paused: input.is_paused,
        blocks_by_level,
        blocks_by_tier,
        waiting_jobs: jobs.len() as u64,
        waiting_bytes: jobs.iter().map(|job| job.bytes).fold(0, u64::saturating_add),
        oldest_open_window: find_oldest_open_window(input, &table),
        claims: input.claims.clone(),
        failures: failures.collect(),
    }
}

/// Returns all jobs in no particular order. No part is in two of them.
fn plan_all_jobs(input: &PlanInput, table: &PartTable<'_>, max_bytes: u64) -> Vec<PlannedJob> {
    let mut totals = WindowTotals::from_parts(table, &input.settings);
    let flushed = FlushedPlanner { input, table, totals: &totals, max_bytes }.plan();
    for &part in &flushed.pending {
        totals.mark_pending(&table.parts[part], &input.settings);
    }
    let mut jobs = flushed.jobs;
    jobs.extend(FinalPlanner { input, table, totals: &totals, max_bytes }.plan(flushed.late));
    jobs.extend(TierPlanner::new(input, table, max_bytes).plan());
    jobs
}

/// Returns the end of the oldest closed window with rows that are not in a final block. Rows that arrived
/// after their window closed do not count, because they wait on purpose, nor do quarantined ones.
fn find_oldest_open_window(input: &PlanInput, table: &PartTable<'_>) -> Option<Timestamp> {
    let totals = WindowTotals::from_parts(table, &input.settings);
    let open = table.parts.iter().filter(|part| part.tier.is_raw() && part.level < HOUR_LEVEL);
    let ends = open.filter(|part| part.state != PartState::Quarantined).filter_map(|part| {
        let level = totals.final_level(part.tenant, part.max_time);
        let end = level_window_end(part.max_time, level);
        let is_on_time = input.settings.arrival_interval(part.arrival, end, level) == ON_TIME;
        (is_on_time && input.now >= input.settings.close_time(end, level)).then_some(end)
    });
    ends.min().map(Timestamp::from_nanos)
}

impl PlannerSettings {
    /// Returns the time at which a window closes.
    fn close_time(&self, end: i64, level: u8) -> Timestamp {
        let index = usize::from(level.clamp(1, DAY_LEVEL)) - 1;
        Timestamp::from_nanos(end).plus(self.close_delays[index])
    }

    /// Returns the interval of arrivals to which rows of a window belong. Only rows of one interval merge.
    /// So a block expires at most one window and one hour after its oldest row. Late rows have intervals of
    /// a day from level 3 on, and of an hour below it.
    fn arrival_interval(&self, arrival: Timestamp, end: i64, level: u8) -> i64 {
        if arrival <= self.close_time(end, level) {
            return ON_TIME;
        }
        let width_level = level.clamp(HOUR_LEVEL, DAY_LEVEL);
        let width = Duration::from_nanos(window_nanos(width_level).unsigned_abs());
        arrival_interval_end(arrival.nanos(), width.min(self.max_expiry_spread))
    }
}

impl Default for PlannerSettings {
    fn default() -> Self {
        const BYTES_PER_MIB: u64 = 1 << 20;
        const SECONDS_PER_MINUTE: u64 = 60;
        Self {
            shared_below_bytes: 8 * BYTES_PER_MIB,
            hour_from_bytes: 64 * BYTES_PER_MIB,
            max_block_bytes: 1024 * BYTES_PER_MIB,
            max_job_bytes: 16 * 1024 * BYTES_PER_MIB,
            max_job_parts: MAX_JOB_PARTS,
            close_delays: [2, 15, 60].map(|minutes| Duration::from_secs(minutes * SECONDS_PER_MINUTE)),
            late_fraction: 10,
            late_parts: 8,
            max_late_wait: Duration::from_secs(24 * 60 * SECONDS_PER_MINUTE),
            max_expiry_spread: Duration::from_secs(24 * 60 * SECONDS_PER_MINUTE),
        }
    }
}
