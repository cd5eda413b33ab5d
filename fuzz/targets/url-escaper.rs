//! Any bytes as a connection of HTTP/1: what stands for them is the same however they are cut into pieces, at most three times as
//! long, and the same bytes where nothing has to be escaped.
//!
//! The input: a byte that says how long pieces are, and the connection.
#![no_main]

use athanor_http_server::listen::url_escaping::UrlEscaper;
use libfuzzer_sys::fuzz_target;

fn escaped(bytes: &[u8], length: usize) -> Vec<u8> {
    let mut escaper = UrlEscaper::default();
    let pieces = bytes.chunks(length);
    pieces.flat_map(|piece| escaper.escape(piece).unwrap_or_else(|| piece.to_vec())).collect()
}

fuzz_target!(|input: &[u8]| {
    let Some((&length, bytes)) = input.split_first() else { return };
    let whole = escaped(bytes, bytes.len().max(1));
    assert_eq!(escaped(bytes, usize::from(length).max(1)), whole);
    assert!(whole.len() <= 3 * bytes.len());
    assert!(bytes.iter().any(|byte| !byte.is_ascii() || b"\"<>`\\^".contains(byte)) || whole == bytes);
});
