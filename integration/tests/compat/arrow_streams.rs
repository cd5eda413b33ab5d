//! Results as Arrow streams equal the JSON API to the unit, over heads, blocks and both. pyarrow, Polars and DuckDB
//! read them.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use arrow_ipc::reader::StreamReader;
use athanor_arrow_format::{ARROW_STREAM_TYPE, SampleReader, StreamMetadata};
use athanor_chassis::Clock;
use athanor_integration::report_skipped;
use athanor_integration::server::{HttpResponse, TestServer};
use athanor_server::send_admin_request;
use serde_json::{Value, json};

mod notebooks;
mod slow_clients;

const PROFILE_TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const SAMPLES_PATH: &str = "/athanor.v1.ExploreService/Samples";
const FUNCTIONS_PATH: &str = "/athanor.v1.ExploreService/Functions";
const TEST_TENANTS: [&str; 2] = ["shop", "other"];
/// Program that sums the streams of a folder with each library.
const READ_STREAMS: &str = include_str!("arrow_streams/read_streams.py");

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

/// Sums of a result by function, by pod and over all.
#[derive(Debug, Default, PartialEq, Eq)]
struct ResultSums {
    /// Self and total value of each function.
    functions: BTreeMap<String, FunctionSums>,
    pods: BTreeMap<String, i64>,
    total: i64,
}

/// Values of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FunctionSums {
    own: i64,
    total: i64,
}

/// Returns the sums of a stream of samples.
fn sums_of_stream(stream: &[u8]) -> ResultSums {
    let mut reader = SampleReader::new(stream).unwrap();
    let mut sums = ResultSums::default();
    while let Some(row) = reader.next() {
        let row = row.unwrap();
        let mut names = reader.dictionary().frame_names(row.stack);
        sums.functions.entry(names.last().unwrap().clone()).or_default().own += row.value;
        names.sort();
        names.dedup();
        names.into_iter().for_each(|name| sums.functions.entry(name).or_default().total += row.value);
        *sums.pods.entry(row.labels.get("pod").unwrap().to_owned()).or_default() += row.value;
        sums.total += row.value;
    }
    sums
}

/// Self values of a stream of samples by function.
fn self_sums(stream: &[u8]) -> BTreeMap<String, i64> {
    self_values(&sums_of_stream(stream))
}

/// Self values by function, without functions that have none.
fn self_values(sums: &ResultSums) -> BTreeMap<String, i64> {
    let values = sums.functions.iter().map(|(name, function)| (name.clone(), function.own));
    values.filter(|(_, value)| *value != 0).collect()
}

/// Returns a number of JSON, which is a text. Zero is left out.
fn number(value: &Value) -> i64 {
    value.as_str().map_or(0, |text| text.parse().unwrap())
}

fn function_table(server: &TestServer, tenant: &str, query: &Value) -> Value {
    let request = json!({ "query": query, "page": { "limit": 1000 } });
    server.call_json(tenant, &FUNCTIONS_PATH[1..], &request)
}

/// Returns the sums of the JSON API.
fn sums_of_json(server: &TestServer, tenant: &str, query: &Value) -> ResultSums {
    let table = function_table(server, tenant, query);
    let rows = table["rows"].as_array().cloned().unwrap_or_default();
    let functions = rows.iter().map(|row| {
        let sums = FunctionSums { own: number(&row["self"]), total: number(&row["total"]) };
        (row["name"].as_str().unwrap().to_owned(), sums)
    });
    let pods = ["p0", "p1"].map(|pod| {
        let mut of_pod = query.clone();
        of_pod["selector"] = format!("{{pod=\"{pod}\"}}").into();
        (pod.to_owned(), number(&function_table(server, tenant, &of_pod)["total"]))
    });
    ResultSums { functions: functions.collect(), pods: pods.into(), total: number(&table["total"]) }
}

/// Self values of the JSON API by function.
fn functions_as_json(server: &TestServer, tenant: &str, query: &Value) -> BTreeMap<String, i64> {
    self_values(&sums_of_json(server, tenant, query))
}

/// Checks that the stream of each tenant has the sums of the JSON API. Returns those of the stream.
fn check_sums(server: &TestServer, when: &str) -> [ResultSums; 2] {
    let query = query();
    TEST_TENANTS.map(|tenant| {
        let stream = call_arrow(server, tenant, SAMPLES_PATH, &json!({ "query": query }));
        let sums = sums_of_stream(&stream);
        assert!(sums.total > 0, "{when}");
        assert_eq!(sums, sums_of_json(server, tenant, &query), "{when}, {tenant}");
        sums
    })
}

