//! One profile, pushed and then looked for by every way to ask: what a server of this wire must sing.

use athanor_proto::google::v1::Profile;
use prost::Message;
use serde_json::{Value, json};

use crate::wire::calls::{self, Call};
use crate::wire::data::{Aviary, SELECTOR, SPAN, TYPE};
use crate::wire::speech::{Way, ask, send};
use crate::wire::statuses::encoded;

/// The song: what one server answers.
struct Song {
    aviary: Aviary,
    calls: Vec<Call>,
}

impl Song {
    fn new() -> Self {
        let aviary = Aviary::new(false);
        let calls = calls::queries(&aviary);
        Self { aviary, calls }
    }

    fn call(&self, name: &str) -> &Call {
        self.calls.iter().find(|call| call.path.ends_with(&format!("/{name}"))).unwrap()
    }

    /// Asks what the call asks anyway, with some fields more.
    fn ask(&self, name: &str, more: Value) -> Value {
        let call = self.call(name);
        let mut question = call.good.clone();
        question.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        let reply = ask(&self.aviary.server, call, Way::ConnectProto, &question);
        assert_eq!(reply.code, "ok", "{name}: {reply:?}");
        reply.body
    }

    fn page(&self, path: &str) -> Value {
        let answer = self.aviary.server.get(path, &[]);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        serde_json::from_slice(&answer.body).unwrap()
    }
}

/// Stacks of a pprof, root first, and their values.
fn stacks(profile: &Profile) -> Vec<(String, i64)> {
    let name = |location: &u64| {
        let location = profile.location.iter().find(|one| one.id == *location).unwrap();
        let function = profile.function.iter().find(|one| one.id == location.line[0].function_id).unwrap();
        profile.string_table[function.name as usize].as_str()
    };
    let of = |sample: &athanor_proto::google::v1::Sample| {
        let names: Vec<&str> = sample.location_id.iter().rev().map(name).collect();
        (names.join(";"), sample.value[0])
    };
    let mut stacks: Vec<_> = profile.sample.iter().map(of).collect();
    stacks.sort();
    stacks
}

#[test]
fn lists_have_the_profile() {
    let song = Song::new();
    let types = song.ask("ProfileTypes", json!({}));
    let parts = json!({
        "ID": TYPE,
        "name": "deadmans_switch",
        "sampleType": "made_up",
        "sampleUnit": "profilos",
        "periodType": "made_up",
        "periodUnit": "profilos",
    });
    assert_eq!(types["profileTypes"], json!([parts]));
    let series =
        song.ask("Series", json!({ "label_names": ["service_name", "__profile_type__"], "matchers": [] }));
    let pair = |name: &str, value: &str| json!({ "name": name, "value": value });
    let labels = json!([pair("__profile_type__", TYPE), pair("service_name", "canary")]);
    assert_eq!(series["labelsSet"], json!([{ "labels": labels }]));
    let names = [
        "__name__",
        "__period_type__",
        "__period_unit__",
        "__profile_type__",
        "__service_name__",
        "__type__",
        "__unit__",
        "service_name",
    ];
    assert_eq!(song.ask("LabelNames", json!({}))["names"], json!(names));
    let stats = song.ask("GetProfileStats", json!({}));
    assert_eq!(stats["dataIngested"], true);
    let at = (song.aviary.times.start + 60_000).to_string();
    assert_eq!((&stats["oldestProfileTime"], &stats["newestProfileTime"]), (&json!(at), &json!(at)));
}

