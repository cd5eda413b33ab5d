//! Parts of one window that merge, and the jobs that merge them.

use std::collections::BTreeMap;

use crate::compaction::planner::PlannerSettings;
use crate::compaction::planner::late_rows::LateRows;
use crate::compaction::planner::part_table::{PartState, PartTable, PlanPart};
use crate::compaction::planner::planned_job::{JobLimits, cut_into_jobs, sum_bytes};
use crate::compaction::planner::window_totals::WindowKey;

/// Window of one tenant and interval of arrivals whose parts merge.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WindowGroup {
    /// Window of the parts.
    pub window: WindowKey,
    /// End of the interval of arrivals.
    pub interval: i64,
}

/// Part with its group.
pub(super) struct GroupedPart<G> {
    /// Group of the part.
    pub group: G,
    /// Index of the part.
    pub part: usize,
}

/// Parts of one group that jobs can take.
#[derive(Default)]
pub(super) struct WindowParts {
    /// Parts that have to be merged once more.
    pub lower: Vec<usize>,
    /// Results of earlier jobs, the smallest first.
    pub results: Vec<JobResult>,
    /// True if running jobs merge lower parts.
    pub has_claimed: bool,
}

/// Outputs of one job in a window. Jobs take all of them or none: they differ in series, so merging some of
/// them would gain nothing.
#[derive(Default)]
pub(super) struct JobResult {
    parts: Vec<usize>,
    bytes: u64,
    is_excluded: bool,
}

impl WindowParts {
    /// Divides the parts of a group into lower ones and results of earlier jobs.
    pub(super) fn from_group<G>(
        table: &PartTable<'_>,
        grouped: &[GroupedPart<G>],
        is_result: impl Fn(&PlanPart) -> bool,
    ) -> Self {
        let mut parts = Self::default();
        let mut by_token: BTreeMap<Option<u64>, JobResult> = BTreeMap::new();
        for &GroupedPart { part: index, .. } in grouped {
            let part = &table.parts[index];
            let is_free = part.state == PartState::Free;
            parts.has_claimed |= part.state == PartState::Claimed;
            if is_result(part) {
                let result = by_token.entry(table.block(part).job).or_default();
                result.parts.push(index);
                result.bytes = result.bytes.saturating_add(part.bytes);
                result.is_excluded |= !is_free;
            } else if is_free {
                parts.lower.push(index);
            }
        }
        parts.results = by_token.into_values().filter(|result| !result.is_excluded).collect();
        parts.results.sort_by_key(|result| result.bytes);
        parts
    }

    /// Returns the number of lower parts and of results.
    pub(super) fn len(&self) -> usize {
        self.lower.len() + self.results.len()
    }

    /// Adds up all parts except the largest result, which would be rewritten.
    pub(super) fn late_rows(&self, table: &PartTable<'_>) -> LateRows {
        let smaller = self.results.split_last().map_or(&[][..], |(_, smaller)| smaller);
        let results = smaller.iter().flat_map(|result| &result.parts);
        LateRows::from_parts(table, self.lower.iter().chain(results).copied())
    }

    /// Returns the parts of one job for the whole group. If it is too large, returns jobs of the lower parts
    /// only, or else of the smallest results. So each job leaves fewer parts and results.
    pub(super) fn into_jobs(
        self,
        table: &PartTable<'_>,
        settings: &PlannerSettings,
        max_bytes: u64,
    ) -> Vec<Vec<usize>> {
        let limits = JobLimits { parts: settings.max_job_parts, bytes: max_bytes };
        let results = self.results.iter().flat_map(|result| &result.parts);
        let all: Vec<usize> = self.lower.iter().chain(results).copied().collect();
        if fits_one_job(table, &all, limits) {
            vec![all]
        } else if self.lower.is_empty() {
            pick_small_results(table, &self.results, limits).into_iter().collect()
        } else {
            cut_into_jobs(table, self.lower, limits)
        }
    }
}

fn fits_one_job(table: &PartTable<'_>, parts: &[usize], limits: JobLimits) -> bool {
    let allowed = parts.iter().map(|&index| table.parts[index].max_parts).min();
    let is_allowed = allowed.is_none_or(|allowed| parts.len() <= allowed);
    is_allowed && limits.permits(parts.len(), sum_bytes(table, parts))
}

/// Returns the parts of the smallest results that fit into one job, if these are at least two.
fn pick_small_results(table: &PartTable<'_>, results: &[JobResult], limits: JobLimits) -> Option<Vec<usize>> {
    let mut picked: Vec<usize> = Vec::new();
    let mut count = 0;
    let can_merge = |result: &&JobResult| {
        result.parts.iter().all(|&index| table.parts[index].max_parts > result.parts.len())
    };
    for result in results.iter().filter(can_merge) {
        let candidate: Vec<usize> = picked.iter().chain(&result.parts).copied().collect();
        if fits_one_job(table, &candidate, limits) {
            picked = candidate;
            count += 1;
        }
    }
    (count >= 2).then_some(picked)
}
