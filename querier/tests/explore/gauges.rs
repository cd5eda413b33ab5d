//! Gauges are averages over profiles in every response. All other types are sums.

use std::sync::Arc;

use athanor_chassis::{Clock, ComputePool, LimitOverrides, Status, TenantId, TenantLimits, Timestamp};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ProfileSource, ValueType};
use athanor_proto::athanor::v1::*;
use athanor_proto::querier::v1::SelectSeriesRequest;
use athanor_proto::types::v1::TimeSeriesAggregationType;
use athanor_querier::{
    DataSources, DataTimeRange, DedupHints, Querier, QuerierConfig, QuerierDeps, QueryContext, QueryPlan,
};
use athanor_query::ProfileQuery;

use crate::ask;

const GAUGE: &str = "goroutine:goroutine:count:goroutine:count";
const AMOUNT: &str = "goroutine:waits:count:goroutine:count";

/// Profiles of two pods: three of the first, two of the second.
struct Pods;

fn sources() -> [MemorySource; 2] {
    let mut sources = [MemorySource::default(), MemorySource::default()];
    let profiles: [(&str, i64, [i64; 2]); 5] =
        [("a", 1, [10, 1]), ("a", 2, [11, 1]), ("a", 13, [13, 0]), ("b", 3, [100, 5]), ("b", 4, [101, 0])];
    for (number, (pod, second, values)) in profiles.into_iter().enumerate() {
        let mut profile = Profile::default();
        profile.header.types = ["goroutine", "waits"].map(|kind| ValueType::new(kind, "count")).to_vec();
        profile.header.period_type = Some(ValueType::new("goroutine", "count"));
        profile.header.time_nanos = second * 1_000_000_000;
        for (function, value) in ["serve", "wait"].iter().zip(values) {
            let stack = profile.dictionary.intern_named_stack(["main", *function].into_iter());
            profile.samples.push(stack, 0, &[value, value]);
        }
        let labels = [("__name__", "goroutine"), ("pod", pod)];
        let labels = Labels::new(labels.map(|(name, value)| (name.to_owned(), value.to_owned())));
        sources[number % 2].add(&labels, &profile, (number as u128 + 1) << 64);
    }
    sources
}