#[test]
fn graphs_have_its_stacks() {
    let song = Song::new();
    let call = song.call("SelectMergeProfile");
    let message = (call.question)(&call.good);
    let headers = [("content-type", "application/proto")];
    let answer = crate::wire::speech::post(&song.aviary.server, call, &headers, &message);
    let profile = Profile::decode(&answer.body[..]).unwrap();
    assert_eq!(stacks(&profile), [("func1".to_owned(), 20), ("func1;func2".to_owned(), 10)]);

    let graph = song.ask("SelectMergeStacktraces", json!({ "stack_trace_selector": {} }));
    // Callees stand right of what their caller does itself.
    let expected = json!({
        "names": ["total", "func1", "func2"],
        "levels": [
            { "values": ["0", "30", "0", "0"] },
            { "values": ["0", "30", "20", "1"] },
            { "values": ["20", "10", "10", "2"] },
        ],
        "total": "30",
        "maxSelf": "20",
    });
    assert_eq!(graph["flamegraph"], expected);

    let span = song.ask("SelectMergeSpanProfile", json!({}));
    let expected = json!({
        "names": ["total", "func1"],
        "levels": [{ "values": ["0", "20", "0", "0"] }, { "values": ["0", "20", "20", "1"] }],
        "total": "20",
        "maxSelf": "20",
    });
    assert_eq!(span["flamegraph"], expected);

    let diff = song.ask("Diff", json!({}));
    assert_eq!(diff["flamegraph"]["names"], json!(["total", "func1", "func2"]));
    assert_eq!(
        (&diff["flamegraph"]["leftTicks"], &diff["flamegraph"]["rightTicks"]),
        (&json!("30"), &json!("30"))
    );
}

#[test]
fn tables_and_sandwiches_of_newer_clients_have_its_functions() {
    let song = Song::new();
    let call = song.call("SelectMergeStacktraces");
    let ask_json = |more: Value| {
        let mut question = call.good.clone();
        question.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        let headers = [("content-type", "application/json")];
        let answer =
            crate::wire::speech::post(&song.aviary.server, call, &headers, question.to_string().as_bytes());
        (answer.status, serde_json::from_slice::<Value>(&answer.body).unwrap())
    };
    let all = json!({ "stack_trace_selector": {}, "span_selector": [], "max_nodes": 0 });
    let with = |more: Value| {
        let mut asked = all.clone();
        asked.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        ask_json(asked)
    };
    let (status, table) = with(
        json!({ "format": "PROFILE_FORMAT_FUNCTIONS", "formatOptions": { "functions": { "limit": "1" } } }),
    );
    let row = json!({ "name": "func1", "self": "20", "total": "30" });
    let expected = json!({ "total": "30", "totalFunctions": "2", "functions": [row] });
    assert_eq!((status, &table["functions"], table.get("flamegraph")), (200, &expected, None));
    let (status, answer) = with(json!({ "format": "PROFILE_FORMAT_SANDWICH", "sandwichFunction": "func1" }));
    let callee = json!({ "nameIndex": 1, "total": "10", "self": "10" });
    let expected = json!({
        "names": ["func1", "func2"],
        "total": "30",
        "self": "20",
        "callers": { "total": "30" },
        "callees": { "total": "30", "self": "20", "children": [callee] },
    });
    assert_eq!((status, &answer["sandwich"]), (200, &expected));
    let (status, refused) = with(json!({ "format": "PROFILE_FORMAT_FUNCTION_TREE" }));
    assert_eq!((status, &refused["code"]), (501, &json!("unimplemented")));
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("PROFILE_FORMAT_FLAMEGRAPH"), "{message}");
}

