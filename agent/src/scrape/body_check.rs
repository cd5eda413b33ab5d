//! Check whether a response body is a pprof profile, while it arrives.
//!
//! The body is decompressed in pieces and walked as protobuf, without a copy of its content. Memory is that of
//! the decompressor, whatever the size of the profile.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;

use super::pprof_walker::{BodyError, PprofSummary, PprofWalker};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Bytes that are decompressed in one step. Deflate makes at most 8 MiB of them.
pub(super) const MAX_STEP_BYTES: usize = 8 << 10;

/// Check of one body.
pub struct BodyCheck {
    max_plain_bytes: u64,
    state: CheckState,
}

enum CheckState {
    /// Fewer bytes arrived than identify the encoding.
    Start(Vec<u8>),
    Plain(PprofWalker),
    Gzip(Box<MultiGzDecoder<PprofWalker>>),
}

impl BodyCheck {
    /// Creates a check that accepts up to `max_plain_bytes` after decompression.
    pub fn new(max_plain_bytes: u64) -> Self {
        Self { max_plain_bytes, state: CheckState::Start(Vec::new()) }
    }

    /// Checks the next bytes. Callers pass large pieces in steps of [`MAX_STEP_BYTES`] to yield in between.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), BodyError> {
        match &mut self.state {
            CheckState::Start(seen) => {
                let mut start = std::mem::take(seen);
                start.extend_from_slice(bytes);
                if start.len() < GZIP_MAGIC.len() {
                    *seen = start;
                    return Ok(());
                }
                let walker = PprofWalker::new(self.max_plain_bytes);
                self.state = match start.starts_with(&GZIP_MAGIC) {
                    true => CheckState::Gzip(Box::new(MultiGzDecoder::new(walker))),
                    false => CheckState::Plain(walker),
                };
                self.push(&start)
            }
            CheckState::Plain(walker) => walker.walk(bytes),
            CheckState::Gzip(decoder) => {
                let written = decoder.write_all(bytes);
                written.map_err(|error| gzip_error(decoder.get_ref(), &error))
            }
        }
    }

    /// Plain bytes so far.
    pub fn plain_bytes(&self) -> u64 {
        match &self.state {
            CheckState::Start(seen) => seen.len() as u64,
            CheckState::Plain(walker) => walker.walked_bytes(),
            CheckState::Gzip(decoder) => decoder.get_ref().walked_bytes(),
        }
    }

    /// Ends the check after the last byte.
    pub fn finish(self) -> Result<PprofSummary, BodyError> {
        match self.state {
            CheckState::Start(seen) if seen.is_empty() => Err(BodyError::Empty),
            CheckState::Start(seen) => {
                let mut walker = PprofWalker::new(self.max_plain_bytes);
                walker.walk(&seen)?;
                walker.finish(false)
            }
            CheckState::Plain(walker) => walker.finish(false),
            CheckState::Gzip(mut decoder) => {
                let finished = decoder.try_finish();
                finished.map_err(|error| match gzip_error(decoder.get_ref(), &error) {
                    BodyError::Damaged { why } => BodyError::Truncated { why: format!("gzip stream: {why}") },
                    error => error,
                })?;
                decoder.get_ref().clone().finish(true)
            }
        }
    }
}

