//! Answering from one source.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use athanor_chassis::compute::yield_slice;
use athanor_profile::hash::{Hash, HashedSet, list_memory};
use athanor_profile::identity::profile_of;
use athanor_profile::series::{METRIC_NAME, SERVICE_NAME};
use athanor_profile::tree::Tree;
use athanor_profile::{Labels, ProfileRow, Series, Source, SourceError};

use self::exemplars::{CANDIDATE_BYTES, CellKey};
use self::groups::{Groups, of_group};
use crate::ask::{Ask, AskError, Needs, Points, Selection, Values, What};
use crate::doubles::Place;
use crate::heat::heat;
use crate::partial::{Cell, LabelCounts, Merged, Partial, PointSeries};
use crate::size::sizes;
use crate::stacks::{GoPgo, StackFilter};

mod exemplars;
pub(crate) mod groups;
mod listed;

/// The labels by which a series is selected and shown: its own and those that say what it measures.
pub fn series_labels(series: &Series) -> Labels {
    let mut labels = series.labels().clone();
    let profile_type = series.profile_type();
    labels.set("__profile_type__", &profile_type.to_string());
    labels.set(METRIC_NAME, &profile_type.name);
    labels.set("__type__", &profile_type.value.kind);
    labels.set("__unit__", &profile_type.value.unit);
    labels.set("__period_type__", &profile_type.period.kind);
    labels.set("__period_unit__", &profile_type.period.unit);
    let service = labels.get(SERVICE_NAME).unwrap_or_default().to_owned();
    labels.set("__service_name__", &service);
    labels
}

/// The profiles of a source that a question is about. Finding them is part of answering it, so whoever has them answers by
/// [`run_picked`].
pub struct Picked {
    series: Arc<[Series]>,
    pub(crate) profiles: Arc<[ProfileRow]>,
    /// Places of profiles, ascending.
    pub(crate) places: Vec<u32>,
    /// Whether exemplars are picked among them.
    has_exemplars: bool,
}

impl Picked {
    /// Finds them.
    pub fn of(ask: &Ask, source: &dyn Source) -> Result<Picked, AskError> {
        Picked::with(ask, ask.needs(), source)
    }

    /// Finds them with at least what is needed of each.
    fn with(ask: &Ask, needs: Needs, source: &dyn Source) -> Result<Picked, AskError> {
        let (selection, series) = (&ask.selection, source.series()?);
        let compares_ids = ask.counts() && !source.has_distinct_ids()?;
        let reads_ids = needs.profiles || compares_ids;
        let profiles = if reads_ids { source.profiles()? } else { source.brief_profiles()? };
        // Full labels are made when they are used: all of them would take more than the series themselves.
        let all = selection.selector.matchers().is_empty();
        let matches = |one: &Series| all || selection.selector.matches(&series_labels(one));
        let meant: Vec<bool> = series
            .iter()
            .map(|one| {
                let wanted = &selection.profile_type;
                let of_type = wanted.as_ref().is_none_or(|wanted| one.profile_type() == *wanted);
                of_type && matches(one)
            })
            .collect();
        if profiles.iter().any(|profile| profile.series as usize >= series.len()) {
            return Err(AskError::Damaged("a profile is of a series that is not there"));
        }
        let is_meant = |profile: &ProfileRow| meant[profile.series as usize] && selection.picks(profile);
        let numbered = (0..).zip(profiles.iter());
        let mut places: Vec<u32> =
            numbered.filter(|(_, profile)| is_meant(profile)).map(|(place, _)| place).collect();
        if compares_ids {
            keep_first_of_each_id(&profiles, &mut places);
        }
        let has_exemplars = matches!(&ask.what, What::Points(points) if points.exemplars);
        Ok(Picked { series, profiles, places, has_exemplars })
    }

    /// Their places, ascending.
    pub fn places(&self) -> &[u32] {
        &self.places
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &ProfileRow> {
        self.places.iter().map(|&place| &self.profiles[place as usize])
    }

    /// Full labels of their series, for one profile after the other.
    pub(crate) fn labels(&self) -> FullLabels<'_> {
        FullLabels { series: &self.series, known: HashMap::new(), most: KNOWN }
    }

