//! Answers on their way: cut into pieces, and put together again.

use std::fmt;

use athanor_profile::codec::{CodecError, CodecReader, put_varint};
use bytes::Bytes;

use super::{WIRE_FORMAT_VERSION, WireError, damaged_error};
use crate::partial::PartialResult;
use crate::profile_query::ProfileQuery;

/// Most bytes of a packed answer: a million values of a label fit, be they as long as names of pods can be.
pub const MAX_ENCODED_PARTIAL_BYTES: usize = 256 << 20;
/// Most bytes of a piece of it.
pub const MAX_CHUNK_BYTES: usize = 1 << 20;

pub(super) const PARTIAL_MESSAGE_NAME: &str = "answer";

/// A packed answer, piece by piece.
#[derive(Clone)]
pub struct PartialChunks(Bytes);

/// Pieces of an answer, as far as they have come.
#[derive(Clone, Debug, Default)]
pub struct PartialChunkBuffer {
    bytes: Vec<u8>,
}

impl PartialResult {
    /// Packs it, for whoever asked.
    pub fn pack(&self) -> Result<PartialChunks, WireError> {
        let mut out = vec![WIRE_FORMAT_VERSION];
        put_varint(&mut out, self.bytes() as u64);
        self.put(&mut out);
        check_size(PARTIAL_MESSAGE_NAME, out.len(), MAX_ENCODED_PARTIAL_BYTES)?;
        // It grew by doubling, and may be kept for long.
        out.shrink_to_fit();
        Ok(PartialChunks(out.into()))
    }

    /// Reads what [`pack`](Self::pack) wrote, in one piece: the answer to this question.
    pub fn unpack(bytes: &[u8], ask: &ProfileQuery) -> Result<Self, WireError> {
        check_header(bytes, bytes.len())?;
        let (claim, mut unpacker) = read_declared_size(bytes).map_err(damaged_error(PARTIAL_MESSAGE_NAME))?;
        PartialResult::read(&mut unpacker, ask, claim)
    }
}

impl PartialChunks {
    /// Bytes that are still to be sent.
    pub fn remaining_bytes(&self) -> usize {
        self.0.len()
    }

    /// All of them in one.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl fmt::Debug for PartialChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces").field("bytes", &self.remaining_bytes()).finish()
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
    /// Adds the next piece.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), WireError> {
        check_size("piece of an answer", piece.len(), MAX_CHUNK_BYTES)?;
        let beginning = if self.bytes.is_empty() { piece } else { &self.bytes };
        check_header(beginning, self.bytes.len() + piece.len())?;
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// Whether nothing has come.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// About how much memory the answer will take, once that is known: the first piece says so.
    pub fn declared_size(&self) -> Option<usize> {
        read_declared_size(&self.bytes).ok().map(|(claim, _)| claim)
    }

    /// The answer to the question, when all pieces are here.
    pub fn unpack(&self, ask: &ProfileQuery) -> Result<PartialResult, WireError> {
        let (claim, mut unpacker) =
            read_declared_size(&self.bytes).map_err(damaged_error(PARTIAL_MESSAGE_NAME))?;
        PartialResult::read(&mut unpacker, ask, claim)
    }
}

/// What memory an answer takes, and the rest of it.
fn read_declared_size(bytes: &[u8]) -> Result<(usize, CodecReader<'_>), CodecError> {
    let mut unpacker = CodecReader::new(bytes);
    unpacker.read_slice(1)?;
    let wrong = unpacker.error_here("an answer that no machine holds");
    let claim = usize::try_from(unpacker.read_number()?).map_err(|_| wrong)?;
    Ok((claim, unpacker))
}

/// Whether an answer that begins so, of that length, can be read.
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
