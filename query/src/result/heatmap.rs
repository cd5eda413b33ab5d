//! Values of single profiles and spans over time, which a heatmap counts.
//!
//! The cell of a value is known only when the smallest and the largest of all values are known. So a partial
//! result keeps each value, by profile. Records that sample labels split off one profile add up to one value,
//! in any source.

use std::collections::{BTreeMap, HashMap};

use athanor_profile::data_model::identity::profile_id_of_record;
use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::{Labels, ProfileSource};

use crate::request::profile_query::{HeatmapQuery, ProfileQueryError, ProfileSelection, ResultLimits};
use crate::request::stack_filter::StackFilter;
use crate::result::partial::{MAP_ENTRY_OVERHEAD_BYTES, labels_bytes};
use crate::run::groups::{SeriesGroups, group_entry};
use crate::run::{MatchedProfiles, sum_by_profile};

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
    /// Sum of the samples, modulo 2^64.
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
    fn add(&mut self, other: HeatmapValue) {
        self.value = self.value.wrapping_add(other.value);
        self.time = self.time.min(other.time);
        self.trace = self.trace.max(other.trace);
        self.labels = self.labels.take().zip(other.labels).map(|(one, other)| common_labels(one, &other));
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
pub(crate) fn merge_heatmap_values(mut left: HeatmapValues, right: HeatmapValues) -> HeatmapValues {
    for (labels, spots) in right {
        let of_labels = left.entry(labels).or_default();
        for (key, spot) in spots {
            add(of_labels, key, spot);
        }
    }
    left
}

/// Moves values to other columns. Values without a new column are dropped.
pub(crate) fn shift_columns(series: HeatmapValues, place: impl Fn(u64) -> Option<u64>) -> HeatmapValues {
    let mut moved = HeatmapValues::new();
    for (labels, spots) in series {
        let mut of_labels = BTreeMap::new();
        for (key, spot) in spots {
            if let Some(column) = place(key.column) {
                add(&mut of_labels, HeatmapValueKey { column, ..key }, spot);
            }
        }
        if !of_labels.is_empty() {
            moved.insert(labels, of_labels);
        }
    }
    moved
}

fn add(spots: &mut BTreeMap<HeatmapValueKey, HeatmapValue>, key: HeatmapValueKey, spot: HeatmapValue) {
    match spots.get_mut(&key) {
        Some(known) => known.add(spot),
        None => drop(spots.insert(key, spot)),
    }
}

/// Returns the memory of a value in bytes.
pub(crate) fn heatmap_value_bytes(labels: Option<&Labels>) -> usize {
    MAP_ENTRY_OVERHEAD_BYTES + size_of::<(HeatmapValueKey, HeatmapValue)>() + labels.map_or(0, labels_bytes)
}

/// Returns the values of one source.
pub(crate) fn collect_heatmap_values(
    picked: &MatchedProfiles,
    selection: &ProfileSelection,
    heat: &HeatmapQuery,
    bounds: &ResultLimits,
    source: &dyn ProfileSource,
) -> Result<HeatmapValues, ProfileQueryError> {
    let mut groups = SeriesGroups::new(picked, &heat.group_by);
    let mut gathered = Vec::new();
    let mut labels = picked.label_cache();
    let mut put = |place: u32, span: u64, value: i64, trace: u128| {
        let row = &picked.profiles[place as usize];
        let Some(column) = heat.steps.point_index(row.time) else { return };
        let labels = heat.exemplars.then(|| labels.full_labels(row.series).clone());
        let key = HeatmapValueKey { column, profile: profile_id_of_record(row.id), span };
        let of_group = group_entry(&mut gathered, groups.group_of(row.series));
        add(of_group, key, HeatmapValue { value, time: row.time, trace, labels });
    };
    if heat.spans {
        for ((place, span), (value, trace)) in sum_by_span(picked, selection, bounds, source)? {
            put(place, span, value, trace);
        }
        return Ok(groups.into_map(gathered));
    }
    let sums = sum_by_profile(picked, selection, &StackFilter::default(), source)?;
    for &place in picked.places.iter().filter(|&&place| picked.profiles[place as usize].samples > 0) {
        put(place, 0, sums.get(&place).copied().unwrap_or_default(), 0);
    }
    Ok(groups.into_map(gathered))
}

/// Sum of the rows and trace id, by profile and span.
type SpanTotals = HashMap<(u32, u64), (i64, u128)>;

fn sum_by_span(
    picked: &MatchedProfiles,
    selection: &ProfileSelection,
    bounds: &ResultLimits,
    source: &dyn ProfileSource,
) -> Result<SpanTotals, ProfileQueryError> {
    let mut spans = SpanTotals::new();
    let wanted = selection.requests.as_ref();
    source.visit_span_rows(&picked.places, &mut |place, _, values, requests| {
        // Values beyond the limit are not collected, because the query fails below.
        if spans.len() > bounds.points {
            return;
        }
        let rows = values.iter().zip(requests).filter(|(_, request)| request.span != 0);
        for (&value, &request) in rows.filter(|(_, request)| wanted.is_none_or(|all| all.contains(**request)))
        {
            let (sum, trace) = spans.entry((place, request.span)).or_default();
            *sum = sum.wrapping_add(value);
            *trace = request.trace.max(*trace);
        }
    })?;
    match spans.len() > bounds.points {
        true => Err(ProfileQueryError::TooLarge { what: "values of spans", limit: bounds.points }),
        false => Ok(spans),
    }
}
