//! Partial results and their merge.
//!
//! Merging is associative and commutative. The result therefore does not depend on the location of profiles,
//! the order of partial results or the merging node: property tests check this for all results. Merging
//! truncates nothing.

use std::collections::{BTreeMap, BTreeSet};

use athanor_profile::call_tree::tree::Tree;
use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::store_interface::series::BucketCounts;
use athanor_profile::{Dictionary, Labels, ProfileType, StackCopier};

use crate::dedup::{ProfileIdsBySource, SourceId};
use crate::request::profile_query::{LabelValuesQuery, ProfileQueryError, QueryKind, ResultLimits};
use crate::result::heatmap::{self, HeatmapValues, heatmap_value_bytes};
use crate::result::memory_size::{
    cell_bytes, count_bytes, labels_bytes, text_bytes, type_bytes, value_bytes,
};
use crate::result::origin_tree::OriginTree;
use crate::result::profile_count::{ProfileCount, ProfileCounts, merge_counts};
use crate::result::profile_list::ProfileList;
use crate::result::query_cost::QueryCost;
use crate::result::sample_list::SampleList;
use crate::result::sum_check::{POINT_VALUES, STACK_VALUES, add_checked, check_magnitude, check_stack_sum};

/// Mergeable result of some sources.
#[derive(Clone, Debug)]
pub enum PartialResult {
    /// Profile types of the selected series.
    ProfileTypes(BTreeSet<ProfileType>),
    /// Names of all labels.
    Texts(BTreeSet<String>),
    /// Values of one label, or names of labels.
    Values(LabelValueCounts),
    /// Distinct label sets.
    Series(BTreeSet<Labels>),
    /// Stacks by function name.
    Tree(Tree),
    /// Stacks by location.
    Profile(Box<MergedProfile>),
    /// Stacks by function name, with the origins of functions.
    OriginTree(Box<OriginTree>),
    /// Values over time, by the values of the grouping labels.
    Points(TimeSeriesPoints),
    /// Values of single profiles or spans over time, by the values of the grouping labels.
    Heat(HeatmapValues),
    /// Size of the data that a stack merge would read.
    Sizes(Box<QueryCost>),
    /// Stacks by function name, by the values of the grouping labels.
    Trees(BTreeMap<Labels, Tree>),
    /// List of single profiles.
    Profiles(ProfileList),
    /// Ids of the selected profiles.
    Ids(Vec<ContentHash>),
    /// Numbers of profiles, by the values of the grouping labels.
    Counts(ProfileCounts),
    /// Samples of the first profiles, in order of time.
    Samples(Box<SampleList>),
    /// Another partial result, with the ids of the selected profiles.
    WithIds(Box<PartialWithIds>),
}

/// Partial result of places that report their profile ids, so that duplicates are detected.
#[derive(Clone, Debug)]
pub struct PartialWithIds {
    /// Result of the query.
    pub partial: PartialResult,
    /// Ids of the selected profiles.
    pub ids: ProfileIdsBySource,
}

/// Points by the values of the grouping labels.
pub type TimeSeriesPoints = BTreeMap<Labels, BTreeMap<u64, TimeSeriesPoint>>;

/// Values of a label, or names of labels, and how many profiles have each.
///
/// Each of the first values of all sources together is also among the first values of every source that has
/// it. So a source may omit later values, and the counts of the remaining values are still exact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelValueCounts {
    /// Maximum number of values, in sorted order. 0 keeps all.
    most: u64,
    counts: BTreeMap<String, u64>,
}

/// Totals by stack, with their own dictionary.
#[derive(Clone, Debug, Default)]
pub struct MergedProfile {
    /// Names and locations of the stacks.
    pub dictionary: Dictionary,
    /// Total of each stack of the dictionary.
    pub totals: Vec<i64>,
    /// Number of merged profiles.
    pub profiles: u64,
}

/// Single point of one series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeSeriesPoint {
    /// Sum of all values.
    pub sum: i64,
    /// Common id prefix of the records of each profile, if the query computes means. Records that sample
    /// labels split off one profile count as one.
    pub profiles: BTreeSet<ContentHash>,
    /// Counts of the profiles in downsampled rows, if the query computes means. They are not in `profiles`.
    pub downsampled: BucketCounts,
    /// Profile with the largest value, if the query requests exemplars.
    pub exemplar: Option<ProfileExemplar>,
}

/// Exemplar of several profiles. The larger value wins, then the later time.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileExemplar {
    /// Sum of the profile's values.
    pub value: i64,
    /// Timestamp of the profile, Unix nanoseconds.
    pub time: i64,
    /// Record id of the profile.
    pub id: ContentHash,
    /// All labels of the profile's series.
    pub labels: Labels,
}

