//! Statistics of caches: entries, bytes, hits and misses.

use std::sync::atomic::{AtomicU64, Ordering};

/// Contents of a cache and counts of its lookups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups that found an entry.
    pub hits: u64,
    /// Lookups that found no entry.
    pub misses: u64,
    /// Entries that were evicted for other entries.
    pub evicted: u64,
    /// Entries that failed verification.
    pub damaged: u64,
    /// Current number of entries.
    pub entries: u64,
    /// Current bytes of all entries.
    pub bytes: u64,
    /// Maximum bytes of all entries.
    pub limit: u64,
}

/// Counters of cache events.
#[derive(Debug, Default)]
pub struct CacheCounters {
    /// Count of hits. The fields have the meaning of those in [`CacheStats`].
    pub hits: EventCounter,
    pub misses: EventCounter,
    pub evicted: EventCounter,
    pub damaged: EventCounter,
}

/// Monotonic event counter.
#[derive(Debug, Default)]
pub struct EventCounter(AtomicU64);

impl EventCounter {
    /// Adds one to the counter.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `more` to the counter.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns the current count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl CacheCounters {
    /// Returns statistics with the current counts and the given contents.
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
