//! Results of commands, and the reasons for refusals.

use std::fmt;

use athanor_chassis::Timestamp;
use athanor_cluster::NodeId;
use athanor_cluster::placement::MAX_SLOTS;
use serde::{Deserialize, Serialize};

use crate::block::BlockId;
use crate::state::{
    HandoffSource, MAX_COPIES, MAX_DOCUMENT_BYTES, MAX_GROUPS, MAX_REPLACED, ReplaceMismatch, ShardEntry,
    ShardId, ShardPhase,
};

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
}

/// Transition that requires a certain phase of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseTransition {
    /// The shard opens for records.
    Open,
    /// The shard is requested to seal.
    Stop,
    /// The shard gets a successor.
    Succeed,
    /// The shard has sealed its log.
    Seal,
    /// The shard has lost its quorum.
    Lose,
    /// The shard has settled with the serving shard.
    Settle,
    /// An operator abandons the shard.
    Abandon,
    /// The shard retires, so its log may go.
    Retire,
    /// The shard registers a block.
    Register,
    /// The shard raises its watermark.
    Raise,
    /// The shard has logged a fence.
    Fence,
}

/// Resource of a limited amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitedResource {
    /// Shards, retired ones included.
    Shards,
    /// Slot tables that are published.
    Tables,
    /// Services with a known rate.
    Services,
    /// Data losses on record.
    Scars,
    /// Voters of the catalog.
    Voters,
    /// Documents of one tenant.
    Notes,
    /// Bytes of all documents of a tenant.
    NoteBytes,
    /// Bytes of the documents of all tenants.
    AllNoteBytes,
    /// Tenants that are staged for blocks.
    StagedTenants,
}

