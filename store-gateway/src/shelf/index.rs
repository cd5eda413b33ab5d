//! Which files there are, and which are about to be.

use std::collections::{BTreeMap, HashMap, VecDeque};

use athanor_profile::hash::Hash;
use bytes::Bytes;

use super::ShelfKey;

/// Files at most, whatever they hold: all of them are known in memory.
pub const MOST: usize = 200_000;
/// Bytes that may wait to be written: the bucket may give more at once than the disk takes.
const MOST_WAITING: usize = 64 << 20;
/// Files that leave in one step, so that others get a turn between.
pub const STEP: usize = 256;

/// Which files there are.
#[derive(Default)]
pub struct Index {
    by_hash: HashMap<Hash, u64>,
    /// Hash and length, by when they came.
    by_age: BTreeMap<u64, (Hash, u64)>,
    /// What waits or is being written, and is not in doubt since: nobody reads it yet.
    coming: HashMap<Hash, u64>,
    waiting: VecDeque<Coming>,
    waiting_bytes: usize,
    /// Bytes of all, what is being written included.
    bytes: u64,
    next: u64,
}

/// What is to be written.
pub struct Coming {
    /// When it came.
    pub age: u64,
    /// What it is, by a hash.
    pub hash: Hash,
    /// And in full.
    pub key: ShelfKey,
    /// What it holds.
    pub bytes: Bytes,
}

impl Index {
    /// Files, and their bytes.
    pub fn size(&self) -> (u64, u64) {
        (self.by_age.len() as u64, self.bytes)
    }

    /// When a file came.
    pub fn find(&self, hash: Hash) -> Option<u64> {
        self.by_hash.get(&hash).copied()
    }

    /// A file that was found; whether it is the only one of its kind.
    pub fn found(&mut self, age: u64, hash: Hash, length: u64) -> bool {
        let is_new = !self.by_hash.contains_key(&hash) && !self.by_age.contains_key(&age);
        if is_new {
            self.insert(age, hash, length);
        }
        is_new
    }

    fn insert(&mut self, age: u64, hash: Hash, length: u64) {
        self.by_hash.insert(hash, age);
        self.by_age.insert(age, (hash, length));
        self.bytes += length;
        self.next = self.next.max(age + 1);
    }

    /// Has bytes wait to be written, unless they are there or on their way. Whether there is room for them to wait.
    pub fn wait(&mut self, hash: Hash, key: ShelfKey, bytes: Bytes) -> bool {
        if self.by_hash.contains_key(&hash) || self.coming.contains_key(&hash) {
            return true;
        }
        if self.waiting_bytes + bytes.len() > MOST_WAITING || self.waiting.len() >= MOST {
            return false;
        }
        let age = self.next;
        self.next += 1;
        self.waiting_bytes += bytes.len();
        self.coming.insert(hash, age);
        self.waiting.push_back(Coming { age, hash, key, bytes });
        true
    }

    /// What has waited longest, to be written now.
    pub fn next(&mut self) -> Option<Coming> {
        while let Some(first) = self.waiting.pop_front() {
            self.waiting_bytes -= first.bytes.len();
            if self.is_coming(&first) {
                return Some(first);
            }
        }
        None
    }

    /// Whether it is still wanted.
    fn is_coming(&self, coming: &Coming) -> bool {
        self.coming.get(&coming.hash) == Some(&coming.age)
    }

    /// Takes room for what is about to be written.
    pub fn begin(&mut self, length: u64) {
        self.bytes += length;
    }

    /// It is written, or could not be; whether it stays.
    pub fn end(&mut self, coming: &Coming, length: u64, is_written: bool) -> bool {
        self.bytes -= length;
        let stays = is_written && self.is_coming(coming);
        if stays {
            self.insert(coming.age, coming.hash, length);
        }
        self.pass(coming);
        stays
    }

    /// It is not written.
    pub fn pass(&mut self, coming: &Coming) {
        if self.is_coming(coming) {
            self.coming.remove(&coming.hash);
        }
    }

    /// Forgets what is in doubt, on its way or there: then it says when that came.
    pub fn doubt(&mut self, hash: Hash) -> Option<u64> {
        self.coming.remove(&hash);
        let age = self.find(hash)?;
        self.forget(age, hash);
        Some(age)
    }

    /// Forgets a file.
    pub fn forget(&mut self, age: u64, hash: Hash) {
        if let Some((_, length)) = self.by_age.remove(&age) {
            self.bytes -= length;
            if self.by_hash.get(&hash) == Some(&age) {
                self.by_hash.remove(&hash);
            }
        }
    }

    /// Takes out the oldest until there are no more bytes than that, nor too many files; only so many at once.
    pub fn make_room(&mut self, bytes: u64) -> Vec<(u64, Hash)> {
        let mut out = Vec::new();
        while out.len() < STEP && (self.bytes > bytes || self.by_age.len() >= MOST) {
            let Some((&age, &(hash, _))) = self.by_age.first_key_value() else { break };
            self.forget(age, hash);
            out.push((age, hash));
        }
        out
    }
}
