//! What each call refuses, and with which status, as the description of the wire has it. A case is what it changes of a
//! good question: a field set, or taken away.

use serde_json::{Value, json};

use crate::wire::calls::{self, Call};
use crate::wire::data::{Aviary, SELECTOR, TYPE, Times};
use crate::wire::matrix::Wrong;
use crate::wire::speech::{Way, ask};

/// Stands for a field that is not sent.
const NONE: Value = Value::Null;

/// Calls, what is asked otherwise, its status.
type Case = (&'static [&'static str], &'static str, Vec<(&'static str, Value)>, u16);

/// Those that ask for profiles of a type.
const SELECTS: &[&str] = &[
    "SelectMergeStacktraces",
    "SelectMergeProfile",
    "SelectMergeSpanProfile",
    "SelectSeries",
    "SelectHeatmap",
];
const LISTS: &[&str] = &["LabelNames", "LabelValues", "Series"];
const RANGED: &[&str] = &[
    "LabelNames",
    "LabelValues",
    "Series",
    "SelectMergeStacktraces",
    "SelectMergeProfile",
    "SelectMergeSpanProfile",
    "SelectSeries",
    "SelectHeatmap",
];
const GRAPHS: &[&str] = &["SelectMergeStacktraces", "SelectMergeSpanProfile"];
const STEPPED: &[&str] = &["SelectSeries", "SelectHeatmap"];

/// Of times.
fn of_times(Times { start, end }: Times) -> Vec<Case> {
    const TYPES: &[&str] = &["ProfileTypes"];
    vec![
        (TYPES, "zero range", vec![("start", json!(0)), ("end", json!(0))], 200),
        (TYPES, "no range", vec![("start", NONE), ("end", NONE)], 200),
        (TYPES, "short range", vec![("start", json!(end - 1))], 200),
        (TYPES, "long range", vec![("start", json!(1))], 200),
        (TYPES, "negative start", vec![("start", json!(-1))], 200),
        (TYPES, "negative start and end", vec![("start", json!(-2)), ("end", json!(-1))], 200),
        (TYPES, "start after end", vec![("start", json!(end)), ("end", json!(start))], 400),
        (TYPES, "text for start", vec![("start", json!("yesterday"))], 400),
        (TYPES, "text for end", vec![("end", json!("now"))], 400),
        (RANGED, "no range", vec![("start", NONE), ("end", NONE)], 400),
        (RANGED, "no start", vec![("start", NONE)], 400),
        (RANGED, "no end", vec![("end", NONE)], 400),
        (RANGED, "zero range", vec![("start", json!(0)), ("end", json!(0))], 400),
        (RANGED, "start after end", vec![("start", json!(end)), ("end", json!(start))], 400),
        (RANGED, "text for start", vec![("start", json!("yesterday"))], 400),
    ]
}

