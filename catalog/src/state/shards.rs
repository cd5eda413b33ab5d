//! Shards: what one is, and how the first of a slot opens.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use athanor_chassis::Timestamp;
use athanor_cluster::NodeId;
use athanor_cluster::placement::MAX_SLOTS;
use serde::{Deserialize, Serialize};

use super::{CatalogState, CommandError, CommandOutcome, CommandResult, LimitedResource, PhaseTransition};

/// The number of a shard, never used twice.
pub type ShardId = u32;

/// The most members of a shard.
pub const MAX_COPIES: u16 = 7;
/// The most shards that a node is a member of, those that retired not counted.
pub const MAX_GROUPS: usize = 64;
/// The most shards, retired ones included while they are remembered.
pub const MAX_SHARDS: usize = 8192;
/// A shard's number says its slot and its epoch in 32 bits.
const SLOT_BITS: u32 = 16;
/// The most shards that a slot may have one after the other.
const MAX_EPOCHS: u32 = 1 << (u32::BITS - SLOT_BITS);

/// One shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardEntry {
    /// Its number.
    pub id: ShardId,
    /// The slot that it serves.
    pub slot: u32,
    /// Which of the slot's successive shards it is [INV-12].
    pub epoch: u32,
    /// The last index of its log that lies in a registered block.
    pub watermark: u64,
    /// Who has its log; never changes. None where it was opened before members were named: then the one node that has
    /// it.
    #[serde(default)]
    pub members: BTreeSet<NodeId>,
    /// What it may do.
    #[serde(default)]
    pub phase: ShardPhase,
    /// The newest table whose fence is in its log, or that was published when it first opened [INV-05].
    #[serde(default = "first_table")]
    pub fenced: u64,
    /// When its phase began.
    #[serde(default)]
    pub since: Timestamp,
}

/// What a shard may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ShardPhase {
    /// It accepts nothing yet: not before the catalogue has answered that it is open, else what it accepted would be
    /// gone when it is succeeded before that [INV-12].
    Opening {
        /// The ids that it must know first.
        inherits: HandoffSource,
    },
    /// It serves its slot.
    #[default]
    Open,
    /// It was told to seal. Until it has, it serves its slot.
    Closing,
    /// Its log has ended. What of it is in no block yet is still cut.
    Sealed {
        /// The last index of its log.
        at: u64,
    },
    /// Others serve its slot, and do not know which records it holds after its watermark: so it registers nothing and
    /// answers nothing until it has settled with who serves the slot [INV-13].
    Lost {
        /// Its watermark.
        kept: u64,
    },
    /// It is over.
    Retired {
        /// Since when: it is remembered for a while, so that members that were away hear of it.
        at: Timestamp,
        /// Whether rows that lie in no block were given up with it.
        abandoned: bool,
    },
}

/// The ids that a shard must know before it accepts records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HandoffSource {
    /// None: it is the first of its slot.
    Nothing,
    /// All that another shard knows.
    Window {
        /// The other.
        of: ShardId,
        /// Where that one's log ends, once it does.
        upto: Option<u64>,
    },
    /// Those in the slot's registered blocks, and no others: what it had copied from the lost shard is forgotten first,
    /// else it would call records its own that only the lost shard has, and that one would drop them when it settles.
    Blocks {
        /// The shard that was lost.
        of: ShardId,
        /// Where its blocks end.
        upto: u64,
    },
}

/// The members of a new shard and the nodes from which they were chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaPlacement {
    /// The members.
    pub members: BTreeSet<NodeId>,
    /// The zones of all nodes that could have been chosen, the members' among them.
    pub zones: BTreeMap<NodeId, String>,
}

/// What is known of a node that is or was a member of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardNode {
    /// The zone that it said it is in when it was chosen last; empty if it said none.
    pub zone: String,
}

/// How many shards each node is a member of.
pub(super) type ShardsPerNode = BTreeMap<NodeId, usize>;

/// The number of a slot's shard of an epoch. It follows from both alone, so that whoever finds a shard's log knows
/// whose it is.
pub const fn shard_id(slot: u32, epoch: u32) -> ShardId {
    (epoch - 1) << SLOT_BITS | (slot + 1)
}

/// The slot and the epoch of a shard; none for a number that no shard has.
pub const fn decode_shard_id(shard: ShardId) -> Option<(u32, u32)> {
    match shard & ((1 << SLOT_BITS) - 1) {
        0 => None,
        low => Some((low - 1, (shard >> SLOT_BITS) + 1)),
    }
}

/// The table that all shards opened by when there was no other.
fn first_table() -> u64 {
    1
}

