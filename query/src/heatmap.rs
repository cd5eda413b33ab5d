//! The values of single profiles and spans over time: what a heatmap counts.
//!
//! Which values a cell of a heatmap holds is known only when the least and the largest of all are. So a partial keeps each
//! value, by profile: records that labels of samples split off one profile add up to one value, wherever they lie.

use std::collections::{BTreeMap, HashMap};

use athanor_profile::hash::ContentHash;
use athanor_profile::identity::profile_id_of_record;
use athanor_profile::{Labels, ProfileSource};

use crate::partial::{MAP_ENTRY_OVERHEAD_BYTES, labels_bytes};
use crate::profile_query::{HeatmapQuery, ProfileQueryError, ProfileSelection, ResultLimits};
use crate::run::groups::{SeriesGroups, group_entry};
use crate::run::{MatchedProfiles, sum_by_profile};
use crate::stack_filter::StackFilter;

/// Values by the values of the labels asked for.
pub type HeatmapValues = BTreeMap<Labels, BTreeMap<HeatmapValueKey, HeatmapValue>>;

/// Of what a value is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeatmapValueKey {
    /// The column.
    pub column: u64,
    /// What the ids of all records of the profile begin with.
    pub profile: ContentHash,
    /// The span, 0 where values are those of whole profiles.
    pub span: u64,
}

/// A value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeatmapValue {
    /// Modulo 2^64.
    pub value: i64,
    /// When the profile was taken, Unix nanoseconds.
    pub time: i64,
    /// The span's trace, 0 if none is known.
    pub trace: u128,
    /// The labels that all of its records have, if they were asked for.
    pub labels: Option<Labels>,
}

impl HeatmapValue {
    /// Adds what another record of the same profile has.
    fn add(&mut self, other: HeatmapValue) {
        self.value = self.value.wrapping_add(other.value);
        self.time = self.time.min(other.time);
        self.trace = self.trace.max(other.trace);
        self.labels = self.labels.take().zip(other.labels).map(|(one, other)| common_labels(one, &other));
    }
}

/// The labels that both have.
pub(crate) fn common_labels(one: Labels, other: &Labels) -> Labels {
    if one == *other {
        return one;
    }
    let both = one.iter().filter(|(name, value)| other.get(name) == Some(*value));
    Labels::new(both.map(|(name, value)| (name.to_owned(), value.to_owned())))
}

/// Adds the values of other sources.
pub(crate) fn merge_heatmap_values(mut left: HeatmapValues, right: HeatmapValues) -> HeatmapValues {
    for (labels, spots) in right {
        let of_labels = left.entry(labels).or_default();
        for (key, spot) in spots {
            add(of_labels, key, spot);
        }
    }
    left
}

/// The same values in other columns; what lies in none is left out.
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

/// What a value takes in memory.
pub(crate) fn heatmap_value_bytes(labels: Option<&Labels>) -> usize {
    MAP_ENTRY_OVERHEAD_BYTES + size_of::<(HeatmapValueKey, HeatmapValue)>() + labels.map_or(0, labels_bytes)
}

/// The values of one source.
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

/// By profile and span: the sum of its rows, and its trace.
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
        // What is too much is refused below, and not gathered.
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
