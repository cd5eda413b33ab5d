//! Execution of a query on one source.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use athanor_chassis::compute::yield_slice;
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::data_model::identity::profile_id_of_record;
use athanor_profile::encoding::hash::{ContentHash, PrehashedSet, vec_memory};
use athanor_profile::store_interface::series::{BucketCounts, METRIC_NAME_LABEL, SERVICE_NAME_LABEL};
use athanor_profile::{Labels, ProfileRow, ProfileSeries, ProfileSource, SourceError};

use self::exemplars::{CANDIDATE_BYTES, SeriesPointKey};
use self::groups::{SeriesGroups, group_entry};
use self::heatmap::collect_heatmap_values;
use self::query_cost::estimate_cost;
use crate::dedup::SourceId;
use crate::request::profile_query::{
    LabelValuesQuery, ProfileQuery, ProfileQueryError, ProfileSelection, QueryKind, RequiredData,
    TimeSeriesQuery,
};
use crate::request::stack_filter::{GoPgoOptions, StackFilter};
use crate::result::partial::{
    LabelValueCounts, MergedProfile, PartialResult, TimeSeriesPoint, TimeSeriesPoints,
};

mod exemplars;
mod groups;
mod heatmap;
mod profile_list;
mod query_cost;

/// Returns the labels by which a series is selected and displayed: its own, and those that describe its
/// profile type.
pub fn series_labels(series: &ProfileSeries) -> Labels {
    let mut labels = series.labels().clone();
    let profile_type = series.profile_type();
    labels.set("__profile_type__", &profile_type.to_string());
    labels.set(METRIC_NAME_LABEL, &profile_type.name);
    labels.set("__type__", &profile_type.value.kind);
    labels.set("__unit__", &profile_type.value.unit);
    labels.set("__period_type__", &profile_type.period.kind);
    labels.set("__period_unit__", &profile_type.period.unit);
    let service = labels.get(SERVICE_NAME_LABEL).unwrap_or_default().to_owned();
    labels.set("__service_name__", &service);
    labels
}

/// Profiles of a source that a query selects. Finding them is part of execution, and [`run_matched`] runs the
/// query on them.
pub struct MatchedProfiles {
    series: Arc<[ProfileSeries]>,
    pub(crate) profiles: Arc<[ProfileRow]>,
    /// Row indexes of the profiles, ascending.
    pub(crate) places: Vec<u32>,
    /// True if the query picks exemplars among them.
    has_exemplars: bool,
    /// True if each row is a bucket of a downsampled tier.
    is_downsampled: bool,
}

impl MatchedProfiles {
    /// Finds the selected profiles of a source.
    pub fn find_matching(
        ask: &ProfileQuery,
        source: &dyn ProfileSource,
    ) -> Result<MatchedProfiles, ProfileQueryError> {
        MatchedProfiles::find_matching_with(ask, ask.required_data(), source)
    }

    /// Finds the selected profiles, with at least the required columns of each.
    fn find_matching_with(
        ask: &ProfileQuery,
        needs: RequiredData,
        source: &dyn ProfileSource,
    ) -> Result<MatchedProfiles, ProfileQueryError> {
        let selection = &ask.selection;
        let series = source.series()?;
        let is_downsampled = source.is_downsampled();
        let compares_ids = !is_downsampled && ask.needs_dedup() && !source.has_distinct_ids()?;
        let reads_ids = needs.profiles || compares_ids || is_downsampled && ask.counts_profiles();
        let profiles = if reads_ids { source.profiles()? } else { source.brief_profiles()? };
        // Full labels are built on use: all of them would take more memory than the series themselves.
        let all = selection.selector.matchers().is_empty();
        let matches = |one: &ProfileSeries| all || selection.selector.matches(&series_labels(one));
        let meant: Vec<bool> = series
            .iter()
            .map(|one| {
                let wanted = &selection.profile_type;
                let of_type = wanted.as_ref().is_none_or(|wanted| one.profile_type() == *wanted);
                of_type && matches(one)
            })
            .collect();
        if profiles.iter().any(|profile| profile.series as usize >= series.len()) {
            return Err(ProfileQueryError::Damaged("a profile has an unknown series"));
        }
        // A bucket is no single profile, and has no id.
        let has_no_match = is_downsampled && ask.required_resolution().single_profiles;
        let is_selected = |profile: &ProfileRow| match is_downsampled {
            true => selection.time.contains(profile.time),
            false => selection.matches_profile(profile),
        };
        let is_meant =
            |profile: &ProfileRow| !has_no_match && meant[profile.series as usize] && is_selected(profile);
        let numbered = (0..).zip(profiles.iter());
        let mut places: Vec<u32> =
            numbered.filter(|(_, profile)| is_meant(profile)).map(|(place, _)| place).collect();
        if compares_ids {
            dedup_by_id(&profiles, &mut places);
        }
        let has_exemplars = matches!(&ask.what, QueryKind::Points(points) if points.exemplars);
        Ok(MatchedProfiles { series, profiles, places, has_exemplars, is_downsampled })
    }