impl ShardEntry {
    /// Whether it is over.
    pub fn is_retired(&self) -> bool {
        matches!(self.phase, ShardPhase::Retired { .. })
    }

    /// Whether it takes records now.
    pub fn serves(&self) -> bool {
        matches!(self.phase, ShardPhase::Open | ShardPhase::Closing)
    }

    /// Whether a new table needs its fence.
    pub(super) fn needs_fences(&self) -> bool {
        self.serves() || matches!(self.phase, ShardPhase::Opening { .. })
    }

    /// Whether it copies the ids of another.
    pub(super) fn copies_ids_from(&self, shard: ShardId) -> bool {
        matches!(self.phase, ShardPhase::Opening { inherits: HandoffSource::Window { of, .. } } if of == shard)
    }

    pub(super) fn enter_phase(&mut self, phase: ShardPhase, now: Timestamp) {
        self.phase = phase;
        self.since = now;
    }

    /// That it is in a wrong phase.
    pub(super) fn wrong_phase(&self, step: PhaseTransition) -> CommandError {
        CommandError::Phase { shard: self.id, phase: self.phase.clone(), step }
    }
}

impl CatalogState {
    pub(super) fn shard(&self, id: ShardId) -> Result<&ShardEntry, CommandError> {
        self.shards.get(&id).ok_or_else(|| unknown_shard_error(id))
    }

    pub(super) fn shard_mut(&mut self, id: ShardId) -> Result<&mut ShardEntry, CommandError> {
        self.shards.get_mut(&id).ok_or_else(|| unknown_shard_error(id))
    }

    pub(super) fn shards_of_slot(&self, slot: u32) -> impl DoubleEndedIterator<Item = &ShardEntry> {
        self.shards.values().filter(move |shard| shard.slot == slot)
    }

    /// The newest shard of a slot. Numbers of a slot ascend with the epoch.
    pub(super) fn newest_shard(&self, slot: u32) -> Option<&ShardEntry> {
        self.shards_of_slot(slot).next_back()
    }

    /// The shard of a slot that takes records.
    pub fn serving_shard(&self, slot: u32) -> Option<&ShardEntry> {
        self.shards_of_slot(slot).find(|shard| shard.serves())
    }

    pub(super) fn open_slots(
        &mut self,
        count: u32,
        members: &[BTreeSet<NodeId>],
        zones: &BTreeMap<NodeId, String>,
    ) -> Result<CommandOutcome, CommandError> {
        if !self.shards.is_empty() {
            return Ok(CommandOutcome::from_count(0));
        }
        if members.is_empty() {
            for slot in 0..count.clamp(1, MAX_SLOTS) {
                self.insert_shard(slot, 1, BTreeSet::new(), ShardPhase::Open);
            }
        } else {
            if members.len() != count as usize || count > MAX_SLOTS {
                return Err(CommandError::Slots { count, seen: members.len() });
            }
            let mut groups = ShardsPerNode::new();
            for (slot, members) in (0..count).zip(members) {
                self.check_members(slot, members, zones, &mut groups)?;
            }
            let alone = self.settings.copies == 1;
            for (slot, members) in (0..count).zip(members) {
                let phase = if alone {
                    ShardPhase::Open
                } else {
                    ShardPhase::Opening { inherits: HandoffSource::Nothing }
                };
                self.insert_shard(slot, 1, members.clone(), phase);
                self.record_members(members, zones);
            }
        }
        self.first_table_of_all_slots();
        Ok(CommandOutcome::from_count(self.shards.len()))
    }

    pub(super) fn open_shard(
        &mut self,
        slot: u32,
        members: BTreeSet<NodeId>,
    ) -> Result<CommandOutcome, CommandError> {
        if let Some(shard) = self.serving_shard(slot).or_else(|| self.newest_shard(slot)) {
            return Ok(CommandOutcome::Known(CommandResult::Shard(shard.clone())));
        }
        self.check_shard_capacity(slot)?;
        // Its log was fenced by tables that may be unknown here, and by none that came later.
        let by_first_table = self.newest_table_version() <= 1 && self.pending.is_none();
        let phase = if by_first_table {
            ShardPhase::Open
        } else {
            ShardPhase::Opening { inherits: HandoffSource::Nothing }
        };
        self.record_members(&members, &BTreeMap::new());
        let shard = self.insert_shard(slot, 1, members, phase);
        self.first_table_of_all_slots();
        Ok(CommandOutcome::Changed(CommandResult::Shard(shard)))
    }

