//! Errors of reading and writing blocks. Every message names the file.

use std::io;

use athanor_chassis::code::{ErrorCode, ErrorCodeExt};
use athanor_profile::store_interface::source::SourceError;
use parquet::errors::ParquetError;

/// Rejection of a block, or failure to write one.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// A read or write in the folder failed.
    #[error("{file}: {source}")]
    Io {
        /// Name of the file.
        file: String,
        /// Underlying I/O error.
        source: io::Error,
    },
    /// The length of a file differs from `meta.json`.
    #[error(
        "{file} has {seen} bytes, meta.json lists {expected}; the file is truncated or belongs to another block"
    )]
    Length {
        /// Name of the file.
        file: String,
        /// Length of the file.
        seen: u64,
        /// Length in `meta.json`.
        expected: u64,
    },
    /// Bytes of a page differ from the checksum.
    #[error(
        "{file} is damaged within bytes {from}..{to}: its checksum is {seen:08x}, meta.json lists {expected:08x}"
    )]
    Damaged {
        /// Name of the file.
        file: String,
        /// Offset of the first byte of the page.
        from: u64,
        /// Offset behind the last byte of the page.
        to: u64,
        /// Checksum of the stored bytes.
        seen: u32,
        /// Checksum in `meta.json`.
        expected: u32,
    },
    /// The contents of `meta.json` are invalid.
    #[error("meta.json is invalid: {why}")]
    Meta {
        /// Reason for the rejection.
        why: String,
    },
    /// The block has a format that this version does not support.
    #[error("block has format {seen}, this version reads formats up to {known}; use a newer athanor")]
    NewerFormat {
        /// Format of the block.
        seen: u32,
        /// Newest format that this version reads.
        known: u32,
    },
    /// A table has valid checksums but contradictory contents.
    #[error("{file} is inconsistent: {why}")]
    Corrupt {
        /// Name of the file.
        file: String,
        /// Description of the contradiction.
        why: String,
    },
    /// A Parquet file cannot be parsed or written.
    #[error("{file}: {source}")]
    Parquet {
        /// Name of the file.
        file: String,
        /// Underlying Parquet error.
        source: ParquetError,
    },
    /// A table has more rows than there are IDs.
    #[error("a block holds at most {limit} {what}; build several blocks")]
    TooLarge {
        /// Plural noun for the rows.
        what: &'static str,
        /// Upper bound of rows.
        limit: usize,
    },
    /// The tiers of a merge's blocks do not fit together.
    #[error("merge into tier {output} is not possible: {why}")]
    TierMismatch {
        /// Name of the output's tier.
        output: &'static str,
        /// Description of the input that does not fit.
        why: String,
    },
    /// The block has no rows of the tenant.
    #[error("block has no rows of tenant {tenant}; its first tenants are {known}")]
    NoTenant {
        /// Tenant that was requested.
        tenant: String,
        /// First tenants of the block, comma-separated.
        known: String,
    },
    /// In-memory profiles cannot be read.
    #[error(transparent)]
    Held(#[from] SourceError),
    /// A profile was rejected by the decoder.
    #[error(transparent)]
    Profile(#[from] athanor_profile::formats::pprof::DecodeError),
}

impl BlockError {
    pub(crate) fn corrupt(file: &str, why: impl Into<String>) -> Self {
        BlockError::Corrupt { file: file.into(), why: why.into() }
    }
    pub(crate) fn io(file: &str) -> impl FnOnce(io::Error) -> Self {
        move |source| BlockError::Io { file: file.into(), source }
    }
    pub(crate) fn parquet(file: &str) -> impl Fn(ParquetError) -> Self {
        move |source| {
            let inner = match source {
                ParquetError::External(inner) => inner,
                source => return BlockError::Parquet { file: file.into(), source },
            };
            // An error of this crate's reader is returned as is, even inside an I/O error.
            let inner = match inner.downcast::<io::Error>() {
                Ok(error) if error.get_ref().is_some_and(|inner| inner.is::<BlockError>()) => {
                    return error.downcast().unwrap_or_else(BlockError::io(file));
                }
                Ok(error) => error,
                Err(inner) => inner,
            };
            match inner.downcast::<BlockError>() {
                Ok(ours) => *ours,
                Err(other) => {
                    BlockError::Parquet { file: file.into(), source: ParquetError::External(other) }
                }
            }
        }
    }
}

impl ErrorCodeExt for BlockError {
    fn code(&self) -> ErrorCode {
        match self {
            BlockError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => ErrorCode::NotFound,
            BlockError::Io { .. } => ErrorCode::Unavailable,
            BlockError::Length { .. }
            | BlockError::Damaged { .. }
            | BlockError::Meta { .. }
            | BlockError::Corrupt { .. }
            | BlockError::Parquet { .. } => ErrorCode::DataLoss,
            BlockError::NewerFormat { .. } => ErrorCode::Unimplemented,
            BlockError::TooLarge { .. } => ErrorCode::TooLarge,
            BlockError::NoTenant { .. } => ErrorCode::NotFound,
            BlockError::Held(SourceError::Damaged(_)) => ErrorCode::DataLoss,
            BlockError::Held(SourceError::Left) => ErrorCode::Cancelled,
            BlockError::Held(_) => ErrorCode::Unavailable,
            BlockError::Profile(_) | BlockError::TierMismatch { .. } => ErrorCode::Invalid,
        }
    }
}

impl From<BlockError> for SourceError {
    /// Maps transient errors to `Unavailable` and permanent ones to `Damaged`.
    fn from(error: BlockError) -> Self {
        match (error.code(), error) {
            (_, BlockError::Held(error)) => error,
            (ErrorCode::Unavailable | ErrorCode::NotFound | ErrorCode::Unimplemented, error) => {
                SourceError::Unavailable(error.to_string())
            }
            (_, error) => SourceError::Damaged(error.to_string()),
        }
    }
}
