//! Shards: their entries and phases, and the opening of a slot's first shard.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use athanor_chassis::Timestamp;
use athanor_cluster::NodeId;
use athanor_cluster::placement::MAX_SLOTS;
use serde::{Deserialize, Serialize};

use crate::block::ShardId;
use crate::state::{
    CatalogState, CommandError, CommandOutcome, CommandResult, LimitedResource, PhaseTransition,
};

/// Limit of members per shard.
pub const MAX_REPLICATION_FACTOR: u16 = 7;
/// Limit of unretired shards per node.
pub const MAX_SHARDS_PER_NODE: usize = 64;
/// Limit of shards, including retired ones that are still on record.
pub const MAX_SHARDS: usize = 8192;
/// Low bits of a shard id: the slot plus one. The high bits are the epoch minus one.
const SLOT_BITS: u32 = 16;
/// Version of the first table, which covers all slots that open before another table.
const FIRST_TABLE_VERSION: u64 = 1;
/// Limit of successive shards per slot.
const MAX_EPOCHS: u32 = 1 << (u32::BITS - SLOT_BITS);

/// Catalog entry of one shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardEntry {
    /// Id of the shard.
    pub id: ShardId,
    /// Slot that the shard serves.
    pub slot: u32,
    /// Position in the sequence of the slot's shards, from 1 [INV-12].
    pub epoch: u32,
    /// Last log index that a registered block contains.
    pub watermark: u64,
    /// Nodes that have its log, which never change. Empty if a rebuild of the catalog found no report of the
    /// shard: then the node that has the log is the member.
    pub members: BTreeSet<NodeId>,
    /// Current phase of the shard.
    pub phase: ShardPhase,
    /// Newest table with a fence in its log, or the one that was published when the shard first opened
    /// [INV-05].
    pub fenced: u64,
    /// Start time of the phase.
    pub since: Timestamp,
}

/// Phase of a shard, which decides the permitted operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ShardPhase {
    /// The shard accepts no records yet. It waits until the catalog confirms that it is open. Otherwise a
    /// succession before that would lose the records that it accepted [INV-12].
    Opening {
        /// Source of the ids that the shard must copy first.
        source: HandoffSource,
    },
    /// The shard serves its slot.
    #[default]
    Open,
    /// The shard has to seal. It serves its slot until it has sealed.
    Sealing,
    /// The log has ended. Entries that no block holds yet are still flushed.
    Sealed {
        /// Last index of the log.
        last_index: u64,
    },
    /// Another shard serves the slot and does not know this shard's records after the watermark. So this
    /// shard registers no blocks and returns no results until it has reconciled its ids with the serving shard
    /// [INV-13].
    Lost {
        /// Watermark at the time of the loss.
        watermark: u64,
    },
    /// The shard has ended, and its log may be deleted.
    Retired {
        /// Time of the retirement. The entry stays for a while, so that members that were offline see it.
        retired_at: Timestamp,
        /// True if rows that no block holds were given up.
        abandoned: bool,
    },
}

/// Source of the ids that a shard must copy before it accepts records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HandoffSource {
    /// No source: the shard is the first of its slot.
    None,
    /// All ids that another shard holds.
    DedupWindow {
        /// Shard that the ids are copied from.
        predecessor: ShardId,
        /// Last index of that shard's log, once it is sealed.
        up_to: Option<u64>,
    },
    /// The ids in the slot's registered blocks, and no others. Ids that were copied from the lost shard are
    /// dropped first. Otherwise this shard would claim records that only the lost shard has, and the lost
    /// shard would drop them when it reconciles its ids.
    RegisteredBlocks {
        /// Id of the lost shard.
        predecessor: ShardId,
        /// Watermark of the lost shard.
        up_to: u64,
    },
}

/// Members of a new shard, and the nodes that they were chosen from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaPlacement {
    /// Nodes that become members.
    pub members: BTreeSet<NodeId>,
    /// Zones of all candidates, including the members.
    pub zones: BTreeMap<NodeId, String>,
}

/// Properties of a node that is or was a member of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardNode {
    /// Zone that the node reported when it was last chosen, empty if it reported none.
    pub zone: String,
}

/// Number of shards per node.
pub(in crate::state) type ShardsPerNode = BTreeMap<NodeId, usize>;

/// Returns the id of a slot's shard of an epoch. The id depends on these two only, so a shard's log
/// identifies its slot and epoch.
pub const fn shard_id(slot: u32, epoch: u32) -> ShardId {
    (epoch - 1) << SLOT_BITS | (slot + 1)
}

/// Returns the slot and the epoch of a shard, or none for an invalid id.
pub const fn decode_shard_id(shard: ShardId) -> Option<(u32, u32)> {
    match shard & ((1 << SLOT_BITS) - 1) {
        0 => None,
        low => Some((low - 1, (shard >> SLOT_BITS) + 1)),
    }
}

impl ShardEntry {
    /// Returns whether the shard has retired.
    pub fn is_retired(&self) -> bool {
        matches!(self.phase, ShardPhase::Retired { .. })
    }

