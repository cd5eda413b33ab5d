//! A block that the bucket has lost, or that is damaged: whoever is asked says so, in the header and in the answer itself,
//! and answers what can be read.

use std::path::PathBuf;

use athanor_chassis::Clock;
use athanor_integration::server::{HttpResponse, TestServer};
use athanor_server::send_admin_request;
use serde_json::{Value, json};

const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
/// Says nothing of blocks that it need not read.
const UNREAD: &str = "GetProfileStats";

/// What a block comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Harm {
    /// The bucket has it no more.
    Lost,
    /// A bit of each file is flipped.
    Flipped,
    /// Each file ends too early.
    Cut,
}

impl Harm {
    /// What is said of it.
    fn said(self) -> &'static str {
        match self {
            Harm::Lost => "listed, but missing in the bucket",
            Harm::Flipped | Harm::Cut => "damaged: block ",
        }
    }
}

/// The files of all blocks, without what each says of itself.
fn files(server: &TestServer) -> Vec<PathBuf> {
    let of = |folder: PathBuf| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let blocks = of(server.folder.path().join("bucket/blocks/_shared"));
    let files = blocks.flat_map(of).filter(|file| file.extension().is_some_and(|kind| kind == "parquet"));
    files.collect()
}

fn flip(server: &TestServer) {
    for file in files(server) {
        let mut bytes = std::fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 16;
        std::fs::write(file, bytes).unwrap();
    }
}

/// A server that has two profiles: one in a block that comes to harm, one in its head.
fn with(harm: Harm) -> TestServer {
    let server = TestServer::start(|_| ());
    let push = |stack: &str| {
        let pushed = server.post("/ingest?name=shop&format=folded", &[], stack.as_bytes());
        assert_eq!(pushed.status, 200, "{}", pushed.text());
    };
    push("main;lost 1\n");
    server.runtime.block_on(send_admin_request(server.folder.path(), "/flush")).unwrap();
    push("main;found 1\n");
    let blocks = server.folder.path().join("bucket/blocks/_shared");
    match harm {
        Harm::Lost => {
            for block in std::fs::read_dir(blocks).unwrap() {
                std::fs::remove_dir_all(block.unwrap().path()).unwrap();
            }
        }
        Harm::Flipped => flip(&server),
        Harm::Cut => {
            for file in files(&server) {
                let bytes = std::fs::read(&file).unwrap();
                std::fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
            }
        }
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

fn told(answer: &HttpResponse, harm: Harm, what: &str) {
    assert_eq!(answer.status, 200, "{what}: {}", answer.text());
    assert_eq!(answer.header("athanor-partial-response"), "true", "{what}: {:?}", answer.headers);
    let said = answer.header("athanor-warnings");
    assert!(said.contains(harm.said()), "{what}: {:?}", answer.headers);
    assert!(harm == Harm::Lost || said.contains(".parquet"), "{what}: {said}");
}

fn every_call_says(harm: Harm) -> TestServer {
    let server = with(harm);
    for (path, question) in questions() {
        let body = serde_json::to_vec(&question).unwrap();
        let answer = server.post(&path, &[("content-type", "application/json")], &body);
        if path.ends_with(UNREAD) {
            assert_eq!(answer.header("athanor-partial-response"), "");
            continue;
        }
        told(&answer, harm, &path);
        let shown: Value = serde_json::from_slice(&answer.body).unwrap();
        let in_comments = |profile: &Value| {
            let comments = profile["comment"].as_array().unwrap().iter();
            let places = comments.map(|place| place.as_str().unwrap().parse::<usize>().unwrap());
            places.map(|place| profile["stringTable"][place].to_string()).collect::<String>()
        };
        let warnings = match path.rsplit('/').next().unwrap() {
            "SelectMergeProfile" => in_comments(&shown),
            _ if shown.get("pprof").is_some() => {
                in_comments(&shown["pprof"]["profile"]) + &shown["warnings"].to_string()
            }
            _ => shown["warnings"].to_string(),
        };
        assert!(warnings.contains(harm.said()), "{path}: {shown}");
        // What is not whole is not told again as if it were.
        let again = server.post(&path, &[("content-type", "application/json")], &body);
        told(&again, harm, &path);
    }
    server
}

#[test]
fn every_call_says_that_a_block_is_gone() {
    every_call_says(Harm::Lost);
}

#[test]
fn every_call_says_that_a_file_is_cut_short() {
    every_call_says(Harm::Cut);
}

#[test]
fn every_call_says_that_a_block_is_damaged_and_is_whole_when_it_is_mended() {
    let server = every_call_says(Harm::Flipped);
    let (path, question) = questions().remove(4);
    let body = serde_json::to_vec(&question).unwrap();
    let ask = || server.post(&path, &[("content-type", "application/json")], &body);
    let answer = ask();
    assert!(answer.text().contains("found") && !answer.text().contains("lost"), "{}", answer.text());
    let page = server.get("/metrics", &[]);
    let counted = "athanor_querier_skipped_blocks_total{reason=\"damaged\"} ";
    let counted = page.text().lines().find_map(|line| line.strip_prefix(counted)).unwrap();
    assert!(counted.parse::<f64>().unwrap() > 40.0, "{counted}");
    flip(&server);
    let answer = ask();
    assert_eq!(answer.header("athanor-partial-response"), "", "{}", answer.text());
    assert!(answer.text().contains("found") && answer.text().contains("lost"), "{}", answer.text());
}

#[test]
fn so_does_whatever_is_read_by_a_url() {
    for harm in [Harm::Lost, Harm::Flipped] {
        by_a_url(harm);
    }
}

fn by_a_url(harm: Harm) {
    let server = with(harm);
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
        assert!(answer.header("athanor-warnings").contains(harm.said()), "{path}: {:?}", answer.headers);
        let body = inflated(&answer.body);
        let is_said = body.windows(harm.said().len()).any(|bytes| bytes == harm.said().as_bytes());
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

/// Blocks alone have part in the answer, so that it could be told again without reading.
#[test]
fn what_is_not_whole_is_not_told_again_as_if_it_were() {
    let server = TestServer::start(|_| ());
    let from = Clock::system().wall().millis() / 1000 - 1_800;
    for (name, at) in [("lost", from), ("found", from + 20)] {
        let path = format!("/ingest?name=shop&format=folded&from={at}&until={}", at + 10);
        assert_eq!(server.post(&path, &[], format!("main;{name} 1\n").as_bytes()).status, 200);
        server.runtime.block_on(send_admin_request(server.folder.path(), "/flush")).unwrap();
        if name == "lost" {
            flip(&server);
        }
    }
    let (start, end) = ((from - 60) * 1000, (from + 60) * 1000);
    let ask = json!({ "profile_typeID": TYPE, "label_selector": "{}", "start": start, "end": end });
    let body = serde_json::to_vec(&ask).unwrap();
    let path = "/querier.v1.QuerierService/SelectMergeStacktraces";
    for _ in 0..3 {
        let answer = server.post(path, &[("content-type", "application/json")], &body);
        told(&answer, Harm::Flipped, path);
        assert!(answer.text().contains("found") && !answer.text().contains("lost"), "{}", answer.text());
    }
}
