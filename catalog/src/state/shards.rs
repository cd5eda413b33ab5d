//! Shards: what one is, and how the first of a slot opens.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use athanor_chassis::Timestamp;
use athanor_cluster::NodeId;
use athanor_cluster::placement::MAX_SLOTS;
use serde::{Deserialize, Serialize};

use super::{Answer, Bounded, Outcome, Refused, State, Step};

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
    pub phase: Phase,
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
pub enum Phase {
    /// It accepts nothing yet: not before the catalogue has answered that it is open, else what it accepted would be
    /// gone when it is succeeded before that [INV-12].
    Opening {
        /// The ids that it must know first.
        inherits: Inherits,
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
pub enum Inherits {
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
pub struct Choice {
    /// The members.
    pub members: BTreeSet<NodeId>,
    /// The zones of all nodes that could have been chosen, the members' among them.
    pub zones: BTreeMap<NodeId, String>,
}

/// What is known of a node that is or was a member of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// The zone that it said it is in when it was chosen last; empty if it said none.
    pub zone: String,
}

/// How many shards each node is a member of.
pub(super) type Groups = BTreeMap<NodeId, usize>;

/// The number of a slot's shard of an epoch. It follows from both alone, so that whoever finds a shard's log knows
/// whose it is.
pub const fn shard_id(slot: u32, epoch: u32) -> ShardId {
    (epoch - 1) << SLOT_BITS | (slot + 1)
}

/// The slot and the epoch of a shard; none for a number that no shard has.
pub const fn slot_and_epoch(shard: ShardId) -> Option<(u32, u32)> {
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
        matches!(self.phase, Phase::Retired { .. })
    }

    /// Whether it takes records now.
    pub fn serves(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Closing)
    }

    /// Whether a new table needs its fence.
    pub(super) fn needs_fences(&self) -> bool {
        self.serves() || matches!(self.phase, Phase::Opening { .. })
    }

    /// Whether it copies the ids of another.
    pub(super) fn copies(&self, shard: ShardId) -> bool {
        matches!(self.phase, Phase::Opening { inherits: Inherits::Window { of, .. } } if of == shard)
    }

    pub(super) fn enter(&mut self, phase: Phase, now: Timestamp) {
        self.phase = phase;
        self.since = now;
    }

    /// That it is in a wrong phase.
    pub(super) fn refuse(&self, step: Step) -> Refused {
        Refused::Phase { shard: self.id, phase: self.phase.clone(), step }
    }
}

impl State {
    pub(super) fn shard(&self, id: ShardId) -> Result<&ShardEntry, Refused> {
        self.shards.get(&id).ok_or_else(|| no_shard(id))
    }

    pub(super) fn shard_mut(&mut self, id: ShardId) -> Result<&mut ShardEntry, Refused> {
        self.shards.get_mut(&id).ok_or_else(|| no_shard(id))
    }

    pub(super) fn of_slot(&self, slot: u32) -> impl DoubleEndedIterator<Item = &ShardEntry> {
        self.shards.values().filter(move |shard| shard.slot == slot)
    }

    /// The newest shard of a slot. Numbers of a slot ascend with the epoch.
    pub(super) fn newest(&self, slot: u32) -> Option<&ShardEntry> {
        self.of_slot(slot).next_back()
    }

    /// The shard of a slot that takes records.
    pub fn serving(&self, slot: u32) -> Option<&ShardEntry> {
        self.of_slot(slot).find(|shard| shard.serves())
    }

    pub(super) fn open_slots(
        &mut self,
        count: u32,
        members: &[BTreeSet<NodeId>],
        zones: &BTreeMap<NodeId, String>,
    ) -> Result<Outcome, Refused> {
        if !self.shards.is_empty() {
            return Ok(Outcome::counted(0));
        }
        if members.is_empty() {
            for slot in 0..count.clamp(1, MAX_SLOTS) {
                self.insert(slot, 1, BTreeSet::new(), Phase::Open);
            }
        } else {
            if members.len() != count as usize || count > MAX_SLOTS {
                return Err(Refused::Slots { count, seen: members.len() });
            }
            let mut groups = Groups::new();
            for (slot, members) in (0..count).zip(members) {
                self.check_members(slot, members, zones, &mut groups)?;
            }
            let alone = self.settings.copies == 1;
            for (slot, members) in (0..count).zip(members) {
                let phase = if alone { Phase::Open } else { Phase::Opening { inherits: Inherits::Nothing } };
                self.insert(slot, 1, members.clone(), phase);
                self.meet(members, zones);
            }
        }
        self.first_table_of_all_slots();
        Ok(Outcome::counted(self.shards.len()))
    }

