//! Any bytes as a spool file, and as the header of one with a valid checksum: an error, or a file that is the same
//! after another encoding. A file made of the bytes is read as it was written, and no changed byte is accepted.
#![no_main]

use athanor_agent::spool::SpoolFile;
use athanor_agent::spool::file_format::RequestParts;
use athanor_agent::upload::UploadRoute;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

/// Bytes of the magic and the version.
const MAGIC_BYTES: usize = 8;
/// End of the length of the header. Another length is another span of bytes under the same checksum.
const LENGTH_END: usize = 12;
const MAX_REQUESTS: usize = 8;

fuzz_target!(|bytes: &[u8]| {
    check_decoded(bytes.to_vec());
    check_decoded(with_header_checksum(bytes));
    check_round_trip(bytes);
});

/// Decodes a file. If it is valid, its encoding is the same file.
fn check_decoded(bytes: Vec<u8>) {
    let Ok(file) = SpoolFile::decode(&bytes.into()) else { return };
    let requests: Vec<RequestParts> = file
        .requests
        .iter()
        .map(|request| RequestParts {
            route: request.route.clone(),
            profiles: request.profiles,
            parts: vec![request.body.clone()],
        })
        .collect();
    let encoded = SpoolFile::encode(file.sequence, file.tenant.as_ref(), &requests).expect("its lengths fit");
    assert_eq!(SpoolFile::decode(&encoded.into()), Ok(file));
}

/// Returns a file whose header is the first bytes, as many as the first byte counts, and whose bodies are the rest.
fn with_header_checksum(bytes: &[u8]) -> Vec<u8> {
    let magic = SpoolFile::encode(0, None, &[]).expect("an empty file")[..MAGIC_BYTES].to_vec();
    let Some((count, rest)) = bytes.split_first() else { return magic };
    let (header, bodies) = rest.split_at(rest.len().min(usize::from(*count)));
    let length = (header.len() as u32).to_le_bytes();
    let checksum = crc32fast::hash(&[&length, header].concat()).to_le_bytes();
    [&magic[..], &length, &checksum, header, bodies].concat()
}

/// Writes and reads a file with the bytes as bodies and texts, and then changes one byte of it.
fn check_round_trip(bytes: &[u8]) {
    let Some((seed, rest)) = bytes.split_first() else { return };
    let size = (rest.len() / MAX_REQUESTS).max(1);
    let requests: Vec<RequestParts> = rest.chunks(size).take(MAX_REQUESTS).map(request_of).collect();
    let tenant = "team-a".parse().ok().filter(|_| seed % 2 == 0);
    let encoded = SpoolFile::encode(u64::from(*seed), tenant.as_ref(), &requests).expect("its lengths fit");
    let decoded = SpoolFile::decode(&encoded.clone().into()).expect("a file as it was written");
    assert_eq!((decoded.sequence, decoded.tenant), (u64::from(*seed), tenant));
    assert_eq!(decoded.requests.len(), requests.len());
    for (request, written) in decoded.requests.iter().zip(&requests) {
        assert_eq!((&request.route, request.profiles), (&written.route, written.profiles));
        assert_eq!(request.body, written.parts.concat());
    }
    let mut damaged = encoded;
    let position = usize::from(*seed) * damaged.len() / 256;
    damaged[position] ^= seed | 1;
    let is_length = (MAGIC_BYTES..LENGTH_END).contains(&position);
    assert!(SpoolFile::decode(&damaged.into()).is_err() || is_length, "byte {position}");
}

fn request_of(bytes: &[u8]) -> RequestParts {
    let text = || String::from_utf8_lossy(bytes).into_owned();
    let route = match bytes[0] % 3 {
        0 => UploadRoute::Push,
        1 => UploadRoute::Otlp,
        _ => UploadRoute::Ingest { query: text(), content_type: String::new(), content_encoding: text() },
    };
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let parts = vec![Bytes::copy_from_slice(first), Bytes::copy_from_slice(second)];
    RequestParts { route, profiles: u32::from(bytes[0]), parts }
}
