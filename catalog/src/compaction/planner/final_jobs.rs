//! Jobs at the levels 2 and 3: merge all parts of one tenant and window into its final block.

use std::collections::BTreeMap;

use athanor_chassis::Timestamp;

use crate::compaction::planner::late_rows::LateRows;
use crate::compaction::planner::part_table::{PartState, PartTable};
use crate::compaction::planner::planned_job::{
    JobLimits, PlannedJob, count_splits, cut_into_jobs, sum_bytes,
};
use crate::compaction::planner::window_totals::{WindowKey, WindowTotals};
use crate::compaction::planner::{ON_TIME, PlanInput};
use crate::compaction::window::{DAY_LEVEL, HOUR_LEVEL, window_nanos};

/// Planner of jobs at the final levels.
pub(super) struct FinalPlanner<'p> {
    /// State of the catalog.
    pub input: &'p PlanInput,
    /// Listed parts.
    pub table: &'p PartTable<'p>,
    /// Totals of all windows.
    pub totals: &'p WindowTotals,
    /// Limit of a job's bytes.
    pub max_bytes: u64,
}

/// Window of one tenant and interval of arrivals whose parts merge.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FinalGroup {
    window: WindowKey,
    interval: i64,
}

/// Part with its group.
struct GroupedPart {
    group: FinalGroup,
    part: usize,
}

/// Parts of one group that jobs can take.
struct GroupParts {
    group: FinalGroup,
    /// Parts below the group's level.
    lower: Vec<usize>,
    /// Results of earlier jobs, the smallest first.
    results: Vec<JobResult>,
}

/// Outputs of one job in a window. Jobs take all of them or none: they differ in series, so merging some of
/// them would gain nothing.
#[derive(Default)]
struct JobResult {
    parts: Vec<usize>,
    bytes: u64,
    is_excluded: bool,
}

