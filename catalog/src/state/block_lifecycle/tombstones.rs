//! Tombstones: ids that never register, and blocks whose objects have to be removed [INV-15].

use std::collections::BTreeSet;
use std::time::Duration;

use athanor_chassis::{TenantId, Tier, Timestamp};
use serde::{Deserialize, Serialize};

use crate::block::{BlockEntry, BlockId, ShardLogRange};
use crate::state::{CatalogState, CommandOutcome};

/// Lifetime of a tombstone: longer than its id could register [INV-15]. Retired shards live as long.
pub const TOMBSTONE_RETENTION: Duration = Duration::from_secs(48 * 3600);

/// Record of a block that never registers from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tombstone {
    /// Time of its creation.
    pub since: Timestamp,
    /// Tenant whose folder holds the block's objects. Absent for the shared folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// Log range of a flushed block that was listed. Its objects stay while the successor of a lost shard
    /// reads their ids [INV-13].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flushed: Option<ShardLogRange>,
    /// True if the objects are removed from the bucket.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_removed: bool,
}

impl Tombstone {
    /// Creates the tombstone of a listed block.
    pub(in crate::state) fn from_entry(block: &BlockEntry, since: Timestamp) -> Self {
        let flushed = block.log_ranges().next().filter(|_| block.level == 0);
        Self { since, tenant: block.folder_tenant().cloned(), flushed, is_removed: false }
    }

    /// Returns the entry of a flushed block whose objects are still in the bucket. It has no tenants.
    pub fn flushed_entry(&self, id: BlockId) -> Option<BlockEntry> {
        let ShardLogRange { shard, epoch, from, to } = self.flushed.filter(|_| !self.is_removed)?;
        Some(BlockEntry {
            id,
            shard,
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
            tenants: Vec::new(),
        })
    }
}

impl CatalogState {
    /// Returns the tombstones by id.
    pub fn tombstones(&self) -> impl Iterator<Item = (BlockId, &Tombstone)> {
        self.tombstones.iter().map(|(block, tombstone)| (*block, tombstone))
    }

    /// Removes a block from the listing and tombstones it. Claims on its parts end without a failure.
    pub(in crate::state) fn unlist_block(&mut self, id: &BlockId) -> Option<BlockEntry> {
        let block = self.blocks.remove(id)?;
        self.compaction.forget_block(id);
        self.insert_tombstone(&block);
        Some(block)
    }

    /// Removes parts of a listed block, and returns an entry with them. Claims on them end without a failure. If
    /// no part is left, tombstones the block. Its lost entries are then in the returned entry.
    pub(in crate::state) fn unlist_parts(
        &mut self,
        id: &BlockId,
        tenants: &BTreeSet<&TenantId>,
    ) -> Option<BlockEntry> {
        if self.blocks.get(id)?.tenants.len() == tenants.len() {
            return self.unlist_block(id);
        }
        self.compaction.forget_parts(id, tenants);
        self.blocks.remove_parts(id, tenants)
    }

    /// Tombstones a block that was listed, or was found in the bucket.
    pub(in crate::state) fn insert_tombstone(&mut self, block: &BlockEntry) {
        let now = self.now;
        self.tombstones.insert_if_absent(block.id, || Tombstone::from_entry(block, now));
    }

    /// Deletes blocks. `tenant` owns the folder of those that are not listed.
    pub(in crate::state) fn tombstone_blocks(
        &mut self,
        blocks: &[BlockId],
        tenant: Option<&TenantId>,
    ) -> CommandOutcome {
        let before = self.tombstones.len();
        let since = self.now;
        for id in blocks {
            self.unlist_block(id);
            let unlisted = || Tombstone { since, tenant: tenant.cloned(), flushed: None, is_removed: false };
            self.tombstones.insert_if_absent(*id, unlisted);
        }
        CommandOutcome::from_count(self.tombstones.len() - before)
    }

    /// Records that the objects of tombstoned blocks are removed. Ids without a tombstone, and blocks that can
    /// be restored, are skipped.
    pub(in crate::state) fn record_removed_objects(&mut self, blocks: &[BlockId]) -> CommandOutcome {
        let mut count = 0;
        for id in blocks.iter().filter(|id| !self.retention.is_expired(id)) {
            let Some(tombstone) = self.tombstones.get_mut(id) else { continue };
            count += usize::from(!tombstone.is_removed);
            tombstone.is_removed = true;
        }
        CommandOutcome::from_count(count)
    }

    /// Drops tombstones past their retention whose objects are removed, retired shards, old tokens of finished
    /// jobs, abandoned staged tenants, and nodes without shards.
    pub(in crate::state) fn expire_tombstones(&mut self) -> CommandOutcome {
        let now = self.now;
        let before = self.tombstones.len() + self.shards.len();
        let retention = &self.retention;
        self.tombstones.retain(|block, tombstone| {
            let is_young = now.since(tombstone.since) < TOMBSTONE_RETENTION;
            is_young || !tombstone.is_removed || retention.is_expired(block)
        });
        let data_losses = &self.data_losses;
        self.shards.retain(|id, shard| {
            let is_recorded = || data_losses.iter().any(|record| record.loss.shard() == Some(*id));
            !shard.is_retired() || now.since(shard.since) < TOMBSTONE_RETENTION || is_recorded()
        });
        let shards = &self.shards;
        self.nodes.retain(|node, _| shards.values().any(|shard| shard.members.contains(node)));
        let dropped = self.drop_abandoned_stages() + self.drop_old_finished_tokens();
        CommandOutcome::from_count(before - self.tombstones.len() - self.shards.len() + dropped)
    }
}
