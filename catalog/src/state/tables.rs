//! Tables: how a new one comes into force, and an old one goes [INV-05].
//!
//! A new table is proposed for a time of profiles that no shard can have taken yet. Each shard that takes records logs
//! its fence, and only then is it published: so no shard takes by the older table what is looked for by the newer one.
//! A version is never proposed twice: shards may have logged the fence of a table that was given up, and whoever sees
//! that a version is neither proposed nor published knows that its fence holds no more.

use std::collections::BTreeSet;
use std::time::Duration;

use athanor_chassis::Timestamp;
use athanor_cluster::placement::{MAX_TABLES, Table, Tables};
use serde::{Deserialize, Serialize};

use super::{Bounded, Outcome, Phase, Refused, ShardId, State, Step};

/// What clocks of nodes may differ by [INV-05].
pub const CLOCKS: Duration = Duration::from_secs(15 * 60);

/// A table that is proposed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pending {
    /// The table.
    pub table: Table,
    /// The shards that have not logged its fence.
    pub needs: BTreeSet<ShardId>,
    /// When it was proposed.
    pub proposed: Timestamp,
}

impl State {
    /// The newest table's version, zero where there is none.
    pub(super) fn newest_version(&self) -> u64 {
        self.tables.as_ref().map_or(0, |tables| tables.of(i64::MAX).version())
    }

    /// The newest table whose fence a shard must have logged that opens now.
    pub(super) fn newest_fence(&self) -> u64 {
        self.pending.as_ref().map_or_else(|| self.newest_version(), |pending| pending.table.version())
    }

    /// While there is no other table, the first one is of all slots: also of those whose shards the catalogue had lost
    /// and learns of again.
    pub(super) fn first_table_of_all_slots(&mut self) {
        if self.newest_version() > 1 {
            return;
        }
        let slots: BTreeSet<u32> = self.shards.values().map(|shard| shard.slot).collect();
        if let Ok(table) = Table::even(1, i64::MIN, slots.into_iter().collect()) {
            self.tables = Some(table.into());
            self.proposed = self.proposed.max(1);
        }
    }

    pub(super) fn propose_table(&mut self, table: Table) -> Result<Outcome, Refused> {
        let Some(tables) = &self.tables else { return Err(Refused::NoSlots) };
        let is_this = |known: &Table| *known == table;
        if self.pending.as_ref().is_some_and(|pending| is_this(&pending.table))
            || tables_of(tables).any(is_this)
        {
            return Ok(Outcome::counted(0));
        }
        self.check_table(&table, tables)?;
        let needs = self.shards.values().filter(|shard| shard.needs_fences()).map(|shard| shard.id).collect();
        self.proposed = table.version();
        self.pending = Some(Pending { table, needs, proposed: self.now });
        Ok(Outcome::counted(1))
    }

    fn check_table(&self, table: &Table, tables: &Tables) -> Result<(), Refused> {
        if let Some(pending) = &self.pending {
            return Err(Refused::TablePending { version: pending.table.version() });
        }
        let is_lost = |phase: &Phase| matches!(phase, Phase::Lost { .. });
        if let Some(lost) = self.shards.values().find(|shard| is_lost(&shard.phase)) {
            return Err(Refused::ShardLost { shard: lost.id });
        }
        let (version, expected) = (table.version(), self.proposed.saturating_add(1));
        if version != expected {
            return Err(Refused::TableVersion { seen: version, expected });
        }
        let ahead = self.now.plus(self.settings.newest_possible()).plus(CLOCKS);
        let earliest = ahead.nanos().max(tables.of(i64::MAX).from().saturating_add(1));
        if table.from() < earliest {
            return Err(Refused::TableTime { version, from: table.from(), earliest });
        }
        let is_served = |slot: u32| self.newest(slot).is_some_and(|shard| !shard.is_retired());
        if let Some(&slot) = table.slots().iter().find(|slot| !is_served(**slot)) {
            return Err(Refused::TableSlot { version, slot });
        }
        match tables_of(tables).count() < MAX_TABLES {
            true => Ok(()),
            false => Err(Refused::TooMany { what: Bounded::Tables, limit: MAX_TABLES }),
        }
    }