impl TimeSeriesPoint {
    /// Returns the mean value per profile, or the sum if the query counts no profiles.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.profile_count().max(1) as f64
    }

    /// Returns the number of profiles behind the sum, if the query counts them.
    pub fn profile_count(&self) -> u64 {
        self.count().total()
    }

    /// Returns true if the number of profiles is known.
    pub fn has_exact_count(&self) -> bool {
        self.count().is_exact()
    }

    fn count(&self) -> ProfileCount {
        ProfileCount { raw: self.profiles.len() as u64, downsampled: self.downsampled }
    }

    /// Returns the number of entries for the limit of points.
    fn entries(&self) -> usize {
        self.profiles.len() + usize::from(self.exemplar.is_some())
    }
}

impl LabelValueCounts {
    /// Returns the counts, truncated to the requested number of values.
    pub fn new(asked: &LabelValuesQuery, counts: BTreeMap<String, u64>) -> Self {
        let mut all = LabelValueCounts { most: asked.most, counts };
        all.cut();
        all
    }
    /// Returns the values in sorted order, each with the number of profiles that have it.
    pub fn into_counts(self) -> BTreeMap<String, u64> {
        self.counts
    }
    /// Returns the values in sorted order, each with the number of profiles that have it.
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
    pub(crate) fn add_foreign_stack(
        &mut self,
        copier: &mut StackCopier<'_>,
        stack: u32,
        total: i64,
    ) -> Result<(), ProfileQueryError> {
        let stack = copier.copy_stack(stack, &mut self.dictionary);
        self.add_own_stack(stack, total)
    }

    /// Adds a total to a stack of its own dictionary.
    pub(crate) fn add_own_stack(&mut self, stack: u32, total: i64) -> Result<(), ProfileQueryError> {
        let stack = stack as usize;
        if self.totals.len() <= stack {
            self.totals.resize(stack + 1, 0);
        }
        add_checked(&mut self.totals[stack], total, STACK_VALUES)
    }
}

impl PartialResult {
    /// Returns the result of a query without any source.
    pub fn empty(what: &QueryKind) -> PartialResult {
        match what {
            QueryKind::ProfileTypes => PartialResult::ProfileTypes(BTreeSet::new()),
            QueryKind::LabelNames => PartialResult::Texts(BTreeSet::new()),
            QueryKind::LabelNameCounts { .. } => PartialResult::Values(LabelValueCounts::default()),
            QueryKind::LabelValues(values) => {
                PartialResult::Values(LabelValueCounts::new(values, BTreeMap::new()))
            }
            QueryKind::Series(_) => PartialResult::Series(BTreeSet::new()),
            QueryKind::Tree(_) => PartialResult::Tree(Tree::default()),
            QueryKind::Profile(..) => PartialResult::Profile(Box::default()),
            QueryKind::OriginTree(_) => PartialResult::OriginTree(Box::default()),
            QueryKind::Points(_) => PartialResult::Points(BTreeMap::new()),
            QueryKind::Heat(_) => PartialResult::Heat(BTreeMap::new()),
            QueryKind::Sizes => PartialResult::Sizes(Box::default()),
            QueryKind::Trees(_) => PartialResult::Trees(BTreeMap::new()),
            QueryKind::Profiles(asked) => PartialResult::Profiles(ProfileList::empty(asked)),
            QueryKind::Ids => PartialResult::Ids(Vec::new()),
            QueryKind::Counts(_) => PartialResult::Counts(BTreeMap::new()),
            QueryKind::Samples(query) => PartialResult::Samples(Box::new(SampleList::empty(query))),
        }
    }

    /// Returns the result of one place with the ids of its selected profiles.
    #[must_use]
    pub fn with_ids(self, place: SourceId, ids: Vec<ContentHash>) -> PartialResult {
        PartialResult::WithIds(Box::new(PartialWithIds {
            partial: self,
            ids: ProfileIdsBySource::from_source(place, ids),
        }))
    }

    /// Splits the ids of selected profiles from the result. The ids are empty if no place reported any.
    pub fn split_ids(self) -> (PartialResult, ProfileIdsBySource) {
        match self {
            PartialResult::WithIds(with_ids) => (with_ids.partial, with_ids.ids),
            partial => (partial, ProfileIdsBySource::default()),
        }
    }