/// Of what is asked for.
fn of_parts() -> Vec<Case> {
    const ONE: &[&str] = &["SelectMergeStacktraces"];
    let malformed = [":", "a:b:c", "process_cpu", "a:b:c:d"];
    let mut cases = vec![
        (SELECTS, "no profile type", vec![("profile_typeID", NONE)], 400),
        (SELECTS, "empty profile type", vec![("profile_typeID", json!(""))], 400),
        (SELECTS, "a sixth part of the type", vec![("profile_typeID", json!(format!("{TYPE}:delta")))], 200),
        (SELECTS, "no selector", vec![("label_selector", NONE)], 400),
        (SELECTS, "empty selector", vec![("label_selector", json!(""))], 400),
        (SELECTS, "invalid selector", vec![("label_selector", json!("{a="))], 400),
        (SELECTS, "selector of all", vec![("label_selector", json!("{}"))], 200),
        (SELECTS, "selector in quotes", vec![("label_selector", json!(r#"{"service_name"="canary"}"#))], 200),
        (LISTS, "no matchers", vec![("matchers", NONE)], 200),
        (LISTS, "bad matcher", vec![("matchers", json!(["{a="]))], 400),
        (LISTS, "one bad matcher of two", vec![("matchers", json!([SELECTOR, "}"]))], 400),
        (&["LabelValues"], "no name", vec![("name", NONE)], 400),
        (&["LabelValues"], "empty name", vec![("name", json!(""))], 400),
        (&["Series"], "no names", vec![("label_names", NONE)], 200),
        (STEPPED, "no step", vec![("step", NONE)], 400),
        (STEPPED, "zero step", vec![("step", json!(0))], 400),
        (STEPPED, "negative step", vec![("step", json!(-1))], 400),
        (STEPPED, "limit", vec![("limit", json!(1))], 200),
        (STEPPED, "group by", vec![("group_by", json!(["pod", "service_name"]))], 200),
        (&["SelectSeries"], "average", vec![("aggregation", json!(1))], 200),
        (&["SelectSeries"], "exemplars of spans", vec![("exemplar_type", json!(3))], 400),
        (&["SelectHeatmap"], "no query type", vec![("query_type", NONE)], 400),
        (GRAPHS, "max nodes", vec![("max_nodes", json!(1))], 200),
        (GRAPHS, "too many nodes", vec![("max_nodes", json!(1_048_577))], 400),
        (GRAPHS, "negative nodes", vec![("max_nodes", json!(-1))], 400),
        (GRAPHS, "zero nodes", vec![("max_nodes", json!(0))], 200),
        (GRAPHS, "a tree", vec![("format", json!(2))], 200),
        (GRAPHS, "a format of tomorrow", vec![("format", json!(77))], 200),
        (ONE, "a call graph", vec![("format", json!("PROFILE_FORMAT_DOT"))], 200),
        (ONE, "a pprof", vec![("format", json!(4))], 200),
        (&["SelectMergeProfile"], "max nodes", vec![("max_nodes", json!(1))], 200),
        (ONE, "bad span", vec![("span_selector", json!(["xyz"]))], 400),
        (ONE, "bad trace", vec![("trace_id_selector", json!(["00"]))], 400),
        (ONE, "bad profile", vec![("profile_id_selector", json!(["no-uuid"]))], 400),
        (
            ONE,
            "spans and traces",
            vec![
                ("span_selector", json!(["00000000000000a1"])),
                ("trace_id_selector", json!(["0000000000000000000000000000ee01"])),
            ],
            400,
        ),
        (
            ONE,
            "bad regular expression",
            vec![(
                "stack_trace_selector",
                json!({ "frame_filter": { "include_function_name_regexes": ["("] } }),
            )],
            400,
        ),
        (&["SelectMergeSpanProfile"], "bad span", vec![("span_selector", json!(["zz"]))], 400),
        (&["Diff"], "no left", vec![("left", NONE)], 400),
        (&["Diff"], "no right", vec![("right", NONE)], 400),
    ];
    cases.extend(
        malformed.map(|text| (SELECTS, "malformed profile type", vec![("profile_typeID", json!(text))], 400)),
    );
    cases
}

/// Of either side of a difference.
fn of_sides(aviary: &Aviary) -> Vec<Case> {
    const DIFF: &[&str] = &["Diff"];
    let mut cases = Vec::new();
    for side in ["left", "right"] {
        for (what, field, value) in [
            ("a side without a type", "profile_typeID", NONE),
            ("a side of a malformed type", "profile_typeID", json!("cpu")),
            ("a side without a selector", "label_selector", NONE),
            ("a side of an invalid selector", "label_selector", json!("{a=")),
            ("a side without a start", "start", NONE),
        ] {
            let mut changed = aviary.about();
            set(&mut changed, field, value);
            cases.push((DIFF, what, vec![(side, changed)], 400));
        }
    }
    cases
}

/// Sets a field, or takes it away.
fn set(question: &mut Value, field: &str, value: Value) {
    let fields = question.as_object_mut().unwrap();
    match value {
        NONE => fields.remove(field),
        value => fields.insert(field.to_owned(), value),
    };
}

#[test]
fn each_call_refuses_what_the_wire_refuses() {
    let aviary = Aviary::new(false);
    let all = calls::queries(&aviary);
    let mut wrong = Wrong::default();
    let cases = [of_times(aviary.times), of_parts(), of_sides(&aviary)].concat();
    for (names, what, changes, status) in cases {
        for name in names {
            let is_named = |call: &&Call| call.path.rsplit('/').next() == Some(*name);
            let call = all.iter().find(is_named).unwrap();
            let mut question = call.good.clone();
            changes.iter().for_each(|(field, value)| set(&mut question, field, value.clone()));
            let reply = ask(&aviary.server, call, Way::ConnectJson, &question);
            let is_told = status == 200
                || (reply.code == "invalid_argument"
                    && reply.body.as_str().is_some_and(|said| said.len() > 10));
            wrong.unless(reply.http == status && is_told, || {
                format!("{name}, {what}: {reply:?}, not {status}")
            });
        }
    }
}

#[test]
fn an_upload_is_refused_with_its_status() {
    let aviary = Aviary::new(false);
    let mut wrong = Wrong::default();
    let push = &calls::queries(&aviary)[0];
    let good = || push.good.clone();
    let changed = |pointer: &str, value: Value| {
        let mut question = good();
        *question.pointer_mut(pointer).unwrap() = value;
        question
    };
    let labels = "/series/0/labels";
    for (what, question, status) in [
        ("good", good(), 200),
        ("no series", changed("/series", json!([])), 400),
        ("no samples", changed("/series/0/samples", json!([])), 400),
        ("no labels", changed(labels, json!([])), 400),
        ("no metric name", changed(labels, json!([{ "name": "service_name", "value": "a" }])), 400),
        ("no service", changed(labels, json!([{ "name": "__name__", "value": "deadmans_switch" }])), 200),
        ("empty service", changed("/series/0/labels/1/value", json!("")), 400),
        ("no pprof", changed("/series/0/samples/0/rawProfile", json!("aGVsbG8=")), 400),
        ("a list for a label", changed("/series/0/labels/0/name", json!([])), 400),
    ] {
        let headers = [("content-type", "application/json")];
        let body = question.to_string();
        let answer = crate::wire::speech::post(&aviary.server, push, &headers, body.as_bytes());
        wrong
            .unless(answer.status == status, || format!("push, {what}: {} {}", answer.status, answer.text()));
    }
    for (what, path, body, status) in [
        ("text", "/ingest?name=a.cpu", "main;f 3\n", 200),
        ("the longer path", "/pyroscope/ingest?name=a.cpu", "main;f 3\n", 200),
        ("no name", "/ingest", "main;f 3\n", 400),
        ("a suffix that nobody knows", "/ingest?name=a.nosuch", "main;f 3\n", 400),
        ("no body", "/ingest?name=a.cpu", "", 200),
        ("no pprof", "/ingest?name=a&format=pprof", "hello", 422),
        ("no jfr", "/ingest?name=a&format=jfr", "hello", 422),
    ] {
        let answer = aviary.server.post(path, &[], body.as_bytes());
        wrong.unless(answer.status == status, || {
            format!("ingest, {what}: {} {}", answer.status, answer.text())
        });
        let is_empty = status != 200 || answer.body.is_empty();
        wrong.unless(is_empty, || format!("ingest, {what}: says {}", answer.text()));
    }
    wrong.unless(aviary.server.get("/ingest?name=a", &[]).status == 405, || "GET /ingest".to_owned());
}

#[test]
fn a_rendering_is_refused_with_its_status() {
    let aviary = Aviary::new(false);
    let mut wrong = Wrong::default();
    let query = encoded(&format!("{TYPE}{SELECTOR}"));
    let no_type = encoded(SELECTOR);
    let (from, until) = (aviary.times.start, aviary.times.end);
    let range = format!("from={from}&until={until}");
    let good = format!("query={query}&{range}");
    let mut cases = vec![
        (format!("render?{good}"), 200),
        (format!("render?{good}&format=dot"), 200),
        (format!("render?{good}&format=dot&maxNodes=5"), 200),
        (format!("render?{good}&format=dot&max-nodes=5"), 200),
        (format!("render?{good}&groupBy=pod"), 200),
        (format!("render?{good}&groupBy=pod&groupBy=service_name"), 200),
        (format!("render?{good}&maxNodes=0"), 200),
        (format!("render?{good}&maxNodes=many"), 200),
        (format!("render?query={query}&from=0&until={until}"), 400),
        (format!("render?query={query}&from={from}&until=0"), 400),
        (format!("render?query={query}&from=0&until=0"), 400),
        (format!("render?query={query}&from={until}&until={from}"), 400),
        (format!("render?{range}"), 400),
        (format!("render?query=&{range}"), 400),
        (format!("render?query=%7B&{range}"), 400),
        (format!("render?query={no_type}&{range}"), 400),
        (format!("render?query=cpu{no_type}&{range}"), 400),
    ];
    cases.extend(["sum", "avg", "invalid"].map(|by| (format!("render?{good}&aggregation={by}"), 200)));
    let sides = |left: &str, right: &str, from: i64, until: i64| {
        format!(
            "render-diff?leftQuery={left}&leftFrom={from}&leftUntil={until}\
             &rightQuery={right}&rightFrom={from}&rightUntil={until}"
        )
    };
    let other = encoded(&format!("process_cpu:cpu:nanoseconds:cpu:nanoseconds{SELECTOR}"));
    let bad = encoded(&format!("cpu{SELECTOR}"));
    let of_both = [("", 400), ("%7B", 400), (&no_type, 400), (&bad, 400), (&other, 400)];
    for (wrong_side, status) in of_both {
        cases.push((sides(wrong_side, &query, from, until), status));
        cases.push((sides(&query, wrong_side, from, until), status));
    }
    cases.extend([
        (sides(&query, &query, from, until), 200),
        (sides(&query, &query, 0, until), 400),
        (sides(&query, &query, from, 0), 400),
        (format!("render-diff?rightQuery={query}&leftFrom={from}&leftUntil={until}"), 400),
    ]);
    for (path, status) in cases {
        let answer = aviary.server.get(&format!("/pyroscope/{path}"), &[]);
        wrong.unless(answer.status == status, || format!("{path}: {} {}", answer.status, answer.text()));
    }
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        for page in ["render", "render-diff"] {
            let line = format!("{method} /pyroscope/{page}?{good}");
            let answer = athanor_integration::server::send_request(aviary.server.address, &line, &[], b"");
            wrong.unless(answer.status == 405, || format!("{line}: {}", answer.status));
        }
    }
}

/// A text as it stands in a URL.
pub fn encoded(text: &str) -> String {
    text.bytes()
        .map(
            |byte| {
                if byte.is_ascii_alphanumeric() { char::from(byte).into() } else { format!("%{byte:02X}") }
            },
        )
        .collect()
}
