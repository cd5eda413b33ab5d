//! What happens to the shards of one slot.

use std::collections::{BTreeMap, BTreeSet};

use athanor_catalog::{
    BlockEntry, BlockId, CatalogCommand, CatalogState, CommandError, CommandResult, HandoffSource,
    ReplicaPlacement, ShardEntry, ShardId, ShardPhase, shard_id,
};
use athanor_chassis::{Random, Tier, Timestamp};

use crate::bug::Bug;
use crate::shard::{Entry, Id, Settling, Shard, Whose};

const IDS: u64 = 8;
const SHARDS: u32 = 6;

/// One slot, and all that there is of it.
pub struct World {
    random: Random,
    bug: Option<Bug>,
    catalogue: CatalogState,
    shards: BTreeMap<ShardId, Shard>,
    /// Up to where the rows of shards lie in blocks, and whose.
    registered: BTreeMap<ShardId, u64>,
    blocks: Vec<(ShardId, BTreeSet<Id>)>,
    acknowledged: BTreeSet<Id>,
    /// Records that a person gave up.
    given_up: BTreeSet<Id>,
    /// Records so old that nobody may send them any more.
    expired: BTreeSet<Id>,
    /// Shards that sealed and must settle anew.
    unsettled: BTreeSet<ShardId>,
    names: u128,
    nodes: u64,
    seen: BTreeMap<&'static str, usize>,
}

impl World {
    pub fn new(seed: u64, bug: Option<Bug>) -> Self {
        let mut world = Self {
            random: Random::from_seed(seed),
            bug,
            catalogue: CatalogState::default(),
            shards: BTreeMap::new(),
            registered: BTreeMap::new(),
            blocks: Vec::new(),
            acknowledged: BTreeSet::new(),
            given_up: BTreeSet::new(),
            expired: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            names: 0,
            nodes: 0,
            seen: BTreeMap::new(),
        };
        let ReplicaPlacement { members, zones } = world.placement();
        world.propose(CatalogCommand::OpenSlots { count: 1, members: vec![members], zones });
        world.watch(shard_id(0, 1));
        world
    }

