//! Any headers and bytes as a call in Connect, gRPC or gRPC-Web: an answer in the form of the protocol, and all room
//! given back. What was answered, sent again, is answered alike; what was refused says why.
//!
//! The input: four bytes of choices, a line with a header's value, and the body.
#![no_main]

use std::sync::LazyLock;

use athanor_chassis::{ByteSize, Clock, ComputePool, ErrorCode, Status, Timestamp};
use athanor_http_server::decoded_size::BodyPolicy;
use athanor_http_server::unary::CallOutput;
use athanor_http_server::{RequestBudget, tenant_header, unary};
use athanor_proto::push::v1::PushRequest;
use athanor_proto::querier::v1::SelectMergeStacktracesRequest;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use bytes::Bytes;
use http_body_util::BodyExt;
use libfuzzer_sys::fuzz_target;
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

#[path = "../now.rs"]
mod now;

use now::now;

const TYPES: [&str; 12] = [
    "application/proto",
    "application/json",
    "application/json; charset=utf-8",
    "application/grpc",
    "application/grpc+proto",
    "application/grpc+json",
    "application/grpc-web",
    "application/grpc-web+proto",
    "application/grpc-web+json",
    "application/connect+json",
    "application/grpc-web-text",
    " APPLICATION/JSON ;charset=UTF-8",
];
const HEADERS: [&str; 8] = [
    "connect-timeout-ms",
    "grpc-timeout",
    "connect-protocol-version",
    "content-encoding",
    "grpc-encoding",
    "content-length",
    "x-scope-orgid",
    "accept-encoding",
];
const LIMIT: ByteSize = ByteSize::kib(256);
/// For what was answered, which JSON makes longer.
const LARGE: ByteSize = ByteSize::mib(16);

static DOORS: LazyLock<[RequestBudget; 3]> = LazyLock::new(|| {
    let clock = || Clock::manual(Timestamp::from_seconds(1_800_000_000)).0;
    let door =
        |tenants, room| RequestBudget::new(tenants, ByteSize::mib(room), clock(), ComputePool::inline());
    // The last one reads what the first two wrote.
    [door(false, 8), door(true, 8), door(false, 256)]
});

/// An answer, taken apart.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    trailers: HeaderMap,
}

/// Sends one request to a method that answers with what it was asked, or refuses in the words given.
fn call<M>(
    (door, limit): (&RequestBudget, ByteSize),
    headers: HeaderMap,
    body: Bytes,
    refusal: Option<&str>,
) -> Answer
where
    M: Message + Default + DeserializeOwned + Serialize + 'static,
{
    let taken = door.memory.stats().taken;
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = Method::POST;
    *request.headers_mut() = headers;
    let who = |headers: &HeaderMap| tenant_header::parse_writer(headers, door.multitenancy);
    let echo = |_, message: M| async move {
        match refusal {
            Some(why) => Err(Status::new(ErrorCode::NotFound, why)),
            None => Ok(CallOutput::Message(message)),
        }
    };
    let (parts, body) =
        now(unary::handle_call(door, request, who, |_| BodyPolicy::profiles(limit), echo)).into_parts();
    let whole = now(body.collect()).expect("answers do not fail on their way");
    assert_eq!(door.memory.stats().taken, taken, "room was not given back");
    let trailers = whole.trailers().cloned().unwrap_or_default();
    Answer { status: parts.status, headers: parts.headers, body: whole.to_bytes(), trailers }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    [&[flag], &(message.len() as u32).to_be_bytes()[..], message].concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::fastest());
    let mut out = vec![0; compressor.gzip_compress_bound(bytes.len())];
    let length = compressor.gzip_compress(bytes, &mut out).expect("the bound is large enough");
    out.truncate(length);
    out
}

/// What percent signs stand for.
fn unescaped(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        let escaped = after.get(..2).filter(|_| first == b'%');
        let byte = escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        out.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    out
}

