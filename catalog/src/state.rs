//! The facts, and the commands that change them.

use std::collections::BTreeMap;
use std::time::Duration;

use athanor_chassis::{TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::block::{BlockEntry, BlockId};

/// The number of a shard, never used twice.
pub type ShardId = u32;

/// The oldest name under which a block may register (E15).
pub const REGISTER_WITHIN: Duration = Duration::from_secs(24 * 3600);
/// How long a condemned name is remembered: longer than it could register (E15).
pub const REMEMBER: Duration = Duration::from_secs(48 * 3600);
/// Slots, at most: a shard's number says its slot and its epoch in 32 bits.
pub const MAX_SLOTS: u32 = 1 << 12;
const SLOT_BITS: u32 = 16;

/// One shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardEntry {
    /// Its number.
    pub id: ShardId,
    /// The slot that it serves.
    pub slot: u32,
    /// Which of the slot's successive shards it is (E12).
    pub epoch: u32,
    /// The last index of its log that lies in a registered block.
    pub watermark: u64,
}

/// All facts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    revision: u64,
    shards: BTreeMap<ShardId, ShardEntry>,
    blocks: BTreeMap<BlockId, BlockEntry>,
    /// Names that never register, and when they were condemned.
    condemned: BTreeMap<BlockId, Timestamp>,
    #[serde(default)]
    scars: Vec<Scar>,
}

/// What damage left: told with every answer until it is forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scar {
    /// When it was found.
    pub since: Timestamp,
    /// What it is.
    pub wound: Wound,
}

/// What damage took, or made doubtful.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wound {
    /// Entries of a shard's log after one index and up to another lie in blocks that nobody knows.
    Gap {
        /// The shard.
        shard: ShardId,
        /// The index before the first.
        from: u64,
        /// The last.
        to: u64,
    },
    /// A shard has lost the ids of its records up to an entry: what was repeated since may count again.
    Ids {
        /// The shard.
        shard: ShardId,
        /// The entry.
        to: u64,
    },
    /// Nobody knows what the node's log held from one position to another.
    Unknown {
        /// The first position.
        from: u64,
        /// Behind the last.
        to: u64,
    },
}

/// A change. Times are the proposer's: applying reads no clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Opens the first shards of so many slots, all at once; changes nothing where there are shards.
    OpenSlots {
        /// How many.
        count: u32,
    },
    /// Opens the first shard of a slot, or finds the one that is open.
    OpenShard {
        /// The slot.
        slot: u32,
    },
    /// Makes a block exist.
    Register {
        /// The block.
        block: BlockEntry,
        /// When this was proposed.
        at: Timestamp,
    },
    /// A shard's log says that everything up to an index lies in registered blocks: what is not known of that is a gap.
    Raise {
        /// The shard.
        shard: ShardId,
        /// The index.
        to: u64,
        /// When this was proposed.
        at: Timestamp,
    },
    /// Makes a block exist again whose registration was lost: one that lies in a gap.
    Recall {
        /// The block.
        block: BlockEntry,
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
    /// Remembers what damage did. Doing it again changes nothing.
    Mark {
        /// What.
        wound: Wound,
        /// When this was proposed.
        at: Timestamp,
    },
    /// Forgets damage that was found before a moment.
    Heal {
        /// The moment.
        before: Timestamp,
    },
    /// Makes blocks cease to exist, and their names unusable.
    Condemn {
        /// The blocks.
        blocks: Vec<BlockId>,
        /// When this was proposed.
        at: Timestamp,
    },
    /// Forgets names that were condemned long ago.
    Forget {
        /// When this was proposed.
        at: Timestamp,
    },
}

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The open shard of the slot.
    Shard(ShardEntry),
    /// The block is registered; this is its shard's watermark.
    Registered(u64),
    /// Nothing was changed.
    Refused(Refused),
    /// How many things were changed.
    Changed(usize),
}

