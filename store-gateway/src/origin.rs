//! Where bytes of blocks come from: the disk, where they were kept, else the bucket.

use std::ops::Range;
use std::sync::Arc;

use athanor_block::{BlockError, META};
use athanor_catalog::BlockId;
use athanor_chassis::{Activity, Code, Compute, Status};
use athanor_storage::Store;
use athanor_storage::path::{FileName, Key, Owner};
use bytes::Bytes;

use crate::shelf::{Shelf, ShelfKey};

/// Longer ranges are rows that a question scans, and not kept on disk.
const MOST_KEPT: u64 = 4 << 20;

/// Where the files of a block are fetched from.
pub struct Origin<'o> {
    /// The bucket.
    pub store: &'o Store,
    /// The block.
    pub block: BlockId,
    /// What of it may be on disk.
    pub shelf: Option<&'o Arc<Shelf>>,
    /// Threads for that.
    pub compute: &'o Compute,
}

impl Origin<'_> {
    /// What the block says of itself.
    pub async fn meta(&self) -> Result<Bytes, Status> {
        let kept = self.meta_key();
        if let Some(bytes) = self.kept(&kept).await {
            return Ok(bytes);
        }
        let bytes = self.store.get(&self.key(META)?).await.map_err(|error| Status::of(&error))?;
        self.keep(kept, &bytes);
        Ok(bytes)
    }

    /// Where that is on disk.
    pub fn meta_key(&self) -> ShelfKey {
        ShelfKey::range(self.block, META, &(0..u64::MAX))
    }

    /// Removes from disk what may be damaged.
    pub async fn doubt(&self, keys: Vec<ShelfKey>) {
        let Some(shelf) = self.shelf.map(Arc::clone) else { return };
        let job = move || shelf.doubt(&keys);
        let _ = self.compute.run_as(Activity::Query, job).await;
    }

    /// Bytes of a file of that length.
    pub async fn bytes(&self, file: &str, range: Range<u64>, length: u64) -> Result<Bytes, Status> {
        let expected = range.end - range.start;
        let may_be_kept = expected <= MOST_KEPT;
        let kept = ShelfKey::range(self.block, file, &range);
        if may_be_kept
            && let Some(bytes) = self.kept(&kept).await.filter(|bytes| bytes.len() as u64 == expected)
        {
            return Ok(bytes);
        }
        let key = self.key(file)?;
        let bytes = match range == (0..length) {
            true => self.store.get(&key).await,
            false => self.store.get_range(&key, range).await,
        };
        let bytes = bytes.map_err(|error| Status::of(&error))?;
        let seen = bytes.len() as u64;
        if seen != expected {
            return Err(Status::of(&BlockError::Length { file: file.into(), seen, expected }));
        }
        if may_be_kept {
            self.keep(kept, &bytes);
        }
        Ok(bytes)
    }

    async fn kept(&self, key: &ShelfKey) -> Option<Bytes> {
        let shelf = self.shelf?;
        let place = shelf.find(key)?;
        let (shelf, key) = (Arc::clone(shelf), key.clone());
        self.compute.run_as(Activity::Query, move || shelf.read(&key, place)).await.ok().flatten()
    }

    /// Later, and whether that succeeds or not.
    fn keep(&self, key: ShelfKey, bytes: &Bytes) {
        if let Some(shelf) = self.shelf {
            shelf.offer(key, bytes.clone());
        }
    }

    fn key(&self, file: &str) -> Result<Key, Status> {
        let file = FileName::new(file).map_err(|error| Status::new(Code::Internal, error.to_string()))?;
        Ok(Key::Block { owner: Owner::Shared, block: self.block.number(), file })
    }
}
