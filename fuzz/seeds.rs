//! Writes the inputs that fuzzing starts from: `seeds FOLDER` makes a folder for each target.

use std::path::Path;

use athanor_block::{BlockMeta, FORMAT_VERSION, FileMeta, PARQUET_FILES, TenantMeta};
use athanor_chassis::Random;
use athanor_profile::analysis::frame_origins::FrameOrigins;
use athanor_profile::analysis::transform::{StackTransform, StackTransforms};
use athanor_profile::call_tree::flamegraph::Flamegraph;
use athanor_profile::call_tree::tree::{FrameGrouping, GraphColumns, Tree};
use athanor_profile::formats::pprof::encode;
use athanor_profile::generate::{FlightChunk, FlightEvent, arbitrary_profile};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, ProfileSource, formats::otlp, formats::speedscope};
use athanor_proto::parca::debuginfo::v1alpha1::upload_request::Data;
use athanor_proto::parca::debuginfo::v1alpha1::{UploadInfo, UploadRequest};
use athanor_proto::push::v1::{PushRequest, RawProfileSeries, RawSample};
use athanor_proto::querier::v1::SelectMergeStacktracesRequest;
use athanor_proto::settings::v1::{
    StacktraceFilter, StacktraceFilterFunctionName, UpsertRecordingRuleRequest,
};
use athanor_proto::types::v1::LabelPair;
use athanor_querier::encode_graph;
use athanor_query::{
    GroupedTreesQuery, HeatmapQuery, LabelValuesQuery, ProfileListQuery, ProfileQuery, QueryKind,
    SamplesQuery, StackFilter, TimeGrid, TimeSeriesQuery, run_all,
};
use libfuzzer_sys::fuzz_target;
use prost::Message;
use serde_json::json;

#[path = "seeds/agent.rs"]
mod agent;
#[path = "seeds/names.rs"]
mod names;
#[path = "seeds/nodes.rs"]
mod nodes;
#[path = "seeds/processes.rs"]
mod processes;
mod unwind_file;
#[path = "seeds/unwinding.rs"]
mod unwinding;

// The crates below are built to report to a fuzzer, and a fuzzer wants a target; this program runs neither.
fuzz_target!(|_bytes: &[u8]| {});

const OTLP: &str = r#"{"resourceProfiles": [{"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "a"}}]},
"scope_profiles": [{"scope": {"attributes": []}, "profiles": [{"sampleType": {"typeStrindex": 1, "unitStrindex": 2}, "samples": [
{"stackIndex": 1, "values": ["3"], "attributeIndices": [1], "linkIndex": 1, "timestampsUnixNano": ["5"]}], "timeUnixNano": "5",
"profileId": "07070707070707070707070707070707", "periodType": {"typeStrindex": 1}, "period": 1e3}]}]}], "dictionary": {"stringTable":
["", "cpu", "nanoseconds"], "functionTable": [{}, {"nameStrindex": 1}], "locationTable": [{}, {"lines": [{"functionIndex": 1, "line": 3}]}],
"linkTable": [{}, {"traceId": "qqqqqqqqqqqqqqqqqqqqqg==", "spanId": "bbbbbbbbbbbbbbbb"}], "attributeTable": [{}, {"keyStrindex": 1,
"value": {"kvlistValue": {"values": [{"key": "x", "value": {"doubleValue": 0.5}}]}}}], "stackTable": [{}, {"locationIndices": [1]}]}}"#;

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "corpus".to_owned());
    let save = |target: &str, name: &str, content: &[u8]| {
        let folder = Path::new(&folder).join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), content)
    };
    for seed in 0..100 {
        save("pprof", &format!("seed-{seed}"), &encode(&arbitrary_profile(seed)))?;
        save(
            "otlp",
            &format!("seed-{seed}"),
            &otlp::encode(&arbitrary_profile(seed), &[("service.name", "shop")]),
        )?;
    }
    texts(&save)?;
    documents(&save)?;
    let form = "--b\r\nContent-Disposition: form-data; name=\"profile\"\r\n\r\nx\r\n--b--\r\n";
    save("multipart", "seed", form.as_bytes())?;
    for (format, body) in (0u8..).zip(bodies()) {
        save("ingest", &format!("seed-{format}"), &[&[format][..], &body].concat())?;
    }
    let lines = "main;run 3\r\nmain;run 4\n;;a b 1\n\nmain 0\nno count\n";
    save("ingest-text", "seed", lines.as_bytes())?;
    save("trie", "seed", TRIE)?;
    blocks(&save)?;
    for number in 0..120 {
        save("log", &format!("seed-{number}"), &log(&Random::from_seed(number)))?;
    }
    for (number, query) in RENDER.iter().enumerate() {
        save("render", &format!("seed-{number}"), query.as_bytes())?;
    }
    graphs(&save)?;
    names::seeds(&save)?;
    nodes::seeds(&save)?;
    agent::seeds(&save)?;
    processes::seeds(&save)?;
    unwinding::seeds(&save)?;
    payloads(&save)?;
    uploads(&save)?;
    rules(&save)?;
    calls(&save)?;
    answers(&save)
}

