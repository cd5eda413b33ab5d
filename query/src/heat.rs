//! The values of single profiles and spans over time: what a heatmap counts.
//!
//! Which values a cell of a heatmap holds is known only when the least and the largest of all are. So a partial keeps each
//! value, by profile: records that labels of samples split off one profile add up to one value, wherever they lie.

use std::collections::{BTreeMap, HashMap};

use athanor_profile::hash::Hash;
use athanor_profile::identity::profile_of;
use athanor_profile::{Labels, Source};

use crate::ask::{AskError, Bounds, Heat, Selection};
use crate::partial::{NODE, labels_bytes};
use crate::run::groups::{Groups, of_group};
use crate::run::{Picked, sums};
use crate::stacks::StackFilter;

/// Values by the values of the labels asked for.
pub type HeatSeries = BTreeMap<Labels, BTreeMap<SpotKey, Spot>>;

/// Of what a value is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpotKey {
    /// The column.
    pub column: u64,
    /// What the ids of all records of the profile begin with.
    pub profile: Hash,
    /// The span, 0 where values are those of whole profiles.
    pub span: u64,
}

/// A value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    /// Modulo 2^64.
    pub value: i64,
    /// When the profile was taken, Unix nanoseconds.
    pub time: i64,
    /// The span's trace, 0 if none is known.
    pub trace: u128,
    /// The labels that all of its records have, if they were asked for.
    pub labels: Option<Labels>,
}

impl Spot {
    /// Adds what another record of the same profile has.
    fn add(&mut self, other: Spot) {
        self.value = self.value.wrapping_add(other.value);
        self.time = self.time.min(other.time);
        self.trace = self.trace.max(other.trace);
        self.labels = self.labels.take().zip(other.labels).map(|(one, other)| common(one, &other));
    }
}

/// The labels that both have.
pub(crate) fn common(one: Labels, other: &Labels) -> Labels {
    if one == *other {
        return one;
    }
    let both = one.iter().filter(|(name, value)| other.get(name) == Some(*value));
    Labels::new(both.map(|(name, value)| (name.to_owned(), value.to_owned())))
}

/// Adds the values of other sources.
pub(crate) fn merge(mut left: HeatSeries, right: HeatSeries) -> HeatSeries {
    for (labels, spots) in right {
        let of_labels = left.entry(labels).or_default();
        for (key, spot) in spots {
            add(of_labels, key, spot);
        }
    }
    left
}

/// The same values in other columns; what lies in none is left out.
pub(crate) fn moved(series: HeatSeries, place: impl Fn(u64) -> Option<u64>) -> HeatSeries {
    let mut moved = HeatSeries::new();
    for (labels, spots) in series {
        let mut of_labels = BTreeMap::new();
        for (key, spot) in spots {
            if let Some(column) = place(key.column) {
                add(&mut of_labels, SpotKey { column, ..key }, spot);
            }
        }
        if !of_labels.is_empty() {
            moved.insert(labels, of_labels);
        }
    }
    moved
}

fn add(spots: &mut BTreeMap<SpotKey, Spot>, key: SpotKey, spot: Spot) {
    match spots.get_mut(&key) {
        Some(known) => known.add(spot),
        None => drop(spots.insert(key, spot)),
    }
}

/// What a value takes in memory.
pub(crate) fn spot_bytes(labels: Option<&Labels>) -> usize {
    NODE + size_of::<(SpotKey, Spot)>() + labels.map_or(0, labels_bytes)
}

/// The values of one source.
pub(crate) fn heat(
    picked: &Picked,
    selection: &Selection,
    heat: &Heat,
    bounds: &Bounds,
    source: &dyn Source,
) -> Result<HeatSeries, AskError> {
    let (mut groups, mut gathered) = (Groups::new(picked, &heat.group_by), Vec::new());
    let mut labels = picked.labels();
    let mut put = |place: u32, span: u64, value: i64, trace: u128| {
        let row = &picked.profiles[place as usize];
        let Some(column) = heat.steps.place(row.time) else { return };
        let labels = heat.exemplars.then(|| labels.of(row.series).clone());
        let key = SpotKey { column, profile: profile_of(row.id), span };
        let of_group = of_group(&mut gathered, groups.of(row.series));
        add(of_group, key, Spot { value, time: row.time, trace, labels });
    };
    if heat.spans {
        for ((place, span), (value, trace)) in of_spans(picked, selection, bounds, source)? {
            put(place, span, value, trace);
        }
        return Ok(groups.named(gathered));
    }
    let sums = sums(picked, selection, &StackFilter::default(), source)?;
    for &place in picked.places.iter().filter(|&&place| picked.profiles[place as usize].samples > 0) {
        put(place, 0, sums.get(&place).copied().unwrap_or_default(), 0);
    }
    Ok(groups.named(gathered))
}

/// By profile and span: the sum of its rows, and its trace.
type Spans = HashMap<(u32, u64), (i64, u128)>;

fn of_spans(
    picked: &Picked,
    selection: &Selection,
    bounds: &Bounds,
    source: &dyn Source,
) -> Result<Spans, AskError> {
    let mut spans = Spans::new();
    let wanted = selection.requests.as_ref();
    source.rows_of_requests(&picked.places, &mut |place, _, values, requests| {
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
        true => Err(AskError::TooLarge { what: "values of spans", limit: bounds.points }),
        false => Ok(spans),
    }
}