    /// Returns the number of stored profiles that a row stands for.
    fn record_count(&self, row: &ProfileRow) -> u64 {
        if self.is_downsampled { BucketCounts::from_row_id(row.id).records } else { 1 }
    }

    /// Returns the row indexes of the profiles, ascending.
    pub fn row_indexes(&self) -> &[u32] {
        &self.places
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &ProfileRow> {
        self.places.iter().map(|&place| &self.profiles[place as usize])
    }

    /// Returns a cache of full labels, for a pass over the profiles.
    pub(crate) fn label_cache(&self) -> SeriesLabelCache<'_> {
        SeriesLabelCache { series: &self.series, known: HashMap::new(), most: MAX_CACHED_SERIES_LABELS }
    }

    /// Returns the approximate memory of the matches and of a pass over them, without series and profiles.
    pub fn memory_bytes(&self) -> usize {
        let mut labels = 0;
        let mut largest = 0;
        for series in self.series.iter() {
            labels += series.memory();
            largest = largest.max(series.memory());
        }
        let labels = FULL_LABELS_SIZE_FACTOR * labels.min(MAX_CACHED_SERIES_LABELS * largest);
        let of_candidate = if self.has_exemplars { CANDIDATE_BYTES } else { 0 };
        let places = vec_memory(&self.places) + self.places.len() * (PROFILE_SUM_BYTES + of_candidate);
        labels + places + self.series.len() * SERIES_STATE_BYTES
    }

    /// Returns the series that have a selected profile.
    pub(crate) fn matched_series(&self) -> impl Iterator<Item = &ProfileSeries> {
        let mut seen = vec![false; self.series.len()];
        self.rows().for_each(|row| seen[row.series as usize] = true);
        self.series.iter().zip(seen).filter_map(|(series, seen)| seen.then_some(series))
    }
}

/// Drops all but the first of the selected profiles that have one id. A source holds a profile in two series
/// if label rules changed between its two copies. A copy without rows adds nothing and may precede one that
/// has some.
fn dedup_by_id(profiles: &[ProfileRow], places: &mut Vec<u32>) {
    let mut seen: PrehashedSet<ContentHash> = PrehashedSet::default();
    places.retain(|&place| {
        let profile = &profiles[place as usize];
        profile.samples == 0 || seen.insert(profile.id)
    });
}

/// Bounded cache of full labels by series. Labels that a result shares do not count. Profiles are mostly
/// sorted by series, and otherwise there are few series.
pub(crate) struct SeriesLabelCache<'p> {
    series: &'p [ProfileSeries],
    known: HashMap<u32, Labels>,
    /// Number of entries at which the cache evicts labels that no result shares.
    most: usize,
}

/// Number of unshared series in the cache.
const MAX_CACHED_SERIES_LABELS: usize = 1024;
/// Memory of a series with full labels, relative to the series alone.
const FULL_LABELS_SIZE_FACTOR: usize = 2;
/// Memory of a profile's sum, and of its second row index in groups.
const PROFILE_SUM_BYTES: usize = 40;
/// Memory of the state of each series: selected, seen and complete flags, and a count of selected profiles.
const SERIES_STATE_BYTES: usize = 16;

impl SeriesLabelCache<'_> {
    /// Returns the full labels of a series, by its index.
    pub(crate) fn full_labels(&mut self, series: u32) -> &Labels {
        if self.known.len() >= self.most && !self.known.contains_key(&series) {
            // Rebuilding labels that a result shares would store them a second time.
            self.known.retain(|_, labels| labels.is_shared());
            self.most = self.known.len() + MAX_CACHED_SERIES_LABELS;
        }
        self.known.entry(series).or_insert_with(|| series_labels(&self.series[series as usize]))
    }
}

