//! Blocks: which exist, which never will, and what damage took [INV-14, INV-15].

use std::time::Duration;

use athanor_chassis::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Answer, Bounded, Outcome, Phase, Refused, ShardEntry, ShardId, State, Step};
use crate::block::{BlockEntry, BlockId, Rows};

/// How far from now the name may be under which a block registers [INV-15].
pub const REGISTER_WITHIN: Duration = Duration::from_secs(24 * 3600);
/// How long a condemned name is remembered: longer than it could register [INV-15]. As long as a retired shard.
pub const REMEMBER: Duration = Duration::from_secs(48 * 3600);
/// The most damages that are remembered.
pub const MAX_SCARS: usize = 10_000;

/// What damage left: told with every answer until it is forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scar {
    /// When it was found.
    pub since: Timestamp,
    /// What it is.
    pub wound: Wound,
}

/// What damage took, or made doubtful.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
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
    /// A person gave up what a shard held after an index.
    Abandoned {
        /// The shard.
        shard: ShardId,
        /// The index: the shard's watermark.
        after: u64,
    },
}

impl Wound {
    fn shard(&self) -> Option<ShardId> {
        match *self {
            Self::Gap { shard, .. } | Self::Ids { shard, .. } | Self::Abandoned { shard, .. } => Some(shard),
            Self::Unknown { .. } => None,
        }
    }
}

/// Whether a block's name is near enough to now to tell whether it was condemned [INV-15].
pub(super) fn is_named_in_time(block: BlockId, now: Timestamp) -> bool {
    let named = block.named_at();
    now.since(named).max(named.since(now)) <= REGISTER_WITHIN
}

impl State {
    /// The shard of a block, unless the block may not exist.
    fn shard_of(&mut self, block: &BlockEntry) -> Result<&mut ShardEntry, Refused> {
        if self.condemned.contains_key(&block.id) {
            return Err(Refused::Condemned(block.id));
        }
        let no_shard = Refused::NoShard { shard: block.shard, epoch: block.epoch };
        let shard = self.shards.get_mut(&block.shard).filter(|shard| shard.epoch == block.epoch);
        shard.ok_or(no_shard)
    }

    pub(super) fn register(&mut self, block: BlockEntry) -> Result<Outcome, Refused> {
        let (id, now) = (block.id, self.now);
        let known = self.blocks.contains_key(&id);
        let shard = self.shard_of(&block)?;
        if known {
            return Ok(Outcome::Known(Answer::Registered(shard.watermark)));
        }
        if !is_named_in_time(id, now) {
            return Err(Refused::NameTime { block: id, now });
        }
        if block.level > 0 || !block.further.is_empty() {
            return Err(Refused::Made(id));
        }
        if block.to <= block.from {
            return Err(Refused::Empty { block: id, to: block.to });
        }
        match shard.phase {
            Phase::Open | Phase::Closing => {}
            Phase::Sealed { at } if block.to <= at => {}
            Phase::Sealed { at } => {
                return Err(Refused::PastSeal { block: id, shard: block.shard, to: block.to, at });
            }
            _ => return Err(shard.refuse(Step::Register)),
        }
        if block.from != shard.watermark {
            let (shard, watermark) = (block.shard, shard.watermark);
            return Err(Refused::Watermark { block: id, shard, from: block.from, watermark });
        }
        shard.watermark = block.to;
        let watermark = shard.watermark;
        self.blocks.insert(id, block);
        Ok(Outcome::Changed(Answer::Registered(watermark)))
    }

    /// What the shard's log calls registered lies below the watermark, known or not: so that no new block claims it.
    pub(super) fn raise(&mut self, id: ShardId, to: u64) -> Result<Outcome, Refused> {
        let shard = self.shard(id)?;
        let from = shard.watermark;
        if to <= from {
            return Ok(Outcome::counted(0));
        }
        match shard.phase {
            Phase::Open | Phase::Closing => {}
            Phase::Sealed { at } if to <= at => {}
            _ => return Err(shard.refuse(Step::Raise)),
        }
        self.has_room_for_scars(1)?;
        self.shard_mut(id)?.watermark = to;
        self.scar(Wound::Gap { shard: id, from, to });
        Ok(Outcome::counted(1))
    }

