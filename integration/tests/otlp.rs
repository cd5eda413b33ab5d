//! Exports of OpenTelemetry, through each door: what real senders sent comes to what another reader says, one bad profile
//! does not hurt the others, and the ports for OpenTelemetry answer nothing else.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use athanor_integration::leave_out;
use athanor_integration::server::{Server, send};
use athanor_profile::generate::arbitrary;
use athanor_profile::{ValueType, otlp};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};

const EXPORT: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";
const PROFILES: &str = "/v1development/profiles";
const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");

fn server() -> Server {
    Server::start(|config| {
        config.multitenancy_enabled = true;
        config.limits.reject_older_than = std::time::Duration::ZERO;
        config.limits.reject_newer_than = std::time::Duration::ZERO;
        config.otlp.grpc_listen = Some("127.0.0.1:0".to_owned());
        config.otlp.http_listen = Some("127.0.0.1:0".to_owned());
    })
}

/// One call of gRPC: its status and its message.
#[expect(clippy::disallowed_methods, reason = "a client as others have it")]
fn export(server: &Server, to: SocketAddr, headers: &[(&str, &str)], body: Vec<u8>) -> (String, Bytes) {
    server.runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(to).await.unwrap();
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        let mut request = http::Request::post(format!("http://{to}{EXPORT}")).header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.header("content-type", "application/grpc").body(Full::new(Bytes::from(body)));
        let (head, body) = sender.send_request(request.unwrap()).await.unwrap().into_parts();
        let body = body.collect().await.unwrap();
        let trailers = body.trailers().cloned().unwrap_or_default();
        let status = trailers.get("grpc-status").or(head.headers.get("grpc-status")).unwrap();
        let status = status.to_str().unwrap().to_owned();
        (status, body.to_bytes())
    })
}

/// What a tenant has of each profile type that `expected` names.
fn totals(server: &Server, tenant: &str, expected: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let total = |name: &String| {
        let question =
            json!({ "profileTypeID": name, "labelSelector": "{}", "start": 1, "end": "9000000000000" });
        let headers = [("content-type", "application/json"), ("x-scope-orgid", tenant)];
        let path = "/querier.v1.QuerierService/SelectMergeStacktraces";
        let answer = server.post(path, &headers, question.to_string().as_bytes());
        let answer: Value = serde_json::from_slice(&answer.body).unwrap();
        (name.clone(), answer["flamegraph"]["total"].as_str().unwrap_or_default().to_owned())
    };
    expected.keys().map(total).collect()
}

/// What another reader says a file comes to.
fn counted(file: &Path) -> Option<BTreeMap<String, String>> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/otel/totals.py");
    let output = Command::new("python3").arg(program).arg(file).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn recorded() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    folder.exists().then_some(folder)
}

#[test]
fn what_real_senders_sent_comes_to_what_another_reader_says() {
    let Some(data) = recorded() else { return leave_out("there is no recorded data") };
    let server = server();
    let [grpc, http] = server.node.otlp_addresses() else { panic!("two ports") };
    for (tenant, file) in
        [("host", "otlp/otel-ebpf-profiler-1.10.pb"), ("python", "captures/sdk/otelpy-01.body")]
    {
        let file = data.join(file);
        let Some(expected) = counted(&file) else { return leave_out("there is no Python") };
        let encoding = if tenant == "python" { "gzip" } else { "identity" };
        let headers = [PROTOBUF, ("content-encoding", encoding), ("x-scope-orgid", tenant)];
        let body = std::fs::read(&file).unwrap();
        for to in [server.address, *http] {
            let answer = send(to, &format!("POST {PROFILES}"), &headers, &body);
            assert_eq!((answer.status, answer.header("content-type")), (200, "application/x-protobuf"));
            assert_eq!(String::from_utf8_lossy(&answer.body), "");
        }
        assert_eq!(totals(&server, tenant, &expected), expected, "{tenant}: sent twice, it counts once");
    }
    for number in 1..=5 {
        let file = data.join(format!("captures/sdk/pbee-0{number}.grpcbody"));
        let Some(expected) = counted(&file) else { return leave_out("there is no Python") };
        let tenant = format!("bee-{number}");
        for to in [server.address, *grpc] {
            let headers = [("x-scope-orgid", tenant.as_str())];
            let answer = export(&server, to, &headers, framed(&std::fs::read(&file).unwrap()));
            assert_eq!(answer, ("0".to_owned(), Bytes::from_static(&[0; 5])));
        }
        assert_eq!(totals(&server, &tenant, &expected), expected);
    }
}

/// An export of one profile of two types, the second of which has no name if `is_bad`.
fn request(is_bad: bool) -> Vec<u8> {
    let mut profile = arbitrary(1);
    let of = |kind: &str| ValueType { kind: kind.to_owned(), unit: "nanoseconds".to_owned() };
    profile.header.period_type = (!is_bad).then(|| of("wall"));
    profile.header.types = vec![of("off_cpu"), of("other")];
    profile.header.types.resize(arbitrary(1).header.types.len(), of("other"));
    otlp::encode(&profile, &[("service.name", "shop")])
}

#[test]
fn a_profile_that_is_refused_is_told_beside_those_that_are_stored() {
    let server = server();
    let [grpc, http] = *server.node.otlp_addresses() else { panic!("two ports") };
    let tenant = ("x-scope-orgid", "a");
    let post = |headers: &[(&str, &str)], body: &[u8]| send(http, &format!("POST {PROFILES}"), headers, body);
    let answer = post(&[PROTOBUF, tenant], &request(true));
    assert_eq!(answer.status, 200);
    let said = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(said.contains("profile has no period_type"), "{said}");

    let (status, body) = export(&server, grpc, &[tenant], framed(&request(true)));
    assert_eq!(status, "0");
    assert_eq!(&body[5..], &answer.body[..]);
    let (status, body) = export(&server, grpc, &[tenant], framed(b"\xff\xff"));
    assert_eq!((status.as_str(), body.len()), ("3", 0));
    assert_eq!(export(&server, grpc, &[], framed(&request(false))).0, "16", "nobody says whose it is");

    let answer = post(&[PROTOBUF, tenant], b"\xff\xff");
    assert_eq!(answer.status, 400);
    assert!(String::from_utf8_lossy(&answer.body).contains("request is cut off at byte 2"));
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

fn framed(message: &[u8]) -> Vec<u8> {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

#[test]
fn ports_for_exports_answer_nothing_else() {
    let server = server();
    for address in server.node.otlp_addresses() {
        for request in ["GET /metrics", "GET /config", "POST /ingest?name=a.cpu"] {
            assert_eq!(send(*address, request, &[("x-scope-orgid", "a")], b"a 1").status, 404, "{request}");
        }
        assert_eq!(send(*address, &format!("GET {PROFILES}"), &[], b"").status, 405);
        let text = [("content-type", "text/plain")];
        assert_eq!(send(*address, &format!("POST {PROFILES}"), &text, b"x").status, 415);
    }
}
