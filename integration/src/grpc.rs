//! Independent gRPC client, without code of this project.

#![expect(clippy::missing_panics_doc, clippy::unwrap_used, reason = "what does not work fails the test")]

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};

/// Response of a call: its status, the status message, and the framed response message.
#[derive(Debug, PartialEq, Eq)]
pub struct GrpcResponse {
    /// Status code as decimal text.
    pub status: String,
    /// Status message; empty if the server sends none.
    pub said: String,
    /// Response message with its gRPC frame.
    pub body: Bytes,
}

/// Sends one call on a connection of its own. `body` must be framed.
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
