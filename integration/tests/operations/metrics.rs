//! `/metrics` is well-formed, and its numbers are those of what happened.

use std::collections::{BTreeMap, BTreeSet};

use athanor_server::{describe_all_metrics, send_admin_request};

use crate::exposition::{Family, read};
use athanor_integration::server::TestServer;

const JSON: (&str, &str) = ("content-type", "application/json");

type Page = BTreeMap<String, Family>;

fn page(server: &TestServer, open_metrics: bool) -> Page {
    let accept =
        if open_metrics { "application/openmetrics-text;version=1.0.0,text/plain;q=0.5" } else { "*/*" };
    let answer = server.get("/metrics", &[("accept", accept)]);
    let kind = if open_metrics { "application/openmetrics-text" } else { "text/plain; version=0.0.4" };
    assert!(answer.header("content-type").starts_with(kind), "{:?}", answer.headers);
    read(answer.text(), open_metrics)
}

/// The value of a sample, by its name and as much of its labels as is given; nothing if there is none.
fn value(page: &Page, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let family = page.values().find(|family| family.samples.iter().any(|(sample, ..)| sample == name))?;
    let has = |have: &[(String, String)]| {
        labels.iter().all(|(name, value)| have.iter().any(|(n, v)| n == name && v == value))
    };
    let found = family.samples.iter().filter(|(sample, have, _)| sample == name && has(have));
    found.map(|(.., value)| *value).reduce(|left, right| left + right)
}

fn tenant(name: &str) -> (&str, &str) {
    ("x-scope-orgid", name)
}

fn ingest(server: &TestServer, who: &str, query: &str, body: &str) -> u16 {
    server.post(&format!("/ingest?format=folded&{query}"), &[tenant(who)], body.as_bytes()).status
}

/// What the test does to a server with tenants.
fn work(server: &TestServer) {
    let at = "name=shop.cpu&from=now-1m";
    assert_eq!(ingest(server, "a", at, "main;f 3\n"), 200);
    // Without a time, a repeat cannot be told; with one it can.
    let push = |body: &str| server.post("/push.v1.PusherService/Push", &[tenant("a"), JSON], body.as_bytes());
    assert_eq!(ingest(server, "a", "name=shop.cpu&from=now-1h20m", "main;f 3\n"), 400);
    let long = format!(
        r#"{{"series":[{{"labels":[{{"name":"{}","value":"x"}}],"samples":[{{"rawProfile":"AA=="}},{{"rawProfile":"AA=="}}]}}]}}"#,
        "n".repeat(2000)
    );
    assert_eq!(push(&long).status, 400);
    assert_eq!(
        push(
            r#"{"series":[{"labels":[{"name":"__name__","value":"cpu"}],"samples":[{"rawProfile":"AA=="}]}]}"#
        )
        .status,
        400
    );
    assert_eq!(push("{").status, 400);
    assert_eq!(push("{}").status, 400);
    assert_eq!(server.post("/ingest?name=x", &[], b"a 1\n").status, 401);
    let query = "process_cpu:cpu:nanoseconds:cpu:nanoseconds%7B%7D";
    let render = format!("/pyroscope/render?query={query}&from=now-1h&until=now");
    assert_eq!(server.get(&render, &[tenant("a")]).status, 200);
    server.runtime.block_on(send_admin_request(server.folder.path(), "/flush")).unwrap();
    assert_eq!(server.get(&render, &[tenant("a")]).status, 200);
    assert_eq!(server.get(&render, &[tenant("a")]).status, 200);
    assert_eq!(server.get("/nowhere", &[]).status, 404);
}

