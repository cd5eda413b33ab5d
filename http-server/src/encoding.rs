//! Encodings of RPC calls: Connect, gRPC and gRPC-Web, each with protobuf or JSON.

use std::convert::Infallible;

use athanor_chassis::{CpuActivity, ErrorCode, Status};
use axum::body::Body;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, RETRY_AFTER, TRAILER};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, Version};
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::{Stream, StreamExt, unfold};
use http_body::Body as _;
use http_body_util::StreamBody;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::body::{BodyWithTrailers, BufferedBody, GZIP_CONTENT_ENCODING, LARGE_BODY_BYTES, accepts_gzip};
use crate::decoded_size::BodyPolicy;
use crate::json;
use crate::request_budget::RequestBudget;

pub mod incoming;

/// Content types of unary calls, listed in the response to unsupported types.
pub const UNARY_CONTENT_TYPES: &str = "application/grpc, application/grpc+json, application/grpc+proto, application/grpc-web, \
application/grpc-web+json, application/grpc-web+proto, application/json, application/json; charset=utf-8, \
application/proto";
/// Content types of streaming calls.
pub const STREAM_CONTENT_TYPES: &str = "application/grpc, application/grpc+json, application/grpc+proto, application/grpc-web, \
application/grpc-web+json, application/grpc-web+proto";
const GRPC_STATUS: &str = "grpc-status";
const GRPC_MESSAGE: &str = "grpc-message";
const GRPC_ENCODING: &str = "grpc-encoding";
const CONNECT_VERSION: &str = "connect-protocol-version";
/// Length of a gRPC message prefix: one byte of flags and four of length.
const GRPC_PREFIX_BYTES: usize = 5;
/// Bytes of an error message that its gRPC header cannot carry, beside those of other scripts.
const UNPRINTABLE_OR_PERCENT: &AsciiSet = &CONTROLS.add(b'%');
/// Maximum number of fields that are inspected on a connection thread.
const MAX_INLINE_FIELDS: usize = 4096;

/// Encoding of a call: protocol and message format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallEncoding {
    frame: RpcProtocol,
    json: bool,
    /// Content type of the response.
    content_type: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RpcProtocol {
    Connect,
    Grpc,
    GrpcWeb,
}

