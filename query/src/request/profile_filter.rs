//! Filter of stored profiles: tenant, series, value type and time range.

use std::fmt;
use std::str::FromStr;

use athanor_chassis::TenantId;
use athanor_profile::ValueType;

use crate::request::selector::Selector;

/// Filter of stored profiles.
#[derive(Clone, Debug, Default)]
pub struct ProfileFilter {
    /// Owner of the profiles.
    pub tenant: TenantId,
    /// Selector of series.
    pub selector: Selector,
    /// Value type of the series. None selects all types.
    pub value_type: Option<ValueTypeFilter>,
    /// Time range of the profiles.
    pub time: TimeRange,
}

/// Time range in Unix nanoseconds. The end is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// First timestamp inside the range.
    pub from: i64,
    /// First timestamp after the range.
    pub to: i64,
}

impl Default for TimeRange {
    /// Returns the range of all time.
    fn default() -> Self {
        TimeRange { from: i64::MIN, to: i64::MAX }
    }
}

impl TimeRange {
    /// Returns the last timestamp in the range.
    pub fn last_timestamp(&self) -> i64 {
        if self.to == i64::MAX { i64::MAX } else { self.to.saturating_sub(1) }
    }

    /// Returns true if the range overlaps the interval from `first` to `last`, which includes both its ends.
    pub fn overlaps(&self, first: i64, last: i64) -> bool {
        self.from <= last && (first < self.to || self.to == i64::MAX)
    }

    /// Returns true if a timestamp is in the range.
    pub fn contains(&self, nanos: i64) -> bool {
        (self.from..self.to).contains(&nanos) || (self.to == i64::MAX && nanos == i64::MAX)
    }
}

/// Filter by value type: `cpu`, or `cpu/nanoseconds` if the unit matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueTypeFilter {
    kind: String,
    unit: Option<String>,
}

impl ValueTypeFilter {
    /// Returns true if a value type matches.
    pub fn matches(&self, value: &ValueType) -> bool {
        self.kind == value.kind && self.unit.as_ref().is_none_or(|unit| *unit == value.unit)
    }
}

/// Error for a value type without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a type needs a name, such as cpu or alloc_space/bytes")]
pub struct ValueTypeFilterError;

impl FromStr for ValueTypeFilter {
    type Err = ValueTypeFilterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, unit) = text.split_once('/').map_or((text, None), |(kind, unit)| (kind, Some(unit)));
        if kind.is_empty() {
            return Err(ValueTypeFilterError);
        }
        Ok(ValueTypeFilter { kind: kind.into(), unit: unit.map(str::to_owned) })
    }
}

impl fmt::Display for ValueTypeFilter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.kind)?;
        self.unit.iter().try_for_each(|unit| write!(out, "/{unit}"))
    }
}
