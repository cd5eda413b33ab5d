//! Exports of OpenTelemetry: one bad profile does not hurt the others, and the ports for OpenTelemetry answer nothing else.

use std::net::SocketAddr;

use athanor_integration::bodies::grpc_frame;
use athanor_integration::grpc;
use athanor_integration::server::{TestServer, send_request};
use athanor_profile::generate::arbitrary_profile;
use athanor_profile::{ValueType, formats::otlp};
use bytes::Bytes;
use serde_json::{Value, json};

const EXPORT: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";
const PROFILES: &str = "/v1development/profiles";
const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");

fn server() -> TestServer {
    TestServer::start(|config| {
        config.multitenancy_enabled = true;
        config.limits.reject_older_than = std::time::Duration::ZERO;
        config.limits.reject_newer_than = std::time::Duration::ZERO;
        config.otlp.grpc_listen_address = Some("127.0.0.1:0".to_owned());
        config.otlp.http_listen_address = Some("127.0.0.1:0".to_owned());
    })
}

/// One call of gRPC: its status and its message.
fn export(server: &TestServer, to: SocketAddr, headers: &[(&str, &str)], message: &[u8]) -> (String, Bytes) {
    let answer = server.runtime.block_on(grpc::call(to, EXPORT, headers, grpc_frame(message, false)));
    (answer.status, answer.body)
}

/// An export of one profile of two types, the second of which has no name if `is_bad`.
fn request(is_bad: bool) -> Vec<u8> {
    let mut profile = arbitrary_profile(1);
    let of = |kind: &str| ValueType { kind: kind.to_owned(), unit: "nanoseconds".to_owned() };
    profile.header.period_type = (!is_bad).then(|| of("wall"));
    profile.header.types = vec![of("off_cpu"), of("other")];
    profile.header.types.resize(arbitrary_profile(1).header.types.len(), of("other"));
    otlp::encode(&profile, &[("service.name", "shop")])
}

#[test]
fn a_profile_that_is_refused_is_told_beside_those_that_are_stored() {
    let server = server();
    let [grpc, http] = *server.node.otlp_addresses() else { panic!("two ports") };
    let tenant = ("x-scope-orgid", "a");
    let post = |headers: &[(&str, &str)], body: &[u8]| {
        send_request(http, &format!("POST {PROFILES}"), headers, body)
    };
    let answer = post(&[PROTOBUF, tenant], &request(true));
    assert_eq!(answer.status, 200);
    let said = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(said.contains("profile has no period_type"), "{said}");

    let (status, body) = export(&server, grpc, &[tenant], &request(true));
    assert_eq!(status, "0");
    assert_eq!(&body[5..], &answer.body[..]);
    let (status, body) = export(&server, grpc, &[tenant], b"\xff\xff");
    assert_eq!((status.as_str(), body.len()), ("3", 0));
    assert_eq!(export(&server, grpc, &[], &request(false)).0, "16", "nobody says whose it is");

    let answer = post(&[PROTOBUF, tenant], b"\xff\xff");
    assert_eq!(answer.status, 400);
    assert!(String::from_utf8_lossy(&answer.body).contains("request is truncated at byte 2"));
    let answer = post(&[("content-type", "application/json"), tenant], b"{}");
    assert_eq!((answer.status, answer.header("content-type")), (400, "application/json"));
    let said: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(said, json!({ "message": "request has no resource_profiles" }));

    let metrics = server.get("/metrics", &[]);
    let metrics = String::from_utf8_lossy(&metrics.body);
    assert!(
        metrics.contains(r#"athanor_discarded_profiles_total{tenant="a",reason="missing_labels"}"#),
        "{metrics}"
    );
}

#[test]
fn ports_for_exports_answer_nothing_else() {
    let server = server();
    for address in server.node.otlp_addresses() {
        for request in ["GET /metrics", "GET /config", "POST /ingest?name=a.cpu"] {
            assert_eq!(
                send_request(*address, request, &[("x-scope-orgid", "a")], b"a 1").status,
                404,
                "{request}"
            );
        }
        assert_eq!(send_request(*address, &format!("GET {PROFILES}"), &[], b"").status, 405);
        let text = [("content-type", "text/plain")];
        assert_eq!(send_request(*address, &format!("POST {PROFILES}"), &text, b"x").status, 415);
    }
}