/// Runs a query on one source.
pub fn run(ask: &ProfileQuery, source: &dyn ProfileSource) -> Result<PartialResult, ProfileQueryError> {
    run_matched(ask, source, &MatchedProfiles::find_matching(ask, source)?)
}

/// Runs a query on one source, with the profiles that the same query matched before.
pub fn run_matched(
    ask: &ProfileQuery,
    source: &dyn ProfileSource,
    picked: &MatchedProfiles,
) -> Result<PartialResult, ProfileQueryError> {
    // A source is opened before it is known whether any profile matches.
    if picked.places.is_empty() && ask.what != QueryKind::Sizes {
        return Ok(PartialResult::empty(&ask.what));
    }
    let answer = match &ask.what {
        QueryKind::ProfileTypes => {
            PartialResult::ProfileTypes(picked.matched_series().map(ProfileSeries::profile_type).collect())
        }
        QueryKind::LabelNames => {
            let mut names = BTreeSet::new();
            for labels in picked.matched_series().map(series_labels) {
                for (name, _) in labels.iter().filter(|(name, _)| !name.is_empty()) {
                    if !names.contains(name) {
                        names.insert(name.to_owned());
                    }
                }
            }
            PartialResult::Texts(names)
        }
        QueryKind::LabelValues(asked) => PartialResult::Values(values(picked, asked)),
        QueryKind::Series(names) => PartialResult::Series(
            picked.matched_series().map(|series| project_labels(&series_labels(series), names)).collect(),
        ),
        QueryKind::Tree(stacks) => PartialResult::Tree(tree(picked, &ask.selection, stacks, source)?),
        QueryKind::Profile(stacks, pgo) => {
            PartialResult::Profile(Box::new(profile(picked, &ask.selection, stacks, *pgo, source)?))
        }
        QueryKind::Points(points) => {
            PartialResult::Points(self::points(picked, &ask.selection, points, source)?)
        }
        QueryKind::Sizes => PartialResult::Sizes(Box::new(estimate_cost(picked, &ask.selection, source)?)),
        QueryKind::Heat(asked) => {
            PartialResult::Heat(collect_heatmap_values(picked, &ask.selection, asked, &ask.bounds, source)?)
        }
        QueryKind::Trees(asked) => {
            PartialResult::Trees(groups::merge_grouped_trees(picked, &ask.selection, asked, source)?)
        }
        QueryKind::Profiles(asked) => {
            PartialResult::Profiles(profile_list::list_profiles(picked, &ask.selection, asked, source)?)
        }
        QueryKind::Ids => PartialResult::Ids(picked.rows().map(|row| row.id).collect()),
    };
    answer.check_limits(&ask.bounds)?;
    Ok(answer)
}

/// Source that may share profiles with other places.
pub struct DedupSource<'s> {
    /// Profiles of the source.
    pub source: &'s dyn ProfileSource,
    /// Place that the result reports with its ids. None reports no ids.
    pub tells: Option<SourceId>,
    /// Ids of its profiles that do not count.
    pub without: &'s BTreeSet<ContentHash>,
}

/// Empty exclusion set, with which everything counts.
static NO_EXCLUDED_IDS: BTreeSet<ContentHash> = BTreeSet::new();

impl<'s> From<&'s dyn ProfileSource> for DedupSource<'s> {
    /// Wraps a source that shares no profiles with other places.
    fn from(source: &'s dyn ProfileSource) -> Self {
        DedupSource { source, tells: None, without: &NO_EXCLUDED_IDS }
    }
}

impl DedupSource<'_> {
    /// Runs the query, without the excluded profiles.
    pub fn query_source(&self, ask: &ProfileQuery) -> Result<PartialResult, ProfileQueryError> {
        let DedupSource { source, tells, without } = *self;
        if source.is_downsampled() {
            return run(ask, source);
        }
        let needs = ask.required_data();
        let needs =
            RequiredData { profiles: needs.profiles || tells.is_some() || !without.is_empty(), ..needs };
        let mut picked = MatchedProfiles::find_matching_with(ask, needs, source)?;
        let ids = tells.map(|place| (place, picked.rows().map(|row| row.id).collect()));
        let MatchedProfiles { profiles, places, .. } = &mut picked;
        if !without.is_empty() {
            places.retain(|&place| !without.contains(&profiles[place as usize].id));
        }
        let partial = run_matched(ask, source, &picked)?;
        Ok(match ids {
            Some((place, ids)) => partial.with_ids(place, ids),
            None => partial,
        })
    }
}