/// Why a block was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Its range does not begin where the shard's blocks end.
    #[error("block {block} begins after {from}, the watermark of shard {shard} is {watermark}")]
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
    /// Its name was condemned: the range must be written under a new one.
    #[error("block {0} is condemned: its range must be written under a new name")]
    Condemned(BlockId),
    /// Its name is too old to tell whether it was condemned.
    #[error("block {0} was named more than a day ago: its range must be written under a new name")]
    TooOld(BlockId),
    /// There is no such shard in this epoch.
    #[error("there is no shard {shard} of epoch {epoch}")]
    NoShard {
        /// The shard.
        shard: ShardId,
        /// The epoch.
        epoch: u32,
    },
    /// Its range is in no gap.
    #[error("block {0} lies in no gap of its shard's blocks")]
    NoGap(BlockId),
    /// Its range is empty or runs backwards.
    #[error("block {block} ends at {to}, where it begins or before")]
    Empty {
        /// The block.
        block: BlockId,
        /// Its end.
        to: u64,
    },
}

/// Blocks and watermarks at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Grows with every change.
    pub revision: u64,
    /// Blocks with rows of the tenant in the range.
    pub blocks: Vec<BlockEntry>,
    /// Acknowledged entries that blocks lack, perhaps of this tenant and time, perhaps of others.
    pub lost: u64,
    /// All shards that are open.
    pub shards: Vec<ShardEntry>,
    /// What damage left.
    pub scars: Vec<Scar>,
}

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

impl State {
    /// Applies one command.
    pub fn apply(&mut self, command: Command) -> Answer {
        let answer = match command {
            Command::OpenSlots { count } if self.shards.is_empty() => {
                for slot in 0..count.clamp(1, MAX_SLOTS) {
                    self.open(slot);
                }
                Answer::Changed(self.shards.len())
            }
            Command::OpenSlots { .. } => Answer::Changed(0),
            Command::OpenShard { slot } => Answer::Shard(self.open(slot)),
            Command::Register { block, at } => match self.register(block, at) {
                Ok(watermark) => Answer::Registered(watermark),
                Err(refused) => Answer::Refused(refused),
            },
            Command::Recall { block } => match self.recall(block) {
                Ok(watermark) => Answer::Registered(watermark),
                Err(refused) => Answer::Refused(refused),
            },
            Command::Raise { shard, to, at } => Answer::Changed(self.raise(shard, to, at)),
            Command::Close { shard, from, to } => Answer::Changed(usize::from(self.close(shard, from, to))),
            Command::Mark { wound, at } => Answer::Changed(usize::from(self.mark(wound, at))),
            Command::Heal { before } => {
                let scars = self.scars.len();
                self.scars.retain(|scar| scar.since >= before);
                Answer::Changed(scars - self.scars.len())
            }
            Command::Condemn { blocks, at } => {
                let before = self.condemned.len();
                for block in blocks {
                    self.blocks.remove(&block);
                    self.condemned.entry(block).or_insert(at);
                }
                Answer::Changed(self.condemned.len() - before)
            }
            Command::Forget { at } => {
                let before = self.condemned.len();
                self.condemned.retain(|_, condemned| at.since(*condemned) < REMEMBER);
                Answer::Changed(before - self.condemned.len())
            }
        };
        if !matches!(answer, Answer::Refused(_)) {
            self.revision += 1;
        }
        answer
    }

    fn open(&mut self, slot: u32) -> ShardEntry {
        if let Some(shard) = self.shards.values().find(|shard| shard.slot == slot) {
            return shard.clone();
        }
        let (id, epoch) = (shard_id(slot, 1), 1);
        let shard = ShardEntry { id, slot, epoch, watermark: 0 };
        self.shards.insert(id, shard.clone());
        shard
    }

    /// The shard of a block, unless the block may not exist.
    fn shard_of(&mut self, block: &BlockEntry) -> Result<&mut ShardEntry, Refused> {
        if self.condemned.contains_key(&block.id) {
            return Err(Refused::Condemned(block.id));
        }
        let no_shard = Refused::NoShard { shard: block.shard, epoch: block.epoch };
        let shard = self.shards.get_mut(&block.shard).filter(|shard| shard.epoch == block.epoch);
        shard.ok_or(no_shard)
    }