#[async_trait::async_trait]
impl DataSources for Pods {
    async fn plan(&self, _: &TenantId, _: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        let all = sources().into_iter().map(|source| Arc::new(source) as Arc<dyn ProfileSource>);
        Ok(QueryPlan::from_sources(all))
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

fn querier() -> Querier {
    let (clock, _hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let overrides = LimitOverrides::new(TenantLimits::default());
    let deps = QuerierDeps { sources: Arc::new(Pods), overrides, clock, compute: ComputePool::inline() };
    Querier::new(QuerierConfig::default(), deps)
}

fn reader() -> QueryContext {
    QueryContext::parse("a").expect("a tenant")
}

fn query_of(profile_type: &str, from: i64, to: i64) -> Option<Query> {
    Some(Query {
        profile_type: profile_type.to_owned(),
        selector: "{}".to_owned(),
        start: from * 1_000,
        end: to * 1_000,
        ..Query::default()
    })
}

fn function_rows(response: &FunctionsResponse) -> Vec<(&str, i64, i64)> {
    response.rows.iter().map(|row| (row.name.as_str(), row.self_, row.total)).collect()
}

#[test]
fn functions_of_gauge_are_averages_of_each_group_and_of_all() {
    let request = FunctionsRequest {
        query: query_of(GAUGE, 1, 20),
        group_by: vec!["pod".to_owned()],
        ..FunctionsRequest::default()
    };
    let response = ask(querier().functions(&reader(), request.clone())).expect("a table");
    // 242 goroutines in five profiles: 235 of them serve, 7 wait.
    assert_eq!((response.total, response.averaged_profiles), (48, 5));
    assert_eq!(function_rows(&response), [("serve", 47, 47), ("wait", 1, 1), ("main", 0, 48)]);
    let groups: Vec<(i64, u64)> =
        response.groups.iter().map(|group| (group.total, group.averaged_profiles)).collect();
    assert_eq!(groups, [(12, 3), (103, 2)]);
    let of_serve: Vec<i64> = response.rows[0].groups.iter().map(|group| group.self_).collect();
    assert_eq!(of_serve, [11, 101], "34 / 3 and 201 / 2, half away from zero");
    assert_eq!(response.resolution, "raw");
    let sums = FunctionsRequest { query: query_of(AMOUNT, 1, 20), ..request };
    let response = ask(querier().functions(&reader(), sums)).expect("a table");
    assert_eq!((response.total, response.averaged_profiles), (242, 0));
    assert!(response.groups.iter().all(|group| group.averaged_profiles == 0));
    assert_eq!(function_rows(&response), [("serve", 235, 235), ("wait", 7, 7), ("main", 0, 242)]);
}

#[test]
fn trees_and_lines_of_gauge_are_averages() {
    let querier = querier();
    let query = || query_of(GAUGE, 1, 20);
    let sandwich =
        SandwichRequest { query: query(), function: Some("serve".to_owned()), ..Default::default() };
    let sandwich = ask(querier.sandwich(&reader(), sandwich)).expect("a sandwich");
    assert_eq!((sandwich.self_, sandwich.total, sandwich.averaged_profiles), (47, 47, 5));
    let callers = sandwich.callers.expect("callers");
    assert_eq!(callers.nodes.iter().map(|node| node.total).collect::<Vec<_>>(), [47, 47, 47]);
    let subtree = SubtreeRequest { query: query(), path: vec!["main".to_owned()], ..Default::default() };
    let subtree = ask(querier.subtree(&reader(), subtree)).expect("a subtree");
    assert_eq!((subtree.total, subtree.other, subtree.averaged_profiles), (48, 0, 5));
    let lines = LinesRequest { query: query(), function: Some("wait".to_owned()), page: None };
    let lines = ask(querier.lines(&reader(), lines)).expect("lines");
    assert_eq!((lines.self_, lines.rows[0].self_, lines.averaged_profiles), (1, 1, 5));
    assert_eq!([sandwich.resolution, subtree.resolution, lines.resolution], ["raw"; 3]);
}

#[test]
fn changes_of_gauge_compare_averages_of_unequal_numbers_of_profiles() {
    let request = ChangesRequest {
        left: query_of(GAUGE, 1, 2),
        right: query_of(GAUGE, 3, 4),
        measure: Measure::Total as i32,
        ..ChangesRequest::default()
    };
    let response = ask(querier().changes(&reader(), request)).expect("changes");
    let [left, right] = [response.left, response.right].map(|side| side.expect("a side"));
    assert_eq!((left.total, left.averaged_profiles), (12, 2), "23 / 2");
    assert_eq!((right.total, right.averaged_profiles), (103, 2));
    let of_serve = response.rows.iter().find(|row| row.function == "serve").expect("a row");
    let weights = [of_serve.left, of_serve.right].map(|weights| weights.expect("weights").total);
    assert_eq!(weights, [11, 101]);
}

#[test]
fn average_of_gauge_equals_that_of_a_chart() {
    let querier = querier();
    let response = ask(querier.functions(
        &reader(),
        FunctionsRequest { query: query_of(GAUGE, 1, 20), ..FunctionsRequest::default() },
    ));
    let chart = SelectSeriesRequest {
        profile_type_id: GAUGE.to_owned(),
        label_selector: "{}".to_owned(),
        start: 20_000,
        end: 20_000,
        step: 20.0,
        aggregation: Some(TimeSeriesAggregationType::Average as i32),
        ..SelectSeriesRequest::default()
    };
    let chart = ask(querier.select_series(&reader(), chart)).expect("a chart");
    let average = chart.series[0].points[0].value;
    assert_eq!(response.expect("a table").total, average.round() as i64);
}

#[test]
fn profiles_of_gauge_are_not_divided() {
    let request = ProfilesRequest { query: query_of(GAUGE, 1, 20), ..ProfilesRequest::default() };
    let response = ask(querier().profiles(&reader(), request)).expect("a list");
    let mut totals: Vec<i64> = response.rows.iter().map(|row| row.total).collect();
    totals.sort_unstable();
    assert_eq!((totals, response.resolution.as_str()), (vec![11, 12, 13, 101, 105], "raw"));
}
