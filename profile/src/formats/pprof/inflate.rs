//! Decompression into a reusable buffer, with a limit that is enforced while the buffer grows.

use std::io::Read;

use bytes::Bytes;

use super::DecodeError;

/// Maximum zstd window, as a power of two. Every reader should support this size, and HTTP allows it. Levels
/// up to 19 need no more.
const MAX_ZSTD_WINDOW_LOG: u32 = 23;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const DEFLATE_METHOD: u8 = 8;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Decompressor that keeps its memory between profiles.
#[derive(Default)]
pub struct Inflater {
    buffer: Vec<u8>,
    gzip: Option<libdeflater::Decompressor>,
}

/// Decompresses once, into a new buffer.
pub fn inflate(bytes: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
    let mut inflater = Inflater::default();
    if is_compressed(bytes) {
        let length = inflater.inflate(bytes, limit)?.len();
        inflater.buffer.truncate(length);
        inflater.buffer.shrink_to_fit();
        return Ok(inflater.buffer);
    }
    Ok(inflater.inflate(bytes, limit)?.to_vec())
}

/// Decompresses like [`inflate`], but returns plain input without a copy. Compressed input is dropped.
pub fn inflate_bytes(bytes: Bytes, limit: usize) -> Result<Bytes, DecodeError> {
    if is_compressed(&bytes) {
        return inflate(&bytes, limit).map(Bytes::from);
    }
    if bytes.len() > limit { Err(over(bytes.len(), limit)) } else { Ok(bytes) }
}

pub(super) fn is_compressed(bytes: &[u8]) -> bool {
    bytes.starts_with(&GZIP_MAGIC) || bytes.starts_with(&ZSTD_MAGIC)
}

impl Inflater {
    /// Returns the bytes of memory held between profiles.
    pub fn memory(&self) -> usize {
        self.buffer.capacity()
    }
    /// Returns the first `length` bytes of the last output.
    pub(super) fn inflated(&self, length: usize) -> &[u8] {
        &self.buffer[..length]
    }
    /// Returns the plain bytes: decompressed if a magic number identifies the format, else as they are.
    pub fn inflate<'a>(&'a mut self, bytes: &'a [u8], limit: usize) -> Result<&'a [u8], DecodeError> {
        if bytes.starts_with(&GZIP_MAGIC) {
            self.gzip(bytes, limit)
        } else if bytes.starts_with(&ZSTD_MAGIC) {
            self.zstd(bytes, limit)
        } else if bytes.len() > limit {
            Err(over(bytes.len(), limit))
        } else {
            Ok(bytes)
        }
    }

    /// Decompresses gzip. The length in the trailer is only a hint: the buffer grows from it, never past the
    /// limit.
    fn gzip(&mut self, bytes: &[u8], limit: usize) -> Result<&[u8], DecodeError> {
        // libdeflate reads one member and does not return its end.
        if has_second_member(bytes) {
            return self.gzip_members(bytes, limit);
        }
        let length = self.gzip_member(bytes, limit)?;
        // If there is only one member, the file ends with its length.
        if bytes.ends_with(&(length as u32).to_le_bytes()) {
            return Ok(&self.buffer[..length]);
        }
        self.gzip_members(bytes, limit)
    }

    /// Decompresses the first member and returns its length.
    fn gzip_member(&mut self, bytes: &[u8], limit: usize) -> Result<usize, DecodeError> {
        let hint = bytes.last_chunk::<4>().map_or(0, |length| u32::from_le_bytes(*length) as usize);
        // Deflate compresses at most 1032 to 1, so a larger claim is false.
        let mut size = hint.min(bytes.len().saturating_mul(1032)).max(64);
        let gzip = self.gzip.get_or_insert_with(libdeflater::Decompressor::new);
        loop {
            size = size.min(limit);
            if self.buffer.len() < size {
                self.buffer.resize(size, 0);
            }
            match gzip.gzip_decompress(bytes, &mut self.buffer[..size]) {
                Ok(length) => return Ok(length),
                Err(libdeflater::DecompressionError::InsufficientSpace) if size < limit => size *= 2,
                Err(libdeflater::DecompressionError::InsufficientSpace) => {
                    return Err(over(limit + 1, limit));
                }
                Err(libdeflater::DecompressionError::BadData) => {
                    return Err(damaged("gzip", "invalid or truncated data".to_owned()));
                }
            }
        }
    }

    /// Decompresses all members with a decoder that finds the end of each. Zeros after the last are padding.
    fn gzip_members(&mut self, bytes: &[u8], limit: usize) -> Result<&[u8], DecodeError> {
        self.buffer.clear();
        let mut rest = bytes;
        while rest.starts_with(&GZIP_MAGIC) {
            let mut member = flate2::bufread::GzDecoder::new(rest);
            let left = (limit - self.buffer.len()) as u64;
            let read = member.by_ref().take(left + 1).read_to_end(&mut self.buffer);
            read.map_err(|error| damaged("gzip", error.to_string()))?;
            if self.buffer.len() > limit {
                return Err(over(self.buffer.len(), limit));
            }
            rest = member.into_inner();
        }
        if rest.iter().any(|&byte| byte != 0) {
            let count = rest.len();
            let from = bytes.len() - rest.len();
            let why =
                format!("the {count} bytes after its end, from byte {from} on, are not gzip; remove them");
            return Err(damaged("gzip", why));
        }
        Ok(&self.buffer)
    }

    fn zstd(&mut self, bytes: &[u8], limit: usize) -> Result<&[u8], DecodeError> {
        let damaged = |error: std::io::Error| {
            let way_out = match error.to_string().contains("too much memory") {
                true => ": window exceeds 8 MiB; compress with a level up to 19, and no longer window",
                false => "",
            };
            damaged("zstd", format!("{error}{way_out}"))
        };
        let mut stream = zstd::stream::read::Decoder::with_buffer(bytes).map_err(damaged)?;
        stream.window_log_max(MAX_ZSTD_WINDOW_LOG).map_err(damaged)?;
        self.buffer.clear();
        let read = stream.take(limit as u64 + 1).read_to_end(&mut self.buffer);
        read.map_err(damaged)?;
        if self.buffer.len() > limit {
            return Err(over(self.buffer.len(), limit));
        }
        Ok(&self.buffer)
    }
}

/// Returns whether the input may have a second gzip header: magic, method, no reserved flag. Random data has
/// such bytes once in a hundred megabytes. The slower path then gives the same result.
fn has_second_member(bytes: &[u8]) -> bool {
    let rest = &bytes[GZIP_MAGIC.len()..];
    memchr::memmem::find_iter(rest, &[GZIP_MAGIC[0], GZIP_MAGIC[1], DEFLATE_METHOD])
        .any(|at| rest.get(at + 3).is_some_and(|flags| flags & 0xe0 == 0))
}

fn damaged(format: &'static str, why: String) -> DecodeError {
    DecodeError::Compression { format, why }
}

fn over(seen: usize, limit: usize) -> DecodeError {
    DecodeError::OverLimit { what: "bytes", seen, limit }
}
