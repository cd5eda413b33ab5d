//! What is left of a catalogue, from which it is made again, and what was found in it.

use std::collections::BTreeSet;

use athanor_chassis::Timestamp;
use athanor_cluster::NodeId;
use athanor_cluster::placement::SlotTable;

use super::{CatalogState, HandoffSource, ShardId};
use crate::block::{BlockEntry, BlockId};

/// What a node's disk says of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardReport {
    /// Who says it; none where that does not matter.
    pub node: Option<NodeId>,
    /// The shard.
    pub shard: ShardId,
    /// Who has its log.
    pub members: BTreeSet<NodeId>,
    /// Everything up to here lies in blocks, and may be gone from the log.
    pub cut: u64,
    /// Where its log ends, if it does.
    pub sealed: Option<u64>,
    /// The newest table whose fence is in its log.
    pub fenced: u64,
    /// Whose ids its log has as a whole; none where it has not, or that is not known.
    pub inherited: Option<HandoffSource>,
    /// Whether it has taken profiles, and so was open; none where that is not known.
    pub taken: Option<bool>,
    /// The tables that the node has.
    pub tables: Vec<SlotTable>,
}

/// A block that lies whole in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketBlock {
    /// What it says of itself.
    pub block: BlockEntry,
    /// The blocks that it was made of and replaces.
    pub inputs: Vec<BlockId>,
}

/// What is left.
#[derive(Clone, Debug, Default)]
pub struct RecoveryInput {
    /// The newest snapshot that is whole.
    pub snapshot: Option<CatalogState>,
    /// Blocks of this cluster.
    pub blocks: Vec<BucketBlock>,
    /// What nodes say.
    pub described: Vec<ShardReport>,
    /// When this is.
    pub at: Timestamp,
    /// Blocks that were named before this were removed for their age.
    pub kept_from: Timestamp,
}

/// What was found, and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryFindings {
    /// Blocks that the snapshot does not know and that are registered again.
    pub recalled: Vec<BlockId>,
    /// Blocks that it knows and that are gone.
    pub missing: Vec<BlockId>,
    /// Blocks that were never registered, or replaced: they stay unknown.
    pub passed_over: Vec<BlockId>,
    /// Shards that it does not know.
    pub shards: Vec<ShardId>,
    /// Of these and others, those whose log nobody has.
    pub without_log: Vec<ShardId>,
    /// Entries that lie in no block, nor in a log: (shard, from, to].
    pub gaps: Vec<(ShardId, u64, u64)>,
}

/// Why there are no facts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogRecoveryError {
    /// Something says a number that no shard has.
    #[error("there is no shard with the number {0}; whoever names it was not made by this version")]
    NoShard(ShardId),
    /// More than there may be.
    #[error("there are {seen} {what}, the limit is {limit}; rebuild from fewer")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        seen: usize,
        /// The limit.
        limit: usize,
    },
    /// A shard has ended, and nobody says where.
    #[error(
        "shard {by} knows all that shard {shard} knew when it ended, and nobody says where that was: have most of the \
         nodes run that have its log, or name all of them as gone for good"
    )]
    Unsealed {
        /// The shard.
        shard: ShardId,
        /// The one that follows it.
        by: ShardId,
    },
    /// Nodes or the snapshot contradict each other.
    #[error("what is left does not agree with itself: {0}; leave out the node that is wrong")]
    Contradiction(String),
}