    /// What they take in memory, and what it takes to go through them, about; series and profiles left out.
    pub fn memory(&self) -> usize {
        let (mut labels, mut largest) = (0, 0);
        for series in self.series.iter() {
            labels += series.memory();
            largest = largest.max(series.memory());
        }
        let labels = FULL * labels.min(KNOWN * largest);
        let of_candidate = if self.has_exemplars { CANDIDATE_BYTES } else { 0 };
        let places = list_memory(&self.places) + self.places.len() * (SUM + of_candidate);
        labels + places + self.series.len() * OF_SERIES
    }

    /// The series that have a profile among those meant.
    pub(crate) fn seen(&self) -> impl Iterator<Item = &Series> {
        let mut seen = vec![false; self.series.len()];
        self.rows().for_each(|row| seen[row.series as usize] = true);
        self.series.iter().zip(seen).filter_map(|(series, seen)| seen.then_some(series))
    }
}

/// Drops all but the first of the picked profiles that have one id. A source holds a profile in two series if label rules
/// changed between its two copies. A copy without rows adds nothing and may precede one that has some.
fn keep_first_of_each_id(profiles: &[ProfileRow], places: &mut Vec<u32>) {
    let mut seen: HashedSet<Hash> = HashedSet::default();
    places.retain(|&place| {
        let profile = &profiles[place as usize];
        profile.samples == 0 || seen.insert(profile.id)
    });
}

/// Full labels of series, of which so many at most are known at once beside those that an answer has: profiles mostly lie by
/// their series, and otherwise there are few series.
pub(crate) struct FullLabels<'p> {
    series: &'p [Series],
    known: HashMap<u32, Labels>,
    /// So many are known before those are let go of that nobody has.
    most: usize,
}

/// Series whose full labels are known at once.
const KNOWN: usize = 1024;
/// How much more a series takes with its full labels than by itself.
const FULL: usize = 2;
/// What the sum of a profile takes, and its place once more, by groups.
const SUM: usize = 40;
/// What is noted of each series: whether it is meant, seen, and all there, and how many of its profiles are.
const OF_SERIES: usize = 16;

impl FullLabels<'_> {
    /// Those of a series, by its place.
    pub(crate) fn of(&mut self, series: u32) -> &Labels {
        if self.known.len() >= self.most && !self.known.contains_key(&series) {
            // Made once more, those that an answer has would be there twice.
            self.known.retain(|_, labels| labels.is_shared());
            self.most = self.known.len() + KNOWN;
        }
        self.known.entry(series).or_insert_with(|| series_labels(&self.series[series as usize]))
    }
}

/// The answer of one source.
pub fn run(ask: &Ask, source: &dyn Source) -> Result<Partial, AskError> {
    run_picked(ask, source, &Picked::of(ask, source)?)
}

/// The answer of one source in which the profiles that are meant were found already, by the same question.
pub fn run_picked(ask: &Ask, source: &dyn Source, picked: &Picked) -> Result<Partial, AskError> {
    // A source is opened before it is known that nothing in it is meant.
    if picked.places.is_empty() && ask.what != What::Sizes {
        return Ok(Partial::none(&ask.what));
    }
    let answer = match &ask.what {
        What::ProfileTypes => Partial::ProfileTypes(picked.seen().map(Series::profile_type).collect()),
        What::LabelNames => {
            let mut names = BTreeSet::new();
            for labels in picked.seen().map(series_labels) {
                for (name, _) in labels.iter().filter(|(name, _)| !name.is_empty()) {
                    if !names.contains(name) {
                        names.insert(name.to_owned());
                    }
                }
            }
            Partial::Texts(names)
        }
        What::LabelValues(asked) => Partial::Values(values(picked, asked)),
        What::Series(names) => {
            Partial::Series(picked.seen().map(|series| only(&series_labels(series), names)).collect())
        }
        What::Tree(stacks) => Partial::Tree(tree(picked, &ask.selection, stacks, source)?),
        What::Profile(stacks, pgo) => {
            Partial::Profile(Box::new(profile(picked, &ask.selection, (stacks, *pgo), source)?))
        }
        What::Points(points) => Partial::Points(self::points(picked, &ask.selection, points, source)?),
        What::Sizes => Partial::Sizes(Box::new(sizes(picked, &ask.selection, source)?)),
        What::Heat(asked) => Partial::Heat(heat(picked, &ask.selection, asked, &ask.bounds, source)?),
        What::Trees(asked) => Partial::Trees(groups::trees(picked, &ask.selection, asked, source)?),
        What::Profiles(asked) => Partial::Profiles(listed::profiles(picked, &ask.selection, asked, source)?),
        What::Ids => Partial::Ids(picked.rows().map(|row| row.id).collect()),
    };
    answer.within(&ask.bounds)?;
    Ok(answer)
}

