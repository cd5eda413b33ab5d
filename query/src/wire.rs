//! Questions and answers as bytes, between whoever asks and whoever has the sources.
//!
//! ```text
//!  Ask ─► pack ─► bytes ───────────────────────────────────────────► unpack ─► Ask ─► answer ─┐
//!  Partial ◄─ unpack ◄─ Received ◄── pieces of at most 1 MiB ◄── Pieces ◄─ pack ◄─ Partial ◄──┘
//! ```
//!
//! Both begin with a version. Numbers are short where they are small, texts that several entries share are said once,
//! and what follows from the rest is not said: a tree of 40 bytes a node in memory takes some four here. So an answer
//! is packed whole before its first piece is sent. Whoever sends it knows then that it is not too large, and holds a
//! tenth of it while a slow reader reads.
//!
//! An answer says first how much memory it takes, so that its reader can make room before the rest comes. Reading
//! takes no more than that, and trusts nothing else either: what comes out is a whole answer in its order, or an error.

use athanor_chassis::code::{ErrorCode, ErrorCodeExt};
use athanor_profile::codec::CodecError;

use crate::profile_query::ProfileQueryError;
use crate::selector_parser::SelectorError;

mod chunks;
mod lists;
mod partial;
mod profile_ids;
mod profile_list;
mod profile_query;
mod query_kind;
#[cfg(test)]
mod tests;
mod values;

pub use chunks::{MAX_CHUNK_BYTES, MAX_ENCODED_PARTIAL_BYTES, PartialChunkBuffer, PartialChunks};
pub use profile_query::MAX_ENCODED_QUERY_BYTES;

/// How bytes are to be read. Another number means that readers of this one cannot.
const WIRE_FORMAT_VERSION: u8 = 3;

/// Why a question or an answer cannot be packed, or bytes are none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// More bytes than go over the wire.
    #[error("packed {what} has {seen} bytes, the limit is {limit}; select fewer series or a shorter time")]
    TooLarge {
        /// Question, answer or a piece of one.
        what: &'static str,
        /// Its size, as far as it was looked at.
        seen: usize,
        /// The limit.
        limit: usize,
    },
    /// Written by another program.
    #[error(
        "packed {what} is of version {seen}, this program reads version {WIRE_FORMAT_VERSION}; run the same release on all nodes"
    )]
    Version {
        /// Question or answer.
        what: &'static str,
        /// What it says.
        seen: u8,
    },
    /// Not what was packed.
    #[error("packed {what} is damaged: {why}")]
    Damaged {
        /// Question or answer.
        what: &'static str,
        /// Where and how.
        why: CodecError,
    },
    /// The question has conditions that cannot be read.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// The answer is larger than was asked for.
    #[error(transparent)]
    Bounds(#[from] ProfileQueryError),
}

impl ErrorCodeExt for WireError {
    fn code(&self) -> ErrorCode {
        match self {
            WireError::TooLarge { .. } => ErrorCode::Invalid,
            WireError::Version { .. } => ErrorCode::Unimplemented,
            WireError::Damaged { .. } => ErrorCode::Internal,
            WireError::Selector(error) => error.code(),
            WireError::Bounds(error) => error.code(),
        }
    }
}

/// Says of what bytes are.
fn damaged_error(what: &'static str) -> impl Fn(CodecError) -> WireError {
    move |why| WireError::Damaged { what, why }
}