    /// Returns whether the shard accepts records now.
    pub fn serves(&self) -> bool {
        matches!(self.phase, ShardPhase::Open | ShardPhase::Sealing)
    }

    /// Returns whether a new table requires this shard's fence.
    pub(in crate::state) fn needs_fences(&self) -> bool {
        self.serves() || matches!(self.phase, ShardPhase::Opening { .. })
    }

    /// Returns whether the shard copies the ids of another.
    pub(in crate::state) fn copies_ids_from(&self, shard: ShardId) -> bool {
        matches!(self.phase, ShardPhase::Opening { source: HandoffSource::DedupWindow { predecessor, .. } } if predecessor == shard)
    }

    pub(in crate::state) fn enter_phase(&mut self, phase: ShardPhase, now: Timestamp) {
        self.phase = phase;
        self.since = now;
    }

    /// Returns the error for a transition that the current phase does not permit.
    pub(in crate::state) fn wrong_phase(&self, transition: PhaseTransition) -> CommandError {
        CommandError::WrongPhase { shard: self.id, phase: self.phase.clone(), transition }
    }
}

impl CatalogState {
    pub(in crate::state) fn shard(&self, id: ShardId) -> Result<&ShardEntry, CommandError> {
        self.shards.get(&id).ok_or_else(|| unknown_shard_error(id))
    }

    pub(in crate::state) fn shard_mut(&mut self, id: ShardId) -> Result<&mut ShardEntry, CommandError> {
        self.shards.get_mut(&id).ok_or_else(|| unknown_shard_error(id))
    }

    pub(in crate::state) fn shards_of_slot(&self, slot: u32) -> impl DoubleEndedIterator<Item = &ShardEntry> {
        self.shards.values().filter(move |shard| shard.slot == slot)
    }

    /// Returns the newest shard of a slot. Ids of a slot ascend with the epoch.
    pub(in crate::state) fn newest_shard(&self, slot: u32) -> Option<&ShardEntry> {
        self.shards_of_slot(slot).next_back()
    }

    /// Returns the shard of a slot that accepts records.
    pub fn serving_shard(&self, slot: u32) -> Option<&ShardEntry> {
        self.shards_of_slot(slot).find(|shard| shard.serves())
    }

    pub(in crate::state) fn open_slots(
        &mut self,
        count: u32,
        members: &[BTreeSet<NodeId>],
        zones: &BTreeMap<NodeId, String>,
    ) -> Result<CommandOutcome, CommandError> {
        if !self.shards.is_empty() {
            return Ok(CommandOutcome::from_count(0));
        }
        if members.is_empty() || members.len() != count as usize || count > MAX_SLOTS {
            return Err(CommandError::MemberListCount { count, seen: members.len() });
        }
        let mut shard_counts = ShardsPerNode::new();
        for (slot, members) in (0..count).zip(members) {
            self.check_members(slot, members, zones, &mut shard_counts)?;
        }
        let has_single_member = self.settings.replication_factor == 1;
        for (slot, members) in (0..count).zip(members) {
            let phase = match has_single_member {
                true => ShardPhase::Open,
                false => ShardPhase::Opening { source: HandoffSource::None },
            };
            self.insert_shard(slot, 1, members.clone(), phase);
            self.record_members(members, zones);
        }
        self.extend_first_table();
        Ok(CommandOutcome::from_count(self.shards.len()))
    }

    pub(in crate::state) fn open_shard(
        &mut self,
        slot: u32,
        members: BTreeSet<NodeId>,
    ) -> Result<CommandOutcome, CommandError> {
        if let Some(shard) = self.serving_shard(slot).or_else(|| self.newest_shard(slot)) {
            return Ok(CommandOutcome::NoOp(CommandResult::Shard(shard.clone())));
        }
        self.check_shard_capacity(slot)?;
        // The log holds fences of tables that may be unknown here, and none of later tables.
        let by_first_table = self.newest_table_version() <= 1 && self.pending.is_none();
        let phase = if by_first_table {
            ShardPhase::Open
        } else {
            ShardPhase::Opening { source: HandoffSource::None }
        };
        self.record_members(&members, &BTreeMap::new());
        let shard = self.insert_shard(slot, 1, members, phase);
        self.extend_first_table();
        Ok(CommandOutcome::Changed(CommandResult::Shard(shard)))
    }

    pub(in crate::state) fn add_slot(
        &mut self,
        slot: u32,
        placement: &ReplicaPlacement,
    ) -> Result<CommandOutcome, CommandError> {
        if let Some(shard) = self.newest_shard(slot) {
            return match shard.members == placement.members && shard.epoch == 1 {
                true => Ok(CommandOutcome::NoOp(CommandResult::Shard(shard.clone()))),
                false => Err(CommandError::SlotTaken { slot, shard: shard.id }),
            };
        }
        if self.tables.is_none() {
            return Err(CommandError::NoSlots);
        }
        let shard = self.create_shard(slot, 1, placement, HandoffSource::None)?;
        Ok(CommandOutcome::Changed(CommandResult::Shard(shard)))
    }

