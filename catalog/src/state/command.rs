//! The changes, and how a log holds them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use athanor_chassis::{TenantId, Timestamp};
use athanor_cluster::NodeId;
use athanor_cluster::placement::SlotTable;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CatalogSettings, DataLoss, HandoffSource, ReplicaPlacement, ShardId};
use crate::block::{BlockEntry, BlockId, TenantSpan};

/// How commands are written so far. A voter that knows less must stop, not skip them.
const COMMAND_FORMAT: u32 = 1;

/// A change. Each says what it expects to find, so that two who propose at once do no harm, and does nothing the second
/// time, so that whoever heard no answer may propose it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CatalogCommand {
    /// Opens the first shards of so many slots, all at once, and makes the first table of them; changes nothing where
    /// there are shards.
    OpenSlots {
        /// How many.
        count: u32,
        /// The members of each. None in logs of a node that was alone: then whoever has the shard's log is its member.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        members: Vec<BTreeSet<NodeId>>,
        /// The zones of all nodes that could have been chosen.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        zones: BTreeMap<NodeId, String>,
    },
    /// Finds the shard of a slot that takes records, or learns again of the first one, whose log was found.
    OpenShard {
        /// The slot.
        slot: u32,
        /// Who has its log.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        members: BTreeSet<NodeId>,
    },
    /// Opens the first shard of a slot that no table names yet.
    AddSlot {
        /// The slot.
        slot: u32,
        /// Its members.
        choice: ReplicaPlacement,
    },
    /// A new shard has inherited what it must and logged the fences: it may accept.
    Opened {
        /// The shard.
        shard: ShardId,
        /// What it has inherited.
        inherited: HandoffSource,
        /// The newest table whose fence is in its log.
        fenced: u64,
    },
    /// Tells an open shard to seal.
    Stop {
        /// The shard.
        shard: ShardId,
    },
    /// Opens the successor of a shard that was told to seal.
    Succeed {
        /// The shard that is succeeded.
        shard: ShardId,
        /// The successor's members.
        choice: ReplicaPlacement,
    },
    /// A shard that was told to seal has done so.
    Sealed {
        /// The shard.
        shard: ShardId,
        /// Where its log ends.
        at: u64,
        /// Time of the latest profile that it took, Unix nanoseconds.
        latest: i64,
    },
    /// A shard has no quorum: it is succeeded without being asked.
    Lose {
        /// The shard.
        shard: ShardId,
        /// The members of its successor, where it has none yet.
        choice: ReplicaPlacement,
    },
    /// A lost shard came back, sealed its log, asked who serves its slot which of its records that one holds, and
    /// dropped those.
    Settled {
        /// The shard.
        shard: ShardId,
        /// Where its log ends.
        at: u64,
        /// Whom it asked.
        with: ShardId,
    },
    /// A person accepts that what lies in no block of a shard is lost.
    Abandon {
        /// The shard.
        shard: ShardId,
    },
    /// All rows of a sealed shard lie in blocks: its members may remove its log.
    Retire {
        /// The shard.
        shard: ShardId,
        /// The watermark, if no rows lie between it and the seal.
        rest_is_empty: Option<u64>,
    },
    /// Asks for a new table.
    ProposeTable {
        /// The table.
        table: SlotTable,
    },
    /// The fence of the table that is proposed is in a shard's log.
    Fenced {
        /// The shard.
        shard: ShardId,
        /// The table's version.
        version: u64,
    },
    /// A shard holds profiles of the new table's time: it must begin later, under another version.
    FenceRefused {
        /// The shard.
        shard: ShardId,
        /// The table's version.
        version: u64,
        /// Time of the latest profile that the shard took, Unix nanoseconds.
        latest: i64,
    },
    /// Gives up a table that is not published: a shard does not answer for its fence.
    WithdrawTable {
        /// Its version.
        version: u64,
    },
    /// Makes the proposed table one to place by.
    PublishTable {
        /// Its version.
        version: u64,
    },
    /// Forgets tables of times that no profile may have any more.
    ForgetTables {
        /// The earliest time that a profile may have, Unix nanoseconds.
        before: i64,
    },
    /// What services send now, where it has changed.
    Rates {
        /// Bytes a second, by tenant and service; zero forgets the service.
        changed: BTreeMap<TenantId, BTreeMap<String, u64>>,
    },
    /// Changes what the catalogue goes by.
    Configure {
        /// What it goes by until now.
        expected: CatalogSettings,
        /// What it shall go by.
        settings: CatalogSettings,
    },
    /// Keeps a text for a tenant.
    Note {
        /// Whose it is.
        tenant: TenantId,
        /// Its name.
        name: String,
        /// What it says until now; none if there is no such note.
        expected: Option<String>,
        /// What it shall say; none to forget it.
        text: Option<String>,
    },
    /// The catalogue has a voter at an address.
    AddVoter {
        /// The voter.
        node: NodeId,
        /// Where it is asked.
        address: String,
    },
    /// The catalogue has a voter less.
    RemoveVoter {
        /// The voter.
        node: NodeId,
    },
    /// Makes a block exist.
    Register {
        /// The block.
        block: BlockEntry,
    },
    /// Names a part of the tenants of a block that has more than fit into one command.
    StageTenants {
        /// The shard of the block.
        shard: ShardId,
        /// The block.
        block: BlockId,
        /// How many of its tenants come before these.
        offset: u64,
        /// The tenants.
        tenants: Vec<TenantSpan>,
    },
    /// Makes a block exist whose tenants are staged.
    RegisterStaged {
        /// The block, without tenants.
        block: BlockEntry,
        /// The number of its tenants.
        tenants: u64,
    },
    /// A shard's log says that everything up to an index lies in registered blocks: what is not known of that is a gap.
    Raise {
        /// The shard.
        shard: ShardId,
        /// The index.
        to: u64,
    },
    /// Makes a block exist again whose registration was lost: one that lies in a gap.
    Recall {
        /// The block.
        block: BlockEntry,
    },
    /// Makes a block exist again whose registration was lost and whose tenants are staged.
    RecallStaged {
        /// The block, without tenants.
        block: BlockEntry,
        /// The number of its tenants.
        tenants: u64,
    },
    /// Of a gap so much is none: what was there is not kept any more.
    Close {
        /// The shard.
        shard: ShardId,
        /// The index before the first.
        from: u64,
        /// The last.
        to: u64,
    },
    /// Remembers what damage did.
    Mark {
        /// What.
        wound: DataLoss,
    },
    /// Forgets damage that was found before a moment.
    Heal {
        /// The moment.
        before: Timestamp,
    },
    /// Puts blocks in the places of those that they were made of, which cease to exist as if condemned. Nobody sees both,
    /// nor neither [INV-20].
    Replace {
        /// The blocks that they were made of.
        inputs: Vec<BlockId>,
        /// Those that hold their rows from now on: of each tenant one.
        outputs: Vec<BlockEntry>,
    },
    /// Makes blocks cease to exist, and their names unusable.
    Condemn {
        /// The blocks.
        blocks: Vec<BlockId>,
    },
    /// Forgets names that were condemned, and shards that retired, long ago.
    Forget,
    /// Removes blocks past their retention from the listing. They can be restored until they are purged.
    Expire {
        /// How long blocks are kept, by the catalog's time.
        retention: Duration,
        /// The share of all blocks that may expire per hour; none on an operator's command.
        max_percent: Option<u8>,
    },
    /// Lists expired blocks again, on an operator's command. Their age counts from now.
    Restore {
        /// The blocks; all expired ones if empty.
        blocks: Vec<BlockId>,
    },
    /// Makes expired blocks unrestorable: their objects are about to be removed.
    Purge {
        /// The blocks.
        blocks: Vec<BlockId>,
    },
}