/// The message of an answer in the protocol's form, or the sentence and gRPC's number of a refusal.
fn message(answer: &Answer) -> Result<Bytes, (Vec<u8>, Option<i32>)> {
    let content_type = text(&answer.headers, "content-type").expect("every answer says what it is");
    if !content_type.starts_with("application/grpc") {
        if answer.status == StatusCode::OK {
            return Ok(answer.body.clone());
        }
        let error: serde_json::Value = serde_json::from_slice(&answer.body).expect("errors are JSON");
        assert!(error["code"].is_string(), "{error}");
        return Err((error["message"].as_str().expect("a sentence").as_bytes().to_vec(), None));
    }
    assert_eq!(answer.status, StatusCode::OK);
    if let Some(code) = text(&answer.headers, "grpc-status") {
        assert!(answer.body.is_empty() && answer.trailers.is_empty());
        let sentence = text(&answer.headers, "grpc-message").expect("refusals say why");
        return Err((unescaped(sentence), Some(code.parse().expect("a number"))));
    }
    let web = content_type.starts_with("application/grpc-web");
    let length = u32::from_be_bytes(answer.body[1..5].try_into().expect("four bytes")) as usize;
    assert_eq!(answer.body[0], 0);
    let rest = &answer.body[5 + length..];
    match web {
        true => assert_eq!(rest, framed(0x80, b"grpc-status: 0\r\n")),
        false => assert_eq!((rest, text(&answer.trailers, "grpc-status")), (&b""[..], Some("0"))),
    }
    Ok(answer.body.slice(5..5 + length))
}

fn header(name: &'static str, value: &str) -> HeaderMap {
    HeaderMap::from_iter([(name.parse().expect("a name"), HeaderValue::from_str(value).expect("plain text"))])
}

/// Any request, as the input has it.
fn check<M>(choices: [u8; 4], value: &[u8], rest: &[u8])
where
    M: Message + Default + DeserializeOwned + Serialize + 'static,
{
    let [kind, which, form, door] = choices;
    let content_type = TYPES[usize::from(kind) % TYPES.len()];
    let grpc = content_type.starts_with("application/grpc");
    let mut headers = header("content-type", content_type);
    if let Ok(value) = HeaderValue::from_bytes(value) {
        headers.insert(HEADERS[usize::from(which) % HEADERS.len()], value);
    }
    let zipped = form & 1 == 1;
    if zipped {
        headers.insert(
            if grpc { "grpc-encoding" } else { "content-encoding" },
            HeaderValue::from_static("gzip"),
        );
    }
    // Bytes as they are, or in the form that they should have.
    let body = match (form & 2 == 2, zipped, grpc) {
        (false, ..) => rest.to_vec(),
        (true, zipped, grpc) => {
            let body = if zipped { gzip(rest) } else { rest.to_vec() };
            if grpc { framed(u8::from(zipped), &body) } else { body }
        }
    };
    let refusal = String::from_utf8_lossy(value);
    let refusal = (form & 4 == 4).then_some(&*refusal);
    let answer = call::<M>((&DOORS[usize::from(door) % 2], LIMIT), headers, body.into(), refusal);
    if answer.status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        assert!(answer.headers.contains_key("accept-post"));
        return;
    }
    let Ok(first) = message(&answer) else { return };
    assert!(refusal.is_none());
    // What was answered is asked.
    let zipped = text(&answer.headers, "content-encoding") == Some("gzip");
    let mut headers = header("content-type", text(&answer.headers, "content-type").expect("it was there"));
    if zipped {
        headers.extend(header("content-encoding", "gzip"));
    }
    let body = if grpc { framed(0, &first).into() } else { answer.body.clone() };
    let again = call::<M>((&DOORS[2], LARGE), headers.clone(), body, None);
    let plain = match zipped {
        true => {
            let mut out = vec![0; 16 << 20];
            let mut decompressor = libdeflater::Decompressor::new();
            let length = decompressor.gzip_decompress(&answer.body, &mut out).expect("it was just written");
            Bytes::copy_from_slice(&out[..length])
        }
        false => first,
    };
    let said = message(&again).unwrap_or_else(|(why, _)| panic!("{}", String::from_utf8_lossy(&why)));
    assert_eq!(said, plain, "the same message is written in two ways");
    // And a refusal comes back word for word.
    let body = if grpc { framed(0, &plain).into() } else { answer.body };
    let why = String::from_utf8_lossy(&plain[..plain.len().min(500)]);
    let (said, code) =
        message(&call::<M>((&DOORS[2], LARGE), headers, body, Some(&why))).expect_err("it was refused");
    assert_eq!((said, code), (why.as_bytes().to_vec(), grpc.then_some(ErrorCode::NotFound.grpc_status())));
}

fuzz_target!(|input: &[u8]| {
    let Some((choices, rest)) = input.split_first_chunk::<4>() else { return };
    let line = rest.iter().position(|&byte| byte == b'\n').unwrap_or(0);
    let (value, rest) = (&rest[..line], rest.get(line + 1..).unwrap_or_default());
    match choices[2] & 8 {
        0 => check::<PushRequest>(*choices, value, rest),
        _ => check::<SelectMergeStacktracesRequest>(*choices, value, rest),
    }
});
