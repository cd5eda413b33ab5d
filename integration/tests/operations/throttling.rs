//! Rate limits of tenants.

use std::io::{Read, Write};
use std::net::TcpStream;

use athanor_chassis::ByteSize;
use athanor_integration::bodies::gzip;
use athanor_integration::server::{HttpResponse, RESPONSE_DEADLINE, TestServer};
use athanor_proto::google::v1::{Function, Line, Location, Profile, Sample, ValueType};
use prost::Message;

/// Bytes per second that the tenant may send. The burst size is the same.
const RATE: ByteSize = ByteSize::kib(64);

/// Sends the head of a push, and no byte of its body.
fn push_without_body(server: &TestServer, path: &str, head: &str) -> HttpResponse {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(RESPONSE_DEADLINE)).unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{head}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    HttpResponse::parse(&answer)
}

/// A profile of little content whose names take ten times the rate.
fn profile() -> Vec<u8> {
    let mut texts = ["", "cpu", "nanoseconds", "main"].map(str::to_owned).to_vec();
    texts.extend(std::iter::repeat_n("unused".repeat(10), 10 * RATE.as_usize() / 60));
    let value = ValueType { r#type: 1, unit: 2 };
    let profile = Profile {
        sample_type: vec![value],
        sample: vec![Sample { location_id: vec![1], value: vec![10], label: vec![] }],
        location: vec![Location {
            id: 1,
            line: vec![Line { function_id: 1, line: 1, ..Line::default() }],
            ..Location::default()
        }],
        function: vec![Function { id: 1, name: 3, ..Function::default() }],
        string_table: texts,
        duration_nanos: 1_000_000_000,
        period_type: Some(value),
        period: 1,
        ..Profile::default()
    };
    profile.encode_to_vec()
}

#[test]
fn decompressed_bytes_count_and_a_throttled_push_is_refused_before_its_body() {
    let server = TestServer::start(|config| config.limits.ingestion_rate = Some(RATE));
    let body = gzip(&profile());
    assert!(body.len() < RATE.as_usize(), "{} bytes as sent", body.len());
    let stored = server.post("/ingest?name=shop.cpu&format=pprof", &[], &body);
    assert_eq!(stored.status, 200, "{}", stored.text());
    let text = "/ingest?name=shop.cpu&format=groups";
    let push = ("content-type: application/proto\r\n", "/push.v1.PusherService/Push");
    let export = ("content-type: application/x-protobuf\r\n", "/v1development/profiles");
    for (content_type, path) in [("", text), push, export] {
        for length in ["content-length: 1000\r\n", "transfer-encoding: chunked\r\n"] {
            let refused = push_without_body(&server, path, &format!("{content_type}{length}"));
            let said = String::from_utf8_lossy(&refused.body);
            assert!(refused.status == 429 && said.contains("limits.ingestion_rate"), "{path}: {said}");
            assert!(refused.header("retry-after").parse::<u64>().unwrap() > 1, "{path}");
        }
    }
}
