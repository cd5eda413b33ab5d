//! Why a group does not open, or does not answer a proposal.

use std::time::Duration;

use athanor_chassis::disk::DiskError;
use athanor_chassis::{ByteSize, ErrorCode, ErrorCodeExt};

use super::leadership::LeadershipError;
use crate::log::LogError;

/// Why a proposal was not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Another member leads, or an election is on. If the lead was lost meanwhile, the proposal may yet be kept.
    #[error("this node does not lead the group; {}", match .leader { Some(node) => format!("ask node {node}"), None => "an election is on, try again".to_owned() })]
    NotLeader {
        /// Who leads, where that is known.
        leader: Option<u64>,
    },
    /// The log takes nothing now. The proposal was not kept.
    #[error(transparent)]
    Refused(LogError),
    /// It does not fit into a commit. The proposal was not kept.
    #[error("a proposal has {size}, the limit is {limit}; split it")]
    TooLarge {
        /// Of the proposal.
        size: ByteSize,
        /// The limit.
        limit: ByteSize,
    },
    /// The group ends. The proposal may be kept or not.
    #[error("the group is shutting down")]
    ShuttingDown,
    /// The group has ended by an error. The proposal may be kept or not.
    #[error("the group has failed and takes nothing more until a restart: {cause}")]
    Failed {
        /// What happened.
        cause: String,
    },
    /// Others did not answer in time. The proposal may yet be kept, whoever leads then.
    #[error(
        "no majority of the group's members answered within {limit:?}, or in the last moments; whether this is kept is not known: try again"
    )]
    Unknown {
        /// The most that is waited.
        limit: Duration,
    },
    /// Too few members were reached to say what is committed.
    #[error("no majority of the group's members was reached; try again")]
    NoQuorum,
}

/// Why a group was not opened.
#[derive(Debug, thiserror::Error)]
pub enum GroupOpenError {
    /// Entries or votes of a member of a larger group were lost: it must never vote again [INV-07].
    #[error(
        "the log of group {group} is damaged, so this member must not vote; take it out of the group and give the node a new id"
    )]
    Hurt {
        /// Which.
        group: u32,
    },
    /// There should be a log of the group, and there is none.
    #[error(
        "nothing of group {group} is on this disk, though this node is one of its members; bring the folder back, or take the member out of the group and give the node a new id"
    )]
    Nothing {
        /// Which.
        group: u32,
    },
    /// There is a log of a group that should begin.
    #[error("this node has a log of group {group} already; begin it on a node with an empty folder")]
    Taken {
        /// Which.
        group: u32,
    },
    /// The log begins behind entries that no snapshot holds.
    #[error(
        "group {group} was purged up to {purged}, and its snapshot is of {found:?}; restore the snapshot's file, or take the member out of the group and give the node a new id"
    )]
    NoSnapshot {
        /// Which.
        group: u32,
        /// Up to where.
        purged: u64,
        /// What the newest snapshot that is whole holds.
        found: Option<u64>,
    },
    /// The state in the log is not one of raft.
    #[error("the state of group {group} in the log cannot be read; it was written by another version")]
    BadState {
        /// Which.
        group: u32,
    },
    /// The state machine does not take its own snapshot.
    #[error(
        "snapshot {name} was refused by the state machine: {reason}; restore its files, or take the member out of the group and give the node a new id"
    )]
    Snapshot {
        /// Its file.
        name: String,
        /// What the machine said.
        reason: String,
    },
    /// The disk has no space for the entries with which a group begins.
    #[error(
        "the disk has {} free, and the log's files have no space left either; free at least {segment} (log.segment) and \
         start again",
        .free.to_approximate_string()
    )]
    Full {
        /// Free now.
        free: ByteSize,
        /// Of a file.
        segment: ByteSize,
    },
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Raft did not start.
    #[error("raft did not start: {cause}")]
    Raft {
        /// What it said.
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
