//! Answering from one source.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use athanor_profile::series::{METRIC_NAME, SERVICE_NAME};
use athanor_profile::tree::Tree;
use athanor_profile::{Dictionary, Labels, ProfileRow, Series, Source, SourceError};

use crate::ask::{Ask, AskError, CallSite, Points, Selection, What};
use crate::partial::{Merged, Partial};

mod groups;
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

/// The profiles that are meant.
struct Picked {
    series: Arc<[Series]>,
    profiles: Arc<[ProfileRow]>,
    /// Full labels of the series that are meant.
    labels: Vec<Option<Labels>>,
    /// Places of profiles, ascending.
    places: Vec<u32>,
}

impl Picked {
    fn of(selection: &Selection, source: &dyn Source) -> Result<Picked, AskError> {
        let (series, profiles) = (source.series()?, source.profiles()?);
        let labels: Vec<Option<Labels>> = series
            .iter()
            .map(|one| {
                let wanted = &selection.profile_type;
                let of_type = wanted.as_ref().is_none_or(|wanted| one.profile_type() == *wanted);
                of_type.then(|| series_labels(one)).filter(|labels| selection.selector.matches(labels))
            })
            .collect();
        if profiles.iter().any(|profile| profile.series as usize >= series.len()) {
            return Err(AskError::Damaged("a profile is of a series that is not there"));
        }
        let is_meant = |profile: &ProfileRow| {
            labels[profile.series as usize].is_some() && selection.time.contains(profile.time)
        };
        let numbered = (0..).zip(profiles.iter());
        let places = numbered.filter(|(_, profile)| is_meant(profile)).map(|(place, _)| place).collect();
        Ok(Picked { series, profiles, labels, places })
    }

    fn rows(&self) -> impl Iterator<Item = &ProfileRow> {
        self.places.iter().map(|&place| &self.profiles[place as usize])
    }

    /// The series that have a profile among those meant, and their labels.
    fn seen(&self) -> impl Iterator<Item = (&Series, &Labels)> {
        let mut seen = vec![false; self.series.len()];
        self.rows().for_each(|row| seen[row.series as usize] = true);
        let all = self.series.iter().zip(&self.labels).zip(seen);
        all.filter_map(|((series, labels), seen)| labels.as_ref().filter(|_| seen).map(|of| (series, of)))
    }
}

/// The answer of one source.
pub fn run(ask: &Ask, source: &dyn Source) -> Result<Partial, AskError> {
    let picked = Picked::of(&ask.selection, source)?;
    if picked.places.is_empty() {
        return Ok(Partial::none(&ask.what));
    }
    let answer = match &ask.what {
        What::ProfileTypes => {
            Partial::ProfileTypes(picked.seen().map(|(series, _)| series.profile_type()).collect())
        }
        What::LabelNames => {
            let mut names = BTreeSet::new();
            for (_, labels) in picked.seen() {
                for (name, _) in labels.iter().filter(|(name, _)| !name.is_empty()) {
                    if !names.contains(name) {
                        names.insert(name.to_owned());
                    }
                }
            }
            Partial::Texts(names)
        }
        What::LabelValues(name) => {
            let values = picked.seen().filter_map(|(_, labels)| labels.get(name));
            Partial::Texts(values.map(str::to_owned).collect())
        }
        What::Series(names) => {
            let all = picked.seen();
            Partial::Series(all.map(|(_, labels)| only(labels, names)).collect())
        }
        What::Tree(call_site) => Partial::Tree(tree(&picked, call_site, source)?),
        What::Profile(call_site) => Partial::Profile(Box::new(profile(&picked, call_site, source)?)),
        What::Points(points) => Partial::Points(self::points(&picked, points, source)?),
        What::Trees(asked) => Partial::Trees(groups::trees(&picked, asked, source)?),
        What::Profiles(asked) => Partial::Profiles(listed::profiles(&picked, asked, source)?),
    };
    answer.within(&ask.bounds)?;
    Ok(answer)
}

/// The answer of all sources that one process has for others, such as the heads of the shards that it leads. Merging
/// answers of several such processes gives what asking all of their sources would have given.
pub fn answer<'s>(ask: &Ask, sources: impl IntoIterator<Item = &'s dyn Source>) -> Result<Partial, AskError> {
    sources.into_iter().try_fold(Partial::none(&ask.what), |sum, source| {
        let next = run(ask, source)?;
        sum.merge(next, &ask.bounds)
    })
}

/// The labels of these names; all if none is given.
fn only(labels: &Labels, names: &[String]) -> Labels {
    if names.is_empty() {
        return labels.clone();
    }
    let found = names.iter().filter_map(|name| labels.get(name).map(|value| (name, value)));
    Labels::new(found.map(|(name, value)| (name.clone(), value.to_owned())))
}

