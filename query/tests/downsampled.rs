//! Queries on sources whose rows are buckets of a downsampled tier.

use std::sync::Arc;

use athanor_profile::data_model::span_context::SpanFilter;
use athanor_profile::store_interface::series::BucketCounts;
use athanor_profile::store_interface::source::{
    MemorySource, SourceNameVisitor, SourceReadSize, SourceRowVisitor, SourceSpanRowVisitor,
};
use athanor_profile::{Labels, Profile, ProfileRow, ProfileSeries, ProfileSource, SourceError, ValueType};
use athanor_query::{
    DedupSource, ExcludedIds, HeatmapQuery, LabelValuesQuery, PartialResult, ProfileCount, ProfileListQuery,
    ProfileQuery, QueryKind, RequiredResolution, SourceId, StackFilter, TimeGrid, TimeSeriesPoint,
    TimeSeriesQuery, run, run_all,
};

/// Buckets in memory, with the counts of each row.
#[derive(Default)]
struct Buckets(MemorySource, Vec<BucketCounts>);

impl ProfileSource for Buckets {
    fn series(&self) -> Result<Arc<[ProfileSeries]>, SourceError> {
        self.0.series()
    }
    fn profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        let rows = self.0.profiles()?;
        let counted = rows.iter().zip(&self.1);
        Ok(counted.map(|(row, counts)| ProfileRow { id: counts.to_row_id(), ..*row }).collect())
    }
    fn brief_profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        let rows = self.0.profiles()?;
        Ok(rows.iter().map(|row| ProfileRow { id: 0, ..*row }).collect())
    }
    fn is_downsampled(&self) -> bool {
        true
    }
    fn totals(&self, picked: &[u32]) -> Result<Vec<i64>, SourceError> {
        self.0.totals(picked)
    }
    fn visit_rows(&self, picked: &[u32], each: &mut SourceRowVisitor<'_>) -> Result<(), SourceError> {
        self.0.visit_rows(picked, each)
    }
    fn visit_span_rows(
        &self,
        picked: &[u32],
        each: &mut SourceSpanRowVisitor<'_>,
    ) -> Result<(), SourceError> {
        self.0.visit_span_rows(picked, each)
    }
    fn visit_names(&self, read: &mut SourceNameVisitor<'_>) -> Result<(), SourceError> {
        self.0.visit_names(read)
    }
    fn read_size(&self, picked: &[u32], whole: bool) -> Result<SourceReadSize, SourceError> {
        self.0.read_size(picked, whole)
    }
}

/// Adds a row with one value.
fn add(source: &mut MemorySource, pod: &str, time: i64, value: i64, id: u128) {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.time_nanos = time;
    let stack = profile.dictionary.intern_named_stack(["main"].into_iter());
    profile.samples.push(stack, 0, &[value]);
    source.add(&Labels::new([("pod".to_owned(), pod.to_owned())]), &profile, id);
}

fn buckets(rows: &[(&str, i64, i64, u64, u64)]) -> Buckets {
    let mut buckets = Buckets::default();
    for &(pod, time, value, records, profiles) in rows {
        add(&mut buckets.0, pod, time, value, 0);
        buckets.1.push(BucketCounts { records, profiles });
    }
    buckets
}

fn ask(what: QueryKind) -> ProfileQuery {
    ProfileQuery { what, ..ProfileQuery::default() }
}

fn means() -> QueryKind {
    let steps = TimeGrid { start: 100, step: 100, count: 1 };
    QueryKind::Points(TimeSeriesQuery { steps, mean: true, ..TimeSeriesQuery::default() })
}

fn point(partial: PartialResult) -> TimeSeriesPoint {
    let PartialResult::Points(series) = partial else { panic!("no points") };
    series.into_values().flat_map(|points| points.into_values()).next().expect("a point")
}

#[test]
fn mean_over_raw_rows_and_buckets_divides_by_all_profiles() {
    let mut raw = MemorySource::default();
    add(&mut raw, "a", 50, 6, 7 << 64);
    add(&mut raw, "a", 51, 6, 8 << 64);
    let tier = buckets(&[("a", 60, 20, 5, 5), ("b", 60, 10, 3, 3), ("a", 60, 8, 2, 2)]);
    let sources = [&raw as &dyn ProfileSource, &tier];
    let merged = point(run_all(&ask(means()), sources).unwrap());
    assert_eq!((merged.sum, merged.profile_count(), merged.has_exact_count()), (50, 12, true));
    assert!((merged.mean() - 50.0 / 12.0).abs() < 1e-9);
    let PartialResult::Counts(counts) = run_all(&ask(QueryKind::Counts(Vec::new())), sources).unwrap() else {
        panic!("no counts");
    };
    let totals: Vec<u64> = counts.values().map(ProfileCount::total).collect();
    assert_eq!(totals, [merged.profile_count()]);
}

