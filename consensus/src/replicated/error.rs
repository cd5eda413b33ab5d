//! Errors of opening a group and of proposals.

use std::time::Duration;

use athanor_chassis::disk::DiskError;
use athanor_chassis::{ByteSize, ErrorCode, ErrorCodeExt};

use super::leadership::LeadershipError;
use crate::log::LogError;

/// Reason why a proposal has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Another member leads, or an election is in progress. If leadership was lost meanwhile, the proposal
    /// may still be committed.
    #[error("this node does not lead the group; {}", match .leader { Some(node) => format!("retry on node {node}"), None => "election in progress, retry".to_owned() })]
    NotLeader {
        /// Current leader, if known.
        leader: Option<u64>,
    },
    /// The log refuses entries now. The proposal was not stored.
    #[error(transparent)]
    Refused(LogError),
    /// The proposal does not fit into a commit. It was not stored.
    #[error("the proposal has {size}, the limit is {limit}; split the proposal")]
    TooLarge {
        /// Size of the proposal.
        size: ByteSize,
        /// Limit for one proposal.
        limit: ByteSize,
    },
    /// The group shuts down. The proposal may have been stored or not.
    #[error("the group is shutting down")]
    ShuttingDown,
    /// The group has failed. The proposal may have been stored or not.
    #[error("the group has failed and rejects proposals until a restart: {cause}")]
    Failed {
        /// Cause of the failure.
        cause: String,
    },
    /// A majority did not respond in time. The proposal may still be committed, also under another leader.
    #[error(
        "no response from a majority of the group within {limit:?} or recently, the proposal may be committed or not; retry"
    )]
    Unknown {
        /// Limit of the wait.
        limit: Duration,
    },
    /// No majority was reached, so the committed index is unknown.
    #[error("no response from a majority of the group; retry")]
    NoQuorum,
}

/// Reason why a group was not opened.
#[derive(Debug, thiserror::Error)]
pub enum GroupOpenError {
    /// Entries or votes of a member of a larger group were lost. It must never vote again [INV-07].
    #[error(
        "the log of group {group} is damaged, so this member must not vote; remove the member from the group and give the node a new id"
    )]
    Hurt {
        /// Id of the group.
        group: u32,
    },
    /// The log has no data of a group that this node should have.
    #[error(
        "no data of group {group} on this disk, although this node is a member; restore the folder, or remove the member from the group and give the node a new id"
    )]
    Nothing {
        /// Id of the group.
        group: u32,
    },
    /// The log already has data of a group that should begin.
    #[error("this node already has a log of group {group}; create the group on a node with an empty folder")]
    Taken {
        /// Id of the group.
        group: u32,
    },
    /// The log is purged up to an index that no intact snapshot covers.
    #[error(
        "group {group} was purged up to {purged}, its snapshot is of {found:?}; restore the snapshot file, or remove the member from the group and give the node a new id"
    )]
    NoSnapshot {
        /// Id of the group.
        group: u32,
        /// Index up to which the log is purged.
        purged: u64,
        /// Index of the newest intact snapshot, if any.
        found: Option<u64>,
    },
    /// The state in the log is not a valid raft state.
    #[error("cannot decode the raft state of group {group}; another version may have written the log")]
    BadState {
        /// Id of the group.
        group: u32,
    },
    /// The state machine refuses its own snapshot.
    #[error(
        "the state machine rejected snapshot {name}: {reason}; restore its files, or remove the member from the group and give the node a new id"
    )]
    Snapshot {
        /// File of the snapshot.
        name: String,
        /// Reason from the state machine.
        reason: String,
    },
    /// The disk has no space for the first entries of a group.
    #[error(
        "the disk has {} free, and the log segments are full; free at least {segment} (wal.segment_bytes) \
         and restart",
        .free.to_approximate_string()
    )]
    Full {
        /// Free space of the disk now.
        free: ByteSize,
        /// Size of a segment file.
        segment: ByteSize,
    },
    /// The disk failed during the start.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Raft failed to start the group.
    #[error("raft failed to start: {cause}")]
    Raft {
        /// Error message of raft.
        cause: String,
    },
}

impl ErrorCodeExt for ProposeError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NotLeader { .. } => ErrorCode::NotLeader,
            Self::Refused(error) => error.code(),
            Self::TooLarge { .. } => ErrorCode::TooLarge,
            Self::ShuttingDown | Self::NoQuorum | Self::Unknown { .. } => ErrorCode::Unavailable,
            Self::Failed { .. } => ErrorCode::Internal,
        }
    }
}

impl ErrorCodeExt for LeadershipError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NotLeader { .. } => ErrorCode::NotLeader,
            Self::NoVoter { .. } => ErrorCode::Invalid,
            Self::Late { .. } => ErrorCode::Deadline,
            Self::LastVoter { .. } | Self::Leads { .. } => ErrorCode::Conflict,
            Self::Refused { .. } => ErrorCode::Unavailable,
        }
    }
}

impl ErrorCodeExt for GroupOpenError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Hurt { .. } | Self::Nothing { .. } | Self::NoSnapshot { .. } | Self::Snapshot { .. } => {
                ErrorCode::DataLoss
            }
            Self::Taken { .. } => ErrorCode::Conflict,
            Self::BadState { .. } | Self::Raft { .. } => ErrorCode::Internal,
            Self::Full { .. } => ErrorCode::Exhausted,
            Self::Disk(error) => error.code(),
        }
    }
}
