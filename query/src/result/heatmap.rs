//! Values of single profiles and spans over time, which a heatmap counts.
//!
//! The cell of a value is known only when the smallest and the largest of all values are known. So a partial
//! result keeps each value, by profile. Records that sample labels split off one profile add up to one value,
//! in any source.

use std::collections::BTreeMap;

use athanor_profile::Labels;
use athanor_profile::encoding::hash::ContentHash;

use crate::request::profile_query::ProfileQueryError;
use crate::result::memory_size::{MAP_ENTRY_OVERHEAD_BYTES, labels_bytes};
use crate::result::sum_check::{PROFILE_VALUES, add_checked};

/// Values by the values of the grouping labels.
pub type HeatmapValues = BTreeMap<Labels, BTreeMap<HeatmapValueKey, HeatmapValue>>;

/// Identity of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeatmapValueKey {
    /// Index of the heatmap column.
    pub column: u64,
    /// Common id prefix of all records of the profile.
    pub profile: ContentHash,
    /// Span id, or 0 if values are those of whole profiles.
    pub span: u64,
}

/// Value of one profile or span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeatmapValue {
    /// Sum of the samples.
    pub value: i64,
    /// Timestamp of the profile, Unix nanoseconds.
    pub time: i64,
    /// Trace id of the span, or 0 if it is unknown.
    pub trace: u128,
    /// Labels that all records have in common, if the query requests exemplars.
    pub labels: Option<Labels>,
}

impl HeatmapValue {
    /// Adds the value of another record of the same profile.
    fn add(&mut self, other: HeatmapValue) -> Result<(), ProfileQueryError> {
        add_checked(&mut self.value, other.value, PROFILE_VALUES)?;
        self.time = self.time.min(other.time);
        self.trace = self.trace.max(other.trace);
        self.labels = self.labels.take().zip(other.labels).map(|(one, other)| common_labels(one, &other));
        Ok(())
    }
}

/// Returns the labels that both sets contain.
pub(crate) fn common_labels(one: Labels, other: &Labels) -> Labels {
    if one == *other {
        return one;
    }
    let both = one.iter().filter(|(name, value)| other.get(name) == Some(*value));
    Labels::new(both.map(|(name, value)| (name.to_owned(), value.to_owned())))
}

/// Merges the values of other sources.
pub(crate) fn merge_heatmap_values(
    mut left: HeatmapValues,
    right: HeatmapValues,
) -> Result<HeatmapValues, ProfileQueryError> {
    for (labels, spots) in right {
        let of_labels = left.entry(labels).or_default();
        for (key, spot) in spots {
            add_heatmap_value(of_labels, key, spot)?;
        }
    }
    Ok(left)
}

/// Moves values to other columns. Values without a new column are dropped.
pub(crate) fn shift_columns(
    series: HeatmapValues,
    place: impl Fn(u64) -> Option<u64>,
) -> Result<HeatmapValues, ProfileQueryError> {
    let mut moved = HeatmapValues::new();
    for (labels, spots) in series {
        let mut of_labels = BTreeMap::new();
        for (key, spot) in spots {
            if let Some(column) = place(key.column) {
                add_heatmap_value(&mut of_labels, HeatmapValueKey { column, ..key }, spot)?;
            }
        }
        if !of_labels.is_empty() {
            moved.insert(labels, of_labels);
        }
    }
    Ok(moved)
}

/// Adds a value to the others of its group.
pub(crate) fn add_heatmap_value(
    spots: &mut BTreeMap<HeatmapValueKey, HeatmapValue>,
    key: HeatmapValueKey,
    spot: HeatmapValue,
) -> Result<(), ProfileQueryError> {
    match spots.get_mut(&key) {
        Some(known) => known.add(spot),
        None => {
            spots.insert(key, spot);
            Ok(())
        }
    }
}

/// Returns the memory of a value in bytes.
pub(crate) fn heatmap_value_bytes(labels: Option<&Labels>) -> usize {
    MAP_ENTRY_OVERHEAD_BYTES + size_of::<(HeatmapValueKey, HeatmapValue)>() + labels.map_or(0, labels_bytes)
}