/// Returns the error of the walker if it stopped the decoder, else that of the decoder.
fn gzip_error(walker: &PprofWalker, error: &io::Error) -> BodyError {
    walker.error().cloned().unwrap_or_else(|| BodyError::Damaged { why: error.to_string() })
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::super::test_profiles::{gzip, pprof, pprof_without_time};
    use super::*;

    fn check_in_pieces(body: &[u8], piece: usize, limit: u64) -> Result<PprofSummary, BodyError> {
        let mut check = BodyCheck::new(limit);
        body.chunks(piece).try_for_each(|bytes| check.push(bytes))?;
        check.finish()
    }

    #[test]
    fn profile_passes_plain_and_compressed_in_pieces_of_any_size() {
        let plain = pprof(1_700_000_000_000_000_007);
        for (body, is_gzip) in [(plain.clone(), false), (gzip(&plain), true)] {
            for piece in [1, 2, 3, 7, body.len()] {
                let summary = check_in_pieces(&body, piece, 1 << 20).unwrap();
                let expected = PprofSummary {
                    plain_bytes: plain.len() as u64,
                    time_nanos: 1_700_000_000_000_000_007,
                    is_gzip,
                };
                assert_eq!(summary, expected);
            }
        }
        assert_eq!(check_in_pieces(&gzip(&pprof_without_time()), 5, 1 << 20).unwrap().time_nanos, 0);
    }

    #[test]
    fn several_gzip_members_are_one_profile_and_the_last_time_wins() {
        let body = [gzip(&pprof_without_time()), gzip(&[0x48, 0x05])].concat();
        for piece in [1, 9, body.len()] {
            assert_eq!(check_in_pieces(&body, piece, 1 << 20).unwrap().time_nanos, 5);
        }
    }

    #[test]
    fn bomb_stops_at_the_limit() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        // A string of 64 MiB.
        encoder.write_all(&[0x0a, 0x04, 8, 1, 16, 2, 0x32, 0x80, 0x80, 0x80, 0x20]).unwrap();
        (0..64).for_each(|_| encoder.write_all(&vec![0; 1 << 20]).unwrap());
        let bomb = encoder.finish().unwrap();
        let limit = 4 << 20;
        assert_eq!(check_in_pieces(&bomb, 512, limit), Err(BodyError::PlainTooLarge { limit }));
        assert!(check_in_pieces(&bomb, 512, 65 << 20).is_ok());
    }

    #[test]
    fn other_bodies_are_rejected_with_their_start() {
        let html = b"<html><body>Sign in</body></html>";
        let error = check_in_pieces(html, 10, 1 << 20).unwrap_err();
        assert!(error.to_string().contains("<html><bo"), "{error}");
        let not_pprof = |body: &[u8]| match check_in_pieces(body, 8, 1 << 20) {
            Err(BodyError::NotPprof { .. } | BodyError::Truncated { .. }) => true,
            other => panic!("{other:?}"),
        };
        assert!(not_pprof(b"{\"status\":\"ok\"}"));
        assert!(not_pprof(b"heap profile: 1: 2 [3: 4] @ heap/1048576\n"));
        assert!(not_pprof(b"# HELP up Up\n# TYPE up gauge\nup 1\n"));
        assert!(not_pprof(&gzip(&gzip(&pprof(1)))));
        assert!(not_pprof(b"x"));
        assert!(not_pprof(&gzip(b"")));
        assert_eq!(check_in_pieces(b"", 1, 1 << 20), Err(BodyError::Empty));
    }

    #[test]
    fn every_truncation_is_found() {
        let plain = pprof(1_700_000_000_000_000_000);
        let packed = gzip(&plain);
        for end in 1..packed.len() {
            assert!(check_in_pieces(&packed[..end], 16, 1 << 20).is_err(), "{end}");
        }
        let last_entry = plain.len() - 1;
        assert!(matches!(
            check_in_pieces(&plain[..last_entry], 16, 1 << 20),
            Err(BodyError::Truncated { .. })
        ));
    }

    #[test]
    fn flipped_bit_of_a_compressed_profile_is_found() {
        let mut packed = gzip(&pprof(1_700_000_000_000_000_000));
        let place = packed.len() - 6;
        packed[place] ^= 1;
        assert!(matches!(
            check_in_pieces(&packed, 16, 1 << 20),
            Err(BodyError::Truncated { .. } | BodyError::Damaged { .. })
        ));
    }

    proptest! {
        #[test]
        fn check_of_any_bytes_does_not_panic(
            body in proptest::collection::vec(any::<u8>(), 0..300),
            piece in 1_usize..40,
            has_magic: bool,
        ) {
            let body = if has_magic { [&GZIP_MAGIC[..], &[8, 0], &body].concat() } else { body };
            let whole = check_in_pieces(&body, 400, 1 << 16);
            prop_assert_eq!(whole.is_ok(), check_in_pieces(&body, piece, 1 << 16).is_ok());
        }
    }
}