impl FinalPlanner<'_> {
    /// Plans all parts from level 1 on, and late parts of level 0.
    pub(super) fn plan(&self, late: Vec<usize>) -> Vec<PlannedJob> {
        let merged = self.table.parts.iter().enumerate().filter(|(_, part)| part.level > 0);
        let parts = merged.map(|(index, _)| index).chain(late);
        let mut grouped: Vec<GroupedPart> =
            parts.map(|part| GroupedPart { group: self.group_of(part), part }).collect();
        grouped.sort_unstable_by_key(|grouped| (grouped.group, grouped.part));
        let mut jobs = Vec::new();
        for parts in grouped.chunk_by(|one, two| one.group == two.group) {
            let group = self.group_parts(parts);
            if self.is_ready(&group) {
                self.plan_group(group, &mut jobs);
            }
        }
        jobs
    }

    fn group_of(&self, index: usize) -> FinalGroup {
        let part = &self.table.parts[index];
        let level = match part.level {
            HOUR_LEVEL.. => part.level.min(DAY_LEVEL),
            _ => self.totals.final_level(part.tenant, part.max_time),
        };
        let window = WindowKey::containing(part.tenant, level, part.max_time);
        let interval = self.input.settings.arrival_interval(part.arrival, window.end, level);
        FinalGroup { window, interval }
    }

    fn group_parts(&self, grouped: &[GroupedPart]) -> GroupParts {
        let group = grouped[0].group;
        let mut lower = Vec::new();
        let mut by_token: BTreeMap<Option<u64>, JobResult> = BTreeMap::new();
        for &GroupedPart { part: index, .. } in grouped {
            let part = &self.table.parts[index];
            let is_free = part.state == PartState::Free;
            if part.level >= group.window.level {
                let result = by_token.entry(self.table.block(part).job).or_default();
                result.parts.push(index);
                result.bytes = result.bytes.saturating_add(part.bytes);
                result.is_excluded |= !is_free;
            } else if is_free {
                lower.push(index);
            }
        }
        let mut results: Vec<JobResult> =
            by_token.into_values().filter(|result| !result.is_excluded).collect();
        results.sort_by_key(|result| result.bytes);
        GroupParts { group, lower, results }
    }

    /// Returns whether the parts of a group can be merged now.
    fn is_ready(&self, parts: &GroupParts) -> bool {
        if parts.lower.is_empty() && parts.results.len() < 2 {
            return false;
        }
        let FinalGroup { window, interval } = parts.group;
        let now = self.input.now;
        let settings = &self.input.settings;
        let total = self.totals.window(&window);
        let late = self.late_rows(parts);
        let is_future = window.end.saturating_sub(window_nanos(window.level)) > now.nanos();
        let has_closed = |end: i64| now >= settings.close_time(end, window.level);
        if is_future || (has_closed(window.end) && total.merged_parts > 0) {
            late.justify_rewrite(self.input, total.merged_bytes)
        } else if interval == ON_TIME {
            has_closed(window.end) && !total.is_pending
        } else {
            let is_over = has_closed(interval) && !total.is_pending;
            is_over || late.justify_rewrite(self.input, total.merged_bytes)
        }
    }

    /// Adds up all parts except the largest result, which would be rewritten.
    fn late_rows(&self, parts: &GroupParts) -> LateRows {
        let smaller = parts.results.split_last().map_or(&[][..], |(_, smaller)| smaller);
        let results = smaller.iter().flat_map(|result| &result.parts);
        LateRows::from_parts(self.table, parts.lower.iter().chain(results).copied())
    }

    /// Plans one job of the whole group. If it is too large, plans jobs of the parts below the level only, or
    /// else of the smallest results. So each job leaves fewer parts and results.
    fn plan_group(&self, group: GroupParts, jobs: &mut Vec<PlannedJob>) {
        let ready_at = self.ready_at(&group);
        let window = group.group.window;
        let limits = JobLimits { parts: self.input.settings.max_job_parts, bytes: self.max_bytes };
        let results = group.results.iter().flat_map(|result| &result.parts);
        let all: Vec<usize> = group.lower.iter().chain(results).copied().collect();
        let planned = if self.fits_one_job(&all, limits) {
            vec![all]
        } else if group.lower.is_empty() {
            self.pick_small_results(&group.results, limits).into_iter().collect()
        } else {
            cut_into_jobs(self.table, group.lower, limits)
        };
        for parts in planned {
            let bytes = sum_bytes(self.table, &parts);
            let splits = count_splits(bytes, &self.input.settings);
            let tenant = Some(window.tenant);
            jobs.push(PlannedJob { level: window.level, tenant, parts, bytes, splits, ready_at });
        }
    }

    /// Returns the time since which the group waits: the end of its window, or its oldest late rows.
    fn ready_at(&self, parts: &GroupParts) -> Timestamp {
        let closed_at = self.input.settings.close_time(parts.group.window.end, parts.group.window.level);
        closed_at.max(self.late_rows(parts).waiting_since()).min(self.input.now)
    }

    fn fits_one_job(&self, parts: &[usize], limits: JobLimits) -> bool {
        let allowed = parts.iter().map(|&index| self.table.parts[index].max_parts).min();
        let is_allowed = allowed.is_none_or(|allowed| parts.len() <= allowed);
        is_allowed && limits.permits(parts.len(), sum_bytes(self.table, parts))
    }

    /// Returns the parts of the smallest results that fit into one job, if these are at least two.
    fn pick_small_results(&self, results: &[JobResult], limits: JobLimits) -> Option<Vec<usize>> {
        let mut picked: Vec<usize> = Vec::new();
        let mut count = 0;
        let can_merge = |result: &&JobResult| {
            result.parts.iter().all(|&index| self.table.parts[index].max_parts > result.parts.len())
        };
        for result in results.iter().filter(can_merge) {
            let candidate: Vec<usize> = picked.iter().chain(&result.parts).copied().collect();
            if self.fits_one_job(&candidate, limits) {
                picked = candidate;
                count += 1;
            }
        }
        (count >= 2).then_some(picked)
    }
}
