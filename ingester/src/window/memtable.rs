//! Memtable of a dedup window: the youngest ids, about 27 bytes each.

use std::collections::VecDeque;

use athanor_profile::encoding::hash::ContentHash;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// IDs in the order of their arrival. An id that arrived a second time after it expired has two places, and
/// the latest one counts.
#[derive(Debug, Default)]
pub struct RecentIds {
    ids: VecDeque<ContentHash>,
    arrivals: VecDeque<EntryIds>,
    /// Number of ids that were removed from the front.
    gone: u64,
    /// Places of latest arrivals, counted from the first id ever inserted, in 32 bits.
    table: HashTable<u32>,
}

/// Entry that inserted ids, and the place of the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryIds {
    /// Log index of the entry.
    pub index: u64,
    /// Log time of the entry, nanoseconds.
    pub stamp: u64,
    /// Place of the first of its ids.
    first: u64,
}

fn spread(id: ContentHash) -> u64 {
    id as u64 ^ (id >> 64) as u64
}

impl RecentIds {
    /// Returns the number of ids.
    pub fn len(&self) -> usize {
        self.ids.len()
    }
    /// Returns the latest arrival of an id.
    pub fn find(&self, id: ContentHash) -> Option<EntryIds> {
        let at = |place: &u32| self.ids.get(place.wrapping_sub(self.gone as u32) as usize);
        let place = *self.table.find(spread(id), |place| at(place) == Some(&id))?;
        let place = self.gone + u64::from(place.wrapping_sub(self.gone as u32));
        let after = self.arrivals.partition_point(|arrival| arrival.first <= place);
        self.arrivals.get(after.checked_sub(1)?).copied()
    }
    /// Appends an id of an entry, which is not before the last one.
    pub fn push(&mut self, index: u64, stamp: u64, id: ContentHash) {
        let Self { ids, arrivals, gone, table } = self;
        let place = *gone + ids.len() as u64;
        if arrivals.back().is_none_or(|last| last.index != index) {
            arrivals.push_back(EntryIds { index, stamp, first: place });
        }
        let base = *gone as u32;
        let at = |place: &u32| ids[place.wrapping_sub(base) as usize];
        match table.entry(spread(id), |place| at(place) == id, |place| spread(at(place))) {
            Entry::Occupied(mut known) => *known.get_mut() = place as u32,
            Entry::Vacant(free) => {
                free.insert(place as u32);
            }
        }
        ids.push_back(id);
    }
    /// Iterates over entries and their ids, oldest first.
    pub fn arrivals(&self) -> impl Iterator<Item = (EntryIds, impl Iterator<Item = ContentHash>)> {
        (0..self.arrivals.len()).map(|place| {
            let end =
                self.arrivals.get(place + 1).map_or(self.ids.len(), |next| (next.first - self.gone) as usize);
            let arrival = self.arrivals[place];
            let begin = (arrival.first.max(self.gone) - self.gone) as usize;
            (arrival, self.ids.range(begin..end).copied())
        })
    }
    /// Counts the ids of entries up to an index.
    pub fn count(&self, to: u64) -> usize {
        let after = self.arrivals.partition_point(|arrival| arrival.index <= to);
        self.arrivals.get(after).map_or(self.ids.len(), |next| (next.first - self.gone) as usize)
    }
    /// Returns the entry of the oldest id.
    pub fn oldest(&self) -> Option<EntryIds> {
        self.arrivals.front().copied()
    }
    /// Removes the oldest id from memory.
    pub fn pop(&mut self) {
        let Some(id) = self.ids.pop_front() else { return };
        let place = self.gone as u32;
        if let Ok(found) = self.table.find_entry(spread(id), |&other| other == place) {
            found.remove();
        }
        self.gone += 1;
        if self.arrivals.get(1).map_or(self.ids.is_empty(), |next| next.first <= self.gone) {
            self.arrivals.pop_front();
        }
    }
    /// Frees memory that is not needed any more.
    pub fn shrink(&mut self) {
        if self.ids.capacity() > 1 << 16 && self.ids.capacity() / 4 > self.ids.len() {
            let Self { ids, gone, table, .. } = self;
            ids.shrink_to(ids.len() * 2);
            let base = *gone as u32;
            table.shrink_to(ids.len() * 2, |place| spread(ids[place.wrapping_sub(base) as usize]));
        }
    }
}
