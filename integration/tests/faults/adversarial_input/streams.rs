//! Clients that open many requests and send or read nothing: others are served, and memory is bounded.

use std::net::SocketAddr;

use athanor_integration::server::{RESPONSE_DEADLINE, send_request};
use bytes::Bytes;
use futures::future::join_all;
use futures::stream::{self, StreamExt};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::runtime::Runtime;

use crate::adversarial_input::process::{Limits, Served};
use crate::adversarial_input::{BODY, PROFILE, SLACK};

/// Connections of an attack.
const CONNECTIONS: usize = 33;
/// Requests that each of them tries to hold open.
const REQUESTS_PER_CONNECTION: usize = 1000;
/// Memory of all requests: less than a 16 KiB step for each request that the attack would open.
const REQUEST_BYTES: u64 = 64 << 20;
/// Memory of one answer, and of all. The attack asks for five times as much.
const ANSWER_BYTES: u64 = 16 << 20;
const ALL_ANSWERS_BYTES: u64 = 2 * ANSWER_BYTES;
/// Functions in the profile that is asked for. Each has a name of about 100 bytes.
const FUNCTIONS: usize = 20_000;

/// Body that brings a few bytes and never ends.
type OpenBody = StreamBody<stream::BoxStream<'static, Result<Frame<Bytes>, std::io::Error>>>;

fn open_body(bytes: &'static [u8]) -> OpenBody {
    let begin = stream::iter((!bytes.is_empty()).then(|| Ok(Frame::data(Bytes::from_static(bytes)))));
    StreamBody::new(begin.chain(stream::pending()).boxed())
}

#[expect(clippy::disallowed_methods, reason = "a client as others have it")]
async fn connect<B>(to: SocketAddr, window: u32) -> SendRequest<B>
where
    B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = tokio::net::TcpStream::connect(to).await.unwrap();
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window).initial_connection_window_size(1 << 20);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Opens requests that never end, as many as each connection can, and gives the connections.
fn open_requests(runtime: &Runtime, to: SocketAddr, bytes: &'static [u8]) -> Vec<SendRequest<OpenBody>> {
    runtime.block_on(async {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut sender = connect::<OpenBody>(to, 65_535).await;
            for _ in 0..REQUESTS_PER_CONNECTION {
                let request = http::Request::post(format!("http://{to}/ingest?name=open.cpu"));
                let response = sender.send_request(request.body(open_body(bytes)).unwrap());
                #[expect(clippy::disallowed_methods, reason = "a client as others have it")]
                tokio::spawn(response);
            }
            connections.push(sender);
        }
        connections
    })
}

/// A push and a query of somebody else.
pub fn assert_serves(server: &Served) {
    let to = server.address();
    let pushed = send_request(to, "POST /ingest?name=other.cpu", &[], b"main;run 5\n");
    assert_eq!(pushed.status, 200, "{}", String::from_utf8_lossy(&pushed.body));
    let asked = br#"{"start":1,"end":9000000000000}"#;
    let headers = [("content-type", "application/json")];
    let answer = send_request(to, "POST /querier.v1.QuerierService/ProfileTypes", &headers, asked);
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
}

#[test]
fn open_streams_leave_room_for_others() {
    let limits = Limits { body: BODY, profile: PROFILE, answer: 128 << 20, requests: REQUEST_BYTES };
    let server = Served::start_as_shipped(&limits);
    assert_serves(&server);
    let idle = server.begin_peak();
    let runtime = Runtime::new().unwrap();
    for bytes in [&b""[..], &[b'x'; 600]] {
        let attack = open_requests(&runtime, server.address(), bytes);
        for _ in 0..20 {
            assert_serves(&server);
        }
        let grown = server.peak().saturating_sub(idle);
        println!("{} MiB at the peak with {} bytes each", grown >> 20, bytes.len());
        assert!(grown <= 2 * REQUEST_BYTES, "{} MiB at the peak", grown >> 20);
        drop(attack);
    }
    runtime.shutdown_background();
    assert_gives_back(&server, idle);
    server.end();
}

/// Waits until the server holds no more than half as much again as before an attack.
pub fn assert_gives_back(server: &Served, before: u64) {
    let held = server.settle(before * 3 / 2);
    println!("{} MiB are held after the attack, {} before", held >> 20, before >> 20);
    assert!(held <= before * 3 / 2, "{} MiB are held after the attack, {} before", held >> 20, before >> 20);
}

/// Asks for a large answer, and reads no more than its head.
async fn ask_unread(sender: &mut SendRequest<Empty<Bytes>>, to: SocketAddr) -> http::Response<Incoming> {
    let query = "query=unread.cpu%7B%7D&from=now-1h&until=now&max-nodes=100000";
    let request = http::Request::get(format!("http://{to}/pyroscope/render?{query}"));
    let response = sender.send_request(request.body(Empty::new()).unwrap());
    #[expect(clippy::disallowed_methods, reason = "a client as others have it")]
    tokio::time::timeout(RESPONSE_DEADLINE, response).await.unwrap().unwrap()
}

#[test]
fn unread_responses_hold_the_budget_of_answers() {
    let limits = Limits { body: BODY, profile: PROFILE, answer: ANSWER_BYTES, requests: REQUEST_BYTES };
    let answers = format!("querier.max_inflight_result_bytes={ALL_ANSWERS_BYTES}B");
    let server = Served::start_with(&limits, &[&answers, "querier.adhoc.max_profiles_per_tenant=0"]);
    let text: String = (0..FUNCTIONS).map(|number| format!("main;{number:0>100} 1\n")).collect();
    let pushed = send_request(server.address(), "POST /ingest?name=unread.cpu", &[], text.as_bytes());
    assert_eq!(pushed.status, 200, "{}", String::from_utf8_lossy(&pushed.body));
    let (runtime, to) = (Runtime::new().unwrap(), server.address());
    let idle = server.begin_peak();
    let refused = runtime.block_on(async {
        let mut sender = connect(to, 1000).await;
        let mut unread = Vec::new();
        let mut refused = Vec::new();
        for _ in 0..80 {
            let response = ask_unread(&mut sender, to).await;
            if response.status() == 200 { unread.push(response) } else { refused.push(response) }
        }
        println!("{} responses are unread, {} refused", unread.len(), refused.len());
        assert!(!unread.is_empty());
        let bodies = join_all(refused.into_iter().map(|response| response.into_body().collect())).await;
        assert_serves(&server);
        bodies.into_iter().map(|body| body.unwrap().to_bytes()).collect::<Vec<_>>()
    });
    let grown = server.peak().saturating_sub(idle);
    println!("{} MiB at the peak", grown >> 20);
    assert!(grown <= 2 * ALL_ANSWERS_BYTES + SLACK, "{} MiB at the peak", grown >> 20);
    assert!(!refused.is_empty(), "80 large responses are beyond the budget");
    for body in refused {
        let said = String::from_utf8_lossy(&body);
        assert!(said.contains("querier.max_inflight_result_bytes"), "{said}");
    }
    runtime.shutdown_background();
    // The connection is gone, and with it what its responses held.
    let again = runtime_ask(to);
    assert_eq!(again, 200);
    server.end();
}

/// Asks until the budget is free. Returns the last status.
fn runtime_ask(to: SocketAddr) -> u16 {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let mut status = 0;
        for _ in 0..600 {
            let mut sender = connect(to, 1 << 20).await;
            let response = ask_unread(&mut sender, to).await;
            status = response.status().as_u16();
            if status == 200 {
                response.into_body().collect().await.unwrap();
                break;
            }
            #[expect(clippy::disallowed_methods, reason = "a client as others have it")]
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        status
    })
}
