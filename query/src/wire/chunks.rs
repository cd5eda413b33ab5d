//! Chunks of an encoded partial result: splitting and reassembly.

use std::fmt;

use athanor_profile::encoding::codec::{CodecError, CodecReader, put_varint};
use bytes::Bytes;

use super::{WIRE_FORMAT_VERSION, WireError, damaged_error};
use crate::request::profile_query::ProfileQuery;
use crate::result::partial::PartialResult;

/// Maximum bytes of an encoded result. A million label values fit, even if they are as long as pod names can
/// be.
pub const MAX_ENCODED_PARTIAL_BYTES: usize = 256 << 20;
/// Maximum bytes of one chunk.
pub const MAX_CHUNK_BYTES: usize = 1 << 20;

pub(super) const PARTIAL_MESSAGE_NAME: &str = "result";

/// Encoded result as an iterator of chunks.
#[derive(Clone)]
pub struct PartialChunks(Bytes);

/// Buffer of the chunks of a result that have arrived.
#[derive(Clone, Debug, Default)]
pub struct PartialChunkBuffer {
    bytes: Vec<u8>,
}

impl PartialResult {
    /// Encodes the result for transmission.
    pub fn pack(&self) -> Result<PartialChunks, WireError> {
        let mut out = vec![WIRE_FORMAT_VERSION];
        put_varint(&mut out, self.bytes() as u64);
        self.put(&mut out);
        check_size(PARTIAL_MESSAGE_NAME, out.len(), MAX_ENCODED_PARTIAL_BYTES)?;
        // The buffer grew by doubling, and may be stored for a long time.
        out.shrink_to_fit();
        Ok(PartialChunks(out.into()))
    }

    /// Decodes the complete output of [`pack`](Self::pack) as the result of this query.
    pub fn unpack(bytes: &[u8], query: &ProfileQuery) -> Result<Self, WireError> {
        check_header(bytes, bytes.len())?;
        let (declared_bytes, mut reader) =
            read_declared_size(bytes).map_err(damaged_error(PARTIAL_MESSAGE_NAME))?;
        PartialResult::read(&mut reader, query, declared_bytes)
    }
}

impl PartialChunks {
    /// Returns the number of bytes still to be sent.
    pub fn remaining_bytes(&self) -> usize {
        self.0.len()
    }

    /// Returns all remaining bytes in one piece.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl fmt::Debug for PartialChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartialChunks").field("bytes", &self.remaining_bytes()).finish()
    }
}

impl Iterator for PartialChunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let length = self.0.len().min(MAX_CHUNK_BYTES);
        (length > 0).then(|| self.0.split_to(length))
    }
}

impl PartialChunkBuffer {
    /// Appends the next chunk.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), WireError> {
        check_size("chunk of a result", chunk.len(), MAX_CHUNK_BYTES)?;
        let beginning = if self.bytes.is_empty() { chunk } else { &self.bytes };
        check_header(beginning, self.bytes.len() + chunk.len())?;
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }

    /// Returns true if no chunk has arrived.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the memory of the buffer.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns the approximate memory of the decoded result, once the first chunk has arrived.
    pub fn declared_size(&self) -> Option<usize> {
        read_declared_size(&self.bytes).ok().map(|(declared_bytes, _)| declared_bytes)
    }

    /// Decodes the result of the query, once all chunks have arrived.
    pub fn unpack(&self, query: &ProfileQuery) -> Result<PartialResult, WireError> {
        let (declared_bytes, mut reader) =
            read_declared_size(&self.bytes).map_err(damaged_error(PARTIAL_MESSAGE_NAME))?;
        PartialResult::read(&mut reader, query, declared_bytes)
    }
}

/// Returns the declared memory of a result, and a reader of the rest.
fn read_declared_size(bytes: &[u8]) -> Result<(usize, CodecReader<'_>), CodecError> {
    let mut reader = CodecReader::new(bytes);
    reader.read_slice(1)?;
    let too_large = reader.error_here("declared size exceeds the address space");
    let declared_bytes = usize::try_from(reader.read_number()?).map_err(|_| too_large)?;
    Ok((declared_bytes, reader))
}

/// Checks the version and the length of a result.
fn check_header(beginning: &[u8], length: usize) -> Result<(), WireError> {
    check_size(PARTIAL_MESSAGE_NAME, length, MAX_ENCODED_PARTIAL_BYTES)?;
    match beginning.first() {
        Some(&seen) if seen != WIRE_FORMAT_VERSION => {
            Err(WireError::Version { what: PARTIAL_MESSAGE_NAME, seen })
        }
        _ => Ok(()),
    }
}

fn check_size(what: &'static str, seen: usize, limit: usize) -> Result<(), WireError> {
    if seen <= limit { Ok(()) } else { Err(WireError::TooLarge { what, seen, limit }) }
}
