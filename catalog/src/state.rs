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
}

/// A change. Times are the proposer's: applying reads no clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
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
}

impl State {
    /// Applies one command.
    pub fn apply(&mut self, command: Command) -> Answer {
        let answer = match command {
            Command::OpenShard { slot } => Answer::Shard(self.open(slot)),
            Command::Register { block, at } => match self.register(block, at) {
                Ok(watermark) => Answer::Registered(watermark),
                Err(refused) => Answer::Refused(refused),
            },
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
        // 0 is the group of the catalogue itself.
        let id = self.shards.last_key_value().map_or(1, |(id, _)| id + 1);
        let shard = ShardEntry { id, slot, epoch: 1, watermark: 0 };
        self.shards.insert(id, shard.clone());
        shard
    }

    fn register(&mut self, block: BlockEntry, at: Timestamp) -> Result<u64, Refused> {
        let id = block.id;
        if self.condemned.contains_key(&id) {
            return Err(Refused::Condemned(id));
        }
        let no_shard = Refused::NoShard { shard: block.shard, epoch: block.epoch };
        let shard =
            self.shards.get_mut(&block.shard).filter(|shard| shard.epoch == block.epoch).ok_or(no_shard)?;
        if self.blocks.contains_key(&id) {
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

    /// What a tenant has in a range of time, both ends included.
    pub fn listing(&self, tenant: &TenantId, from: i64, to: i64) -> Listing {
        let blocks = self.blocks.values().filter(|block| block.span(tenant, from, to).is_some());
        let hurt = self.blocks.values().filter(|block| block.lost > 0);
        Listing {
            revision: self.revision,
            blocks: blocks.cloned().collect(),
            lost: hurt.map(|block| block.lost).sum(),
            shards: self.shards.values().cloned().collect(),
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(number: u128, from: u64, to: u64) -> BlockEntry {
        let span = crate::TenantSpan { tenant: TenantId::anonymous(), min_time: 5, max_time: 9, profiles: 1 };
        let id = BlockId::from_number(number);
        BlockEntry { id, shard: 1, epoch: 1, from, to, bytes: 1, samples: 1, lost: 0, tenants: vec![span] }
    }

    fn opened() -> State {
        let mut state = State::default();
        state.apply(Command::OpenShard { slot: 0 });
        state
    }

    fn register(state: &mut State, block: BlockEntry) -> Answer {
        state.apply(Command::Register { block, at: Timestamp::EPOCH })
    }

    #[test]
    fn a_range_registers_once_and_only_from_the_watermark_on() {
        let mut state = opened();
        assert_eq!(register(&mut state, block(1, 0, 10)), Answer::Registered(10));
        assert_eq!(register(&mut state, block(1, 0, 10)), Answer::Registered(10), "again changes nothing");
        let refused = Refused::Watermark { block: BlockId::from_number(2), shard: 1, from: 0, watermark: 10 };
        assert_eq!(register(&mut state, block(2, 0, 10)), Answer::Refused(refused));
        assert_eq!(register(&mut state, block(2, 10, 11)), Answer::Registered(11));
        assert_eq!(state.blocks().count(), 2);
    }

    #[test]
    fn a_condemned_name_never_registers() {
        let mut state = opened();
        let condemn = |state: &mut State| {
            state.apply(Command::Condemn { blocks: vec![BlockId::from_number(7)], at: Timestamp::EPOCH })
        };
        assert_eq!(condemn(&mut state), Answer::Changed(1));
        let refused = Answer::Refused(Refused::Condemned(BlockId::from_number(7)));
        assert_eq!(register(&mut state, block(7, 0, 10)), refused);
        state.apply(Command::Forget { at: Timestamp::EPOCH.plus(REMEMBER - Duration::from_secs(1)) });
        assert_eq!(register(&mut state, block(7, 0, 10)), refused, "two days are not over");
        assert_eq!(state.apply(Command::Forget { at: Timestamp::EPOCH.plus(REMEMBER) }), Answer::Changed(1));
        let late = Command::Register { block: block(7, 0, 10), at: Timestamp::EPOCH.plus(REMEMBER) };
        assert_eq!(state.apply(late), Answer::Refused(Refused::TooOld(BlockId::from_number(7))));
    }

    #[test]
    fn a_listing_holds_what_overlaps() {
        let mut state = opened();
        register(&mut state, block(1, 0, 10));
        let count = |from, to| state.listing(&TenantId::anonymous(), from, to).blocks.len();
        assert_eq!((count(0, 4), count(0, 5), count(9, 20), count(10, 20)), (0, 1, 1, 0));
        assert!(state.listing(&"other".parse().unwrap(), 0, 20).blocks.is_empty());
        assert_eq!(state.listing(&TenantId::anonymous(), 0, 0).shards[0].watermark, 10);
    }

    #[test]
    fn what_a_block_lacks_is_told_to_everybody_while_it_lives() {
        let mut state = opened();
        register(&mut state, BlockEntry { lost: 3, ..block(1, 0, 10) });
        register(&mut state, block(2, 10, 20));
        let other: TenantId = "other".parse().unwrap();
        let lost = |from, to| state.listing(&other, from, to).lost;
        assert_eq!((lost(0, 4), lost(10, 20)), (3, 3));
        let at = Timestamp::EPOCH;
        state.apply(Command::Condemn { blocks: vec![BlockId::from_number(1)], at });
        assert_eq!(state.listing(&other, 0, 20).lost, 0);
    }

    #[test]
    fn a_slot_has_one_open_shard() {
        let mut state = opened();
        let Answer::Shard(again) = state.apply(Command::OpenShard { slot: 0 }) else { panic!("a shard") };
        let Answer::Shard(other) = state.apply(Command::OpenShard { slot: 5 }) else { panic!("a shard") };
        assert_eq!((again.id, other.id, other.slot), (1, 2, 5));
    }

    proptest! {
        #[test]
        fn blocks_of_a_shard_are_a_chain(tries in prop::collection::vec((0u128..6, 0u64..5, 0u64..5, any::<bool>()), 0..40)) {
            let mut state = opened();
            for (number, from, to, condemn) in tries {
                let command = if condemn {
                    Command::Condemn { blocks: vec![BlockId::from_number(number)], at: Timestamp::EPOCH }
                } else {
                    Command::Register { block: block(number, from, to), at: Timestamp::EPOCH }
                };
                state.apply(Command::decode(&command.encode()).unwrap());
                let mut ranges: Vec<_> = state.blocks().map(|block| (block.from, block.to)).collect();
                ranges.sort_unstable();
                prop_assert!(ranges.iter().all(|(from, to)| from < to));
                prop_assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
                let shard = &state.listing(&TenantId::anonymous(), 0, 0).shards[0];
                prop_assert!(ranges.iter().all(|range| range.1 <= shard.watermark));
                prop_assert!(state.blocks().all(|block| !state.condemned().any(|(id, _)| id == block.id)));
                prop_assert_eq!(&State::decode(&state.encode()).unwrap(), &state);
            }
        }
    }
}
