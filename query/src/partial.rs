//! Answers that can be merged.
//!
//! Merging is associative and commutative, so it does not matter which source holds which profile, in which order
//! they answer, or who merges: property tests hold all answers to that. Nothing is cut down here.

use std::collections::{BTreeMap, BTreeSet};

use athanor_profile::hash::Hash;
use athanor_profile::tree::Tree;
use athanor_profile::{Dictionary, Labels, ProfileType};

use crate::ask::{AskError, Bounds, Values, What};
use crate::doubles::{Ids, Place};
use crate::heat::{self, HeatSeries, spot_bytes};
use crate::profiles::ProfileList;
use crate::size::Sizes;

/// What an entry of a sorted map takes beside its texts, and a profile of a point.
pub(crate) const NODE: usize = 64;
const PROFILE: usize = 32;

/// The answer of some sources.
#[derive(Clone, Debug)]
pub enum Partial {
    /// What is measured.
    ProfileTypes(BTreeSet<ProfileType>),
    /// Names of labels.
    Texts(BTreeSet<String>),
    /// Values of a label.
    Values(LabelCounts),
    /// Sets of labels.
    Series(BTreeSet<Labels>),
    /// Stacks by function name.
    Tree(Tree),
    /// Stacks by location.
    Profile(Box<Merged>),
    /// Values over time, by the values of the labels asked for.
    Points(PointSeries),
    /// Values of single profiles or spans over time, by the values of the labels asked for.
    Heat(HeatSeries),
    /// What merging stacks would read.
    Sizes(Box<Sizes>),
    /// Stacks by function name, by the values of the labels asked for.
    Trees(BTreeMap<Labels, Tree>),
    /// Single profiles.
    Profiles(ProfileList),
    /// Ids of profiles.
    Ids(Vec<Hash>),
    /// Another answer, and which profiles were meant.
    Told(Box<Told>),
}

/// An answer of places that tell which profiles they have, so that none counts twice.
#[derive(Clone, Debug)]
pub struct Told {
    /// The answer to the question.
    pub answer: Partial,
    /// The profiles.
    pub ids: Ids,
}

/// Points by the values of the labels asked for.
pub type PointSeries = BTreeMap<Labels, BTreeMap<u64, Cell>>;

/// Values of a label, and how many profiles have each.
///
/// Of the first values of all sources together each is among the first of every source that has it: so each may leave out
/// what comes later, and those that stay are counted as if none were left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelCounts {
    /// So many stay, the first in their order; all if it is 0.
    most: u64,
    counts: BTreeMap<String, u64>,
}

/// Totals by stack, with a dictionary of their own.
#[derive(Clone, Debug, Default)]
pub struct Merged {
    /// What the stacks are called.
    pub dictionary: Dictionary,
    /// The total of each stack of the dictionary, modulo 2^64.
    pub totals: Vec<i64>,
    /// How many profiles were merged.
    pub profiles: u64,
}

/// One point of one series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The sum of all values, modulo 2^64.
    pub sum: i64,
    /// What the ids of all records of each profile begin with, if means were asked for. Records that labels of samples
    /// split off one profile count as the one that they were.
    pub profiles: BTreeSet<Hash>,
    /// The profile with the largest value, if it was asked for.
    pub exemplar: Option<Exemplar>,
}

/// A profile that stands for others. The larger one does: by value, then the later one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exemplar {
    /// The sum of its values.
    pub value: i64,
    /// When it was taken, Unix nanoseconds.
    pub time: i64,
    /// Its record id.
    pub id: Hash,
    /// All labels of its series.
    pub labels: Labels,
}

impl Cell {
    /// The mean value of a profile; the sum where profiles were not asked for.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.profiles.len().max(1) as f64
    }

    /// How many entries it takes.
    fn entries(&self) -> usize {
        self.profiles.len() + usize::from(self.exemplar.is_some())
    }
}

