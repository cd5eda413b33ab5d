//! What single blocks have answered. A block never changes, so its answer to a question stays true.
//!
//! What belongs to an answer belongs to its key: whose part of which block it is of, and the question as it is packed,
//! whose first byte says how bytes are to be read. Whatever else comes to decide what a block answers has to go into the
//! question [INV-19]. Each answer is kept with its sum, which is looked at before it is used, where that holds up
//! nobody.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use athanor_catalog::BlockId;
use athanor_chassis::{ByteSize, TenantId};
use athanor_profile::hash::{self, ContentHash};
use bytes::Bytes;
use moka::notification::RemovalCause;
use moka::sync::Cache;

use crate::disk_cache::DiskCacheKey;
use crate::stats::{CacheCounters, CacheStats, EventCounter};

/// What an entry takes beside its bytes, about.
const PARTIAL_OVERHEAD_BYTES: usize = 256;

/// Which answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartialKey {
    /// Of which block.
    pub block: BlockId,
    /// Of whose part.
    pub tenant: TenantId,
    /// To which question.
    pub ask: ContentHash,
}

impl PartialKey {
    /// By what it is known on disk.
    pub fn disk_key(&self) -> DiskCacheKey {
        DiskCacheKey::for_partial(self.block, &self.tenant, self.ask)
    }
}

/// An answer, packed, and the sum of its bytes as they were when it was.
#[derive(Clone)]
pub struct EncodedPartial {
    bytes: Bytes,
    sum: ContentHash,
}

/// Hashes alike in every run.
type PartialKeyHasher = BuildHasherDefault<DefaultHasher>;

/// Answers in memory, within a bound.
pub struct PartialCache {
    limit: ByteSize,
    memory: Cache<PartialKey, EncodedPartial, PartialKeyHasher>,
    counts: Arc<CacheCounters>,
    on_disk: EventCounter,
    joined: EventCounter,
}

/// How useful it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartialCacheStats {
    /// Those in memory. What had to be found anew is a miss, and nothing else.
    pub cache: CacheStats,
    /// Answers that were not in memory, but on disk.
    pub on_disk: u64,
    /// Questions that waited for the answer to an equal one.
    pub joined: u64,
}

impl EncodedPartial {
    /// Of these bytes: their sum takes a while where they are many.
    pub fn new(bytes: Bytes) -> Self {
        let sum = hash::hash_bytes(&bytes);
        Self { bytes, sum }
    }

    /// Its bytes, if they are still those that were packed: that takes as long.
    pub fn verified_bytes(&self) -> Option<&Bytes> {
        (hash::hash_bytes(&self.bytes) == self.sum).then_some(&self.bytes)
    }

    /// Its bytes as they are.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl PartialCache {
    /// At most so many bytes.
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

    /// Whether any are kept.
    pub fn is_enabled(&self) -> bool {
        self.limit > ByteSize::bytes(0)
    }

    /// An answer that was kept, sound or not.
    pub fn get(&self, key: &PartialKey) -> Option<EncodedPartial> {
        self.memory.get(key)
    }

    /// Keeps an answer.
    pub fn insert(&self, key: PartialKey, packed: EncodedPartial) {
        // What is larger than all room would only drive out others.
        if (packed.bytes.len() + PARTIAL_OVERHEAD_BYTES) as u64 <= self.limit.get() {
            self.memory.insert(key, packed);
        }
    }

    /// Forgets an answer that is none.
    pub fn remove_damaged(&self, key: &PartialKey) {
        tracing::warn!(block = %key.block, "a kept answer is damaged, it is found anew");
        self.counts.damaged.increment();
        self.memory.invalidate(key);
    }

    /// Somebody was answered from memory.
    pub fn record_hit(&self) {
        self.counts.hits.increment();
    }

    /// Somebody was answered from disk.
    pub fn record_disk_hit(&self) {
        self.on_disk.increment();
    }

    /// An answer is found anew.
    pub fn record_miss(&self) {
        self.counts.misses.increment();
    }

    /// Somebody waited for the answer to an equal question.
    pub fn record_coalesced(&self) {
        self.joined.increment();
    }

    /// How useful it is so far.
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
