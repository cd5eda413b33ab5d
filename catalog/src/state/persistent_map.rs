//! Ordered map that is cloned in constant time.
//!
//! ```text
//!  root: Arc<[ chunk, chunk, … ]>     chunk: Arc<[ up to 512 sorted entries ]>
//! ```
//!
//! A clone shares all chunks. The first change after a clone copies the list of chunks, and each change copies
//! its chunk if a clone still shares it. So a snapshot of the catalog stops no command while it is encoded.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Bound, Deref, DerefMut, Index, RangeBounds};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Limit of entries in one chunk. A larger chunk is divided.
const MAX_CHUNK_ENTRIES: usize = 512;
/// Number of entries that two adjacent chunks have together when a removal joins them.
const MAX_JOINED_ENTRIES: usize = MAX_CHUNK_ENTRIES / 2;

type Chunk<K, V> = Arc<Vec<(K, V)>>;

/// Ordered map that is cloned in constant time. Chunks are never empty.
#[derive(Clone)]
pub(in crate::state) struct PersistentMap<K, V> {
    chunks: Arc<Vec<Chunk<K, V>>>,
    len: usize,
}

/// Value that is cloned in constant time. The first change after a clone copies it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::state) struct SharedValue<T>(Arc<T>);

/// Place of a key in the chunks.
struct Position {
    chunk: usize,
    /// Index of the key, or the index where it would be inserted.
    entry: Result<usize, usize>,
}

impl<K: Ord + Clone, V: Clone> PersistentMap<K, V> {
    /// Returns the number of entries.
    pub(in crate::state) fn len(&self) -> usize {
        self.len
    }

    /// Returns the position of a key. A key after all others belongs into the last chunk.
    fn position(&self, key: &K) -> Position {
        let is_before = |chunk: &Chunk<K, V>| chunk.last().is_some_and(|(last, _)| last < key);
        let chunk = self.chunks.partition_point(is_before).min(self.chunks.len().saturating_sub(1));
        let entries = self.chunks.get(chunk).map_or(&[][..], |chunk| chunk.as_slice());
        Position { chunk, entry: entries.binary_search_by(|(other, _)| other.cmp(key)) }
    }

    fn entry(&self, key: &K) -> Option<&(K, V)> {
        let Position { chunk, entry } = self.position(key);
        self.chunks.get(chunk)?.get(entry.ok()?)
    }

    /// Returns the value of a key.
    pub(in crate::state) fn get(&self, key: &K) -> Option<&V> {
        self.entry(key).map(|(_, value)| value)
    }

    /// Returns the stored key that equals a key.
    pub(in crate::state) fn stored_key(&self, key: &K) -> Option<&K> {
        self.entry(key).map(|(stored, _)| stored)
    }

