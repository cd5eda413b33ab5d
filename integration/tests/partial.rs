//! A block that the bucket has lost: whoever is asked says so, in the header and in the answer itself.

#![allow(clippy::unwrap_used)]

use athanor_chassis::Clock;
use athanor_integration::server::{Answer, Server};
use athanor_server::request;
use serde_json::{Value, json};

const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const SAID: &str = "listed, but not in the bucket";
/// Says nothing of blocks that it need not read.
const UNREAD: &str = "GetProfileStats";

/// A server that has two profiles: one in a block that the bucket has lost, one in its head.
fn with_a_lost_block() -> Server {
    let server = Server::start(|_| ());
    let push = |stack: &str| {
        let pushed = server.post("/ingest?name=shop&format=folded", &[], stack.as_bytes());
        assert_eq!(pushed.status, 200, "{}", pushed.text());
    };
    push("main;lost 1\n");
    server.runtime.block_on(request(server.folder.path(), "/cut")).unwrap();
    push("main;found 1\n");
    let blocks = server.folder.path().join("bucket/blocks/_shared");
    for block in std::fs::read_dir(blocks).unwrap() {
        std::fs::remove_dir_all(block.unwrap().path()).unwrap();
    }
    server
}

/// All calls that ask for profiles, by what they ask.
fn questions() -> Vec<(String, Value)> {
    let now = Clock::system().wall().millis();
    let (start, end) = (now - 3_600_000, now + 60_000);
    let times = json!({ "start": start, "end": end });
    let about = json!({ "profile_typeID": TYPE, "label_selector": "{}", "start": start, "end": end });
    let with = |of: &Value, more: Value| {
        let mut of = of.clone();
        of.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        of
    };
    let query = json!({ "profile_type": TYPE, "selector": "{}", "start": start, "end": end });
    let explored = |more: Value| with(&json!({ "query": query }), more);
    let heat = json!({ "step": 15, "query_type": "HEATMAP_QUERY_TYPE_INDIVIDUAL" });
    let queries = [
        ("ProfileTypes", times.clone()),
        ("LabelNames", times.clone()),
        ("LabelValues", with(&times, json!({ "name": "service_name" }))),
        ("Series", with(&times, json!({ "label_names": ["service_name"] }))),
        ("SelectMergeStacktraces", about.clone()),
        ("SelectMergeStacktraces", with(&about, json!({ "format": "PROFILE_FORMAT_TREE" }))),
        ("SelectMergeStacktraces", with(&about, json!({ "format": "PROFILE_FORMAT_DOT" }))),
        ("SelectMergeStacktraces", with(&about, json!({ "format": "PROFILE_FORMAT_PPROF" }))),
        ("SelectMergeSpanProfile", about.clone()),
        ("SelectMergeProfile", about.clone()),
        ("SelectSeries", with(&about, json!({ "step": 15 }))),
        ("SelectHeatmap", with(&about, heat)),
        ("Diff", json!({ "left": about, "right": about })),
        (UNREAD, json!({})),
        ("AnalyzeQuery", with(&times, json!({ "query": "{}" }))),
    ];
    let explores = [
        ("Functions", explored(json!({}))),
        ("Sandwich", explored(json!({ "function": "main" }))),
        ("Lines", explored(json!({ "function": "main" }))),
        ("Subtree", explored(json!({ "path": ["main"] }))),
        ("Subtree", explored(json!({ "path": ["nowhere"] }))),
        ("Changes", json!({ "left": query, "right": query })),
        ("Profiles", explored(json!({}))),
    ];
    let of = |service: &'static str| move |(name, ask): (&str, Value)| (format!("/{service}/{name}"), ask);
    queries
        .into_iter()
        .map(of("querier.v1.QuerierService"))
        .chain(explores.into_iter().map(of("athanor.v1.ExploreService")))
        .collect()
}

fn told(answer: &Answer, what: &str) {
    assert_eq!(answer.status, 200, "{what}: {}", answer.text());
    assert!(answer.header("athanor-partial").contains(SAID), "{what}: {:?}", answer.headers);
}

#[test]
fn every_call_says_what_its_answer_lacks() {
    let server = with_a_lost_block();
    for (path, question) in questions() {
        let body = serde_json::to_vec(&question).unwrap();
        let answer = server.post(&path, &[("content-type", "application/json")], &body);
        if path.ends_with(UNREAD) {
            assert_eq!(answer.header("athanor-partial"), "");
            continue;
        }
        told(&answer, &path);
        let shown: Value = serde_json::from_slice(&answer.body).unwrap();
        let in_comments = |profile: &Value| {
            let comments = profile["comment"].as_array().unwrap().iter();
            let places = comments.map(|place| place.as_str().unwrap().parse::<usize>().unwrap());
            places.map(|place| profile["stringTable"][place].to_string()).collect::<String>()
        };
        let missing = match path.rsplit('/').next().unwrap() {
            "SelectMergeProfile" => in_comments(&shown),
            _ if shown.get("pprof").is_some() => {
                in_comments(&shown["pprof"]["profile"]) + &shown["missing"].to_string()
            }
            _ => shown["missing"].to_string(),
        };
        assert!(missing.contains(SAID), "{path}: {shown}");
    }
}

#[test]
fn so_does_whatever_is_read_by_a_url() {
    let server = with_a_lost_block();
    let query = "query=process_cpu:cpu:nanoseconds:cpu:nanoseconds%7B%7D&from=now-1h";
    let sides = query.replace("query=", "leftQuery=").replace("from=", "leftFrom=");
    let sides = format!("{sides}&{}", query.replace("query=", "rightQuery=").replace("from=", "rightFrom="));
    // Whether there is a place for it in the answer.
    for (path, has_place) in [
        (format!("/pyroscope/render?{query}"), true),
        (format!("/pyroscope/render?{query}&format=dot"), true),
        (format!("/pyroscope/render-diff?{sides}"), true),
        (format!("/pyroscope/render-diff?{sides}&format=dot"), true),
        ("/pyroscope/label-values?label=service_name".to_owned(), false),
        (format!("/athanor/export?{query}&format=folded"), false),
        (format!("/athanor/export?{query}&format=dot"), true),
        (format!("/athanor/export?{query}&format=pprof"), true),
        (format!("/athanor/export?{query}&format=speedscope"), true),
        (format!("/athanor/export?{query}&format=otlp"), true),
    ] {
        let answer = server.get(&path, &[]);
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.header("athanor-partial").contains(SAID), "{path}: {:?}", answer.headers);
        let body = inflated(&answer.body);
        let is_said = body.windows(SAID.len()).any(|bytes| bytes == SAID.as_bytes());
        assert_eq!(is_said, has_place, "{path}: {}", String::from_utf8_lossy(&body));
    }
}

/// What pprof is packed into.
fn inflated(body: &[u8]) -> Vec<u8> {
    if !body.starts_with(&[0x1f, 0x8b]) {
        return body.to_vec();
    }
    let mut out = vec![0; 1 << 20];
    let read = libdeflater::Decompressor::new().gzip_decompress(body, &mut out).unwrap();
    out.truncate(read);
    out
}
