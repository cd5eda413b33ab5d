//! Errors of opening, writing and reading a log.

use std::sync::Arc;

use athanor_chassis::compute::ComputeError;
use athanor_chassis::disk::DiskError;
use athanor_chassis::{ByteSize, ErrorCode, ErrorCodeExt};

use super::LogIdentity;

/// Reason why the log refused or failed a write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The disk has less free space than the reserve.
    #[error(
        "the disk has {} free, the reserve is {reserve} (wal.min_free_bytes); free some space, `athanor flush` frees log space",
        .free.to_approximate_string()
    )]
    Full {
        /// Free space of the disk now.
        free: ByteSize,
        /// Configured reserve, `wal.min_free_bytes`.
        reserve: ByteSize,
    },
    /// The payloads that wait for their commit exceed the limit.
    #[error("{waiting} wait for commit, the limit is {limit}; retry when the disk has caught up")]
    Busy {
        /// Bytes that wait for their commit.
        waiting: ByteSize,
        /// Limit of waiting bytes.
        limit: ByteSize,
    },
    /// A batch or a group state exceeds its size limit.
    #[error("the batch has {size}, the limit is {limit}; split the batch")]
    TooLarge {
        /// Size of the batch as a frame.
        size: ByteSize,
        /// Limit for the batch or the state.
        limit: ByteSize,
    },
    /// The log has as many groups as one segment can repeat.
    #[error("the log has {limit} groups, which is the limit for segments of this size")]
    TooManyGroups {
        /// Limit of groups per log.
        limit: u64,
    },
    /// An entry would leave a hole in its group, or replace a purged entry.
    #[error("group {group} rejected entry {index}: {}", match .next { Some(next) => format!("the next index is {next}"), None => "the index is purged".to_owned() })]
    Hole {
        /// Raft group of the entry.
        group: u32,
        /// Index that was submitted.
        index: u64,
        /// Index that would follow, or none if the submitted one is purged.
        next: Option<u64>,
    },
    /// The disk failed. The log refuses everything until the process restarts.
    #[error("the log has failed and rejects writes until a restart: {cause}")]
    Failed {
        /// Error message of the disk.
        cause: Arc<str>,
    },
    /// The log was closed before the write.
    #[error("the log is closed")]
    Closed,
}

/// Reason why an entry was not read.
#[derive(Debug, thiserror::Error)]
pub enum LogReadError {
    /// The bytes of the entry are damaged or gone.
    #[error("entry {index} of group {group} is lost")]
    Lost {
        /// Raft group of the entry.
        group: u32,
        /// Index of the entry.
        index: u64,
    },
    /// The disk failed to read the entry.
    #[error("entry {index} of group {group} was not read")]
    Disk {
        /// Raft group of the entry.
        group: u32,
        /// Index of the entry.
        index: u64,
        /// Error of the disk.
        source: DiskError,
    },
}

/// Reason why a log was not opened.
#[derive(Debug, thiserror::Error)]
pub enum LogOpenError {
    /// The folder belongs to another node or cluster.
    #[error("the folder holds the log of node {} of cluster {:032x}, not of node {} of cluster {:032x}; a wiped disk needs a new node id",
        found.node, found.cluster, expected.node, expected.cluster)]
    Foreign {
        /// Identity in the folder.
        found: LogIdentity,
        /// Identity of this node.
        expected: LogIdentity,
    },
    /// Segments exist, but no file identifies their node.
    #[error(
        "the folder has segments but no identity file; restore the file, or give the node an empty folder and a new id"
    )]
    NoIdentity,
    /// The identity file is damaged: its magic, checksum or length is wrong.
    #[error("the identity file is damaged; restore the file, or give the node an empty folder and a new id")]
    BadIdentity,
    /// All segments of the log are gone.
    #[error("all segments are missing; restore the segments, or give the node an empty folder and a new id")]
    Missing,
    /// The configured segment size is below the minimum.
    #[error("segments of {segment} are too small, the minimum is {least} (wal.segment_bytes)")]
    SmallSegments {
        /// Configured size of a segment.
        segment: ByteSize,
        /// Smallest permitted size.
        least: ByteSize,
    },
    /// The disk has no space for the first file.
    #[error(
        "the disk has {} free, the log needs one file of {segment} (wal.segment_bytes) and {spares} spare \
         files (wal.preallocated_segments); free some space, or lower these settings",
        .free.to_approximate_string()
    )]
    NoRoom {
        /// Free space of the disk now.
        free: ByteSize,
        /// Size of the first file.
        segment: ByteSize,
        /// Number of files that are prepared afterwards.
        spares: usize,
    },
    /// The disk failed during the start.
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
