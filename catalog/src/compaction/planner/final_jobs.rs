//! Raw jobs at the levels 2 and 3: merge all parts of one tenant and window into its final block, and write
//! the rows that the tiers lack.
//!
//! Final blocks that are not covered, from an older version, count as parts that have to be merged once more.

use athanor_chassis::{Tier, Timestamp};

use crate::compaction::planner::part_table::{PartTable, PlanPart};
use crate::compaction::planner::planned_job::{PlannedJob, count_splits, sum_bytes};
use crate::compaction::planner::window_parts::{GroupedPart, WindowGroup, WindowParts};
use crate::compaction::planner::window_totals::{WindowKey, WindowTotals};
use crate::compaction::planner::{ON_TIME, PlanInput};
use crate::compaction::window::{DAY_LEVEL, HOUR_LEVEL, window_nanos};

/// Planner of raw jobs at the final levels.
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

impl FinalPlanner<'_> {
    /// Plans all raw parts from level 1 on, and late parts of level 0.
    pub(super) fn plan(&self, late: Vec<usize>) -> Vec<PlannedJob> {
        let is_merged = |part: &PlanPart| part.tier.is_raw() && part.level > 0;
        let merged = self.table.parts.iter().enumerate().filter(|(_, part)| is_merged(part));
        let parts = merged.map(|(index, _)| index).chain(late);
        let mut grouped: Vec<GroupedPart<WindowGroup>> =
            parts.map(|part| GroupedPart { group: self.group_of(part), part }).collect();
        grouped.sort_unstable_by_key(|grouped| (grouped.group, grouped.part));
        let mut jobs = Vec::new();
        for of_group in grouped.chunk_by(|one, two| one.group == two.group) {
            let group = of_group[0].group;
            let is_result = |part: &PlanPart| part.is_covered && part.level >= group.window.level;
            let parts = WindowParts::from_group(self.table, of_group, is_result);
            if self.is_ready(group, &parts) {
                self.plan_group(group, parts, &mut jobs);
            }
        }
        jobs
    }

    fn group_of(&self, index: usize) -> WindowGroup {
        let part = &self.table.parts[index];
        let level = match part.level {
            HOUR_LEVEL.. => part.level.min(DAY_LEVEL),
            _ => self.totals.final_level(part.tenant, part.max_time),
        };
        let window = WindowKey::containing(part.tenant, level, part.max_time);
        let interval = self.input.settings.arrival_interval(part.arrival, window.end, level);
        WindowGroup { window, interval }
    }

    /// Returns whether the parts of a group can be merged now.
    fn is_ready(&self, group: WindowGroup, parts: &WindowParts) -> bool {
        // A job that finishes meanwhile covers rows with which the other one did not compare its ids.
        if parts.has_claimed || (parts.lower.is_empty() && parts.results.len() < 2) {
            return false;
        }
        let WindowGroup { window, interval } = group;
        let now = self.input.now;
        let settings = &self.input.settings;
        let total = self.totals.window(&window);
        let late = parts.late_rows(self.table);
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

    fn plan_group(&self, group: WindowGroup, parts: WindowParts, jobs: &mut Vec<PlannedJob>) {
        let settings = &self.input.settings;
        let ready_at = self.ready_at(group, &parts);
        // One job at a time, for the same reason.
        for parts in parts.into_jobs(self.table, settings, self.max_bytes).into_iter().take(1) {
            let bytes = sum_bytes(self.table, &parts);
            jobs.push(PlannedJob {
                tier: Tier::Raw,
                level: group.window.level,
                tenant: Some(group.window.tenant),
                parts,
                bytes,
                splits: count_splits(bytes, Tier::ALL.len(), settings),
                ready_at,
            });
        }
    }

    /// Returns the time since which the group waits: the end of its window, or its oldest late rows.
    fn ready_at(&self, group: WindowGroup, parts: &WindowParts) -> Timestamp {
        let WindowKey { end, level, .. } = group.window;
        let closed_at = self.input.settings.close_time(end, level);
        closed_at.max(parts.late_rows(self.table).waiting_since()).min(self.input.now)
    }
}