/// Reason why the catalog refused a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CommandError {
    /// A block's range does not begin at the shard's watermark.
    #[error(
        "block {block} begins after {from}, the watermark of shard {shard} is {watermark}; write what lies after that"
    )]
    Watermark {
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
        "block {block} ends at {to}, but the log of shard {shard} is sealed at {at}; write what lies before that"
    )]
    PastSeal {
        /// Id of the block.
        block: BlockId,
        /// Shard of the block.
        shard: ShardId,
        /// Last index of the block.
        to: u64,
        /// Last index of the log.
        at: u64,
    },
    /// The block's id is tombstoned.
    #[error("block {0} is condemned: its range must be written under a new name")]
    Condemned(BlockId),
    /// A block to restore is not among the expired blocks.
    #[error(
        "block {0} is not expired, or its objects are being removed already; `athanor retention status` lists what can \
         be restored"
    )]
    NotExpired(BlockId),
    /// The time in a block's id is too far from now: its tombstone may have expired.
    #[error(
        "block {block} was named at {} ms, more than a day from {} ms, the catalogue's time: its range must be \
         written under a new name, of that time",
        block.named_at().millis(), now.millis()
    )]
    NameTime {
        /// Id of the block.
        block: BlockId,
        /// Time of the catalog.
        now: Timestamp,
    },
    /// No shard has this id in this epoch.
    #[error("there is no shard {shard} of epoch {epoch}; ask the catalogue which there are")]
    NoShard {
        /// Id of the shard.
        shard: ShardId,
        /// Epoch that the command named.
        epoch: u32,
    },
    /// A block's range is in no recorded gap.
    #[error("block {0} lies in no gap of its shard's blocks")]
    NoGap(BlockId),
    /// A merged block cannot register: it has to replace its inputs.
    #[error("block {0} was made of others and is not registered: have it take the places of those")]
    Made(BlockId),
    /// The staged tenants of a block are not those that the command continues or completes.
    #[error(
        "{staged} tenants are staged for block {block}, the command names {named}; stage what is missing"
    )]
    StagedOtherwise {
        /// Id of the block.
        block: BlockId,
        /// Number of staged tenants.
        staged: u64,
        /// Number of tenants that the command expects.
        named: u64,
    },
    /// A block to replace is not listed.
    #[error(
        "block {0} is not listed: it was replaced or removed, or was never registered; list the blocks again and choose of those"
    )]
    NotListed(BlockId),
    /// The outputs of a replacement do not match its inputs.
    #[error("block {block} cannot take the place of its inputs: {why}")]
    Unlike {
        /// Id of the output block.
        block: BlockId,
        /// Property in which they differ.
        why: ReplaceMismatch,
    },
    /// A replacement is too large, or names no inputs or no outputs.
    #[error(
        "the replacement names {inputs} inputs and {outputs} outputs, and {seen} blocks, ranges and tenants in all, of which \
         there may be {MAX_REPLACED}; merge some, and fewer at once"
    )]
    Replaces {
        /// Number of its inputs.
        inputs: usize,
        /// Number of its outputs.
        outputs: usize,
        /// Number of blocks, ranges and tenants in all.
        seen: usize,
    },
    /// A block's range is empty or reversed.
    #[error("block {block} ends at {to}, where it begins or before; write a range that holds something")]
    Empty {
        /// Id of the block.
        block: BlockId,
        /// Last index of its range.
        to: u64,
    },
    /// The shard is in a phase that does not permit the transition.
    #[error("shard {shard} is {phase}: {step}")]
    Phase {
        /// Id of the shard.
        shard: ShardId,
        /// Current phase of the shard.
        phase: ShardPhase,
        /// Transition that the command requested.
        step: PhaseTransition,
    },
    /// No slot has this number.
    #[error("there is no slot {slot}; slots are numbered 0 to {}", MAX_SLOTS - 1)]
    NoSlot {
        /// Number of the slot.
        slot: u32,
    },
    /// The slot has shards already, so it cannot be added.
    #[error("slot {slot} has shard {shard}; a slot that is added must have none")]
    SlotTaken {
        /// Number of the slot.
        slot: u32,
        /// Newest shard of the slot.
        shard: ShardId,
    },
    /// The slot has used all epochs that a shard id can encode.
    #[error(
        "slot {slot} has had {epochs} shards and can have no more; move its services by a table without it"
    )]
    EpochsUsedUp {
        /// Number of the slot.
        slot: u32,
        /// Limit of epochs per slot.
        epochs: u32,
    },
    /// The number of slots and the number of member lists differ.
    #[error(
        "members are named for {seen} slots, {count} are to be opened; name those of each slot, 1 to {MAX_SLOTS}"
    )]
    Slots {
        /// Number of slots to open.
        count: u32,
        /// Number of member lists in the command.
        seen: usize,
    },
    /// The number of members differs from the replication factor in the settings.
    #[error("a shard of slot {slot} was given {seen} members, the settings ask for {wanted}; choose as many")]
    Copies {
        /// Number of the slot.
        slot: u32,
        /// Number of members in the command.
        seen: usize,
        /// Number of members in the settings.
        wanted: u16,
    },
    /// A member is not among the candidates.
    #[error(
        "node {node} is to be a member, but its zone is not named; name the zones of all that could be chosen"
    )]
    Stranger {
        /// Node without a named zone.
        node: NodeId,
    },
    /// Members share a zone although other zones are available.
    #[error(
        "the members of a shard of slot {slot} lie in {seen} zones and could lie in {possible}; choose them so"
    )]
    Crowded {
        /// Number of the slot.
        slot: u32,
        /// Number of zones of the members.
        seen: usize,
        /// Number of zones that they could use.
        possible: usize,
    },
    /// A node is a member of as many shards as the limit permits.
    #[error(
        "node {node} is a member of {MAX_GROUPS} shards, the limit; choose another, or start more ingesters"
    )]
    NodeFull {
        /// Node at the limit.
        node: NodeId,
    },
    /// The catalog holds as much of a resource as the limit permits.
    #[error("the catalogue holds {limit} {what}, the limit; {}", what.remedy())]
    TooMany {
        /// Resource that is exhausted.
        what: LimitedResource,
        /// Largest permitted amount of it.
        limit: usize,
    },
    /// The shard cannot seal, because no successor would serve its slot.
    #[error("shard {shard} has no successor yet; it seals when there is one")]
    NoSuccessor {
        /// Id of the shard.
        shard: ShardId,
    },
    /// The shard has a successor already, with other members.
    #[error("shard {shard} has a successor, shard {by}, with other members; ask the catalogue who they are")]
    Succeeded {
        /// Id of the shard.
        shard: ShardId,
        /// Successor of the shard.
        by: ShardId,
    },
    /// The shard copied its ids from another source than required.
    #[error("shard {shard} must inherit {expected}, it has inherited {seen}; inherit anew")]
    Inherited {
        /// Id of the shard.
        shard: ShardId,
        /// Source that it must copy from.
        expected: HandoffSource,
        /// Source that it copied from.
        seen: HandoffSource,
    },
    /// Another shard still copies the ids of this one.
    #[error("shard {by} still copies the ids of shard {shard}; wait until it is open")]
    StillInherited {
        /// Source shard of the copy.
        shard: ShardId,
        /// Shard that copies the ids.
        by: ShardId,
    },
    /// The shard has not logged the fence of the newest table.
    #[error(
        "shard {shard} has logged fences up to table {seen}, table {needed} is newer; log its fence first"
    )]
    Unfenced {
        /// Id of the shard.
        shard: ShardId,
        /// Version of the newest table.
        needed: u64,
        /// Newest version with a fence in its log.
        seen: u64,
    },
    /// The log would end before the watermark.
    #[error(
        "the log of shard {shard} cannot end at {at}: blocks are registered up to {watermark}; name its true end"
    )]
    SealBehind {
        /// Id of the shard.
        shard: ShardId,
        /// Last index that the command named.
        at: u64,
        /// Watermark of the shard.
        watermark: u64,
    },
    /// The shard settled with a shard that does not serve the slot.
    #[error(
        "shard {shard} settled with shard {with}, {}; settle with the one that serves the slot then",
        serving.map_or_else(|| "and no shard serves the slot now".to_owned(), |serving| format!("but shard {serving} serves the slot now"))
    )]
    SettledWith {
        /// Id of the shard.
        shard: ShardId,
        /// Shard that it settled with.
        with: ShardId,
        /// Shard that serves the slot, if any.
        serving: Option<ShardId>,
    },
    /// The transition would lose rows that no block holds.
    #[error("rows of shard {shard} between {watermark} and {at} may lie in no block; register them first")]
    Unregistered {
        /// Id of the shard.
        shard: ShardId,
        /// Last index in a registered block.
        watermark: u64,
        /// Last index of the log.
        at: u64,
    },
    /// Blocks hold all entries of the shard, so nothing would be abandoned.
    #[error("all of shard {shard} lies in blocks; retire it")]
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
    #[error("shard {shard} is lost and cannot log a fence; wait until it has settled, or abandon it")]
    ShardLost {
        /// Id of the lost shard.
        shard: ShardId,
    },
    /// The table's version is not the next one.
    #[error("the table has version {seen}, the next one is {expected}; propose it with that")]
    TableVersion {
        /// Version of the table.
        seen: u64,
        /// Version that comes next.
        expected: u64,
    },
    /// Shards may have accepted profiles of the table's time already.
    #[error(
        "table {version} holds from {from} ns on, the earliest possible is {earliest} ns; propose a later time"
    )]
    TableTime {
        /// Version of the table.
        version: u64,
        /// Start time of the table, Unix nanoseconds.
        from: i64,
        /// Earliest possible start time, Unix nanoseconds.
        earliest: i64,
    },
    /// The table names a slot that has no unretired shard.
    #[error("table {version} names slot {slot}, which has no shard; add the slot first")]
    TableSlot {
        /// Version of the table.
        version: u64,
        /// Number of the slot.
        slot: u32,
    },
    /// The named table is not the proposed one.
    #[error(
        "table {version} is not proposed, {}; ask the catalogue for it",
        pending.map_or_else(|| "nor is any".to_owned(), |pending| format!("table {pending} is"))
    )]
    NotPending {
        /// Version of the named table.
        version: u64,
        /// Version of the proposed table, if any.
        pending: Option<u64>,
    },
    /// Not all shards have logged the fence of the table.
    #[error(
        "table {version} waits for the fences of {missing} shards, shard {first} among them; publish it then"
    )]
    Fences {
        /// Version of the table.
        version: u64,
        /// Number of shards without the fence.
        missing: usize,
        /// Id of one of them.
        first: ShardId,
    },
    /// The tables are of a time from which profiles are still accepted.
    #[error(
        "profiles from {} ns on may still come; keep the tables of their time",
        latest.map_or_else(|| "any time".to_owned(), |latest| latest.to_string())
    )]
    StillAccepted {
        /// Profiles before this time are refused, Unix nanoseconds. Absent if profiles of any age are
        /// accepted.
        latest: Option<i64>,
    },
    /// The settings differ from those that the command expects.
    #[error("the settings were changed by somebody else; read them again")]
    SettingsChanged,
    /// The document's text differs from the text that the command expects.
    #[error("note {name:?} was changed by somebody else; read it again")]
    NoteChanged {
        /// Name of the document.
        name: String,
    },
    /// The document exceeds the size limit.
    #[error("note has {seen} bytes with its name, the limit is {MAX_DOCUMENT_BYTES}; write less")]
    LongNote {
        /// Size of the text and the name, in bytes.
        seen: usize,
    },
    /// The number of copies is zero or over the limit.
    #[error("{seen} copies are wanted, 1 to {MAX_COPIES} are possible; ask for as many")]
    NoCopies {
        /// Requested number of copies.
        seen: u16,
    },
}

