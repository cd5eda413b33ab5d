//! Fetcher of block bytes: reads the disk cache first, then the bucket.

use std::ops::Range;
use std::sync::Arc;

use athanor_block::{BlockError, META_FILE};
use athanor_catalog::BlockId;
use athanor_chassis::{ComputePool, CpuActivity, ErrorCode, Status};
use athanor_storage::Store;
use athanor_storage::path::{BlockOwner, FileName, ObjectKey};
use bytes::Bytes;

use crate::disk_cache::{DiskCache, DiskCacheKey};

/// Maximum length of a range that is cached on disk. Longer ranges are rows that a query scans.
const MAX_CACHED_RANGE_BYTES: u64 = 4 << 20;

/// Source of the files of one block.
pub struct BlockFetcher<'o> {
    /// Object store that holds the block.
    pub store: &'o Store,
    /// Id of the block.
    pub block: BlockId,
    /// Owner of the folder that holds the block.
    pub folder_owner: BlockOwner,
    /// Disk cache that may hold ranges of the block.
    pub shelf: Option<&'o Arc<DiskCache>>,
    /// Compute pool that runs disk reads.
    pub compute: &'o ComputePool,
}

impl BlockFetcher<'_> {
    /// Fetches `meta.json` of the block.
    pub async fn fetch_meta(&self) -> Result<Bytes, Status> {
        let kept = self.meta_key();
        if let Some(bytes) = self.read_cached(&kept).await {
            return Ok(bytes);
        }
        let bytes =
            self.store.get(&self.object_key(META_FILE)?).await.map_err(|error| Status::from_error(&error))?;
        self.cache_bytes(kept, &bytes);
        Ok(bytes)
    }

    /// Returns the disk cache key of `meta.json`.
    pub fn meta_key(&self) -> DiskCacheKey {
        DiskCacheKey::for_range(self.block, META_FILE, &(0..u64::MAX))
    }

    /// Removes possibly damaged ranges from the disk cache.
    pub async fn invalidate(&self, keys: Vec<DiskCacheKey>) {
        let Some(shelf) = self.shelf.map(Arc::clone) else { return };
        let job = move || shelf.invalidate(&keys);
        let _ = self.compute.run_as(CpuActivity::Query, job).await;
    }

    /// Fetches a range of a file. `length` is the length of the whole file.
    pub async fn fetch_range(&self, file: &str, range: Range<u64>, length: u64) -> Result<Bytes, Status> {
        let expected = range.end - range.start;
        let may_be_kept = expected <= MAX_CACHED_RANGE_BYTES;
        let kept = DiskCacheKey::for_range(self.block, file, &range);
        if may_be_kept
            && let Some(bytes) = self.read_cached(&kept).await.filter(|bytes| bytes.len() as u64 == expected)
        {
            return Ok(bytes);
        }
        let key = self.object_key(file)?;
        let bytes = match range == (0..length) {
            true => self.store.get(&key).await,
            false => self.store.get_range(&key, range).await,
        };
        let bytes = bytes.map_err(|error| Status::from_error(&error))?;
        let seen = bytes.len() as u64;
        if seen != expected {
            return Err(Status::from_error(&BlockError::Length { file: file.into(), seen, expected }));
        }
        if may_be_kept {
            self.cache_bytes(kept, &bytes);
        }
        Ok(bytes)
    }

    async fn read_cached(&self, key: &DiskCacheKey) -> Option<Bytes> {
        let shelf = self.shelf?;
        let place = shelf.find(key)?;
        let shelf = Arc::clone(shelf);
        let key = key.clone();
        self.compute.run_as(CpuActivity::Query, move || shelf.read(&key, place)).await.ok().flatten()
    }

    /// Queues bytes for the disk cache. The write happens later and may fail.
    fn cache_bytes(&self, key: DiskCacheKey, bytes: &Bytes) {
        if let Some(shelf) = self.shelf {
            shelf.enqueue(key, bytes.clone());
        }
    }

    fn object_key(&self, file: &str) -> Result<ObjectKey, Status> {
        let file =
            FileName::new(file).map_err(|error| Status::new(ErrorCode::Internal, error.to_string()))?;
        Ok(ObjectKey::Block { owner: self.folder_owner.clone(), block: self.block.number(), file })
    }
}
