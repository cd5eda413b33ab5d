//! Why a log does not open, takes nothing, or cannot give what it holds.

use std::sync::Arc;

use athanor_chassis::compute::ComputeError;
use athanor_chassis::disk::DiskError;
use athanor_chassis::{ByteSize, ErrorCode, ErrorCodeExt};

use super::LogIdentity;

/// Why something was not logged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// Too little space is left on the disk.
    #[error(
        "the disk has {} free, and {reserve} of it are kept in reserve (log.reserve); free some space; `athanor cut` lets the log give up what it holds",
        .free.to_approximate_string()
    )]
    Full {
        /// Free now.
        free: ByteSize,
        /// What is kept.
        reserve: ByteSize,
    },
    /// Too much waits.
    #[error("{waiting} wait for their commit, the limit is {limit}; try again when the disk has caught up")]
    Busy {
        /// What waits.
        waiting: ByteSize,
        /// The limit.
        limit: ByteSize,
    },
    /// A batch does not fit into a frame.
    #[error("a batch has {size}, the limit is {limit}; split it")]
    TooLarge {
        /// Of the batch.
        size: ByteSize,
        /// The limit.
        limit: ByteSize,
    },
    /// Every segment repeats every group.
    #[error("the log has {limit} groups, which is the limit for segments of this size")]
    TooManyGroups {
        /// The limit.
        limit: u64,
    },
    /// An entry would leave a hole.
    #[error("group {group} cannot take entry {index}: {}", match .next { Some(next) => format!("the next is {next}"), None => "it was purged".to_owned() })]
    Hole {
        /// Whose.
        group: u32,
        /// That was submitted.
        index: u64,
        /// That would follow.
        next: Option<u64>,
    },
    /// The disk failed; the log takes nothing more until the process is started again.
    #[error("the log has failed and takes nothing more until a restart: {cause}")]
    Failed {
        /// What the disk said.
        cause: Arc<str>,
    },
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
}

/// Why an entry was not read.
#[derive(Debug, thiserror::Error)]
pub enum LogReadError {
    /// Its bytes are damaged or gone.
    #[error("entry {index} of group {group} is lost")]
    Lost {
        /// Whose.
        group: u32,
        /// Its place.
        index: u64,
    },
    /// The disk failed.
    #[error("entry {index} of group {group} was not read")]
    Disk {
        /// Whose.
        group: u32,
        /// Its place.
        index: u64,
        /// What the disk said.
        source: DiskError,
    },
}

/// Why a log was not opened.
#[derive(Debug, thiserror::Error)]
pub enum LogOpenError {
    /// The folder belongs to another node or cluster.
    #[error("the folder holds the log of node {} of cluster {:032x}, not of node {} of cluster {:032x}; a wiped disk needs a new node id",
        found.node, found.cluster, expected.node, expected.cluster)]
    Foreign {
        /// Whose it is.
        found: LogIdentity,
        /// Who asked.
        expected: LogIdentity,
    },
    /// There are segments, and nothing says whose.
    #[error(
        "the folder holds segments but no identity file; restore it, or give the node an empty folder and a new id"
    )]
    NoIdentity,
    /// The identity file is damaged.
    #[error("the identity file is damaged; restore it, or give the node an empty folder and a new id")]
    BadIdentity,
    /// There were segments, and there is none.
    #[error("all segments are gone; restore them, or give the node an empty folder and a new id")]
    Missing,
    /// The configuration cannot be.
    #[error("segments of {segment} are too small, the least is {least}")]
    SmallSegments {
        /// What was configured.
        segment: ByteSize,
        /// The least.
        least: ByteSize,
    },
    /// The disk has no room for the first file.
    #[error(
        "the disk has {} free, and the log begins with a file of {segment} (log.segment), with {spares} more to come \
         (log.spares): free some space, or make them smaller and fewer",
        .free.to_approximate_string()
    )]
    NoRoom {
        /// Free now.
        free: ByteSize,
        /// Of a file.
        segment: ByteSize,
        /// How many more are prepared.
        spares: usize,
    },
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// No thread could be started.
    #[error(transparent)]
    Threads(#[from] ComputeError),
}

impl ErrorCodeExt for LogError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Full { .. } | Self::Busy { .. } => ErrorCode::Exhausted,
            Self::TooLarge { .. } => ErrorCode::TooLarge,
            Self::TooManyGroups { .. } => ErrorCode::Exhausted,
            Self::Hole { .. } | Self::Failed { .. } => ErrorCode::Internal,
            Self::Closed => ErrorCode::Unavailable,
        }
    }
}

impl ErrorCodeExt for LogReadError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Lost { .. } => ErrorCode::DataLoss,
            Self::Disk { source, .. } => source.code(),
        }
    }
}

impl ErrorCodeExt for LogOpenError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Foreign { .. } | Self::NoIdentity => ErrorCode::Conflict,
            Self::BadIdentity | Self::Missing => ErrorCode::DataLoss,
            Self::SmallSegments { .. } => ErrorCode::Invalid,
            Self::NoRoom { .. } => ErrorCode::Exhausted,
            Self::Disk(source) => source.code(),
            Self::Threads(source) => source.code(),
        }
    }
}
