//! What queriers keep for clients, over HTTP: queries that run in the background, and records of how queries were answered.
//! In a cluster whichever querier is asked asks the one that keeps it.

use std::net::SocketAddr;
use std::time::Duration;

use athanor_chassis::ByteSize;
use athanor_cluster::members::{ClusterMember, MemberState};
use athanor_integration::cluster::TestCluster;
use athanor_integration::server::{HttpResponse, TestServer, send_request};
use athanor_server::{ServerConfig, send_admin_request};
use serde_json::{Value, json};

const MERGE: &str = "POST /querier.v1.QuerierService/SelectMergeStacktraces";
pub const RECORDS: &str = "GET /query-diagnostics";
pub const COLLECT: (&str, &str) = ("x-pyroscope-collect-diagnostics", "true");
/// Of all profiles, Unix seconds.
pub const TIME: i64 = 1_900_000_000;

pub fn ask(at: SocketAddr, request: &str, tenant: &str, more: &[(&str, &str)], body: &str) -> HttpResponse {
    let mut headers = vec![("x-scope-orgid", tenant), ("content-type", "application/json")];
    headers.extend(more);
    send_request(at, request, &headers, body.as_bytes())
}

/// Stores stacks of a tenant, of a service of its own.
fn store(at: SocketAddr, tenant: &str, number: i64) {
    let from = TIME + number;
    let path = format!("POST /ingest?name=shop{number}.cpu&from={from}&until={}", from + 10);
    let stored = send_request(at, &path, &[("x-scope-orgid", tenant)], b"main;serve;work 70\nmain;idle 3\n");
    assert_eq!(stored.status, 200, "{}", stored.text());
}

fn question(more: &[(&str, Value)]) -> String {
    let mut question = json!({
        "profileTypeID": "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
        "labelSelector": "{service_name=~\"shop.*\"}",
        "start": (TIME - 100) * 1_000,
        "end": (TIME + 100) * 1_000,
    });
    for (name, value) in more {
        question[*name] = value.clone();
    }
    question.to_string()
}