/// A command as a log holds it. Applying reads no clock, so the time comes with it: that of the voter that leads, since
/// whoever proposes may have a clock that is days ahead, by which condemned names would be forgotten early [INV-15].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogLogEntry {
    /// When it was proposed.
    pub at: Timestamp,
    /// The command.
    pub command: CatalogCommand,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogEntryEnvelope<C> {
    format: u32,
    at: Timestamp,
    command: C,
}

/// Why an entry of the log is no command.
#[derive(Debug, thiserror::Error)]
pub enum CommandDecodeError {
    /// It was written by a later version.
    #[error(
        "the command is written in format {seen}, this version reads formats up to {COMMAND_FORMAT}; run the version of the \
         other voters"
    )]
    Format {
        /// Its format.
        seen: u64,
    },
    /// It is nothing that this version knows.
    #[error("the entry is no command that this version knows; run the version of the other voters: {0}")]
    Unknown(#[from] serde_json::Error),
}

impl CatalogLogEntry {
    /// As bytes, for a log.
    pub fn encode(&self) -> Vec<u8> {
        let envelope = LogEntryEnvelope { format: COMMAND_FORMAT, at: self.at, command: &self.command };
        serde_json::to_vec(&envelope).expect("all keys are texts")
    }

    /// From the bytes of a log. What is not known, be it a field, is an error: who skipped it would hold other facts
    /// than the other voters.
    pub fn decode(bytes: &[u8]) -> Result<Self, CommandDecodeError> {
        let value: Value = serde_json::from_slice(bytes)?;
        match value.get("format").map(Value::as_u64) {
            None => Self::decode_without_envelope(value),
            Some(Some(seen)) if seen > u64::from(COMMAND_FORMAT) => Err(CommandDecodeError::Format { seen }),
            Some(_) => {
                let LogEntryEnvelope { at, command, .. } = serde_json::from_value(value)?;
                Ok(Self { at, command })
            }
        }
    }

    /// As it was written before there was an envelope: the time is a field of those commands that need one.
    fn decode_without_envelope(mut value: Value) -> Result<Self, CommandDecodeError> {
        let mut at = Timestamp::UNIX_EPOCH;
        let mut without_fields = None;
        if let Some((name, Value::Object(fields))) =
            value.as_object_mut().and_then(|one| one.iter_mut().next())
            && let Some(time) = fields.remove("at")
        {
            at = serde_json::from_value(time)?;
            without_fields = fields.is_empty().then(|| name.clone());
        }
        let command = without_fields.map_or(value, Value::String);
        Ok(Self { at, command: serde_json::from_value(command)? })
    }
}
