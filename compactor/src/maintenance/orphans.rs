//! Search of orphans: block folders in the bucket that the catalog neither lists nor has a tombstone for.
//!
//! A flush or a job whose registration failed leaves one, complete or in part. Its id is too old to register
//! once it is more than a day away from the catalog's time [INV-15]. Then the folder gets a tombstone, by which
//! its objects are removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use athanor_catalog::{BlockId, Catalog, MAX_BLOCK_NAME_SKEW, MAX_CLOCK_SKEW};
use athanor_chassis::{Status, TenantId, Timestamp};
use athanor_storage::Store;
use athanor_storage::path::{BlockOwner, KeyPrefix, ObjectKey};

/// Keys per page of a listing.
const KEYS_PER_PAGE: usize = 1_000;
/// Pages that one round reads. A block has ten keys.
const MAX_PAGES_PER_ROUND: usize = 100;
/// Blocks that one request to the catalog names.
const MAX_BLOCKS_PER_REQUEST: usize = 10_000;
/// Blocks that one command tombstones.
const MAX_BLOCKS_PER_COMMAND: usize = 1_000;

/// Finder of orphans. Each round continues where the last one ended, so the whole bucket is visited in turn.
pub struct OrphanFinder {
    catalog: Arc<dyn Catalog>,
    store: Store,
    /// Key after which the next round begins. None for the first key.
    after: Option<String>,
    pages_per_round: usize,
}

/// Result of one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrphanRound {
    /// Number of folders with an id that is too old to register.
    pub visited: u64,
    /// Number of folders that were tombstoned.
    pub tombstoned: u64,
    /// True if the round reached the last key, so that the next one begins at the first.
    pub is_last: bool,
}

/// Folder of a block in the bucket.
type BlockFolderId = (BlockOwner, BlockId);

impl OrphanFinder {
    /// Creates a finder that begins at the first folder.
    pub fn new(catalog: Arc<dyn Catalog>, store: Store) -> Self {
        Self { catalog, store, after: None, pages_per_round: MAX_PAGES_PER_ROUND }
    }

    /// Visits the next folders and tombstones the orphans among them. After a failure the next round visits the
    /// same ones.
    pub async fn run_round(&mut self) -> Result<OrphanRound, Status> {
        let status = self.catalog.compaction_status().await.map_err(|error| Status::from_error(&error))?;
        let oldest = status.time.minus(MAX_BLOCK_NAME_SKEW).minus(MAX_CLOCK_SKEW);
        let mut after = self.after.clone();
        let mut folders = BTreeSet::new();
        let mut is_last = false;
        for _ in 0..self.pages_per_round {
            let page = self.store.list(&KeyPrefix::Blocks, after.as_deref(), KEYS_PER_PAGE).await;
            let page = page.map_err(|error| Status::from_error(&error))?;
            folders.extend(page.iter().filter_map(|object| old_folder(&object.key, oldest)));
            is_last = page.len() < KEYS_PER_PAGE;
            after = page.last().map(|object| object.key.clone());
            if is_last {
                break;
            }
        }
        let visited = folders.len() as u64;
        let tombstoned = self.tombstone_orphans(folders).await?;
        self.after = after.filter(|_| !is_last);
        Ok(OrphanRound { visited, tombstoned, is_last })
    }

    /// Tombstones the folders that the catalog does not know. The catalog is read after the bucket, so no block
    /// is taken for an orphan that registered in between.
    async fn tombstone_orphans(&self, mut folders: BTreeSet<BlockFolderId>) -> Result<u64, Status> {
        if folders.is_empty() {
            return Ok(0);
        }
        let visited: Vec<BlockId> = folders.iter().map(|(_, block)| *block).collect();
        let mut unknown = BTreeSet::new();
        for batch in visited.chunks(MAX_BLOCKS_PER_REQUEST) {
            let found =
                self.catalog.unknown_blocks(batch).await.map_err(|error| Status::from_error(&error))?;
            unknown.extend(found);
        }
        folders.retain(|(_, block)| unknown.contains(block));
        let mut orphans: BTreeMap<BlockOwner, Vec<BlockId>> = BTreeMap::new();
        for (owner, block) in folders {
            orphans.entry(owner).or_default().push(block);
        }
        let mut count = 0;
        for (owner, blocks) in orphans {
            let tenant: Option<TenantId> = match owner {
                BlockOwner::Tenant(tenant) => Some(tenant),
                BlockOwner::Shared => None,
            };
            for batch in blocks.chunks(MAX_BLOCKS_PER_COMMAND) {
                let tombstoned = self.catalog.tombstone_blocks(batch.to_vec(), tenant.clone()).await;
                tombstoned.map_err(|error| Status::from_error(&error))?;
                count += batch.len() as u64;
            }
        }
        if count > 0 {
            tracing::info!(blocks = count, "tombstoned block folders that were never registered");
        }
        Ok(count)
    }
}

/// Returns the block folder of a key if its id is older than a time.
fn old_folder(key: &str, oldest: Timestamp) -> Option<BlockFolderId> {
    let Ok(ObjectKey::Block { owner, block, .. }) = ObjectKey::parse(key) else { return None };
    let block = BlockId::from_number(block);
    (block.named_at() < oldest).then_some((owner, block))
}
