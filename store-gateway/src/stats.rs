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
pub struct CacheCounters {
    /// See [`CacheStats`], as for the others.
    pub hits: EventCounter,
    pub misses: EventCounter,
    pub evicted: EventCounter,
    pub damaged: EventCounter,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct EventCounter(AtomicU64);

impl EventCounter {
    /// One more.
    pub fn increment(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// How many by now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl CacheCounters {
    /// As they are now, of a cache that holds so much.
    pub fn stats(&self, entries: u64, bytes: u64, limit: u64) -> CacheStats {
        let CacheCounters { hits, misses, evicted, damaged } = self;
        CacheStats {
            hits: hits.get(),
            misses: misses.get(),
            evicted: evicted.get(),
            damaged: damaged.get(),
            entries,
            bytes,
            limit,
        }
    }
}
