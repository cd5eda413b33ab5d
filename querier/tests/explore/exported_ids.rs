//! Exports of single spans, traces and profiles, compared with the call `Functions` for the same ids.

use std::sync::Arc;

use athanor_chassis::{
    Clock, ComputePool, ErrorCode, LimitOverrides, Status, TenantId, TenantLimits, Timestamp,
};
use athanor_profile::formats::pprof::{self, DecodeLimits};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ProfileSource, SampleLabel, ValueType};
use athanor_proto::athanor::v1::{FunctionsRequest, ProfilesRequest, Query};
use athanor_querier::{
    DataSources, DataTimeRange, DedupHints, Querier, QuerierConfig, QuerierDeps, QueryContext, QueryPlan,
};
use athanor_query::ProfileQuery;

use crate::{TYPE, ask, query};

/// Time of all profiles.
const PROFILE_SECOND: i64 = 5;
/// Sample of each function: its name, its span, its trace and its value.
const TRACED_SAMPLES: [(&str, &str, &str, i64); 4] = [
    ("pay", "00000000000000a1", "000000000000000000000000000000b1", 10),
    ("search", "00000000000000a2", "000000000000000000000000000000b1", 200),
    ("login", "00000000000000a3", "000000000000000000000000000000b2", 3_000),
    ("collect", "", "", 40_000),
];
/// Two profiles with spans and traces.
struct TracedProfiles;

