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
use athanor_profile::hash::{self, Hash};
use bytes::Bytes;
use moka::notification::RemovalCause;
use moka::sync::Cache;

use crate::shelf::ShelfKey;
use crate::stats::{CacheStats, Count, Counts};

/// What an entry takes beside its bytes, about.
const ENTRY: usize = 256;

/// Which answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AnswerKey {
    /// Of which block.
    pub block: BlockId,
    /// Of whose part.
    pub tenant: TenantId,
    /// To which question.
    pub ask: Hash,
}

impl AnswerKey {
    /// By what it is known on disk.
    pub fn on_shelf(&self) -> ShelfKey {
        ShelfKey::answer(self.block, &self.tenant, self.ask)
    }
}

/// An answer, packed, and the sum of its bytes as they were when it was.
#[derive(Clone)]
pub struct Packed {
    bytes: Bytes,
    sum: Hash,
}

/// Hashes alike in every run.
type Fixed = BuildHasherDefault<DefaultHasher>;

/// Answers in memory, within a bound.
pub struct Answers {
    limit: ByteSize,
    memory: Cache<AnswerKey, Packed, Fixed>,
    counts: Arc<Counts>,
    on_disk: Count,
    joined: Count,
}

/// How useful it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerStats {
    /// Those in memory. What had to be found anew is a miss, and nothing else.
    pub cache: CacheStats,
    /// Answers that were not in memory, but on disk.
    pub on_disk: u64,
    /// Questions that waited for the answer to an equal one.
    pub joined: u64,
}

impl Packed {
    /// Of these bytes: their sum takes a while where they are many.
    pub fn new(bytes: Bytes) -> Self {
        let sum = hash::bytes(&bytes);
        Self { bytes, sum }
    }

    /// Its bytes, if they are still those that were packed: that takes as long.
    pub fn sound(&self) -> Option<&Bytes> {
        (hash::bytes(&self.bytes) == self.sum).then_some(&self.bytes)
    }

    /// Its bytes as they are.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl Answers {
    /// At most so many bytes.
    pub fn new(limit: ByteSize) -> Self {
        let counts = Arc::<Counts>::default();
        let counted = Arc::clone(&counts);
        let weigh = |key: &AnswerKey, kept: &Packed| {
            let bytes = kept.bytes.len() + key.tenant.as_str().len() + ENTRY;
            u32::try_from(bytes).unwrap_or(u32::MAX)
        };
        let memory = Cache::builder()
            .max_capacity(limit.get())
            .weigher(weigh)
            .eviction_listener(move |_, _, cause| {
                if cause == RemovalCause::Size {
                    counted.evicted.one();
                }
            })
            .build_with_hasher(Fixed::default());
        let (on_disk, joined) = Default::default();
        Self { limit, memory, counts, on_disk, joined }
    }

    /// Whether any are kept.
    pub fn is_on(&self) -> bool {
        self.limit > ByteSize::bytes(0)
    }

    /// An answer that was kept, sound or not.
    pub fn get(&self, key: &AnswerKey) -> Option<Packed> {
        self.memory.get(key)
    }

    /// Keeps an answer.
    pub fn put(&self, key: AnswerKey, packed: Packed) {
        // What is larger than all room would only drive out others.
        if (packed.bytes.len() + ENTRY) as u64 <= self.limit.get() {
            self.memory.insert(key, packed);
        }
    }

    /// Forgets an answer that is none.
    pub fn damaged(&self, key: &AnswerKey) {
        tracing::warn!(block = %key.block, "a kept answer is damaged, it is found anew");
        self.counts.damaged.one();
        self.memory.invalidate(key);
    }

    /// Somebody was answered from memory.
    pub fn hit(&self) {
        self.counts.hits.one();
    }

    /// Somebody was answered from disk.
    pub fn hit_on_disk(&self) {
        self.on_disk.one();
    }

    /// An answer is found anew.
    pub fn missed(&self) {
        self.counts.misses.one();
    }

    /// Somebody waited for the answer to an equal question.
    pub fn joined(&self) {
        self.joined.one();
    }

    /// How useful it is so far.
    pub fn stats(&self) -> AnswerStats {
        self.memory.run_pending_tasks();
        let (answers, bytes) = (self.memory.entry_count(), self.memory.weighted_size());
        AnswerStats {
            cache: self.counts.stats(answers, bytes, self.limit.get()),
            on_disk: self.on_disk.now(),
            joined: self.joined.now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u128, tenant: &str) -> AnswerKey {
        AnswerKey { block: BlockId::from_number(number), tenant: tenant.parse().unwrap(), ask: 7 }
    }

    #[test]
    fn answers_are_kept_within_a_bound_and_tenants_never_meet() {
        let answers = Answers::new(ByteSize::kib(64));
        let bytes = |number: u128| Bytes::from(vec![number as u8; 10_000]);
        let put = |number: u128| answers.put(key(number, "shop"), Packed::new(bytes(number)));
        let get = |number: u128, tenant| {
            answers.get(&key(number, tenant)).map(|packed| packed.sound().unwrap().clone())
        };
        put(1);
        assert_eq!(get(1, "shop"), Some(bytes(1)));
        assert_eq!(get(1, "other"), None);
        assert_eq!(get(2, "shop"), None);
        (2..100).for_each(put);
        answers.put(key(100, "shop"), Packed::new(Bytes::from(vec![0; 70_000])));
        assert_eq!(get(100, "shop"), None, "it is larger than all room");
        let CacheStats { entries, bytes, evicted, .. } = answers.stats().cache;
        assert!(bytes <= 64 << 10 && entries >= 1 && evicted + entries == 99, "{:?}", answers.stats());
    }

    #[test]
    fn a_flipped_bit_in_memory_is_seen() {
        let sound = Packed::new(Bytes::from_static(b"an answer"));
        assert_eq!(sound.sound(), Some(sound.bytes()));
        let flipped = Packed { sum: sound.sum ^ 1, ..sound };
        assert_eq!(flipped.sound(), None);
    }
}
