//! What a command did, or why it did nothing.

use std::fmt;

use athanor_chassis::Timestamp;
use athanor_cluster::NodeId;
use athanor_cluster::placement::MAX_SLOTS;
use serde::{Deserialize, Serialize};

use super::{
    HandoffSource, MAX_COPIES, MAX_DOCUMENT_BYTES, MAX_GROUPS, MAX_REPLACED, ReplaceMismatch, ShardEntry,
    ShardId, ShardPhase,
};
use crate::block::BlockId;

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CommandResult {
    /// The shard of the slot that takes records, or will.
    Shard(ShardEntry),
    /// The block is registered; this is its shard's watermark.
    Registered(u64),
    /// Nothing was changed.
    Refused(CommandError),
    /// How many things were changed.
    Changed(usize),
    /// How many tenants are staged for the block.
    Staged(u64),
}

/// What a shard must be in a certain phase for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseTransition {
    /// It opens.
    Open,
    /// It is told to seal.
    Stop,
    /// It gets a successor.
    Succeed,
    /// It has sealed.
    Seal,
    /// It has lost its quorum.
    Lose,
    /// It has settled.
    Settle,
    /// It is abandoned.
    Abandon,
    /// It retires.
    Retire,
    /// It registers a block.
    Register,
    /// It says what was registered.
    Raise,
    /// It has logged a fence.
    Fence,
}

/// Of what there may be only so much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitedResource {
    /// Shards, retired ones included.
    Shards,
    /// Tables.
    Tables,
    /// Services whose rate is known.
    Services,
    /// Damages that are remembered.
    Scars,
    /// Voters of the catalogue.
    Voters,
    /// Notes of a tenant.
    Notes,
    /// Bytes of all notes of a tenant.
    NoteBytes,
    /// Bytes of all notes.
    AllNoteBytes,
    /// Tenants that are staged for blocks.
    StagedTenants,
}

