//! Disk cache of partial results and block pages, below the memory caches. Survives a restart.
//!
//! ```text
//!  file 000000000000002a-8f…: "athcach1" │ length of key │ key │ sum of key and bytes │ bytes
//! ```
//!
//! The file name contains the age and the hash of the key, and the file contains the full key.
//! Every read verifies the checksum. A file with a wrong checksum is removed and counted, and its data is
//! recomputed.
//! Nothing is synced: the checksum detects files that a crash left incomplete.
//! The oldest files are evicted for new ones and when other uses of the disk need space.
//! If the disk is full or fails, nothing is cached. No query fails for it or waits for a write.
//! Pending entries wait in memory for [`DiskCache::run_maintenance`]. Entries beyond that memory limit are
//! dropped.

mod index;

use std::sync::Arc;

use athanor_catalog::BlockId;
use athanor_chassis::disk::DiskError;
use athanor_chassis::{ByteSize, ComputePool, CpuActivity, Disk, TenantId};
use athanor_profile::encoding::hash::{self, ContentHash};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::stats::{CacheCounters, CacheStats, EventCounter};
use index::{DiskCacheIndex, MAX_EVICTIONS_PER_STEP, PendingWrite};

const FILE_MAGIC: &[u8; 8] = b"athcach1";
/// Bytes before the key: the magic and the length of the key.
const FILE_HEAD_BYTES: usize = 12;
const CHECKSUM_BYTES: usize = 16;

/// Key of a cached entry: kind, block and range or query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskCacheKey(Vec<u8>);

/// Location of a cached entry on disk: its age and the hash of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskCacheFile {
    age: u64,
    hash: ContentHash,
}

/// Cache of results and pages in files of a disk.
pub struct DiskCache {
    disk: Arc<dyn Disk>,
    limit: u64,
    /// Bytes of the disk that stay free.
    spare: u64,
    /// None until the folder is listed. Until then lookups miss and writes are dropped.
    index: Mutex<Option<DiskCacheIndex>>,
    /// Notified when an entry waits to be written.
    wanted: Notify,
    counts: CacheCounters,
    failed: EventCounter,
    doubted: EventCounter,
    passed: EventCounter,
}

/// Statistics of the disk cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCacheStats {
    /// Hits, misses, evictions and sizes of files.
    pub cache: CacheStats,
    /// Count of disk operations that failed.
    pub failed: u64,
    /// Count of invalidations because data made from cached files was damaged.
    pub doubted: u64,
    /// Count of entries that were dropped because too many waited to be written.
    pub passed: u64,
}

impl DiskCacheKey {
    /// Returns the key of a partial result of a tenant's part of a block.
    pub fn for_partial(block: BlockId, tenant: &TenantId, ask: ContentHash) -> Self {
        let block = block.number().to_be_bytes();
        let ask = ask.to_be_bytes();
        Self([b"a", &block[..], &ask[..], tenant.as_str().as_bytes()].concat())
    }

    /// Returns the key of a byte range of a block's file.
    pub fn for_range(block: BlockId, file: &str, range: &std::ops::Range<u64>) -> Self {
        let block = block.number().to_be_bytes();
        let range = [range.start, range.end].map(u64::to_be_bytes).concat();
        Self([b"r", &block[..], &range[..], file.as_bytes()].concat())
    }

    fn hash(&self) -> ContentHash {
        hash::hash_bytes(&self.0)
    }
}

impl DiskCache {
    /// Creates a cache of at most `limit` bytes that leaves `spare` bytes of the disk free. Reads nothing
    /// yet.
    pub fn new(disk: Arc<dyn Disk>, limit: ByteSize, spare: ByteSize) -> Self {
        let (failed, doubted, passed) = Default::default();
        Self {
            disk,
            limit: limit.get(),
            spare: spare.get(),
            index: Mutex::new(None),
            wanted: Notify::new(),
            counts: CacheCounters::default(),
            failed,
            doubted,
            passed,
        }
    }

    /// Returns whether the cache has any capacity.
    pub fn is_enabled(&self) -> bool {
        self.limit > 0
    }

    /// Returns the location of a cached entry. Counts a miss if there is none.
    pub fn find(&self, key: &DiskCacheKey) -> Option<DiskCacheFile> {
        if !self.is_enabled() {
            return None;
        }
        let hash = key.hash();
        let age = self.with_index(|index| index.find(hash)).flatten();
        if age.is_none() {
            self.counts.misses.increment();
        }
        age.map(|age| DiskCacheFile { age, hash })
    }

    /// Reads a cached entry and counts a hit or a miss. Blocks on disk I/O.
    pub fn read(&self, key: &DiskCacheKey, place: DiskCacheFile) -> Option<Bytes> {
        let found = self.read_file(key, place);
        let CacheCounters { hits, misses, .. } = &self.counts;
        let count = if found.is_some() { hits } else { misses };
        count.increment();
        found
    }

