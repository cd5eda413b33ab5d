//! All that can be asked, and the answers as texts that are equal where the answers are.

use std::collections::BTreeMap;
use std::fmt::Debug;

use athanor_chassis::Status;
use athanor_proto::athanor::v1::{
    ChangesRequest, FunctionsRequest, LinesRequest, ProfilesRequest, Query, SandwichRequest, SubtreeRequest,
};
use athanor_proto::google::v1::Profile;
use athanor_proto::querier::v1::{
    AnalyzeQueryRequest, DiffRequest, HeatmapQueryType, ProfileFormat, ProfileTypesRequest,
    SelectHeatmapRequest, SelectMergeProfileRequest, SelectMergeSpanProfileRequest,
    SelectMergeStacktracesRequest, SelectSeriesRequest, SeriesRequest,
};
use athanor_proto::types::v1::{
    ExemplarType, GetProfileStatsRequest, LabelNamesRequest, LabelValuesRequest, Location, StackFrameFilter,
    StackTraceSelector, TimeSeriesAggregationType,
};
use athanor_querier::QueryContext;

use crate::query_consistency::asker::{Answers, Asker};
use crate::query_consistency::profiles::{SPANS, TYPE};

fn shown<R: Debug>(answer: Result<R, Status>) -> String {
    format!("{:?}", answer.unwrap())
}

/// Stacks by names, whatever the numbers in the message.
fn by_names(profile: &Profile) -> BTreeMap<Vec<&str>, Vec<i64>> {
    let text = |index: i64| profile.string_table[index as usize].as_str();
    let functions: BTreeMap<u64, &str> =
        profile.function.iter().map(|function| (function.id, text(function.name))).collect();
    let locations: BTreeMap<u64, Vec<&str>> = profile
        .location
        .iter()
        .map(|location| {
            (location.id, location.line.iter().map(|line| functions[&line.function_id]).collect())
        })
        .collect();
    let mut stacks: BTreeMap<Vec<&str>, Vec<i64>> = BTreeMap::new();
    for sample in &profile.sample {
        let stack = sample.location_id.iter().flat_map(|location| locations[location].clone()).collect();
        let sums = stacks.entry(stack).or_insert_with(|| vec![0; sample.value.len()]);
        sums.iter_mut().zip(&sample.value).for_each(|(sum, value)| *sum += value);
    }
    stacks
}

impl Asker {
    /// Asks all; none of the answers lacks anything.
    pub async fn ask(&self) -> Answers {
        let reader = self.reader();
        let mut answers = self.lists(&reader).await;
        answers.extend(self.stacks(&reader).await);
        answers.extend(self.points(&reader).await);
        answers.extend(self.explored(&reader).await);
        assert_eq!(reader.warnings(), Vec::<String>::new(), "the answers are whole");
        answers
    }

