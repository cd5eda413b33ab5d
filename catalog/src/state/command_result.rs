//! Results of commands, and the reasons for refusals.

mod limited_resource;
mod phase_transition;

use athanor_chassis::{TenantId, Tier, Timestamp};
use athanor_cluster::NodeId;
use athanor_cluster::placement::MAX_SLOTS;
use serde::{Deserialize, Serialize};

use crate::block::{BlockId, PartId};
use crate::compaction::{MAX_COMPARED_BLOCKS, MAX_JOB_OUTPUTS, MAX_JOB_PARTS};
use crate::state::{
    ConservedCount, HandoffSource, MAX_DOCUMENT_BYTES, MAX_REPLICATION_FACTOR, MAX_SHARDS_PER_NODE,
    OutputMismatch, ShardEntry, ShardId, ShardPhase,
};

pub use limited_resource::LimitedResource;
pub use phase_transition::PhaseTransition;

/// Result of an applied command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CommandResult {
    /// Shard of the slot that accepts records, or will accept them.
    Shard(ShardEntry),
    /// The block is registered, and this is its shard's watermark.
    Registered(u64),
    /// The catalog refused the command and changed nothing.
    Refused(CommandError),
    /// Number of changed items, zero if the state was as requested already.
    Changed(usize),
    /// Number of tenants that are staged for the block.
    Staged(u64),
    /// Token of the claim.
    Claimed(u64),
    /// A claim whose lease ran out was ended, and its failure counted. The part reached the limit of failures,
    /// so nothing was claimed.
    FailureLimit(PartId),
    /// A job did not compare its rows with a covered block. Its claim ended without a failure, so the next plan
    /// contains its parts.
    NotCompared(BlockId),
}