impl CallEncoding {
    /// Returns the encoding for the content type of a request.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let given = headers.get(CONTENT_TYPE)?.to_str().ok()?.to_ascii_lowercase();
        let given: String = given.split_whitespace().collect();
        let (frame, json, content_type) = match given.as_str() {
            "application/proto" => (RpcProtocol::Connect, false, "application/proto"),
            "application/json" => (RpcProtocol::Connect, true, "application/json"),
            "application/json;charset=utf-8" => {
                (RpcProtocol::Connect, true, "application/json; charset=utf-8")
            }
            "application/grpc" => (RpcProtocol::Grpc, false, "application/grpc"),
            "application/grpc+proto" => (RpcProtocol::Grpc, false, "application/grpc+proto"),
            "application/grpc+json" => (RpcProtocol::Grpc, true, "application/grpc+json"),
            "application/grpc-web" => (RpcProtocol::GrpcWeb, false, "application/grpc-web"),
            "application/grpc-web+proto" => (RpcProtocol::GrpcWeb, false, "application/grpc-web+proto"),
            "application/grpc-web+json" => (RpcProtocol::GrpcWeb, true, "application/grpc-web+json"),
            _ => return None,
        };
        Some(Self { frame, json, content_type })
    }

    /// Like [`CallEncoding::from_headers`], for streaming calls.
    pub fn stream_from_headers(headers: &HeaderMap) -> Option<Self> {
        Self::from_headers(headers).filter(|encoding| encoding.frame != RpcProtocol::Connect)
    }

    /// Rejects unknown versions of the Connect protocol.
    pub fn check(self, headers: &HeaderMap) -> Result<(), Status> {
        match headers.get(CONNECT_VERSION).map(HeaderValue::as_bytes) {
            Some(version) if self.frame == RpcProtocol::Connect && version != b"1" => {
                let version = String::from_utf8_lossy(version);
                let message = format!("{CONNECT_VERSION} is {version:?}, must be 1");
                Err(Status::new(ErrorCode::Invalid, message))
            }
            _ => Ok(()),
        }
    }

    /// Adds the accepted request compression to a response, successful or not.
    pub fn advertise(self, response: &mut Response<Body>) {
        if self.frame == RpcProtocol::Connect {
            response.headers_mut().insert(ACCEPT_ENCODING, GZIP_CONTENT_ENCODING);
        }
    }

    /// Reads the message from a body. Its memory stays reserved until `held` is dropped.
    pub async fn read<M>(
        self,
        door: &RequestBudget,
        headers: &HeaderMap,
        held: &mut BufferedBody,
        admits: &BodyPolicy,
    ) -> Result<M, Status>
    where
        M: Message + Default + DeserializeOwned + 'static,
    {
        let size = self.unwrap_message(door, headers, held, admits).await?;
        let json = self.json;
        let bytes = std::mem::take(&mut held.bytes);
        door.run_on_compute(CpuActivity::HttpBody, size, move || decode(&bytes, json)).await?
    }

    /// Strips framing and compression, leaves the message bytes in `held` and reserves memory for the decoded
    /// message. Returns the size that the decoder processes: less than the bytes if they contain profiles
    /// that stay encoded.
    pub async fn unwrap_message(
        self,
        door: &RequestBudget,
        headers: &HeaderMap,
        held: &mut BufferedBody,
        admits: &BodyPolicy,
    ) -> Result<usize, Status> {
        let gzip = if self.frame == RpcProtocol::Connect {
            compression(headers, CONTENT_ENCODING.as_str())?
        } else {
            let flag = unframe(&mut held.bytes)?;
            if flag && !compression(headers, GRPC_ENCODING)? {
                return Err(Status::new(
                    ErrorCode::Internal,
                    "message is compressed, but header grpc-encoding is missing",
                ));
            }
            flag
        };
        if gzip {
            door.gunzip(held, admits).await?;
        }
        let length = held.bytes.len();
        let is_long_json = self.json && length > LARGE_BODY_BYTES;
        let weighed =
            if is_long_json { None } else { admits.weigh(&held.bytes, self.json, MAX_INLINE_FIELDS)? };
        if let Some(weight) = weighed {
            door.reserve_memory(held, weight as u64)?;
            return Ok(if self.json { length } else { weight.min(length) });
        }
        let admits = *admits;
        let bytes = held.bytes.clone();
        let json = self.json;
        let weigh = move || admits.weigh(&bytes, json, usize::MAX);
        let weight = door.run_on_compute(CpuActivity::HttpBody, usize::MAX, weigh).await??;
        door.reserve_memory(held, weight.unwrap_or(length) as u64)?;
        Ok(usize::MAX)
    }

    /// Returns whether messages are JSON.
    pub fn is_json(self) -> bool {
        self.json
    }

    /// Encodes a response message.
    pub async fn encode_response<M: Message + Serialize>(
        self,
        door: &RequestBudget,
        headers: &HeaderMap,
        message: M,
    ) -> Result<Response<Body>, Status> {
        self.encode_response_bytes(door, headers, self.written(&message)?).await
    }

    /// Encodes a response from message bytes.
    pub async fn encode_response_bytes(
        self,
        door: &RequestBudget,
        headers: &HeaderMap,
        bytes: Bytes,
    ) -> Result<Response<Body>, Status> {
        let mut response = Response::new(Body::empty());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        match self.frame {
            RpcProtocol::Connect if accepts_gzip(headers) => {
                response.headers_mut().insert(CONTENT_ENCODING, GZIP_CONTENT_ENCODING);
                *response.body_mut() = door.gzip(bytes).await?.into();
            }
            RpcProtocol::Connect => *response.body_mut() = bytes.into(),
            RpcProtocol::Grpc => {
                let trailers = HeaderMap::from_iter([(GRPC_STATUS.parse().expect("a name"), GRPC_STATUS_OK)]);
                *response.body_mut() =
                    Body::new(BodyWithTrailers::new(framed(0, &bytes, BytesMut::new()), trailers));
            }
            RpcProtocol::GrpcWeb => {
                let trailers = framed(0x80, b"grpc-status: 0\r\n", BytesMut::new());
                *response.body_mut() = framed(0, &bytes, BytesMut::from(&b""[..]))
                    .into_iter()
                    .chain(trailers)
                    .collect::<Bytes>()
                    .into();
            }
        }
        Ok(response)
    }

    /// Encodes a stream of messages. An error ends the stream.
    pub fn encode_stream<M: Message + Serialize>(
        self,
        messages: impl Stream<Item = Result<M, Status>> + Send + 'static,
    ) -> Response<Body> {
        let frames = unfold((Box::pin(messages), false), move |(mut messages, over)| async move {
            if over {
                return None;
            }
            let next =
                messages.next().await.map(|message| message.and_then(|message| self.written(&message)));
            let (frame, over) = match next {
                Some(Ok(bytes)) => (http_body::Frame::data(framed(0, &bytes, BytesMut::new())), false),
                Some(Err(status)) => (self.last(Some(&status)), true),
                None => (self.last(None), true),
            };
            Some((Ok::<_, Infallible>(frame), (messages, over)))
        });
        let mut response = Response::new(Body::new(StreamBody::new(frames)));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        response
    }

    /// Returns the final frame of a stream.
    fn last(self, status: Option<&Status>) -> http_body::Frame<Bytes> {
        let trailers = match status {
            Some(status) => refusal(status),
            None => HeaderMap::from_iter([(HeaderName::from_static(GRPC_STATUS), GRPC_STATUS_OK)]),
        };
        if self.frame == RpcProtocol::Grpc {
            return http_body::Frame::trailers(trailers);
        }
        let mut text = Vec::new();
        for (name, value) in &trailers {
            text.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        http_body::Frame::data(framed(0x80, &text, BytesMut::new()))
    }

    fn written<M: Message + Serialize>(self, message: &M) -> Result<Bytes, Status> {
        if !self.json {
            return Ok(message.encode_to_vec().into());
        }
        let text = serde_json::to_vec(message);
        text.map(Bytes::from).map_err(|error| Status::new(ErrorCode::Internal, error.to_string()))
    }

    /// Encodes an error response.
    pub fn error(self, status: &Status) -> Response<Body> {
        if self.frame == RpcProtocol::Connect {
            return json_error(status);
        }
        let mut response = Response::new(Body::empty());
        *response.headers_mut() = refusal(status);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        response.extensions_mut().insert(RefusalCode(status.code));
        response
    }
}

