//! Slot tables: proposal, fences, publication and removal [INV-05].
//!
//! A table is proposed for a profile time that no shard can have accepted yet. Each serving shard logs its
//! fence, and only then is the table published. So no shard accepts a profile by the older table that is
//! looked up by the newer one. A version is never proposed a second time, because shards may have logged the
//! fence of a withdrawn table. A fence is void if its version is neither proposed nor published.

use std::collections::BTreeSet;
use std::time::Duration;

use athanor_chassis::Timestamp;
use athanor_cluster::placement::{MAX_TABLES, SlotTable, SlotTables};
use serde::{Deserialize, Serialize};

use crate::state::{
    CatalogState, CommandError, CommandOutcome, LimitedResource, PhaseTransition, ShardId, ShardPhase,
};

/// Largest assumed difference between the clocks of two nodes [INV-05].
pub const MAX_CLOCK_SKEW: Duration = Duration::from_secs(15 * 60);

/// Proposed table that is not published yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PendingTable {
    /// The proposed slot table.
    pub table: SlotTable,
    /// Shards that have not logged its fence.
    pub unfenced: BTreeSet<ShardId>,
    /// Time of the proposal.
    pub proposed_at: Timestamp,
}

impl CatalogState {
    /// Returns the version of the newest table, zero if there is none.
    pub(in crate::state) fn newest_table_version(&self) -> u64 {
        self.tables.as_ref().map_or(0, |tables| tables.table_at(i64::MAX).version())
    }

    /// Returns the newest table version that an opening shard must have fenced.
    pub(in crate::state) fn newest_fence_version(&self) -> u64 {
        self.pending.as_ref().map_or_else(|| self.newest_table_version(), |pending| pending.table.version())
    }

    /// Extends the first table to all slots, while it is the only one. These include slots of shards that the
    /// catalog lost and that were reported later.
    pub(in crate::state) fn extend_first_table(&mut self) {
        if self.newest_table_version() > 1 {
            return;
        }
        let slots: BTreeSet<u32> = self.shards.values().map(|shard| shard.slot).collect();
        if let Ok(table) = SlotTable::with_all_slots(1, i64::MIN, slots.into_iter().collect()) {
            self.tables = Some(table.into());
            self.newest_proposed = self.newest_proposed.max(1);
        }
    }

    pub(in crate::state) fn propose_table(
        &mut self,
        table: SlotTable,
    ) -> Result<CommandOutcome, CommandError> {
        let Some(tables) = &self.tables else { return Err(CommandError::NoSlots) };
        let is_this = |known: &SlotTable| *known == table;
        if self.pending.as_ref().is_some_and(|pending| is_this(&pending.table))
            || iter_tables(tables).any(is_this)
        {
            return Ok(CommandOutcome::from_count(0));
        }
        self.check_table(&table, tables)?;
        let unfenced =
            self.shards.values().filter(|shard| shard.needs_fences()).map(|shard| shard.id).collect();
        self.newest_proposed = table.version();
        self.pending = Some(PendingTable { table, unfenced, proposed_at: self.now });
        Ok(CommandOutcome::from_count(1))
    }

    fn check_table(&self, table: &SlotTable, tables: &SlotTables) -> Result<(), CommandError> {
        if let Some(pending) = &self.pending {
            return Err(CommandError::TablePending { version: pending.table.version() });
        }
        let is_lost = |phase: &ShardPhase| matches!(phase, ShardPhase::Lost { .. });
        if let Some(lost) = self.shards.values().find(|shard| is_lost(&shard.phase)) {
            return Err(CommandError::ShardLost { shard: lost.id });
        }
        let version = table.version();
        let expected = self.newest_proposed.saturating_add(1);
        if version != expected {
            return Err(CommandError::TableVersionMismatch { seen: version, expected });
        }
        let ahead = self.now.plus(self.settings.max_future()).plus(MAX_CLOCK_SKEW);
        let earliest = ahead.nanos().max(tables.table_at(i64::MAX).from().saturating_add(1));
        if table.from() < earliest {
            return Err(CommandError::TableTooEarly { version, from: table.from(), earliest });
        }
        let is_served = |slot: u32| self.newest_shard(slot).is_some_and(|shard| !shard.is_retired());
        if let Some(&slot) = table.slots().iter().find(|slot| !is_served(**slot)) {
            return Err(CommandError::SlotWithoutShard { version, slot });
        }
        match iter_tables(tables).count() < MAX_TABLES {
            true => Ok(()),
            false => Err(CommandError::LimitReached { resource: LimitedResource::Tables, limit: MAX_TABLES }),
        }
    }

