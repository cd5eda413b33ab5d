//! The numbers that clients have compiled in, held by bytes that were written by hand.

use std::fmt::Debug;

use athanor_proto::{push, querier, types};
use bytes::Bytes;
use prost::Message;

fn hex(text: &str) -> Vec<u8> {
    let bytes = text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16));
    bytes.collect::<Result<_, _>>().expect("two hexadecimal digits")
}

#[track_caller]
fn is_written<M: Message + Default + PartialEq + Debug>(message: &M, expected: &str) {
    assert_eq!(message.encode_to_vec(), hex(expected));
    assert_eq!(&M::decode(hex(expected).as_slice()).expect("decodes"), message);
}

fn push_request() -> push::v1::PushRequest {
    let labels = vec![types::v1::LabelPair { name: "a".into(), value: "b".into() }];
    let samples = vec![push::v1::RawSample { raw_profile: Bytes::from_static(&[1, 2]), id: "x".into() }];
    let annotations = vec![types::v1::ProfileAnnotation { key: "k".into(), value: "v".into() }];
    push::v1::PushRequest { series: vec![push::v1::RawProfileSeries { labels, samples, annotations }] }
}

const PUSH: &str = "0a 19  0a 06 0a 01 61 12 01 62  12 07 0a 02 01 02 12 01 78  1a 06 0a 01 6b 12 01 76";

#[test]
fn a_push() {
    is_written(&push_request(), PUSH);
}

#[test]
fn a_query_for_stacks() {
    let selector = types::v1::StackTraceSelector {
        call_site: vec![types::v1::Location { name: "m".into() }],
        go_pgo: Some(types::v1::GoPgo { keep_locations: 3, aggregate_callees: true }),
        frame_filter: Some(types::v1::StackFrameFilter {
            include_function_names: vec!["f".into()],
            ..Default::default()
        }),
    };
    let request = querier::v1::SelectMergeStacktracesRequest {
        profile_type_id: "p".into(),
        label_selector: "{}".into(),
        start: 1,
        end: 2,
        max_nodes: Some(0),
        format: querier::v1::ProfileFormat::Pprof.into(),
        stack_trace_selector: Some(selector),
        profile_id_selector: vec!["i".into()],
        r#async: Some(querier::v1::AsyncQueryRequest {
            request_id: "r".into(),
            r#type: querier::v1::AsyncQueryType::Force.into(),
        }),
        trace_id_selector: vec!["t".into()],
        span_selector: vec!["s".into()],
        max_other_ppm: Some(5),
        format_options: Some(querier::v1::ProfileFormatOptions {
            functions: Some(querier::v1::FunctionsOptions { limit: 6 }),
        }),
        sandwich_function: Some("w".into()),
    };
    is_written(
        &request,
        "0a 01 70  12 02 7b 7d  18 01  20 02  28 00  30 04
         3a 10  0a 03 0a 01 6d  12 04 08 03 10 01  1a 03 0a 01 66
         42 01 69  4a 05 0a 01 72 10 01  52 01 74  5a 01 73  c8 3e 05
         d2 3e 06  ca 3e 03  c8 3e 06  da 3e 01 77",
    );
}

#[test]
fn a_query_for_series() {
    let request = querier::v1::SelectSeriesRequest {
        profile_type_id: "p".into(),
        label_selector: "{}".into(),
        start: 1,
        end: 2,
        group_by: vec!["g".into()],
        step: 15.0,
        aggregation: Some(types::v1::TimeSeriesAggregationType::Average.into()),
        stack_trace_selector: None,
        limit: Some(5),
        exemplar_type: types::v1::ExemplarType::Individual.into(),
    };
    is_written(
        &request,
        "0a 01 70  12 02 7b 7d  18 01  20 02  2a 01 67  31 00 00 00 00 00 00 2e 40  38 01  48 05  50 02",
    );
}

