//! Clients of samples that stop reading or leave: the server reads nothing ahead for them, and loses nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use athanor_arrow_format::{SampleReader, SampleRow};
use athanor_chassis::{Clock, Random};
use athanor_integration::server::{HttpResponse, RESPONSE_DEADLINE, TestServer};
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use super::{PROFILE_TYPE, SAMPLES_PATH, call_arrow, flush, now_seconds, server};

const TENANT: &str = "shop";
/// Profiles and stacks of each. The stream has three slices with 4 MiB each, more than the buffers of a connection.
const PROFILE_COUNT: i64 = 100;
const STACK_COUNT: usize = 1_500;
/// Random numbers in the name of a function, which do not compress.
const NAME_NUMBERS: usize = 8;
/// Receive buffer of a client, in bytes.
const CLIENT_BUFFER_BYTES: u32 = 4 << 10;
/// Memory that a stream holds between two slices.
const STREAM_BYTES: u64 = 32 << 20;
/// Memory of the counts of profiles, with which a stream began.
const MAX_COUNT_BYTES: u64 = 4 << 10;
/// Number of exports by others in which a stopped one must have come to rest. All of them take far less time than that
/// after which the server closes a connection that reads nothing.
const MAX_EXPORTS: usize = 8;
/// Longest wait for a state of the server.
const STATE_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns a server with a long stream in blocks.
fn server_with_long_stream() -> TestServer {
    let server = server();
    let random = Random::from_seed(7);
    for number in 0..PROFILE_COUNT {
        let mut body = String::new();
        for stack in 0..STACK_COUNT {
            let name: String = (0..NAME_NUMBERS).map(|_| format!("{:016x}", random.next_u64())).collect();
            body.push_str(&format!("main;f{name} {}\n", stack + 1));
        }
        let from = now_seconds() - 900 + number;
        let path = format!("/ingest?name=app%7Bpod%3Dp0%7D&format=folded&from={from}&until={}", from + 1);
        let pushed = server.post(&path, &[("x-scope-orgid", TENANT)], body.as_bytes());
        assert_eq!(pushed.status, 200, "{}", pushed.text());
    }
    flush(&server);
    server
}

/// Returns a request of fixed times, so that all exports read the same slices.
fn request() -> Value {
    let now = now_seconds() * 1_000;
    let query =
        json!({ "profile_type": PROFILE_TYPE, "selector": "{}", "start": now - 3_600_000, "end": now });
    json!({ "query": query })
}

fn rows(stream: &[u8]) -> Vec<SampleRow> {
    SampleReader::new(stream).unwrap().collect::<Result<_, _>>().unwrap()
}

/// Returns the number of block parts that queries have opened, which grows with each slice.
fn opened_parts(server: &TestServer) -> u64 {
    let parts = server.node.roles().gateway.stats().parts;
    parts.hits + parts.misses
}

/// Returns the bytes that responses hold of the result budget.
fn held_bytes(server: &TestServer) -> u64 {
    server.node.roles().querier.as_ref().unwrap().response_budget().stats().taken
}

/// Exports all samples and returns their rows. Also returns the number of parts that were opened meanwhile.
fn export(server: &TestServer, request: &Value) -> (Vec<SampleRow>, u64) {
    let before = opened_parts(server);
    let rows = rows(&call_arrow(server, TENANT, SAMPLES_PATH, request));
    (rows, opened_parts(server) - before)
}

fn wait_until(server: &TestServer, what: &str, is_so: impl Fn() -> bool) {
    let clock = Clock::system();
    let poll = async {
        while !is_so() {
            clock.sleep(Duration::from_millis(5)).await;
        }
    };
    let reached = server.runtime.block_on(clock.timeout(STATE_TIMEOUT, poll));
    assert!(reached.is_ok(), "{what}: {} bytes are held", held_bytes(server));
}

/// Client with a small receive buffer that has read the beginning of a response.
struct SlowClient {
    stream: TcpStream,
    received: Vec<u8>,
}

impl SlowClient {
    fn start(server: &TestServer, request: &Value) -> Self {
        let body = request.to_string();
        let head = format!(
            "POST {SAMPLES_PATH} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             x-scope-orgid: {TENANT}\r\ncontent-length: {}\r\n\r\n",
            server.address,
            body.len()
        );
        let connect = async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(CLIENT_BUFFER_BYTES).unwrap();
            socket.connect(server.address).await.unwrap().into_std().unwrap()
        };
        let mut stream = server.runtime.block_on(connect);
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(RESPONSE_DEADLINE)).unwrap();
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut received = Vec::new();
        Read::by_ref(&mut stream).take(1 << 10).read_to_end(&mut received).unwrap();
        assert!(received.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&received));
        SlowClient { stream, received }
    }

    /// Reads the rest of the response.
    fn read_rest(mut self) -> Vec<u8> {
        self.stream.read_to_end(&mut self.received).unwrap();
        self.received
    }
}

#[test]
fn client_that_stops_reading_stops_the_server_and_gets_everything_later() {
    let server = server_with_long_stream();
    let request = request();
    let (expected, _) = export(&server, &request);
    assert_eq!(expected.len(), PROFILE_COUNT as usize * STACK_COUNT);
    wait_until(&server, "the export ends", || held_bytes(&server) == 0);
    let client = SlowClient::start(&server, &request);
    // While it is at rest, each export of others opens as many parts as the one before.
    let mut opened_before = None;
    let is_at_rest = (0..MAX_EXPORTS).any(|_| {
        let opened = Some(export(&server, &request).1);
        std::mem::replace(&mut opened_before, opened) == opened
    });
    assert!(is_at_rest, "the server reads on for a client that does not");
    let is_without_slice = || held_bytes(&server) <= STREAM_BYTES + MAX_COUNT_BYTES;
    wait_until(&server, "exports of others end", is_without_slice);
    let opened = opened_parts(&server);
    let held = held_bytes(&server);
    let received = client.read_rest();
    assert!(held >= STREAM_BYTES, "the stopped stream has ended after {} bytes", received.len());
    assert!(opened_parts(&server) > opened, "the stream was read to its end before the client went on");
    let response = HttpResponse::parse(&received);
    assert!(rows(&response.body) == expected, "rows differ from those of a client that never stopped");
    wait_until(&server, "the stream ends", || held_bytes(&server) == 0);
}

#[test]
fn client_that_leaves_ends_its_query_and_frees_its_memory() {
    let server = server_with_long_stream();
    let request = request();
    let (_, opened_alone) = export(&server, &request);
    wait_until(&server, "the export ends", || held_bytes(&server) == 0);
    let before = opened_parts(&server);
    let client = SlowClient::start(&server, &request);
    assert!(held_bytes(&server) >= STREAM_BYTES);
    drop(client);
    wait_until(&server, "the client left", || held_bytes(&server) == 0);
    let opened = opened_parts(&server) - before;
    assert!(opened < opened_alone, "{opened} parts were opened, {opened_alone} are those of all slices");
    let stats = server.node.roles().querier.as_ref().unwrap().stats();
    assert_eq!(stats.turns.running, 0);
}
