//! Which files there are, and which are about to be.

use std::collections::{BTreeMap, HashMap, VecDeque};

use athanor_profile::hash::ContentHash;
use bytes::Bytes;

use super::DiskCacheKey;

/// Files at most, whatever they hold: all of them are known in memory.
pub const MAX_CACHED_FILES: usize = 200_000;
/// Bytes that may wait to be written: the bucket may give more at once than the disk takes.
const MAX_PENDING_WRITE_BYTES: usize = 64 << 20;
/// Files that leave in one step, so that others get a turn between.
pub const MAX_EVICTIONS_PER_STEP: usize = 256;

/// Which files there are.
#[derive(Default)]
pub struct DiskCacheIndex {
    by_hash: HashMap<ContentHash, u64>,
    /// Hash and length, by when they came.
    by_age: BTreeMap<u64, (ContentHash, u64)>,
    /// What waits or is being written, and is not in doubt since: nobody reads it yet.
    coming: HashMap<ContentHash, u64>,
    waiting: VecDeque<PendingWrite>,
    waiting_bytes: usize,
    /// Bytes of all, what is being written included.
    bytes: u64,
    next: u64,
}

/// What is to be written.
pub struct PendingWrite {
    /// When it came.
    pub age: u64,
    /// What it is, by a hash.
    pub hash: ContentHash,
    /// And in full.
    pub key: DiskCacheKey,
    /// What it holds.
    pub bytes: Bytes,
}

impl DiskCacheIndex {
    /// Files, and their bytes.
    pub fn size(&self) -> (u64, u64) {
        (self.by_age.len() as u64, self.bytes)
    }

    /// When a file came.
    pub fn find(&self, hash: ContentHash) -> Option<u64> {
        self.by_hash.get(&hash).copied()
    }

    /// A file that was found; whether it is the only one of its kind.
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

    /// Has bytes wait to be written, unless they are there or on their way. Whether there is room for them to wait.
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

    /// What has waited longest, to be written now.
    pub fn pop_write(&mut self) -> Option<PendingWrite> {
        while let Some(first) = self.waiting.pop_front() {
            self.waiting_bytes -= first.bytes.len();
            if self.is_pending(&first) {
                return Some(first);
            }
        }
        None
    }

    /// Whether it is still wanted.
    fn is_pending(&self, coming: &PendingWrite) -> bool {
        self.coming.get(&coming.hash) == Some(&coming.age)
    }

    /// Takes room for what is about to be written.
    pub fn begin_write(&mut self, length: u64) {
        self.bytes += length;
    }

    /// It is written, or could not be; whether it stays.
    pub fn finish_write(&mut self, coming: &PendingWrite, length: u64, is_written: bool) -> bool {
        self.bytes -= length;
        let stays = is_written && self.is_pending(coming);
        if stays {
            self.insert(coming.age, coming.hash, length);
        }
        self.cancel_write(coming);
        stays
    }

    /// It is not written.
    pub fn cancel_write(&mut self, coming: &PendingWrite) {
        if self.is_pending(coming) {
            self.coming.remove(&coming.hash);
        }
    }

    /// Forgets what is in doubt, on its way or there: then it says when that came.
    pub fn invalidate(&mut self, hash: ContentHash) -> Option<u64> {
        self.coming.remove(&hash);
        let age = self.find(hash)?;
        self.remove(age, hash);
        Some(age)
    }

    /// Forgets a file.
    pub fn remove(&mut self, age: u64, hash: ContentHash) {
        if let Some((_, length)) = self.by_age.remove(&age) {
            self.bytes -= length;
            if self.by_hash.get(&hash) == Some(&age) {
                self.by_hash.remove(&hash);
            }
        }
    }

    /// Takes out the oldest until there are no more bytes than that, nor too many files; only so many at once.
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