    pub(super) fn recall(&mut self, block: BlockEntry) -> Result<Outcome, Refused> {
        let id = block.id;
        let known = self.blocks.contains_key(&id);
        let watermark = self.shard_of(&block)?.watermark;
        if known {
            return Ok(Outcome::Known(Answer::Registered(watermark)));
        }
        if let Some(Rows { to, .. }) = block.rows().find(|rows| rows.to <= rows.from) {
            return Err(Refused::Empty { block: id, to });
        }
        // Of blocks that were made of others each has its tenants' rows of a gap: it is closed by the first.
        let is_made = |rows: &Rows| {
            let mut made = self.blocks.values().filter(|other| other.level > 0 && block.level > 0);
            made.any(|other| other.rows().any(|others| others.has(rows)))
        };
        let has_room = |rows: Rows| self.gap_of(&rows).is_some() || is_made(&rows);
        if !block.rows().all(has_room) || self.blocks.values().any(|other| other.conflicts(&block)) {
            return Err(Refused::NoGap(id));
        }
        self.has_room_for_scars(1 + block.further.len())?;
        for Rows { shard, from, to, .. } in block.rows() {
            self.take_from_gap(shard, from, to)?;
        }
        self.blocks.insert(id, block);
        Ok(Outcome::Changed(Answer::Registered(watermark)))
    }

    pub(super) fn close(&mut self, shard: ShardId, from: u64, to: u64) -> Result<Outcome, Refused> {
        Ok(Outcome::counted(usize::from(self.take_from_gap(shard, from, to)?)))
    }

    /// The place of the gap that has all of a range.
    fn gap_of(&self, rows: &Rows) -> Option<usize> {
        let &Rows { shard: of, from, to, .. } = rows;
        let has = |scar: &Scar| matches!(scar.wound, Wound::Gap { shard, from: begin, to: end } if shard == of && begin <= from && from < to && to <= end);
        self.scars.iter().position(has)
    }

    /// Takes a range out of the gap that has all of it; false if none has.
    fn take_from_gap(&mut self, of: ShardId, from: u64, to: u64) -> Result<bool, Refused> {
        let Some(place) = self.gap_of(&Rows { shard: of, epoch: 0, from, to }) else { return Ok(false) };
        let Wound::Gap { shard, from: begin, to: end } = self.scars[place].wound else { return Ok(false) };
        let rests = [(begin, from), (to, end)].into_iter().filter(|(from, to)| from < to);
        let rests: Vec<Wound> = rests.map(|(from, to)| Wound::Gap { shard, from, to }).collect();
        self.has_room_for_scars(rests.len().saturating_sub(1))?;
        let Scar { since, .. } = self.scars.remove(place);
        self.scars.extend(rests.into_iter().map(|wound| Scar { since, wound }));
        Ok(true)
    }

    pub(super) fn mark(&mut self, wound: Wound) -> Result<Outcome, Refused> {
        let covers = |known: &Wound| match (known, &wound) {
            (Wound::Ids { shard, to }, Wound::Ids { shard: of, to: upto }) => shard == of && to >= upto,
            (known, wound) => known == wound,
        };
        if self.scars.iter().any(|scar| covers(&scar.wound)) {
            return Ok(Outcome::counted(0));
        }
        // Of each shard one, or what is damaged more and more would be told more and more.
        if let Wound::Ids { shard: of, .. } = wound {
            self.scars.retain(|scar| !matches!(scar.wound, Wound::Ids { shard, .. } if shard == of));
        }
        self.has_room_for_scars(1)?;
        self.scar(wound);
        Ok(Outcome::counted(1))
    }

    pub(super) fn has_room_for_scars(&self, more: usize) -> Result<(), Refused> {
        match self.scars.len() + more <= MAX_SCARS {
            true => Ok(()),
            false => Err(Refused::TooMany { what: Bounded::Scars, limit: MAX_SCARS }),
        }
    }

    pub(super) fn scar(&mut self, wound: Wound) {
        self.scars.push(Scar { since: self.now, wound });
    }

    pub(super) fn heal(&mut self, before: Timestamp) -> Outcome {
        let scars = self.scars.len();
        self.scars.retain(|scar| scar.since >= before);
        Outcome::counted(scars - self.scars.len())
    }

    pub(super) fn condemn(&mut self, blocks: Vec<BlockId>) -> Outcome {
        let before = self.condemned.len();
        for block in blocks {
            self.blocks.remove(&block);
            self.condemned.entry(block).or_insert(self.now);
        }
        Outcome::counted(self.condemned.len() - before)
    }

    /// Forgets names and shards that were remembered long enough, tenants that were staged in vain, and nodes that no shard names any more.
    pub(super) fn forget(&mut self) -> Outcome {
        let now = self.now;
        let before = self.condemned.len() + self.shards.len();
        let retention = &self.retention;
        self.condemned
            .retain(|block, condemned| now.since(*condemned) < REMEMBER || retention.is_expired(block));
        let scars = &self.scars;
        self.shards.retain(|id, shard| {
            let is_named = || scars.iter().any(|scar| scar.wound.shard() == Some(*id));
            !shard.is_retired() || now.since(shard.since) < REMEMBER || is_named()
        });
        let shards = &self.shards;
        self.nodes.retain(|node, _| shards.values().any(|shard| shard.members.contains(node)));
        let stages = self.drop_abandoned_stages();
        Outcome::counted(before - self.condemned.len() - self.shards.len() + stages)
    }
}