    fn read_file(&self, key: &DiskCacheKey, place: DiskCacheFile) -> Option<Bytes> {
        let name = place.file_name();
        let bytes = match self.disk.read(&name) {
            Ok(bytes) => bytes,
            Err(error) => {
                // A concurrent call may have removed the file.
                tracing::debug!(%error, "failed to read a disk cache file");
                if !matches!(error, DiskError::NotFound { .. }) {
                    self.failed.increment();
                }
                self.remove(place);
                return None;
            }
        };
        match decode_file(&bytes) {
            Some((of, start)) if of == key.0 => Some(Bytes::from(bytes).slice(start..)),
            // Another key has the same hash.
            Some(_) => None,
            None => {
                tracing::warn!(name, "removed a damaged disk cache file, its content will be recomputed");
                self.counts.damaged.increment();
                self.remove(place);
                None
            }
        }
    }

    /// Queues bytes to be written later. Drops them if the queue is full or if they exceed a quarter of the
    /// cache.
    pub fn enqueue(&self, key: DiskCacheKey, bytes: Bytes) {
        if file_bytes(&key, &bytes) > self.limit / 4 {
            return;
        }
        let hash = key.hash();
        match self.with_index(|index| index.enqueue_write(hash, key, bytes)) {
            Some(true) => self.wanted.notify_one(),
            Some(false) => self.passed.increment(),
            None => {}
        }
    }

    /// Removes cached and pending entries, because data made from them was damaged. Blocks on disk I/O.
    pub fn invalidate(&self, keys: &[DiskCacheKey]) {
        self.doubted.increment();
        for hash in keys.iter().map(DiskCacheKey::hash) {
            if let Some(age) = self.with_index(|index| index.invalidate(hash)).flatten() {
                self.delete_file(DiskCacheFile { age, hash });
            }
        }
    }

    /// Returns the current statistics.
    pub fn stats(&self) -> DiskCacheStats {
        let (files, bytes) = self.with_index(|index| index.size()).unwrap_or_default();
        DiskCacheStats {
            cache: self.counts.stats(files, bytes, self.limit),
            failed: self.failed.get(),
            doubted: self.doubted.get(),
            passed: self.passed.get(),
        }
    }

    fn remove(&self, place: DiskCacheFile) {
        self.with_index(|index| index.remove(place.age, place.hash));
        self.delete_file(place);
    }

    /// Deletes a file. If the deletion fails, the next start finds the file.
    fn delete_file(&self, place: DiskCacheFile) {
        drop(self.disk.remove(&place.file_name()));
    }

    /// Runs a function on the index. Returns None before the folder is listed.
    fn with_index<R>(&self, with: impl FnOnce(&mut DiskCacheIndex) -> R) -> Option<R> {
        self.index.lock().as_mut().map(with)
    }
}

/// Disk work in the background. Each step is short, so that queries run in between.
impl DiskCache {
    /// Runs all pending work. The first call lists the folder. Then old files are evicted if space is needed,
    /// and pending entries are written.
    pub async fn run_maintenance(self: &Arc<Self>, compute: &ComputePool) {
        if self.index.lock().is_none() {
            let Some(index) = self.load_index(compute).await else { return };
            *self.index.lock() = Some(index);
        }
        while self.run_on_pool(compute, |shelf| shelf.run_step()).await == Some(true) {}
    }

    /// Waits until an entry waits to be written.
    pub async fn wait_for_writes(&self) {
        self.wanted.notified().await;
    }