    pub(in crate::state) fn record_fence(
        &mut self,
        id: ShardId,
        version: u64,
    ) -> Result<CommandOutcome, CommandError> {
        let pending = self.pending.as_ref().map(|pending| pending.table.version());
        let shard = self.shard_mut(id)?;
        if version <= shard.fenced {
            return Ok(CommandOutcome::from_count(0));
        }
        if pending != Some(version) {
            return Err(CommandError::TableNotPending { version, pending });
        }
        if !shard.needs_fences() {
            return Err(shard.wrong_phase(PhaseTransition::LogFence));
        }
        shard.fenced = version;
        self.drop_needed_fence(id);
        Ok(CommandOutcome::from_count(1))
    }

    pub(in crate::state) fn drop_needed_fence(&mut self, id: ShardId) {
        if let Some(pending) = &mut self.pending {
            pending.unfenced.remove(&id);
        }
    }

    /// Handles the seal of a shard without the fence of the proposed table. If the shard holds profiles of
    /// the table's time, their duplicates would be routed elsewhere. So the table is withdrawn.
    pub(in crate::state) fn withdraw_unfenced_table(&mut self, id: ShardId, latest: i64) {
        let Some(pending) = &mut self.pending else { return };
        if pending.unfenced.remove(&id) && latest >= pending.table.from() {
            self.pending = None;
        }
    }

    pub(in crate::state) fn reject_fence(
        &mut self,
        id: ShardId,
        version: u64,
        latest: i64,
    ) -> Result<CommandOutcome, CommandError> {
        let pending = self.pending_table(version)?;
        if !pending.unfenced.contains(&id) || latest < pending.table.from() {
            return Ok(CommandOutcome::from_count(0));
        }
        self.pending = None;
        Ok(CommandOutcome::from_count(1))
    }

    pub(in crate::state) fn withdraw_table(&mut self, version: u64) -> Result<CommandOutcome, CommandError> {
        self.pending_table(version)?;
        self.pending = None;
        Ok(CommandOutcome::from_count(1))
    }

    pub(in crate::state) fn publish_table(&mut self, version: u64) -> Result<CommandOutcome, CommandError> {
        let Some(tables) = &self.tables else { return Err(CommandError::NoSlots) };
        if iter_tables(tables).any(|table| table.version() == version) {
            return Ok(CommandOutcome::from_count(0));
        }
        let pending = self.pending_table(version)?;
        if let Some(&first) = pending.unfenced.first() {
            return Err(CommandError::FencesMissing { version, missing: pending.unfenced.len(), first });
        }
        let all: Vec<SlotTable> = iter_tables(tables).chain([&pending.table]).cloned().collect();
        let full = CommandError::LimitReached { resource: LimitedResource::Tables, limit: MAX_TABLES };
        self.tables = Some(SlotTables::try_from(all).map_err(|_| full)?);
        self.pending = None;
        Ok(CommandOutcome::from_count(1))
    }

    fn pending_table(&self, version: u64) -> Result<&PendingTable, CommandError> {
        let pending = self.pending.as_ref().map(|pending| pending.table.version());
        let this = self.pending.as_ref().filter(|_| pending == Some(version));
        this.ok_or(CommandError::TableNotPending { version, pending })
    }

    pub(in crate::state) fn expire_tables(&mut self, before: i64) -> Result<CommandOutcome, CommandError> {
        let Some(tables) = &self.tables else { return Err(CommandError::NoSlots) };
        let oldest = self.settings.oldest_accepted;
        let latest = (!oldest.is_zero()).then(|| self.now.minus(oldest).minus(MAX_CLOCK_SKEW).nanos());
        if latest.is_none_or(|latest| before > latest) {
            return Err(CommandError::TableStillNeeded { latest });
        }
        let all: Vec<SlotTable> = iter_tables(tables).cloned().collect();
        let past = all.iter().skip(1).take_while(|next| next.from() < before).count();
        if past > 0 {
            self.tables = SlotTables::try_from(all[past..].to_vec()).ok();
        }
        Ok(CommandOutcome::from_count(past))
    }
}

/// Iterates over all tables, oldest first.
pub(in crate::state) fn iter_tables(tables: &SlotTables) -> impl Iterator<Item = &SlotTable> {
    tables.tables_between(i64::MIN, i64::MAX).iter().map(|table| &**table)
}