    pub(super) fn add_slot(
        &mut self,
        slot: u32,
        choice: &ReplicaPlacement,
    ) -> Result<CommandOutcome, CommandError> {
        if let Some(shard) = self.newest_shard(slot) {
            return match shard.members == choice.members && shard.epoch == 1 {
                true => Ok(CommandOutcome::Known(CommandResult::Shard(shard.clone()))),
                false => Err(CommandError::SlotTaken { slot, shard: shard.id }),
            };
        }
        if self.tables.is_none() {
            return Err(CommandError::NoSlots);
        }
        let shard = self.create_shard(slot, 1, choice, HandoffSource::Nothing)?;
        Ok(CommandOutcome::Changed(CommandResult::Shard(shard)))
    }

    /// Makes a shard that has to open yet.
    pub(super) fn create_shard(
        &mut self,
        slot: u32,
        epoch: u32,
        choice: &ReplicaPlacement,
        inherits: HandoffSource,
    ) -> Result<ShardEntry, CommandError> {
        self.check_shard_capacity(slot)?;
        if epoch > MAX_EPOCHS {
            return Err(CommandError::EpochsUsedUp { slot, epochs: MAX_EPOCHS });
        }
        self.check_members(slot, &choice.members, &choice.zones, &mut self.shards_per_node())?;
        self.record_members(&choice.members, &choice.zones);
        Ok(self.insert_shard(slot, epoch, choice.members.clone(), ShardPhase::Opening { inherits }))
    }

    fn check_shard_capacity(&self, slot: u32) -> Result<(), CommandError> {
        if slot >= MAX_SLOTS {
            return Err(CommandError::NoSlot { slot });
        }
        match self.shards.len() < MAX_SHARDS {
            true => Ok(()),
            false => Err(CommandError::TooMany { what: LimitedResource::Shards, limit: MAX_SHARDS }),
        }
    }

    pub(super) fn insert_shard(
        &mut self,
        slot: u32,
        epoch: u32,
        members: BTreeSet<NodeId>,
        phase: ShardPhase,
    ) -> ShardEntry {
        let id = shard_id(slot, epoch);
        let since = self.now;
        let fenced = if phase == ShardPhase::Open { first_table() } else { 0 };
        let shard = ShardEntry { id, slot, epoch, watermark: 0, members, phase, fenced, since };
        self.shards.insert(id, shard.clone());
        shard
    }

    fn shards_per_node(&self) -> ShardsPerNode {
        let mut groups = ShardsPerNode::new();
        for node in self.shards.values().filter(|shard| !shard.is_retired()).flat_map(|shard| &shard.members)
        {
            *groups.entry(*node).or_default() += 1;
        }
        groups
    }

    /// Whether these may be a shard's members: as many as there should be copies, in as many zones as can be, and each
    /// with room for one more. Counts it, then.
    fn check_members(
        &self,
        slot: u32,
        members: &BTreeSet<NodeId>,
        zones: &BTreeMap<NodeId, String>,
        groups: &mut ShardsPerNode,
    ) -> Result<(), CommandError> {
        let wanted = self.settings.copies;
        if members.len() != usize::from(wanted) {
            return Err(CommandError::Copies { slot, seen: members.len(), wanted });
        }
        if let Some(&node) = members.iter().find(|node| !zones.contains_key(*node)) {
            return Err(CommandError::Stranger { node });
        }
        let count = |zones: BTreeSet<&String>| zones.len();
        let seen = count(members.iter().filter_map(|node| zones.get(node)).collect());
        let possible = count(zones.values().collect()).min(members.len());
        if seen < possible {
            return Err(CommandError::Crowded { slot, seen, possible });
        }
        for &node in members {
            let groups = groups.entry(node).or_default();
            if *groups >= MAX_GROUPS {
                return Err(CommandError::NodeFull { node });
            }
            *groups += 1;
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
    CommandError::NoShard { shard, epoch: decode_shard_id(shard).map_or(0, |(_, epoch)| epoch) }
}

impl fmt::Display for ShardPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opening { inherits } => write!(f, "opening and inherits {inherits}"),
            Self::Open => f.write_str("open"),
            Self::Closing => f.write_str("closing"),
            Self::Sealed { at } => write!(f, "sealed at {at}"),
            Self::Lost { kept } => write!(f, "lost after {kept}"),
            Self::Retired { abandoned: false, .. } => f.write_str("retired"),
            Self::Retired { abandoned: true, .. } => f.write_str("abandoned"),
        }
    }
}

impl fmt::Display for HandoffSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Window { of, upto: None } => write!(f, "the ids of shard {of}, up to where it will seal"),
            Self::Window { of, upto: Some(upto) } => write!(f, "the ids of shard {of}, up to {upto}"),
            Self::Blocks { of, upto } => {
                write!(f, "the ids in the slot's blocks, those of shard {of} up to {upto}")
            }
        }
    }
}
