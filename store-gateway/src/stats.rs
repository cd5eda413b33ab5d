//! How useful it is to keep things.

use std::sync::atomic::{AtomicU64, Ordering};

/// What is kept, and how often that helped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Entries that were there when they were asked for.
    pub hits: u64,
    /// Entries that were not.
    pub misses: u64,
    /// Entries that made room for others.
    pub evicted: u64,
    /// Entries that were not what had been kept.
    pub damaged: u64,
    /// Entries that are there.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many bytes there may be.
    pub limit: u64,
}

/// Counts what happens to entries.
#[derive(Debug, Default)]
pub struct Counts {
    /// See [`CacheStats`], as for the others.
    pub hits: Count,
    pub misses: Count,
    pub evicted: Count,
    pub damaged: Count,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// One more.
    pub fn one(&self) {
        self.some(1);
    }

    /// So many more.
    pub fn some(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// How many by now.
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counts {
    /// As they are now, of a cache that holds so much.
    pub fn stats(&self, entries: u64, bytes: u64, limit: u64) -> CacheStats {
        let Counts { hits, misses, evicted, damaged } = self;
        CacheStats {
            hits: hits.now(),
            misses: misses.now(),
            evicted: evicted.now(),
            damaged: damaged.now(),
            entries,
            bytes,
            limit,
        }
    }
}
