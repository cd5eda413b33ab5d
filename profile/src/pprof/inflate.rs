//! Decompression into one buffer that is used again, bounded while it grows.

use std::io::Read;

use super::DecodeError;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const DEFLATE: u8 = 8;
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A decompressor that keeps its memory between profiles.
#[derive(Default)]
pub struct Inflater {
    buffer: Vec<u8>,
    gzip: Option<libdeflater::Decompressor>,
}

/// Decompresses once, into a buffer of its own.
pub fn inflate(bytes: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
    let mut inflater = Inflater::default();
    if is_compressed(bytes) {
        let length = inflater.inflate(bytes, limit)?.len();
        inflater.buffer.truncate(length);
        return Ok(inflater.buffer);
    }
    Ok(inflater.inflate(bytes, limit)?.to_vec())
}

pub(super) fn is_compressed(bytes: &[u8]) -> bool {
    bytes.starts_with(&GZIP) || bytes.starts_with(&ZSTD)
}

impl Inflater {
    /// Bytes of memory held between profiles.
    pub fn memory(&self) -> usize {
        self.buffer.capacity()
    }
    /// The first bytes of what was decompressed last.
    pub(super) fn inflated(&self, length: usize) -> &[u8] {
        &self.buffer[..length]
    }
    /// The plain bytes: decompressed if a magic number says so, else as they are.
    pub fn inflate<'a>(&'a mut self, bytes: &'a [u8], limit: usize) -> Result<&'a [u8], DecodeError> {
        if bytes.starts_with(&GZIP) {
            self.gzip(bytes, limit)
        } else if bytes.starts_with(&ZSTD) {
            self.zstd(bytes, limit)
        } else if bytes.len() > limit {
            Err(over(bytes.len(), limit))
        } else {
            Ok(bytes)
        }
    }

    /// The trailer's length is only a hint: the buffer grows from it, never past the limit.
    fn gzip(&mut self, bytes: &[u8], limit: usize) -> Result<&[u8], DecodeError> {
        // libdeflate reads one member and does not say where it ended.
        if has_second_member(bytes) {
            return self.gzip_members(bytes, limit);
        }
        let hint = bytes.last_chunk::<4>().map_or(0, |length| u32::from_le_bytes(*length) as usize);
        // Deflate cannot do better than 1032 to 1, so a larger claim is a lie.
        let mut size = hint.min(bytes.len().saturating_mul(1032)).max(64);
        let gzip = self.gzip.get_or_insert_with(libdeflater::Decompressor::new);
        loop {
            size = size.min(limit);
            if self.buffer.len() < size {
                self.buffer.resize(size, 0);
            }
            match gzip.gzip_decompress(bytes, &mut self.buffer[..size]) {
                Ok(length) => return Ok(&self.buffer[..length]),
                Err(libdeflater::DecompressionError::InsufficientSpace) if size < limit => size *= 2,
                Err(libdeflater::DecompressionError::InsufficientSpace) => {
                    return Err(over(limit + 1, limit));
                }
                Err(libdeflater::DecompressionError::BadData) => {
                    let why = "bad data or cut off".to_owned();
                    return Err(DecodeError::Compression { format: "gzip", why });
                }
            }
        }
    }

    fn gzip_members(&mut self, bytes: &[u8], limit: usize) -> Result<&[u8], DecodeError> {
        let stream = flate2::bufread::MultiGzDecoder::new(bytes);
        self.stream("gzip", stream, limit)
    }

    fn zstd(&mut self, bytes: &[u8], limit: usize) -> Result<&[u8], DecodeError> {
        let stream = zstd::stream::read::Decoder::with_buffer(bytes)
            .map_err(|error| DecodeError::Compression { format: "zstd", why: error.to_string() })?;
        self.stream("zstd", stream, limit)
    }

    fn stream(
        &mut self,
        format: &'static str,
        stream: impl Read,
        limit: usize,
    ) -> Result<&[u8], DecodeError> {
        self.buffer.clear();
        stream
            .take(limit as u64 + 1)
            .read_to_end(&mut self.buffer)
            .map_err(|error| DecodeError::Compression { format, why: error.to_string() })?;
        if self.buffer.len() > limit {
            return Err(over(self.buffer.len(), limit));
        }
        Ok(&self.buffer)
    }
}

/// Whether a second gzip header may lie within: magic, method, no reserved flag, a known compression level.
/// Chance makes such bytes once in ten gigabytes; then the slower way gives the same.
fn has_second_member(bytes: &[u8]) -> bool {
    let rest = &bytes[GZIP.len()..];
    memchr::memmem::find_iter(rest, &[GZIP[0], GZIP[1], DEFLATE]).any(|at| {
        let header = &rest[at..];
        header.get(3).is_some_and(|flags| flags & 0xe0 == 0)
            && header.get(8).is_some_and(|level| matches!(level, 0 | 2 | 4))
    })
}

fn over(seen: usize, limit: usize) -> DecodeError {
    DecodeError::OverLimit { what: "bytes", seen, limit }
}