impl LabelCounts {
    /// Of some values, as many as were asked for.
    pub fn new(asked: &Values, counts: BTreeMap<String, u64>) -> Self {
        let mut all = LabelCounts { most: asked.most, counts };
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
    fn merge(mut self, other: LabelCounts) -> LabelCounts {
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

impl Merged {
    /// Adds a total to a stack of another dictionary.
    pub(crate) fn add(&mut self, from: &Dictionary, stack: u32, total: i64) {
        let stack = self.dictionary.adopt_stack(from, stack);
        self.add_own(stack, total);
    }

    /// Adds a total to a stack of its own dictionary.
    pub(crate) fn add_own(&mut self, stack: u32, total: i64) {
        let stack = stack as usize;
        if self.totals.len() <= stack {
            self.totals.resize(stack + 1, 0);
        }
        self.totals[stack] = self.totals[stack].wrapping_add(total);
    }
}

impl Partial {
    /// The answer of no source at all.
    pub fn none(what: &What) -> Partial {
        match what {
            What::ProfileTypes => Partial::ProfileTypes(BTreeSet::new()),
            What::LabelNames => Partial::Texts(BTreeSet::new()),
            What::LabelValues(values) => Partial::Values(LabelCounts::new(values, BTreeMap::new())),
            What::Series(_) => Partial::Series(BTreeSet::new()),
            What::Tree(_) => Partial::Tree(Tree::default()),
            What::Profile(..) => Partial::Profile(Box::default()),
            What::Points(_) => Partial::Points(BTreeMap::new()),
            What::Heat(_) => Partial::Heat(BTreeMap::new()),
            What::Sizes => Partial::Sizes(Box::default()),
            What::Trees(_) => Partial::Trees(BTreeMap::new()),
            What::Profiles(asked) => Partial::Profiles(ProfileList::none(asked)),
            What::Ids => Partial::Ids(Vec::new()),
        }
    }

    /// The answer of one place, which tells which profiles are meant there.
    #[must_use]
    pub fn telling(self, place: Place, ids: Vec<Hash>) -> Partial {
        Partial::Told(Box::new(Told { answer: self, ids: Ids::of(place, ids) }))
    }

    /// The answer alone, and the profiles of those places that told of them.
    pub fn told(self) -> (Partial, Ids) {
        match self {
            Partial::Told(told) => (told.answer, told.ids),
            answer => (answer, Ids::default()),
        }
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        match self {
            Partial::ProfileTypes(types) => types.is_empty(),
            Partial::Texts(texts) => texts.is_empty(),
            Partial::Values(values) => values.counts.is_empty(),
            Partial::Series(series) => series.is_empty(),
            // The root is always there.
            Partial::Tree(tree) => tree.nodes().len() <= 1,
            Partial::Profile(merged) => merged.profiles == 0,
            Partial::Points(points) => points.is_empty(),
            Partial::Heat(heat) => heat.is_empty(),
            Partial::Sizes(sizes) => sizes.heads.profiles == 0 && sizes.blocks.profiles == 0,
            Partial::Trees(trees) => trees.is_empty(),
            Partial::Profiles(list) => list.profiles == 0,
            Partial::Ids(ids) => ids.is_empty(),
            Partial::Told(told) => told.answer.is_empty(),
        }
    }

    /// Adds the answer of other sources to the same question; answers to different questions do not add.
    pub fn merge(self, other: Partial, bounds: &Bounds) -> Result<Partial, AskError> {
        let merged = match (self, other) {
            (Partial::Told(told), other) | (other, Partial::Told(told)) => {
                let Told { answer, mut ids } = *told;
                let (other, others) = other.told();
                ids.merge(others);
                let answer = answer.merge(other, bounds)?;
                return Ok(Partial::Told(Box::new(Told { answer, ids })));
            }
            (Partial::Ids(mut left), Partial::Ids(mut right)) => {
                left.append(&mut right);
                Partial::Ids(left)
            }
            (Partial::ProfileTypes(left), Partial::ProfileTypes(right)) => {
                Partial::ProfileTypes(union(left, right))
            }
            (Partial::Texts(left), Partial::Texts(right)) => Partial::Texts(union(left, right)),
            (Partial::Values(left), Partial::Values(right)) => Partial::Values(left.merge(right)),
            (Partial::Series(left), Partial::Series(right)) => Partial::Series(union(left, right)),
            (Partial::Tree(mut left), Partial::Tree(right)) => {
                left.merge(&right);
                Partial::Tree(left)
            }
            (Partial::Profile(left), Partial::Profile(right)) => {
                Partial::Profile(Box::new(merge_stacks(*left, &right)))
            }
            (Partial::Points(left), Partial::Points(right)) => Partial::Points(merge_points(left, right)),
            (Partial::Heat(left), Partial::Heat(right)) => Partial::Heat(heat::merge(left, right)),
            (Partial::Sizes(left), Partial::Sizes(right)) => Partial::Sizes(Box::new(left.merge(*right))),
            (Partial::Trees(left), Partial::Trees(right)) => Partial::Trees(merge_trees(left, right)),
            (Partial::Profiles(mut left), Partial::Profiles(right)) => {
                left.merge(right);
                Partial::Profiles(left)
            }
            (left, _) => left,
        };
        merged.within(bounds)?;
        Ok(merged)
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        match self {
            Partial::ProfileTypes(types) => types.iter().map(type_bytes).sum(),
            Partial::Texts(texts) => texts.iter().map(|text| text_bytes(text)).sum(),
            Partial::Values(values) => values.counts.keys().map(|value| value_bytes(value)).sum(),
            Partial::Series(series) => series.iter().map(labels_bytes).sum(),
            Partial::Tree(tree) => tree.bytes(),
            Partial::Profile(merged) => merged.dictionary.memory() + merged.totals.len() * size_of::<i64>(),
            Partial::Points(series) => {
                let of_series = |(labels, cells): (&Labels, &BTreeMap<u64, Cell>)| {
                    let labels_of = |cell: &Cell| cell.exemplar.as_ref().map_or(0, exemplar_bytes);
                    let of_cell = |cell: &Cell| cell_bytes(cell.profiles.len()) + labels_of(cell);
                    labels_bytes(labels) + cells.values().map(of_cell).sum::<usize>()
                };
                series.iter().map(of_series).sum()
            }
            Partial::Sizes(sizes) => sizes.memory(),
            Partial::Heat(series) => {
                let of_series = |(labels, spots): (&Labels, &BTreeMap<_, heat::Spot>)| {
                    let spots = spots.values().map(|spot| spot_bytes(spot.labels.as_ref()));
                    labels_bytes(labels) + spots.sum::<usize>()
                };
                series.iter().map(of_series).sum()
            }
            Partial::Trees(trees) => {
                trees.iter().map(|(labels, tree)| labels_bytes(labels) + tree.bytes()).sum()
            }
            Partial::Profiles(list) => list.bytes(),
            Partial::Ids(ids) => size_of_val(&**ids),
            Partial::Told(told) => told.answer.bytes() + told.ids.bytes(),
        }
    }

    /// Whether it is no larger than it may be.
    pub(crate) fn within(&self, bounds: &Bounds) -> Result<(), AskError> {
        let (what, seen, limit) = match self {
            Partial::ProfileTypes(types) => ("profile types", types.len(), bounds.entries),
            Partial::Texts(texts) => ("names of labels", texts.len(), bounds.entries),
            Partial::Values(values) => ("values of a label", values.counts.len(), bounds.entries),
            Partial::Series(series) => ("series", series.len(), bounds.entries),
            Partial::Tree(tree) => ("nodes", tree.nodes().len(), bounds.nodes),
            Partial::Profile(merged) => ("stacks", merged.totals.len(), bounds.stacks),
            Partial::Points(series) => {
                let cells = series.values().flat_map(BTreeMap::values);
                ("points", cells.map(|cell| cell.entries().max(1)).sum(), bounds.points)
            }
            Partial::Sizes(sizes) => ("series", sizes.entries(), bounds.entries),
            Partial::Heat(series) => {
                ("values of profiles or spans", series.values().map(BTreeMap::len).sum(), bounds.points)
            }
            Partial::Trees(trees) if trees.len() > bounds.entries => ("groups", trees.len(), bounds.entries),
            Partial::Trees(trees) => {
                ("nodes", trees.values().map(|tree| tree.nodes().len()).sum(), bounds.nodes)
            }
            Partial::Profiles(list) => ("profiles", list.rows.len(), bounds.entries),
            // They take room, and nothing else says how many there may be.
            Partial::Ids(_) => return Ok(()),
            Partial::Told(told) => return told.answer.within(bounds),
        };
        if seen > limit { Err(AskError::TooLarge { what, limit }) } else { Ok(()) }
    }
}

pub(crate) fn text_bytes(text: &str) -> usize {
    size_of::<String>() + text.len()
}

pub(crate) fn value_bytes(value: &str) -> usize {
    NODE + text_bytes(value)
}

pub(crate) fn exemplar_bytes(of: &Exemplar) -> usize {
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
    NODE + of.len() * 2 * size_of::<String>() + of.text_bytes()
}

pub(crate) fn cell_bytes(profiles: usize) -> usize {
    NODE + profiles * PROFILE
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

fn merge_stacks(left: Merged, right: &Merged) -> Merged {
    let mut merged = left;
    for (stack, &total) in (0..).zip(&right.totals).filter(|(_, total)| **total != 0) {
        merged.add(&right.dictionary, stack, total);
    }
    merged.profiles = merged.profiles.saturating_add(right.profiles);
    merged
}

fn merge_points(mut left: PointSeries, right: PointSeries) -> PointSeries {
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
