//! Cache of partial results of single blocks. A block is immutable, so its results never become stale.
//!
//! A key contains the block, the tenant and the packed query, and the first byte of that query is the version
//! of the encoding.
//! Any further input that affects a block's result must become part of the query [INV-19].
//! Each entry has a checksum, which is verified before use where that delays no query.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use athanor_catalog::BlockId;
use athanor_chassis::{ByteSize, TenantId};
use athanor_profile::encoding::hash::{self, ContentHash};
use bytes::Bytes;
use moka::notification::RemovalCause;
use moka::sync::Cache;

use crate::disk_cache::DiskCacheKey;
use crate::stats::{CacheCounters, CacheStats, EventCounter};

/// Approximate memory of an entry beside its bytes.
const PARTIAL_OVERHEAD_BYTES: usize = 256;

/// Key of a cached partial result.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartialKey {
    /// Id of the block.
    pub block: BlockId,
    /// Tenant that owns the part.
    pub tenant: TenantId,
    /// Hash of the canonical query.
    pub ask: ContentHash,
}

impl PartialKey {
    /// Returns the key of the same result in the disk cache.
    pub fn disk_key(&self) -> DiskCacheKey {
        DiskCacheKey::for_partial(self.block, &self.tenant, self.ask)
    }
}

/// Packed partial result with the checksum computed when it was packed.
#[derive(Clone)]
pub struct EncodedPartial {
    bytes: Bytes,
    sum: ContentHash,
}

/// Hasher with fixed keys: hashes are equal in every run.
type PartialKeyHasher = BuildHasherDefault<DefaultHasher>;

/// Partial results in memory, within a byte limit.
pub struct PartialCache {
    limit: ByteSize,
    memory: Cache<PartialKey, EncodedPartial, PartialKeyHasher>,
    counts: Arc<CacheCounters>,
    on_disk: EventCounter,
    joined: EventCounter,
}

/// Statistics of the partial result cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartialCacheStats {
    /// Entries in memory. Only a computed result counts as a miss.
    pub cache: CacheStats,
    /// Results that were found on disk but not in memory.
    pub on_disk: u64,
    /// Queries that waited for the result of an equal query.
    pub joined: u64,
}

impl EncodedPartial {
    /// Wraps packed bytes and computes their checksum, which is slow for large results.
    pub fn new(bytes: Bytes) -> Self {
        let sum = hash::hash_bytes(&bytes);
        Self { bytes, sum }
    }

    /// Returns the bytes if their checksum matches. Costs as much as [`new`](Self::new).
    pub fn verified_bytes(&self) -> Option<&Bytes> {
        (hash::hash_bytes(&self.bytes) == self.sum).then_some(&self.bytes)
    }

    /// Returns the bytes without verification.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl PartialCache {
    /// Creates a cache of at most `limit` bytes.
    pub fn new(limit: ByteSize) -> Self {
        let counts = Arc::<CacheCounters>::default();
        let counted = Arc::clone(&counts);
        let weigh = |key: &PartialKey, kept: &EncodedPartial| {
            let bytes = kept.bytes.len() + key.tenant.as_str().len() + PARTIAL_OVERHEAD_BYTES;
            u32::try_from(bytes).unwrap_or(u32::MAX)
        };
        let memory = Cache::builder()
            .max_capacity(limit.get())
            .weigher(weigh)
            .eviction_listener(move |_, _, cause| {
                if cause == RemovalCause::Size {
                    counted.evicted.increment();
                }
            })
            .build_with_hasher(PartialKeyHasher::default());
        let (on_disk, joined) = Default::default();
        Self { limit, memory, counts, on_disk, joined }
    }

    /// Returns whether the cache has any capacity.
    pub fn is_enabled(&self) -> bool {
        self.limit > ByteSize::bytes(0)
    }

    /// Returns a cached result without verification of its checksum.
    pub fn get(&self, key: &PartialKey) -> Option<EncodedPartial> {
        self.memory.get(key)
    }

    /// Inserts a result, unless it exceeds the whole limit.
    pub fn insert(&self, key: PartialKey, packed: EncodedPartial) {
        // A result larger than the limit would only evict others.
        if (packed.bytes.len() + PARTIAL_OVERHEAD_BYTES) as u64 <= self.limit.get() {
            self.memory.insert(key, packed);
        }
    }

    /// Removes a damaged result and counts it.
    pub fn remove_damaged(&self, key: &PartialKey) {
        tracing::warn!(block = %key.block, "cached partial result is damaged, recomputing");
        self.counts.damaged.increment();
        self.memory.invalidate(key);
    }

    /// Counts a query served from memory.
    pub fn record_hit(&self) {
        self.counts.hits.increment();
    }

    /// Counts a query served from disk.
    pub fn record_disk_hit(&self) {
        self.on_disk.increment();
    }

    /// Counts a result that is computed.
    pub fn record_miss(&self) {
        self.counts.misses.increment();
    }

    /// Counts a query that waited for the result of an equal one.
    pub fn record_coalesced(&self) {
        self.joined.increment();
    }

    /// Returns the current statistics.
    pub fn stats(&self) -> PartialCacheStats {
        self.memory.run_pending_tasks();
        let answers = self.memory.entry_count();
        let bytes = self.memory.weighted_size();
        PartialCacheStats {
            cache: self.counts.stats(answers, bytes, self.limit.get()),
            on_disk: self.on_disk.get(),
            joined: self.joined.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u128, tenant: &str) -> PartialKey {
        PartialKey { block: BlockId::from_number(number), tenant: tenant.parse().unwrap(), ask: 7 }
    }

    #[test]
    fn answers_are_kept_within_a_bound_and_tenants_never_meet() {
        let answers = PartialCache::new(ByteSize::kib(64));
        let bytes = |number: u128| Bytes::from(vec![number as u8; 10_000]);
        let put = |number: u128| answers.insert(key(number, "shop"), EncodedPartial::new(bytes(number)));
        let get = |number: u128, tenant| {
            answers.get(&key(number, tenant)).map(|packed| packed.verified_bytes().unwrap().clone())
        };
        put(1);
        assert_eq!(get(1, "shop"), Some(bytes(1)));
        assert_eq!(get(1, "other"), None);
        assert_eq!(get(2, "shop"), None);
        (2..100).for_each(put);
        answers.insert(key(100, "shop"), EncodedPartial::new(Bytes::from(vec![0; 70_000])));
        assert_eq!(get(100, "shop"), None, "it is larger than all room");
        let CacheStats { entries, bytes, evicted, .. } = answers.stats().cache;
        assert!(bytes <= 64 << 10 && entries >= 1 && evicted + entries == 99, "{:?}", answers.stats());
    }

    #[test]
    fn a_flipped_bit_in_memory_is_seen() {
        let sound = EncodedPartial::new(Bytes::from_static(b"an answer"));
        assert_eq!(sound.verified_bytes(), Some(sound.bytes()));
        let flipped = EncodedPartial { sum: sound.sum ^ 1, ..sound };
        assert_eq!(flipped.verified_bytes(), None);
    }
}