/// Runs a query on all sources that one process has for others, such as the heads of the shards that it
/// leads. Merging the results of several processes equals a query over all of their sources.
pub fn run_all<'s, L: Into<DedupSource<'s>>>(
    ask: &ProfileQuery,
    sources: impl IntoIterator<Item = L>,
) -> Result<PartialResult, ProfileQueryError> {
    sources.into_iter().try_fold(PartialResult::empty(&ask.what), |sum, source| {
        let next = source.into().query_source(ask)?;
        sum.merge(next, &ask.bounds)
    })
}

/// Returns the labels of these names, or all labels if no name is given.
pub(crate) fn project_labels(labels: &Labels, names: &[String]) -> Labels {
    if names.is_empty() {
        return labels.clone();
    }
    let found = names.iter().filter_map(|name| labels.get(name).map(|value| (name, value)));
    Labels::new(found.map(|(name, value)| (name.clone(), value.to_owned())))
}

/// Returns the labels by which series are grouped. Without any name there is one group of everything.
pub(crate) fn group_labels(labels: &Labels, names: &[String]) -> Labels {
    if names.is_empty() { Labels::default() } else { project_labels(labels, names) }
}

/// Counts the profiles of each value of a label.
fn values(picked: &MatchedProfiles, asked: &LabelValuesQuery) -> LabelValueCounts {
    let mut of_series = vec![0u64; picked.series.len()];
    for row in picked.rows() {
        let count = &mut of_series[row.series as usize];
        *count = count.saturating_add(picked.record_count(row));
    }
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (series, count) in picked.series.iter().zip(of_series).filter(|(_, count)| *count > 0) {
        let labels = series_labels(series);
        let value = labels.get(&asked.name);
        let Some(value) = value.filter(|value| value.starts_with(&asked.prefix)) else { continue };
        match counts.get_mut(value) {
            Some(sum) => *sum = sum.saturating_add(count),
            None => drop(counts.insert(value.to_owned(), count)),
        }
    }
    LabelValueCounts::new(asked, counts)
}

const STACK_MISMATCH_ERROR: ProfileQueryError =
    ProfileQueryError::Damaged("totals and names have different stacks");

/// Returns sums by stack of the selected rows.
fn totals(
    places: &[u32],
    selection: &ProfileSelection,
    source: &dyn ProfileSource,
) -> Result<Vec<i64>, SourceError> {
    match &selection.requests {
        None => source.totals(places),
        Some(wanted) => source.totals_of_spans(places, wanted),
    }
}

fn tree(
    picked: &MatchedProfiles,
    selection: &ProfileSelection,
    stacks: &StackFilter,
    source: &dyn ProfileSource,
) -> Result<Tree, ProfileQueryError> {
    let passing = find_passing_stacks(source, &without_call_site(stacks))?;
    build_tree(&picked.places, selection, stacks, passing.as_deref(), source)
}

/// Returns the filter without its call site. A call site is a position in the tree and is matched there.
fn without_call_site(stacks: &StackFilter) -> StackFilter {
    StackFilter { frames: stacks.frames.clone(), ..StackFilter::default() }
}

/// Builds the tree of some profiles, from the passing stacks.
fn build_tree(
    places: &[u32],
    selection: &ProfileSelection,
    stacks: &StackFilter,
    passing: Option<&[bool]>,
    source: &dyn ProfileSource,
) -> Result<Tree, ProfileQueryError> {
    let mut totals = match &selection.requests {
        None => source.totals_for_tree(places),
        Some(wanted) => source.totals_of_spans(places, wanted),
    }?;
    if let Some(passing) = passing {
        if passing.len() < totals.len() {
            return Err(STACK_MISMATCH_ERROR);
        }
        let others = totals.iter_mut().zip(passing).filter(|(_, passes)| !**passes);
        others.for_each(|(total, _)| *total = 0);
    }
    yield_slice();
    Ok(source.tree(&totals)?.subtree_below(&stacks.call_site))
}

