//! Answers that can be merged.
//!
//! Merging is associative and commutative, so it does not matter which source holds which profile, in which order
//! they answer, or who merges: property tests hold all answers to that. Nothing is cut down here.

use std::collections::{BTreeMap, BTreeSet};

use athanor_profile::hash::ContentHash;
use athanor_profile::tree::Tree;
use athanor_profile::{Dictionary, Labels, ProfileType};

use crate::dedup::{ProfileIdsBySource, SourceId};
use crate::heatmap::{self, HeatmapValues, heatmap_value_bytes};
use crate::profile_list::ProfileList;
use crate::profile_query::{LabelValuesQuery, ProfileQueryError, QueryKind, ResultLimits};
use crate::query_cost::QueryCost;

/// What an entry of a sorted map takes beside its texts, and a profile of a point.
pub(crate) const MAP_ENTRY_OVERHEAD_BYTES: usize = 64;
const POINT_PROFILE_BYTES: usize = 32;

/// The answer of some sources.
#[derive(Clone, Debug)]
pub enum PartialResult {
    /// What is measured.
    ProfileTypes(BTreeSet<ProfileType>),
    /// Names of labels.
    Texts(BTreeSet<String>),
    /// Values of a label.
    Values(LabelValueCounts),
    /// Sets of labels.
    Series(BTreeSet<Labels>),
    /// Stacks by function name.
    Tree(Tree),
    /// Stacks by location.
    Profile(Box<MergedProfile>),
    /// Values over time, by the values of the labels asked for.
    Points(TimeSeriesPoints),
    /// Values of single profiles or spans over time, by the values of the labels asked for.
    Heat(HeatmapValues),
    /// What merging stacks would read.
    Sizes(Box<QueryCost>),
    /// Stacks by function name, by the values of the labels asked for.
    Trees(BTreeMap<Labels, Tree>),
    /// Single profiles.
    Profiles(ProfileList),
    /// Ids of profiles.
    Ids(Vec<ContentHash>),
    /// Another answer, and which profiles were meant.
    Told(Box<PartialWithIds>),
}

/// An answer of places that tell which profiles they have, so that none counts twice.
#[derive(Clone, Debug)]
pub struct PartialWithIds {
    /// The answer to the question.
    pub answer: PartialResult,
    /// The profiles.
    pub ids: ProfileIdsBySource,
}

/// Points by the values of the labels asked for.
pub type TimeSeriesPoints = BTreeMap<Labels, BTreeMap<u64, TimeSeriesPoint>>;

/// Values of a label, and how many profiles have each.
///
/// Of the first values of all sources together each is among the first of every source that has it: so each may leave out
/// what comes later, and those that stay are counted as if none were left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelValueCounts {
    /// So many stay, the first in their order; all if it is 0.
    most: u64,
    counts: BTreeMap<String, u64>,
}

/// Totals by stack, with a dictionary of their own.
#[derive(Clone, Debug, Default)]
pub struct MergedProfile {
    /// What the stacks are called.
    pub dictionary: Dictionary,
    /// The total of each stack of the dictionary, modulo 2^64.
    pub totals: Vec<i64>,
    /// How many profiles were merged.
    pub profiles: u64,
}

/// One point of one series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeSeriesPoint {
    /// The sum of all values, modulo 2^64.
    pub sum: i64,
    /// What the ids of all records of each profile begin with, if means were asked for. Records that labels of samples
    /// split off one profile count as the one that they were.
    pub profiles: BTreeSet<ContentHash>,
    /// The profile with the largest value, if it was asked for.
    pub exemplar: Option<ProfileExemplar>,
}

/// A profile that stands for others. The larger one does: by value, then the later one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileExemplar {
    /// The sum of its values.
    pub value: i64,
    /// When it was taken, Unix nanoseconds.
    pub time: i64,
    /// Its record id.
    pub id: ContentHash,
    /// All labels of its series.
    pub labels: Labels,
}

impl TimeSeriesPoint {
    /// The mean value of a profile; the sum where profiles were not asked for.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.profiles.len().max(1) as f64
    }

    /// How many entries it takes.
    fn entries(&self) -> usize {
        self.profiles.len() + usize::from(self.exemplar.is_some())
    }
}

