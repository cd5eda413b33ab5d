//! Opened blocks of one history. Their files never change, so each block is read once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use athanor_block::{Block, BlockFolder, META_FILE, MemoryFolder, PARQUET_FILES};
use athanor_catalog::{BlockEntry, BlockId, PartId};
use athanor_chassis::TenantId;
use athanor_profile::encoding::hash::ContentHash;
use athanor_storage::Store;
use parking_lot::Mutex;

use super::history::object_key;

/// Ids of the records in a part.
type PartIds = Arc<BTreeSet<ContentHash>>;

/// Cache of opened blocks, and of the record ids in their parts.
#[derive(Default)]
pub struct BlockCache {
    blocks: Mutex<BTreeMap<BlockId, Arc<Block>>>,
    ids: Mutex<BTreeMap<PartId, PartIds>>,
}

impl BlockCache {
    /// Returns an opened block.
    pub async fn open(&self, store: &Store, entry: &BlockEntry) -> Arc<Block> {
        if let Some(block) = self.blocks.lock().get(&entry.id) {
            return Arc::clone(block);
        }
        let folder = MemoryFolder::default();
        for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
            let key = object_key(entry.folder_tenant(), entry.id, file);
            let bytes = store.get(&key).await.unwrap();
            std::io::Write::write_all(&mut folder.create(file).unwrap(), &bytes).unwrap();
        }
        let block = Arc::new(Block::open(Arc::new(folder)).unwrap());
        self.blocks.lock().insert(entry.id, Arc::clone(&block));
        block
    }

    /// Returns the ids of a tenant's records in a block.
    pub async fn part_ids(&self, store: &Store, entry: &BlockEntry, tenant: &TenantId) -> PartIds {
        let key = PartId { block: entry.id, tenant: tenant.clone() };
        if let Some(ids) = self.ids.lock().get(&key) {
            return Arc::clone(ids);
        }
        let block = self.open(store, entry).await;
        let rows = block.tenant_block(tenant.as_str()).unwrap().read_all_profiles().unwrap();
        let ids: PartIds = Arc::new(rows.into_iter().map(|row| row.id).collect());
        self.ids.lock().insert(key, Arc::clone(&ids));
        ids
    }
}