/// A source that may hold profiles which others hold, too.
pub struct Lying<'s> {
    /// It.
    pub source: &'s dyn Source,
    /// Where its profiles lie, if they are to be told.
    pub tells: Option<Place>,
    /// Those of its profiles that do not count.
    pub without: &'s BTreeSet<Hash>,
}

/// Everything counts.
static NONE: BTreeSet<Hash> = BTreeSet::new();

impl<'s> From<&'s dyn Source> for Lying<'s> {
    /// A source whose profiles lie nowhere else.
    fn from(source: &'s dyn Source) -> Self {
        Lying { source, tells: None, without: &NONE }
    }
}

impl Lying<'_> {
    /// Its answer.
    pub fn run(&self, ask: &Ask) -> Result<Partial, AskError> {
        let Lying { source, tells, without } = *self;
        let needs = ask.needs();
        let needs = Needs { profiles: needs.profiles || tells.is_some() || !without.is_empty(), ..needs };
        let mut picked = Picked::with(ask, needs, source)?;
        let ids = tells.map(|place| (place, picked.rows().map(|row| row.id).collect()));
        let Picked { profiles, places, .. } = &mut picked;
        if !without.is_empty() {
            places.retain(|&place| !without.contains(&profiles[place as usize].id));
        }
        let partial = run_picked(ask, source, &picked)?;
        Ok(match ids {
            Some((place, ids)) => partial.telling(place, ids),
            None => partial,
        })
    }
}

/// The answer of all sources that one process has for others, such as the heads of the shards that it leads. Merging
/// answers of several such processes gives what asking all of their sources would have given.
pub fn answer<'s, L: Into<Lying<'s>>>(
    ask: &Ask,
    sources: impl IntoIterator<Item = L>,
) -> Result<Partial, AskError> {
    sources.into_iter().try_fold(Partial::none(&ask.what), |sum, source| {
        let next = source.into().run(ask)?;
        sum.merge(next, &ask.bounds)
    })
}

/// The labels of these names; all if none is given.
pub(crate) fn only(labels: &Labels, names: &[String]) -> Labels {
    if names.is_empty() {
        return labels.clone();
    }
    let found = names.iter().filter_map(|name| labels.get(name).map(|value| (name, value)));
    Labels::new(found.map(|(name, value)| (name.clone(), value.to_owned())))
}

/// The labels of these names, by which series are grouped; without any name there is one group, of everything.
pub(crate) fn group(labels: &Labels, names: &[String]) -> Labels {
    if names.is_empty() { Labels::default() } else { only(labels, names) }
}

/// How many profiles have each value of a label.
fn values(picked: &Picked, asked: &Values) -> LabelCounts {
    let mut of_series = vec![0u64; picked.series.len()];
    picked.rows().for_each(|row| of_series[row.series as usize] += 1);
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (series, count) in picked.series.iter().zip(of_series).filter(|(_, count)| *count > 0) {
        let labels = series_labels(series);
        let value = labels.get(&asked.name);
        let Some(value) = value.filter(|value| value.starts_with(&asked.prefix)) else { continue };
        match counts.get_mut(value) {
            Some(sum) => *sum += count,
            None => drop(counts.insert(value.to_owned(), count)),
        }
    }
    LabelCounts::new(asked, counts)
}

const OTHER_STACKS: AskError = AskError::Damaged("names are of other stacks than totals");

/// Sums by stack of the rows that are meant.
fn totals(places: &[u32], selection: &Selection, source: &dyn Source) -> Result<Vec<i64>, SourceError> {
    match &selection.requests {
        None => source.totals(places),
        Some(wanted) => source.totals_of_requests(places, wanted),
    }
}

