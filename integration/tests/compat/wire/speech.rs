//! How a call is written, and what comes back.

use athanor_integration::server::{HttpResponse, TestServer};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;

use crate::wire::calls::Call;

/// A way to write a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    ConnectJson,
    ConnectProto,
    Grpc,
    GrpcProto,
    GrpcJson,
    /// gRPC over HTTP/1.1, as connect-go speaks it to `http://`.
    GrpcOverHttp1,
    GrpcWeb,
    GrpcWebProto,
    GrpcWebJson,
}

pub const WAYS: [Way; 9] = [
    Way::ConnectJson,
    Way::ConnectProto,
    Way::Grpc,
    Way::GrpcProto,
    Way::GrpcJson,
    Way::GrpcOverHttp1,
    Way::GrpcWeb,
    Way::GrpcWebProto,
    Way::GrpcWebJson,
];

impl Way {
    pub fn content_type(self) -> &'static str {
        match self {
            Way::ConnectJson => "application/json",
            Way::ConnectProto => "application/proto",
            Way::Grpc | Way::GrpcOverHttp1 => "application/grpc",
            Way::GrpcProto => "application/grpc+proto",
            Way::GrpcJson => "application/grpc+json",
            Way::GrpcWeb => "application/grpc-web",
            Way::GrpcWebProto => "application/grpc-web+proto",
            Way::GrpcWebJson => "application/grpc-web+json",
        }
    }

    fn is_json(self) -> bool {
        matches!(self, Way::ConnectJson | Way::GrpcJson | Way::GrpcWebJson)
    }

    fn is_connect(self) -> bool {
        matches!(self, Way::ConnectJson | Way::ConnectProto)
    }

    /// The bytes of a question, without the frame around it.
    pub fn bytes(self, call: &Call, question: &Value) -> Vec<u8> {
        if self.is_json() { question.to_string().into_bytes() } else { (call.question)(question) }
    }
}

/// What a client sees.
#[derive(Debug, PartialEq)]
pub struct Reply {
    pub http: u16,
    /// In Connect's words; `ok` if it is an answer.
    pub code: String,
    /// The answer, or what is said about a refusal.
    pub body: Value,
    pub content_type: String,
}

/// A client of gRPC, on one connection of HTTP/2 without TLS.
pub struct Grpc {
    sender: SendRequest<Full<Bytes>>,
    authority: String,
}