impl LabelValueCounts {
    /// Of some values, as many as were asked for.
    pub fn new(asked: &LabelValuesQuery, counts: BTreeMap<String, u64>) -> Self {
        let mut all = LabelValueCounts { most: asked.most, counts };
        all.cut();
        all
    }
    /// The values in their order, each with the number of profiles that have it.
    pub fn into_counts(self) -> BTreeMap<String, u64> {
        self.counts
    }
    /// The values in their order, each with the number of profiles that have it.
    pub fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }
    fn merge(mut self, other: LabelValueCounts) -> LabelValueCounts {
        for (value, count) in other.counts {
            let sum = self.counts.entry(value).or_default();
            *sum = sum.saturating_add(count);
        }
        self.cut();
        self
    }
    fn cut(&mut self) {
        let most = usize::try_from(self.most).unwrap_or(usize::MAX);
        let first_left_out = (most > 0).then(|| self.counts.keys().nth(most).cloned()).flatten();
        if let Some(first) = first_left_out {
            drop(self.counts.split_off(&first));
        }
    }
}

impl MergedProfile {
    /// Adds a total to a stack of another dictionary.
    pub(crate) fn add_foreign_stack(&mut self, from: &Dictionary, stack: u32, total: i64) {
        let stack = self.dictionary.adopt_stack(from, stack);
        self.add_own_stack(stack, total);
    }

    /// Adds a total to a stack of its own dictionary.
    pub(crate) fn add_own_stack(&mut self, stack: u32, total: i64) {
        let stack = stack as usize;
        if self.totals.len() <= stack {
            self.totals.resize(stack + 1, 0);
        }
        self.totals[stack] = self.totals[stack].wrapping_add(total);
    }
}

impl PartialResult {
    /// The answer of no source at all.
    pub fn empty(what: &QueryKind) -> PartialResult {
        match what {
            QueryKind::ProfileTypes => PartialResult::ProfileTypes(BTreeSet::new()),
            QueryKind::LabelNames => PartialResult::Texts(BTreeSet::new()),
            QueryKind::LabelValues(values) => {
                PartialResult::Values(LabelValueCounts::new(values, BTreeMap::new()))
            }
            QueryKind::Series(_) => PartialResult::Series(BTreeSet::new()),
            QueryKind::Tree(_) => PartialResult::Tree(Tree::default()),
            QueryKind::Profile(..) => PartialResult::Profile(Box::default()),
            QueryKind::Points(_) => PartialResult::Points(BTreeMap::new()),
            QueryKind::Heat(_) => PartialResult::Heat(BTreeMap::new()),
            QueryKind::Sizes => PartialResult::Sizes(Box::default()),
            QueryKind::Trees(_) => PartialResult::Trees(BTreeMap::new()),
            QueryKind::Profiles(asked) => PartialResult::Profiles(ProfileList::empty(asked)),
            QueryKind::Ids => PartialResult::Ids(Vec::new()),
        }
    }

    /// The answer of one place, which tells which profiles are meant there.
    #[must_use]
    pub fn with_ids(self, place: SourceId, ids: Vec<ContentHash>) -> PartialResult {
        PartialResult::Told(Box::new(PartialWithIds {
            answer: self,
            ids: ProfileIdsBySource::from_source(place, ids),
        }))
    }

    /// The answer alone, and the profiles of those places that told of them.
    pub fn split_ids(self) -> (PartialResult, ProfileIdsBySource) {
        match self {
            PartialResult::Told(told) => (told.answer, told.ids),
            answer => (answer, ProfileIdsBySource::default()),
        }
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        match self {
            PartialResult::ProfileTypes(types) => types.is_empty(),
            PartialResult::Texts(texts) => texts.is_empty(),
            PartialResult::Values(values) => values.counts.is_empty(),
            PartialResult::Series(series) => series.is_empty(),
            // The root is always there.
            PartialResult::Tree(tree) => tree.nodes().len() <= 1,
            PartialResult::Profile(merged) => merged.profiles == 0,
            PartialResult::Points(points) => points.is_empty(),
            PartialResult::Heat(heat) => heat.is_empty(),
            PartialResult::Sizes(sizes) => sizes.heads.profiles == 0 && sizes.blocks.profiles == 0,
            PartialResult::Trees(trees) => trees.is_empty(),
            PartialResult::Profiles(list) => list.profiles == 0,
            PartialResult::Ids(ids) => ids.is_empty(),
            PartialResult::Told(told) => told.answer.is_empty(),
        }
    }