#[test]
fn samples_equal_the_json_api_over_heads_and_blocks() {
    let server = server();
    push_profiles(&server, 0);
    let of_heads = check_sums(&server, "heads");
    assert_ne!(of_heads[0], of_heads[1]);
    flush(&server);
    assert_eq!(check_sums(&server, "blocks"), of_heads);
    push_profiles(&server, 1);
    let of_both = check_sums(&server, "heads and blocks");
    let folder = server.folder.path().to_owned();
    let flushing = server.runtime.spawn(async move { send_admin_request(&folder, "/flush").await });
    loop {
        let is_flushed = flushing.is_finished();
        assert_eq!(check_sums(&server, "while a flush runs"), of_both);
        if is_flushed {
            break;
        }
    }
    server.runtime.block_on(flushing).unwrap().unwrap();
    assert_eq!(check_sums(&server, "blocks of two flushes"), of_both);
}

#[test]
fn partial_streams_carry_warnings_in_metadata_and_header() {
    let server = server();
    push_profiles(&server, 0);
    let complete = call(&server, "shop", SAMPLES_PATH, ARROW_STREAM_TYPE, &json!({ "query": query() }));
    assert_eq!(complete.header("athanor-partial-response"), "");
    flush(&server);
    push_profiles(&server, 1);
    for block in std::fs::read_dir(server.folder.path().join("bucket/blocks/_shared")).unwrap() {
        std::fs::remove_dir_all(block.unwrap().path()).unwrap();
    }
    let missing = "listed, but missing in the bucket";
    for path in [SAMPLES_PATH, FUNCTIONS_PATH] {
        let response = call(&server, "shop", path, ARROW_STREAM_TYPE, &json!({ "query": query() }));
        assert_eq!(response.status, 200, "{path}");
        assert_eq!(response.header("athanor-partial-response"), "true", "{path}: {:?}", response.headers);
        assert!(response.header("athanor-warnings").contains(missing), "{path}: {:?}", response.headers);
        let schema = StreamReader::try_new(response.body.as_slice(), None).unwrap().schema();
        let warnings = StreamMetadata::from_entries(schema.metadata()).warnings;
        assert!(warnings.iter().any(|warning| warning.contains(missing)), "{path}: {warnings:?}");
    }
    let rest = call_arrow(&server, "shop", SAMPLES_PATH, &json!({ "query": query() }));
    let sums = sums_of_stream(&rest);
    assert!(sums.functions.contains_key("round1") && !sums.functions.contains_key("round0"), "{sums:?}");
    assert_eq!(sums, sums_of_json(&server, "shop", &query()));
}

#[test]
fn refused_requests_name_the_parameter() {
    let server = TestServer::start(|config| {
        config.multitenancy_enabled = true;
        config.limits.max_query_length = Some(Duration::from_hours(2));
    });
    push_profiles(&server, 0);
    let mut long = query();
    long["start"] = (now_seconds() * 1_000 - 3 * 3_600_000).into();
    let mut other_type = query();
    other_type["profile_type"] = "memory:alloc_space:bytes:space:bytes".into();
    let cases = [
        (json!({ "query": query(), "columns": ["stacks"] }), 400, "columns has \"stacks\""),
        (json!({ "query": query(), "limit": 0 }), 400, "limit is 0"),
        (json!({ "query": query(), "limit": "9223372036854775808" }), 400, "limit is 9223372036854775808"),
        (json!({ "query": query(), "cursor": "AAAA" }), 400, "cursor has 4 characters"),
        (json!({ "query": long }), 400, "query.start"),
        (json!({ "query": other_type }), 404, "query.profile_type"),
    ];
    for (request, status, named) in cases {
        let refused = call(&server, "shop", SAMPLES_PATH, ARROW_STREAM_TYPE, &request);
        assert_eq!(refused.status, status, "{request}: {}", refused.text());
        assert!(
            refused.text().contains(named.replace('"', "\\\"").as_str()),
            "{request}: {}",
            refused.text()
        );
        assert_eq!(refused.header("content-type"), "application/json", "{request}");
    }
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

#[test]
fn function_table_has_the_numbers_of_the_message() {
    let server = server();
    push_profiles(&server, 0);
    let filter = json!({ "regex": "work|hash" });
    let request = json!({ "query": query(), "filter": filter, "page": { "limit": 1 } });
    let message = server.call_json("shop", &FUNCTIONS_PATH[1..], &request);
    let stream = call_arrow(&server, "shop", FUNCTIONS_PATH, &request);
    let schema = StreamReader::try_new(stream.as_slice(), None).unwrap().schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["name", "self", "total", "file", "binary"]);
    let metadata = schema.metadata();
    let numbers = [("total", "total"), ("count", "count"), ("matched_self", "matchedSelf")];
    for (key, field) in numbers.into_iter().chain([("matched_total", "matchedTotal"), ("period", "period")]) {
        let found: i64 = metadata[&format!("athanor.{key}")].parse().unwrap();
        assert_eq!(found, number(&message[field]), "{key}");
    }
    assert!(number(&message["matchedTotal"]) > 0 && number(&message["count"]) == 2, "{message}");
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
