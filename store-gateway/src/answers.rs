//! What single blocks have answered. A block never changes, so its answer to a question stays true.
//!
//! What belongs to an answer belongs to its key: whose part of which block it is of, and the question as it is packed,
//! whose first byte says how bytes are to be read. Whatever else comes to decide what a block answers has to go into the
//! question (E19). Each answer is kept with its sum, which is looked at before it is used.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use athanor_catalog::BlockId;
use athanor_chassis::{ByteSize, TenantId};
use athanor_profile::hash::{self, Hash};
use bytes::Bytes;
use moka::notification::RemovalCause;
use moka::sync::Cache;

use crate::shelf::ShelfKey;

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

/// An answer, packed, and the sum of its bytes.
#[derive(Clone)]
struct Kept {
    bytes: Bytes,
    sum: Hash,
}

/// Hashes alike in every run.
type Fixed = BuildHasherDefault<DefaultHasher>;

/// Answers in memory, within a bound.
pub struct Answers {
    limit: ByteSize,
    memory: Cache<AnswerKey, Kept, Fixed>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    joined: AtomicU64,
    evicted: AtomicU64,
    damaged: AtomicU64,
}

/// How useful it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerStats {
    /// Answers that were there.
    pub hits: u64,
    /// Answers that were not.
    pub misses: u64,
    /// Questions that waited for the answer to an equal one.
    pub joined: u64,
    /// Answers that made room for others.
    pub evicted: u64,
    /// Answers whose bytes were not those that were kept: they were found anew.
    pub damaged: u64,
    /// Answers that are there.
    pub answers: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many bytes there may be.
    pub limit: u64,
}

impl Answers {
    /// At most so many bytes.
    pub fn new(limit: ByteSize) -> Self {
        let counts = Arc::<Counts>::default();
        let evicted = Arc::clone(&counts);
        let weigh = |key: &AnswerKey, kept: &Kept| {
            let bytes = kept.bytes.len() + key.tenant.as_str().len() + ENTRY;
            u32::try_from(bytes).unwrap_or(u32::MAX)
        };
        let memory = Cache::builder()
            .max_capacity(limit.get())
            .weigher(weigh)
            .eviction_listener(move |_, _, cause| {
                if cause == RemovalCause::Size {
                    evicted.evicted.fetch_add(1, Ordering::Relaxed);
                }
            })
            .build_with_hasher(Fixed::default());
        Self { limit, memory, counts }
    }

    /// An answer that was kept.
    pub fn get(&self, key: &AnswerKey) -> Option<Bytes> {
        let found = self.memory.get(key);
        if let Some(Kept { bytes, sum }) = found {
            if hash::bytes(&bytes) == sum {
                self.counts.hits.fetch_add(1, Ordering::Relaxed);
                return Some(bytes);
            }
            self.damaged(key);
        }
        self.counts.misses.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Keeps an answer.
    pub fn put(&self, key: AnswerKey, bytes: Bytes) {
        // What is larger than all room would only drive out others.
        if (bytes.len() + ENTRY) as u64 <= self.limit.get() {
            let sum = hash::bytes(&bytes);
            self.memory.insert(key, Kept { bytes, sum });
        }
    }

    /// Forgets an answer that is none.
    pub fn damaged(&self, key: &AnswerKey) {
        tracing::warn!(block = %key.block, "a kept answer is damaged, it is found anew");
        self.counts.damaged.fetch_add(1, Ordering::Relaxed);
        self.memory.invalidate(key);
    }

    /// Somebody waited for the answer to an equal question.
    pub fn joined(&self) {
        self.counts.joined.fetch_add(1, Ordering::Relaxed);
    }

    /// How useful it is so far.
    pub fn stats(&self) -> AnswerStats {
        self.memory.run_pending_tasks();
        let Counts { hits, misses, joined, evicted, damaged } = &*self.counts;
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        AnswerStats {
            hits: now(hits),
            misses: now(misses),
            joined: now(joined),
            evicted: now(evicted),
            damaged: now(damaged),
            answers: self.memory.entry_count(),
            bytes: self.memory.weighted_size(),
            limit: self.limit.get(),
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
        answers.put(key(1, "shop"), bytes(1));
        assert_eq!(answers.get(&key(1, "shop")), Some(bytes(1)));
        assert_eq!(answers.get(&key(1, "other")), None);
        assert_eq!(answers.get(&key(2, "shop")), None);
        (2..100).for_each(|number| answers.put(key(number, "shop"), bytes(number)));
        answers.put(key(100, "shop"), Bytes::from(vec![0; 70_000]));
        assert_eq!(answers.get(&key(100, "shop")), None, "it is larger than all room");
        let stats = answers.stats();
        assert!(stats.bytes <= 64 << 10 && stats.answers >= 1, "{stats:?}");
        assert!(stats.evicted + stats.answers == 99 && stats.hits == 1 && stats.misses == 3, "{stats:?}");
    }

    #[test]
    fn a_flipped_bit_in_memory_is_seen() {
        let answers = Answers::new(ByteSize::kib(64));
        let (bytes, of) = (Bytes::from_static(b"an answer"), key(1, "shop"));
        answers.memory.insert(of.clone(), Kept { bytes: bytes.clone(), sum: hash::bytes(&bytes) ^ 1 });
        assert_eq!(answers.get(&of), None);
        assert_eq!(answers.stats().damaged, 1);
        answers.put(of.clone(), bytes.clone());
        assert_eq!(answers.get(&of), Some(bytes));
    }
}
