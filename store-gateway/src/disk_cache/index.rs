//! Index of the files in the disk cache and of its pending writes.

use std::collections::{BTreeMap, HashMap, VecDeque};

use athanor_profile::encoding::hash::ContentHash;
use bytes::Bytes;

use super::DiskCacheKey;

/// Maximum number of files of any size, since the index keeps all of them in memory.
pub const MAX_CACHED_FILES: usize = 200_000;
/// Maximum bytes of pending writes: the bucket may deliver faster than the disk writes.
const MAX_PENDING_WRITE_BYTES: usize = 64 << 20;
/// Maximum number of files that one step evicts, so that other jobs run in between.
pub const MAX_EVICTIONS_PER_STEP: usize = 256;

/// Index of cached files by hash and by age.
#[derive(Default)]
pub struct DiskCacheIndex {
    by_hash: HashMap<ContentHash, u64>,
    /// Hash and length of each file, by age.
    by_age: BTreeMap<u64, (ContentHash, u64)>,
    /// Pending writes that were not invalidated, by hash. They are not readable yet.
    coming: HashMap<ContentHash, u64>,
    waiting: VecDeque<PendingWrite>,
    waiting_bytes: usize,
    /// Bytes of all files, including the file that is being written.
    bytes: u64,
    next: u64,
}

/// Entry that waits to be written.
pub struct PendingWrite {
    /// Age: the sequence number of the entry.
    pub age: u64,
    /// Hash of the cache key.
    pub hash: ContentHash,
    /// Full key of the entry.
    pub key: DiskCacheKey,
    /// Bytes of the entry.
    pub bytes: Bytes,
}

impl DiskCacheIndex {
    /// Returns the number of files and their bytes.
    pub fn size(&self) -> (u64, u64) {
        (self.by_age.len() as u64, self.bytes)
    }

    /// Returns the age of a file.
    pub fn find(&self, hash: ContentHash) -> Option<u64> {
        self.by_hash.get(&hash).copied()
    }

    /// Adds a file found on disk. Returns false if the index already has its hash or its age.
    pub fn add_existing(&mut self, age: u64, hash: ContentHash, length: u64) -> bool {
        let is_new = !self.by_hash.contains_key(&hash) && !self.by_age.contains_key(&age);
        if is_new {
            self.insert(age, hash, length);
        }
        is_new
    }

    fn insert(&mut self, age: u64, hash: ContentHash, length: u64) {
        self.by_hash.insert(hash, age);
        self.by_age.insert(age, (hash, length));
        self.bytes += length;
        self.next = self.next.max(age + 1);
    }

    /// Queues bytes to be written, unless they are cached or queued already. Returns false if the queue is
    /// full.
    pub fn enqueue_write(&mut self, hash: ContentHash, key: DiskCacheKey, bytes: Bytes) -> bool {
        if self.by_hash.contains_key(&hash) || self.coming.contains_key(&hash) {
            return true;
        }
        if self.waiting_bytes + bytes.len() > MAX_PENDING_WRITE_BYTES
            || self.waiting.len() >= MAX_CACHED_FILES
        {
            return false;
        }
        let age = self.next;
        self.next += 1;
        self.waiting_bytes += bytes.len();
        self.coming.insert(hash, age);
        self.waiting.push_back(PendingWrite { age, hash, key, bytes });
        true
    }

    /// Removes the oldest pending write that is still valid and returns it.
    pub fn pop_write(&mut self) -> Option<PendingWrite> {
        while let Some(first) = self.waiting.pop_front() {
            self.waiting_bytes -= first.bytes.len();
            if self.is_pending(&first) {
                return Some(first);
            }
        }
        None
    }

    /// Returns whether the write was not invalidated.
    fn is_pending(&self, coming: &PendingWrite) -> bool {
        self.coming.get(&coming.hash) == Some(&coming.age)
    }

    /// Reserves space for a file that is about to be written.
    pub fn begin_write(&mut self, length: u64) {
        self.bytes += length;
    }

    /// Ends a write, successful or not. Returns whether the file stays in the cache.
    pub fn finish_write(&mut self, coming: &PendingWrite, length: u64, is_written: bool) -> bool {
        self.bytes -= length;
        let stays = is_written && self.is_pending(coming);
        if stays {
            self.insert(coming.age, coming.hash, length);
        }
        self.cancel_write(coming);
        stays
    }

    /// Removes a pending write that does not take place.
    pub fn cancel_write(&mut self, coming: &PendingWrite) {
        if self.is_pending(coming) {
            self.coming.remove(&coming.hash);
        }
    }

    /// Removes a suspect entry, pending or on disk. Returns the age of its file, if there is one.
    pub fn invalidate(&mut self, hash: ContentHash) -> Option<u64> {
        self.coming.remove(&hash);
        let age = self.find(hash)?;
        self.remove(age, hash);
        Some(age)
    }

    /// Removes a file from the index.
    pub fn remove(&mut self, age: u64, hash: ContentHash) {
        if let Some((_, length)) = self.by_age.remove(&age) {
            self.bytes -= length;
            if self.by_hash.get(&hash) == Some(&age) {
                self.by_hash.remove(&hash);
            }
        }
    }

    /// Removes the oldest files until at most `bytes` remain and the number of files is within its limit.
    /// Removes at most [`MAX_EVICTIONS_PER_STEP`].
    pub fn evict_to(&mut self, bytes: u64) -> Vec<(u64, ContentHash)> {
        let mut out = Vec::new();
        while out.len() < MAX_EVICTIONS_PER_STEP
            && (self.bytes > bytes || self.by_age.len() >= MAX_CACHED_FILES)
        {
            let Some((&age, &(hash, _))) = self.by_age.first_key_value() else { break };
            self.remove(age, hash);
            out.push((age, hash));
        }
        out
    }
}
