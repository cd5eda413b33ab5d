//! Listing of the blocks in the bucket.

use std::collections::{BTreeMap, VecDeque};

use athanor_block::{BlockMeta, BlockOrigin, MAX_META_BYTES, META_FILE, PARQUET_FILES};
use athanor_catalog::BlockId;
use athanor_chassis::{ErrorCode, ErrorCodeExt, Status};
use athanor_storage::path::{BlockOwner, FileName, KeyPrefix, ObjectKey};
use athanor_storage::{ObjectInfo, Store};

/// Keys per page of a listing.
const MAX_KEYS_PER_PAGE: usize = 1000;

/// Iterator over the blocks of a bucket: those in the shared folder and those in the folders of tenants.
pub struct BlockLister<'s> {
    store: &'s Store,
    page: VecDeque<ObjectInfo>,
    last: Option<String>,
    ended: bool,
}

/// The objects of one block.
pub struct ListedBlock {
    /// Owner of the folder that holds the block.
    pub owner: BlockOwner,
    /// Id of the block.
    pub block: BlockId,
    files: BTreeMap<&'static str, u64>,
}

impl<'s> BlockLister<'s> {
    /// Creates a lister that starts at the first block.
    pub fn new(store: &'s Store) -> Self {
        Self { store, page: VecDeque::new(), last: None, ended: false }
    }

    /// Returns the next block, or `None` after the last.
    pub async fn next(&mut self) -> Result<Option<ListedBlock>, Status> {
        let mut found: Option<ListedBlock> = None;
        loop {
            if self.page.is_empty() && !self.ended {
                self.turn().await?;
            }
            let Some(entry) = self.page.front() else { return Ok(found) };
            if let Ok(ObjectKey::Block { owner, block, .. }) = ObjectKey::parse(&entry.key) {
                let block = BlockId::from_number(block);
                if found.as_ref().is_some_and(|found| found.block != block || found.owner != owner) {
                    return Ok(found);
                }
                let found = found.get_or_insert(ListedBlock { owner, block, files: BTreeMap::new() });
                let file = PARQUET_FILES
                    .into_iter()
                    .chain([META_FILE])
                    .find(|file| entry.key.ends_with(&format!("/{file}")));
                found.files.extend(file.map(|file| (file, entry.size)));
            }
            self.page.pop_front();
        }
    }

    async fn turn(&mut self) -> Result<(), Status> {
        let page = self.store.list(&KeyPrefix::Blocks, self.last.as_deref(), MAX_KEYS_PER_PAGE).await;
        let page = page.map_err(|error| Status::from_error(&error))?;
        self.ended = page.len() < MAX_KEYS_PER_PAGE;
        self.last = page.last().map(|entry| entry.key.clone()).or(self.last.take());
        self.page = page.into();
        Ok(())
    }
}

impl ListedBlock {
    /// Returns whether the block is complete: `meta.json` is written last and deleted first.
    pub fn has_meta(&self) -> bool {
        self.files.contains_key(META_FILE)
    }

    /// Reads the metadata and the origin of the block. Returns `None` if the block is incomplete or has no
    /// origin.
    pub async fn meta(&self, store: &Store) -> Result<Option<(BlockMeta, BlockOrigin)>, Status> {
        if self.files.get(META_FILE).is_none_or(|&size| size > MAX_META_BYTES) {
            return Ok(None);
        }
        let file =
            FileName::new(META_FILE).map_err(|error| Status::new(ErrorCode::Internal, error.to_string()))?;
        let key = ObjectKey::Block { owner: self.owner.clone(), block: self.block.number(), file };
        let bytes = match store.get(&key).await {
            Ok(bytes) => bytes,
            // The object was deleted after the listing.
            Err(error) if error.code() == ErrorCode::NotFound => return Ok(None),
            Err(error) => return Err(Status::from_error(&error)),
        };
        let meta = match BlockMeta::decode(&bytes) {
            Ok(meta) => meta,
            Err(error) => {
                tracing::warn!(block = %self.block, %error, "failed to decode the metadata of a block in the bucket, skipping the block");
                return Ok(None);
            }
        };
        let whole = meta.files.iter().all(|(name, file)| self.files.get(name.as_str()) == Some(&file.bytes));
        let origin = meta.origin.clone().filter(|_| whole && meta.id == self.block.to_string());
        Ok(origin.map(|origin| (meta, origin)))
    }
}