/// Adds the Trailer header to a gRPC response over HTTP/1.1. Unannounced trailers are not sent there.
pub fn announce_trailers(response: &mut Response<Body>, version: Version) {
    if version != Version::HTTP_11 || response.body().is_end_stream() {
        return;
    }
    let content_type = response.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if content_type.starts_with(b"application/grpc") && !content_type.starts_with(b"application/grpc-web") {
        response.headers_mut().insert(TRAILER, HeaderValue::from_static("grpc-status, grpc-message"));
    }
}

/// Returns the gRPC headers of an error.
fn refusal(status: &Status) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(GRPC_STATUS, HeaderValue::from(status.code.grpc_status()));
    if let Ok(message) = HeaderValue::try_from(percent_encoded(&status.message)) {
        headers.insert(GRPC_MESSAGE, message);
    }
    headers
}

/// Response extension with the error code, for errors that the HTTP status does not reflect.
#[derive(Clone, Copy, Debug)]
pub struct RefusalCode(pub ErrorCode);

const GRPC_STATUS_OK: HeaderValue = HeaderValue::from_static("0");

/// Response extension with the text of an error, from which a server makes a page for browsers.
#[derive(Clone, Debug)]
pub struct ErrorText {
    /// Code of Connect, or of a legacy API.
    pub code: String,
    /// Message of the error.
    pub message: String,
}

/// Returns an error response in Connect's format, which plain HTTP routes share.
pub fn json_error(status: &Status) -> Response<Body> {
    json_error_with(status, status.code.connect_code(), status.code.http_status())
}

/// Like [`json_error`], for legacy APIs with their own code or status.
pub fn json_error_with(status: &Status, code: &str, http: u16) -> Response<Body> {
    let body = serde_json::json!({ "code": code, "message": status.message });
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let error = ErrorText { code: code.to_owned(), message: status.message.clone() };
    response.extensions_mut().insert(error);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(wait) = status.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
    }
    response
}

