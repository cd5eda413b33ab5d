//! Sums and means over time, from memory and from blocks: those of a model that knows every upload.

use std::collections::BTreeMap;

use athanor_chassis::Clock;
use athanor_integration::server::TestServer;
use athanor_server::send_admin_request;
use serde_json::{Value, json};

use crate::wire::statuses::encoded;

const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const STEP: i64 = 15_000;
/// Pods, milliseconds after the beginning, and the values of two functions: some at the very end of a step, some after it.
const UPLOADS: [(&str, i64, [i64; 2]); 12] = [
    ("a", 1, [7, 0]),
    ("a", 2, [8, 5]),
    ("b", 2, [100, 1]),
    ("a", 15_000, [4, 4]),
    ("b", 15_000, [10, 3]),
    ("a", 15_001, [1, 2]),
    ("b", 29_999, [50, 0]),
    ("b", 30_000, [51, 0]),
    ("a", 44_000, [1_000, 1]),
    ("a", 44_001, [1_000, 2]),
    ("a", 44_002, [1_001, 0]),
    ("b", 60_000, [9, 9]),
];

/// Points by pod and time, of all stacks or of those below a function.
fn model(start: i64, by_pod: bool, mean: bool, of_first: bool) -> BTreeMap<(String, i64), f64> {
    let mut steps: BTreeMap<(String, i64), (i64, i64)> = BTreeMap::new();
    for (pod, after, [first, second]) in UPLOADS {
        let pod = if by_pod { pod } else { "" };
        // A point has what came after the one before it.
        let at = start + (after + STEP - 1) / STEP * STEP;
        let step = steps.entry((pod.to_owned(), at)).or_default();
        step.0 += if of_first { first } else { first + second };
        step.1 += 1;
    }
    let value = |(sum, count): (i64, i64)| if mean { sum as f64 / count as f64 } else { sum as f64 };
    steps.into_iter().map(|(key, step)| (key, value(step))).collect()
}

fn asked(server: &TestServer, question: &Value) -> BTreeMap<(String, i64), f64> {
    let headers = [("content-type", "application/json")];
    let body = question.to_string();
    let answer = server.post("/querier.v1.QuerierService/SelectSeries", &headers, body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    let mut points = BTreeMap::new();
    for series in answer["series"].as_array().unwrap() {
        let pod = series.pointer("/labels/0/value").and_then(Value::as_str).unwrap_or_default();
        for point in series["points"].as_array().unwrap() {
            let at: i64 = point["timestamp"].as_str().unwrap().parse().unwrap();
            points.insert((pod.to_owned(), at), point["value"].as_f64().unwrap());
        }
    }
    points
}

#[test]
fn points_are_those_of_all_uploads() {
    let server = TestServer::start(|_| {});
    let start = Clock::system().wall().millis() / 1000 * 1000 - 600_000;
    for (pod, after, [first, second]) in UPLOADS {
        let (name, at) = (encoded(&format!("means.cpu{{pod={pod}}}")), start + after);
        let path = format!("/ingest?name={name}&sampleRate=1000000000&from={at}&until={}", at + 10);
        let taken = server.post(&path, &[], format!("main;first {first}\nmain;second {second}\n").as_bytes());
        assert_eq!(taken.status, 200, "{}", taken.text());
    }
    let compare = |place: &str| {
        for (by_pod, mean, of_first) in [
            (true, true, false),
            (true, false, false),
            (false, true, false),
            (false, false, false),
            (true, false, true),
        ] {
            let call_site = if of_first {
                json!(["main", "first"].map(|name| json!({ "name": name })))
            } else {
                json!([])
            };
            let question = json!({
                "profile_typeID": TYPE,
                "label_selector": r#"{service_name="means"}"#,
                "start": start,
                "end": start + 60_000,
                "step": STEP / 1000,
                "group_by": if by_pod { json!(["pod"]) } else { json!([]) },
                "aggregation": i32::from(mean),
                "stack_trace_selector": { "call_site": call_site },
            });
            let expected = model(start, by_pod, mean, of_first);
            assert_eq!(asked(&server, &question), expected, "{place}: {by_pod} {mean} {of_first}");
        }
    };
    compare("from memory");
    server.runtime.block_on(send_admin_request(server.folder.path(), "/flush")).expect("heads are cut");
    compare("from blocks");
}