#[test]
fn split_profiles_count_once_and_the_count_is_marked_inexact() {
    let rows = [("a", 60, 20, 5, 5), ("b", 60, 10, 5, 0)];
    let both = run(&ask(means()), &buckets(&rows)).unwrap();
    assert!(!both.has_exact_counts());
    assert_eq!(point(both).profile_count(), 5);
    let counts = |rows| match run(&ask(QueryKind::Counts(vec!["pod".to_owned()])), &buckets(rows)).unwrap() {
        PartialResult::Counts(counts) => {
            counts.values().map(|count| (count.total(), count.is_exact())).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(counts(&rows), [(5, true), (5, false)]);
    // The rows of one series are records of different profiles.
    let rest = run(&ask(means()), &buckets(&rows[1..])).unwrap();
    assert_eq!(point(rest).profile_count(), 5);
    assert!(run(&ask(means()), &buckets(&rows[..1])).unwrap().has_exact_counts());
}

#[test]
fn counts_add_up_records() {
    let tier = buckets(&[("a", 60, 20, 5, 4), ("a", 90, 1, 2, 2), ("b", 60, 10, 3, 0)]);
    let values =
        QueryKind::LabelValues(LabelValuesQuery { name: "pod".to_owned(), ..LabelValuesQuery::default() });
    let PartialResult::Values(values) = run(&ask(values), &tier).unwrap() else { panic!("no values") };
    assert_eq!(values.into_counts(), [("a".to_owned(), 7), ("b".to_owned(), 3)].into());
    let names = QueryKind::LabelNameCounts { prefix: "pod".to_owned() };
    let PartialResult::Values(names) = run(&ask(names), &tier).unwrap() else { panic!("no names") };
    assert_eq!(names.into_counts(), [("pod".to_owned(), 10)].into());
    let merge = ask(QueryKind::Profile(StackFilter::default(), None));
    let PartialResult::Profile(merged) = run(&merge, &tier).unwrap() else { panic!("no profile") };
    assert_eq!((merged.profiles, merged.totals.iter().sum::<i64>()), (10, 31));
}

#[test]
fn equal_counts_are_no_duplicates() {
    let tier = buckets(&[("a", 60, 20, 1, 1), ("b", 60, 10, 1, 1)]);
    let tree = ask(QueryKind::Tree(StackFilter::default()));
    let total = |partial: PartialResult| match partial {
        PartialResult::Tree(tree) => tree.total(),
        other => panic!("{other:?}"),
    };
    assert_eq!(total(run(&tree, &tier).unwrap()), 30);
    // Counts are no ids, which could be excluded or reported.
    let id = BucketCounts { records: 1, profiles: 1 }.to_row_id();
    let without = ExcludedIds::new([id].into());
    let source = DedupSource { source: &tier, tells: Some(SourceId::Block(1)), without: &without };
    let partial = source.query_source(&tree.with_excluded_ids(&without)).unwrap();
    let (partial, ids) = partial.split_ids();
    assert_eq!(total(partial), 30);
    assert!(ids.by_source().is_empty());
}

#[test]
fn periods_of_buckets_are_found_through_the_wire() {
    let tier = buckets(&[("a", 60, 20, 1, 1)]);
    let mut query = ask(QueryKind::Profiles(ProfileListQuery::default()));
    let periods = |query: &ProfileQuery| match run(query, &tier).unwrap() {
        PartialResult::Profiles(list) => list.periods,
        _ => panic!("not a list of profiles"),
    };
    assert_eq!(periods(&query), None, "only single profiles are of use");
    let single = query.to_canonical(0, 100).unwrap().key;
    query.selection.resolution = Some(RequiredResolution { single_profiles: false, steps: None });
    let received = ProfileQuery::unpack(&query.pack().unwrap()).unwrap();
    assert_eq!((periods(&query), periods(&received)), (Some((0, 0)), Some((0, 0))));
    assert_ne!(query.to_canonical(0, 100).unwrap().key, single);
}

#[test]
fn buckets_are_never_single_profiles() {
    let tier = buckets(&[("a", 60, 20, 1, 1)]);
    let steps = TimeGrid { start: 100, step: 100, count: 1 };
    let whats = [
        QueryKind::Heat(HeatmapQuery { steps, ..HeatmapQuery::default() }),
        QueryKind::Profiles(ProfileListQuery { keep: 9, ..ProfileListQuery::default() }),
        QueryKind::Ids,
        QueryKind::Points(TimeSeriesQuery { steps, exemplars: true, ..TimeSeriesQuery::default() }),
    ];
    assert!(whats.into_iter().all(|what| run(&ask(what), &tier).unwrap().is_empty()));
    let mut of_span = ask(QueryKind::Tree(StackFilter::default()));
    of_span.selection.requests = Some(SpanFilter::spans([1]));
    assert!(run(&of_span, &tier).unwrap().is_empty());
}
