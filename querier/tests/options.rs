//! What a request may ask for beside its selector, as it is written on the wire.

use std::sync::Arc;

use athanor_chassis::{
    Clock, ComputePool, ErrorCode, LimitOverrides, Status, TenantId, TenantLimits, Timestamp,
};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ProfileSource, SampleLabel, ValueType};
use athanor_proto::querier::v1::{
    AnalyzeQueryRequest, DiffRequest, HeatmapQueryType, HeatmapRows, SelectHeatmapRequest,
    SelectMergeProfileRequest, SelectMergeStacktracesRequest, SelectSeriesRequest,
};
use athanor_proto::types::v1::{
    ExemplarType, GoPgo, LabelValuesRequest, Location, StackFrameFilter, StackTraceSelector,
};
use athanor_querier::{
    DataSources, DataTimeRange, DedupHints, Querier, QuerierConfig, QuerierDeps, QueryContext, QueryPlan,
};
use athanor_query::ProfileQuery;

const TYPE: &str = "process_cpu:cpu:nanoseconds::";

struct All(Vec<Arc<dyn ProfileSource>>);

#[async_trait::async_trait]
impl DataSources for All {
    async fn plan(&self, _: &TenantId, _: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        Ok(QueryPlan::from_sources(self.0.clone()))
    }
    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

/// An upload of a pod: 10 in `main;serve;parse`, 20 in `main;serve;db.Query` of an endpoint, 3 in `main;gc`.
fn source(pod: &str, id: u128) -> Arc<dyn ProfileSource> {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.time_nanos = 5_000_000;
    for (path, endpoint, value) in
        [("main;serve;parse", "", 10), ("main;serve;db.Query", "/x", 20), ("main;gc", "", 3)]
    {
        let stack = profile.dictionary.intern_named_stack(path.split(';'));
        let strings = &mut profile.dictionary.symbols.strings;
        let (key, text) = (strings.intern("endpoint"), strings.intern(endpoint));
        let label = SampleLabel { key, text, number: 0, unit: 0 };
        let set: Vec<SampleLabel> = (!endpoint.is_empty()).then_some(label).into_iter().collect();
        let set = profile.dictionary.label_sets.intern(&profile.dictionary.symbols.strings, &set);
        profile.samples.push(stack, set, &[value]);
    }
    let mut source = MemorySource::default();
    let labels = [("__name__", "process_cpu"), ("service_name", "shop"), ("pod", pod)];
    let labels = Labels::new(labels.map(|(name, value)| (name.to_owned(), value.to_owned())));
    source.add(&labels, &profile, id);
    Arc::new(source)
}

fn querier() -> (Querier, QueryContext) {
    let sources = All(vec![source("a1", 1), source("a2", 2), source("b1", 3)]);
    let (clock, _hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let overrides = LimitOverrides::new(TenantLimits::default());
    let deps = QuerierDeps { sources: Arc::new(sources), overrides, clock, compute: ComputePool::inline() };
    (Querier::new(QuerierConfig::default(), deps), QueryContext::for_tenant(TenantId::anonymous()))
}

fn stacks(selector: StackTraceSelector, ids: &[String]) -> SelectMergeStacktracesRequest {
    SelectMergeStacktracesRequest {
        profile_type_id: TYPE.to_owned(),
        label_selector: "{}".to_owned(),
        start: 1,
        end: 10,
        stack_trace_selector: Some(selector),
        profile_id_selector: ids.to_vec(),
        ..SelectMergeStacktracesRequest::default()
    }
}

fn filter(included: &[&str], expressions: &[&str], excluded: &[&str]) -> StackTraceSelector {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let frame_filter = StackFrameFilter {
        include_function_names: owned(included),
        include_function_name_regexes: owned(expressions),
        exclude_function_names: owned(excluded),
        exclude_function_name_regexes: Vec::new(),
    };
    StackTraceSelector { frame_filter: Some(frame_filter), ..StackTraceSelector::default() }
}

async fn graph(selector: StackTraceSelector, ids: &[String]) -> (i64, Vec<String>) {
    let (querier, reader) = querier();
    let answer = querier.select_merge_stacktraces(&reader, stacks(selector, ids)).await.expect("an answer");
    let graph = answer.flamegraph.expect("a graph");
    (graph.total, graph.names)
}

#[tokio::test]
async fn frames_are_asked_for_wherever_stacks_are() {
    let (querier, reader) = querier();
    let cases = [
        (filter(&["serve"], &[], &[]), 90),
        (filter(&["main"], &["[QG]uer"], &[]), 60),
        (filter(&[], &[], &["serve"]), 9),
        (filter(&["Query"], &[], &[]), 0),
        (filter(&[], &["^p.*e$"], &["gc"]), 30),
    ];
    for (selector, total) in cases {
        assert_eq!(graph(selector.clone(), &[]).await.0, total, "{selector:?}");
        let of = SelectMergeProfileRequest {
            profile_type_id: TYPE.to_owned(),
            label_selector: "{}".to_owned(),
            start: 1,
            end: 10,
            stack_trace_selector: Some(selector.clone()),
            ..SelectMergeProfileRequest::default()
        };
        let profile = querier.select_merge_profile(&reader, of).await.expect("a profile");
        assert_eq!(profile.sample.iter().map(|sample| sample.value[0]).sum::<i64>(), total);
        let of = SelectSeriesRequest {
            profile_type_id: TYPE.to_owned(),
            label_selector: "{}".to_owned(),
            start: 1,
            end: 11,
            step: 0.01,
            stack_trace_selector: Some(selector.clone()),
            ..SelectSeriesRequest::default()
        };
        let series = querier.select_series(&reader, of).await.expect("points").series;
        let points = series.iter().flat_map(|of| &of.points);
        assert_eq!(points.map(|point| point.value).sum::<f64>(), total as f64);
        let sides = DiffRequest {
            left: Some(stacks(selector, &[])),
            right: Some(stacks(filter(&[], &[], &[]), &[])),
            ..DiffRequest::default()
        };
        let diff = querier.diff(&reader, sides).await.expect("a difference").flamegraph.expect("a graph");
        assert_eq!((diff.left_ticks, diff.right_ticks), (total, 99));
    }
    let refused = querier.select_merge_stacktraces(&reader, stacks(filter(&[], &["a("], &[]), &[])).await;
    let refused = refused.expect_err("no expression");
    assert_eq!(refused.code, ErrorCode::Invalid);
    assert!(
        refused.message.starts_with("regular expression \"a(\" at character 2 of the frame filter"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_graph_may_be_of_the_last_calls_only() {
    let go_pgo = Some(GoPgo { keep_locations: 1, aggregate_callees: false });
    let call_site = vec![Location { name: "main".to_owned() }, Location { name: "serve".to_owned() }];
    let selector = StackTraceSelector { go_pgo, call_site, frame_filter: None };
    let expected = ["total", "db.Query", "parse"].map(str::to_owned).to_vec();
    assert_eq!(graph(selector, &[]).await, (90, expected));
}

#[tokio::test]
async fn an_upload_is_one_value_of_a_heatmap_and_found_by_its_id() {
    let (querier, reader) = querier();
    let request = SelectHeatmapRequest {
        profile_type_id: TYPE.to_owned(),
        label_selector: "{pod=\"a1\"}".to_owned(),
        start: 1,
        end: 11,
        step: 0.01,
        query_type: HeatmapQueryType::Individual as i32,
        exemplar_type: ExemplarType::Individual as i32,
        ..SelectHeatmapRequest::default()
    };
    let spread = async |rows: HeatmapRows| {
        let request = SelectHeatmapRequest { rows: rows as i32, ..request.clone() };
        let slot =
            querier.select_heatmap(&reader, request).await.expect("a heatmap").series[0].slots[0].clone();
        (slot.y_min.len(), slot.counts)
    };
    let mut linear = vec![0; 20];
    linear[0] = 1;
    assert_eq!(spread(HeatmapRows::Linear).await, (20, linear));
    // Of equal values there is one row.
    assert_eq!(spread(HeatmapRows::Quantile).await, (1, vec![1]));
    let series = querier.select_heatmap(&reader, request).await.expect("a heatmap").series;
    let [exemplar] = &series[0].slots[0].exemplars[..] else { panic!("{series:?}") };
    assert_eq!((exemplar.value, series[0].slots[0].counts.iter().sum::<i32>()), (33, 1));
    assert!(exemplar.labels.iter().all(|label| label.name != "endpoint"), "not all of it has that");
    assert!(exemplar.profile_id.ends_with("-0000-000000000000"), "{}", exemplar.profile_id);
    let all = StackTraceSelector::default;
    assert_eq!(graph(all(), std::slice::from_ref(&exemplar.profile_id)).await.0, 33);
    let unknown = "11111111-2222-4333-8444-555555555555".to_owned();
    assert_eq!(graph(all(), &[unknown]).await.0, 0);
}

#[tokio::test]
async fn exemplar_of_points_is_the_whole_profile_unless_labels_of_samples_are_asked_for() {
    let (querier, reader) = querier();
    let exemplars = async |selector: &str, group_by: &[&str]| {
        let request = SelectSeriesRequest {
            profile_type_id: TYPE.to_owned(),
            label_selector: selector.to_owned(),
            start: 1,
            end: 11,
            step: 0.01,
            group_by: group_by.iter().map(|name| (*name).to_owned()).collect(),
            exemplar_type: ExemplarType::Individual as i32,
            ..SelectSeriesRequest::default()
        };
        let series = querier.select_series(&reader, request).await.expect("points").series;
        let mut values = Vec::new();
        for exemplar in series.iter().flat_map(|of| &of.points).flat_map(|point| &point.exemplars) {
            let ids = std::slice::from_ref(&exemplar.profile_id);
            // Found again by its id, with nothing else said.
            assert_eq!(graph(StackTraceSelector::default(), ids).await.0, exemplar.value, "{exemplar:?}");
            let has_endpoint = exemplar.labels.iter().any(|label| label.name == "endpoint");
            values.push((exemplar.value, has_endpoint));
        }
        values.sort_unstable();
        values
    };
    assert_eq!(exemplars(r#"{pod="a1"}"#, &[]).await, [(33, false)]);
    assert_eq!(exemplars("{}", &["pod"]).await, [(33, false); 3]);
    assert_eq!(exemplars(r#"{pod="a1"}"#, &["endpoint"]).await, [(13, false), (20, false)]);
    assert_eq!(exemplars(r#"{endpoint="/x"}"#, &[]).await, [(20, true)]);
    assert_eq!(exemplars(r#"{endpoint=""}"#, &["pod"]).await, [(13, false); 3]);
}

#[tokio::test]
async fn values_are_listed_by_prefix_and_up_to_a_limit() {
    let (querier, reader) = querier();
    let asked = |prefix: &str, limit: i64| LabelValuesRequest {
        name: "pod".to_owned(),
        matchers: vec![format!("{{__profile_type__=\"{TYPE}\"}}")],
        start: 1,
        end: 10,
        prefix: prefix.to_owned(),
        limit,
    };
    let cases = [
        ("", 0, vec!["a1", "a2", "b1"], false),
        ("a", 0, vec!["a1", "a2"], false),
        ("", 2, vec!["a1", "a2"], true),
    ];
    for (prefix, limit, names, more) in cases {
        let answer = querier.label_values(&reader, asked(prefix, limit)).await.expect("values");
        assert_eq!(
            (answer.names, answer.more),
            (names.iter().map(|name| (*name).to_owned()).collect(), more)
        );
        // What a label splits off counts for itself.
        assert_eq!(answer.counts, vec![2; names.len()]);
    }
    let all = querier.label_values(&reader, asked("", i64::MAX)).await.expect("values");
    assert_eq!((all.names.len(), all.more), (3, false));
}

#[tokio::test]
async fn what_a_query_would_read_is_told_before() {
    let (querier, reader) = querier();
    let request = |query: &str| AnalyzeQueryRequest { start: 1, end: 10, query: query.to_owned() };
    let told =
        querier.analyze_query(&reader, request(&format!("{TYPE}{{pod=~\"a.\"}}"))).await.expect("sizes");
    let [scope] = &told.query_scopes[..] else { panic!("{told:?}") };
    assert_eq!(
        (scope.component_type.as_str(), scope.component_count, scope.block_count),
        ("Short term", 3, 0)
    );
    assert_eq!((scope.series_count, scope.profile_count, scope.sample_count), (4, 4, 6));
    let impact = told.query_impact.expect("an impact");
    assert_eq!(impact.total_queried_series, 4);
    assert_eq!(
        impact.total_bytes_in_time_range,
        scope.index_bytes + scope.profile_bytes + scope.symbol_bytes
    );
    let refused = querier.analyze_query(&reader, request("{")).await.expect_err("no selector");
    assert_eq!(refused.code, ErrorCode::Invalid);
}