impl Grpc {
    #[expect(clippy::disallowed_methods, reason = "a client as others have it")]
    pub async fn connect(server: &TestServer) -> Self {
        let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
        let executor = TokioExecutor::new();
        let (sender, connection) =
            hyper::client::conn::http2::handshake(executor, TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { sender, authority: server.address.to_string() }
    }

    /// One request: its status, its headers, its body and its trailers.
    pub async fn post(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> (http::response::Parts, Bytes, http::HeaderMap) {
        let uri = format!("http://{}{path}", self.authority);
        let mut request = http::Request::post(uri).header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        self.sender.ready().await.unwrap();
        let (head, body) = self.sender.send_request(request).await.unwrap().into_parts();
        let collected = body.collect().await.unwrap();
        let trailers = collected.trailers().cloned().unwrap_or_default();
        (head, collected.to_bytes(), trailers)
    }
}

/// As [`Grpc::post`], in one request of HTTP/1.1.
#[expect(clippy::disallowed_methods, reason = "a client as others have it")]
async fn post_over_http1(
    server: &TestServer,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> (http::response::Parts, Bytes, http::HeaderMap) {
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = http::Request::post(path).header("host", server.address.to_string());
    for (name, value) in [("te", "trailers")].iter().chain(headers) {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    let (head, body) = sender.send_request(request).await.unwrap().into_parts();
    let collected = body.collect().await.unwrap();
    let trailers = collected.trailers().cloned().unwrap_or_default();
    (head, collected.to_bytes(), trailers)
}

/// Asks in words of Connect, in one request of HTTP/1.1.
pub fn post(server: &TestServer, call: &Call, headers: &[(&str, &str)], body: &[u8]) -> HttpResponse {
    server.post(&format!("/{}", call.path), headers, body)
}

/// Asks a question in a way.
pub fn ask(server: &TestServer, call: &Call, way: Way, question: &Value) -> Reply {
    send(server, call, way, &[], way.bytes(call, question))
}

/// Sends these bytes as the message of a call.
pub fn send(server: &TestServer, call: &Call, way: Way, headers: &[(&str, &str)], message: Vec<u8>) -> Reply {
    let mut all = vec![("content-type", way.content_type())];
    all.extend_from_slice(headers);
    if way.is_connect() {
        return of_connect(call, way, &post(server, call, &all, &message));
    }
    if matches!(way, Way::GrpcWeb | Way::GrpcWebProto | Way::GrpcWebJson) {
        return of_web(call, way, &post(server, call, &all, &framed(0, &message)));
    }
    let (head, body, trailers) = server.runtime.block_on(async {
        let (path, body) = (format!("/{}", call.path), framed(0, &message));
        if way == Way::GrpcOverHttp1 {
            return post_over_http1(server, &path, &all, body).await;
        }
        Grpc::connect(server).await.post(&path, &all, body).await
    });
    let content_type = head.headers["content-type"].to_str().unwrap().to_owned();
    let told = if trailers.is_empty() { &head.headers } else { &trailers };
    let text = |name: &str| told.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    let frames = unframed(&body);
    assert!(frames.len() <= 1 && frames.iter().all(|(flag, _)| *flag == 0), "{frames:?}");
    let message = frames.first().map(|(_, message)| *message);
    let http = head.status.as_u16();
    reply(
        call,
        way,
        Told { http, content_type, status: text("grpc-status"), said: text("grpc-message") },
        message,
    )
}

/// What an answer of HTTP/1.1 says in words of Connect.
pub fn of_connect(call: &Call, way: Way, answer: &HttpResponse) -> Reply {
    let content_type = answer.header("content-type").to_owned();
    let json = || serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
    if answer.status != 200 {
        let said: Value = json();
        let code = said["code"].as_str().unwrap_or_default().to_owned();
        return Reply { http: answer.status, code, body: said["message"].clone(), content_type };
    }
    let body = if way.is_json() { json() } else { (call.answer)(&answer.body) };
    Reply { http: 200, code: "ok".to_owned(), body, content_type }
}

fn of_web(call: &Call, way: Way, answer: &HttpResponse) -> Reply {
    let content_type = answer.header("content-type").to_owned();
    let frames = unframed(&answer.body);
    let message = frames.iter().find(|(flag, _)| *flag == 0).map(|(_, message)| *message);
    let trailers = frames.iter().find(|(flag, _)| *flag == 0x80);
    let trailers = trailers.map_or("", |(_, text)| std::str::from_utf8(text).unwrap());
    // A refusal without a message is told in headers alone.
    let text = |name: &str| {
        let line = trailers.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map_or(answer.header(name), str::trim).to_owned()
    };
    let (status, said) = (text("grpc-status"), text("grpc-message"));
    reply(call, way, Told { http: answer.status, content_type, status, said }, message)
}

/// What stands around a message of gRPC.
struct Told {
    http: u16,
    content_type: String,
    status: String,
    said: String,
}

fn reply(call: &Call, way: Way, told: Told, message: Option<&[u8]>) -> Reply {
    let Told { http, content_type, status, said } = told;
    let code = code_of_grpc(&status).to_owned();
    let body = match message {
        Some(bytes) if way.is_json() => serde_json::from_slice(bytes).unwrap(),
        Some(bytes) => (call.answer)(bytes),
        None => Value::String(said),
    };
    Reply { http, code, body, content_type }
}

/// The frame around a message of gRPC.
pub fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[flag][..], &length, message].concat()
}

fn unframed(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut frames = Vec::new();
    while let Some((&[flag, a, b, c, d], rest)) = bytes.split_first_chunk::<5>() {
        let (message, rest) = rest.split_at(u32::from_be_bytes([a, b, c, d]) as usize);
        frames.push((flag, message));
        bytes = rest;
    }
    assert!(bytes.is_empty(), "half a frame");
    frames
}

fn code_of_grpc(status: &str) -> &'static str {
    match status {
        "0" => "ok",
        "1" => "canceled",
        "2" => "unknown",
        "3" => "invalid_argument",
        "4" => "deadline_exceeded",
        "5" => "not_found",
        "6" => "already_exists",
        "7" => "permission_denied",
        "8" => "resource_exhausted",
        "9" => "failed_precondition",
        "10" => "aborted",
        "11" => "out_of_range",
        "12" => "unimplemented",
        "13" => "internal",
        "14" => "unavailable",
        "15" => "data_loss",
        "16" => "unauthenticated",
        other => panic!("grpc-status is {other:?}"),
    }
}

/// The status of HTTP that goes with a code of Connect.
pub fn http_of(code: &str) -> u16 {
    match code {
        "ok" => 200,
        "canceled" => 499,
        "invalid_argument" | "failed_precondition" | "out_of_range" => 400,
        "unauthenticated" => 401,
        "permission_denied" => 403,
        "not_found" => 404,
        "already_exists" | "aborted" => 409,
        "resource_exhausted" => 429,
        "unimplemented" => 501,
        "unavailable" => 503,
        "deadline_exceeded" => 504,
        _ => 500,
    }
}

/// What was compressed.
pub fn gunzip(bytes: &[u8]) -> Vec<u8> {
    athanor_profile::formats::pprof::inflate(bytes, 1 << 24).unwrap()
}
