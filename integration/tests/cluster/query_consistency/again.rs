//! What was told is told again as long as nothing in memory belongs into it, of the node that is asked or of another.

use std::net::SocketAddr;

use athanor_integration::server::send_request;
use serde_json::{Value, json};

use crate::query_consistency::kept::{COLLECT, RECORDS, TIME, ask, body, heads_stay, three};
use crate::query_consistency::profiles::TYPE;

/// Rounds, in each of which something comes that changes all answers.
const ROUNDS: usize = 2;
/// What is measured for the first time in each.
const KINDS: [&str; ROUNDS] = ["wall", "alloc_space"];

/// Stores a type, a label and a service that were not there.
fn store(at: SocketAddr, round: usize) {
    for kind in ["cpu", KINDS[round]] {
        let from = TIME + round as i64;
        let path = format!(
            "POST /ingest?name=shop{round}.{kind}%7Bwave{round}=x%7D&from={from}&until={}",
            from + 10
        );
        let stored =
            send_request(at, &path, &[("x-scope-orgid", "acme")], b"main;serve;work 70\nmain;idle 3\n");
        assert_eq!(stored.status, 200, "{}", stored.text());
    }
}

/// Each call, and what it asks.
fn calls() -> Vec<(String, Value)> {
    let (start, end) = ((TIME - 100) * 1_000, (TIME + 100) * 1_000);
    let merge = json!({ "profileTypeID": TYPE, "labelSelector": "{}", "start": start, "end": end });
    let with = |more: Value| {
        let mut request = merge.clone();
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    let query = json!({ "profileType": TYPE, "selector": "{}", "start": start, "end": end });
    let range = json!({ "start": start, "end": end });
    let name = json!({ "name": "service_name", "start": start, "end": end });
    let querier = [
        ("SelectMergeStacktraces", merge.clone()),
        ("SelectMergeProfile", merge.clone()),
        ("SelectMergeSpanProfile", merge.clone()),
        ("SelectSeries", with(json!({ "step": 10 }))),
        ("SelectHeatmap", with(json!({ "step": 10, "queryType": "HEATMAP_QUERY_TYPE_INDIVIDUAL" }))),
        ("Diff", json!({ "left": merge, "right": merge })),
        ("ProfileTypes", range.clone()),
        ("LabelNames", range.clone()),
        ("LabelValues", name),
        ("Series", range),
        ("AnalyzeQuery", json!({ "query": "{}", "start": start, "end": end })),
    ];
    let explore = [
        ("Functions", json!({ "query": query })),
        ("Sandwich", json!({ "query": query, "function": "serve" })),
        ("Lines", json!({ "query": query, "function": "work" })),
        ("Subtree", json!({ "query": query, "path": ["main", "serve"] })),
        ("Changes", json!({ "left": query, "right": query })),
        ("Profiles", json!({ "query": query })),
    ];
    let querier = querier.map(|(call, of)| (format!("POST /querier.v1.QuerierService/{call}"), of));
    let explore = explore.map(|(call, of)| (format!("POST /athanor.v1.ExploreService/{call}"), of));
    let text = format!("{TYPE}%7B%7D");
    let times = |from: &str, until: &str| format!("{from}={}&{until}={}", TIME - 100, TIME + 100);
    let render = format!("GET /pyroscope/render?query={text}&{}", times("from", "until"));
    let diff = format!(
        "GET /pyroscope/render-diff?leftQuery={text}&{}&rightQuery={text}&{}",
        times("leftFrom", "leftUntil"),
        times("rightFrom", "rightUntil")
    );
    let values = format!("GET /pyroscope/label-values?label=__name__&{}", times("from", "until"));
    let pages = [format!("{render}&format=dot"), render, format!("{diff}&format=dot"), diff, values];
    querier.into_iter().chain(explore).chain(pages.map(|page| (page, Value::Null))).collect()
}

/// Whether an answer was kept, and what it is.
fn told(at: SocketAddr, (call, request): &(String, Value)) -> (bool, String) {
    let request = if request.is_null() { String::new() } else { request.to_string() };
    let answer = ask(at, call, "acme", &[COLLECT], &request);
    assert_eq!(answer.status, 200, "{call}: {}", answer.text());
    let id = answer.header("x-pyroscope-diagnostics-id");
    let record = body(&ask(at, &format!("{RECORDS}/{id}"), "acme", &[], ""));
    assert_eq!(record["coalesced"], false, "{call}");
    (record["fromResultsCache"].as_bool().unwrap(), answer.text().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_told_again_until_something_comes() {
    let cluster = three(heads_stay).await;
    let (doors, calls) = (["a", "b"].map(|name| cluster.node(name).address()), calls());
    let mut before = vec![String::new(); calls.len()];
    for round in 0..ROUNDS {
        store(doors[0], round);
        for (call, before) in calls.iter().zip(&mut before) {
            for at in doors {
                for _ in 0..2 {
                    let (is_kept, answer) = told(at, call);
                    assert!(
                        !is_kept && answer != *before,
                        "{}: what lies in memory is in it: {answer}",
                        call.0
                    );
                }
            }
        }
        cluster.flush_all(1).await;
        for (call, before) in calls.iter().zip(&mut before) {
            for at in doors {
                let (is_kept, answer) = told(at, call);
                assert!(!is_kept, "{}", call.0);
                // Where nobody says soon enough that it holds, it is found anew.
                let again = async {
                    loop {
                        let (is_kept, again) = told(at, call);
                        assert_eq!(again, answer, "{}", call.0);
                        if is_kept {
                            return;
                        }
                        cluster.sleep_briefly().await;
                    }
                };
                cluster.run_with_deadline(&call.0, again).await;
                *before = answer;
            }
        }
    }
}