#[test]
fn what_happened_is_counted() {
    let server = TestServer::start(|config| config.multitenancy_enabled = true);
    work(&server);
    let page = page(&server, false);
    let is = |name: &str, labels: &[(&str, &str)], expected: f64| {
        assert_eq!(value(&page, name, labels), Some(expected), "{name}{labels:?}");
    };
    let a = ("tenant", "a");
    is("athanor_distributor_received_profiles_total", &[a], 5.0);
    is("athanor_distributor_accepted_profiles_total", &[a], 1.0);
    is("athanor_distributor_received_samples_total", &[a], 1.0);
    for (reason, profiles) in
        [("not_in_ingestion_window", 1.0), ("label_name_too_long", 2.0), ("malformed_profile", 1.0)]
    {
        is("athanor_discarded_profiles_total", &[a, ("reason", reason)], profiles);
    }
    is("athanor_discarded_bytes_total", &[a, ("reason", "label_name_too_long")], 2.0);
    is("athanor_discarded_requests_total", &[a, ("reason", "invalid")], 1.0);
    is("athanor_discarded_requests_total", &[a, ("reason", "missing_profiles")], 1.0);
    is("athanor_http_requests_total", &[("route", "/ingest"), ("code", "200")], 1.0);
    is("athanor_http_requests_total", &[("route", "/ingest"), ("code", "401")], 1.0);
    is("athanor_http_requests_total", &[("route", "none"), ("code", "404")], 1.0);
    is("athanor_http_request_duration_seconds_count", &[("route", "/pyroscope/render")], 3.0);
    is("athanor_http_requests_in_flight", &[("route", "/metrics")], 1.0);
    is("athanor_ingester_flush_duration_seconds_count", &[("shard", "1")], 1.0);
    is("athanor_ingester_flush_objects_total", &[("shard", "1")], 10.0);
    is("athanor_ingester_flush_failures_total", &[("shard", "1")], 0.0);
    is("athanor_ingester_dedup_window_ids", &[("shard", "1")], 1.0);
    is("athanor_ingester_unflushed_bytes", &[("shard", "1")], 0.0);
    is("athanor_metastore_blocks", &[], 1.0);
    is("athanor_wal_failed", &[], 0.0);
    is("athanor_ready", &[], 1.0);
    is("athanor_querier_queries_in_flight", &[], 0.0);
    is("athanor_querier_queries_in_flight_limit", &[], 64.0);
    is("athanor_querier_queries_queued", &[], 0.0);
    is("athanor_querier_async_queries_running", &[], 0.0);
    is("athanor_querier_async_results_limit_bytes", &[], (256 << 20) as f64);
    is("athanor_querier_queries_quarantined", &[], 0.0);
    is("athanor_querier_queries_panics_total", &[], 0.0);
    is("athanor_querier_queries_rejected_total", &[("reason", "queue_full")], 0.0);
    is("athanor_querier_queries_rejected_total", &[("reason", "quarantined")], 0.0);
    for of in ["querier", "store_gateway"] {
        assert!(value(&page, "athanor_result_memory_reserved_bytes", &[("component", of)]).is_some(), "{of}");
        is("athanor_result_memory_limit_bytes", &[("component", of)], 2_147_483_648.0);
        is("athanor_result_memory_rejected_total", &[("component", of)], 0.0);
    }
    let some = [
        "athanor_wal_fsync_duration_seconds_count",
        "athanor_wal_commit_bytes_count",
        "athanor_wal_written_bytes_total",
        "athanor_metastore_blocks_bytes",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_cpu_seconds_total",
        "athanor_distributor_received_compressed_bytes_total",
        "athanor_distributor_received_decompressed_bytes_total",
        "athanor_ingester_flush_bytes_total",
        "athanor_store_gateway_block_cache_misses_total",
        "athanor_store_gateway_block_cache_hits_total",
    ];
    for name in some {
        assert!(value(&page, name, &[]).is_some_and(|value| value > 0.0), "{name}");
    }
    for activity in ["decode", "batch", "apply", "wal", "flush", "query", "other"] {
        let spent = value(&page, "athanor_cpu_seconds_total", &[("activity", activity)]);
        assert!(spent.is_some_and(|spent| spent > 0.0), "{activity}");
    }
    server.runtime.block_on(server.node.stop()).unwrap();
}

#[test]
fn crashed_queries_may_be_lifted() {
    let server = TestServer::start(|_| {});
    let cleared =
        server.runtime.block_on(send_admin_request(server.folder.path(), "/quarantine/clear")).unwrap();
    assert_eq!(cleared, r#"{"cleared":0}"#);
    server.runtime.block_on(server.node.stop()).unwrap();
}

#[test]
fn both_formats_are_well_formed_and_say_the_same() {
    let server = TestServer::start(|config| config.multitenancy_enabled = true);
    work(&server);
    let (old, new) = (page(&server, false), page(&server, true));
    let names = |page: &Page| -> BTreeSet<String> {
        page.keys().map(|name| name.trim_end_matches("_total").to_owned()).collect()
    };
    assert_eq!(names(&old), names(&new));
    let described: BTreeSet<&str> =
        describe_all_metrics().into_iter().flat_map(|(_, all)| all).map(|metric| metric.name).collect();
    assert_eq!(old.keys().map(String::as_str).collect::<BTreeSet<_>>(), described);
    assert!(old.len() > 60, "{}", old.len());
    for (name, family) in &new {
        let ours = name.starts_with("athanor_") || name.starts_with("process_");
        assert!(ours && !family.help.ends_with('.'), "{name}");
    }
    server.runtime.block_on(server.node.stop()).unwrap();
}