#[test]
fn numbers_that_were_skipped() {
    let profile_type = types::v1::ProfileType {
        id: "i".into(),
        name: "n".into(),
        sample_type: "s".into(),
        sample_unit: "t".into(),
        period_type: "p".into(),
        period_unit: "q".into(),
    };
    is_written(&profile_type, "0a 01 69  12 01 6e  22 01 73  2a 01 74  32 01 70  3a 01 71");
    is_written(
        &querier::v1::SeriesResponse { labels_set: vec![types::v1::Labels::default()], ..Default::default() },
        "12 00",
    );
    let analyze = querier::v1::AnalyzeQueryRequest { start: 1, end: 2, query: "q".into() };
    is_written(&analyze, "10 01  18 02  22 01 71");
    let diff = querier::v1::FlameGraphDiff {
        names: vec!["total".into()],
        levels: vec![querier::v1::Level { values: vec![0, 7, 7, 0, 300, 300, 0] }],
        total: 307,
        max_self: 300,
        left_ticks: 7,
        right_ticks: 300,
    };
    is_written(
        &diff,
        "0a 05 74 6f 74 61 6c  12 0b 0a 09 00 07 07 00 ac 02 ac 02 00  18 b3 02  20 ac 02  28 07  30 ac 02",
    );
}

#[test]
fn enums_have_these_names() {
    use querier::v1::{AsyncQueryStatus, AsyncQueryType, HeatmapQueryType, ProfileFormat};
    use types::v1::{ExemplarType, TimeSeriesAggregationType};
    #[track_caller]
    fn named<E: TryFrom<i32>>(name: impl Fn(E) -> &'static str, prefix: &str, names: &[&str]) {
        for (number, expected) in (0..).zip(names) {
            let value = E::try_from(number).ok().expect("a number in use");
            assert_eq!(name(value), format!("{prefix}_{expected}"));
        }
        assert!(E::try_from(names.len() as i32).is_err());
    }
    let formats = ["UNSPECIFIED", "FLAMEGRAPH", "TREE", "DOT", "PPROF"];
    named(|it: ProfileFormat| it.as_str_name(), "PROFILE_FORMAT", &formats);
    let statuses = ["UNKNOWN", "IN_PROGRESS", "SUCCESS", "FAILURE"];
    named(|it: AsyncQueryStatus| it.as_str_name(), "ASYNC_QUERY_STATUS", &statuses);
    named(|it: AsyncQueryType| it.as_str_name(), "ASYNC_QUERY_TYPE", &["DISABLED", "FORCE"]);
    let heatmaps = ["UNSPECIFIED", "INDIVIDUAL", "SPAN"];
    named(|it: HeatmapQueryType| it.as_str_name(), "HEATMAP_QUERY_TYPE", &heatmaps);
    let exemplars = ["UNSPECIFIED", "NONE", "INDIVIDUAL", "SPAN"];
    named(|it: ExemplarType| it.as_str_name(), "EXEMPLAR_TYPE", &exemplars);
    let sums = ["SUM", "AVERAGE"];
    named(|it: TimeSeriesAggregationType| it.as_str_name(), "TIME_SERIES_AGGREGATION_TYPE", &sums);
}

#[test]
fn what_is_newer_is_tolerated() {
    let newer = hex(&format!("{PUSH} fa 01 01 00"));
    assert_eq!(push::v1::PushRequest::decode(newer.as_slice()).expect("decodes"), push_request());
    let request = querier::v1::SelectMergeStacktracesRequest::decode(&[0x30, 9][..]).expect("decodes");
    assert_eq!(request.format, 9);
}

#[test]
fn unknown_names_in_json_are_errors_of_the_own_api_only() {
    type GraphRequest = athanor_proto::athanor::v1::GraphRequest;
    let graph = |text: &str| serde_json::from_str::<GraphRequest>(&format!(r#"{{"groupBy":{text}}}"#));
    assert_eq!(graph("\"GRAPH_GROUP_BY_LINE\"").expect("a known name").group_by, 1);
    assert_eq!(graph("2").expect("a known number").group_by, 2);
    for unknown in ["\"LINE\"", "\"\"", "99", "-1"] {
        assert!(graph(unknown).is_err(), "{unknown}");
    }
    assert!(serde_json::from_str::<GraphRequest>(r#"{"newer":1}"#).is_ok(), "a field");
    let series = r#"{"aggregation":"TIME_SERIES_AGGREGATION_TYPE_NEWER"}"#;
    assert!(serde_json::from_str::<querier::v1::SelectSeriesRequest>(series).is_ok());
}

#[test]
fn text_that_is_none_is_refused() {
    assert!(types::v1::LabelPair::decode(&[0x0a, 1, 0xff][..]).is_err());
}

#[test]
fn an_upload_is_not_copied() {
    let request = Bytes::from(hex(PUSH));
    let decoded = push::v1::PushRequest::decode(request.clone()).expect("decodes");
    let profile = decoded.series[0].samples[0].raw_profile.as_ptr();
    assert!(request.as_ptr_range().contains(&profile));
}
