//! Jobs as lists of parts, before their entries are copied for a worker.

use std::collections::BTreeMap;

use athanor_chassis::{Tier, Timestamp};

use crate::block::BlockEntry;
use crate::compaction::planner::PlannerSettings;
use crate::compaction::planner::part_table::{PartTable, PlanPart};
use crate::compaction::{CompactionJob, MAX_JOB_OUTPUTS};

/// Job that a worker could claim.
pub(super) struct PlannedJob {
    /// Tier of the parts.
    pub tier: Tier,
    /// Level of the outputs.
    pub level: u8,
    /// Tenant of all parts. Absent for a job of several tenants.
    pub tenant: Option<usize>,
    /// Indexes of the parts.
    pub parts: Vec<usize>,
    /// Estimated bytes of the parts.
    pub bytes: u64,
    /// Number of outputs per window.
    pub splits: u32,
    /// Time since which the job waits.
    pub ready_at: Timestamp,
}

/// Limits of one job.
#[derive(Clone, Copy)]
pub(super) struct JobLimits {
    /// Limit of the parts.
    pub parts: usize,
    /// Limit of the bytes.
    pub bytes: u64,
}

impl PlannedJob {
    /// Copies the entries of the parts, in the order of their arrival.
    pub(super) fn to_job(&self, table: &PartTable<'_>) -> CompactionJob {
        let mut by_block: BTreeMap<usize, Vec<&PlanPart>> = BTreeMap::new();
        for part in self.parts.iter().map(|&index| &table.parts[index]) {
            by_block.entry(part.block).or_default().push(part);
        }
        let mut inputs: Vec<BlockEntry> =
            by_block.into_values().map(|parts| copy_entry(table, parts)).collect();
        inputs.sort_by_cached_key(|entry| {
            let arrivals = entry.tenants.iter().map(|span| entry.newest_arrival(span));
            (arrivals.max(), entry.id)
        });
        CompactionJob { tier: self.tier, level: self.level, inputs, bytes: self.bytes, splits: self.splits }
    }
}

impl JobLimits {
    /// Returns whether a job with these parts is within the limits.
    pub(super) const fn permits(&self, parts: usize, bytes: u64) -> bool {
        parts <= self.parts && bytes <= self.bytes
    }
}

/// Copies a block's entry with some of its parts, in proportion of their bytes.
fn copy_entry(table: &PartTable<'_>, mut parts: Vec<&PlanPart>) -> BlockEntry {
    parts.sort_unstable_by_key(|part| part.span);
    let entry = table.block(parts[0]);
    BlockEntry {
        id: entry.id,
        shard: entry.shard,
        epoch: entry.epoch,
        from: entry.from,
        to: entry.to,
        bytes: parts.iter().map(|part| part.bytes).fold(0, u64::saturating_add),
        samples: parts.iter().map(|part| table.span(part).samples).fold(0, u64::saturating_add),
        lost: entry.lost,
        level: entry.level,
        additional_ranges: entry.additional_ranges.clone(),
        tier: entry.tier,
        is_covered: entry.is_covered,
        job: entry.job,
        tenants: parts.iter().map(|part| table.span(part).clone()).collect(),
    }
}

/// Returns the sum of the parts' bytes.
pub(super) fn sum_bytes(table: &PartTable<'_>, parts: &[usize]) -> u64 {
    parts.iter().map(|&index| table.parts[index].bytes).fold(0, u64::saturating_add)
}

/// Cuts parts of one tenant into jobs within the limits, and within the limits that failures set for parts.
/// A job of one part may exceed the limit of bytes.
pub(super) fn cut_into_jobs(
    table: &PartTable<'_>,
    mut parts: Vec<usize>,
    limits: JobLimits,
) -> Vec<Vec<usize>> {
    let max_parts = |index: usize| table.parts[index].max_parts.min(limits.parts);
    parts.sort_by_key(|&index| (max_parts(index), table.parts[index].arrival, index));
    let mut jobs: Vec<Vec<usize>> = Vec::new();
    let mut bytes = 0_u64;
    for index in parts {
        let sum = table.parts[index].bytes.saturating_add(bytes);
        match jobs.last_mut().filter(|job| job.len() < max_parts(job[0]) && sum <= limits.bytes) {
            Some(job) => {
                job.push(index);
                bytes = sum;
            }
            None => {
                jobs.push(vec![index]);
                bytes = table.parts[index].bytes;
            }
        }
    }
    jobs
}

/// Returns the number of outputs per window and tier for inputs of these bytes, if a job writes blocks of so
/// many tiers.
pub(super) fn count_splits(bytes: u64, tiers: usize, settings: &PlannerSettings) -> u32 {
    let splits = bytes.div_ceil(settings.max_block_bytes.max(1));
    let max_splits = (MAX_JOB_OUTPUTS / tiers.max(1)).max(1);
    // At most 64.
    splits.clamp(1, max_splits as u64) as u32
}
