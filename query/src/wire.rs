//! Wire format of queries and partial results, between nodes.
//!
//! ```text
//!  ProfileQuery ─► pack ─► bytes ──────────────────────────────────────► unpack ─► ProfileQuery ─► run ─┐
//!  PartialResult ◄─ unpack ◄─ PartialChunkBuffer ◄─ chunks ◄─ PartialChunks ◄─ pack ◄─ PartialResult ◄──┘
//!                                                (at most 1 MiB)
//! ```
//!
//! Both formats begin with a version. Small numbers have short encodings, shared texts are written once, and
//! derivable values are omitted. A tree node of 40 bytes in memory takes about four bytes here. A result is
//! therefore packed completely before its first chunk is sent. The sender thus detects excessive sizes
//! beforehand, and holds a tenth of the memory while a slow client reads.
//!
//! A result begins with its memory size, so that the receiver can reserve memory before the rest arrives.
//! Decoding uses no more than that and validates everything else: it returns a complete, sorted result or an
//! error.

use athanor_chassis::code::{ErrorCode, ErrorCodeExt};
use athanor_profile::encoding::codec::CodecError;

use crate::request::profile_query::ProfileQueryError;
use crate::request::selector_parser::SelectorError;

mod chunks;
mod lists;
mod partial;
mod position;
mod profile_ids;
mod profile_list;
mod profile_query;
mod query_kind;
mod samples;
mod stack_filter;
#[cfg(test)]
mod tests;
mod values;

pub use chunks::{MAX_CHUNK_BYTES, MAX_ENCODED_PARTIAL_BYTES, PartialChunkBuffer, PartialChunks};
pub use profile_query::MAX_ENCODED_QUERY_BYTES;

/// Version of the format. A decoder rejects other versions.
const WIRE_FORMAT_VERSION: u8 = 1;

/// Reasons why a query or a result cannot be packed or unpacked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The encoded form exceeds the limit.
    #[error(
        "encoded {what} has {seen} bytes, the limit is {limit}; select fewer series or a shorter time range"
    )]
    TooLarge {
        /// Kind of message: query, result or chunk.
        what: &'static str,
        /// Number of bytes, as far as they were counted.
        seen: usize,
        /// Maximum number of bytes.
        limit: usize,
    },
    /// The message has another version.
    #[error(
        "{what} has wire format version {seen}, must be {WIRE_FORMAT_VERSION}; run the same release on all nodes"
    )]
    Version {
        /// Kind of message: query or result.
        what: &'static str,
        /// Version in the message.
        seen: u8,
    },
    /// The message is not in a valid format.
    #[error("encoded {what} is corrupt: {why}")]
    Damaged {
        /// Kind of message: query or result.
        what: &'static str,
        /// Position and kind of the damage.
        why: CodecError,
    },
    /// The query has an invalid selector.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// The result exceeds the limits of the query.
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

/// Returns a conversion of codec errors for one kind of message.
fn damaged_error(what: &'static str) -> impl Fn(CodecError) -> WireError {
    move |why| WireError::Damaged { what, why }
}
