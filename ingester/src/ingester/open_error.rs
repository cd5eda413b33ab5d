//! Reasons why an ingester fails to start.

use athanor_catalog::{CatalogError, ShardId};
use athanor_chassis::compute::ComputeError;
use athanor_chassis::disk::DiskError;
use athanor_chassis::tasks::SpawnError;
use athanor_chassis::{ErrorCode, ErrorCodeExt, Status};
use athanor_consensus::replicated::GroupOpenError as LogError;

use crate::replication::membership::MembershipError;

/// Reason why an ingester fails to start.
#[derive(Debug, thiserror::Error)]
pub enum IngesterOpenError {
    /// The catalog failed to list the shards.
    #[error("cannot list the shards")]
    Catalog(#[from] CatalogError),
    /// The log of a shard cannot be opened.
    #[error("cannot open the log of shard {shard}")]
    Log {
        /// ID of the failing shard.
        shard: ShardId,
        /// Error of the raft group.
        source: LogError,
    },
    /// The log of a shard rejects the start of a leader term, or its entries cannot be replayed.
    #[error("cannot start a leader term of shard {shard}: {source}")]
    Lead {
        /// ID of the failing shard.
        shard: ShardId,
        /// Error that ended the term start.
        source: Status,
    },
    /// The folder with files of ids cannot be read.
    #[error("cannot read the dedup window")]
    Ids(#[from] DiskError),
    /// The membership of this node in a shard cannot be read.
    #[error("cannot read the membership of shard {shard}")]
    Membership {
        /// ID of the failing shard.
        shard: ShardId,
        /// Error of the membership file.
        source: MembershipError,
    },
    /// The list of this node's memberships cannot be read.
    #[error("cannot read the shard memberships of this node")]
    Memberships(#[source] MembershipError),
    /// A thread failed during a read or write.
    #[error(transparent)]
    Compute(#[from] ComputeError),
    /// The process is shutting down.
    #[error(transparent)]
    Ending(#[from] SpawnError),
}

impl ErrorCodeExt for IngesterOpenError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Catalog(error) => error.code(),
            Self::Log { source, .. } => source.code(),
            Self::Lead { source, .. } => source.code,
            Self::Ids(error) => error.code(),
            Self::Membership { source, .. } | Self::Memberships(source) => source.code(),
            Self::Compute(error) => error.code(),
            Self::Ending(error) => error.code(),
        }
    }
}