    /// Returns the value of a key for a change.
    pub(in crate::state) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let Position { chunk, entry } = self.position(key);
        let entry = entry.ok()?;
        Some(&mut Arc::make_mut(&mut Arc::make_mut(&mut self.chunks)[chunk])[entry].1)
    }

    /// Returns whether the map has a key.
    pub(in crate::state) fn contains_key(&self, key: &K) -> bool {
        self.entry(key).is_some()
    }

    /// Inserts an entry and returns the earlier value of its key.
    pub(in crate::state) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let Position { chunk: place, entry } = self.position(&key);
        let chunks = Arc::make_mut(&mut self.chunks);
        let is_last = place + 1 >= chunks.len();
        match (chunks.get_mut(place), entry) {
            (Some(chunk), Ok(index)) => {
                return Some(std::mem::replace(&mut Arc::make_mut(chunk)[index].1, value));
            }
            // Keys often ascend. So a full last chunk stays full.
            (Some(chunk), Err(index)) if !(is_last && index >= MAX_CHUNK_ENTRIES) => {
                let entries = Arc::make_mut(chunk);
                entries.insert(index, (key, value));
                if entries.len() > MAX_CHUNK_ENTRIES {
                    let upper_half = entries.split_off(MAX_CHUNK_ENTRIES / 2);
                    chunks.insert(place + 1, Arc::new(upper_half));
                }
            }
            _ => chunks.push(Arc::new(vec![(key, value)])),
        }
        self.len += 1;
        None
    }

    /// Inserts a value unless the key has one.
    pub(in crate::state) fn insert_if_absent(&mut self, key: K, value: impl FnOnce() -> V) {
        if !self.contains_key(&key) {
            self.insert(key, value());
        }
    }

    /// Returns the value of a key for a change. Inserts the default value if there is none.
    pub(in crate::state) fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.insert_if_absent(key.clone(), V::default);
        self.get_mut(&key).expect("the key was inserted")
    }

    /// Removes a key and returns its value.
    pub(in crate::state) fn remove(&mut self, key: &K) -> Option<V> {
        let Position { chunk: place, entry } = self.position(key);
        let entry = entry.ok()?;
        let chunks = Arc::make_mut(&mut self.chunks);
        let entries = Arc::make_mut(&mut chunks[place]);
        let (_, removed) = entries.remove(entry);
        if entries.is_empty() {
            chunks.remove(place);
        } else {
            join_with_neighbor(chunks, place);
        }
        self.len -= 1;
        Some(removed)
    }

    /// Removes the first entry and returns its value.
    pub(in crate::state) fn pop_first(&mut self) -> Option<V> {
        let first = self.keys().next()?.clone();
        self.remove(&first)
    }

    /// Removes the entries for which `is_kept` returns false. Copies no chunk that loses none.
    pub(in crate::state) fn retain(&mut self, mut is_kept: impl FnMut(&K, &V) -> bool) {
        let removed: Vec<K> =
            self.iter().filter(|(key, value)| !is_kept(key, value)).map(|(key, _)| key.clone()).collect();
        for key in &removed {
            self.remove(key);
        }
    }

    /// Iterates over the entries by key.
    pub(in crate::state) fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).map(|(key, value)| (key, value))
    }

    /// Iterates over the keys, ascending.
    pub(in crate::state) fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// Iterates over the values by key.
    pub(in crate::state) fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Iterates over the entries of a range of keys. An inverted range is empty.
    pub(in crate::state) fn range(
        &self,
        keys: impl RangeBounds<K>,
    ) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        let start = keys.start_bound().cloned();
        let end = keys.end_bound().cloned();
        let is_before = move |key: &K| match &start {
            Bound::Included(start) => key < start,
            Bound::Excluded(start) => key <= start,
            Bound::Unbounded => false,
        };
        let is_not_after = move |key: &K| match &end {
            Bound::Included(end) => key <= end,
            Bound::Excluded(end) => key < end,
            Bound::Unbounded => true,
        };
        let first = self.chunks.partition_point(|chunk| chunk.last().is_some_and(|(key, _)| is_before(key)));
        let after =
            self.chunks.partition_point(|chunk| chunk.first().is_some_and(|(key, _)| is_not_after(key)));
        let chunks = self.chunks.get(first..after).unwrap_or_default();
        let entries = chunks.iter().flat_map(move |chunk| {
            let first = chunk.partition_point(|(key, _)| is_before(key));
            let after = chunk.partition_point(|(key, _)| is_not_after(key));
            chunk.get(first..after).unwrap_or_default()
        });
        entries.map(|(key, value)| (key, value))
    }
}

/// Joins a chunk with the one before or after it if both are small. So removals leave no long list of chunks.
fn join_with_neighbor<K: Clone, V: Clone>(chunks: &mut Vec<Chunk<K, V>>, place: usize) {
    let joined_entries = |first: usize| Some(chunks.get(first)?.len() + chunks.get(first + 1)?.len());
    let is_small = |first: &usize| joined_entries(*first).is_some_and(|len| len <= MAX_JOINED_ENTRIES);
    if let Some(first) = [place.saturating_sub(1), place].into_iter().find(is_small) {
        let second = chunks.remove(first + 1);
        Arc::make_mut(&mut chunks[first]).extend(second.iter().cloned());
    }
}

impl<K, V> Default for PersistentMap<K, V> {
    fn default() -> Self {
        Self { chunks: Arc::default(), len: 0 }
    }
}

impl<K: Ord + Clone, V: Clone + PartialEq> PartialEq for PersistentMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<K: Ord + Clone, V: Clone + Eq> Eq for PersistentMap<K, V> {}

impl<K: Ord + Clone + fmt::Debug, V: Clone + fmt::Debug> fmt::Debug for PersistentMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Ord + Clone, V: Clone> Index<&K> for PersistentMap<K, V> {
    type Output = V;

    /// Returns the value of a key. Panics if there is none.
    fn index(&self, key: &K) -> &V {
        self.get(key).expect("the map has the key")
    }
}

impl<K: Ord + Clone, V: Clone> Extend<(K, V)> for PersistentMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for PersistentMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        map.extend(entries);
        map
    }
}

impl<K: Ord + Clone + Serialize, V: Clone + Serialize> Serialize for PersistentMap<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, K, V> Deserialize<'de> for PersistentMap<K, V>
where
    K: Ord + Clone + Deserialize<'de>,
    V: Clone + Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(BTreeMap::deserialize(deserializer)?.into_iter().collect())
    }
}

