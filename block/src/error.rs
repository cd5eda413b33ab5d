//! Why a block cannot be written or read. Every message names the file.

use std::io;

use athanor_chassis::code::{ErrorCode, ErrorCodeExt};
use athanor_profile::source::SourceError;
use parquet::errors::ParquetError;

/// Why a block was refused or could not be written.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// The folder did not answer.
    #[error("{file}: {source}")]
    Io {
        /// Which file.
        file: String,
        /// The cause.
        source: io::Error,
    },
    /// A file is shorter or longer than `meta.json` says.
    #[error("{file} has {seen} bytes, meta.json says {expected}: it is cut off or belongs to another block")]
    Length {
        /// Which file.
        file: String,
        /// Its length.
        seen: u64,
        /// What it should be.
        expected: u64,
    },
    /// Bytes that differ from what was written.
    #[error(
        "{file} is damaged within bytes {from}..{to}: its checksum is {seen:08x}, meta.json says {expected:08x}"
    )]
    Damaged {
        /// Which file.
        file: String,
        /// First byte of the page.
        from: u64,
        /// End of the page.
        to: u64,
        /// Checksum of what is there.
        seen: u32,
        /// Checksum of what was written.
        expected: u32,
    },
    /// `meta.json` that says nonsense.
    #[error("meta.json is not a block's: {why}")]
    Meta {
        /// What is wrong.
        why: String,
    },
    /// A block of a version that this program does not know.
    #[error("the block has format {seen}, this program reads up to {known}: use a newer athanor")]
    NewerFormat {
        /// Its format.
        seen: u32,
        /// Ours.
        known: u32,
    },
    /// A table that is whole but says nonsense.
    #[error("{file} contradicts itself: {why}")]
    Corrupt {
        /// Which file.
        file: String,
        /// What is wrong.
        why: String,
    },
    /// Parquet that does not parse or cannot be written.
    #[error("{file}: {source}")]
    Parquet {
        /// Which file.
        file: String,
        /// The cause.
        source: ParquetError,
    },
    /// More rows than ids.
    #[error("a block holds at most {limit} {what}; build several")]
    TooLarge {
        /// Rows of what.
        what: &'static str,
        /// How many fit.
        limit: usize,
    },
    /// No such tenant in the block.
    #[error("the block holds nothing of tenant {tenant}; it holds {known}")]
    NoTenant {
        /// Who was asked for.
        tenant: String,
        /// Who is there.
        known: String,
    },
    /// Profiles in memory that cannot be read.
    #[error(transparent)]
    Held(#[from] SourceError),
    /// A profile that was refused.
    #[error(transparent)]
    Profile(#[from] athanor_profile::pprof::DecodeError),
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
            // What our own reader said comes back whole, also where an I/O error carried it.
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
            BlockError::Profile(_) => ErrorCode::Invalid,
        }
    }
}

impl From<BlockError> for SourceError {
    /// What may pass is unavailable, what stays is damaged.
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