    /// Creates a shard in the opening phase.
    pub(in crate::state) fn create_shard(
        &mut self,
        slot: u32,
        epoch: u32,
        placement: &ReplicaPlacement,
        source: HandoffSource,
    ) -> Result<ShardEntry, CommandError> {
        self.check_shard_capacity(slot)?;
        if epoch > MAX_EPOCHS {
            return Err(CommandError::EpochsExhausted { slot, epochs: MAX_EPOCHS });
        }
        self.check_members(slot, &placement.members, &placement.zones, &mut self.shards_per_node())?;
        self.record_members(&placement.members, &placement.zones);
        Ok(self.insert_shard(slot, epoch, placement.members.clone(), ShardPhase::Opening { source }))
    }

    fn check_shard_capacity(&self, slot: u32) -> Result<(), CommandError> {
        if slot >= MAX_SLOTS {
            return Err(CommandError::InvalidSlot { slot });
        }
        match self.shards.len() < MAX_SHARDS {
            true => Ok(()),
            false => Err(CommandError::LimitReached { resource: LimitedResource::Shards, limit: MAX_SHARDS }),
        }
    }

    pub(in crate::state) fn insert_shard(
        &mut self,
        slot: u32,
        epoch: u32,
        members: BTreeSet<NodeId>,
        phase: ShardPhase,
    ) -> ShardEntry {
        let id = shard_id(slot, epoch);
        let since = self.now;
        let fenced = if phase == ShardPhase::Open { FIRST_TABLE_VERSION } else { 0 };
        let shard = ShardEntry { id, slot, epoch, watermark: 0, members, phase, fenced, since };
        self.shards.insert(id, shard.clone());
        shard
    }

    fn shards_per_node(&self) -> ShardsPerNode {
        let mut shard_counts = ShardsPerNode::new();
        for node in self.shards.values().filter(|shard| !shard.is_retired()).flat_map(|shard| &shard.members)
        {
            *shard_counts.entry(*node).or_default() += 1;
        }
        shard_counts
    }

    /// Checks the members of a shard. Their number is the replication factor, they use as many zones as
    /// possible, and each is below its shard limit. Counts the shard for each member.
    fn check_members(
        &self,
        slot: u32,
        members: &BTreeSet<NodeId>,
        zones: &BTreeMap<NodeId, String>,
        shard_counts: &mut ShardsPerNode,
    ) -> Result<(), CommandError> {
        let wanted = self.settings.replication_factor;
        if members.len() != usize::from(wanted) {
            return Err(CommandError::ReplicationFactorMismatch { slot, seen: members.len(), wanted });
        }
        if let Some(&node) = members.iter().find(|node| !zones.contains_key(*node)) {
            return Err(CommandError::NotACandidate { node });
        }
        let count = |zones: BTreeSet<&String>| zones.len();
        let seen = count(members.iter().filter_map(|node| zones.get(node)).collect());
        let possible = count(zones.values().collect()).min(members.len());
        if seen < possible {
            return Err(CommandError::TooFewZones { slot, seen, possible });
        }
        for &node in members {
            let count = shard_counts.entry(node).or_default();
            if *count >= MAX_SHARDS_PER_NODE {
                return Err(CommandError::NodeFull { node });
            }
            *count += 1;
        }
        Ok(())
    }

    fn record_members(&mut self, members: &BTreeSet<NodeId>, zones: &BTreeMap<NodeId, String>) {
        for &node in members {
            let zone = zones.get(&node).cloned().unwrap_or_default();
            self.nodes.insert(node, ShardNode { zone });
        }
    }
}

fn unknown_shard_error(shard: ShardId) -> CommandError {
    CommandError::UnknownShard { shard, epoch: decode_shard_id(shard).map_or(0, |(_, epoch)| epoch) }
}

impl fmt::Display for ShardPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opening { source } => write!(f, "opening and copies {source}"),
            Self::Open => f.write_str("open"),
            Self::Sealing => f.write_str("sealing"),
            Self::Sealed { last_index } => write!(f, "sealed at index {last_index}"),
            Self::Lost { watermark } => write!(f, "lost at watermark {watermark}"),
            Self::Retired { abandoned: false, .. } => f.write_str("retired"),
            Self::Retired { abandoned: true, .. } => f.write_str("abandoned"),
        }
    }
}

impl fmt::Display for HandoffSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no ids"),
            Self::DedupWindow { predecessor, up_to: None } => {
                write!(f, "the ids of shard {predecessor} up to its seal")
            }
            Self::DedupWindow { predecessor, up_to: Some(up_to) } => {
                write!(f, "the ids of shard {predecessor} up to index {up_to}")
            }
            Self::RegisteredBlocks { predecessor, up_to } => {
                write!(f, "the ids in the slot's blocks, those of shard {predecessor} up to index {up_to}")
            }
        }
    }
}