impl<T> SharedValue<T> {
    /// Returns the value behind its reference count.
    pub(in crate::state) fn as_arc(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T: Clone> SharedValue<T> {
    /// Returns the value itself. Copies it if a clone shares it.
    pub(in crate::state) fn into_inner(self) -> T {
        Arc::unwrap_or_clone(self.0)
    }
}

impl<T> From<T> for SharedValue<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> Deref for SharedValue<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for SharedValue<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T: Serialize> Serialize for SharedValue<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        T::serialize(&self.0, serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for SharedValue<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Change of a map.
    #[derive(Clone, Debug)]
    enum MapChange {
        Insert(u16, u8),
        InsertAscending(u16),
        Remove(u16),
        RemoveRange(u16, u16),
        Update(u16),
    }

    fn any_change() -> impl Strategy<Value = MapChange> {
        prop_oneof![
            6 => (0..4000_u16, any::<u8>()).prop_map(|(key, value)| MapChange::Insert(key, value)),
            1 => (1..1500_u16).prop_map(MapChange::InsertAscending),
            4 => (0..4000_u16).prop_map(MapChange::Remove),
            1 => (0..4000_u16, 0..2000_u16).prop_map(|(first, count)| MapChange::RemoveRange(first, count)),
            2 => (0..4000_u16).prop_map(MapChange::Update),
        ]
    }

    fn apply_change(map: &mut PersistentMap<u16, u8>, model: &mut BTreeMap<u16, u8>, change: &MapChange) {
        match *change {
            MapChange::Insert(key, value) => assert_eq!(map.insert(key, value), model.insert(key, value)),
            MapChange::InsertAscending(count) => {
                let first = model.last_key_value().map_or(0, |(key, _)| key + 1);
                let added = || (first..first.saturating_add(count)).map(|key| (key, 1));
                map.extend(added());
                model.extend(added());
            }
            MapChange::Remove(key) => assert_eq!(map.remove(&key), model.remove(&key)),
            MapChange::RemoveRange(first, count) => {
                let removed = first..first.saturating_add(count);
                map.retain(|key, _| !removed.contains(key));
                model.retain(|key, _| !removed.contains(key));
            }
            MapChange::Update(key) => {
                if let Some(value) = map.get_mut(&key) {
                    *value = value.wrapping_add(1);
                }
                model.entry(key).and_modify(|value| *value = value.wrapping_add(1));
            }
        }
    }

    fn assert_equal(map: &PersistentMap<u16, u8>, model: &BTreeMap<u16, u8>) {
        assert!(map.iter().eq(model.iter()) && map.iter().rev().eq(model.iter().rev()));
        assert_eq!(map.len(), model.len());
        let sizes = map.chunks.iter().map(|chunk| chunk.len());
        assert!(sizes.clone().all(|size| (1..=MAX_CHUNK_ENTRIES).contains(&size)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn map_and_its_clones_equal_a_model(changes in prop::collection::vec(any_change(), 1..120)) {
            let mut map = PersistentMap::default();
            let mut model = BTreeMap::new();
            let mut clones = Vec::new();
            for change in &changes {
                clones.push((map.clone(), model.clone()));
                apply_change(&mut map, &mut model, change);
                assert_equal(&map, &model);
            }
            clones.iter().for_each(|(map, model)| assert_equal(map, model));
        }

        #[test]
        fn range_equals_that_of_a_model(
            count in 0..3000_u16,
            start in 0..6100_u16,
            end in 0..6100_u16,
        ) {
            let model: BTreeMap<u16, u8> = (0..count).map(|key| (key * 2 + 1, 0)).collect();
            let map: PersistentMap<u16, u8> = model.clone().into_iter().collect();
            let expected = || model.iter().filter(|(key, _)| (start..=end).contains(*key));
            prop_assert!(map.range(start..=end).eq(expected()));
            prop_assert!(map.range(start..=end).rev().eq(expected().rev()));
            prop_assert!(map.range(start..).eq(model.range(start..)));
            prop_assert!(map.range(..end).eq(model.range(..end)));
            prop_assert_eq!(map.get(&start), model.get(&start));
        }
    }

    #[test]
    fn removals_leave_few_chunks() {
        let mut map: PersistentMap<u32, u32> = (0..100_000).map(|key| (key, key)).collect();
        assert_eq!(map.chunks.len(), 100_000_usize.div_ceil(MAX_CHUNK_ENTRIES));
        map.retain(|key, _| key % 100 == 0);
        assert!(map.chunks.len() <= 2 * 1000_usize.div_ceil(MAX_JOINED_ENTRIES) + 1, "{}", map.chunks.len());
    }

    #[test]
    fn change_copies_one_chunk_of_a_clone() {
        let map: PersistentMap<u32, u32> = (0..100_000).map(|key| (key, key)).collect();
        let mut changed = map.clone();
        changed.insert(100, 0);
        let is_shared = |place: &usize| Arc::ptr_eq(&map.chunks[*place], &changed.chunks[*place]);
        assert_eq!((0..map.chunks.len()).filter(|place| !is_shared(place)).count(), 1);
    }

    #[test]
    fn encoding_is_that_of_a_map() {
        let model = BTreeMap::from([(3_u32, "three".to_owned()), (1, "one".to_owned())]);
        let map: PersistentMap<u32, SharedValue<String>> =
            model.clone().into_iter().map(|(key, value)| (key, value.into())).collect();
        let bytes = serde_json::to_vec(&map).unwrap();
        assert_eq!(bytes, serde_json::to_vec(&model).unwrap());
        assert_eq!(serde_json::from_slice::<PersistentMap<_, _>>(&bytes).unwrap(), map);
    }
}
