//! Execution of a query on one source.
//!
//! - `matched_profiles`: the selected profiles of the source.
//! - `labels`, `groups`: labels of series, and groups of series by labels.
//! - `stack_sums`: trees and merged profiles.
//! - `sum_bound`: whether sums fit in 63 bits, before they are added up.
//! - `points`, `exemplars`, `heatmap`, `profile_list`: values of profiles, over time or in lists.
//! - `samples`: samples of single profiles.
//! - `profile_counts`: numbers of profiles, for averages.
//! - `query_cost`: size of the data that a query would read.
//! - `dedup_source`: sources that may share profiles with others.

use std::collections::{BTreeMap, BTreeSet};

use athanor_profile::{ProfileSeries, ProfileSource};

use self::heatmap::collect_heatmap_values;
use self::labels::{project_labels, series_label, series_label_names, series_labels};
use self::matched_profiles::MatchedProfiles;
use self::profile_counts::count_profiles;
use self::query_cost::estimate_cost;
use crate::request::profile_query::{LabelValuesQuery, ProfileQuery, ProfileQueryError, QueryKind};
use crate::result::partial::{LabelValueCounts, PartialResult};

pub(crate) mod dedup_source;
mod exemplars;
mod groups;
mod heatmap;
pub(crate) mod labels;
pub(crate) mod matched_profiles;
mod points;
mod profile_counts;
mod profile_list;
mod query_cost;
mod samples;
mod stack_sums;
mod sum_bound;

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
            for name in picked.matched_series().flat_map(series_label_names) {
                if !name.is_empty() && !names.contains(name) {
                    names.insert(name.to_owned());
                }
            }
            PartialResult::Texts(names)
        }
        QueryKind::LabelNameCounts { prefix } => PartialResult::Values(count_label_names(picked, prefix)),
        QueryKind::LabelValues(asked) => PartialResult::Values(values(picked, asked)),
        QueryKind::Series(names) => PartialResult::Series(
            picked.matched_series().map(|series| project_labels(&series_labels(series), names)).collect(),
        ),
        QueryKind::Tree(stacks) => {
            PartialResult::Tree(stack_sums::tree(picked, &ask.selection, stacks, source)?)
        }
        QueryKind::Profile(stacks, pgo) => PartialResult::Profile(Box::new(stack_sums::profile(
            picked,
            &ask.selection,
            stacks,
            *pgo,
            source,
        )?)),
        QueryKind::OriginTree(stacks) => {
            let merged = stack_sums::origin_tree(picked, &ask.selection, stacks, source)?;
            PartialResult::OriginTree(Box::new(merged))
        }
        QueryKind::Points(points) => {
            PartialResult::Points(points::points(picked, &ask.selection, points, source)?)
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
        QueryKind::Samples(query) => {
            PartialResult::Samples(Box::new(samples::list_samples(picked, &ask.selection, query, source)?))
        }
        QueryKind::Counts(group_by) => PartialResult::Counts(count_profiles(picked, group_by)),
        QueryKind::Ids => PartialResult::Ids(picked.rows().map(|row| row.id).collect()),
    };
    answer.check_limits(&ask.bounds)?;
    answer.check_sums()?;
    Ok(answer)
}

/// Counts the profiles of each value of a label.
fn values(picked: &MatchedProfiles, asked: &LabelValuesQuery) -> LabelValueCounts {
    let mut counts = BTreeMap::new();
    for (series, count) in count_by_series(picked) {
        let value = series_label(series, &asked.name);
        if let Some(value) = value.filter(|value| value.starts_with(&asked.prefix)) {
            add_count(&mut counts, &value, count);
        }
    }
    LabelValueCounts::new(asked, counts)
}

/// Counts the profiles that have each label.
fn count_label_names(picked: &MatchedProfiles, prefix: &str) -> LabelValueCounts {
    let mut counts = BTreeMap::new();
    for (series, count) in count_by_series(picked) {
        let names = series_label_names(series);
        for name in names.filter(|name| !name.is_empty() && name.starts_with(prefix)) {
            add_count(&mut counts, name, count);
        }
    }
    LabelValueCounts::new(&LabelValuesQuery::default(), counts)
}

/// Returns the series that have selected profiles, with the number of these.
fn count_by_series(picked: &MatchedProfiles) -> impl Iterator<Item = (&ProfileSeries, u64)> {
    let mut counts = vec![0u64; picked.series.len()];
    for row in picked.rows() {
        let count = &mut counts[row.series as usize];
        *count = count.saturating_add(picked.record_count(row));
    }
    picked.series.iter().zip(counts).filter(|(_, count)| *count > 0)
}

fn add_count(counts: &mut BTreeMap<String, u64>, text: &str, count: u64) {
    match counts.get_mut(text) {
        Some(sum) => *sum = sum.saturating_add(count),
        None => drop(counts.insert(text.to_owned(), count)),
    }
}

#[cfg(test)]
mod tests {
    use athanor_profile::store_interface::source::MemorySource;
    use athanor_profile::{Labels, Profile, ValueType};

    use super::*;
    use crate::request::profile_query::ProfileSelection;
    use crate::request::stack_filter::StackFilter;

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
        let names = QueryKind::LabelNameCounts { prefix: "po".to_owned() };
        assert_eq!(total(names, "{}"), 1);
        // Each copy is found by its own labels.
        assert_eq!((total(tree(), r#"{pod="a"}"#), total(tree(), r#"{pod="b"}"#)), (5, 5));
    }
}
