//! Compression of a body for the transfer.

use athanor_profile::formats::pprof::gzip_fast;
use bytes::Bytes;

/// First bytes of a body that show whether it can be compressed.
const PROBE_BYTES: usize = 32 << 10;
/// Compressed bytes of the first ones, in percent, from which on the body is sent as it is.
const MAX_COMPRESSED_PERCENT: usize = 90;

/// Compresses a body with gzip. Returns None if that saves little, because its profiles are compressed already.
/// Blocks.
pub(super) fn gzip_body(body: &[u8]) -> Option<Bytes> {
    if body.len() > PROBE_BYTES {
        let probe = gzip_fast(&body[..PROBE_BYTES]);
        if probe.len() > PROBE_BYTES / 100 * MAX_COMPRESSED_PERCENT {
            return None;
        }
    }
    Some(gzip_fast(body).into())
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Random;
    use athanor_profile::formats::pprof::inflate;

    use super::*;

    #[test]
    fn body_of_compressed_profiles_is_sent_as_it_is() {
        let random = Random::from_seed(1);
        let compressed: Vec<u8> = (0..2 * PROBE_BYTES).map(|_| random.next_below(256) as u8).collect();
        assert_eq!(gzip_body(&compressed), None);
        for plain in [b"text".repeat(PROBE_BYTES), compressed[..100].to_vec()] {
            let gzipped = gzip_body(&plain).unwrap();
            assert_eq!(inflate(&gzipped, 1 << 20).unwrap()[..], plain[..]);
        }
    }
}