/// Returns whether a header names gzip. Rejects other compressions.
fn compression(headers: &HeaderMap, name: &str) -> Result<bool, Status> {
    match headers.get(name).map(HeaderValue::as_bytes) {
        None | Some(b"" | b"identity") => Ok(false),
        Some(b"gzip") => Ok(true),
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            Err(Status::new(
                ErrorCode::Unimplemented,
                format!("unknown compression {other:?}: supported encodings are gzip and identity"),
            ))
        }
    }
}

fn decode<M: Message + Default + DeserializeOwned>(bytes: &Bytes, json: bool) -> Result<M, Status> {
    let invalid = |error: &dyn std::fmt::Display| {
        Status::new(ErrorCode::Invalid, format!("failed to decode the message: {error}"))
    };
    if json {
        json::read(bytes).map_err(|error| invalid(&error))
    } else {
        M::decode(bytes.clone()).map_err(|error| invalid(&error))
    }
}

/// Strips the prefix of a unary message. Returns whether the message is compressed.
fn unframe(bytes: &mut Bytes) -> Result<bool, Status> {
    let invalid = |why: String| Err(Status::new(ErrorCode::Invalid, why));
    let Some((&[flag, a, b, c, d], rest)) = bytes.split_first_chunk::<GRPC_PREFIX_BYTES>() else {
        return invalid(format!(
            "the body has {} bytes, the prefix of a message has {GRPC_PREFIX_BYTES}",
            bytes.len()
        ));
    };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if flag > 1 {
        return invalid(format!("message prefix has flag {flag}, must be 0 or 1"));
    }
    if rest.len() != length {
        return invalid(format!("message prefix declares {length} bytes, {} follow", rest.len()));
    }
    *bytes = bytes.slice(GRPC_PREFIX_BYTES..);
    Ok(flag == 1)
}

fn framed(flag: u8, message: &[u8], mut out: BytesMut) -> Bytes {
    out.reserve(GRPC_PREFIX_BYTES + message.len());
    out.put_u8(flag);
    out.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    out.put_slice(message);
    out.freeze()
}

/// Percent-encodes an error message for the gRPC header.
fn percent_encoded(text: &str) -> String {
    utf8_percent_encode(text, UNPRINTABLE_OR_PERCENT).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(content_type: &'static str) -> Option<CallEncoding> {
        CallEncoding::from_headers(&HeaderMap::from_iter([(
            CONTENT_TYPE,
            HeaderValue::from_static(content_type),
        )]))
    }

    #[test]
    fn the_content_type_decides() {
        assert_eq!(
            of("application/json;charset=UTF-8").unwrap().content_type,
            "application/json; charset=utf-8"
        );
        assert_eq!(of("application/grpc").unwrap().frame, RpcProtocol::Grpc);
        for unknown in
            ["application/connect+json", "application/x-protobuf", "application/grpc-web-text+proto", ""]
        {
            assert_eq!(of(unknown), None, "{unknown}");
        }
        assert_eq!(CallEncoding::from_headers(&HeaderMap::new()), None);
    }

    #[test]
    fn a_frame_must_be_whole_and_alone() {
        let unframed = |bytes: &'static [u8]| {
            let mut bytes = Bytes::from_static(bytes);
            unframe(&mut bytes).map(|flag| (flag, bytes))
        };
        assert_eq!(unframed(b"\0\0\0\0\x02ab").unwrap(), (false, Bytes::from_static(b"ab")));
        assert_eq!(unframed(b"\x01\0\0\0\0").unwrap(), (true, Bytes::new()));
        for bad in
            [&b"\0\0\0"[..], b"\0\0\0\0\x03ab", b"\0\0\0\0\x01ab", b"\x02\0\0\0\0", b"\0\xff\xff\xff\xffab"]
        {
            assert_eq!(unframed(bad).unwrap_err().code, ErrorCode::Invalid, "{bad:?}");
        }
    }

    #[test]
    fn messages_of_errors_are_percent_encoded() {
        assert_eq!(percent_encoded("50% größer\n"), "50%25 gr%C3%B6%C3%9Fer%0A");
    }
}
