//! Parts of blocks that were read: blocks never change, so what was read stays true.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use athanor_catalog::BlockId;
use athanor_chassis::{ByteSize, TenantId};

use crate::block_reader::CachedBlock;
use crate::stats::{CacheCounters, CacheStats};

/// Parts by block and tenant, within a bound of memory. The one that was asked for longest ago goes first.
#[derive(Debug)]
pub struct BlockCache {
    limit: ByteSize,
    kept: Mutex<BlockCacheState>,
    counts: CacheCounters,
}

type BlockCacheKey = (BlockId, TenantId);

#[derive(Default)]
struct BlockCacheState {
    parts: BTreeMap<BlockCacheKey, BlockCacheEntry>,
    /// By when they were asked for last.
    by_use: BTreeMap<u64, BlockCacheKey>,
    clock: u64,
    /// Of all of them, as they were counted last: they grow while they are read.
    bytes: u64,
}

struct BlockCacheEntry {
    part: CachedBlock,
    used: u64,
    bytes: u64,
}

impl fmt::Debug for BlockCacheState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("parts", &self.parts.len()).finish()
    }
}

impl BlockCache {
    /// At most so many bytes.
    pub fn new(limit: ByteSize) -> Self {
        Self { limit, kept: Mutex::default(), counts: CacheCounters::default() }
    }

    /// A part that was begun before.
    pub fn get(&self, block: BlockId, tenant: &TenantId) -> Option<CachedBlock> {
        self.lock().get(&(block, tenant.clone()))
    }

    /// A question came for a part: whether it had been asked for before says whether keeping it was of use.
    pub fn record_query(&self, part: &CachedBlock) {
        let CacheCounters { hits, misses, .. } = &self.counts;
        let count = if part.has_earlier_query() { hits } else { misses };
        count.increment();
    }

    /// How useful it is so far.
    pub fn stats(&self) -> CacheStats {
        let kept = self.lock();
        self.counts.stats(kept.parts.len() as u64, kept.bytes, self.limit.get())
    }

    /// Keeps a part, unless there is one already: gives the one that stays.
    pub fn get_or_insert(&self, part: CachedBlock) -> CachedBlock {
        let mut kept = self.lock();
        let key = part.key();
        if let Some(there) = kept.get(&key) {
            return there;
        }
        kept.insert(key, part.clone());
        self.evict(&mut kept);
        part
    }

    /// Lets go of a part.
    pub fn remove(&self, part: &CachedBlock) {
        let mut kept = self.lock();
        if kept.contains(part) {
            kept.remove(&part.key());
        }
    }

    /// Counts a part as it is now.
    pub fn update_size(&self, part: &CachedBlock) {
        let mut kept = self.lock();
        if kept.contains(part) {
            kept.update_size(part);
            self.evict(&mut kept);
        }
    }

    fn evict(&self, kept: &mut BlockCacheState) {
        while kept.bytes > self.limit.get() {
            let Some((_, oldest)) = kept.by_use.first_key_value() else { break };
            let oldest = oldest.clone();
            kept.remove(&oldest);
            self.counts.evicted.increment();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BlockCacheState> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockCacheState {
    fn get(&mut self, key: &BlockCacheKey) -> Option<CachedBlock> {
        let entry = self.parts.get_mut(key)?;
        self.by_use.remove(&entry.used);
        self.clock += 1;
        entry.used = self.clock;
        self.by_use.insert(self.clock, key.clone());
        Some(entry.part.clone())
    }

    fn insert(&mut self, key: BlockCacheKey, part: CachedBlock) {
        self.clock += 1;
        let used = self.clock;
        let bytes = part.memory_bytes() as u64;
        self.bytes += bytes;
        self.by_use.insert(used, key.clone());
        self.parts.insert(key, BlockCacheEntry { part, used, bytes });
    }

    fn remove(&mut self, key: &BlockCacheKey) {
        if let Some(entry) = self.parts.remove(key) {
            self.by_use.remove(&entry.used);
            self.bytes -= entry.bytes;
        }
    }

    fn update_size(&mut self, part: &CachedBlock) {
        if let Some(entry) = self.parts.get_mut(&part.key()) {
            let bytes = entry.part.memory_bytes() as u64;
            self.bytes = self.bytes - entry.bytes + bytes;
            entry.bytes = bytes;
        }
    }

    /// Whether it is this one that is kept, and not one that was begun later.
    fn contains(&self, part: &CachedBlock) -> bool {
        self.parts.get(&part.key()).is_some_and(|entry| entry.part.is_same(part))
    }
}