    fn register(&mut self, block: BlockEntry, at: Timestamp) -> Result<u64, Refused> {
        let id = block.id;
        let known = self.blocks.contains_key(&id);
        let shard = self.shard_of(&block)?;
        if known {
            return Ok(shard.watermark);
        }
        if at.since(id.named_at()) > REGISTER_WITHIN {
            return Err(Refused::TooOld(id));
        }
        if block.to <= block.from {
            return Err(Refused::Empty { block: id, to: block.to });
        }
        if block.from != shard.watermark {
            let (shard, watermark) = (block.shard, shard.watermark);
            return Err(Refused::Watermark { block: id, shard, from: block.from, watermark });
        }
        shard.watermark = block.to;
        let watermark = shard.watermark;
        self.blocks.insert(id, block);
        Ok(watermark)
    }

    /// What the shard's log calls registered lies below the watermark, known or not: so that no new block claims it.
    fn raise(&mut self, id: ShardId, to: u64, at: Timestamp) -> usize {
        let Some(shard) = self.shards.get_mut(&id).filter(|shard| shard.watermark < to) else { return 0 };
        let wound = Wound::Gap { shard: id, from: shard.watermark, to };
        shard.watermark = to;
        self.scars.push(Scar { since: at, wound });
        1
    }

    fn recall(&mut self, block: BlockEntry) -> Result<u64, Refused> {
        let (id, from, to) = (block.id, block.from, block.to);
        let known = self.blocks.contains_key(&id);
        let watermark = self.shard_of(&block)?.watermark;
        if known {
            return Ok(watermark);
        }
        if to <= from {
            return Err(Refused::Empty { block: id, to });
        }
        if !self.close(block.shard, from, to) {
            return Err(Refused::NoGap(id));
        }
        self.blocks.insert(id, block);
        Ok(watermark)
    }

    fn mark(&mut self, wound: Wound, at: Timestamp) -> bool {
        let covers = |known: &Wound| match (known, &wound) {
            (Wound::Ids { shard, to }, Wound::Ids { shard: of, to: upto }) => shard == of && to >= upto,
            (known, wound) => known == wound,
        };
        if self.scars.iter().any(|scar| covers(&scar.wound)) {
            return false;
        }
        // Of each shard one, or what is damaged more and more would be told more and more.
        if let Wound::Ids { shard: of, .. } = wound {
            self.scars.retain(|scar| !matches!(scar.wound, Wound::Ids { shard, .. } if shard == of));
        }
        self.scars.push(Scar { since: at, wound });
        true
    }

    /// Takes a range out of the gap that has all of it; false if none has.
    fn close(&mut self, of: ShardId, from: u64, to: u64) -> bool {
        let has = |scar: &Scar| matches!(scar.wound, Wound::Gap { shard, from: begin, to: end } if shard == of && begin <= from && from < to && to <= end);
        let Some(place) = self.scars.iter().position(has) else { return false };
        let Scar { since, wound } = self.scars.remove(place);
        let Wound::Gap { shard, from: begin, to: end } = wound else { return false };
        let rests = [(begin, from), (to, end)].into_iter().filter(|(from, to)| from < to);
        self.scars.extend(rests.map(|(from, to)| Scar { since, wound: Wound::Gap { shard, from, to } }));
        true
    }

    /// What a tenant has in a range of time, both ends included.
    pub fn listing(&self, tenant: &TenantId, from: i64, to: i64) -> Listing {
        let blocks = self.blocks.values().filter(|block| block.span(tenant, from, to).is_some());
        let hurt = self.blocks.values().filter(|block| block.lost > 0);
        Listing {
            revision: self.revision,
            blocks: blocks.cloned().collect(),
            lost: hurt.map(|block| block.lost).sum(),
            shards: self.shards.values().cloned().collect(),
            scars: self.scars.clone(),
        }
    }

    /// All blocks, by name.
    pub fn blocks(&self) -> impl Iterator<Item = &BlockEntry> {
        self.blocks.values()
    }

    /// Names that never register, and when they were condemned.
    pub fn condemned(&self) -> impl Iterator<Item = (BlockId, Timestamp)> {
        self.condemned.iter().map(|(&block, &at)| (block, at))
    }

    /// As bytes, for a snapshot.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("all keys are texts")
    }

    /// From the bytes of a snapshot.
    pub fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

impl Command {
    /// As bytes, for a log.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("all keys are texts")
    }

    /// From the bytes of a log.
    pub fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

#[cfg(test)]
mod tests;