    /// Adds the answer of other sources to the same question; answers to different questions do not add.
    pub fn merge(
        self,
        other: PartialResult,
        bounds: &ResultLimits,
    ) -> Result<PartialResult, ProfileQueryError> {
        let merged = match (self, other) {
            (PartialResult::Told(told), other) | (other, PartialResult::Told(told)) => {
                let PartialWithIds { answer, mut ids } = *told;
                let (other, others) = other.split_ids();
                ids.merge(others);
                let answer = answer.merge(other, bounds)?;
                return Ok(PartialResult::Told(Box::new(PartialWithIds { answer, ids })));
            }
            (PartialResult::Ids(mut left), PartialResult::Ids(mut right)) => {
                left.append(&mut right);
                PartialResult::Ids(left)
            }
            (PartialResult::ProfileTypes(left), PartialResult::ProfileTypes(right)) => {
                PartialResult::ProfileTypes(union(left, right))
            }
            (PartialResult::Texts(left), PartialResult::Texts(right)) => {
                PartialResult::Texts(union(left, right))
            }
            (PartialResult::Values(left), PartialResult::Values(right)) => {
                PartialResult::Values(left.merge(right))
            }
            (PartialResult::Series(left), PartialResult::Series(right)) => {
                PartialResult::Series(union(left, right))
            }
            (PartialResult::Tree(mut left), PartialResult::Tree(right)) => {
                left.merge(&right);
                PartialResult::Tree(left)
            }
            (PartialResult::Profile(left), PartialResult::Profile(right)) => {
                PartialResult::Profile(Box::new(merge_stacks(*left, &right)))
            }
            (PartialResult::Points(left), PartialResult::Points(right)) => {
                PartialResult::Points(merge_points(left, right))
            }
            (PartialResult::Heat(left), PartialResult::Heat(right)) => {
                PartialResult::Heat(heatmap::merge_heatmap_values(left, right))
            }
            (PartialResult::Sizes(left), PartialResult::Sizes(right)) => {
                PartialResult::Sizes(Box::new(left.merge(*right)))
            }
            (PartialResult::Trees(left), PartialResult::Trees(right)) => {
                PartialResult::Trees(merge_trees(left, right))
            }
            (PartialResult::Profiles(mut left), PartialResult::Profiles(right)) => {
                left.merge(right);
                PartialResult::Profiles(left)
            }
            (left, _) => left,
        };
        merged.check_limits(bounds)?;
        Ok(merged)
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        match self {
            PartialResult::ProfileTypes(types) => types.iter().map(type_bytes).sum(),
            PartialResult::Texts(texts) => texts.iter().map(|text| text_bytes(text)).sum(),
            PartialResult::Values(values) => values.counts.keys().map(|value| value_bytes(value)).sum(),
            PartialResult::Series(series) => series.iter().map(labels_bytes).sum(),
            PartialResult::Tree(tree) => tree.bytes(),
            PartialResult::Profile(merged) => {
                merged.dictionary.memory() + merged.totals.len() * size_of::<i64>()
            }
            PartialResult::Points(series) => {
                let of_series = |(labels, cells): (&Labels, &BTreeMap<u64, TimeSeriesPoint>)| {
                    let labels_of = |cell: &TimeSeriesPoint| cell.exemplar.as_ref().map_or(0, exemplar_bytes);
                    let of_cell = |cell: &TimeSeriesPoint| cell_bytes(cell.profiles.len()) + labels_of(cell);
                    labels_bytes(labels) + cells.values().map(of_cell).sum::<usize>()
                };
                series.iter().map(of_series).sum()
            }
            PartialResult::Sizes(sizes) => sizes.memory_bytes(),
            PartialResult::Heat(series) => {
                let of_series = |(labels, spots): (&Labels, &BTreeMap<_, heatmap::HeatmapValue>)| {
                    let spots = spots.values().map(|spot| heatmap_value_bytes(spot.labels.as_ref()));
                    labels_bytes(labels) + spots.sum::<usize>()
                };
                series.iter().map(of_series).sum()
            }
            PartialResult::Trees(trees) => {
                trees.iter().map(|(labels, tree)| labels_bytes(labels) + tree.bytes()).sum()
            }
            PartialResult::Profiles(list) => list.bytes(),
            PartialResult::Ids(ids) => size_of_val(&**ids),
            PartialResult::Told(told) => told.answer.bytes() + told.ids.bytes(),
        }
    }

