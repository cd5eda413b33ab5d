//! Parts of blocks that were read: blocks never change, so what was read stays true.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use athanor_catalog::BlockId;
use athanor_chassis::{ByteSize, TenantId};

use crate::blocks::Part;
use crate::stats::{CacheStats, Counts};

/// Parts by block and tenant, within a bound of memory. The one that was asked for longest ago goes first.
#[derive(Debug)]
pub struct Parts {
    limit: ByteSize,
    kept: Mutex<Kept>,
    counts: Counts,
}

type Key = (BlockId, TenantId);

#[derive(Default)]
struct Kept {
    parts: BTreeMap<Key, Entry>,
    /// By when they were asked for last.
    by_use: BTreeMap<u64, Key>,
    clock: u64,
    /// Of all of them, as they were counted last: they grow while they are read.
    bytes: u64,
}

struct Entry {
    part: Part,
    used: u64,
    bytes: u64,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("parts", &self.parts.len()).finish()
    }
}

impl Parts {
    /// At most so many bytes.
    pub fn new(limit: ByteSize) -> Self {
        Self { limit, kept: Mutex::default(), counts: Counts::default() }
    }

    /// A part that was begun before.
    pub fn get(&self, block: BlockId, tenant: &TenantId) -> Option<Part> {
        self.lock().get(&(block, tenant.clone()))
    }

    /// A question came for a part: whether it had been asked for before says whether keeping it was of use.
    pub fn asked(&self, part: &Part) {
        let Counts { hits, misses, .. } = &self.counts;
        let count = if part.is_asked_again() { hits } else { misses };
        count.one();
    }

    /// How useful it is so far.
    pub fn stats(&self) -> CacheStats {
        let kept = self.lock();
        self.counts.stats(kept.parts.len() as u64, kept.bytes, self.limit.get())
    }

    /// Keeps a part, unless there is one already: gives the one that stays.
    pub fn keep(&self, part: Part) -> Part {
        let mut kept = self.lock();
        let key = part.key();
        if let Some(there) = kept.get(&key) {
            return there;
        }
        kept.insert(key, part.clone());
        self.trim(&mut kept);
        part
    }

    /// Lets go of a part.
    pub fn forget(&self, part: &Part) {
        let mut kept = self.lock();
        if kept.has(part) {
            kept.remove(&part.key());
        }
    }

    /// Counts a part as it is now.
    pub fn settle(&self, part: &Part) {
        let mut kept = self.lock();
        if kept.has(part) {
            kept.count(part);
            self.trim(&mut kept);
        }
    }

    fn trim(&self, kept: &mut Kept) {
        while kept.bytes > self.limit.get() {
            let Some((_, oldest)) = kept.by_use.first_key_value() else { break };
            let oldest = oldest.clone();
            kept.remove(&oldest);
            self.counts.evicted.one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn get(&mut self, key: &Key) -> Option<Part> {
        let entry = self.parts.get_mut(key)?;
        self.by_use.remove(&entry.used);
        self.clock += 1;
        entry.used = self.clock;
        self.by_use.insert(self.clock, key.clone());
        Some(entry.part.clone())
    }

    fn insert(&mut self, key: Key, part: Part) {
        self.clock += 1;
        let (used, bytes) = (self.clock, part.bytes() as u64);
        self.bytes += bytes;
        self.by_use.insert(used, key.clone());
        self.parts.insert(key, Entry { part, used, bytes });
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.parts.remove(key) {
            self.by_use.remove(&entry.used);
            self.bytes -= entry.bytes;
        }
    }

    fn count(&mut self, part: &Part) {
        if let Some(entry) = self.parts.get_mut(&part.key()) {
            let bytes = entry.part.bytes() as u64;
            self.bytes = self.bytes - entry.bytes + bytes;
            entry.bytes = bytes;
        }
    }

    /// Whether it is this one that is kept, and not one that was begun later.
    fn has(&self, part: &Part) -> bool {
        self.parts.get(&part.key()).is_some_and(|entry| entry.part.is(part))
    }
}