fn tree(
    picked: &Picked,
    selection: &Selection,
    stacks: &StackFilter,
    source: &dyn Source,
) -> Result<Tree, AskError> {
    let passing = passing(source, &frames_of(stacks))?;
    tree_of(&picked.places, selection, (stacks, passing.as_deref()), source)
}

/// What of a filter names do not say sooner: a call site is a place in the tree, and is found there.
fn frames_of(stacks: &StackFilter) -> StackFilter {
    StackFilter { frames: stacks.frames.clone(), ..StackFilter::default() }
}

/// The tree of some profiles, of those stacks that pass.
fn tree_of(
    places: &[u32],
    selection: &Selection,
    (stacks, passing): (&StackFilter, Option<&[bool]>),
    source: &dyn Source,
) -> Result<Tree, AskError> {
    let mut totals = match &selection.requests {
        None => source.totals_of_tree(places),
        Some(wanted) => source.totals_of_requests(places, wanted),
    }?;
    if let Some(passing) = passing {
        if passing.len() < totals.len() {
            return Err(OTHER_STACKS);
        }
        let others = totals.iter_mut().zip(passing).filter(|(_, passes)| !**passes);
        others.for_each(|(total, _)| *total = 0);
    }
    yield_slice();
    Ok(source.tree(&totals)?.below(&stacks.call_site))
}

fn profile(
    picked: &Picked,
    selection: &Selection,
    (filter, pgo): (&StackFilter, Option<GoPgo>),
    source: &dyn Source,
) -> Result<Merged, AskError> {
    let totals = totals(&picked.places, selection, source)?;
    let mut merged = Err(OTHER_STACKS);
    source.names(&mut |dictionary, stacks| {
        if stacks.len() < totals.len() {
            return;
        }
        let passing = (!filter.is_empty()).then(|| filter.passing(dictionary, stacks));
        let mut of_source = Merged { profiles: picked.places.len() as u64, ..Merged::default() };
        for (place, (&stack, &total)) in stacks.iter().zip(&totals).enumerate() {
            if total == 0 || passing.as_ref().is_some_and(|passing| !passing[place]) {
                continue;
            }
            match pgo {
                None => of_source.add(dictionary, stack, total),
                Some(pgo) => {
                    let shape = pgo.shape(dictionary, stack, &mut of_source.dictionary);
                    of_source.add_own(shape, total);
                }
            }
        }
        merged = Ok(of_source);
    })?;
    merged
}

/// Which stacks of a source pass a filter; all if it is empty.
fn passing(source: &dyn Source, filter: &StackFilter) -> Result<Option<Vec<bool>>, SourceError> {
    if filter.is_empty() {
        return Ok(None);
    }
    let mut passing = Vec::new();
    source.names(&mut |dictionary, stacks| passing = filter.passing(dictionary, stacks))?;
    Ok(Some(passing))
}

/// The sum of each profile's rows that are meant and pass a filter. A source that keeps the sums need not be read.
pub(crate) fn sums(
    picked: &Picked,
    selection: &Selection,
    filter: &StackFilter,
    source: &dyn Source,
) -> Result<HashMap<u32, i64>, SourceError> {
    if filter.is_empty()
        && selection.requests.is_none()
        && let Some(totals) = source.profile_totals()?
    {
        return Ok(picked.places.iter().map(|&place| (place, totals[place as usize])).collect());
    }
    let passing = passing(source, filter)?;
    let is_passing = |stack: u32| {
        passing.as_ref().is_none_or(|passing| passing.get(stack as usize).copied().unwrap_or(false))
    };
    let mut sums: HashMap<u32, i64> = HashMap::new();
    match &selection.requests {
        None => source.rows(&picked.places, &mut |place, stacks, values| {
            let rows = stacks.iter().zip(values).filter(|(stack, _)| is_passing(**stack));
            let sum = sums.entry(place).or_default();
            *sum = rows.fold(*sum, |sum, (_, &value)| sum.wrapping_add(value));
        })?,
        Some(wanted) => source.rows_of_requests(&picked.places, &mut |place, stacks, values, requests| {
            let rows = stacks.iter().zip(values).zip(requests);
            let rows = rows.filter(|((stack, _), request)| is_passing(**stack) && wanted.contains(**request));
            let sum = sums.entry(place).or_default();
            *sum = rows.fold(*sum, |sum, ((_, &value), _)| sum.wrapping_add(value));
        })?,
    }
    Ok(sums)
}