fn merged(at: SocketAddr, tenant: &str, more: &[(&str, &str)]) -> HttpResponse {
    let answer = ask(at, MERGE, tenant, more, &question(&[]));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

pub fn body(answer: &HttpResponse) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

/// Begins a query in the background; its id.
fn begin(at: SocketAddr, tenant: &str) -> String {
    let begun =
        ask(at, MERGE, tenant, &[], &question(&[("async", json!({ "type": "ASYNC_QUERY_TYPE_FORCE" }))]));
    let begun = body(&begun);
    assert_eq!(begun["async"]["status"], "ASYNC_QUERY_STATUS_IN_PROGRESS", "{begun}");
    assert!(begun.get("flamegraph").is_none(), "{begun}");
    begun["async"]["requestId"].as_str().unwrap().to_owned()
}

fn poll(at: SocketAddr, tenant: &str, id: &str) -> HttpResponse {
    ask(at, MERGE, tenant, &[], &question(&[("async", json!({ "request_id": id }))]))
}

/// Asks until the query has ended.
fn ended(at: SocketAddr, tenant: &str, id: &str) -> Value {
    loop {
        let polled = poll(at, tenant, id);
        assert_eq!(polled.status, 200, "{}", polled.text());
        let polled = body(&polled);
        assert_eq!(polled["async"]["requestId"], id);
        if polled["async"]["status"] != "ASYNC_QUERY_STATUS_IN_PROGRESS" {
            return polled;
        }
    }
}

/// Without what is said of the background.
fn graph(mut answer: Value) -> Value {
    answer.as_object_mut().unwrap().remove("async");
    assert!(answer["flamegraph"]["total"].as_str().is_some(), "{answer}");
    answer
}

fn server() -> TestServer {
    TestServer::start(|config| {
        config.multitenancy_enabled = true;
        config.limits.reject_older_than = Duration::ZERO;
        config.limits.reject_newer_than = Duration::ZERO;
        config.querier.max_async_queries_per_tenant = 5;
    })
}

#[test]
fn a_server_runs_queries_in_the_background_where_it_is_told_to() {
    let server = server();
    store(server.address, "acme", 1);
    let at_once = graph(body(&merged(server.address, "acme", &[])));
    let id = begin(server.address, "acme");
    let done = ended(server.address, "acme", &id);
    assert_eq!(done["async"]["status"], "ASYNC_QUERY_STATUS_SUCCESS");
    assert_eq!(graph(done), at_once);
    // Asked for again it is still there, for its tenant alone.
    assert_eq!(graph(ended(server.address, "acme", &id)), at_once);
    for tenant in ["globex", "acme|globex"] {
        let refused = poll(server.address, tenant, &id);
        assert_eq!((refused.status, body(&refused)["code"].as_str()), (404, Some("not_found")), "{tenant}");
    }
    for odd in ["7", "00000000-0000-0000-0000-000000000000"] {
        let refused = poll(server.address, "acme", odd);
        assert_eq!(refused.status, 404, "{odd}");
        assert!(refused.text().contains("start a new query"), "{}", refused.text());
    }
    let wrong =
        question(&[("labelSelector", json!("")), ("async", json!({ "type": "ASYNC_QUERY_TYPE_FORCE" }))]);
    assert_eq!(ask(server.address, MERGE, "acme", &[], &wrong).status, 400, "what is wrong is told at once");
}

/// Two blocks and a head were asked, and where answers of the blocks came from.
fn is_told(told: &Value, id: &str, cache: &Value) {
    assert_eq!(
        (&told["id"], &told["outcome"], &told["tenants"]),
        (&json!(id), &json!("ok"), &json!(["acme"]))
    );
    assert_eq!(told["call"], "querier.v1.QuerierService/SelectMergeStacktraces");
    let query = &told["queries"][0];
    assert_eq!(query["selector"], "{service_name=~\"shop.*\"}");
    let plan = &query["plans"][0];
    assert_eq!(
        (&plan["blocks"], &plan["heads"], &plan["calls"]),
        (&json!(2), &json!(1), &json!(0)),
        "{told}"
    );
    assert!(plan["bytes"].as_u64().unwrap() > 0, "{told}");
    let sums = &query["totals"];
    assert_eq!((&sums["blocks"], &sums["heads"], &sums["cache"]), (&json!(2), &json!(1), cache), "{told}");
    let all = told["totalMillis"].as_f64().unwrap();
    let phases = ["queueMillis", "planMillis", "fetchMillis"];
    let parts: f64 = phases.map(|phase| query[phase].as_f64().unwrap()).iter().sum();
    assert!(all > 0.0 && parts <= all, "{told}");
}

#[test]
fn a_server_records_how_queries_are_answered_for_who_asks_for_that() {
    let server = server();
    for number in 0..3 {
        store(server.address, "acme", number);
        if number < 2 {
            server.runtime.block_on(send_admin_request(server.folder.path(), "/flush")).unwrap();
        }
    }
    let record = |tenant: &str, id: &str, more: &[(&str, &str)]| {
        ask(server.address, &format!("{RECORDS}/{id}"), tenant, more, "")
    };
    let mut ids = Vec::new();
    for cache in [
        json!({ "memory": 0, "disk": 0, "coalesced": 0, "computed": 2 }),
        json!({ "memory": 2, "disk": 0, "coalesced": 0, "computed": 0 }),
    ] {
        let answer = merged(server.address, "acme", &[COLLECT]);
        let id = answer.header("x-pyroscope-diagnostics-id").to_owned();
        let told = body(&record("acme", &id, &[]));
        is_told(&told, &id, &cache);
        ids.push(id);
    }
    assert!(merged(server.address, "acme", &[]).header("x-pyroscope-diagnostics-id").is_empty());
    let (name, _) = COLLECT;
    assert!(merged(server.address, "acme", &[(name, "no")]).header("x-pyroscope-diagnostics-id").is_empty());
    // What is refused is recorded as well, and so is what is asked by a URL.
    let wrong = question(&[("labelSelector", json!("{"))]);
    let refused = ask(server.address, MERGE, "acme", &[COLLECT], &wrong);
    assert_eq!(refused.status, 400);
    let id = refused.header("x-pyroscope-diagnostics-id");
    assert_eq!(body(&record("acme", id, &[]))["outcome"], "invalid");
    let rendered = ask(
        server.address,
        &format!(
            "GET /pyroscope/render?query=process_cpu:cpu:nanoseconds:cpu:nanoseconds%7B%7D&from={TIME}&until={}",
            TIME + 100
        ),
        "acme",
        &[(name, "1")],
        "",
    );
    assert_eq!(rendered.status, 200, "{}", rendered.text());
    let id = rendered.header("x-pyroscope-diagnostics-id");
    assert_eq!(body(&record("acme", id, &[]))["call"], "pyroscope/render");

    let listed = |tenant: &str| body(&ask(server.address, RECORDS, tenant, &[], ""))["records"].clone();
    let all = listed("acme");
    assert_eq!(all.as_array().unwrap().len(), 4, "{all}");
    assert_eq!((&all[3]["id"], &all[2]["id"]), (&json!(ids[0]), &json!(ids[1])), "the newest first");
    assert_eq!(listed("globex"), json!([]));
    for tenant in ["globex", "acme|globex"] {
        assert_eq!(record(tenant, &ids[0], &[]).status, 404);
    }
    assert_eq!(send_request(server.address, RECORDS, &[], b"").status, 401, "whose they are has to be said");
    // People look with browsers.
    let browser = [("accept", "text/html,application/xhtml+xml")];
    let page = record("acme", &ids[0], &browser);
    assert!(
        page.header("content-type").starts_with("text/html")
            && page.text().contains("&quot;fetchMillis&quot;")
    );
    let page = ask(server.address, RECORDS, "acme", &browser, "");
    assert!(page.text().contains(&format!("href=\"query-diagnostics/{}\"", ids[1])), "{}", page.text());
}

/// Of nodes that keep for their clients.
fn settings(config: &mut ServerConfig) {
    config.multitenancy_enabled = true;
    config.querier.max_async_queries_per_tenant = 5;
    config.cluster.initial_slots = Some(1);
    config.cluster.replication_factor = 1;
    config.metastore.voters = 1;
}

/// All is put to blocks at once, and what is asked twice is put to them twice.
fn nothing_is_kept(config: &mut ServerConfig) {
    settings(config);
    config.querier.results_cache_bytes = ByteSize::bytes(0);
    config.ingester.flush.max_head_age = Duration::from_millis(300);
}

/// Heads are cut only when they are told to.
pub fn heads_stay(config: &mut ServerConfig) {
    settings(config);
    config.ingester.flush.max_head_age = Duration::from_secs(3600);
}

/// Two queriers beside the one that has all else; the third reads blocks for others.
pub async fn three(settings: fn(&mut ServerConfig)) -> TestCluster {
    let nodes = TestCluster::builder()
        .node("a", "za", "metastore,ingester,distributor,querier")
        .node("b", "zb", "querier")
        .node("c", "zc", "querier,store-gateway")
        .config(settings);
    let cluster = nodes.start().await;
    cluster.wait_for_view("its slot is open", |view| view.shards.iter().any(|shard| shard.serves())).await;
    cluster
}

/// Polls until it is refused with a status; what is said then.
async fn refused(cluster: &TestCluster, at: SocketAddr, id: &str, status: u16) -> String {
    let asking = async {
        loop {
            let polled = poll(at, "acme", id);
            if polled.status == status {
                return polled.text().to_owned();
            }
            assert!([200, 404, 503].contains(&polled.status), "{}", polled.text());
            cluster.sleep_briefly().await;
        }
    };
    cluster.run_with_deadline("it is refused", asking).await
}

#[tokio::test(flavor = "multi_thread")]
async fn any_querier_tells_how_far_a_query_is_that_another_one_runs() {
    let mut cluster = three(nothing_is_kept).await;
    let [a, b, c] = ["a", "b", "c"].map(|name| cluster.node(name).address());
    (1..4).for_each(|number| store(a, "acme", number));
    let at_once = graph(body(&merged(a, "acme", &[])));
    let id = begin(b, "acme");
    let node: String = id.chars().filter(|letter| *letter != '-').take(16).collect();
    assert_eq!(node, format!("{:016x}", cluster.node_id("b")));
    for at in [c, a, b] {
        let done = ended(at, "acme", &id);
        assert_eq!(done["async"]["status"], "ASYNC_QUERY_STATUS_SUCCESS");
        assert_eq!(graph(done), at_once);
        for tenant in ["globex", "acme|globex"] {
            assert_eq!(poll(at, tenant, &id).status, 404, "{tenant}");
        }
    }
    // Who cannot be reached now may be later.
    cluster.partition("a", "b");
    let said = refused(&cluster, a, &id, 503).await;
    assert!(said.contains("retry, or restart the query"), "{said}");
    cluster.heal_network();
    let healed = async {
        while poll(a, "acme", &id).status != 200 {
            cluster.sleep_briefly().await;
        }
    };
    cluster.run_with_deadline("it is answered again", healed).await;
    // Started again it knows nothing of it, and says so; where it has left, others do.
    cluster.restart("b").await;
    let said = refused(&cluster, c, &id, 404).await;
    assert!(said.contains("the node restarted; start a new query"), "{said}");
    let b = cluster.node("b").address();
    let id = begin(b, "acme");
    cluster.stop("b").await.unwrap();
    let said = refused(&cluster, c, &id, 404).await;
    assert!(said.contains("which has left the cluster; restart the query"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_tells_of_other_nodes_and_is_read_at_any_querier() {
    let cluster = three(nothing_is_kept).await;
    let [a, b, c] = ["a", "b", "c"].map(|name| cluster.node(name).address());
    store(a, "acme", 1);
    cluster.wait_until("all is cut", || cluster.is_flushed(1)).await;
    let known = || cluster.node("b").roles().cluster_handle().unwrap().membership().members.current();
    let is_ready = |member: &ClusterMember| member.is_alive() && member.state == MemberState::Ready;
    cluster
        .wait_until("the gateway is known", || known().get(&cluster.node_id("c")).is_some_and(is_ready))
        .await;
    let gateway = format!("{:016x}", cluster.node_id("c"));
    for cache in [
        json!({ "memory": 0, "disk": 0, "coalesced": 0, "computed": 1 }),
        json!({ "memory": 1, "disk": 0, "coalesced": 0, "computed": 0 }),
    ] {
        let answer = merged(b, "acme", &[COLLECT]);
        let id = answer.header("x-pyroscope-diagnostics-id").to_owned();
        let read = |at, tenant| ask(at, &format!("{RECORDS}/{id}"), tenant, &[], "");
        let told = body(&read(a, "acme"));
        assert_eq!(told["node"], format!("{:016x}", cluster.node_id("b")));
        let query = &told["queries"][0];
        let plan = &query["plans"][0];
        let planned = (&plan["blocks"], &plan["remoteShards"], &plan["calls"]);
        assert_eq!(planned, (&json!(1), &json!(1), &json!(2)), "{told}");
        let sums = &query["totals"];
        assert_eq!(
            (&sums["blocks"], &sums["shards"], &sums["cache"]),
            (&json!(1), &json!(1), &cache),
            "{told}"
        );
        let parts = query["slowestSources"].as_array().unwrap();
        let blocks = parts.iter().find(|part| part["blocks"] == 1).unwrap();
        assert!(blocks["node"] == gateway && blocks["bytesReceived"].as_u64().unwrap() > 0, "{told}");
        assert!(blocks["remote"]["executeMillis"].as_f64().is_some(), "{told}");
        assert!(parts.iter().any(|part| part["shards"].is_array()), "{told}");
        assert_eq!(body(&read(c, "acme")), told);
        assert_eq!(read(c, "globex").status, 404);
    }
}