#[async_trait::async_trait]
impl DataSources for TracedProfiles {
    async fn plan(&self, _: &TenantId, _: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        let mut source = MemorySource::default();
        for factor in 1..=2u8 {
            let labels = Labels::new([("__name__".to_owned(), "process_cpu".to_owned())]);
            source.add(&labels, &traced_profile(factor.into()), u128::from(factor) << 64);
        }
        Ok(QueryPlan::from_sources([Arc::new(source) as Arc<dyn ProfileSource>]))
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

fn traced_profile(factor: i64) -> Profile {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
    profile.header.time_nanos = PROFILE_SECOND * 1_000_000_000;
    for (function, span, trace, value) in TRACED_SAMPLES {
        let stack = profile.dictionary.intern_named_stack(["main", function].into_iter());
        let strings = &mut profile.dictionary.symbols.strings;
        let mut label = |key: &str, text: &str| SampleLabel {
            key: strings.intern(key),
            text: strings.intern(text),
            number: 0,
            unit: 0,
        };
        let set: Vec<SampleLabel> = match span {
            "" => Vec::new(),
            _ => vec![label("span_id", span), label("trace_id", trace)],
        };
        let set = profile.dictionary.label_sets.intern(&profile.dictionary.symbols.strings, &set);
        profile.samples.push(stack, set, &[value * factor]);
    }
    profile
}

fn querier() -> Querier {
    let (clock, _hand) = Clock::manual(Timestamp::from_seconds(PROFILE_SECOND + 5));
    let overrides = LimitOverrides::new(TenantLimits::default());
    let sources = Arc::new(TracedProfiles);
    Querier::new(
        QuerierConfig::default(),
        QuerierDeps { sources, overrides, clock, compute: ComputePool::inline() },
    )
}

fn reader() -> QueryContext {
    QueryContext::for_tenant(TenantId::anonymous())
}

/// Exports a format with the parameters of ids.
fn export(format: &str, ids: &[(&str, &str)]) -> Result<Vec<u8>, Status> {
    let query = format!("{TYPE}{{}}");
    let mut url = form_urlencoded::Serializer::new(String::new());
    url.append_pair("query", &query).append_pair("from", "now-1m").append_pair("format", format);
    url.extend_pairs(ids);
    ask(querier().export(&reader(), &url.finish())).map(|file| file.body)
}

/// Returns the total of `Functions` for the same ids.
fn functions_total(ids: &[(&str, &str)]) -> Result<i64, Status> {
    let all = |parameter: &str| {
        let values = ids.iter().filter(|(name, _)| *name == parameter);
        values.map(|(_, value)| (*value).to_owned()).collect::<Vec<String>>()
    };
    let query = Query {
        span_selector: all("spanId"),
        trace_id_selector: all("traceId"),
        profile_id_selector: all("profileId"),
        ..query(1, 30).expect("a query")
    };
    let request = FunctionsRequest { query: Some(query), ..FunctionsRequest::default() };
    ask(querier().functions(&reader(), request)).map(|table| table.total)
}

/// Returns the ids of the two profiles. The second has twice the values of the first.
fn profile_ids() -> [String; 2] {
    let request = ProfilesRequest { query: query(1, 30), ..ProfilesRequest::default() };
    let rows = ask(querier().profiles(&reader(), request)).unwrap().rows;
    [43_210, 2 * 43_210].map(|total| rows.iter().find(|row| row.total == total).unwrap().id.clone())
}

fn folded_total(ids: &[(&str, &str)]) -> i64 {
    let text = String::from_utf8(export("folded", ids).unwrap()).unwrap();
    text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<i64>().unwrap()).sum()
}

fn pprof_total(ids: &[(&str, &str)]) -> i64 {
    let (profile, _) = pprof::decode(&export("pprof", ids).unwrap(), &DecodeLimits::default()).unwrap();
    profile.total(0)
}

#[test]
fn export_with_ids_equals_the_function_table() {
    let [pay, search, login, _] = TRACED_SAMPLES;
    let [first, second] = &profile_ids();
    let cases = [
        (vec![], 3 * 43_210),
        (vec![("spanId", pay.1)], 3 * 10),
        (vec![("spanId", pay.1), ("spanId", login.1)], 3 * 3_010),
        (vec![("traceId", search.2)], 3 * 210),
        (vec![("profileId", first.as_str())], 43_210),
        (vec![("profileId", first.as_str()), ("profileId", second.as_str())], 3 * 43_210),
        (vec![("traceId", search.2), ("profileId", second.as_str()), ("hide", "=main")], 2 * 210),
        (vec![("profileId", "00000000-0000-0009-0000-000000000000")], 0),
    ];
    for (ids, total) in cases {
        let totals = [folded_total(&ids), pprof_total(&ids), functions_total(&ids).unwrap()];
        assert_eq!(totals, [total; 3], "{ids:?}");
    }
}

#[test]
fn ids_select_in_all_formats() {
    let has = |file: &[u8], name: &str| file.windows(name.len()).any(|bytes| bytes == name.as_bytes());
    for format in ["pprof", "folded", "speedscope", "dot", "otlp", "svg"] {
        let all = export(format, &[]).unwrap();
        // pprof is compressed.
        assert!(format == "pprof" || has(&all, "login") && has(&all, "search"), "{format}");
        let traced = export(format, &[("traceId", TRACED_SAMPLES[1].2)]).unwrap();
        assert_ne!(traced, all, "{format}");
        assert!(format == "pprof" || has(&traced, "search") && !has(&traced, "login"), "{format}");
    }
}

#[test]
fn invalid_ids_are_rejected_like_those_of_a_query() {
    for ids in [
        vec![("spanId", "7")],
        vec![("spanId", TRACED_SAMPLES[0].1), ("spanId", "+0000000000000a1")],
        vec![("traceId", "")],
        vec![("profileId", "x")],
        vec![("spanId", TRACED_SAMPLES[0].1), ("traceId", TRACED_SAMPLES[0].2)],
    ] {
        let exported = export("svg", &ids).unwrap_err();
        let expected = functions_total(&ids).unwrap_err();
        assert_eq!(exported.code, ErrorCode::Invalid, "{ids:?}");
        assert_eq!(exported.message, expected.message, "{ids:?}");
    }
    assert!(export("folded", &[("spanId", "7")]).unwrap_err().message.ends_with("not \"7\""));
}
