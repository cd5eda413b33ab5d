//! Rows that arrived after their window was merged.

use athanor_chassis::Timestamp;

use crate::compaction::planner::PlanInput;
use crate::compaction::planner::part_table::PartTable;

/// Totals of late rows that wait for a rewrite of their window.
pub(super) struct LateRows {
    bytes: u64,
    count: usize,
    oldest: Timestamp,
}

impl LateRows {
    /// Adds up parts.
    pub(super) fn from_parts(table: &PartTable<'_>, parts: impl IntoIterator<Item = usize>) -> Self {
        let mut rows = Self { bytes: 0, count: 0, oldest: Timestamp::from_nanos(i64::MAX) };
        for index in parts {
            let part = &table.parts[index];
            rows.bytes = rows.bytes.saturating_add(part.bytes);
            rows.count += 1;
            rows.oldest = rows.oldest.min(table.block(part).id.named_at());
        }
        rows
    }

    /// Counts blocks instead of parts.
    pub(super) const fn with_count(self, count: usize) -> Self {
        Self { count, ..self }
    }

    /// Returns whether the rows justify a rewrite of their window, because they are many or waited long.
    pub(super) fn justify_rewrite(&self, input: &PlanInput, merged_bytes: u64) -> bool {
        let settings = &input.settings;
        let has_share = merged_bytes > 0 && self.bytes.saturating_mul(settings.late_fraction) >= merged_bytes;
        let is_old = self.count > 0 && input.now >= self.oldest.plus(settings.max_late_wait);
        has_share || is_old || self.count >= settings.late_parts
    }

    /// Returns the time since which the rows wait.
    pub(super) const fn waiting_since(&self) -> Timestamp {
        self.oldest
    }
}