fn profile(
    picked: &MatchedProfiles,
    selection: &ProfileSelection,
    filter: &StackFilter,
    pgo: Option<GoPgoOptions>,
    source: &dyn ProfileSource,
) -> Result<MergedProfile, ProfileQueryError> {
    let totals = totals(&picked.places, selection, source)?;
    let mut merged = Err(STACK_MISMATCH_ERROR);
    source.visit_names(&mut |dictionary, stacks| {
        if stacks.len() < totals.len() {
            return;
        }
        let passing = (!filter.is_empty()).then(|| filter.find_passing_stacks(dictionary, stacks));
        let profiles = picked.rows().fold(0u64, |sum, row| sum.saturating_add(picked.record_count(row)));
        let mut of_source = MergedProfile { profiles, ..MergedProfile::default() };
        for (place, (&stack, &total)) in stacks.iter().zip(&totals).enumerate() {
            if total == 0 || passing.as_ref().is_some_and(|passing| !passing[place]) {
                continue;
            }
            match pgo {
                None => of_source.add_foreign_stack(dictionary, stack, total),
                Some(pgo) => {
                    let shape = pgo.reshape_stack(dictionary, stack, &mut of_source.dictionary);
                    of_source.add_own_stack(shape, total);
                }
            }
        }
        merged = Ok(of_source);
    })?;
    merged
}

/// Returns a flag per stack: true if it passes the filter. None if the filter is empty.
fn find_passing_stacks(
    source: &dyn ProfileSource,
    filter: &StackFilter,
) -> Result<Option<Vec<bool>>, SourceError> {
    if filter.is_empty() {
        return Ok(None);
    }
    let mut passing = Vec::new();
    source.visit_names(&mut |dictionary, stacks| passing = filter.find_passing_stacks(dictionary, stacks))?;
    Ok(Some(passing))
}

/// Returns the sum of each profile's selected rows that pass a filter. Does not read rows if the source
/// stores the sums.
fn sum_by_profile(
    picked: &MatchedProfiles,
    selection: &ProfileSelection,
    filter: &StackFilter,
    source: &dyn ProfileSource,
) -> Result<HashMap<u32, i64>, SourceError> {
    if filter.is_empty()
        && selection.requests.is_none()
        && let Some(totals) = source.profile_totals()?
    {
        return Ok(picked.places.iter().map(|&place| (place, totals[place as usize])).collect());
    }
    let passing = find_passing_stacks(source, filter)?;
    let is_passing = |stack: u32| {
        passing.as_ref().is_none_or(|passing| passing.get(stack as usize).copied().unwrap_or(false))
    };
    let mut sums: HashMap<u32, i64> = HashMap::new();
    match &selection.requests {
        None => source.visit_rows(&picked.places, &mut |place, stacks, values| {
            let rows = stacks.iter().zip(values).filter(|(stack, _)| is_passing(**stack));
            let sum = sums.entry(place).or_default();
            *sum = rows.fold(*sum, |sum, (_, &value)| sum.wrapping_add(value));
        })?,
        Some(wanted) => source.visit_span_rows(&picked.places, &mut |place, stacks, values, requests| {
            let rows = stacks.iter().zip(values).zip(requests);
            let rows = rows.filter(|((stack, _), request)| is_passing(**stack) && wanted.contains(**request));
            let sum = sums.entry(place).or_default();
            *sum = rows.fold(*sum, |sum, ((_, &value), _)| sum.wrapping_add(value));
        })?,
    }
    Ok(sums)
}

fn points(
    picked: &MatchedProfiles,
    selection: &ProfileSelection,
    points: &TimeSeriesQuery,
    source: &dyn ProfileSource,
) -> Result<TimeSeriesPoints, ProfileQueryError> {
    let sums = sum_by_profile(picked, selection, &points.stacks, source)?;
    let is_part = !points.stacks.is_empty() || selection.requests.is_some();
    let mut groups = SeriesGroups::new(picked, &points.group_by);
    let mut gathered = Vec::new();
    for &place in &picked.places {
        let row = &picked.profiles[place as usize];
        let Some(point) = points.steps.point_index(row.time) else { continue };
        let sum = sums.get(&place).copied().unwrap_or_default();
        // Without a selected row there is no point. A mean, however, covers all profiles.
        if sum == 0 && is_part && !points.mean {
            continue;
        }
        let cells: &mut BTreeMap<u64, TimeSeriesPoint> =
            group_entry(&mut gathered, groups.group_of(row.series));
        let cell = cells.entry(point).or_default();
        cell.sum = cell.sum.wrapping_add(sum);
        match points.mean {
            true if picked.is_downsampled => cell.downsampled.add(BucketCounts::from_row_id(row.id)),
            true => drop(cell.profiles.insert(profile_id_of_record(row.id))),
            false => {}
        }
    }
    if points.exemplars {
        for (SeriesPointKey { group, point }, exemplar) in
            exemplars::largest_exemplars(picked, points, &sums, &mut groups)
        {
            group_entry(&mut gathered, group).entry(point).or_default().exemplar = Some(exemplar);
        }
    }
    Ok(groups.into_map(gathered))
}