/// Reason why the catalog refused a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CommandError {
    /// A block's range does not begin at the shard's watermark.
    #[error(
        "block {block} begins after index {from}, the watermark of shard {shard} is {watermark}; write the range after the watermark"
    )]
    WatermarkMismatch {
        /// Id of the block.
        block: BlockId,
        /// Shard of the block.
        shard: ShardId,
        /// Start of the block's range, exclusive.
        from: u64,
        /// Required start: the shard's watermark.
        watermark: u64,
    },
    /// A block's range ends after the seal of its shard's log.
    #[error(
        "block {block} ends at index {to}, the log of shard {shard} ends at {last_index}; write the range up to that index"
    )]
    PastSeal {
        /// Id of the block.
        block: BlockId,
        /// Shard of the block.
        shard: ShardId,
        /// Last index of the block.
        to: u64,
        /// Last index of the log.
        last_index: u64,
    },
    /// The block's id is tombstoned.
    #[error("block {0} has a tombstone; write its range under a new id")]
    Tombstoned(BlockId),
    /// A block to restore is not among the expired blocks.
    #[error(
        "block {0} is not expired, or its objects are being removed already; `athanor retention status` lists the \
         restorable blocks"
    )]
    NotExpired(BlockId),
    /// The time in a block's id is too far from now: its tombstone may have expired.
    #[error(
        "the id of block {block} was generated at {} ms, more than a day from {} ms, the catalog's time; write its \
         range under a new id",
        block.named_at().millis(), now.millis()
    )]
    BlockNameSkew {
        /// Id of the block.
        block: BlockId,
        /// Time of the catalog.
        now: Timestamp,
    },
    /// No shard has this id in this epoch.
    #[error("there is no shard {shard} of epoch {epoch}; read the shards from the catalog")]
    UnknownShard {
        /// Id of the shard.
        shard: ShardId,
        /// Epoch that the command named.
        epoch: u32,
    },
    /// A block's range is in no recorded gap.
    #[error("the range of block {0} is in no recorded gap of its shard")]
    NotInGap(BlockId),
    /// A merged block cannot register: it has to replace its inputs.
    #[error("block {0} is a merged block, which cannot register; finish its job with it")]
    MergedBlock(BlockId),
    /// A block to reinstate is not an output of the same job as the others.
    #[error("block {0} is of no job, or of another one than the other blocks; reinstate each job alone")]
    NotOfJob(BlockId),
    /// The tier or the coverage of a block does not fit its level.
    #[error(
        "block {0} is downsampled or covered, which only merged blocks of one tenant are; read its meta.json again"
    )]
    InvalidTier(BlockId),
    /// The staged tenants of a block are not those that the command continues or completes.
    #[error(
        "{staged} tenants are staged for block {block}, the command names {named}; stage the missing ones"
    )]
    StagedTenantsMismatch {
        /// Id of the block.
        block: BlockId,
        /// Number of staged tenants.
        staged: u64,
        /// Number of tenants that the command expects.
        named: u64,
    },
    /// An operator paused compaction.
    #[error("compaction is paused; resume it with `athanor compaction resume`")]
    CompactionPaused,
    /// A job has no parts or too many, or they are not in order.
    #[error("the job has {seen} parts, must be 1 to {MAX_JOB_PARTS} in order and without duplicates")]
    InvalidJobParts {
        /// Number of parts.
        seen: usize,
    },
    /// The parts of a job are of several tiers.
    #[error(
        "the {part} is of tier {tier}, an earlier part of the job is of tier {expected}; merge each tier alone"
    )]
    MixedTiers {
        /// Part of another tier.
        part: PartId,
        /// Its tier.
        tier: Tier,
        /// Tier of the job's first part.
        expected: Tier,
    },
    /// A part is not listed.
    #[error(
        "the {0} is not listed: it was merged or removed, or never registered; choose a job of a new plan"
    )]
    PartNotListed(PartId),
    /// A part is under a running lease.
    #[error("the {part} is claimed by job {token}; choose another job")]
    PartClaimed {
        /// Claimed part.
        part: PartId,
        /// Token of its claim.
        token: u64,
    },
    /// A part is quarantined.
    #[error("the {0} is quarantined; release it with `athanor compaction retry`")]
    PartQuarantined(PartId),
    /// An earlier job with the part failed as often as permitted.
    #[error("an earlier job with the {0} failed too often; choose a job of a new plan")]
    PartFailed(PartId),
    /// The claim of a job ended: it failed, its lease ran out and another worker claimed a part, or a part was
    /// removed.
    #[error("the claim of job {token} ended; delete its outputs and choose another job")]
    ClaimEnded {
        /// Token of the claim.
        token: u64,
    },
    /// A job has too many outputs.
    #[error("the job has {seen} outputs, the limit is {MAX_JOB_OUTPUTS}; merge fewer parts at once")]
    TooManyOutputs {
        /// Number of outputs.
        seen: usize,
    },
    /// An output does not match the inputs of its job.
    #[error("block {block} cannot replace the parts of its job: {mismatch}")]
    OutputMismatch {
        /// Id of the output.
        block: BlockId,
        /// Property in which they differ.
        mismatch: OutputMismatch,
    },
    /// A job loses or adds rows of a tenant.
    #[error(
        "the {count} of tenant {tenant} is {inputs} in the inputs, but {outputs} in the outputs and {dropped} in \
         the dropped rows; merge the parts again"
    )]
    RowsNotConserved {
        /// Tenant that owns the rows.
        tenant: TenantId,
        /// Count that differs.
        count: ConservedCount,
        /// Count of the inputs.
        inputs: u64,
        /// Count of the outputs.
        outputs: u64,
        /// Count of the dropped rows.
        dropped: u64,
    },
    /// A downsampled tier loses or adds rows of the uncovered inputs.
    #[error(
        "the {count} of tenant {tenant} is {inputs} in the uncovered inputs, but {outputs} in the {tier} outputs and \
         {dropped} in the dropped rows of uncovered inputs; write each tier from the uncovered rows that stay"
    )]
    TierNotConserved {
        /// Tier of the outputs.
        tier: Tier,
        /// Tenant that owns the rows.
        tenant: TenantId,
        /// Count that differs.
        count: ConservedCount,
        /// Count of the uncovered inputs.
        inputs: u64,
        /// Count of the tier's outputs.
        outputs: u64,
        /// Count of the dropped rows of uncovered inputs.
        dropped: u64,
    },
    /// A job dropped more rows of covered parts than it has.
    #[error(
        "the job drops {dropped} profiles of covered parts of tenant {tenant}, its covered parts have {inputs}; state \
         of each dropped row whether its part is covered"
    )]
    TooManyCoveredDropped {
        /// Tenant that owns the rows.
        tenant: TenantId,
        /// Dropped profiles of covered parts.
        dropped: u64,
        /// Profiles of the covered parts.
        inputs: u64,
    },
    /// A job did not compare its rows with a covered block that may hold the same ids.
    #[error(
        "the job did not compare its rows with block {block}, whose rows the tiers hold; delete its outputs and \
         choose a job of a new plan"
    )]
    NotCompared {
        /// Covered raw block of the tenant and the times of an output.
        block: BlockId,
    },
    /// A job compared its rows with too many blocks.
    #[error(
        "the job compared its rows with {seen} blocks, the limit is {MAX_COMPARED_BLOCKS}; merge parts of fewer \
         windows at once"
    )]
    TooManyCompared {
        /// Number of blocks.
        seen: usize,
    },
    /// A job dropped rows of a tenant that it does not have, or states one reason more than once.
    #[error("dropped rows of tenant {0} are stated twice, or the tenant is not in the job; add them up")]
    InvalidDroppedRows(TenantId),
    /// A block's range is empty or reversed.
    #[error(
        "the range of block {block} ends at index {to}, which is not after its start; write a range that is not empty"
    )]
    EmptyRange {
        /// Id of the block.
        block: BlockId,
        /// Last index of its range.
        to: u64,
    },
    /// The shard is in a phase that does not permit the transition.
    #[error("shard {shard} is {phase}: {transition}")]
    WrongPhase {
        /// Id of the shard.
        shard: ShardId,
        /// Current phase of the shard.
        phase: ShardPhase,
        /// Transition that the command requested.
        transition: PhaseTransition,
    },
    /// No slot has this number.
    #[error("there is no slot {slot}; slots are numbered 0 to {}", MAX_SLOTS - 1)]
    InvalidSlot {
        /// Number of the slot.
        slot: u32,
    },
    /// The slot has shards already, so it cannot be added.
    #[error("slot {slot} has shard {shard} already; add a slot without shards")]
    SlotTaken {
        /// Number of the slot.
        slot: u32,
        /// Newest shard of the slot.
        shard: ShardId,
    },
    /// The slot has used all epochs that a shard id can encode.
    #[error("slot {slot} has had {epochs} shards, the limit; publish a table without it")]
    EpochsExhausted {
        /// Number of the slot.
        slot: u32,
        /// Limit of epochs per slot.
        epochs: u32,
    },
    /// The number of slots and the number of member lists differ.
    #[error(
        "the command lists members for {seen} slots and opens {count}; list the members of each slot, 1 to {MAX_SLOTS}"
    )]
    MemberListCount {
        /// Number of slots to open.
        count: u32,
        /// Number of member lists in the command.
        seen: usize,
    },
    /// The number of members differs from the replication factor in the settings.
    #[error("a shard of slot {slot} has {seen} members, the replication factor is {wanted}; choose as many")]
    ReplicationFactorMismatch {
        /// Number of the slot.
        slot: u32,
        /// Number of members in the command.
        seen: usize,
        /// Number of members in the settings.
        wanted: u16,
    },
    /// A member is not among the candidates.
    #[error("node {node} is not among the candidates; list the zones of all candidates")]
    NotACandidate {
        /// Node without a named zone.
        node: NodeId,
    },
    /// Members share a zone although other zones are available.
    #[error(
        "the members of a shard of slot {slot} are in {seen} zones, {possible} are possible; use as many zones"
    )]
    TooFewZones {
        /// Number of the slot.
        slot: u32,
        /// Number of zones of the members.
        seen: usize,
        /// Number of zones that they could use.
        possible: usize,
    },
    /// A node is a member of as many shards as the limit permits.
    #[error(
        "node {node} is a member of {MAX_SHARDS_PER_NODE} shards, the limit; choose another, or start more ingesters"
    )]
    NodeFull {
        /// Node at the limit.
        node: NodeId,
    },
    /// The catalog holds as much of a resource as the limit permits.
    #[error("the catalog holds {limit} {resource}, the limit; {}", resource.remedy())]
    LimitReached {
        /// Resource that is exhausted.
        resource: LimitedResource,
        /// Largest permitted amount of it.
        limit: usize,
    },
    /// The shard cannot seal, because no successor would serve its slot.
    #[error("shard {shard} has no successor yet; create the successor first")]
    NoSuccessor {
        /// Id of the shard.
        shard: ShardId,
    },
    /// The shard has a successor already, with other members.
    #[error("shard {shard} has successor {successor} with other members; read its members from the catalog")]
    HasSuccessor {
        /// Id of the shard.
        shard: ShardId,
        /// Successor of the shard.
        successor: ShardId,
    },
    /// The shard copied its ids from another source than required.
    #[error("shard {shard} must copy {expected}, it has copied {seen}; copy from the required source")]
    HandoffSourceMismatch {
        /// Id of the shard.
        shard: ShardId,
        /// Source that it must copy from.
        expected: HandoffSource,
        /// Source that it copied from.
        seen: HandoffSource,
    },
    /// Another shard still copies the ids of this one.
    #[error("shard {successor} still copies the ids of shard {shard}; wait until it is open")]
    HandoffUnfinished {
        /// Source shard of the copy.
        shard: ShardId,
        /// Shard that copies the ids.
        successor: ShardId,
    },
    /// The shard has not logged the fence of the newest table.
    #[error(
        "shard {shard} has logged fences up to table {seen}, table {needed} is newer; log its fence first"
    )]
    MissingFence {
        /// Id of the shard.
        shard: ShardId,
        /// Version of the newest table.
        needed: u64,
        /// Newest version with a fence in its log.
        seen: u64,
    },
    /// The log would end before the watermark.
    #[error(
        "the log of shard {shard} cannot end at index {last_index}, blocks are registered up to {watermark}; send its last index"
    )]
    SealBehindWatermark {
        /// Id of the shard.
        shard: ShardId,
        /// Last index that the command named.
        last_index: u64,
        /// Watermark of the shard.
        watermark: u64,
    },
    /// The shard reconciled its ids with a shard that does not serve the slot.
    #[error(
        "shard {shard} reconciled its ids with shard {with}, {}; reconcile with the serving shard",
        serving.map_or_else(|| "but no shard serves the slot".to_owned(), |serving| format!("but shard {serving} serves the slot"))
    )]
    ReconciledWithWrongShard {
        /// Id of the shard.
        shard: ShardId,
        /// Shard that it reconciled with.
        with: ShardId,
        /// Shard that serves the slot, if any.
        serving: Option<ShardId>,
    },
    /// The transition would lose rows that no block holds.
    #[error(
        "rows of shard {shard} between index {watermark} and {last_index} may be in no block; register them first"
    )]
    UnregisteredRows {
        /// Id of the shard.
        shard: ShardId,
        /// Last index in a registered block.
        watermark: u64,
        /// Last index of the log.
        last_index: u64,
    },
    /// Blocks hold all entries of the shard, so nothing would be abandoned.
    #[error("blocks hold all rows of shard {shard}; retire it")]
    NothingToAbandon {
        /// Id of the shard.
        shard: ShardId,
    },
    /// No slots are open yet, so no table exists.
    #[error("no slots are open yet; open them first")]
    NoSlots,
    /// Another proposed table is not published yet.
    #[error("table {version} is proposed and not published yet; publish or withdraw it first")]
    TablePending {
        /// Version of the other table.
        version: u64,
    },
    /// A lost shard cannot log a fence.
    #[error(
        "shard {shard} is lost and cannot log a fence; wait until it has reconciled its ids, or abandon it"
    )]
    ShardLost {
        /// Id of the lost shard.
        shard: ShardId,
    },
    /// The table's version is not the next one.
    #[error("the table has version {seen}, the next version is {expected}; propose it with that version")]
    TableVersionMismatch {
        /// Version of the table.
        seen: u64,
        /// Version that comes next.
        expected: u64,
    },
    /// Shards may have accepted profiles of the table's time already.
    #[error(
        "table {version} starts at {from} ns, the earliest possible start is {earliest} ns; propose a later time"
    )]
    TableTooEarly {
        /// Version of the table.
        version: u64,
        /// Start time of the table, Unix nanoseconds.
        from: i64,
        /// Earliest possible start time, Unix nanoseconds.
        earliest: i64,
    },
    /// The table names a slot that has no unretired shard.
    #[error("table {version} names slot {slot}, which has no shard; add the slot first")]
    SlotWithoutShard {
        /// Version of the table.
        version: u64,
        /// Number of the slot.
        slot: u32,
    },
    /// The named table is not the proposed one.
    #[error(
        "table {version} is not proposed, {}; read the proposed table from the catalog",
        pending.map_or_else(|| "no table is".to_owned(), |pending| format!("table {pending} is"))
    )]
    TableNotPending {
        /// Version of the named table.
        version: u64,
        /// Version of the proposed table, if any.
        pending: Option<u64>,
    },
    /// Not all shards have logged the fence of the table.
    #[error(
        "table {version} waits for the fences of {missing} shards, shard {first} among them; publish it then"
    )]
    FencesMissing {
        /// Version of the table.
        version: u64,
        /// Number of shards without the fence.
        missing: usize,
        /// Id of one of them.
        first: ShardId,
    },
    /// The tables are of a time from which profiles are still accepted.
    #[error(
        "profiles from {} ns on are still accepted; keep the tables of their time",
        latest.map_or_else(|| "any time".to_owned(), |latest| latest.to_string())
    )]
    TableStillNeeded {
        /// Profiles before this time are refused, Unix nanoseconds. Absent if profiles of any age are
        /// accepted.
        latest: Option<i64>,
    },
    /// The settings differ from those that the command expects.
    #[error("the settings were changed concurrently; read the current settings and retry")]
    SettingsChanged,
    /// The document's text differs from the text that the command expects.
    #[error("document {name:?} was changed concurrently; read the current document and retry")]
    DocumentChanged {
        /// Name of the document.
        name: String,
    },
    /// The document exceeds the size limit.
    #[error("document has {seen} bytes including its name, the limit is {MAX_DOCUMENT_BYTES}; shorten it")]
    DocumentTooLarge {
        /// Size of the text and the name, in bytes.
        seen: usize,
    },
    /// The replication factor is zero or over the limit.
    #[error("replication factor is {seen}, must be 1 to {MAX_REPLICATION_FACTOR}")]
    InvalidReplicationFactor {
        /// Requested replication factor.
        seen: u16,
    },
}

impl CommandError {
    /// Returns whether the same command may succeed later.
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::StagedTenantsMismatch { .. }
                | Self::LimitReached { resource: LimitedResource::StagedTenants, .. }
        )
    }
}