    pub(super) fn fenced(&mut self, id: ShardId, version: u64) -> Result<Outcome, Refused> {
        let pending = self.pending.as_ref().map(|pending| pending.table.version());
        let shard = self.shard_mut(id)?;
        if version <= shard.fenced {
            return Ok(Outcome::counted(0));
        }
        if pending != Some(version) {
            return Err(Refused::NotPending { version, pending });
        }
        if !shard.needs_fences() {
            return Err(shard.refuse(Step::Fence));
        }
        shard.fenced = version;
        self.need_no_fence_of(id);
        Ok(Outcome::counted(1))
    }

    pub(super) fn need_no_fence_of(&mut self, id: ShardId) {
        if let Some(pending) = &mut self.pending {
            pending.needs.remove(&id);
        }
    }

    /// A shard has sealed. Where it did so without the fence of the proposed table and holds profiles of its time, their
    /// repeats would be looked for elsewhere: then the table is given up.
    pub(super) fn sealed_without_fence(&mut self, id: ShardId, latest: i64) {
        let Some(pending) = &mut self.pending else { return };
        if pending.needs.remove(&id) && latest >= pending.table.from() {
            self.pending = None;
        }
    }

    pub(super) fn fence_refused(
        &mut self,
        id: ShardId,
        version: u64,
        latest: i64,
    ) -> Result<Outcome, Refused> {
        let pending = self.pending_of(version)?;
        if !pending.needs.contains(&id) || latest < pending.table.from() {
            return Ok(Outcome::counted(0));
        }
        self.pending = None;
        Ok(Outcome::counted(1))
    }

    pub(super) fn withdraw_table(&mut self, version: u64) -> Result<Outcome, Refused> {
        self.pending_of(version)?;
        self.pending = None;
        Ok(Outcome::counted(1))
    }

    pub(super) fn publish_table(&mut self, version: u64) -> Result<Outcome, Refused> {
        let Some(tables) = &self.tables else { return Err(Refused::NoSlots) };
        if tables_of(tables).any(|table| table.version() == version) {
            return Ok(Outcome::counted(0));
        }
        let pending = self.pending_of(version)?;
        if let Some(&first) = pending.needs.first() {
            return Err(Refused::Fences { version, missing: pending.needs.len(), first });
        }
        let all: Vec<Table> = tables_of(tables).chain([&pending.table]).cloned().collect();
        let full = Refused::TooMany { what: Bounded::Tables, limit: MAX_TABLES };
        self.tables = Some(Tables::try_from(all).map_err(|_| full)?);
        self.pending = None;
        Ok(Outcome::counted(1))
    }

    fn pending_of(&self, version: u64) -> Result<&Pending, Refused> {
        let pending = self.pending.as_ref().map(|pending| pending.table.version());
        let this = self.pending.as_ref().filter(|_| pending == Some(version));
        this.ok_or(Refused::NotPending { version, pending })
    }

    pub(super) fn forget_tables(&mut self, before: i64) -> Result<Outcome, Refused> {
        let Some(tables) = &self.tables else { return Err(Refused::NoSlots) };
        let oldest = self.settings.oldest_accepted;
        let latest = (!oldest.is_zero()).then(|| self.now.minus(oldest).minus(CLOCKS).nanos());
        if latest.is_none_or(|latest| before > latest) {
            return Err(Refused::StillAccepted { latest });
        }
        let all: Vec<Table> = tables_of(tables).cloned().collect();
        let past = all.iter().skip(1).take_while(|next| next.from() < before).count();
        if past > 0 {
            self.tables = Tables::try_from(all[past..].to_vec()).ok();
        }
        Ok(Outcome::counted(past))
    }
}

/// All tables, oldest first.
pub(super) fn tables_of(tables: &Tables) -> impl Iterator<Item = &Table> {
    tables.in_force(i64::MIN, i64::MAX).iter().map(|table| &**table)
}
