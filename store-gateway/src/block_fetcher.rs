//! Where bytes of blocks come from: the disk, where they were kept, else the bucket.

use std::ops::Range;
use std::sync::Arc;

use athanor_block::{BlockError, META_FILE};
use athanor_catalog::BlockId;
use athanor_chassis::{ComputePool, CpuActivity, ErrorCode, Status};
use athanor_storage::Store;
use athanor_storage::path::{BlockOwner, FileName, ObjectKey};
use bytes::Bytes;

use crate::disk_cache::{DiskCache, DiskCacheKey};

/// Longer ranges are rows that a question scans, and not kept on disk.
const MAX_CACHED_RANGE_BYTES: u64 = 4 << 20;

/// Where the files of a block are fetched from.
pub struct BlockFetcher<'o> {
    /// The bucket.
    pub store: &'o Store,
    /// The block.
    pub block: BlockId,
    /// What of it may be on disk.
    pub shelf: Option<&'o Arc<DiskCache>>,
    /// Threads for that.
    pub compute: &'o ComputePool,
}

impl BlockFetcher<'_> {
    /// What the block says of itself.
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

    /// Where that is on disk.
    pub fn meta_key(&self) -> DiskCacheKey {
        DiskCacheKey::for_range(self.block, META_FILE, &(0..u64::MAX))
    }

    /// Removes from disk what may be damaged.
    pub async fn invalidate(&self, keys: Vec<DiskCacheKey>) {
        let Some(shelf) = self.shelf.map(Arc::clone) else { return };
        let job = move || shelf.invalidate(&keys);
        let _ = self.compute.run_as(CpuActivity::Query, job).await;
    }

    /// Bytes of a file of that length.
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

    /// Later, and whether that succeeds or not.
    fn cache_bytes(&self, key: DiskCacheKey, bytes: &Bytes) {
        if let Some(shelf) = self.shelf {
            shelf.enqueue(key, bytes.clone());
        }
    }

    fn object_key(&self, file: &str) -> Result<ObjectKey, Status> {
        let file =
            FileName::new(file).map_err(|error| Status::new(ErrorCode::Internal, error.to_string()))?;
        Ok(ObjectKey::Block { owner: BlockOwner::Shared, block: self.block.number(), file })
    }
}