    /// Whether it is no larger than it may be.
    pub(crate) fn check_limits(&self, bounds: &ResultLimits) -> Result<(), ProfileQueryError> {
        let (what, seen, limit) = match self {
            PartialResult::ProfileTypes(types) => ("profile types", types.len(), bounds.entries),
            PartialResult::Texts(texts) => ("names of labels", texts.len(), bounds.entries),
            PartialResult::Values(values) => ("values of a label", values.counts.len(), bounds.entries),
            PartialResult::Series(series) => ("series", series.len(), bounds.entries),
            PartialResult::Tree(tree) => ("nodes", tree.nodes().len(), bounds.nodes),
            PartialResult::Profile(merged) => ("stacks", merged.totals.len(), bounds.stacks),
            PartialResult::Points(series) => {
                let cells = series.values().flat_map(BTreeMap::values);
                ("points", cells.map(|cell| cell.entries().max(1)).sum(), bounds.points)
            }
            PartialResult::Sizes(sizes) => ("series", sizes.entry_count(), bounds.entries),
            PartialResult::Heat(series) => {
                ("values of profiles or spans", series.values().map(BTreeMap::len).sum(), bounds.points)
            }
            PartialResult::Trees(trees) if trees.len() > bounds.entries => {
                ("groups", trees.len(), bounds.entries)
            }
            PartialResult::Trees(trees) => {
                ("nodes", trees.values().map(|tree| tree.nodes().len()).sum(), bounds.nodes)
            }
            PartialResult::Profiles(list) => ("profiles", list.rows.len(), bounds.entries),
            // They take room, and nothing else says how many there may be.
            PartialResult::Ids(_) => return Ok(()),
            PartialResult::Told(told) => return told.answer.check_limits(bounds),
        };
        if seen > limit { Err(ProfileQueryError::TooLarge { what, limit }) } else { Ok(()) }
    }
}

pub(crate) fn text_bytes(text: &str) -> usize {
    size_of::<String>() + text.len()
}

pub(crate) fn value_bytes(value: &str) -> usize {
    MAP_ENTRY_OVERHEAD_BYTES + text_bytes(value)
}

pub(crate) fn exemplar_bytes(of: &ProfileExemplar) -> usize {
    labels_bytes(&of.labels)
}

pub(crate) fn type_bytes(of: &ProfileType) -> usize {
    let ProfileType { name, value, period } = of;
    [name, &value.kind, &value.unit, &period.kind, &period.unit]
        .into_iter()
        .map(|text| text_bytes(text))
        .sum()
}

pub(crate) fn labels_bytes(of: &Labels) -> usize {
    MAP_ENTRY_OVERHEAD_BYTES + of.len() * 2 * size_of::<String>() + of.text_bytes()
}

pub(crate) fn cell_bytes(profiles: usize) -> usize {
    MAP_ENTRY_OVERHEAD_BYTES + profiles * POINT_PROFILE_BYTES
}

fn union<T: Ord>(mut left: BTreeSet<T>, mut right: BTreeSet<T>) -> BTreeSet<T> {
    if left.len() < right.len() {
        std::mem::swap(&mut left, &mut right);
    }
    left.extend(right);
    left
}

fn merge_trees(mut left: BTreeMap<Labels, Tree>, right: BTreeMap<Labels, Tree>) -> BTreeMap<Labels, Tree> {
    for (labels, tree) in right {
        left.entry(labels).or_default().merge(&tree);
    }
    left
}

fn merge_stacks(left: MergedProfile, right: &MergedProfile) -> MergedProfile {
    let mut merged = left;
    for (stack, &total) in (0..).zip(&right.totals).filter(|(_, total)| **total != 0) {
        merged.add_foreign_stack(&right.dictionary, stack, total);
    }
    merged.profiles = merged.profiles.saturating_add(right.profiles);
    merged
}

fn merge_points(mut left: TimeSeriesPoints, right: TimeSeriesPoints) -> TimeSeriesPoints {
    for (labels, points) in right {
        let of_labels = left.entry(labels).or_default();
        for (place, cell) in points {
            let sum = of_labels.entry(place).or_default();
            sum.sum = sum.sum.wrapping_add(cell.sum);
            sum.profiles = union(std::mem::take(&mut sum.profiles), cell.profiles);
            sum.exemplar = sum.exemplar.take().max(cell.exemplar);
        }
    }
    left
}
