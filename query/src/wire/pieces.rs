//! Answers on their way: cut into pieces, and put together again.

use std::fmt;

use athanor_profile::packed::{PackedError, Unpacker, put};
use bytes::Bytes;

use super::{VERSION, WireError, damaged};
use crate::ask::Ask;
use crate::partial::Partial;

/// Most bytes of a packed answer: a million values of a label fit, be they as long as names of pods can be.
pub const MAX_PARTIAL: usize = 256 << 20;
/// Most bytes of a piece of it.
pub const MAX_PIECE: usize = 1 << 20;

pub(super) const WHAT: &str = "answer";

/// A packed answer, piece by piece.
#[derive(Clone)]
pub struct Pieces(Bytes);

/// Pieces of an answer, as far as they have come.
#[derive(Clone, Debug, Default)]
pub struct Received {
    bytes: Vec<u8>,
}

impl Partial {
    /// Packs it, for whoever asked.
    pub fn pack(&self) -> Result<Pieces, WireError> {
        let mut out = vec![VERSION];
        put(&mut out, self.bytes() as u64);
        self.put(&mut out);
        fits(WHAT, out.len(), MAX_PARTIAL)?;
        // It grew by doubling, and may be kept for long.
        out.shrink_to_fit();
        Ok(Pieces(out.into()))
    }

    /// Reads what [`pack`](Self::pack) wrote, in one piece: the answer to this question.
    pub fn unpack(bytes: &[u8], ask: &Ask) -> Result<Self, WireError> {
        checked(bytes, bytes.len())?;
        let (claim, mut unpacker) = said(bytes).map_err(damaged(WHAT))?;
        Partial::read(&mut unpacker, ask, claim)
    }
}

impl Pieces {
    /// Bytes that are still to be sent.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// All of them in one.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces").field("bytes", &self.bytes()).finish()
    }
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let length = self.0.len().min(MAX_PIECE);
        (length > 0).then(|| self.0.split_to(length))
    }
}

impl Received {
    /// Adds the next piece.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), WireError> {
        fits("piece of an answer", piece.len(), MAX_PIECE)?;
        let beginning = if self.bytes.is_empty() { piece } else { &self.bytes };
        checked(beginning, self.bytes.len() + piece.len())?;
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// Whether nothing has come.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// About how much memory the answer will take, once that is known: the first piece says so.
    pub fn claim(&self) -> Option<usize> {
        said(&self.bytes).ok().map(|(claim, _)| claim)
    }

    /// The answer to the question, when all pieces are here.
    pub fn unpack(&self, ask: &Ask) -> Result<Partial, WireError> {
        let (claim, mut unpacker) = said(&self.bytes).map_err(damaged(WHAT))?;
        Partial::read(&mut unpacker, ask, claim)
    }
}

/// What memory an answer takes, and the rest of it.
fn said(bytes: &[u8]) -> Result<(usize, Unpacker<'_>), PackedError> {
    let mut unpacker = Unpacker::new(bytes);
    unpacker.take(1)?;
    let wrong = unpacker.wrong("an answer that no machine holds");
    let claim = usize::try_from(unpacker.number()?).map_err(|_| wrong)?;
    Ok((claim, unpacker))
}

/// Whether an answer that begins so, of that length, can be read.
fn checked(beginning: &[u8], length: usize) -> Result<(), WireError> {
    fits(WHAT, length, MAX_PARTIAL)?;
    match beginning.first() {
        Some(&seen) if seen != VERSION => Err(WireError::Version { what: WHAT, seen }),
        _ => Ok(()),
    }
}

fn fits(what: &'static str, seen: usize, limit: usize) -> Result<(), WireError> {
    if seen <= limit { Ok(()) } else { Err(WireError::TooLarge { what, seen, limit }) }
}
