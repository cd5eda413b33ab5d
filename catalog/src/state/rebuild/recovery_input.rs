//! Input and findings of a catalog rebuild.

use std::collections::BTreeSet;

use athanor_chassis::Timestamp;
use athanor_cluster::NodeId;
use athanor_cluster::placement::SlotTable;

use crate::block::{BlockEntry, BlockId};
use crate::state::{CatalogState, HandoffSource, ShardId};

/// Description of a shard from one node's disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardReport {
    /// Node that sent the report, absent if it does not matter.
    pub node: Option<NodeId>,
    /// Id of the shard.
    pub shard: ShardId,
    /// Nodes that have its log.
    pub members: BTreeSet<NodeId>,
    /// Last index that blocks hold. The log may be purged up to it.
    pub cut: u64,
    /// Last index of the log, if the shard is sealed.
    pub sealed: Option<u64>,
    /// Newest table with a fence in its log.
    pub fenced: u64,
    /// Source of the ids, if the log holds them completely. Absent if the ids are incomplete, or that is
    /// unknown.
    pub inherited: Option<HandoffSource>,
    /// True if the shard has accepted profiles, and so was open. Absent if that is unknown.
    pub taken: Option<bool>,
    /// Slot tables that the node has.
    pub tables: Vec<SlotTable>,
}

/// Complete block in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketBlock {
    /// Entry from the block's own metadata.
    pub block: BlockEntry,
    /// Blocks that it was merged from and replaces.
    pub inputs: Vec<BlockId>,
}

/// Remaining data from which the catalog is rebuilt.
#[derive(Clone, Debug, Default)]
pub struct RecoveryInput {
    /// Newest intact snapshot of the catalog.
    pub snapshot: Option<CatalogState>,
    /// Blocks of this cluster in the bucket.
    pub blocks: Vec<BucketBlock>,
    /// Reports of shards from the nodes.
    pub described: Vec<ShardReport>,
    /// Time of the rebuild.
    pub at: Timestamp,
    /// Blocks with older ids were removed by retention.
    pub kept_from: Timestamp,
}

/// Findings of a catalog rebuild.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryFindings {
    /// Registered blocks that the snapshot did not contain.
    pub recalled: Vec<BlockId>,
    /// Blocks of the snapshot that are gone from the bucket.
    pub missing: Vec<BlockId>,
    /// Blocks that stay unregistered: they were never registered, or were replaced.
    pub passed_over: Vec<BlockId>,
    /// Shards that the snapshot did not contain.
    pub shards: Vec<ShardId>,
    /// Unretired shards of which no node reported a log.
    pub without_log: Vec<ShardId>,
    /// Entries that neither a block nor a log holds: (shard, from, to].
    pub gaps: Vec<(ShardId, u64, u64)>,
}

/// Reason why a rebuild of the catalog failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogRecoveryError {
    /// A report or a block names an id that no shard can have.
    #[error("there is no shard with the number {0}; whoever names it was not made by this version")]
    NoShard(ShardId),
    /// A resource exceeds its limit.
    #[error("there are {seen} {what}, the limit is {limit}; rebuild from fewer")]
    TooMany {
        /// Name of the resource.
        what: &'static str,
        /// Amount that was found.
        seen: usize,
        /// Largest permitted amount.
        limit: usize,
    },
    /// A predecessor has ended, but no report names the last index.
    #[error(
        "shard {by} knows all that shard {shard} knew when it ended, and nobody says where that was: have most of the \
         nodes run that have its log, or name all of them as gone for good"
    )]
    Unsealed {
        /// Id of the predecessor.
        shard: ShardId,
        /// Shard that copied its ids.
        by: ShardId,
    },
    /// Reports contradict each other or the snapshot.
    #[error("what is left does not agree with itself: {0}; leave out the node that is wrong")]
    Contradiction(String),
}