/// Why a command changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CommandError {
    /// A block's range does not begin where the shard's blocks end.
    #[error(
        "block {block} begins after {from}, the watermark of shard {shard} is {watermark}; write what lies after that"
    )]
    Watermark {
        /// The block.
        block: BlockId,
        /// Its shard.
        shard: ShardId,
        /// Where it begins.
        from: u64,
        /// Where it should.
        watermark: u64,
    },
    /// A block's range goes on where its shard's log does not.
    #[error(
        "block {block} ends at {to}, but the log of shard {shard} is sealed at {at}; write what lies before that"
    )]
    PastSeal {
        /// The block.
        block: BlockId,
        /// Its shard.
        shard: ShardId,
        /// Where it ends.
        to: u64,
        /// Where the log does.
        at: u64,
    },
    /// A block's name was condemned.
    #[error("block {0} is condemned: its range must be written under a new name")]
    Condemned(BlockId),
    /// A block that is to be restored is not among the expired ones.
    #[error(
        "block {0} is not expired, or its objects are being removed already; `athanor retention status` lists what can \
         be restored"
    )]
    NotExpired(BlockId),
    /// A block's name is too far from now to tell whether it was condemned.
    #[error(
        "block {block} was named at {} ms, more than a day from {} ms, the catalogue's time: its range must be \
         written under a new name, of that time",
        block.named_at().millis(), now.millis()
    )]
    NameTime {
        /// The block.
        block: BlockId,
        /// The catalogue's time.
        now: Timestamp,
    },
    /// There is no such shard in this epoch.
    #[error("there is no shard {shard} of epoch {epoch}; ask the catalogue which there are")]
    NoShard {
        /// The shard.
        shard: ShardId,
        /// The epoch.
        epoch: u32,
    },
    /// A block's range is in no gap.
    #[error("block {0} lies in no gap of its shard's blocks")]
    NoGap(BlockId),
    /// A block that was made of others was to be registered.
    #[error("block {0} was made of others and is not registered: have it take the places of those")]
    Made(BlockId),
    /// The tenants that are staged for a block are not those that the command continues or completes.
    #[error(
        "{staged} tenants are staged for block {block}, the command names {named}; stage what is missing"
    )]
    StagedOtherwise {
        /// The block.
        block: BlockId,
        /// The number of tenants that are staged.
        staged: u64,
        /// The number of tenants that the command expects.
        named: u64,
    },
    /// A block that is to be replaced does not exist.
    #[error(
        "block {0} is not listed: it was replaced or removed, or was never registered; list the blocks again and choose of those"
    )]
    NotListed(BlockId),
    /// A block does not hold what those hold whose place it is to take.
    #[error("block {block} cannot take the place of its inputs: {why}")]
    Unlike {
        /// The block.
        block: BlockId,
        /// In what.
        why: ReplaceMismatch,
    },
    /// A replacement is too large, or names no inputs or no outputs.
    #[error(
        "the replacement names {inputs} inputs and {outputs} outputs, and {seen} blocks, ranges and tenants in all, of which \
         there may be {MAX_REPLACED}; merge some, and fewer at once"
    )]
    Replaces {
        /// Its inputs.
        inputs: usize,
        /// Its outputs.
        outputs: usize,
        /// All that it names.
        seen: usize,
    },
    /// A block's range is empty or runs backwards.
    #[error("block {block} ends at {to}, where it begins or before; write a range that holds something")]
    Empty {
        /// The block.
        block: BlockId,
        /// Its end.
        to: u64,
    },
    /// The shard is in another phase.
    #[error("shard {shard} is {phase}: {step}")]
    Phase {
        /// The shard.
        shard: ShardId,
        /// Its phase.
        phase: ShardPhase,
        /// What it should be for.
        step: PhaseTransition,
    },
    /// There is no such slot.
    #[error("there is no slot {slot}; slots are numbered 0 to {}", MAX_SLOTS - 1)]
    NoSlot {
        /// The slot.
        slot: u32,
    },
    /// The slot has shards.
    #[error("slot {slot} has shard {shard}; a slot that is added must have none")]
    SlotTaken {
        /// The slot.
        slot: u32,
        /// Its newest shard.
        shard: ShardId,
    },
    /// The slot has had as many shards as a number can say.
    #[error(
        "slot {slot} has had {epochs} shards and can have no more; move its services by a table without it"
    )]
    EpochsUsedUp {
        /// The slot.
        slot: u32,
        /// How many.
        epochs: u32,
    },
    /// Slots and members do not match.
    #[error(
        "members are named for {seen} slots, {count} are to be opened; name those of each slot, 1 to {MAX_SLOTS}"
    )]
    Slots {
        /// Slots to be opened.
        count: u32,
        /// Slots whose members are named.
        seen: usize,
    },
    /// Too few or too many members.
    #[error("a shard of slot {slot} was given {seen} members, the settings ask for {wanted}; choose as many")]
    Copies {
        /// The slot.
        slot: u32,
        /// How many there are.
        seen: usize,
        /// How many are wanted.
        wanted: u16,
    },
    /// A member that was not among those to choose from.
    #[error(
        "node {node} is to be a member, but its zone is not named; name the zones of all that could be chosen"
    )]
    Stranger {
        /// The node.
        node: NodeId,
    },
    /// Members share a zone though they need not.
    #[error(
        "the members of a shard of slot {slot} lie in {seen} zones and could lie in {possible}; choose them so"
    )]
    Crowded {
        /// The slot.
        slot: u32,
        /// Zones that they lie in.
        seen: usize,
        /// Zones that they could lie in.
        possible: usize,
    },
    /// A node is a member of as many shards as it may be.
    #[error(
        "node {node} is a member of {MAX_GROUPS} shards, the limit; choose another, or start more ingesters"
    )]
    NodeFull {
        /// The node.
        node: NodeId,
    },
    /// As much as there may be.
    #[error("the catalogue holds {limit} {what}, the limit; {}", what.remedy())]
    TooMany {
        /// Of what.
        what: LimitedResource,
        /// How many there may be.
        limit: usize,
    },
    /// Nobody would go on where the shard ends.
    #[error("shard {shard} has no successor yet; it seals when there is one")]
    NoSuccessor {
        /// The shard.
        shard: ShardId,
    },
    /// Somebody goes on already.
    #[error("shard {shard} has a successor, shard {by}, with other members; ask the catalogue who they are")]
    Succeeded {
        /// The shard.
        shard: ShardId,
        /// Its successor.
        by: ShardId,
    },
    /// The shard has inherited something else than it must.
    #[error("shard {shard} must inherit {expected}, it has inherited {seen}; inherit anew")]
    Inherited {
        /// The shard.
        shard: ShardId,
        /// What it must.
        expected: HandoffSource,
        /// What it has.
        seen: HandoffSource,
    },
    /// Another shard still copies the ids of this one.
    #[error("shard {by} still copies the ids of shard {shard}; wait until it is open")]
    StillInherited {
        /// The shard.
        shard: ShardId,
        /// Who copies.
        by: ShardId,
    },
    /// The shard lacks a fence.
    #[error(
        "shard {shard} has logged fences up to table {seen}, table {needed} is newer; log its fence first"
    )]
    Unfenced {
        /// The shard.
        shard: ShardId,
        /// The newest table.
        needed: u64,
        /// The newest one whose fence it has.
        seen: u64,
    },
    /// The log would end before what is registered of it.
    #[error(
        "the log of shard {shard} cannot end at {at}: blocks are registered up to {watermark}; name its true end"
    )]
    SealBehind {
        /// The shard.
        shard: ShardId,
        /// The end.
        at: u64,
        /// The watermark.
        watermark: u64,
    },
    /// The shard settled with one that does not serve the slot.
    #[error(
        "shard {shard} settled with shard {with}, {}; settle with the one that serves the slot then",
        serving.map_or_else(|| "and no shard serves the slot now".to_owned(), |serving| format!("but shard {serving} serves the slot now"))
    )]
    SettledWith {
        /// The shard.
        shard: ShardId,
        /// Whom it asked.
        with: ShardId,
        /// Whom it should ask.
        serving: Option<ShardId>,
    },
    /// Rows would be lost.
    #[error("rows of shard {shard} between {watermark} and {at} may lie in no block; register them first")]
    Unregistered {
        /// The shard.
        shard: ShardId,
        /// The last index in a block.
        watermark: u64,
        /// Where the log ends.
        at: u64,
    },
    /// Nothing would be lost.
    #[error("all of shard {shard} lies in blocks; retire it")]
    NothingToAbandon {
        /// The shard.
        shard: ShardId,
    },
    /// There are no slots to place by.
    #[error("no slots are open yet; open them first")]
    NoSlots,
    /// Another table is not published yet.
    #[error("table {version} is proposed and not published yet; publish or withdraw it first")]
    TablePending {
        /// The other table.
        version: u64,
    },
    /// A shard could not be fenced.
    #[error("shard {shard} is lost and cannot log a fence; wait until it has settled, or abandon it")]
    ShardLost {
        /// The shard.
        shard: ShardId,
    },
    /// A version that was used, or that leaves some out.
    #[error("the table has version {seen}, the next one is {expected}; propose it with that")]
    TableVersion {
        /// Its version.
        seen: u64,
        /// The version that it should have.
        expected: u64,
    },
    /// Profiles of that time may have been taken already.
    #[error(
        "table {version} holds from {from} ns on, the earliest possible is {earliest} ns; propose a later time"
    )]
    TableTime {
        /// Its version.
        version: u64,
        /// The time that it says.
        from: i64,
        /// The earliest that it could.
        earliest: i64,
    },
    /// The table names a slot that nobody serves.
    #[error("table {version} names slot {slot}, which has no shard; add the slot first")]
    TableSlot {
        /// Its version.
        version: u64,
        /// The slot.
        slot: u32,
    },
    /// It is not this table that is proposed.
    #[error(
        "table {version} is not proposed, {}; ask the catalogue for it",
        pending.map_or_else(|| "nor is any".to_owned(), |pending| format!("table {pending} is"))
    )]
    NotPending {
        /// The table's version.
        version: u64,
        /// The one that is.
        pending: Option<u64>,
    },
    /// Not all shards have logged the fence.
    #[error(
        "table {version} waits for the fences of {missing} shards, shard {first} among them; publish it then"
    )]
    Fences {
        /// The table's version.
        version: u64,
        /// How many shards.
        missing: usize,
        /// One of them.
        first: ShardId,
    },
    /// Profiles of that time are still accepted.
    #[error(
        "profiles from {} ns on may still come; keep the tables of their time",
        latest.map_or_else(|| "any time".to_owned(), |latest| latest.to_string())
    )]
    StillAccepted {
        /// The time before which none may come; none where they may be of any age.
        latest: Option<i64>,
    },
    /// The settings are others than was thought.
    #[error("the settings were changed by somebody else; read them again")]
    SettingsChanged,
    /// A note says something else than was thought.
    #[error("note {name:?} was changed by somebody else; read it again")]
    NoteChanged {
        /// Its name.
        name: String,
    },
    /// A note is too long.
    #[error("note has {seen} bytes with its name, the limit is {MAX_DOCUMENT_BYTES}; write less")]
    LongNote {
        /// How long it is.
        seen: usize,
    },
    /// No shard can have so many members.
    #[error("{seen} copies are wanted, 1 to {MAX_COPIES} are possible; ask for as many")]
    NoCopies {
        /// How many are wanted.
        seen: u16,
    },
}

impl CommandError {
    /// Whether the same command may succeed later.
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

/// Which phases are right, and what to do in others.
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
