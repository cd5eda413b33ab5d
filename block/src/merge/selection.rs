//! Selection of rows for a merge: a window of profile time and a partition of the series.

use crate::merge::series_partition::SeriesPartition;
use crate::reader::profile_stream::StoredProfile;

/// Rows that a merge writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowSelection {
    /// Time before the first selected one in Unix nanoseconds. `i64::MIN` selects from the earliest time on.
    pub after: i64,
    /// Last selected time in Unix nanoseconds.
    pub until: i64,
    /// Series to select. None for all.
    pub series: Option<SeriesPartition>,
}

impl Default for RowSelection {
    fn default() -> Self {
        RowSelection { after: i64::MIN, until: i64::MAX, series: None }
    }
}

impl RowSelection {
    /// Returns the selection of all rows of the window with an end from [`window_end`](athanor_chassis::window_end).
    pub fn from_window_end(end: i64, width: i64) -> Self {
        let width = width.max(1);
        let past = end.rem_euclid(width);
        let after = end.saturating_sub(if past == 0 { width } else { past });
        RowSelection { after, until: end, series: None }
    }

    /// Returns whether the time is selected.
    pub fn has_time(&self, time: i64) -> bool {
        (time > self.after || self.after == i64::MIN) && time <= self.until
    }
}

/// Counts of rows, and the sum of their values modulo 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowTotals {
    /// Number of profiles.
    pub profiles: u64,
    /// Number of their sample rows.
    pub samples: u64,
    /// Sum of their values, modulo 2^64.
    pub sum: u64,
}

impl RowTotals {
    /// Adds other rows.
    pub fn add(&mut self, other: RowTotals) {
        self.profiles = self.profiles.saturating_add(other.profiles);
        self.samples += other.samples;
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// Adds one row. A row of a downsampled tier has the profiles that it adds up.
    pub(crate) fn add_row(&mut self, stored: &StoredProfile) {
        let StoredProfile { row, total, records } = stored;
        self.add(RowTotals { profiles: *records, samples: u64::from(row.samples), sum: *total as u64 });
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::window_end;
    use proptest::prelude::*;

    use super::*;

    fn time() -> impl Strategy<Value = i64> {
        prop_oneof![any::<i64>(), -20i64..20, i64::MIN..i64::MIN + 20, i64::MAX - 20..=i64::MAX]
    }

    proptest! {
        #[test]
        fn each_time_belongs_to_its_window_alone(
            time in time(), other in time(), width in prop_oneof![1i64..20, 1i64..i64::MAX, Just(1 << 62)],
        ) {
            let end = window_end(time, width);
            let window = RowSelection::from_window_end(end, width);
            prop_assert!(window.has_time(time));
            prop_assert_eq!(window.has_time(other), window_end(other, width) == end);
            let exact = i128::from(time).div_euclid(width.into()) + i128::from(time % width != 0);
            let exact = (exact * i128::from(width)).min(i64::MAX.into());
            prop_assert!(i128::from(end) == exact || time == i64::MIN);
        }
    }

    #[test]
    fn profile_at_a_boundary_belongs_to_the_window_that_ends_there() {
        assert_eq!(
            [-11, -10, -9, 0, 1, 10, 11].map(|time| window_end(time, 10)),
            [-10, -10, 0, 0, 10, 10, 20]
        );
        assert_eq!(window_end(i64::MAX, 10), i64::MAX);
        assert!(RowSelection::default().has_time(i64::MIN));
        assert_eq!(
            RowSelection::from_window_end(20, 10),
            RowSelection { after: 10, until: 20, series: None }
        );
    }
}