    pub fn seen(self) -> BTreeMap<&'static str, usize> {
        self.seen
    }

    pub fn epochs(&self) -> usize {
        self.shards.len()
    }

    /// One event, drawn.
    pub fn step(&mut self) {
        let ids: Vec<ShardId> = self.shards.keys().copied().collect();
        let id = ids[self.random.next_below(ids.len() as u64) as usize];
        match self.random.next_below(64) {
            0..=11 => self.upload(id),
            12..=17 => self.watch(id),
            18..=20 => self.shard(id).crash(),
            21..=26 => self.come_back(id),
            27..=28 => self.stop(id),
            29..=30 => self.lose(id),
            31..=36 => self.inherit(id),
            37..=39 => self.open(id),
            40..=43 => self.seal(id),
            44..=46 => self.register(id, None),
            47..=56 => self.settle(id),
            57 => self.retire(id),
            58 => self.abandon(id),
            59..=60 => self.expire(),
            _ => self.forget(id),
        }
    }

    /// Everybody comes back, sees what there is and does what has to be done.
    pub fn rest(&mut self) -> Result<(), String> {
        for _ in 0..30 {
            for id in self.shards.keys().copied().collect::<Vec<_>>() {
                self.come_back(id);
                self.watch(id);
                self.inherit(id);
                self.open(id);
                self.seal(id);
                self.settle(id);
                let end = self.shard(id).end();
                self.register(id, Some(end));
                self.retire(id);
                self.check()?;
            }
        }
        for id in self.acknowledged.difference(&self.given_up) {
            let places = self.places(*id, false);
            if places.len() != 1 {
                return Err(format!("record {id} is in {places:?}"));
            }
        }
        let unfinished =
            self.entries().into_iter().find(|entry| !entry.is_retired() && entry.phase != ShardPhase::Open);
        if let Some(entry) = unfinished {
            return Err(format!("shard {} stays {}", entry.id, entry.phase));
        }
        Ok(())
    }

    /// Each record is told at most once, and what was acknowledged is kept.
    pub fn check(&self) -> Result<(), String> {
        for id in &self.acknowledged {
            let (told, kept) = (self.places(*id, false), self.places(*id, true));
            if told.len() > 1 {
                return Err(format!("record {id} is told from {told:?}"));
            }
            if kept.is_empty() && !self.given_up.contains(id) {
                return Err(format!("record {id} is nowhere"));
            }
        }
        Ok(())
    }

    /// Where a record lies: in blocks and in logs that are told, or in those of lost shards, too.
    fn places(&self, id: Id, also_lost: bool) -> Vec<String> {
        let blocks = self.blocks.iter().filter(|(_, ids)| ids.contains(&id));
        let blocks = blocks.map(|(shard, _)| format!("a block of shard {shard}"));
        let tells = |entry: &ShardEntry| {
            !entry.is_retired() && (also_lost || !matches!(entry.phase, ShardPhase::Lost { .. }))
        };
        let logs = self.entries().into_iter().filter(tells).filter(|entry| {
            let shard = &self.shards[&entry.id];
            shard.rows(self.registered(entry.id), shard.end()).contains(&id)
        });
        blocks.chain(logs.map(|entry| format!("the log of shard {}, {}", entry.id, entry.phase))).collect()
    }

    fn entries(&self) -> Vec<ShardEntry> {
        self.catalogue.routing_view().shards
    }

    fn phase(&self, id: ShardId) -> ShardPhase {
        let entry = self.entries().into_iter().find(|entry| entry.id == id);
        entry.map(|entry| entry.phase).expect("time stands still, so nothing is forgotten")
    }

    fn registered(&self, id: ShardId) -> u64 {
        self.registered.get(&id).copied().unwrap_or_default()
    }

    fn shard(&mut self, id: ShardId) -> &mut Shard {
        self.shards.get_mut(&id).expect("a shard of this slot")
    }

    fn note(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn placement(&mut self) -> ReplicaPlacement {
        self.nodes += 1;
        ReplicaPlacement { members: [self.nodes].into(), zones: [(self.nodes, String::new())].into() }
    }

    fn propose(&mut self, command: CatalogCommand) -> CommandResult {
        let answer = self.catalogue.apply(Timestamp::UNIX_EPOCH, command);
        for entry in self.entries() {
            self.shards.entry(entry.id).or_insert_with(Shard::new);
        }
        answer
    }

    /// A client sends something, perhaps again, to a shard that it thinks serves.
    fn upload(&mut self, to: ShardId) {
        let id = self.random.next_below(IDS) as Id;
        if self.expired.contains(&id) || !self.shard(to).accepts() {
            return;
        }
        if !self.shard(to).take(id) {
            self.note("repeat");
        }
        self.acknowledged.insert(id);
    }

    fn watch(&mut self, id: ShardId) {
        if self.bug == Some(Bug::UnsettledShardRegisters) && self.unsettled.contains(&id) {
            return;
        }
        let phase = self.phase(id);
        let shard = self.shard(id);
        if shard.up && shard.seen != phase {
            shard.seen = phase;
            shard.settling = None;
        }
    }

    /// Whoever was away so long that it may have been lost asks for its phase before it accepts.
    fn come_back(&mut self, id: ShardId) {
        self.shard(id).up = true;
        let was_lost =
            !matches!(self.phase(id), ShardPhase::Open | ShardPhase::Sealing | ShardPhase::Opening { .. });
        if was_lost && self.bug != Some(Bug::AbandonedShardAccepts) && self.bug != Some(Bug::SealNotInTheLog)
        {
            self.watch(id);
        }
    }

    fn stop(&mut self, id: ShardId) {
        if self.shards.len() < SHARDS as usize {
            self.propose(CatalogCommand::RequestSeal { shard: id });
            let placement = self.placement();
            self.propose(CatalogCommand::CreateSuccessor { shard: id, placement });
        }
    }

    fn lose(&mut self, id: ShardId) {
        let phase = self.phase(id);
        let copied = self.shards.keys().any(|other| matches!(self.phase(*other), ShardPhase::Opening { source: HandoffSource::DedupWindow { predecessor, .. } } if predecessor == id));
        let sealed: Vec<ShardId> = self
            .shards
            .keys()
            .copied()
            .filter(|other| matches!(self.phase(*other), ShardPhase::Sealed { .. }))
            .collect();
        if self.shards.len() >= SHARDS as usize && !copied {
            return;
        }
        let placement = self.placement();
        if self.propose(CatalogCommand::MarkLost { shard: id, placement }) != CommandResult::Changed(1) {
            return;
        }
        self.note("lost");
        if copied {
            self.note("lost while copied");
        }
        if matches!(phase, ShardPhase::Sealed { .. }) {
            self.note("lost when sealed");
        }
        for other in sealed {
            if other != id && matches!(self.phase(other), ShardPhase::Lost { .. }) {
                self.note("unsettled");
                self.unsettled.insert(other);
            }
        }
    }

    /// A successor copies what it must, as far as that is there.
    fn inherit(&mut self, id: ShardId) {
        let ShardPhase::Opening { source } = self.phase(id) else { return };
        if !self.shard(id).up || self.shard(id).inherited == Some(source) {
            return;
        }
        let copied: BTreeMap<Id, Whose> = match source {
            HandoffSource::None => BTreeMap::new(),
            HandoffSource::DedupWindow { predecessor, up_to } => {
                let before = &self.shards[&predecessor];
                if !before.up || up_to.is_some_and(|up_to| before.end() < up_to) {
                    return;
                }
                before.window.iter().map(|(id, whose)| (*id, whose.copied(predecessor))).collect()
            }
            HandoffSource::RegisteredBlocks { .. } => {
                if self.bug != Some(Bug::KeepsACopyOfTheLost) {
                    self.shard(id).window.clear();
                }
                self.blocks.iter().flat_map(|(_, ids)| ids).map(|id| (*id, Whose::Own)).collect()
            }
        };
        let without = self.bug == Some(Bug::SuccessorWithoutTheWindow);
        let shard = self.shard(id);
        shard.log.push(Entry::Inherit);
        if !without {
            shard.window.extend(copied);
        }
        shard.inherited = Some(source);
    }

    fn open(&mut self, id: ShardId) {
        let shard = self.shard(id);
        let Some(inherited) = shard.inherited.filter(|_| shard.up) else { return };
        let opened = self.propose(CatalogCommand::Opened { shard: id, inherited, fenced: 1 });
        if opened == CommandResult::Changed(1) {
            self.shard(id).seen = ShardPhase::Open;
        }
    }

    fn seal(&mut self, id: ShardId) {
        let shard = self.shard(id);
        if !shard.up || shard.seen != ShardPhase::Sealing {
            return;
        }
        if self.bug != Some(Bug::SealNotInTheLog) && !self.shard(id).is_sealed() {
            self.shard(id).log.push(Entry::Seal);
        }
        let last_index = self.shard(id).end();
        if self.propose(CatalogCommand::Sealed { shard: id, last_index, latest: 0 })
            == CommandResult::Changed(1)
            && self.bug != Some(Bug::SealNotInTheLog)
        {
            self.watch(id);
        }
    }

    /// A leader cuts; it may be one that does not know what became of its shard.
    fn register(&mut self, id: ShardId, upto: Option<u64>) {
        let (from, end) = (self.registered(id), self.shard(id).end());
        let drawn = from + self.random.next_below(end.saturating_sub(from) + 1);
        let to = upto.unwrap_or(drawn);
        if to <= from || !self.shard(id).up {
            return;
        }
        self.names += 1;
        let (name, epoch) = (
            BlockId::from_number(self.names),
            self.entries().iter().find(|entry| entry.id == id).map_or(0, |entry| entry.epoch),
        );
        let tenants = Vec::new();
        let block = BlockEntry {
            id: name,
            shard: id,
            epoch,
            from,
            to,
            bytes: 0,
            samples: 0,
            lost: 0,
            level: 0,
            additional_ranges: Vec::new(),
            tier: Tier::Raw,
            is_covered: false,
            job: None,
            tenants,
        };
        let ids = self.shard(id).rows(from, to);
        let registered = match self.propose(CatalogCommand::RegisterBlock { block }) {
            CommandResult::Registered(_) => true,
            CommandResult::Refused(CommandError::WrongPhase { phase: ShardPhase::Lost { .. }, .. }) => {
                match self.bug {
                    Some(Bug::LostShardRegisters) => !self.unsettled.contains(&id),
                    Some(Bug::UnsettledShardRegisters) => self.unsettled.contains(&id),
                    _ => false,
                }
            }
            _ => false,
        };
        if registered {
            self.registered.insert(id, to);
            self.blocks.push((id, ids));
        }
    }

    /// One step on the way of a lost shard back.
    fn settle(&mut self, id: ShardId) {
        let shard = self.shard(id);
        let ShardPhase::Lost { watermark } = shard.seen else { return };
        if !shard.up {
            return;
        }
        if !shard.is_sealed() {
            shard.log.push(Entry::Seal);
            return;
        }
        let (end, settling) = (shard.end(), shard.settling.clone());
        match settling {
            _ if self.bug == Some(Bug::SettleSkipped) => {
                let serving = self.catalogue.serving_shard(0).map(|serving| serving.id);
                if let Some(with) = serving {
                    self.propose(CatalogCommand::Reconciled { shard: id, last_index: end, with });
                }
            }
            None => self.ask(id, watermark),
            Some(settling) if !settling.looked => {
                let others = self.blocks.iter().filter(|(shard, _)| *shard != id);
                let in_blocks: BTreeSet<Id> = others.flat_map(|(_, ids)| ids).copied().collect();
                let asks_windows_only = self.bug == Some(Bug::SettleAsksWindowsOnly);
                let shard = self.shard(id);
                let own = shard.rows(watermark, end);
                if let Some(settling) = &mut shard.settling {
                    settling.looked = true;
                    if !asks_windows_only {
                        settling.held.extend(own.intersection(&in_blocks));
                    }
                }
            }
            Some(settling) if !settling.dropped => {
                let something = !settling.held.is_empty();
                self.note(if something {
                    "settled with something held"
                } else {
                    "settled with nothing held"
                });
                let shard = self.shard(id);
                shard.log.push(Entry::Drop(settling.held.clone()));
                shard.settling = Some(Settling { dropped: true, ..settling });
            }
            Some(Settling { with, .. }) => {
                match self.propose(CatalogCommand::Reconciled { shard: id, last_index: end, with }) {
                    CommandResult::Changed(1) => {
                        self.unsettled.remove(&id);
                        self.watch(id);
                    }
                    _ => {
                        self.note("overtaken");
                        self.shard(id).settling = None;
                    }
                }
            }
        }
    }

    /// A lost shard asks who serves the slot which of its records that one holds.
    fn ask(&mut self, id: ShardId, kept: u64) {
        let Some(with) = self.catalogue.serving_shard(0).map(|serving| serving.id) else { return };
        let end = self.shard(id).end();
        let ids = self.shard(id).rows(kept, end);
        if !self.shard(with).accepts() {
            return;
        }
        if self.shard(with).window.values().any(|whose| *whose == Whose::Settled(id)) {
            self.note("settled twice");
        }
        let forgets_for_whom = self.bug == Some(Bug::SettleForgetsForWhom);
        let held = self.shard(with).settle(id, &ids, forgets_for_whom);
        self.shard(id).settling = Some(Settling { with, held, looked: false, dropped: false });
    }

    fn retire(&mut self, id: ShardId) {
        let (from, end) = (self.registered(id), self.shard(id).end());
        let is_empty = self.shard(id).rows(from, end).is_empty();
        let rest_is_empty = is_empty.then_some(from);
        if self.propose(CatalogCommand::RetireShard { shard: id, rest_is_empty }) == CommandResult::Changed(1)
        {
            self.note("retired");
        }
    }

    /// A person gives up what does not come back.
    fn abandon(&mut self, id: ShardId) {
        if self.shard(id).up || self.random.next_below(2) == 0 {
            return;
        }
        let (from, end) = (self.registered(id), self.shard(id).end());
        let rows = self.shard(id).rows(from, end);
        if self.propose(CatalogCommand::AbandonShard { shard: id }) == CommandResult::Changed(1) {
            self.given_up.extend(rows);
            self.note("abandoned");
        }
    }

    fn expire(&mut self) {
        let id = self.random.next_below(IDS) as Id;
        if self.acknowledged.contains(&id) && self.expired.insert(id) {
            self.note("expired");
        }
    }

    /// A window forgets what is too old to be sent again, and lies in a block, whoever has it.
    fn forget(&mut self, id: ShardId) {
        let (from, end) = (self.registered(id), self.shard(id).end());
        let own = self.shard(id).rows(from, end);
        let forgets_all = self.bug == Some(Bug::ForgetsBeforeTheBlock);
        let retired: BTreeSet<ShardId> =
            self.entries().iter().filter(|entry| entry.is_retired()).map(|entry| entry.id).collect();
        let expired = self.expired.clone();
        let window = &mut self.shard(id).window;
        let before = window.len();
        let is_over = |id: &Id, whose: &Whose| {
            let in_blocks = !own.contains(id) && whose.other().is_none_or(|other| retired.contains(&other));
            expired.contains(id) && (in_blocks || forgets_all)
        };
        window.retain(|id, whose| !is_over(id, whose));
        if window.len() < before {
            self.note("forgotten");
        }
    }
}

impl Shard {
    fn crash(&mut self) {
        self.up = false;
        self.settling = None;
    }
}
