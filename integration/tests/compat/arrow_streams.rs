//! Results as Arrow streams equal the JSON API to the unit, over heads, blocks and both. pyarrow, Polars and DuckDB
//! read them.

use std::collections::BTreeMap;
use std::process::Command;

use athanor_arrow_format::{ARROW_STREAM_TYPE, SampleReader};
use athanor_chassis::Clock;
use athanor_integration::report_skipped;
use athanor_integration::server::{HttpResponse, TestServer};
use athanor_server::send_admin_request;
use serde_json::{Value, json};

mod notebooks;

const PROFILE_TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const SAMPLES_PATH: &str = "/athanor.v1.ExploreService/Samples";
const FUNCTIONS_PATH: &str = "/athanor.v1.ExploreService/Functions";
const TEST_TENANTS: [&str; 2] = ["shop", "other"];
/// Program that sums the streams of a folder with each library.
const READ_STREAMS: &str = include_str!("arrow_streams.py");

fn now_seconds() -> i64 {
    Clock::system().wall().millis() / 1_000
}

fn server() -> TestServer {
    TestServer::start(|config| config.multitenancy_enabled = true)
}

/// Pushes profiles of two pods for each tenant, at different times.
fn push_profiles(server: &TestServer, round: i64) {
    for (number, tenant) in TEST_TENANTS.iter().enumerate() {
        for pod in 0..2 {
            let from = now_seconds() - 600 + 20 * round + pod;
            let path =
                format!("/ingest?name=app%7Bpod%3Dp{pod}%7D&format=folded&from={from}&until={}", from + 10);
            let value = 10 * (round + 1) + pod + 100 * number as i64;
            let body = format!("main;work;hash {value}\nmain;round{round} {}\nmain 1\n", value + 1);
            let headers = [("x-scope-orgid", *tenant)];
            let pushed = server.post(&path, &headers, body.as_bytes());
            assert_eq!(pushed.status, 200, "{}", pushed.text());
        }
    }
}

fn flush(server: &TestServer) {
    server.runtime.block_on(send_admin_request(server.folder.path(), "/flush")).unwrap();
}

fn query() -> Value {
    let now = now_seconds() * 1_000;
    json!({ "profile_type": PROFILE_TYPE, "selector": "{}", "start": now - 3_600_000, "end": now + 60_000 })
}

fn call(server: &TestServer, tenant: &str, path: &str, accept: &str, request: &Value) -> HttpResponse {
    let headers = [("content-type", "application/json"), ("accept", accept), ("x-scope-orgid", tenant)];
    server.post(path, &headers, request.to_string().as_bytes())
}

fn call_arrow(server: &TestServer, tenant: &str, path: &str, request: &Value) -> Vec<u8> {
    let response = call(server, tenant, path, ARROW_STREAM_TYPE, request);
    assert_eq!(response.status, 200, "{path}: {}", String::from_utf8_lossy(&response.body));
    assert_eq!(response.header("content-type"), ARROW_STREAM_TYPE);
    response.body
}

/// Sums of a stream of samples by function: those of leaves.
fn self_sums(stream: &[u8]) -> BTreeMap<String, i64> {
    let mut reader = SampleReader::new(stream).unwrap();
    let mut sums = BTreeMap::new();
    while let Some(row) = reader.next() {
        let row = row.unwrap();
        let leaf = reader.dictionary().frame_names(row.stack).pop().unwrap();
        *sums.entry(leaf).or_default() += row.value;
    }
    sums
}

/// Self values of the JSON API by function.
fn functions_as_json(server: &TestServer, tenant: &str, query: &Value) -> BTreeMap<String, i64> {
    let request = json!({ "query": query, "page": { "limit": 1000 } });
    let table = server.call_json(tenant, &FUNCTIONS_PATH[1..], &request);
    let rows = table["rows"].as_array().cloned().unwrap_or_default();
    let value = |row: &Value| row["self"].as_str().map_or(0, |value| value.parse().unwrap());
    let sums = rows.iter().map(|row| (row["name"].as_str().unwrap().to_owned(), value(row)));
    sums.filter(|(_, value)| *value != 0).collect()
}

fn check_sums(server: &TestServer, when: &str) {
    let query = query();
    for tenant in TEST_TENANTS {
        let stream = call_arrow(server, tenant, SAMPLES_PATH, &json!({ "query": query }));
        let expected = functions_as_json(server, tenant, &query);
        assert!(!expected.is_empty(), "{when}");
        assert_eq!(self_sums(&stream), expected, "{when}, {tenant}");
    }
}

#[test]
fn samples_equal_the_json_api_over_heads_and_blocks() {
    let server = server();
    push_profiles(&server, 0);
    check_sums(&server, "heads");
    flush(&server);
    check_sums(&server, "blocks");
    push_profiles(&server, 1);
    check_sums(&server, "heads and blocks");
    let folder = server.folder.path().to_owned();
    let flushing = server.runtime.spawn(async move { send_admin_request(&folder, "/flush").await });
    check_sums(&server, "while a flush runs");
    server.runtime.block_on(flushing).unwrap().unwrap();
    check_sums(&server, "blocks of two flushes");
}

