//! A client of gRPC that is none of ours.

#![expect(clippy::missing_panics_doc, clippy::unwrap_used, reason = "what does not work fails the test")]

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};

/// What a call came to: its status, what is said of it, and the message with its frame.
#[derive(Debug, PartialEq, Eq)]
pub struct GrpcResponse {
    /// As a number in text.
    pub status: String,
    /// Empty if nothing is.
    pub said: String,
    /// As it lay in the body.
    pub body: Bytes,
}

/// One call, on a connection of its own. `body` is framed.
#[expect(clippy::disallowed_methods, reason = "a client as others have it")]
pub async fn call(to: SocketAddr, path: &str, headers: &[(&str, &str)], body: Bytes) -> GrpcResponse {
    let stream = tokio::net::TcpStream::connect(to).await.unwrap();
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let mut request = http::Request::post(format!("http://{to}{path}")).header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.header("content-type", "application/grpc").body(Full::new(body)).unwrap();
    let (head, body) = sender.send_request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap();
    let trailers = body.trailers().cloned().unwrap_or_default();
    let told = |name: &str| {
        let value = trailers.get(name).or_else(|| head.headers.get(name));
        value.map_or("", |value| value.to_str().unwrap()).to_owned()
    };
    GrpcResponse { status: told("grpc-status"), said: told("grpc-message"), body: body.to_bytes() }
}
