//! Jobs of the downsampled tiers: merge the blocks that raw jobs wrote.
//!
//! | tier | level 3: a day | level 4: 30 days |
//! |---|---|---|
//! | 5 minutes | final | |
//! | an hour, a day | at least two parts below it | final |
//!
//! A job needs two parts or results: a single part gains nothing from a rewrite. Parts below level 3 of a
//! window of 30 days that has closed go to level 4 at once. Late rows wait as raw ones do.

use std::collections::{HashMap, HashSet};

use athanor_chassis::{Tier, Timestamp};

use crate::compaction::planner::part_table::{PartState, PartTable, PlanPart};
use crate::compaction::planner::planned_job::{PlannedJob, count_splits, sum_bytes};
use crate::compaction::planner::window_parts::{GroupedPart, WindowGroup, WindowParts};
use crate::compaction::planner::window_totals::WindowKey;
use crate::compaction::planner::{ON_TIME, PlanInput};
use crate::compaction::window::{DAY_LEVEL, THIRTY_DAY_LEVEL, window_nanos};

/// Planner of jobs of the downsampled tiers.
pub(super) struct TierPlanner<'p> {
    input: &'p PlanInput,
    table: &'p PartTable<'p>,
    max_bytes: u64,
    /// Windows of which raw jobs have not written all rows on time.
    pending: HashSet<WindowKey>,
    /// Parts at the level of their window or above it.
    merged: HashMap<TierWindow, MergedParts>,
}

/// Window of one tier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct TierWindow {
    tier: Tier,
    window: WindowKey,
}

/// Parts of one tier and window that merge.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TierGroup {
    tier: Tier,
    group: WindowGroup,
}

/// Totals of the parts that were merged for a window.
#[derive(Clone, Copy, Default)]
struct MergedParts {
    count: usize,
    bytes: u64,
}

/// Returns the level of a tier's final blocks.
const fn final_level(tier: Tier) -> u8 {
    match tier {
        Tier::Raw | Tier::FiveMinutes => DAY_LEVEL,
        Tier::OneHour | Tier::OneDay => THIRTY_DAY_LEVEL,
    }
}

impl<'p> TierPlanner<'p> {
    /// Collects the windows that raw jobs will still add rows to, and those that were merged before.
    pub(super) fn new(input: &'p PlanInput, table: &'p PartTable<'p>, max_bytes: u64) -> Self {
        let mut planner = Self { input, table, max_bytes, pending: HashSet::new(), merged: HashMap::new() };
        for part in &table.parts {
            if !part.tier.is_raw() {
                planner.count_merged(part);
            } else if !part.is_covered && part.state != PartState::Quarantined {
                planner.mark_pending(part);
            }
        }
        planner
    }

    fn count_merged(&mut self, part: &PlanPart) {
        for level in DAY_LEVEL..=part.level.min(final_level(part.tier)) {
            let window = WindowKey::containing(part.tenant, level, part.max_time);
            let merged = self.merged.entry(TierWindow { tier: part.tier, window }).or_default();
            merged.count += 1;
            merged.bytes = merged.bytes.saturating_add(part.bytes);
        }
    }

    /// Marks the windows of a raw part. Rows that arrived after a window closed do not delay its merge.
    fn mark_pending(&mut self, part: &PlanPart) {
        for level in [DAY_LEVEL, THIRTY_DAY_LEVEL] {
            for time in [part.min_time, part.max_time] {
                let key = WindowKey::containing(part.tenant, level, time);
                if self.input.settings.arrival_interval(part.arrival, key.end, level) == ON_TIME {
                    self.pending.insert(key);
                }
            }
        }
    }

    /// Plans all downsampled parts.
    pub(super) fn plan(&self) -> Vec<PlannedJob> {
        let parts = self.table.parts.iter().enumerate().filter(|(_, part)| !part.tier.is_raw());
        let mut grouped: Vec<GroupedPart<TierGroup>> =
            parts.map(|(index, part)| GroupedPart { group: self.group_of(part), part: index }).collect();
        grouped.sort_unstable_by_key(|grouped| (grouped.group, grouped.part));
        let mut jobs = Vec::new();
        for of_group in grouped.chunk_by(|one, two| one.group == two.group) {
            let group = of_group[0].group;
            let level = group.group.window.level;
            let parts = WindowParts::from_group(self.table, of_group, |part| part.level >= level);
            if self.is_ready(group, &parts) {
                self.plan_group(group, parts, &mut jobs);
            }
        }
        jobs
    }

    /// Returns the group of a part: that of its final window, or of a day before that window closes.
    fn group_of(&self, part: &PlanPart) -> TierGroup {
        let final_level = final_level(part.tier);
        let final_end = WindowKey::containing(part.tenant, final_level, part.max_time).end;
        let has_closed = self.input.now >= self.input.settings.close_time(final_end, final_level);
        let level = if part.level < DAY_LEVEL && !has_closed { DAY_LEVEL } else { final_level };
        let window = WindowKey::containing(part.tenant, level, part.max_time);
        let interval = self.input.settings.arrival_interval(part.arrival, window.end, level);
        TierGroup { tier: part.tier, group: WindowGroup { window, interval } }
    }

    /// Returns whether the parts of a group can be merged now.
    fn is_ready(&self, group: TierGroup, parts: &WindowParts) -> bool {
        if parts.len() < 2 {
            return false;
        }
        let WindowGroup { window, interval } = group.group;
        let now = self.input.now;
        let settings = &self.input.settings;
        let merged = self.merged.get(&TierWindow { tier: group.tier, window }).copied().unwrap_or_default();
        let is_pending = parts.has_claimed || self.pending.contains(&window);
        let is_future = window.end.saturating_sub(window_nanos(window.level)) > now.nanos();
        let has_closed = |end: i64| now >= settings.close_time(end, window.level);
        let is_justified = || parts.late_rows(self.table).justify_rewrite(self.input, merged.bytes);
        if is_future || (has_closed(window.end) && merged.count > 0) {
            is_justified()
        } else if interval == ON_TIME {
            has_closed(window.end) && !is_pending
        } else {
            (has_closed(interval) && !is_pending) || is_justified()
        }
    }

    /// Plans jobs of two parts or more.
    fn plan_group(&self, group: TierGroup, parts: WindowParts, jobs: &mut Vec<PlannedJob>) {
        let settings = &self.input.settings;
        let window = group.group.window;
        let ready_at = self.ready_at(window, &parts);
        let planned = parts.into_jobs(self.table, settings, self.max_bytes);
        for parts in planned.into_iter().filter(|parts| parts.len() > 1) {
            let bytes = sum_bytes(self.table, &parts);
            let splits = count_splits(bytes, 1, settings);
            let tenant = Some(window.tenant);
            let level = window.level;
            jobs.push(PlannedJob { tier: group.tier, level, tenant, parts, bytes, splits, ready_at });
        }
    }

    /// Returns the time since which the group waits: the end of its window, or its oldest late rows.
    fn ready_at(&self, window: WindowKey, parts: &WindowParts) -> Timestamp {
        let closed_at = self.input.settings.close_time(window.end, window.level);
        closed_at.max(parts.late_rows(self.table).waiting_since()).min(self.input.now)
    }
}
