//! Commands that change the catalog, and their encoding in the log.

use std::collections::{BTreeMap, BTreeSet};

use athanor_chassis::{TenantId, Timestamp};
use athanor_cluster::NodeId;
use athanor_cluster::placement::SlotTable;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::block::{BlockEntry, BlockId, DroppedRows, PartId, TenantSpan};
use crate::compaction::JobParts;
use crate::state::{CatalogSettings, DataLoss, HandoffSource, ReplicaPlacement, RetentionPolicy, ShardId};

/// Current encoding of commands. A voter that does not support a format must stop instead of skipping the
/// entry.
const COMMAND_FORMAT: u32 = 2;

/// Command that changes the catalog. Each command names the state that it expects, so two concurrent
/// proposals do no harm. Applied a second time it changes nothing, so a caller without a response can retry
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CatalogCommand {
    /// Opens the first shards of `count` slots in one step, and creates the first table from them. Changes
    /// nothing if shards exist.
    OpenSlots {
        /// Number of slots to open.
        count: u32,
        /// Members of each shard, one list per slot.
        members: Vec<BTreeSet<NodeId>>,
        /// Zones of all nodes that were candidates.
        zones: BTreeMap<NodeId, String>,
    },
    /// Returns the shard of a slot that accepts records. If the slot has no shard, registers the first one,
    /// because its log was found on a node.
    OpenShard {
        /// Number of the slot.
        slot: u32,
        /// Nodes that have its log.
        members: BTreeSet<NodeId>,
    },
    /// Opens the first shard of a slot that no table names yet.
    AddSlot {
        /// Number of the slot.
        slot: u32,
        /// Members of the shard, and their candidates.
        placement: ReplicaPlacement,
    },
    /// A new shard has copied the ids that it must know and logged the fences. From now on it accepts
    /// records.
    Opened {
        /// Id of the shard.
        shard: ShardId,
        /// Source of the ids that it copied.
        inherited: HandoffSource,
        /// Newest table with a fence in its log.
        fenced: u64,
    },
    /// Requests that an open shard seals.
    RequestSeal {
        /// Id of the shard.
        shard: ShardId,
    },
    /// Creates the successor of a shard that was requested to seal.
    CreateSuccessor {
        /// Id of the predecessor.
        shard: ShardId,
        /// Members of the successor, and their candidates.
        placement: ReplicaPlacement,
    },
    /// A shard that was requested to seal has sealed.
    Sealed {
        /// Id of the shard.
        shard: ShardId,
        /// Last index of its log.
        last_index: u64,
        /// Time of the latest profile that it accepted, Unix nanoseconds.
        latest: i64,
    },
    /// Marks a shard without a quorum as lost and creates its successor without its participation.
    MarkLost {
        /// Id of the lost shard.
        shard: ShardId,
        /// Members of its successor, if it has none yet.
        placement: ReplicaPlacement,
    },
    /// A lost shard came back, sealed its log and reconciled its ids: the serving shard reported the records
    /// that it holds as well, and the lost shard dropped them.
    Reconciled {
        /// Id of the shard.
        shard: ShardId,
        /// Last index of its log.
        last_index: u64,
        /// Serving shard that it reconciled with.
        with: ShardId,
    },
    /// An operator accepts the loss of all entries of a shard that no block holds.
    AbandonShard {
        /// Id of the shard.
        shard: ShardId,
    },
    /// All rows of a sealed shard are in blocks, so its members may delete its log.
    RetireShard {
        /// Id of the shard.
        shard: ShardId,
        /// The watermark, if no rows lie between it and the seal.
        rest_is_empty: Option<u64>,
    },
    /// Proposes a new slot table. Shards must log its fence before it is published.
    ProposeTable {
        /// Table with the next version.
        table: SlotTable,
    },
    /// A shard has logged the fence of the proposed table.
    Fenced {
        /// Id of the shard.
        shard: ShardId,
        /// Version of the table.
        version: u64,
    },
    /// A shard holds profiles of the proposed table's time. The table must begin later, under another
    /// version.
    FenceRejected {
        /// Id of the shard.
        shard: ShardId,
        /// Version of the table.
        version: u64,
        /// Time of the latest profile that the shard accepted, Unix nanoseconds.
        latest: i64,
    },
    /// Withdraws a proposed table, because a shard does not confirm its fence.
    WithdrawTable {
        /// Version of the table.
        version: u64,
    },
    /// Publishes the proposed table, so that profiles are placed by it.
    PublishTable {
        /// Version of the table.
        version: u64,
    },
    /// Drops tables of times that no accepted profile can have any more.
    ExpireTables {
        /// Earliest time that a profile can have, Unix nanoseconds.
        before: i64,
    },
    /// Updates the rates of services that changed.
    SetServiceRates {
        /// Bytes per second, by tenant and service. Zero removes the service.
        changed: BTreeMap<TenantId, BTreeMap<String, u64>>,
    },
    /// Replaces the settings of the catalog.
    UpdateSettings {
        /// Settings that the proposer read.
        expected: CatalogSettings,
        /// Settings from now on.
        settings: CatalogSettings,
    },
    /// Writes or deletes a tenant's document.
    PutTenantDocument {
        /// Tenant that owns the document.
        tenant: TenantId,
        /// Name of the document.
        name: String,
        /// Text that the proposer read, absent if the document does not exist.
        expected: Option<String>,
        /// New text, absent to delete the document.
        text: Option<String>,
    },
    /// Records a voter of the catalog and its address.
    AddVoter {
        /// Node id of the voter.
        node: NodeId,
        /// Address for requests to the voter.
        address: String,
    },
    /// Removes the record of a voter.
    RemoveVoter {
        /// Node id of the voter.
        node: NodeId,
    },
    /// Registers a block that continues its shard's log at the watermark.
    RegisterBlock {
        /// Entry of the block.
        block: BlockEntry,
    },
    /// Stages a part of a block's tenants, if they do not fit into one command.
    StageTenants {
        /// Shard of the block.
        shard: ShardId,
        /// Id of the block.
        block: BlockId,
        /// Number of its tenants before this part.
        offset: u64,
        /// Tenants in the block's order.
        tenants: Vec<TenantSpan>,
    },
    /// Registers a block with its staged tenants.
    RegisterStagedBlock {
        /// Entry of the block, without tenants.
        block: BlockEntry,
        /// Expected number of staged tenants.
        tenants: u64,
    },
    /// Advances a shard's watermark, because its log counts all entries up to an index as registered. The range
    /// that no known block holds becomes a gap.
    AdvanceWatermark {
        /// Id of the shard.
        shard: ShardId,
        /// New watermark of the shard.
        to: u64,
    },
    /// Registers a block whose range is in a gap, because its registration was lost.
    ReinstateBlock {
        /// Entry of the block.
        block: BlockEntry,
    },
    /// Registers a block whose range is in a gap, with its staged tenants.
    ReinstateStagedBlock {
        /// Entry of the block, without tenants.
        block: BlockEntry,
        /// Expected number of staged tenants.
        tenants: u64,
    },
    /// Registers all remaining outputs of a job in all tiers. Applied if each of them fills recorded gaps, or
    /// lies in one that another output fills.
    ReinstateJob {
        /// Outputs that the catalog does not list.
        outputs: Vec<BlockEntry>,
    },
    /// Removes a range from a gap, because its data is past the retention.
    CloseGap {
        /// Id of the shard.
        shard: ShardId,
        /// Index before the first entry.
        from: u64,
        /// Index of the last entry.
        to: u64,
    },
    /// Records a data loss for all listings.
    RecordDataLoss {
        /// Kind and extent of the loss.
        loss: DataLoss,
    },
    /// Drops data loss records from before a time.
    ClearDataLoss {
        /// Records from this time on stay.
        before: Timestamp,
    },
    /// Claims parts for a job. Applied if each of them is listed and under no running lease. Returns the
    /// token of the claim.
    ClaimParts {
        /// Node of the worker.
        worker: NodeId,
        /// Parts of the job.
        parts: JobParts,
    },
    /// Renews the leases of a worker's claims. Claims that ended are skipped.
    RenewLeases {
        /// Node of the worker.
        worker: NodeId,
        /// Tokens of the claims.
        tokens: Vec<u64>,
    },
    /// Swaps the claimed parts for the blocks that were merged from them. No listing shows both or neither
    /// [INV-20].
    FinishJob {
        /// Token of the claim.
        token: u64,
        /// Blocks that hold the rows from now on.
        outputs: Vec<BlockEntry>,
        /// Rows that no output holds.
        dropped: Vec<DroppedRows>,
        /// Covered raw blocks that are no inputs, and with whose ids the job compared its rows.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        compared: Vec<BlockId>,
    },
    /// Ends a claim without a result, and counts the failure.
    FailJob {
        /// Token of the claim.
        token: u64,
        /// Message of the failure.
        reason: String,
        /// Part that caused the failure, if known.
        culprit: Option<PartId>,
    },
    /// Forgets the failures of parts, so that jobs take them again, on an operator's command.
    RetryParts {
        /// Parts to retry, all parts with failures if empty.
        parts: Vec<PartId>,
    },
    /// Pauses or resumes the compaction of all tenants, on an operator's command.
    PauseCompaction {
        /// True if compaction is paused from now on.
        paused: bool,
    },
    /// Records that the objects of tombstoned blocks are removed from the bucket.
    RecordRemovedObjects {
        /// Ids of the blocks.
        blocks: Vec<BlockId>,
    },
    /// Deletes blocks and makes their ids unusable.
    TombstoneBlocks {
        /// Ids of the blocks.
        blocks: Vec<BlockId>,
        /// Tenant whose folder holds the objects, absent for the shared folder.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tenant: Option<TenantId>,
    },
    /// Drops tombstones and retired shards past their retention.
    ExpireTombstones,
    /// Removes blocks past their retention from the listing. They can be restored until they are purged.
    ExpireBlocks {
        /// Retention by tenant and tier, by the catalog's time. Entries of older versions have one duration for
        /// all.
        retention: RetentionPolicy,
        /// The share of parts with equal retention that may expire per hour; none on an operator's command.
        max_percent: Option<u8>,
    },
    /// Lists expired blocks again, on an operator's command. Their age counts from the time of this command.
    RestoreBlocks {
        /// Blocks to restore, or all expired blocks if empty.
        blocks: Vec<BlockId>,
    },
    /// Makes expired blocks unrestorable, before their objects are removed.
    PurgeBlocks {
        /// Ids of the blocks.
        blocks: Vec<BlockId>,
        /// Latest expiration of the last part of a block that is purged. Blocks with parts that expired later are
        /// skipped. Entries of older versions have no limit.
        #[serde(default = "latest_time")]
        expired_before: Timestamp,
    },
}