const OTHER_STACKS: AskError = AskError::Damaged("names are of other stacks than totals");

fn tree(picked: &Picked, call_site: &CallSite, source: &dyn Source) -> Result<Tree, AskError> {
    let totals = source.totals(&picked.places)?;
    Ok(source.tree(&totals)?.below(call_site))
}

fn profile(picked: &Picked, call_site: &CallSite, source: &dyn Source) -> Result<Merged, AskError> {
    let totals = source.totals(&picked.places)?;
    let mut merged = Err(OTHER_STACKS);
    source.names(&mut |dictionary, stacks| {
        if stacks.len() < totals.len() {
            return;
        }
        let mut of_source = Merged { profiles: picked.places.len() as u64, ..Merged::default() };
        for (&stack, &total) in stacks.iter().zip(&totals) {
            if total != 0 && begins_with(dictionary, stack, call_site) {
                of_source.add(dictionary, stack, total);
            }
        }
        merged = Ok(of_source);
    })?;
    merged
}

/// Whether the functions of a stack begin, at its root, with these.
fn begins_with(dictionary: &Dictionary, stack: u32, call_site: &[String]) -> bool {
    if call_site.is_empty() {
        return true;
    }
    let symbols = &dictionary.symbols;
    let path: Vec<u32> = dictionary.stacks.locations(stack).collect();
    let mut wanted = call_site.iter();
    for &location in path.iter().rev() {
        let lines = symbols.lines(location);
        if lines.is_empty() {
            match wanted.next() {
                Some(name) if *name != symbols.address_name(location) => return false,
                Some(_) => continue,
                None => return true,
            }
        }
        for line in lines.iter().rev() {
            match wanted.next() {
                Some(name) if name != symbols.function_name(line.function) => return false,
                Some(_) => {}
                None => return true,
            }
        }
    }
    wanted.next().is_none()
}

/// Which stacks of a source pass a call site; all if none is given.
fn passing(source: &dyn Source, call_site: &CallSite) -> Result<Option<Vec<bool>>, SourceError> {
    if call_site.is_empty() {
        return Ok(None);
    }
    let mut passing = Vec::new();
    source.names(&mut |dictionary, stacks| {
        passing = stacks.iter().map(|&stack| begins_with(dictionary, stack, call_site)).collect();
    })?;
    Ok(Some(passing))
}

type PointSeries = BTreeMap<Labels, BTreeMap<u64, crate::partial::Cell>>;

/// The sum of each profile's rows that pass a call site. A source that keeps the sums need not be read.
fn sums(
    picked: &Picked,
    call_site: &CallSite,
    source: &dyn Source,
) -> Result<HashMap<u32, i64>, SourceError> {
    if call_site.is_empty()
        && let Some(totals) = source.profile_totals()
    {
        return Ok(picked.places.iter().map(|&place| (place, totals[place as usize])).collect());
    }
    let passing = passing(source, call_site)?;
    let is_passing = |stack: u32| {
        passing.as_ref().is_none_or(|passing| passing.get(stack as usize).copied().unwrap_or(false))
    };
    let mut sums: HashMap<u32, i64> = HashMap::new();
    source.rows(&picked.places, &mut |place, stacks, values| {
        let rows = stacks.iter().zip(values).filter(|(stack, _)| is_passing(**stack));
        let sum = sums.entry(place).or_default();
        *sum = rows.fold(*sum, |sum, (_, &value)| sum.wrapping_add(value));
    })?;
    Ok(sums)
}

fn points(picked: &Picked, points: &Points, source: &dyn Source) -> Result<PointSeries, AskError> {
    let sums = sums(picked, &points.call_site, source)?;
    let mut series = PointSeries::new();
    for &place in &picked.places {
        let row = &picked.profiles[place as usize];
        let Some(point) = points.place(row.time) else { continue };
        let Some(labels) = &picked.labels[row.series as usize] else { continue };
        let sum = sums.get(&place).copied().unwrap_or_default();
        // Where nothing passed the call site there is no point; but a mean is one of all profiles.
        if sum == 0 && !points.call_site.is_empty() && !points.mean {
            continue;
        }
        let group =
            if points.group_by.is_empty() { Labels::default() } else { only(labels, &points.group_by) };
        let cell = series.entry(group).or_default().entry(point).or_default();
        cell.sum = cell.sum.wrapping_add(sum);
        if points.mean {
            cell.moments.insert((row.time, row.duration, row.period));
        }
    }
    Ok(series)
}