impl CommandError {
    /// Returns whether the same command may succeed later.
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::StagedOtherwise { .. } | Self::TooMany { what: LimitedResource::StagedTenants, .. }
        )
    }
}

impl LimitedResource {
    fn remedy(self) -> &'static str {
        match self {
            Self::Shards => "wait until retired ones are forgotten",
            Self::Tables => "forget those of times that no profile has any more",
            Self::Services => "forget some that send nothing",
            Self::Scars => "heal old ones",
            Self::Voters => "remove one first",
            Self::Notes | Self::NoteBytes => "delete some that nobody reads",
            Self::AllNoteBytes => "have tenants delete some",
            Self::StagedTenants => "retry when other blocks are registered",
        }
    }
}

impl fmt::Display for LimitedResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shards => "shards",
            Self::Tables => "tables",
            Self::Services => "services with a rate",
            Self::Scars => "damages",
            Self::Voters => "voters",
            Self::Notes => "notes of a tenant",
            Self::NoteBytes => "bytes of notes of a tenant",
            Self::AllNoteBytes => "bytes of notes",
            Self::StagedTenants => "staged tenants",
        })
    }
}

/// Names the phases that permit the transition, and the remedy in others.
impl fmt::Display for PhaseTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "only a shard that is opening opens; what it took over is another's now",
            Self::Stop => "only an open shard is told to seal; stop the one that serves the slot",
            Self::Succeed => "only a shard that is closing gets a successor so; stop it first",
            Self::Seal => "only a shard that is closing seals; stop it first, or settle it if it is lost",
            Self::Lose => "only a shard whose successor is not open yet is lost; if it is gone, abandon it",
            Self::Settle => "only a lost shard settles; go on by its phase",
            Self::Abandon => "only a lost or a sealed shard is abandoned; stop or lose it first",
            Self::Retire => "only a sealed shard retires; stop it first",
            Self::Register => {
                "only shards that are open, closing or sealed register blocks; a lost one has to settle first"
            }
            Self::Raise => {
                "only open, closing and sealed shards say what was registered; a lost one has to settle first"
            }
            Self::Fence => "only shards that are opening, open or closing log fences; it needs none",
        })
    }
}
