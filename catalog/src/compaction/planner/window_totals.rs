//! Totals of the raw parts in each tenant's windows.

use std::collections::HashMap;

use crate::compaction::planner::part_table::{PartState, PartTable, PlanPart};
use crate::compaction::planner::{ON_TIME, PlannerSettings};
use crate::compaction::window::{DAY_LEVEL, HOUR_LEVEL, TEN_MINUTE_LEVEL, level_window_end};

/// Window of one tenant at one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct WindowKey {
    /// Number of the tenant.
    pub tenant: usize,
    /// Level of the window.
    pub level: u8,
    /// End of the window, Unix nanoseconds.
    pub end: i64,
}

/// Totals of one window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowTotal {
    /// Bytes of the parts at the window's level, without uncovered final ones.
    pub merged_bytes: u64,
    /// Number of the parts at the window's level, without uncovered final ones.
    pub merged_parts: usize,
    /// Bytes of uncovered final parts, which are merged once more.
    uncovered_bytes: u64,
    /// Number of uncovered final parts.
    uncovered_parts: usize,
    /// Bytes of the parts of level 1 in an hour.
    ten_minute_bytes: u64,
    /// True if running or coming jobs write rows of the window at a lower level.
    pub is_pending: bool,
}

/// Totals of all windows with parts.
pub(super) struct WindowTotals {
    windows: HashMap<WindowKey, WindowTotal>,
    hour_from_bytes: u64,
}

impl WindowKey {
    /// Returns the window of a tenant that contains a time.
    pub(super) const fn containing(tenant: usize, level: u8, time: i64) -> Self {
        Self { tenant, level, end: level_window_end(time, level) }
    }
}

impl WindowTotals {
    /// Adds up all raw parts. A window with claimed parts that are not covered is pending.
    pub(super) fn from_parts(table: &PartTable<'_>, settings: &PlannerSettings) -> Self {
        let mut totals = Self { windows: HashMap::new(), hour_from_bytes: settings.hour_from_bytes };
        for part in table.parts.iter().filter(|part| part.tier.is_raw() && part.level > 0) {
            let window = totals.window_mut(part, part.level.min(DAY_LEVEL));
            if part.is_covered || part.level == TEN_MINUTE_LEVEL {
                window.merged_bytes = window.merged_bytes.saturating_add(part.bytes);
                window.merged_parts += 1;
            } else {
                window.uncovered_bytes = window.uncovered_bytes.saturating_add(part.bytes);
                window.uncovered_parts += 1;
            }
            if part.level == TEN_MINUTE_LEVEL {
                let hour = totals.window_mut(part, HOUR_LEVEL);
                hour.ten_minute_bytes = hour.ten_minute_bytes.saturating_add(part.bytes);
            }
        }
        for part in table.parts.iter().filter(|part| part.state == PartState::Claimed) {
            if part.tier.is_raw() && !part.is_covered {
                totals.mark_pending(part, settings);
            }
        }
        totals
    }

    /// Marks the windows of a part that another job merges first. Rows that arrived after a window closed do
    /// not delay its merge.
    pub(super) fn mark_pending(&mut self, part: &PlanPart, settings: &PlannerSettings) {
        for level in [HOUR_LEVEL, DAY_LEVEL] {
            for time in [part.min_time, part.max_time] {
                let key = WindowKey::containing(part.tenant, level, time);
                if settings.arrival_interval(part.arrival, key.end, level) == ON_TIME {
                    self.windows.entry(key).or_default().is_pending = true;
                }
            }
        }
    }

    /// Returns the totals of a window.
    pub(super) fn window(&self, key: &WindowKey) -> WindowTotal {
        self.windows.get(key).copied().unwrap_or_default()
    }

    /// Returns the level of the final block for a tenant's rows of a time.
    pub(super) fn final_level(&self, tenant: usize, time: i64) -> u8 {
        let hour = self.window(&WindowKey::containing(tenant, HOUR_LEVEL, time));
        let final_bytes = hour.merged_bytes.saturating_add(hour.uncovered_bytes);
        let hour_bytes = hour.ten_minute_bytes.saturating_add(final_bytes);
        let has_final = hour.merged_parts + hour.uncovered_parts > 0;
        if has_final || hour_bytes >= self.hour_from_bytes { HOUR_LEVEL } else { DAY_LEVEL }
    }

    fn window_mut(&mut self, part: &PlanPart, level: u8) -> &mut WindowTotal {
        self.windows.entry(WindowKey::containing(part.tenant, level, part.max_time)).or_default()
    }
}