/// Returns the latest time, which excludes no block.
fn latest_time() -> Timestamp {
    Timestamp::from_nanos(i64::MAX)
}

/// Log entry: a command and its time. Applying reads no clock, so the leading voter stamps the entry. The
/// clock of an arbitrary proposer may be days ahead, which would expire tombstones early [INV-15].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogLogEntry {
    /// Time of the proposal, by the leader's clock.
    pub time: Timestamp,
    /// Command to apply at that time.
    pub command: CatalogCommand,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogEntryEnvelope<C> {
    format: u32,
    time: Timestamp,
    command: C,
}

/// Error of decoding a log entry.
#[derive(Debug, thiserror::Error)]
pub enum CommandDecodeError {
    /// Another version wrote the entry.
    #[error(
        "catalog command has format {seen}, this version reads format {COMMAND_FORMAT}; run the version of the other voters"
    )]
    Format {
        /// Format of the entry.
        seen: u64,
    },
    /// This version does not know the command or one of its fields.
    #[error("unknown catalog command; run the version of the other voters: {0}")]
    Unknown(#[from] serde_json::Error),
}

impl CatalogLogEntry {
    /// Encodes the entry for the log.
    pub fn encode(&self) -> Vec<u8> {
        let envelope = LogEntryEnvelope { format: COMMAND_FORMAT, time: self.time, command: &self.command };
        serde_json::to_vec(&envelope).expect("all keys are texts")
    }

    /// Decodes an entry from the log. Unknown commands and fields are errors: a voter that skipped them would
    /// diverge from the others.
    pub fn decode(bytes: &[u8]) -> Result<Self, CommandDecodeError> {
        let value: Value = serde_json::from_slice(bytes)?;
        match value.get("format").and_then(Value::as_u64) {
            Some(seen) if seen != u64::from(COMMAND_FORMAT) => Err(CommandDecodeError::Format { seen }),
            _ => {
                let LogEntryEnvelope { time, command, .. } = serde_json::from_value(value)?;
                Ok(Self { time, command })
            }
        }
    }
}
