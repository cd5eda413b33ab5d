//! Request bodies in the encodings that other clients use.

#![expect(clippy::missing_panics_doc, reason = "what does not work fails the test")]

use bytes::Bytes;

/// Content type of a [`multipart_form`], including its boundary.
pub const FORM_CONTENT_TYPE: &str = "multipart/form-data; boundary=b";

/// Returns a multipart form with one part per name.
#[must_use]
pub fn multipart_form(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, content) in parts {
        body.extend(format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n").into_bytes());
        body.extend_from_slice(content);
        body.extend(b"\r\n");
    }
    body.extend(b"--b--\r\n");
    body
}

/// Compresses bytes with gzip at the default level.
#[must_use]
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    gzip_at(libdeflater::CompressionLvl::default(), bytes)
}

/// Returns a valid gzip stream that holds the bytes uncompressed.
#[must_use]
pub fn gzip_stored(bytes: &[u8]) -> Vec<u8> {
    gzip_at(libdeflater::CompressionLvl::fastest(), bytes)
}

fn gzip_at(level: libdeflater::CompressionLvl, bytes: &[u8]) -> Vec<u8> {
    let mut compressor = libdeflater::Compressor::new(level);
    let mut out = vec![0; compressor.gzip_compress_bound(bytes.len())];
    let length = compressor.gzip_compress(bytes, &mut out).expect("there is room");
    out.truncate(length);
    out
}

/// Returns a gRPC message with the five-byte frame that precedes it in a body.
#[must_use]
pub fn grpc_frame(message: &[u8], is_compressed: bool) -> Bytes {
    let length = u32::try_from(message.len()).expect("it is short").to_be_bytes();
    [&[u8::from(is_compressed)][..], &length, message].concat().into()
}

/// Encodes a length-delimited protobuf field. The field number must be below 16.
#[must_use]
pub fn protobuf_field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(number < 16, "its number takes one byte");
    let mut bytes = vec![number << 3 | 2];
    let mut length = content.len();
    while length > 127 {
        bytes.push((length & 127) as u8 | 128);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(content);
    bytes
}