/// Labels, stacks, rules, selectors and names: whatever people write.
fn texts(save: &impl Fn(&str, &str, &[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    for (number, text) in ["pod=a-1", "a.b-c = x=y", "1a=b", "größe=1", "=", "_=", " x "].iter().enumerate()
    {
        save("labels", &format!("seed-{number}"), text.as_bytes())?;
    }
    let stacks = ["a;b 1\na;b;c 2\n", "main 9223372036854775807\nmain 1\n", " 3\r\n;; 1\n", "a 1"];
    for (number, text) in stacks.iter().enumerate() {
        save("folded", &format!("seed-{number}"), text.as_bytes())?;
    }
    let rules = [
        r#"[{"source_labels":["a","b"],"regex":"(?P<n>x.*);(y)?","target_label":"${n}","replacement":"$2-$1"}]"#,
        r#"[{"action":"labelmap","regex":"(.)","replacement":"x_$1"},{"action":"labelkeep","regex":"x_.*"}]"#,
        r#"[{"action":"hashmod","source_labels":["a"],"target_label":"b","modulus":7},{"action":"keep","regex":null}]"#,
        r#"[{"action":"dropequal","source_labels":["a"],"target_label":"b"},{"action":"Uppercase","target_label":"a"}]"#,
    ];
    for (number, text) in rules.iter().enumerate() {
        save("relabel", &format!("seed-{number}"), format!("{text}\na=x1\nb=y").as_bytes())?;
    }
    let selectors =
        ["{}", r#"{a="b", c!="d"}"#, r#"{a=~"x.*|y", f!~`\d+`,}"#, r#"{"ein name"='\u00e4\x41\n'}"#];
    for (number, text) in selectors.iter().enumerate() {
        save("selector", &format!("seed-{number}"), text.as_bytes())?;
    }
    let names = [
        "app.cpu{pod=a-1, region = eu}",
        "name=app%7Bk%3Dv%7D&from=now-1h&until=now&spyName=rbspy&sampleRate=97",
        "name=app&from=1800000000&until=1800000010&units=bytes&aggregationType=average&format=pprof",
        "name=a.cpu%7Bx%3D%C3%BC%2Cy%3D+%7D&from=20260302&until=1772445600000&format=trie",
        "a{v={x},w=1}",
    ];
    for (number, text) in names.iter().enumerate() {
        save("ingest-name", &format!("seed-{number}"), text.as_bytes())?;
    }
    Ok(())
}

/// Responses with a graph, and bytes that describe a tree.
fn graphs(save: &impl Fn(&str, &str, &[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    for seed in 0..20 {
        let profile = arbitrary_profile(seed);
        let mut tree = Tree::from_profile(&profile, 0);
        tree.truncate(seed as usize * 5);
        let totals = profile.totals_by_stack(0);
        let origins = FrameOrigins::from_totals(&profile.dictionary, &totals, FrameGrouping::Function);
        let response = encode_graph(GraphColumns::from_tree(&tree), &origins);
        save("graph", &format!("response-{seed}"), &[&[1], &response.encode_to_vec()[..]].concat())?;
    }
    save("graph", "tree", &[254, 4, 8, 38, 5, 42, 3, 4, 12, 54, 13, 34])
}

/// What blocks say of themselves, and changes to their files.
fn blocks(save: &impl Fn(&str, &str, &[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    let mut meta = BlockMeta { format: FORMAT_VERSION, id: "seed".into(), ..BlockMeta::default() };
    for file in PARQUET_FILES {
        meta.files.insert(file.into(), FileMeta { bytes: 3, checksums: vec![7], ..FileMeta::default() });
    }
    for tenants in 0..3 {
        let sealed = String::from_utf8_lossy(&meta.encode()).into_owned();
        let inner = sealed.split_once("\"meta\":").map_or("", |(_, inner)| &inner[..inner.len() - 1]);
        save("meta", &format!("sealed-{tenants}"), sealed.as_bytes())?;
        save("meta", &format!("inner-{tenants}"), inner.as_bytes())?;
        meta.tenants.push(TenantMeta {
            tenant: format!("t{tenants}"),
            sum: Some(0),
            ..TenantMeta::default()
        });
    }
    for file in 0..=PARQUET_FILES.len() as u8 {
        for block in 0..4 {
            save("block", &format!("seed-{file}-{block}"), &[block * 2, file, 40, 0, 1, 9, 1, 255])?;
        }
    }
    Ok(())
}

/// What profiles were first recorded as, each in its format, once and several times.
fn payloads(save: &impl Fn(&str, &str, &[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    let [.., flight, _] = bodies();
    for (kind, payload) in [(0, encode(&arbitrary_profile(1))), (1, flight), (2, b"other".to_vec())] {
        for first in [kind, kind + 9] {
            save("payload", &format!("seed-{first}"), &[&[first][..], &payload].concat())?;
            let packed = zstd::encode_all(&payload[..], 1)?;
            save("payload", &format!("packed-{first}"), &[&[first][..], &packed].concat())?;
        }
    }
    save("payload", "zeros", &[&[0][..], &zstd::encode_all(&[0u8; 1 << 20][..], 1)?].concat())
}

/// What people upload to look at it, in each format.
fn uploads(save: &impl Fn(&str, &str, &[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    for (number, body) in (0u8..).zip(bodies()) {
        save("adhoc", &format!("seed-{number}"), &[&[number][..], &body].concat())?;
    }
    save("adhoc", "packed", &[&[0][..], &zstd::encode_all(&encode(&arbitrary_profile(2))[..], 1)?].concat())
}

/// Rules for metrics: asked for in protobuf and in JSON, and as they are kept.
fn rules(save: &impl Fn(&str, &str, &[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    let of_everything = UpsertRecordingRuleRequest {
        metric_name: "profiles_recorded_x".into(),
        matchers: vec![r#"{__profile_type__="a:b:c:d:e", x=~"y.*"}"#.into(), r#"{service_name!="a"}"#.into()],
        group_by: vec!["pod".into()],
        external_labels: vec![LabelPair { name: "team".into(), value: "b".into() }],
        ..UpsertRecordingRuleRequest::default()
    };
    let function = StacktraceFilterFunctionName { function_name: "main".into(), metric_type: 0 };
    let of_function = UpsertRecordingRuleRequest {
        id: "a-b_1".into(),
        generation: 3,
        stacktrace_filter: Some(StacktraceFilter { function_name: Some(function) }),
        ..of_everything.clone()
    };
    for (number, rule) in [of_everything, of_function].iter().enumerate() {
        save("rules", &format!("proto-{number}"), &[&[0][..], &rule.encode_to_vec()].concat())?;
        save("rules", &format!("json-{number}"), &[&[1][..], &serde_json::to_vec(rule)?].concat())?;
    }
    let kept = json!({
        "metric_name": "profiles_recorded_x", "profile_type": "a:b:c:d:e", "matchers": ["{}"], "group_by": ["pod"],
        "external_labels": [["team", "b"]], "generation": i64::MAX, "function": "main",
    });
    save("rules", "kept", &[&[2][..], kept.to_string().as_bytes()].concat())
}

/// Profiles as other tools write them.
fn documents(save: &impl Fn(&str, &str, &[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    for seed in 0..40 {
        let mut profile = arbitrary_profile(seed);
        save("speedscope", &format!("seed-{seed}"), speedscope::write(&profile, "seed").as_bytes())?;
        profile.samples.values.iter_mut().for_each(|value| *value = value.unsigned_abs() as i64 >> 20);
        let Flamegraph { names, levels, total, max_self } =
            Flamegraph::from_tree(&Tree::from_profile(&profile, 0));
        let bars = json!({ "names": names, "levels": levels, "numTicks": total, "maxSelf": max_self });
        let metadata = json!({ "format": "single", "units": "samples", "sampleRate": 100, "name": "cpu" });
        let graph = json!({ "version": 1, "flamebearer": bars, "metadata": metadata });
        save("flamebearer", &format!("seed-{seed}"), graph.to_string().as_bytes())?;
    }
    let event = |kind: &str, frame: u32, at: f64| json!({ "type": kind, "frame": frame, "at": at });
    let events = [event("O", 0, 0.5), event("O", 1, 1e0), event("C", 1, 2.25), event("C", 0, 1e3)];
    let evented = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": { "frames": [{ "name": "a", "file": "a.c", "line": 3, "col": 1 }, { "name": "b" }] },
        "profiles": [{ "type": "evented", "name": "e", "unit": "milliseconds", "startValue": 0, "endValue": 1e4, "events": events }],
        "exporter": "seed",
        "activeProfileIndex": 0,
    });
    save("speedscope", "evented", evented.to_string().as_bytes())?;
    recordings(save)?;
    save("otlp-json", "export", OTLP.as_bytes())?;
    for (number, text) in PRINTED.iter().enumerate() {
        save("perf-script", &format!("seed-{number}"), text.as_bytes())?;
    }
    Ok(())
}

/// Flight recordings with every event that counts, and labels of one.
fn recordings(save: &impl Fn(&str, &str, &[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    let event = |name, number| FlightEvent {
        name,
        stack: vec![("a/B$$Lambda$1/0x1f".into(), "f".into(), 3), ("A".into(), "main".into(), 1)],
        numbers: vec![("contextId", 1), number],
        ..FlightEvent::default()
    };
    let texts = vec![("name", "event".to_owned()), ("value", "wall".to_owned())];
    let events = vec![
        FlightEvent { name: "jdk.ActiveSetting", texts, ..FlightEvent::default() },
        FlightEvent { state: Some("STATE_SLEEPING"), ..event("jdk.ExecutionSample", ("spanId", 1 << 63)) },
        event("profiler.WallClockSample", ("samples", 300)),
        event("jdk.ObjectAllocationInNewTLAB", ("tlabSize", 1 << 20)),
        event("jdk.ObjectAllocationOutsideTLAB", ("allocationSize", 1 << 20)),
        event("jdk.ObjectAllocationSample", ("weight", 1 << 20)),
        event("profiler.LiveObject", ("allocationTime", 9)),
        event("profiler.Malloc", ("size", 64)),
        event("jdk.JavaMonitorEnter", ("duration", 1 << 30)),
        event("jdk.ThreadPark", ("duration", 1 << 30)),
    ];
    for (number, ticks, compressed) in [(0, 1, true), (1, 1_000_000_000, false), (2, 3_000_000_000, true)] {
        let chunk = FlightChunk { compressed, ticks, events: events.clone() }.chunk();
        save("jfr", &format!("seed-{number}"), &chunk)?;
        save("jfr", &format!("twice-{number}"), &[&chunk[..], &chunk].concat())?;
    }
    let labels = b"\x0a\x0a\x08\x01\x12\x06\x0a\x04\x08\x02\x10\x03\x12\x08\x08\x02\x12\x04zone\x12\x06\x08\x03\x12\x02eu";
    save("jfr-labels", "seed", labels)
}

/// What `perf script` prints.
const PRINTED: [&str; 4] = [
    "# note\nmain 12/13 [000] 3.456789:    1001001 cpu-clock:u: \n\t    7f12ab f(int (*)(int))+0x34 (/bin/main)\n\t 0 [unknown] ([unknown])\n\n\
     opt cgu.15 12 [001] 4.5: 7 cpu-clock:u: \n\t ab g+0x0 (/tmp/x (deleted))\n\n",
    "   swapper     0 [000]   100.25:  7 cycles:  ffff81 halt+0x6 (vmlinux)\n   main 12 [000] 100.5: 8 cycles: ab [unknown] (x)\n",
    "main 12 cpu-clock:\n\tab f\n\tac g (inlined)\n  main.c:12\n\n",
    "a 1 1.5: sched:sched_switch: prev=a\na 1 [000] 0.0: PERF_RECORD_EXIT(1:1)\na 1 1.6: 3 page-faults:\n",
];

/// Questions of each kind, and what one profile answers them.
fn answers(save: &impl Fn(&str, &str, &[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    let list = || vec!["a".to_owned(), "b".to_owned()];
    let steps = TimeGrid { step: 1, count: u64::MAX >> 2, ..TimeGrid::default() };
    let points = TimeSeriesQuery {
        steps,
        group_by: list(),
        mean: true,
        exemplars: true,
        ..TimeSeriesQuery::default()
    };
    let heat = HeatmapQuery { steps, group_by: list(), exemplars: true, ..HeatmapQuery::default() };
    let kinds = [
        QueryKind::ProfileTypes,
        QueryKind::LabelNames,
        QueryKind::LabelValues(LabelValuesQuery { name: "a".to_owned(), ..LabelValuesQuery::default() }),
        QueryKind::Series(list()),
        QueryKind::Tree(StackFilter::default()),
        QueryKind::Profile(StackFilter::default(), None),
        QueryKind::Points(points),
        QueryKind::Heat(heat),
        QueryKind::Sizes,
        QueryKind::Trees(GroupedTreesQuery { group_by: list(), stacks: transformed_stacks() }),
        QueryKind::Profiles(ProfileListQuery { keep: 9, ..ProfileListQuery::default() }),
        QueryKind::Samples(SamplesQuery { max_rows: 9, spans: true, ..SamplesQuery::default() }),
        QueryKind::LabelNameCounts { prefix: "a".to_owned() },
        QueryKind::OriginTree(StackFilter::default()),
    ];
    for seed in 0..10 {
        let mut source = MemorySource::default();
        let labels = [("a".to_owned(), "b".to_owned()), ("c".to_owned(), seed.to_string())];
        source.add(&Labels::new(labels), &arbitrary_profile(seed), 1);
        for (kind, what) in (0u8..).zip(kinds.clone()) {
            let mut ask = ProfileQuery { what, ..ProfileQuery::default() };
            let Ok(answer) = run_all(&ask, [&source as &dyn ProfileSource]) else { continue };
            let Ok(pieces) = answer.pack() else { continue };
            let packed: Vec<u8> = pieces.flatten().collect();
            save("partial-wire", &format!("answer-{kind}-{seed}"), &[&[kind * 2 + 1], &packed[..]].concat())?;
            ask.selection.selector = r#"{a="b", c=~"d.*"}"#.parse().unwrap_or_default();
            let Ok(packed) = ask.pack() else { continue };
            save("partial-wire", &format!("question-{kind}"), &[&[28], &packed[..]].concat())?;
        }
    }
    Ok(())
}

/// Filter with a transform of each kind of pattern.
fn transformed_stacks() -> StackFilter {
    let options = [("focus", "[a-z]"), ("hide", "=a"), ("collapse", "recursion"), ("collapse", "below:z")];
    let parse = |(name, text)| StackTransform::parse_option(name, text).and_then(Result::ok);
    let transforms = StackTransforms::new(options.into_iter().filter_map(parse).collect());
    StackFilter { transforms: transforms.unwrap_or_default(), ..StackFilter::default() }
}

const RENDER: [&str; 6] = [
    "query=process_cpu%3Acpu%3Ananoseconds%3Acpu%3Ananoseconds%7Bservice_name%3D%22a%22%7D&from=now-1h&until=now",
    "query=memory:inuse_space:bytes:space:bytes{a=~\"x|y\"}&from=1799990000&until=1800000000&format=dot&maxNodes=9",
    "query=memory:inuse_space:bytes:space:bytes{}&from=yesterday&until=noon&groupBy=a&groupBy=b&aggregation=avg",
    "query=a:b:c:d:e{}&focus=x&hide=%3Dy&show_from=z%5B&collapse=recursion&collapse=below:a&ignore=(",
    "leftQuery=a:b:c:d:e{}&leftFrom=now-2d&leftUntil=now-1d&rightQuery=a:b:c:d:e{f!=\"\"}&rightFrom=now-1h&rightUntil=now",
    "query=%zz%&from=20260302&until=1772445600000&max-nodes=-1&&=&a",
];

/// A script of frames as the log writes them: entries that follow each other, a few cuts, marks and states.
fn log(random: &Random) -> Vec<u8> {
    let (mut next, frames) = ([1u8; 5], 2 + random.next_below(14) as u8);
    let mut script = vec![0, 0, frames];
    for _ in 0..frames {
        // In its place, durable up to itself, linked; now and then the first of the next segment.
        script.push(if random.next_below(8) == 0 { 23 } else { 16 });
        let rows = 1 + random.next_below(5) as u8;
        script.push(rows);
        for _ in 0..rows {
            let group = random.next_below(5) as u8;
            let held = &mut next[usize::from(group)];
            // Kinds count from 0 here: entry, move, truncate, purge, state, extent, before.
            let kind = [0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6][random.next_below(11) as usize];
            let index = if kind == 0 { *held } else { held.saturating_sub(1 + random.next_below(3) as u8) };
            *held = if kind == 0 { (*held + 1).min(39) } else { *held };
            let term = if kind == 5 { *held } else { 1 };
            script.extend([kind, group, index, term]);
            // Only payloads, and what is neither entry nor mark of one place, have a length.
            script.push(random.next_below(if kind == 6 { 2 } else { 200 }) as u8);
        }
    }
    script
}

/// Calls of each kind, as clients write them: proto and JSON, plain and gzipped, with a header to change.
fn calls(save: &impl Fn(&str, &str, &[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    let label = LabelPair { name: "service_name".into(), value: "a".into() };
    let sample = RawSample { raw_profile: encode(&arbitrary_profile(1)).into(), id: "one".into() };
    let series =
        RawProfileSeries { labels: vec![label], samples: vec![sample], ..RawProfileSeries::default() };
    let push = PushRequest { series: vec![series] };
    let graph = SelectMergeStacktracesRequest {
        profile_type_id: "a:b:c:d:e".into(),
        label_selector: "{}".into(),
        start: 1,
        end: i64::MAX,
        max_nodes: Some(7),
        ..SelectMergeStacktracesRequest::default()
    };
    let headers = ["100", "10S", "1", "gzip", "gzip", "12", "tenant", "gzip"];
    for kind in 0..12u8 {
        let json = matches!(kind, 1 | 2 | 5 | 8 | 9 | 11);
        for (number, header) in (0u8..).zip(headers) {
            for form in [2 + (number & 1), 6 + (number & 1), 10 + (number & 1)] {
                let message = match (json, form & 8) {
                    (false, 0) => push.encode_to_vec(),
                    (false, _) => graph.encode_to_vec(),
                    (true, 0) => serde_json::to_vec(&push)?,
                    (true, _) => serde_json::to_vec(&graph)?,
                };
                let input = [&[kind, number, form, 0], header.as_bytes(), b"\n", &message].concat();
                save("http", &format!("seed-{kind}-{number}-{form}"), &input)?;
            }
        }
    }
    streams(save)
}

/// Calls with several messages, proto and JSON.
fn streams(save: &impl Fn(&str, &str, &[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    let info = UploadInfo { build_id: "abcd".into(), upload_id: "1".into(), ..UploadInfo::default() };
    let all =
        [Data::Info(info), Data::ChunkData((&b"\x7fELF"[..]).into()), Data::ChunkData((&b"rest"[..]).into())];
    for kind in 0..8u8 {
        let mut input = vec![kind, 6];
        for data in all.clone() {
            let message = UploadRequest { data: Some(data) };
            let bytes = if kind % 2 == 1 { serde_json::to_vec(&message)? } else { message.encode_to_vec() };
            input.push(0);
            input.extend((bytes.len() as u32).to_be_bytes());
            input.extend(bytes);
        }
        save("streams", &format!("seed-{kind}"), &input)?;
    }
    Ok(())
}

/// A trie: main;run and main;idle.
const TRIE: &[u8] = &[
    0, 0, 1, 5, b'm', b'a', b'i', b'n', b';', 0, 2, 3, b'r', b'u', b'n', 4, 0, 4, b'i', b'd', b'l', b'e', 1,
    0,
];

/// A form of the target, which has this boundary.
fn parts(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut form = Vec::new();
    for (name, content) in parts {
        form.extend(format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n").into_bytes());
        form.extend_from_slice(content);
        form.extend(b"\r\n");
    }
    form.extend(b"--b--\r\n");
    form
}

/// Context 1 has the label that text 2 names, with text 3 for its value.
const CONTEXTS: &[u8] =
    b"\x0a\x0a\x08\x01\x12\x06\x0a\x04\x08\x02\x10\x03\x12\x08\x08\x02\x12\x04zone\x12\x06\x08\x03\x12\x02eu";
const TYPE_CONFIG: &[u8] =
    br#"{"inuse-space":{"units":"bytes","display-name":"inuse_space","aggregation":"sum","cumulative":true,"sampled":false}}"#;

/// A body of each format of `/ingest`, in the order of its target.
fn bodies() -> [Vec<u8>; 11] {
    let profile = arbitrary_profile(1);
    let sample = FlightEvent {
        name: "jdk.ExecutionSample",
        stack: vec![("App".into(), "work".into(), 3), ("App".into(), "main".into(), 1)],
        numbers: vec![("contextId", 1), ("spanId", 7)],
        ..FlightEvent::default()
    };
    let flight = FlightChunk { compressed: true, ticks: 1_000_000_000, events: vec![sample] }.chunk();
    let perf = "main 12 [000] 1.5: 1 cycles:\n\tab run+0x1 (/bin/main)\n\n";
    let graph = r#"{"version":1,"flamebearer":{"names":["total","main"],"levels":[[0,3,0,0],[0,3,3,1]],"numTicks":3}}"#;
    [
        b"main;run 3\nmain 1\n".to_vec(),
        b"main;run\nmain\n".to_vec(),
        TRIE.to_vec(),
        TRIE.to_vec(),
        encode(&profile),
        parts(&[("profile", &encode(&profile)), ("sample_type_config", TYPE_CONFIG)]),
        speedscope::write(&profile, "seed").into_bytes(),
        graph.as_bytes().to_vec(),
        perf.as_bytes().to_vec(),
        flight.clone(),
        parts(&[("jfr", &flight), ("labels", CONTEXTS)]),
    ]
}
