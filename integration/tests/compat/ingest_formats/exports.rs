//! Exports of OpenTelemetry, through each door in each way to write them.

use std::net::SocketAddr;

use athanor_integration::bodies::{grpc_frame, gzip};
use athanor_integration::readers::otel;
use athanor_integration::server::{TestServer, send_request};
use athanor_integration::{grpc, report_skipped};
use athanor_profile::formats::pprof::inflate;
use bytes::Bytes;

use crate::ingest_formats::{Totals, data, server, tenant, weighty};

const EXPORT: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";
const PROFILES: &str = "POST /v1development/profiles";
/// Messages that real senders sent, some of them compressed.
const FILES: [&str; 7] = [
    "otlp/otel-ebpf-profiler-1.10.pb",
    "captures/sdk/otelpy-01.body",
    "captures/sdk/pbee-01.grpcbody",
    "captures/sdk/pbee-02.grpcbody",
    "captures/sdk/pbee-03.grpcbody",
    "captures/sdk/pbee-04.grpcbody",
    "captures/sdk/pbee-05.grpcbody",
];

/// What is sent here, and the head of the one that has it beside it.
pub fn named() -> Vec<String> {
    FILES.into_iter().chain(["captures/sdk/otelpy-01.json"]).map(str::to_owned).collect()
}

/// A way in, and how a message is written there.
struct Door {
    name: String,
    to: SocketAddr,
    /// A content type of HTTP; nothing is gRPC.
    content_type: Option<&'static str>,
    is_compressed: bool,
}

/// All of them: two ports for each protocol.
fn doors(server: &TestServer) -> Vec<Door> {
    let [grpc, http] = *server.node.otlp_addresses() else { panic!("two ports") };
    let (protobuf, json) = (Some("application/x-protobuf"), Some("application/json"));
    let ways = [
        ("all-protobuf", server.address, protobuf),
        ("all-json", server.address, json),
        ("all-grpc", server.address, None),
        ("own-protobuf", http, protobuf),
        ("own-json", http, json),
        ("own-grpc", grpc, None),
    ];
    let door = |(name, to, content_type), is_compressed| {
        let name = format!("{name}-{}", if is_compressed { "gzip" } else { "plain" });
        Door { name, to, content_type, is_compressed }
    };
    ways.into_iter().flat_map(|way| [door(way, false), door(way, true)]).collect()
}

impl Door {
    /// Sends a message, of which nothing may be refused.
    fn send(&self, server: &TestServer, tenant: &str, message: &[u8]) {
        let message = if self.is_compressed { gzip(message) } else { message.to_vec() };
        let encoding = if self.is_compressed { "gzip" } else { "identity" };
        let Some(content_type) = self.content_type else {
            let headers = [("x-scope-orgid", tenant), ("grpc-encoding", encoding)];
            let call = grpc::call(self.to, EXPORT, &headers, grpc_frame(&message, self.is_compressed));
            let answer = server.runtime.block_on(call);
            assert_eq!(
                (answer.status.as_str(), &answer.body),
                ("0", &Bytes::from_static(&[0; 5])),
                "{answer:?}"
            );
            return;
        };
        let headers =
            [("content-type", content_type), ("content-encoding", encoding), ("x-scope-orgid", tenant)];
        let answer = send_request(self.to, PROFILES, &headers, &message);
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        let nothing = if content_type == "application/json" { "{}" } else { "" };
        assert_eq!((answer.status, answer.header("content-type")), (200, content_type), "{said}");
        assert_eq!(said, nothing, "{tenant}");
    }
}

#[test]
fn what_real_senders_sent_comes_to_what_another_reader_says_through_each_door() {
    if !data("otlp").is_dir() {
        return report_skipped("no exports of OpenTelemetry at ../shared/data/otlp", "");
    }
    if !otel::is_available() {
        return report_skipped("no Python to read exports of OpenTelemetry with", "");
    }
    let server = server();
    for file in FILES {
        let path = data(file);
        let expected: Totals = weighty(otel::read_totals(&path));
        assert!(!expected.is_empty(), "{file}");
        let message = inflate(&std::fs::read(&path).unwrap(), 1 << 24).unwrap();
        let json = otel::to_json(&path);
        for door in doors(&server) {
            let is_json = door.content_type == Some("application/json");
            let tenant = tenant(&door.name, file);
            for times in ["once", "twice, and it counts once"] {
                door.send(&server, &tenant, if is_json { &json } else { &message });
                assert_eq!(server.query_totals(&tenant), expected, "{tenant}: sent {times}");
            }
        }
    }
}
