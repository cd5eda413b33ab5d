//! Order of the profiles of a block, and so of their sample rows.

use athanor_chassis::window_end;
use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::store_interface::series::ProfileRow;
use serde::{Deserialize, Serialize};

/// Length of an hour in nanoseconds.
pub(crate) const HOUR_NANOS: u64 = 3_600_000_000_000;

/// Order of the rows of a block.
///
/// In a block of a day the rows of one series and hour are few. By series, a query for two hours would read nearly
/// all pages. By hour, it reads those of two hours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowOrder {
    /// By series, time and ID.
    #[default]
    Series,
    /// By hour, series, time and ID. An hour includes its end, as windows do. The roll-up has a row for each hour.
    Hour,
}

/// Position of a profile in the order of a block.
pub(crate) type RowKey = (i64, u32, i64, ContentHash);

impl RowOrder {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands in references")]
    pub(crate) fn is_series(&self) -> bool {
        *self == RowOrder::Series
    }

    /// Returns the end of the hour of a time in the order by hour, else 0.
    pub(crate) fn hour(self, time: i64) -> i64 {
        match self {
            RowOrder::Series => 0,
            RowOrder::Hour => window_end(time, HOUR_NANOS as i64),
        }
    }

    /// Returns the position of a profile.
    pub(crate) fn key(self, row: &ProfileRow) -> RowKey {
        let (series, time, id) = row.order();
        (self.hour(time), series, time, id)
    }

    /// Returns the least hours such that the rows of each are in this order as well as in that of a block, of which
    /// `time` is one.
    pub(crate) fn common_hour(self, of_block: RowOrder, time: i64) -> i64 {
        if self == of_block { 0 } else { RowOrder::Hour.hour(time) }
    }
}