#[test]
fn points_have_its_value_and_lead_back_to_it() {
    let song = Song::new();
    let series = song.ask("SelectSeries", json!({ "step": 1, "exemplar_type": "EXEMPLAR_TYPE_INDIVIDUAL" }));
    let series = series["series"].as_array().unwrap();
    let points = series[0]["points"].as_array().unwrap();
    assert_eq!((series.len(), points.len(), &points[0]["value"]), (1, 1, &json!(30.0)));
    let exemplar = &points[0]["exemplars"][0];
    assert_eq!((&exemplar["value"], points[0]["exemplars"].as_array().unwrap().len()), (&json!("30"), 1));
    let ids = json!({ "profile_id_selector": [exemplar["profileId"]], "stack_trace_selector": {} });
    let graph = song.ask("SelectMergeStacktraces", ids);
    assert_eq!(graph["flamegraph"]["total"], "30");
    let others = json!({ "profile_id_selector": ["00000000-0000-4000-8000-000000000000"], "stack_trace_selector": {} });
    assert!(
        song.ask("SelectMergeStacktraces", others)["flamegraph"]["total"].is_null(),
        "another id is another profile"
    );

    // A chart shorter than its step has one point, at its start: there the profile is, some microseconds later.
    let at = song.aviary.times.start + 60_000;
    let short = song.ask("SelectSeries", json!({ "start": at, "end": at + 5_000, "step": 15 }));
    let points = short["series"][0]["points"].as_array().unwrap();
    assert_eq!(points, &[json!({ "value": 30.0, "timestamp": at.to_string() })]);

    let heat = song.ask("SelectHeatmap", json!({ "step": 1 }));
    let counts = heat["series"][0]["slots"][0]["counts"].as_array().unwrap();
    assert_eq!(counts.iter().map(|count| count.as_i64().unwrap()).sum::<i64>(), 1);
}

#[test]
fn pages_have_its_stacks() {
    let song = Song::new();
    let (from, until) = (song.aviary.times.start, song.aviary.times.end);
    let query = encoded(&format!("{TYPE}{SELECTOR}"));
    let page = song.page(&format!("/pyroscope/render?query={query}&from={from}&until={until}"));
    let names = json!(["total", "func1", "func2"]);
    assert_eq!(page["flamebearer"]["names"], names);
    assert_eq!(page["flamebearer"]["levels"], json!([[0, 30, 0, 0], [0, 30, 20, 1], [20, 10, 10, 2]]));
    assert_eq!(
        (&page["flamebearer"]["numTicks"], &page["metadata"]["format"]),
        (&json!(30), &json!("single"))
    );
    let sides = format!(
        "leftQuery={query}&leftFrom={from}&leftUntil={until}&rightQuery={query}&rightFrom={from}&rightUntil={until}"
    );
    let page = song.page(&format!("/pyroscope/render-diff?{sides}"));
    assert_eq!(
        (&page["flamebearer"]["names"], page["flamebearer"]["levels"].as_array().unwrap().len()),
        (&names, 3)
    );
    assert_eq!(
        (&page["leftTicks"], &page["rightTicks"], &page["metadata"]["format"]),
        (&json!(30), &json!(30), &json!("double"))
    );
}

/// Older clients write microseconds into the field of nanoseconds, and may not say `from`.
#[test]
fn pprof_of_1970_counts_once_at_its_arrival() {
    let song = Song::new();
    let micros = song.aviary.times.start * 1_000;
    let body = crate::wire::data::profile(micros).encode_to_vec();
    for _ in 0..2 {
        let sent = song.aviary.server.post("/ingest?name=old&format=pprof", &[], &body);
        assert_eq!(sent.status, 200, "{}", sent.text());
    }
    let query = encoded(r#"made_up:made_up:profilos:made_up:profilos{service_name="old"}"#);
    let page = song.page(&format!("/pyroscope/render?query={query}&from=now-1h"));
    assert_eq!(page["flamebearer"]["numTicks"], 30);
    let stats = song.ask("GetProfileStats", json!({}));
    let oldest = stats["oldestProfileTime"].as_str().unwrap().parse::<i64>().unwrap();
    assert!(oldest >= song.aviary.times.start, "{stats}");
}

/// What a data source does when it is saved, and what a home page asks first.
#[test]
fn first_questions_of_a_page_are_answered() {
    let song = Song::new();
    // Older data sources ask without a range.
    let types = send(&song.aviary.server, song.call("ProfileTypes"), Way::ConnectProto, &[], Vec::new());
    assert_eq!(types.body["profileTypes"][0]["ID"], TYPE);
    let graph =
        song.ask("SelectMergeStacktraces", json!({ "span_selector": [SPAN], "stack_trace_selector": {} }));
    assert_eq!(graph["flamegraph"]["total"], "20");
}
