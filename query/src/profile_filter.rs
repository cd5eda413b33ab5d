//! What is asked: whose, which series, counting what, taken when.

use std::fmt;
use std::str::FromStr;

use athanor_chassis::TenantId;
use athanor_profile::ValueType;

use crate::selector::Selector;

/// What is wanted.
#[derive(Clone, Debug, Default)]
pub struct ProfileFilter {
    /// Whose profiles.
    pub tenant: TenantId,
    /// Of which series.
    pub selector: Selector,
    /// Counting what; everything if none.
    pub value_type: Option<ValueTypeFilter>,
    /// Taken when.
    pub time: TimeRange,
}

/// Unix nanoseconds, the end not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// The first.
    pub from: i64,
    /// The first no more.
    pub to: i64,
}

impl Default for TimeRange {
    /// All time.
    fn default() -> Self {
        TimeRange { from: i64::MIN, to: i64::MAX }
    }
}

impl TimeRange {
    /// The last moment that is within.
    pub fn last_timestamp(&self) -> i64 {
        if self.to == i64::MAX { i64::MAX } else { self.to.saturating_sub(1) }
    }

    /// Whether any moment from a first to a last one, both in it, may be within.
    pub fn overlaps(&self, (first, last): (i64, i64)) -> bool {
        self.from <= last && (first < self.to || self.to == i64::MAX)
    }

    /// Whether a moment is within.
    pub fn contains(&self, nanos: i64) -> bool {
        (self.from..self.to).contains(&nanos) || (self.to == i64::MAX && nanos == i64::MAX)
    }
}

/// A type of value: `cpu`, or `cpu/nanoseconds` where the unit must be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueTypeFilter {
    kind: String,
    unit: Option<String>,
}

impl ValueTypeFilter {
    /// Whether a type is meant.
    pub fn matches(&self, value: &ValueType) -> bool {
        self.kind == value.kind && self.unit.as_ref().is_none_or(|unit| *unit == value.unit)
    }
}

/// A type of value that is not named.
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
