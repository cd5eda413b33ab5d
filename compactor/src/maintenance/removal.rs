//! Removal of the objects of tombstoned blocks.
//!
//! The catalog records each removal, so a new worker repeats none, and a block that cannot be removed keeps
//! only its own tombstone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{BlockId, Catalog, CatalogCommand, CatalogError, TOMBSTONE_RETENTION, Tombstone};
use athanor_chassis::{ErrorCode, Status, Timestamp};
use athanor_storage::Store;
use athanor_storage::path::{BlockOwner, FileName};
use futures::StreamExt;

use crate::job::objects::{block_key, block_owner, object_names};

/// Time that objects stay after their block got a tombstone, for queries planned before [INV-18]. The
/// catalog's time runs at most at twice the normal speed. So at least half of this period passes in real
/// time, and a plan lives at most 15 minutes.
pub const DELETION_GRACE_PERIOD: Duration = Duration::from_secs(40 * 60);
/// Maximum number of blocks with objects to delete in one round.
const MAX_BLOCKS_PER_ROUND: usize = 1_000;
/// Maximum number of blocks with concurrent deletions. Each block takes ten sequential bucket calls.
const MAX_CONCURRENT_DELETIONS: usize = 16;

/// Remover of the objects of tombstoned blocks.
pub struct ObjectRemover {
    catalog: Arc<dyn Catalog>,
    store: Store,
    id_window: Duration,
    /// Blocks that could not be removed. Others are tried before them.
    failed: BTreeSet<BlockId>,
}

/// Facts that decide which objects may be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovalFacts {
    /// Time of the catalog.
    pub now: Timestamp,
    /// Catalog time of the newest snapshot in the bucket. Objects are removed only after a snapshot has their
    /// tombstone: a rebuild that misses inputs of a job takes the job for finished.
    pub snapshot_time: Timestamp,
    /// Expired blocks that an operator can restore.
    pub restorable: BTreeSet<BlockId>,
}

/// Result of one round.
#[derive(Debug, Default)]
pub struct RemovalRound {
    /// Number of blocks whose objects were removed.
    pub removed: u64,
    /// Last failure. It did not keep other blocks from removal.
    pub failure: Option<Status>,
}

impl ObjectRemover {
    /// Creates a remover. The objects of a flushed block stay for `id_window` after its id was generated, because
    /// the successor of a lost shard reads their ids [INV-13].
    pub fn new(catalog: Arc<dyn Catalog>, store: Store, id_window: Duration) -> Self {
        Self { catalog, store, id_window, failed: BTreeSet::new() }
    }

    /// Removes the objects of blocks with the oldest tombstones, records that in the catalog, and lets the
    /// catalog drop tombstones that are past their retention.
    pub async fn run_round(&mut self, facts: &RemovalFacts) -> Result<RemovalRound, Status> {
        let tombstones = self.catalog.tombstones().await.map_err(|error| Status::from_error(&error))?;
        let due = self.due_blocks(&tombstones, facts);
        let mut round = RemovalRound::default();
        let removed = self.remove_blocks(due, &mut round).await;
        round.removed = removed.len() as u64;
        let is_forgettable = |(block, tombstone): &(BlockId, Tombstone)| {
            let is_removed = tombstone.is_removed || removed.contains(block);
            is_removed && facts.now.since(tombstone.since) >= TOMBSTONE_RETENTION
        };
        let has_forgettable = tombstones.iter().any(is_forgettable);
        if !removed.is_empty() {
            let blocks = removed.into_iter().collect();
            self.propose(CatalogCommand::RecordRemovedObjects { blocks }).await?;
        }
        if has_forgettable {
            self.propose(CatalogCommand::ExpireTombstones).await?;
        }
        Ok(round)
    }

    /// Returns the blocks whose objects may be removed now, the oldest tombstones first.
    fn due_blocks(
        &mut self,
        tombstones: &[(BlockId, Tombstone)],
        facts: &RemovalFacts,
    ) -> Vec<(BlockId, BlockOwner)> {
        let is_due = |(block, tombstone): &&(BlockId, Tombstone)| {
            let is_in_id_window =
                tombstone.flushed.is_some() && facts.now.since(block.named_at()) < self.id_window;
            !tombstone.is_removed
                && !is_in_id_window
                && !facts.restorable.contains(block)
                && facts.now.since(tombstone.since) >= DELETION_GRACE_PERIOD
                && tombstone.since < facts.snapshot_time
        };
        let mut due: Vec<&(BlockId, Tombstone)> = tombstones.iter().filter(is_due).collect();
        let ids: BTreeSet<BlockId> = due.iter().map(|(block, _)| *block).collect();
        self.failed.retain(|block| ids.contains(block));
        due.sort_unstable_by_key(|(block, tombstone)| (self.failed.contains(block), tombstone.since, *block));
        due.truncate(MAX_BLOCKS_PER_ROUND);
        due.into_iter().map(|(block, tombstone)| (*block, block_owner(tombstone.tenant.as_ref()))).collect()
    }

    /// Removes the objects of blocks concurrently. Returns the blocks without objects.
    async fn remove_blocks(
        &mut self,
        due: Vec<(BlockId, BlockOwner)>,
        round: &mut RemovalRound,
    ) -> BTreeSet<BlockId> {
        let store = &self.store;
        let removing = due
            .into_iter()
            .map(|(block, owner)| async move { (block, remove_objects(store, block, owner).await) });
        let mut removing = futures::stream::iter(removing).buffer_unordered(MAX_CONCURRENT_DELETIONS);
        let mut removed = BTreeSet::new();
        let mut failed = BTreeSet::new();
        while let Some((block, done)) = removing.next().await {
            match done {
                Ok(()) => {
                    removed.insert(block);
                }
                Err(status) => {
                    failed.insert(block);
                    round.failure = Some(status);
                }
            }
        }
        drop(removing);
        self.failed.retain(|block| !removed.contains(block));
        self.failed.extend(failed);
        removed
    }

    async fn propose(&self, command: CatalogCommand) -> Result<(), Status> {
        let proposed: Result<(), CatalogError> = self.catalog.apply_command(command).await;
        proposed.map_err(|error| Status::from_error(&error))
    }
}

/// Removes all objects of a block. `meta.json`, which marks the folder as a block, is removed first.
async fn remove_objects(store: &Store, block: BlockId, owner: BlockOwner) -> Result<(), Status> {
    for file in object_names() {
        let file =
            FileName::new(file).map_err(|error| Status::new(ErrorCode::Internal, error.to_string()))?;
        let key = block_key(owner.clone(), block, file);
        store.delete(&key).await.map_err(|error| Status::from_error(&error))?;
    }
    Ok(())
}