    pub(super) fn open_shard(&mut self, slot: u32, members: BTreeSet<NodeId>) -> Result<Outcome, Refused> {
        if let Some(shard) = self.serving(slot).or_else(|| self.newest(slot)) {
            return Ok(Outcome::Known(Answer::Shard(shard.clone())));
        }
        self.has_room(slot)?;
        // Its log was fenced by tables that may be unknown here, and by none that came later.
        let by_first_table = self.newest_version() <= 1 && self.pending.is_none();
        let phase = if by_first_table { Phase::Open } else { Phase::Opening { inherits: Inherits::Nothing } };
        self.meet(&members, &BTreeMap::new());
        let shard = self.insert(slot, 1, members, phase);
        self.first_table_of_all_slots();
        Ok(Outcome::Changed(Answer::Shard(shard)))
    }

    pub(super) fn add_slot(&mut self, slot: u32, choice: &Choice) -> Result<Outcome, Refused> {
        if let Some(shard) = self.newest(slot) {
            return match shard.members == choice.members && shard.epoch == 1 {
                true => Ok(Outcome::Known(Answer::Shard(shard.clone()))),
                false => Err(Refused::SlotTaken { slot, shard: shard.id }),
            };
        }
        if self.tables.is_none() {
            return Err(Refused::NoSlots);
        }
        let shard = self.found(slot, 1, choice, Inherits::Nothing)?;
        Ok(Outcome::Changed(Answer::Shard(shard)))
    }

    /// Makes a shard that has to open yet.
    pub(super) fn found(
        &mut self,
        slot: u32,
        epoch: u32,
        choice: &Choice,
        inherits: Inherits,
    ) -> Result<ShardEntry, Refused> {
        self.has_room(slot)?;
        if epoch > MAX_EPOCHS {
            return Err(Refused::EpochsUsedUp { slot, epochs: MAX_EPOCHS });
        }
        self.check_members(slot, &choice.members, &choice.zones, &mut self.groups())?;
        self.meet(&choice.members, &choice.zones);
        Ok(self.insert(slot, epoch, choice.members.clone(), Phase::Opening { inherits }))
    }

    fn has_room(&self, slot: u32) -> Result<(), Refused> {
        if slot >= MAX_SLOTS {
            return Err(Refused::NoSlot { slot });
        }
        match self.shards.len() < MAX_SHARDS {
            true => Ok(()),
            false => Err(Refused::TooMany { what: Bounded::Shards, limit: MAX_SHARDS }),
        }
    }

    pub(super) fn insert(
        &mut self,
        slot: u32,
        epoch: u32,
        members: BTreeSet<NodeId>,
        phase: Phase,
    ) -> ShardEntry {
        let (id, since) = (shard_id(slot, epoch), self.now);
        let fenced = if phase == Phase::Open { first_table() } else { 0 };
        let shard = ShardEntry { id, slot, epoch, watermark: 0, members, phase, fenced, since };
        self.shards.insert(id, shard.clone());
        shard
    }

    fn groups(&self) -> Groups {
        let mut groups = Groups::new();
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
        groups: &mut Groups,
    ) -> Result<(), Refused> {
        let wanted = self.settings.copies;
        if members.len() != usize::from(wanted) {
            return Err(Refused::Copies { slot, seen: members.len(), wanted });
        }
        if let Some(&node) = members.iter().find(|node| !zones.contains_key(*node)) {
            return Err(Refused::Stranger { node });
        }
        let count = |zones: BTreeSet<&String>| zones.len();
        let seen = count(members.iter().filter_map(|node| zones.get(node)).collect());
        let possible = count(zones.values().collect()).min(members.len());
        if seen < possible {
            return Err(Refused::Crowded { slot, seen, possible });
        }
        for &node in members {
            let groups = groups.entry(node).or_default();
            if *groups >= MAX_GROUPS {
                return Err(Refused::NodeFull { node });
            }
            *groups += 1;
        }
        Ok(())
    }

    fn meet(&mut self, members: &BTreeSet<NodeId>, zones: &BTreeMap<NodeId, String>) {
        for &node in members {
            let zone = zones.get(&node).cloned().unwrap_or_default();
            self.nodes.insert(node, Node { zone });
        }
    }
}

fn no_shard(shard: ShardId) -> Refused {
    Refused::NoShard { shard, epoch: slot_and_epoch(shard).map_or(0, |(_, epoch)| epoch) }
}

impl fmt::Display for Phase {
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

impl fmt::Display for Inherits {
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