fn points(
    picked: &Picked,
    selection: &Selection,
    points: &Points,
    source: &dyn Source,
) -> Result<PointSeries, AskError> {
    let sums = sums(picked, selection, &points.stacks, source)?;
    let is_part = !points.stacks.is_empty() || selection.requests.is_some();
    let (mut groups, mut gathered) = (Groups::new(picked, &points.group_by), Vec::new());
    for &place in &picked.places {
        let row = &picked.profiles[place as usize];
        let Some(point) = points.steps.place(row.time) else { continue };
        let sum = sums.get(&place).copied().unwrap_or_default();
        // Where nothing counts there is no point; but a mean is one of all profiles.
        if sum == 0 && is_part && !points.mean {
            continue;
        }
        let cells: &mut BTreeMap<u64, Cell> = of_group(&mut gathered, groups.of(row.series));
        let cell = cells.entry(point).or_default();
        cell.sum = cell.sum.wrapping_add(sum);
        if points.mean {
            cell.profiles.insert(profile_of(row.id));
        }
    }
    if points.exemplars {
        for (CellKey { group, point }, exemplar) in exemplars::largest(picked, points, &sums, &mut groups) {
            of_group(&mut gathered, group).entry(point).or_default().exemplar = Some(exemplar);
        }
    }
    Ok(groups.named(gathered))
}

#[cfg(test)]
mod tests {
    use athanor_profile::source::MemorySource;
    use athanor_profile::{Profile, ValueType};

    use super::*;

    /// Label rules changed between an upload and its retry: the copies lie in two series of one block.
    #[test]
    fn profile_in_two_series_of_a_source_counts_once() {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        let stack = profile.dictionary.named_stack(["main"].into_iter());
        profile.samples.push(stack, 0, &[5]);
        let mut source = MemorySource::default();
        for pod in ["a", "b"] {
            source.add(&Labels::new([("pod".to_owned(), pod.to_owned())]), &profile, 1);
        }
        let total = |what: What, selector: &str| {
            let selection = Selection { selector: selector.parse().unwrap(), ..Selection::default() };
            match run(&Ask { selection, what, ..Ask::default() }, &source).unwrap() {
                Partial::Tree(tree) => tree.total(),
                Partial::Profile(merged) => merged.totals.iter().sum(),
                Partial::Values(counts) => counts.counts().values().sum::<u64>() as i64,
                other => panic!("{other:?}"),
            }
        };
        let tree = || What::Tree(StackFilter::default());
        assert_eq!(total(tree(), "{}"), 5);
        assert_eq!(total(What::Profile(StackFilter::default(), None), "{}"), 5);
        assert_eq!(total(What::LabelValues(Values { name: "pod".to_owned(), ..Values::default() }), "{}"), 1);
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
            let what = What::Points(Points { exemplars, ..Points::default() });
            Picked::of(&Ask { what, ..Ask::default() }, &source).unwrap().memory()
        };
        assert_eq!(memory(true), memory(false) + 10 * CANDIDATE_BYTES);
    }

    #[test]
    fn full_labels_are_those_of_the_series_and_few_are_known_at_once() {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        let mut source = MemorySource::default();
        let count = KNOWN as u32 + 10;
        for number in 0..count {
            let pod = [("pod".to_owned(), number.to_string())];
            source.add(&Labels::new(pod), &profile, u128::from(number));
        }
        let picked = Picked::of(&Ask::default(), &source).unwrap();
        let mut labels = picked.labels();
        for series in (0..count).chain((0..count).rev()) {
            let expected = series_labels(&picked.series[series as usize]);
            assert_eq!(labels.of(series), &expected);
            assert!(labels.known.len() <= KNOWN);
        }
        let held: Vec<Labels> = (0..count).map(|series| labels.of(series).clone()).collect();
        for series in (0..count).rev() {
            assert!(labels.of(series).is_same(&held[series as usize]), "{series}");
        }
        drop(held);
        let mut labels = picked.labels();
        (0..count).for_each(|series| drop(labels.of(series).clone()));
        assert!(labels.known.len() <= KNOWN);
        let known: usize = labels.known.values().map(Labels::memory).sum();
        assert!(picked.memory() >= known, "{} {known}", picked.memory());
    }
}
