//! Input and findings of a catalog rebuild.

use std::collections::{BTreeMap, BTreeSet};

use athanor_chassis::Timestamp;
use athanor_cluster::NodeId;
use athanor_cluster::placement::SlotTable;

use crate::block::{BlockEntry, BlockId};
use crate::compaction::JobParts;
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
    pub flushed: u64,
    /// Last index of the log, if the shard is sealed.
    pub sealed: Option<u64>,
    /// Newest table with a fence in its log.
    pub fenced: u64,
    /// Source of the ids, if the log holds them completely. Absent if the ids are incomplete, or that is
    /// unknown.
    pub inherited: Option<HandoffSource>,
    /// True if the shard has accepted profiles, and so was open. Absent if that is unknown.
    pub accepted_profiles: Option<bool>,
    /// Slot tables that the node has.
    pub tables: Vec<SlotTable>,
}

/// Merged reports of the nodes, by shard.
pub(in crate::state) type ShardReports = BTreeMap<ShardId, ShardReport>;

/// Complete block in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketBlock {
    /// Entry from the block's own metadata.
    pub block: BlockEntry,
    /// Job that merged the block. Absent for a flushed block.
    pub job: Option<JobSource>,
}

/// Job that merged a block, as each of its outputs describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSource {
    /// Token of the job.
    pub token: u64,
    /// Ids of all blocks that the job writes.
    pub outputs: Vec<BlockId>,
    /// Parts that the job reads.
    pub inputs: JobParts,
}

/// Remaining data from which the catalog is rebuilt.
#[derive(Clone, Debug, Default)]
pub struct RecoveryInput {
    /// Newest intact snapshot of the catalog.
    pub snapshot: Option<CatalogState>,
    /// Blocks of this cluster in the bucket.
    pub blocks: Vec<BucketBlock>,
    /// Reports of shards from the nodes.
    pub reports: Vec<ShardReport>,
    /// Time of the rebuild.
    pub at: Timestamp,
    /// Retention may have removed blocks with older ids. Follows from the shortest retention of a tier.
    pub retained_since: Timestamp,
}

/// Findings of a catalog rebuild.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryFindings {
    /// Registered blocks that the snapshot did not contain.
    pub reinstated: Vec<BlockId>,
    /// Blocks of the snapshot that are gone from the bucket.
    pub missing: Vec<BlockId>,
    /// Blocks that stay unregistered: they were never registered, or their parts were merged.
    pub skipped: Vec<BlockId>,
    /// Shards that the snapshot did not contain.
    pub new_shards: Vec<ShardId>,
    /// Unretired shards of which no node reported a log.
    pub shards_without_log: Vec<ShardId>,
    /// Entries that neither a block nor a log holds: (shard, from, to].
    pub gaps: Vec<(ShardId, u64, u64)>,
}

/// Reason why a rebuild of the catalog failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogRecoveryError {
    /// A report or a block names an id that no shard can have.
    #[error("invalid shard id {0} in a report or a block; remove its source from the recovery")]
    NoShard(ShardId),
    /// A resource exceeds its limit.
    #[error("recovery found {seen} {resource}, the limit is {limit}; recover from fewer nodes or blocks")]
    TooMany {
        /// Name of the resource.
        resource: &'static str,
        /// Amount that was found.
        seen: usize,
        /// Largest permitted amount.
        limit: usize,
    },
    /// A predecessor has ended, but no report names the last index.
    #[error(
        "shard {successor} copied all ids of shard {shard}, but no node reports the last index of that shard's log; start \
         most of the nodes that have the log, or exclude all of them as permanently lost"
    )]
    Unsealed {
        /// Id of the predecessor.
        shard: ShardId,
        /// Shard that copied its ids.
        successor: ShardId,
    },
    /// Reports contradict each other or the snapshot.
    #[error("reports, blocks and snapshot contradict each other: {0}; exclude the wrong node")]
    Contradiction(String),
}
