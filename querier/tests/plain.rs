//! What is asked by a URL alone: names of applications, values of labels, graphs of differences, and files.

use std::sync::Arc;

use athanor_chassis::{
    Clock, ComputePool, ErrorCode, LimitOverrides, Status, TenantId, TenantLimits, Timestamp,
};
use athanor_profile::formats::pprof::{self, DecodeLimits as PprofLimits};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ProfileSource, ValueType};
use athanor_proto::querier::v1::{ProfileFormat, SelectMergeProfileRequest, SelectMergeStacktracesRequest};
use athanor_querier::{
    DataSources, DataTimeRange, DedupHints, Querier, QuerierConfig, QuerierDeps, QueryContext, QueryPlan,
};
use athanor_query::ProfileQuery;
use prost::Message;
use serde_json::Value;

const NOW: i64 = 1_772_445_600;
const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";

/// One profile of each service, a minute old.
struct Services(Vec<(&'static str, &'static str, ValueType, i64)>);

#[async_trait::async_trait]
impl DataSources for Services {
    async fn plan(&self, _: &TenantId, _: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        let mut source = MemorySource::default();
        for (id, (service, metric, value_type, value)) in (1u128..).zip(&self.0) {
            let mut profile = Profile::default();
            profile.header.types = vec![value_type.clone()];
            profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
            profile.header.period = if *service == "shopping" { 20_000_000 } else { 10_000_000 };
            profile.header.time_nanos = (NOW - 60) * 1_000_000_000;
            for (path, value) in [("main;work", *value), ("main;idle", 1)] {
                let stack = profile.dictionary.intern_named_stack(path.split(';'));
                profile.samples.push(stack, 0, &[value]);
            }
            let labels = [("__name__", *metric), ("service_name", *service)];
            let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
            source.add(&Labels::new(labels), &profile, id << 64);
        }
        Ok(QueryPlan::from_sources([Arc::new(source) as Arc<dyn ProfileSource>]))
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

fn querier() -> Querier {
    let cpu = || ValueType::new("cpu", "nanoseconds");
    let services = Services(vec![
        // Text of `shop.cpu`, and pprof of it.
        ("shop", "process_cpu", cpu(), 10),
        ("shop.cpu", "process_cpu", cpu(), 200),
        ("shopping", "process_cpu", cpu(), 3_000),
        ("shop", "memory", ValueType::new("alloc_space", "bytes"), 40_000),
    ]);
    let (clock, _hand) = Clock::manual(Timestamp::from_seconds(NOW));
    let overrides = LimitOverrides::new(TenantLimits::default());
    let deps = QuerierDeps { sources: Arc::new(services), overrides, clock, compute: ComputePool::inline() };
    Querier::new(QuerierConfig::default(), deps)
}

fn reader() -> QueryContext {
    QueryContext::for_tenant(TenantId::anonymous())
}

fn url(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

async fn render(query: &str) -> Result<Value, Status> {
    let rendered = querier().render(&reader(), &url(&[("query", query), ("from", "now-1h")])).await?;
    Ok(serde_json::from_slice(&rendered.body).expect("JSON"))
}

#[tokio::test]
async fn a_name_of_an_application_selects_what_was_sent_under_it() {
    let ticks = async |query: &str| render(query).await.unwrap()["flamebearer"]["numTicks"].clone();
    assert_eq!(ticks("shop.cpu{}").await, 212);
    assert_eq!(ticks("shop.cpu").await, 212);
    assert_eq!(ticks(r#"shop.cpu{service_name="shop"}"#).await, 11);
    assert_eq!(ticks("shop.alloc_space{}").await, 40_001);
    assert_eq!(ticks("shop.wall{}").await, 0);
    let units = render("shop.alloc_space{}").await.unwrap()["metadata"]["units"].clone();
    assert_eq!(units, "bytes");
    assert_eq!(render("shop.unheard{}").await.unwrap_err().code, ErrorCode::Invalid);
    assert_eq!(render("shop{}").await.unwrap_err().code, ErrorCode::Invalid);
}

#[tokio::test]
async fn render_accepts_metric_matchers_inside_the_braces() {
    let ticks = async |query: &str| render(query).await.map(|page| page["flamebearer"]["numTicks"].clone());
    for (selector, expected) in [
        (format!(r#"{{__name__="{TYPE}", service_name="shop"}}"#), 11),
        (format!(r#"{TYPE}{{__name__="process_cpu", service_name="shop"}}"#), 11),
        (format!(r#"{TYPE}{{service_name="shop", __name__=~"process.*"}}"#), 11),
        (format!(r#"{TYPE}{{__name__="{TYPE}", service_name="shop"}}"#), 11),
        (format!(r#"process_cpu{{__name__="{TYPE}", service_name="shop"}}"#), 11),
        (format!(r#"{TYPE}{{__name__="memory"}}"#), 0),
        (format!(r#"{TYPE}{{__name__!="process_cpu"}}"#), 0),
    ] {
        assert_eq!(ticks(&selector).await.unwrap(), expected, "{selector}");
    }
    assert_eq!(ticks(r#"{__name__="process_cpu"}"#).await.unwrap_err().code, ErrorCode::Invalid);
}

#[tokio::test]
async fn values_of_labels_are_a_list() {
    let list = async |pairs: &[(&str, &str)]| {
        let answer = querier().render_label_values(&reader(), &url(pairs)).await.unwrap();
        String::from_utf8(answer.body).unwrap()
    };
    assert_eq!(list(&[("label", "service_name")]).await, r#"["shop","shop.cpu","shopping"]"#);
    let of_query = [("label", "service_name"), ("query", "shop.alloc_space{}")];
    assert_eq!(list(&of_query).await, r#"["shop"]"#);
    let types = list(&[("label", "__name__")]).await;
    assert_eq!(types, format!(r#"["memory:alloc_space:bytes:cpu:nanoseconds","{TYPE}"]"#));
    let of_query = [("label", "__name__"), ("query", "shop.cpu{}")];
    assert_eq!(list(&of_query).await, format!("[\"{TYPE}\"]"));
    assert_eq!(list(&[("label", "service_name"), ("until", "now-30m")]).await, "[]");
    // The hour before.
    let (before, after) = ((NOW - 61).to_string(), (NOW + 3_000).to_string());
    for (until, expected) in
        [("now+50m", "[\"shop\"]"), (&after, "[\"shop\"]"), (&before, "[]"), ("now-2h", "[]")]
    {
        let of_memory = [("label", "service_name"), ("query", "shop.alloc_space"), ("until", until)];
        assert_eq!(list(&of_memory).await, expected, "{until}");
    }
    assert_eq!(
        querier().render_label_values(&reader(), "label=").await.unwrap_err().code,
        ErrorCode::Invalid
    );
}

#[tokio::test]
async fn a_difference_can_be_a_graph() {
    let parameters = [
        ("leftQuery", r#"shop.cpu{service_name="shop"}"#),
        ("rightQuery", r#"shop.cpu{service_name="shop.cpu"}"#),
        ("leftFrom", "now-1h"),
        ("rightFrom", "now-1h"),
        ("format", "dot"),
    ];
    let graph = querier().render_diff(&reader(), &url(&parameters)).await.unwrap();
    let text = String::from_utf8(graph.body).unwrap();
    assert!(text.starts_with("digraph") && text.contains("work\\n10ns -> 200ns"), "{text}");
}

#[tokio::test]
async fn files_hold_all_that_is_selected() {
    let export = async |format: &str| {
        let query = format!(r#"{TYPE}{{service_name="shop"}}"#);
        let query = url(&[("query", &query), ("from", "now-1h"), ("format", format)]);
        querier().export(&reader(), &query).await
    };
    let (profile, _) = pprof::decode(&export("pprof").await.unwrap().body, &PprofLimits::default()).unwrap();
    assert_eq!((profile.total(0), profile.header.types.len()), (11, 1));
    assert_eq!(profile.header.duration_nanos, 3_600_000_000_000);
    let text = |format| async move { String::from_utf8(export(format).await.unwrap().body).unwrap() };
    assert_eq!(text("folded").await, "main;idle 1\nmain;work 10\n");
    let document: Value = serde_json::from_str(&text("speedscope").await).unwrap();
    let one = &document["profiles"][0];
    assert_eq!((one["endValue"].as_i64(), one["unit"].as_str()), (Some(11), Some("nanoseconds")));
    assert_eq!(document["name"], "shop");
    assert!(text("dot").await.contains("N2 -> N1 [label=\" 10ns\" weight=91 penwidth=5]"));
    let otlp = export("otlp").await.unwrap();
    assert_eq!(otlp.content_type, "application/x-protobuf");
    assert!(otlp.body.windows(4).any(|bytes| bytes == b"shop"));
    let graph = export("svg").await.unwrap();
    assert_eq!(graph.content_type, "image/svg+xml");
    let graph = String::from_utf8(graph.body).unwrap();
    assert!(graph.contains(&format!("<title>shop · {TYPE}</title>")), "{graph}");
    assert!(graph.contains("<title>work\n10ns, 90.91 %</title>"), "{graph}");
    assert_eq!(export("png").await.unwrap_err().code, ErrorCode::Invalid);
}

/// As much of OpenTelemetry's profiles as says what lies between two samples.
#[derive(Clone, PartialEq, Message)]
struct ProfilesData {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<ResourceProfiles>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceProfiles {
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<ScopeProfiles>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeProfiles {
    #[prost(message, repeated, tag = "2")]
    profiles: Vec<OneProfile>,
}

#[derive(Clone, PartialEq, Message)]
struct OneProfile {
    #[prost(int64, tag = "6")]
    period: i64,
}

#[tokio::test]
async fn a_file_states_no_period_but_that_of_all_its_profiles() {
    let export = async |selector: &str, format: &str| {
        let query = url(&[("query", selector), ("from", "now-1h"), ("format", format)]);
        querier().export(&reader(), &query).await.unwrap().body
    };
    let of_one = format!(r#"{TYPE}{{service_name=~"shop|shop.cpu"}}"#);
    for (selector, period) in [(of_one.as_str(), 10_000_000), (&format!("{TYPE}{{}}"), 0), ("shop.cpu{}", 0)]
    {
        let (profile, _) = pprof::decode(&export(selector, "pprof").await, &PprofLimits::default()).unwrap();
        assert_eq!(profile.header.period, period, "{selector}");
        let data = ProfilesData::decode(export(selector, "otlp").await.as_slice()).unwrap();
        let profiles = data.resources.iter().flat_map(|of| &of.scopes).flat_map(|of| &of.profiles);
        assert_eq!(profiles.map(|one| one.period).collect::<Vec<_>>(), [period], "{selector}");
    }
}

/// What `go tool pprof -top` prints of a profile; none where there is no Go.
fn go_top(name: &str, profile: &[u8]) -> Option<String> {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, profile).expect("writable");
    let top =
        std::process::Command::new("go").args(["tool", "pprof", "-top", "-unit=ns"]).arg(&path).output();
    let Ok(top) = top else {
        println!("skip: no go tool pprof to read it");
        return None;
    };
    assert!(top.status.success(), "{}", String::from_utf8_lossy(&top.stderr));
    Some(String::from_utf8_lossy(&top.stdout).into_owned())
}

#[tokio::test]
async fn pprof_without_samples_states_its_types_period_and_time() {
    let end = NOW * 1_000;
    let request = SelectMergeProfileRequest {
        profile_type_id: TYPE.to_owned(),
        label_selector: r#"{service_name="nobody"}"#.to_owned(),
        start: end - 60_000,
        end,
        ..SelectMergeProfileRequest::default()
    };
    let profile = querier().select_merge_profile(&reader(), request.clone()).await.unwrap();
    let text = |place: i64| profile.string_table[place as usize].as_str();
    let [value] = &profile.sample_type[..] else { panic!("{profile:?}") };
    let period = profile.period_type.unwrap();
    assert_eq!((text(value.r#type), text(value.unit)), ("cpu", "nanoseconds"));
    assert_eq!((text(period.r#type), text(period.unit)), ("cpu", "nanoseconds"));
    assert_eq!((profile.period, profile.time_nanos), (1_000_000_000, end * 1_000_000));
    assert!(profile.sample.is_empty() && profile.location.is_empty() && profile.mapping.is_empty());
    if let Some(top) = go_top("empty.pprof", &profile.encode_to_vec()) {
        assert!(top.contains("Type: cpu"), "{top}");
    }
    let request = SelectMergeStacktracesRequest {
        profile_type_id: request.profile_type_id,
        label_selector: request.label_selector,
        start: request.start,
        end: request.end,
        format: ProfileFormat::Pprof as i32,
        ..SelectMergeStacktracesRequest::default()
    };
    let answer = querier().select_merge_stacktraces(&reader(), request).await.unwrap();
    assert_eq!(answer.pprof.unwrap().profile, Some(profile));
}

#[tokio::test]
async fn exports_apply_transforms_in_the_order_of_parameters() {
    let export = async |format: &str, transforms: &[(&str, &str)]| {
        let pairs = [("query", "shop.cpu{}"), ("from", "now-1h"), ("format", format)];
        querier().export(&reader(), &url(&[&pairs[..], transforms].concat())).await
    };
    let folded = async |transforms: &[(&str, &str)]| {
        let body = export("folded", transforms).await.unwrap().body;
        let mut lines: Vec<String> = String::from_utf8(body).unwrap().lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines.join(",")
    };
    assert_eq!(folded(&[]).await, "main;idle 2,main;work 210");
    assert_eq!(folded(&[("show_from", "=work")]).await, "work 210");
    assert_eq!(folded(&[("hide", "^work$"), ("focus", "work")]).await, "");
    assert_eq!(folded(&[("focus", "work"), ("hide", "^work$")]).await, "main 210");
    assert_eq!(folded(&[("collapse", "below:m"), ("collapse", "recursion")]).await, "main 212");
    let exported = export("pprof", &[("ignore", "=idle")]).await.unwrap();
    let (profile, _) = pprof::decode(&exported.body, &PprofLimits::default()).unwrap();
    assert_eq!(profile.total(0), 210);
    let message = async |transforms: &[(&str, &str)]| export("dot", transforms).await.unwrap_err().message;
    let refused = message(&[("focus", "a"), ("show", "b)")]).await;
    assert_eq!(refused, "transform 2 (show): regular expression \"b)\" at character 2: a ) closes no group");
    assert!(message(&[("collapse", "x")]).await.contains("collapse is \"x\""));
    assert!(message(&[("showFrom", "work")]).await.ends_with("did you mean show_from?"));
    assert!(message(&[("collapseRecursion", "")]).await.ends_with("did you mean collapse=recursion?"));
    assert!(message(&[("maxNodes", "abc")]).await.contains("maxNodes is \"abc\""));
    assert!(message(&[("maxNodes", "-1")]).await.contains("max nodes is -1"));
}

#[tokio::test]
async fn go_reads_an_exported_profile() {
    let query = url(&[("query", "shop.cpu{}"), ("from", "now-1h"), ("format", "pprof")]);
    let exported = querier().export(&reader(), &query).await.unwrap();
    let Some(text) = go_top("exported.pprof", &exported.body) else { return };
    let has = |flat: &str, cum: &str, name: &str| {
        text.lines().any(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            columns.first() == Some(&flat) && columns.get(3) == Some(&cum) && columns.last() == Some(&name)
        })
    };
    assert!(text.contains("Duration: 3600s") || text.contains("Duration: 1hrs"), "{text}");
    assert!(
        has("210ns", "210ns", "work") && has("2ns", "2ns", "idle") && has("0", "212ns", "main"),
        "{text}"
    );
}