    async fn lists(&self, reader: &QueryContext) -> Answers {
        let Self { querier, start, end, .. } = self.clone();
        let matchers = vec![r#"{service_name=~"service[0-2]"}"#.to_owned()];
        let types = ProfileTypesRequest { start, end };
        let names = LabelNamesRequest {
            matchers: matchers.clone(),
            start,
            end,
            counts: true,
            ..LabelNamesRequest::default()
        };
        let values = LabelValuesRequest {
            name: "pod".to_owned(),
            matchers: matchers.clone(),
            start,
            end,
            ..LabelValuesRequest::default()
        };
        let label_names = ["service_name", "pod", "endpoint"].map(str::to_owned).to_vec();
        let series = SeriesRequest { matchers, label_names, start, end };
        let analyzed = AnalyzeQueryRequest { start, end, query: format!("{TYPE}{{}}") };
        let analyzed = querier.analyze_query(reader, analyzed).await.unwrap();
        let profiles: u64 = analyzed.query_scopes.iter().map(|scope| scope.profile_count).sum();
        let series_asked = analyzed.query_impact.map(|impact| impact.total_queried_series);
        Answers::from([
            ("ProfileTypes", shown(querier.profile_types(reader, types).await)),
            ("LabelNames", shown(querier.label_names(reader, names).await)),
            ("LabelValues", shown(querier.label_values(reader, values).await)),
            ("Series", shown(querier.series(reader, series).await)),
            ("GetProfileStats", shown(querier.get_profile_stats(reader, GetProfileStatsRequest {}).await)),
            // Where they lie, and how many bytes that takes, is what differs.
            ("AnalyzeQuery", format!("{profiles} {series_asked:?}")),
        ])
    }

    async fn stacks(&self, reader: &QueryContext) -> Answers {
        let querier = &self.querier;
        let merge = |change: fn(&mut SelectMergeStacktracesRequest)| {
            let mut request = self.merge();
            change(&mut request);
            querier.select_merge_stacktraces(reader, request)
        };
        let spans = SelectMergeSpanProfileRequest {
            profile_type_id: TYPE.to_owned(),
            label_selector: "{}".to_owned(),
            span_selector: (1..=SPANS / 2).map(|span| format!("{span:016x}")).collect(),
            start: self.start,
            end: self.end,
            ..SelectMergeSpanProfileRequest::default()
        };
        let profile = SelectMergeProfileRequest {
            profile_type_id: TYPE.to_owned(),
            label_selector: "{}".to_owned(),
            start: self.start,
            end: self.end,
            ..SelectMergeProfileRequest::default()
        };
        let profile = querier.select_merge_profile(reader, profile).await.unwrap();
        let (mut left, mut right) = (self.merge(), self.merge());
        left.label_selector = r#"{pod="pod1"}"#.to_owned();
        right.label_selector = r#"{pod!="pod1"}"#.to_owned();
        let diff = DiffRequest { left: Some(left), right: Some(right), ..DiffRequest::default() };
        let cut = |request: &mut SelectMergeStacktracesRequest| request.max_nodes = Some(5);
        let called = |request: &mut SelectMergeStacktracesRequest| {
            let frames = StackFrameFilter {
                exclude_function_name_regexes: vec!["^own.*[13579]$".to_owned()],
                ..StackFrameFilter::default()
            };
            let call_site = ["main", "serve"].map(|name| Location { name: name.to_owned() }).to_vec();
            let filter =
                StackTraceSelector { call_site, frame_filter: Some(frames), ..StackTraceSelector::default() };
            request.stack_trace_selector = Some(filter);
        };
        Answers::from([
            ("SelectMergeStacktraces", shown(merge(|_| {}).await)),
            ("SelectMergeStacktraces, cut", shown(merge(cut).await)),
            (
                "SelectMergeStacktraces, tree",
                shown(merge(|asked| asked.format = ProfileFormat::Tree as i32).await),
            ),
            (
                "SelectMergeStacktraces, DOT",
                shown(merge(|asked| asked.format = ProfileFormat::Dot as i32).await),
            ),
            ("SelectMergeStacktraces, traces", {
                shown(merge(|asked| asked.trace_id_selector = vec![format!("{:032x}", 3)]).await)
            }),
            ("SelectMergeStacktraces, call site", shown(merge(called).await)),
            ("SelectMergeSpanProfile", shown(querier.select_merge_span_profile(reader, spans).await)),
            ("SelectMergeProfile", format!("{:?}", by_names(&profile))),
            ("Diff", shown(querier.diff(reader, diff).await)),
        ])
    }

    async fn points(&self, reader: &QueryContext) -> Answers {
        let querier = &self.querier;
        let points = |aggregation: TimeSeriesAggregationType, exemplars: ExemplarType| SelectSeriesRequest {
            profile_type_id: TYPE.to_owned(),
            label_selector: "{}".to_owned(),
            start: self.start,
            end: self.end,
            group_by: vec!["service_name".to_owned()],
            step: 15.0,
            aggregation: Some(aggregation as i32),
            exemplar_type: exemplars as i32,
            ..SelectSeriesRequest::default()
        };
        let heat = |of: HeatmapQueryType| SelectHeatmapRequest {
            profile_type_id: TYPE.to_owned(),
            label_selector: "{}".to_owned(),
            start: self.start,
            end: self.end,
            step: 60.0,
            group_by: vec!["pod".to_owned()],
            query_type: of as i32,
            exemplar_type: match of {
                HeatmapQueryType::Span => ExemplarType::Span as i32,
                _ => ExemplarType::Individual as i32,
            },
            ..SelectHeatmapRequest::default()
        };
        let (sum, mean) = (TimeSeriesAggregationType::Sum, TimeSeriesAggregationType::Average);
        let (none, individual) = (ExemplarType::None, ExemplarType::Individual);
        let series = |asked: SelectSeriesRequest| querier.select_series(reader, asked);
        let heatmap = |asked: SelectHeatmapRequest| querier.select_heatmap(reader, asked);
        Answers::from([
            ("SelectSeries", shown(series(points(sum, none)).await)),
            ("SelectSeries, mean", shown(series(points(mean, none)).await)),
            ("SelectSeries, exemplars", shown(series(points(sum, individual)).await)),
            ("SelectHeatmap", shown(heatmap(heat(HeatmapQueryType::Individual)).await)),
            ("SelectHeatmap, spans", shown(heatmap(heat(HeatmapQueryType::Span)).await)),
        ])
    }

    async fn explored(&self, reader: &QueryContext) -> Answers {
        let querier = &self.querier;
        let query = |selector: &str| {
            Some(Query {
                profile_type: TYPE.to_owned(),
                selector: selector.to_owned(),
                start: self.start,
                end: self.end,
                ..Query::default()
            })
        };
        let all = || query("{}");
        let group_by = vec!["pod".to_owned()];
        let functions = FunctionsRequest { query: all(), group_by, ..FunctionsRequest::default() };
        let function = Some("serve".to_owned());
        let sandwich =
            SandwichRequest { query: all(), function: function.clone(), ..SandwichRequest::default() };
        let lines = LinesRequest { query: all(), function, ..LinesRequest::default() };
        let path = vec!["main".to_owned(), "serve".to_owned()];
        let subtree = SubtreeRequest { query: all(), path, ..SubtreeRequest::default() };
        let (left, right) = (query(r#"{pod="pod1"}"#), query(r#"{pod="pod2"}"#));
        let changes = ChangesRequest { left, right, ..ChangesRequest::default() };
        let profiles = ProfilesRequest { query: all(), ..ProfilesRequest::default() };
        Answers::from([
            ("Functions", shown(querier.functions(reader, functions).await)),
            ("Sandwich", shown(querier.sandwich(reader, sandwich).await)),
            ("Lines", shown(querier.lines(reader, lines).await)),
            ("Subtree", shown(querier.subtree(reader, subtree).await)),
            ("Changes", shown(querier.changes(reader, changes).await)),
            ("Profiles", shown(querier.profiles(reader, profiles).await)),
        ])
    }
}