    async fn run_on_pool<R: Send + 'static>(
        self: &Arc<Self>,
        compute: &ComputePool,
        job: impl FnOnce(&Self) -> R + Send + 'static,
    ) -> Option<R> {
        let shelf = Arc::clone(self);
        compute.run_as(CpuActivity::Query, move || job(&shelf)).await.ok()
    }

    /// Lists the files that an earlier process left. Returns None if the folder cannot be listed.
    async fn load_index(self: &Arc<Self>, compute: &ComputePool) -> Option<DiskCacheIndex> {
        let mut names = match self.run_on_pool(compute, |shelf| shelf.disk.list()).await? {
            Ok(names) => names,
            Err(error) => {
                tracing::debug!(%error, "failed to list the disk cache folder");
                self.failed.increment();
                return None;
            }
        };
        let mut index = DiskCacheIndex::default();
        while !names.is_empty() {
            let some = names.split_off(names.len().saturating_sub(MAX_EVICTIONS_PER_STEP));
            let known = move |shelf: &Self| {
                some.iter().for_each(|name| shelf.index_file(&mut index, name));
                index
            };
            index = self.run_on_pool(compute, known).await?;
        }
        Some(index)
    }

    fn index_file(&self, index: &mut DiskCacheIndex, name: &str) {
        let is_known = match (parse_file_name(name), self.disk.len(name)) {
            (Some(DiskCacheFile { age, hash }), Ok(length)) => index.add_existing(age, hash, length),
            _ => false,
        };
        if !is_known {
            // The folder contains no files of other components, so an unknown file is removed.
            drop(self.disk.remove(name));
        }
    }

    /// Runs one step of pending work. Returns whether more may remain. Blocks on disk I/O.
    fn run_step(&self) -> bool {
        let (left, is_enough) = self.evict_for(0);
        if left > 0 && !is_enough {
            return true;
        }
        let Some(coming) = self.with_index(DiskCacheIndex::pop_write).flatten() else { return false };
        self.write_pending(&coming);
        true
    }

    /// Evicts the oldest files until `more` bytes fit in the cache and on the disk. Returns the number of
    /// evicted files and whether the bytes fit.
    fn evict_for(&self, more: u64) -> (usize, bool) {
        let wanted = self.spare.saturating_add(more);
        // If the disk does not report its free bytes, the required space is unknown.
        let Ok(free) = self.disk.free_bytes().inspect_err(|_| self.failed.increment()) else {
            return (0, false);
        };
        let room = |index: &mut DiskCacheIndex| {
            let (_, bytes) = index.size();
            let of_others = bytes.saturating_sub(wanted.saturating_sub(free));
            let limit = self.limit.saturating_sub(more).min(of_others);
            let leaving = index.evict_to(limit);
            (leaving, index.size().1 <= limit)
        };
        let Some((leaving, fits)) = self.with_index(room) else { return (0, false) };
        leaving.iter().for_each(|&(age, hash)| self.delete_file(DiskCacheFile { age, hash }));
        self.counts.evicted.add(leaving.len() as u64);
        let is_free = free >= wanted || self.disk.free_bytes().is_ok_and(|free| free >= wanted);
        (leaving.len(), fits && is_free)
    }

    fn write_pending(&self, coming: &PendingWrite) {
        let PendingWrite { age, hash, key, bytes } = coming;
        let place = DiskCacheFile { age: *age, hash: *hash };
        let length = file_bytes(key, bytes);
        if !self.evict_for(length).1 {
            self.with_index(|index| index.cancel_write(coming));
            return;
        }
        self.with_index(|index| index.begin_write(length));
        let name = place.file_name();
        let head = [&FILE_MAGIC[..], &(key.0.len() as u32).to_be_bytes()].concat();
        let sum = checksum(&key.0, bytes).to_be_bytes();
        let written = self.disk.create_new(&name).and_then(|()| {
            let parts: [&[u8]; 4] = [&head, &key.0, &sum, bytes];
            self.disk.write_at(&name, 0, &parts)
        });
        let stays = self.with_index(|index| index.finish_write(coming, length, written.is_ok()));
        if let Err(error) = written {
            tracing::debug!(%error, "failed to write a disk cache file");
            self.failed.increment();
        }
        if stays != Some(true) {
            self.delete_file(place);
        }
    }
}

impl DiskCacheFile {
    fn file_name(self) -> String {
        format!("{:016x}-{:032x}", self.age, self.hash)
    }
}

/// Upper limit of the age in a valid file name. Ages increase by one per file, so a larger age is not from
/// this cache.
const MAX_FILE_AGE: u64 = u64::MAX >> 1;

fn parse_file_name(name: &str) -> Option<DiskCacheFile> {
    let (age, hash) = name.split_once('-').filter(|(age, hash)| age.len() == 16 && hash.len() == 32)?;
    let age = u64::from_str_radix(age, 16).ok()?;
    let hash = ContentHash::from_str_radix(hash, 16).ok()?;
    Some(DiskCacheFile { age, hash }).filter(|place| place.age <= MAX_FILE_AGE && place.file_name() == name)
}

/// Returns the size of the file that holds an entry.
fn file_bytes(key: &DiskCacheKey, bytes: &Bytes) -> u64 {
    (FILE_HEAD_BYTES + key.0.len() + CHECKSUM_BYTES + bytes.len()) as u64
}

fn checksum(key: &[u8], bytes: &[u8]) -> ContentHash {
    hash::hash_list(&[hash::hash_bytes(key), hash::hash_bytes(bytes)])
}

/// Returns the key of an intact file and the offset of its data.
fn decode_file(file: &[u8]) -> Option<(&[u8], usize)> {
    let (head, rest) = file.split_at_checked(FILE_HEAD_BYTES)?;
    let length = u32::from_be_bytes(head.strip_prefix(FILE_MAGIC)?.try_into().ok()?) as usize;
    let (key, rest) = rest.split_at_checked(length)?;
    let (said, bytes) = rest.split_at_checked(CHECKSUM_BYTES)?;
    let is_whole = said == checksum(key, bytes).to_be_bytes();
    is_whole.then_some((key, FILE_HEAD_BYTES + length + CHECKSUM_BYTES))
}

#[cfg(test)]
mod tests;
