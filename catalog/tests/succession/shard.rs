//! One shard: its log, which is durable, and what follows from it.

use std::collections::{BTreeMap, BTreeSet};

use athanor_catalog::{HandoffSource, ShardId, ShardPhase};

/// A record.
pub type Id = u32;

/// What a log says.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A record.
    Row(Id),
    /// Whatever else takes a place in the log: ids of other shards.
    Inherit,
    /// Records that others hold: they are none of this shard any more.
    Drop(BTreeSet<Id>),
    /// The end.
    Seal,
}

/// Whose record it is that a window knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Whose {
    /// It lies in a block, or in this shard's own log.
    Own,
    /// That of a shard whose window was copied.
    Copied(ShardId),
    /// That of a lost shard that has asked for it.
    Settled(ShardId),
}

/// One shard.
#[derive(Clone, Debug)]
pub struct Shard {
    pub log: Vec<Entry>,
    /// Ids of records that are known, and whose the record is.
    pub window: BTreeMap<Id, Whose>,
    /// What it has inherited, once it has all of it.
    pub inherited: Option<HandoffSource>,
    /// Whether a majority of its members is there.
    pub up: bool,
    /// Its phase, as its leader heard last.
    pub seen: ShardPhase,
    /// How far it has come with settling. Forgotten in a crash.
    pub settling: Option<Settling>,
}

/// How far a shard has come with settling.
#[derive(Clone, Debug)]
pub struct Settling {
    pub with: ShardId,
    pub held: BTreeSet<Id>,
    /// Whether it has looked into blocks, too.
    pub looked: bool,
    /// Whether its log says what it dropped.
    pub dropped: bool,
}

impl Shard {
    pub fn new() -> Self {
        let seen = ShardPhase::Opening { source: HandoffSource::None };
        let (log, window) = (Vec::new(), BTreeMap::new());
        Self { log, window, inherited: None, up: true, seen, settling: None }
    }

    pub fn is_sealed(&self) -> bool {
        self.log.contains(&Entry::Seal)
    }

    /// Whether it takes records, by what its leader knows.
    pub fn accepts(&self) -> bool {
        self.up && matches!(self.seen, ShardPhase::Open | ShardPhase::Sealing) && !self.is_sealed()
    }

    /// The records of its log after one index and up to another.
    pub fn rows(&self, from: u64, to: u64) -> BTreeSet<Id> {
        let dropped: BTreeSet<Id> = self.log.iter().flat_map(Entry::dropped).collect();
        let entries = self.log.iter().take(to as usize).skip(from as usize);
        let rows = entries.filter_map(|entry| match entry {
            Entry::Row(id) => Some(*id),
            _ => None,
        });
        rows.filter(|id| !dropped.contains(id)).collect()
    }

    pub fn end(&self) -> u64 {
        self.log.len() as u64
    }

    /// Takes a record, unless it is known.
    pub fn take(&mut self, id: Id) -> bool {
        let is_new = !self.window.contains_key(&id);
        if is_new {
            self.log.push(Entry::Row(id));
            self.window.insert(id, Whose::Own);
        }
        is_new
    }

    /// Takes over the ids of a shard that settles, and says which it held for somebody else.
    pub fn settle(&mut self, of: ShardId, ids: &BTreeSet<Id>, forgets_for_whom: bool) -> BTreeSet<Id> {
        self.log.push(Entry::Inherit);
        let mut held = BTreeSet::new();
        for id in ids {
            match self.window.get(id) {
                // Asked for a second time, since the answer did not arrive.
                Some(Whose::Settled(by)) if *by == of && !forgets_for_whom => {}
                Some(_) => {
                    held.insert(*id);
                }
                None => {
                    self.window.insert(*id, Whose::Settled(of));
                }
            }
        }
        held
    }
}

impl Whose {
    /// As whoever copies the window of a shard knows it.
    pub fn copied(self, of: ShardId) -> Self {
        if self == Self::Own { Self::Copied(of) } else { self }
    }

    /// The other shard that has it.
    pub fn other(self) -> Option<ShardId> {
        match self {
            Self::Own => None,
            Self::Copied(of) | Self::Settled(of) => Some(of),
        }
    }
}

impl Entry {
    fn dropped(&self) -> BTreeSet<Id> {
        match self {
            Self::Drop(ids) => ids.clone(),
            _ => BTreeSet::new(),
        }
    }
}
