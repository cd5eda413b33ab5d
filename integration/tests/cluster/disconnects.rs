//! What is done for who leaves, or waits no longer, ends: at the node that was asked, and at those that it asked.
//!
//! The bucket lets nobody read meanwhile, so whoever still works for somebody waits there. One query and one question of
//! another node are answered at once: whoever does not give back a turn keeps all that come later from the bucket.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use athanor_chassis::Clock;
use athanor_integration::cluster::{TestCluster, TestClusterBuilder};
use athanor_integration::server::send_request;
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;

use crate::oracle::{Oracle, TYPE};

const PATH: &str = "/querier.v1.QuerierService/SelectMergeStacktraces";
/// Within that it must be over. The bucket is asked again after half a minute only.
const SOON: Duration = Duration::from_secs(10);
const ALL_ELSE: &str = "metastore,ingester,distributor,querier";

fn one_slot() -> TestClusterBuilder {
    TestCluster::builder().config(|config| {
        config.cluster.initial_slots = Some(1);
        config.cluster.replication_factor = 1;
        config.metastore.voters = 1;
        config.ingester.flush.max_head_age = Duration::from_millis(300);
        config.querier.max_concurrent = 1;
        config.store_gateway.max_concurrent = 1;
    })
}

/// A node that reads blocks itself; and one that has another node read them.
fn alone() -> TestClusterBuilder {
    one_slot().node("a", "za", "all")
}

fn apart() -> TestClusterBuilder {
    one_slot().node("a", "za", ALL_ELSE).node("g", "zb", "store-gateway")
}

/// A cluster whose first node is asked for a block that was not read yet, by the node that reads it. Nobody can read.
async fn held(nodes: TestClusterBuilder, reads: &str) -> (TestCluster, Oracle) {
    let cluster = nodes.start().await;
    cluster.wait_for_view("its slot is open", |view| view.shards.iter().any(|shard| shard.serves())).await;
    let mut oracle = Oracle::default();
    let known = async {
        loop {
            oracle.store(&cluster, 1).await;
            cluster.wait_until("all is cut", || cluster.is_flushed(1)).await;
            let before = cluster.queried_block_count(reads);
            oracle.check(&cluster, 0).await;
            if cluster.queried_block_count(reads) > before {
                return;
            }
        }
    };
    cluster.run_with_deadline("it reads", known).await;
    oracle.store(&cluster, 3).await;
    cluster.wait_until("all is cut", || cluster.is_flushed(1)).await;
    cluster.bucket().hold_reads();
    (cluster, oracle)
}

fn question() -> String {
    let end = i64::MAX / 1_000_000 - 1;
    json!({ "profile_typeID": TYPE, "label_selector": "{}", "start": 1, "end": end }).to_string()
}

/// Waits until somebody reads.
async fn reading(cluster: &TestCluster) {
    cluster.wait_until("the bucket is read", || cluster.bucket().waiting_reads() > 0).await;
}

/// Nobody reads any more, and that soon.
async fn left(cluster: &TestCluster, what: &str) {
    let none = cluster.wait_until(what, || cluster.bucket().waiting_reads() == 0);
    Clock::system().timeout(SOON, none).await.unwrap_or_else(|_| panic!("{what}: somebody still reads"));
}

/// A request of HTTP/1.1 whose answer nobody has read yet.
fn ask(cluster: &TestCluster) -> TcpStream {
    let (address, body) = (cluster.node("a").address(), question());
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    stream
}

/// A client of gRPC.
#[expect(clippy::disallowed_methods, reason = "a client as others have it")]
async fn grpc(cluster: &TestCluster) -> SendRequest<Full<Bytes>> {
    let stream = tokio::net::TcpStream::connect(cluster.node("a").address()).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// The same question in words of gRPC.
fn in_grpc(cluster: &TestCluster, timeout: &str) -> http::Request<Full<Bytes>> {
    let message = question();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let framed = [&[0][..], &length, message.as_bytes()].concat();
    let request = http::Request::post(format!("http://{}{PATH}", cluster.node("a").address()))
        .header("te", "trailers")
        .header("content-type", "application/grpc+json")
        .header("grpc-timeout", timeout);
    request.body(Full::new(Bytes::from(framed))).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_takes_along_what_is_done_for_them() {
    for (nodes, reads) in [(alone(), "a"), (apart(), "g")] {
        let (cluster, oracle) = held(nodes, reads).await;
        for _ in 0..2 {
            let connection = ask(&cluster);
            reading(&cluster).await;
            drop(connection);
            left(&cluster, "who asked has closed the connection").await;
            // Of many calls on one connection only this one ends.
            let mut client = grpc(&cluster).await;
            {
                let mut call = Box::pin(client.send_request(in_grpc(&cluster, "1M")));
                tokio::select! {
                    answer = &mut call => panic!("{answer:?}"),
                    () = reading(&cluster) => {}
                }
            }
            left(&cluster, "who asked has cancelled the call").await;
            assert!(!client.is_closed());
        }
        cluster.bucket().release_reads();
        oracle.check(&cluster, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_works_longer_than_the_client_waits() {
    let clock = Clock::system();
    for (nodes, reads) in [(alone(), "a"), (apart(), "g")] {
        let (cluster, oracle) = held(nodes, reads).await;
        for _ in 0..2 {
            let begun = clock.monotonic();
            let headers = [("content-type", "application/json"), ("connect-timeout-ms", "400")];
            let path = format!("POST {PATH}");
            let late = send_request(cluster.node("a").address(), &path, &headers, question().as_bytes());
            let took = clock.monotonic() - begun;
            assert_eq!((late.status, took < SOON), (504, true), "after {took:?}: {}", late.text());
            assert!(late.text().contains("deadline_exceeded"), "{}", late.text());
            left(&cluster, "the time of Connect is over").await;

            // What is asked by a URL alone has the same headers.
            let begun = clock.monotonic();
            let path = format!("GET /pyroscope/render?query={TYPE}%7B%7D&from=3999999990&until=4000100000");
            let late = send_request(cluster.node("a").address(), &path, &headers[1..], b"");
            let took = clock.monotonic() - begun;
            assert_eq!((late.status, took < SOON), (504, true), "after {took:?}: {}", late.text());
            left(&cluster, "the time of the page is over").await;

            let begun = clock.monotonic();
            let late = grpc(&cluster).await.send_request(in_grpc(&cluster, "400m")).await.unwrap();
            let took = clock.monotonic() - begun;
            assert_eq!(
                (late.headers()["grpc-status"].as_bytes(), took < SOON),
                (&b"4"[..], true),
                "after {took:?}"
            );
            left(&cluster, "the time of gRPC is over").await;
        }
        // Turns were given back: this one is read.
        let connection = ask(&cluster);
        reading(&cluster).await;
        drop(connection);
        cluster.bucket().release_reads();
        oracle.check(&cluster, 0).await;
    }
}