    /// Returns true if nothing was found.
    pub fn is_empty(&self) -> bool {
        match self {
            PartialResult::ProfileTypes(types) => types.is_empty(),
            PartialResult::Texts(texts) => texts.is_empty(),
            PartialResult::Values(values) => values.counts.is_empty(),
            PartialResult::Series(series) => series.is_empty(),
            // The root always exists.
            PartialResult::Tree(tree) => tree.nodes().len() <= 1,
            PartialResult::Profile(merged) => merged.profiles == 0,
            PartialResult::OriginTree(merged) => merged.profiles == 0,
            PartialResult::Points(points) => points.is_empty(),
            PartialResult::Heat(heat) => heat.is_empty(),
            PartialResult::Sizes(sizes) => sizes.heads.profiles == 0 && sizes.blocks.profiles == 0,
            PartialResult::Trees(trees) => trees.is_empty(),
            PartialResult::Profiles(list) => list.profiles == 0,
            PartialResult::Ids(ids) => ids.is_empty(),
            PartialResult::Counts(counts) => counts.is_empty(),
            PartialResult::Samples(list) => list.is_empty(),
            PartialResult::WithIds(with_ids) => with_ids.partial.is_empty(),
        }
    }

    /// Checks that all values of stacks add up, in any order and selection. Renderers then add without checks. Sums of
    /// other results are checked while they are added up.
    pub(crate) fn check_sums(&self) -> Result<(), ProfileQueryError> {
        match self {
            PartialResult::Tree(tree) => check_stack_sum(tree.magnitude()),
            PartialResult::OriginTree(merged) => check_stack_sum(merged.tree.magnitude()),
            PartialResult::Trees(trees) => {
                // Tables add up the trees of all groups.
                let magnitudes = trees.values().map(|tree| tree.magnitude());
                check_stack_sum(magnitudes.fold(0, u64::saturating_add))
            }
            PartialResult::Profile(merged) => check_magnitude(&merged.totals),
            PartialResult::WithIds(with_ids) => with_ids.partial.check_sums(),
            PartialResult::ProfileTypes(_)
            | PartialResult::Texts(_)
            | PartialResult::Values(_)
            | PartialResult::Series(_)
            | PartialResult::Points(_)
            | PartialResult::Heat(_)
            | PartialResult::Sizes(_)
            | PartialResult::Profiles(_)
            | PartialResult::Samples(_)
            | PartialResult::Counts(_)
            | PartialResult::Ids(_) => Ok(()),
        }
    }

