//! Any bytes as a call with many messages: read or refused, alike however they are cut into pieces, and no more in memory than
//! a message may have.
//!
//! The input: a byte of choices, one that says how long pieces are, and the body.
#![no_main]

use std::convert::Infallible;

use athanor_chassis::{ByteSize, Clock, ErrorCode, Timestamp};
use athanor_http_server::encoding::CallEncoding;
use athanor_http_server::pace::PacedBody;
use athanor_proto::parca::debuginfo::v1alpha1::UploadRequest;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue};
use bytes::Bytes;
use futures::StreamExt;
use libfuzzer_sys::fuzz_target;
use prost::Message;

#[path = "../now.rs"]
mod now;

use now::now;

const TYPES: [&str; 4] =
    ["application/grpc", "application/grpc+json", "application/grpc-web", "application/grpc-web+json"];
const LIMIT: ByteSize = ByteSize::kib(4);

/// The messages of a body in pieces of one size, and what ended it.
fn read(choices: u8, body: &[u8], size: usize) -> (Vec<UploadRequest>, Option<ErrorCode>) {
    let mut headers = HeaderMap::new();
    let content_type = TYPES[usize::from(choices) % TYPES.len()];
    headers.insert("content-type", HeaderValue::from_static(content_type));
    if choices & 4 == 4 {
        headers.insert("grpc-encoding", HeaderValue::from_static("gzip"));
    }
    let pieces: Vec<_> =
        body.chunks(size).map(|piece| Ok::<_, Infallible>(Bytes::copy_from_slice(piece))).collect();
    // Its time stands still, so no body is too slow.
    let (clock, _) = Clock::manual(Timestamp::UNIX_EPOCH);
    let body = PacedBody::new(Body::from_stream(futures::stream::iter(pieces)), clock);
    let encoding = CallEncoding::stream_from_headers(&headers).expect("it is one of a stream");
    let charge = Box::new(|_| Ok(()));
    let messages =
        encoding.decode_messages::<UploadRequest>(&headers, body, LIMIT, charge).expect("gzip is known");
    let mut all: Vec<_> = now(messages.collect());
    let ended = all.pop_if(|last| last.is_err()).and_then(Result::err);
    let messages = all.into_iter().map(|message| message.expect("an error is the last one")).collect();
    (messages, ended.map(|status| status.code))
}

fuzz_target!(|input: &[u8]| {
    let [choices, size, body @ ..] = input else { return };
    let (messages, ended) = read(*choices, body, usize::from(*size) + 1);
    assert_eq!((messages.clone(), ended), read(*choices, body, usize::MAX));
    assert!(messages.iter().all(|message| message.encoded_len() <= LIMIT.as_usize() + 16));
});
