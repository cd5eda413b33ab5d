//! Cache of opened block parts. Blocks are immutable, so cached data never becomes stale.

use std::collections::BTreeMap;
use std::fmt;

use athanor_catalog::BlockId;
use athanor_chassis::{ByteSize, TenantId};
use parking_lot::Mutex;

use crate::cached_block::CachedBlock;
use crate::stats::{CacheCounters, CacheStats};

/// Parts by block and tenant, within a memory limit. Evicts the least recently used part.
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
    /// Keys by last use, oldest first.
    by_use: BTreeMap<u64, BlockCacheKey>,
    clock: u64,
    /// Bytes of all parts at their last update. Parts grow while they are read.
    bytes: u64,
}

struct BlockCacheEntry {
    part: CachedBlock,
    used: u64,
    bytes: u64,
}

impl fmt::Debug for BlockCacheState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCacheState").field("parts", &self.parts.len()).finish()
    }
}

impl BlockCache {
    /// Creates a cache of at most `limit` bytes.
    pub fn new(limit: ByteSize) -> Self {
        Self { limit, kept: Mutex::default(), counts: CacheCounters::default() }
    }

    /// Returns a cached part and marks it as used.
    pub fn get(&self, block: BlockId, tenant: &TenantId) -> Option<CachedBlock> {
        self.kept.lock().get(&(block, tenant.clone()))
    }

    /// Counts a query of a part: a hit if an earlier query used the part, else a miss.
    pub fn record_query(&self, part: &CachedBlock) {
        let CacheCounters { hits, misses, .. } = &self.counts;
        let count = if part.has_earlier_query() { hits } else { misses };
        count.increment();
    }

    /// Returns the current statistics.
    pub fn stats(&self) -> CacheStats {
        let kept = self.kept.lock();
        self.counts.stats(kept.parts.len() as u64, kept.bytes, self.limit.get())
    }

    /// Inserts a part, unless one exists for its key. Returns the part that the cache holds.
    pub fn get_or_insert(&self, part: CachedBlock) -> CachedBlock {
        let mut kept = self.kept.lock();
        let key = part.key();
        if let Some(there) = kept.get(&key) {
            return there;
        }
        kept.insert(key, part.clone());
        self.evict(&mut kept);
        part
    }

    /// Removes a part from the cache.
    pub fn remove(&self, part: &CachedBlock) {
        let mut kept = self.kept.lock();
        if kept.contains(part) {
            kept.remove(&part.key());
        }
    }

    /// Updates the cached size of a part and evicts if the limit is exceeded.
    pub fn update_size(&self, part: &CachedBlock) {
        let mut kept = self.kept.lock();
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

    /// Returns whether the cache holds this part, and not one that was opened later.
    fn contains(&self, part: &CachedBlock) -> bool {
        self.parts.get(&part.key()).is_some_and(|entry| entry.part.is_same(part))
    }
}