    /// Merges the result of other sources for the same query. Results of different kinds do not merge.
    pub fn merge(
        self,
        other: PartialResult,
        bounds: &ResultLimits,
    ) -> Result<PartialResult, ProfileQueryError> {
        let merged = match (self, other) {
            (PartialResult::WithIds(with_ids), other) | (other, PartialResult::WithIds(with_ids)) => {
                let PartialWithIds { partial, mut ids } = *with_ids;
                let (other, others) = other.split_ids();
                ids.merge(others);
                let partial = partial.merge(other, bounds)?;
                return Ok(PartialResult::WithIds(Box::new(PartialWithIds { partial, ids })));
            }
            (PartialResult::Ids(mut left), PartialResult::Ids(mut right)) => {
                left.append(&mut right);
                PartialResult::Ids(left)
            }
            (PartialResult::Counts(left), PartialResult::Counts(right)) => {
                PartialResult::Counts(merge_counts(left, right))
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
                PartialResult::Profile(Box::new(merge_stacks(*left, &right)?))
            }
            (PartialResult::OriginTree(mut left), PartialResult::OriginTree(right)) => {
                left.merge(&right);
                PartialResult::OriginTree(left)
            }
            (PartialResult::Points(left), PartialResult::Points(right)) => {
                PartialResult::Points(merge_points(left, right)?)
            }
            (PartialResult::Heat(left), PartialResult::Heat(right)) => {
                PartialResult::Heat(heatmap::merge_heatmap_values(left, right)?)
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
            (PartialResult::Samples(left), PartialResult::Samples(right)) => {
                PartialResult::Samples(Box::new(left.merge(*right)))
            }
            (left, _) => left,
        };
        merged.check_limits(bounds)?;
        merged.check_sums()?;
        Ok(merged)
    }

    /// Merges the result of another time range of the same source.
    pub fn merge_range(
        self,
        other: PartialResult,
        bounds: &ResultLimits,
    ) -> Result<PartialResult, ProfileQueryError> {
        match (self, other) {
            (PartialResult::Sizes(left), PartialResult::Sizes(right)) => {
                let merged = PartialResult::Sizes(Box::new(left.merge_range(*right)));
                merged.check_limits(bounds)?;
                Ok(merged)
            }
            (left, right) => left.merge(right, bounds),
        }
    }

    /// Returns true if all counts of profiles in the result are known.
    pub fn has_exact_counts(&self) -> bool {
        match self {
            PartialResult::Points(series) => {
                series.values().flat_map(BTreeMap::values).all(TimeSeriesPoint::has_exact_count)
            }
            PartialResult::Counts(counts) => counts.values().all(ProfileCount::is_exact),
            PartialResult::WithIds(with_ids) => with_ids.partial.has_exact_counts(),
            _ => true,
        }
    }

    /// Returns the approximate memory in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            PartialResult::ProfileTypes(types) => types.iter().map(type_bytes).sum(),
            PartialResult::Texts(texts) => texts.iter().map(|text| text_bytes(text)).sum(),
            PartialResult::Values(values) => values.counts.keys().map(|value| value_bytes(value)).sum(),
            PartialResult::Series(series) => series.iter().map(labels_bytes).sum(),
            PartialResult::Tree(tree) => tree.bytes(),
            PartialResult::OriginTree(merged) => merged.bytes(),
            PartialResult::Profile(merged) => {
                merged.dictionary.memory() + merged.totals.len() * size_of::<i64>()
            }
            PartialResult::Points(series) => {
                let of_series = |(labels, cells): (&Labels, &BTreeMap<u64, TimeSeriesPoint>)| {
                    let labels_of = |cell: &TimeSeriesPoint| cell.exemplar.as_ref().map_or(0, exemplar_bytes);
                    let of_cell = |cell: &TimeSeriesPoint| {
                        cell_bytes(cell.profiles.len(), cell.downsampled) + labels_of(cell)
                    };
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
            PartialResult::Counts(counts) => counts.keys().map(count_bytes).sum(),
            PartialResult::Samples(list) => list.bytes(),
            PartialResult::WithIds(with_ids) => with_ids.partial.bytes() + with_ids.ids.bytes(),
        }
    }

    /// Checks the size of the result against its limits.
    pub(crate) fn check_limits(&self, bounds: &ResultLimits) -> Result<(), ProfileQueryError> {
        let (what, seen, limit) = match self {
            PartialResult::ProfileTypes(types) => ("profile types", types.len(), bounds.entries),
            PartialResult::Texts(texts) => ("label names", texts.len(), bounds.entries),
            PartialResult::Values(values) => ("label values", values.counts.len(), bounds.entries),
            PartialResult::Series(series) => ("series", series.len(), bounds.entries),
            PartialResult::Tree(tree) => ("nodes", tree.nodes().len(), bounds.nodes),
            PartialResult::Profile(merged) => ("stacks", merged.totals.len(), bounds.stacks),
            PartialResult::OriginTree(merged) if merged.origins.len() > bounds.stacks => {
                ("places of functions", merged.origins.len(), bounds.stacks)
            }
            PartialResult::OriginTree(merged) => ("nodes", merged.tree.nodes().len(), bounds.nodes),
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
            PartialResult::Counts(counts) => ("groups", counts.len(), bounds.entries),
            PartialResult::Samples(list) => ("stacks", list.dictionary.stacks.len(), bounds.stacks),
            // Ids are bounded only by the memory budget.
            PartialResult::Ids(_) => return Ok(()),
            PartialResult::WithIds(with_ids) => return with_ids.partial.check_limits(bounds),
        };
        if seen > limit { Err(ProfileQueryError::TooLarge { what, limit }) } else { Ok(()) }
    }
}

pub(crate) fn exemplar_bytes(of: &ProfileExemplar) -> usize {
    labels_bytes(&of.labels)
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

fn merge_stacks(left: MergedProfile, right: &MergedProfile) -> Result<MergedProfile, ProfileQueryError> {
    let mut merged = left;
    let mut copier = StackCopier::new(&right.dictionary);
    for (stack, &total) in (0..).zip(&right.totals).filter(|(_, total)| **total != 0) {
        merged.add_foreign_stack(&mut copier, stack, total)?;
    }
    merged.profiles = merged.profiles.saturating_add(right.profiles);
    Ok(merged)
}

fn merge_points(
    mut left: TimeSeriesPoints,
    right: TimeSeriesPoints,
) -> Result<TimeSeriesPoints, ProfileQueryError> {
    for (labels, points) in right {
        let of_labels = left.entry(labels).or_default();
        for (place, cell) in points {
            let sum = of_labels.entry(place).or_default();
            add_checked(&mut sum.sum, cell.sum, POINT_VALUES)?;
            sum.profiles = union(std::mem::take(&mut sum.profiles), cell.profiles);
            sum.downsampled.add(cell.downsampled);
            sum.exemplar = sum.exemplar.take().max(cell.exemplar);
        }
    }
    Ok(left)
}
