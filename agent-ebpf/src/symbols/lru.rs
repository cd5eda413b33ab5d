//! Cache bounded by bytes that evicts what was not used for the longest time.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

struct CacheEntry<V> {
    value: V,
    bytes: usize,
    used_at: u64,
}

/// Cache with a size of each value.
pub(super) struct LruCache<K, V> {
    entries: HashMap<K, CacheEntry<V>>,
    by_use: BTreeMap<u64, K>,
    clock: u64,
    bytes: usize,
    max_bytes: usize,
    evictions: u64,
}

impl<K: Hash + Eq + Clone, V> LruCache<K, V> {
    /// Bytes of an entry beside its value: key and value in both maps.
    const ENTRY_BYTES: usize = 2 * (size_of::<K>() + size_of::<u64>()) + size_of::<CacheEntry<V>>();

    pub(super) fn new(max_bytes: usize) -> Self {
        Self { entries: HashMap::new(), by_use: BTreeMap::new(), clock: 0, bytes: 0, max_bytes, evictions: 0 }
    }

    /// Returns whether there is an entry, which is no use of it.
    pub(super) fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    /// Returns a value and marks it as used.
    pub(super) fn get(&mut self, key: &K) -> Option<&mut V> {
        let entry = self.entries.get_mut(key)?;
        self.by_use.remove(&entry.used_at);
        self.clock += 1;
        entry.used_at = self.clock;
        self.by_use.insert(self.clock, key.clone());
        Some(&mut entry.value)
    }

    /// Inserts a value and evicts others until all fit. A value that exceeds the bound by itself is not kept.
    pub(super) fn insert(&mut self, key: K, value: V, value_bytes: usize) {
        self.remove(&key);
        let bytes = value_bytes.saturating_add(Self::ENTRY_BYTES);
        if bytes > self.max_bytes {
            self.evictions += 1;
            return;
        }
        self.shrink_to(self.max_bytes - bytes);
        self.clock += 1;
        self.bytes += bytes;
        self.by_use.insert(self.clock, key.clone());
        self.entries.insert(key, CacheEntry { value, bytes, used_at: self.clock });
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.by_use.remove(&entry.used_at);
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        Some(entry.value)
    }

    /// Removes all entries whose key is not wanted.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&K) -> bool) {
        let unwanted: Vec<K> = self.entries.keys().filter(|key| !is_wanted(key)).cloned().collect();
        for key in &unwanted {
            self.remove(key);
        }
    }

    /// Changes the bound.
    pub(super) fn set_max_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
        self.shrink_to(max_bytes);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }

    fn shrink_to(&mut self, bytes: usize) {
        while self.bytes > bytes {
            let Some((_, key)) = self.by_use.pop_first() else { return };
            if let Some(entry) = self.entries.remove(&key) {
                self.bytes = self.bytes.saturating_sub(entry.bytes);
            }
            self.evictions += 1;
        }
    }
}