#[test]
fn pages_by_cursor_equal_one_stream_of_the_server() {
    let server = server();
    (0..3).for_each(|round| push_profiles(&server, round));
    flush(&server);
    push_profiles(&server, 3);
    let query = query();
    let whole = self_sums(&call_arrow(&server, "shop", SAMPLES_PATH, &json!({ "query": query })));
    let mut paged: BTreeMap<String, i64> = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let request = json!({ "query": query, "limit": 5, "cursor": cursor });
        let page = call_arrow(&server, "shop", SAMPLES_PATH, &request);
        let mut reader = SampleReader::new(page.as_slice()).unwrap();
        let rows = reader.by_ref().count();
        if rows > 0 {
            reader.cursor().clone_into(&mut cursor);
        }
        self_sums(&page).into_iter().for_each(|(name, value)| *paged.entry(name).or_default() += value);
        assert!(rows <= 5);
        if rows < 5 {
            break;
        }
    }
    assert_eq!(paged, whole);
    let of_other_tenant = json!({ "query": query, "cursor": cursor });
    let refused = call(&server, "other", SAMPLES_PATH, ARROW_STREAM_TYPE, &of_other_tenant);
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("cursor"), "{}", refused.text());
}

#[test]
fn unknown_accept_header_gets_json() {
    let server = server();
    push_profiles(&server, 0);
    for accept in ["*/*", "application/vnd.apache.arrow.file", "text/csv"] {
        let response = call(&server, "shop", FUNCTIONS_PATH, accept, &json!({ "query": query() }));
        assert_eq!((response.status, response.header("content-type")), (200, "application/json"), "{accept}");
    }
}

/// Requests of all calls with table-shaped responses.
fn table_requests() -> Vec<(&'static str, &'static str, Value)> {
    let query = query();
    let times = json!({ "start": query["start"], "end": query["end"] });
    let series = json!({
        "profile_typeID": PROFILE_TYPE, "label_selector": "{}", "start": query["start"], "end": query["end"],
        "step": 15, "group_by": ["pod"],
    });
    let mut before = query.clone();
    before["end"] = ((now_seconds() - 585) * 1_000).into();
    let mut values = times.clone();
    values["name"] = "pod".into();
    vec![
        ("samples", SAMPLES_PATH, json!({ "query": query })),
        ("functions", FUNCTIONS_PATH, json!({ "query": query, "page": { "limit": 1000 } })),
        ("lines", "/athanor.v1.ExploreService/Lines", json!({ "query": query, "function": "hash" })),
        ("changes", "/athanor.v1.ExploreService/Changes", json!({ "left": before, "right": query })),
        ("profiles", "/athanor.v1.ExploreService/Profiles", json!({ "query": query })),
        ("points", "/querier.v1.QuerierService/SelectSeries", series),
        ("values", "/querier.v1.QuerierService/LabelValues", values),
        ("series", "/querier.v1.QuerierService/Series", times),
    ]
}

#[test]
fn libraries_of_python_read_every_stream() {
    #[expect(clippy::disallowed_methods, reason = "the test's own switch")]
    let python = std::env::var("ATHANOR_PYTHON").unwrap_or_else(|_| "python3".into());
    let has = Command::new(&python).args(["-c", "import duckdb, polars, pyarrow"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        report_skipped(
            "libraries_of_python_read_every_stream: no Python with pyarrow, Polars and DuckDB",
            "",
        );
        return;
    }
    let server = server();
    push_profiles(&server, 0);
    flush(&server);
    push_profiles(&server, 1);
    let folder = tempfile::tempdir().unwrap();
    for (name, path, request) in table_requests() {
        let stream = call_arrow(&server, "shop", path, &request);
        std::fs::write(folder.path().join(format!("{name}.arrow")), stream).unwrap();
    }
    let output = Command::new(python).args(["-c", READ_STREAMS]).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = json!(functions_as_json(&server, "shop", &query()));
    let total: i64 = functions_as_json(&server, "shop", &query()).values().sum();
    for library in ["pyarrow", "polars", "duckdb"] {
        assert_eq!(found[library]["self_by_function"], expected, "{library}");
        assert_eq!(found[library]["total"], total, "{library}");
        assert_eq!(found[library]["functions"], expected, "{library}");
        assert_eq!(found[library]["by_pod"].as_object().unwrap().len(), 2, "{library}");
        let rows = found[library]["rows"].as_object().unwrap();
        assert!(
            rows.len() == 8 && rows.values().all(|count| count.as_i64() > Some(0)),
            "{library}: {rows:?}"
        );
    }
    assert_eq!(found["pyarrow"]["by_pod"], found["duckdb"]["by_pod"]);
    assert_eq!(found["pyarrow"]["by_pod"], found["polars"]["by_pod"]);
    assert_eq!(found["unit"], "nanoseconds");
}