#[cfg(test)]
mod tests {
    use athanor_profile::store_interface::source::MemorySource;
    use athanor_profile::{Profile, ValueType};

    use super::*;

    /// Label rules changed between an upload and its retry: the copies lie in two series of one block.
    #[test]
    fn profile_in_two_series_of_a_source_counts_once() {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        let stack = profile.dictionary.intern_named_stack(["main"].into_iter());
        profile.samples.push(stack, 0, &[5]);
        let mut source = MemorySource::default();
        for pod in ["a", "b"] {
            source.add(&Labels::new([("pod".to_owned(), pod.to_owned())]), &profile, 1);
        }
        let total = |what: QueryKind, selector: &str| {
            let selection =
                ProfileSelection { selector: selector.parse().unwrap(), ..ProfileSelection::default() };
            match run(&ProfileQuery { selection, what, ..ProfileQuery::default() }, &source).unwrap() {
                PartialResult::Tree(tree) => tree.total(),
                PartialResult::Profile(merged) => merged.totals.iter().sum(),
                PartialResult::Values(counts) => counts.counts().values().sum::<u64>() as i64,
                other => panic!("{other:?}"),
            }
        };
        let tree = || QueryKind::Tree(StackFilter::default());
        assert_eq!(total(tree(), "{}"), 5);
        assert_eq!(total(QueryKind::Profile(StackFilter::default(), None), "{}"), 5);
        assert_eq!(
            total(
                QueryKind::LabelValues(LabelValuesQuery {
                    name: "pod".to_owned(),
                    ..LabelValuesQuery::default()
                }),
                "{}"
            ),
            1
        );
        // Each copy is found by its own labels.
        assert_eq!((total(tree(), r#"{pod="a"}"#), total(tree(), r#"{pod="b"}"#)), (5, 5));
    }

    #[test]
    fn memory_of_points_counts_exemplar_candidates() {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        let mut source = MemorySource::default();
        (0..10).for_each(|number| source.add(&Labels::default(), &profile, number));
        let memory = |exemplars: bool| {
            let what = QueryKind::Points(TimeSeriesQuery { exemplars, ..TimeSeriesQuery::default() });
            MatchedProfiles::find_matching(&ProfileQuery { what, ..ProfileQuery::default() }, &source)
                .unwrap()
                .memory_bytes()
        };
        assert_eq!(memory(true), memory(false) + 10 * CANDIDATE_BYTES);
    }

    #[test]
    fn full_labels_are_those_of_the_series_and_few_are_known_at_once() {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        let mut source = MemorySource::default();
        let count = MAX_CACHED_SERIES_LABELS as u32 + 10;
        for number in 0..count {
            let pod = [("pod".to_owned(), number.to_string())];
            source.add(&Labels::new(pod), &profile, u128::from(number));
        }
        let picked = MatchedProfiles::find_matching(&ProfileQuery::default(), &source).unwrap();
        let mut labels = picked.label_cache();
        for series in (0..count).chain((0..count).rev()) {
            let expected = series_labels(&picked.series[series as usize]);
            assert_eq!(labels.full_labels(series), &expected);
            assert!(labels.known.len() <= MAX_CACHED_SERIES_LABELS);
        }
        let held: Vec<Labels> = (0..count).map(|series| labels.full_labels(series).clone()).collect();
        for series in (0..count).rev() {
            assert!(labels.full_labels(series).is_same(&held[series as usize]), "{series}");
        }
        drop(held);
        let mut labels = picked.label_cache();
        (0..count).for_each(|series| drop(labels.full_labels(series).clone()));
        assert!(labels.known.len() <= MAX_CACHED_SERIES_LABELS);
        let known: usize = labels.known.values().map(Labels::memory).sum();
        assert!(picked.memory_bytes() >= known, "{} {known}", picked.memory_bytes());
    }
}
