//! The ids of recent records: what makes a repeat known (E10, E11).
//!
//! Time here is the log's own: each entry carries a *stamp*, the one before it and what the leader's monotonic clock
//! saw since. So all members forget the same ids at the same entry, whatever their clocks say, and a failover can
//! only make the window longer.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use athanor_profile::hash::{Hash, Spread};
use athanor_profile::packed::{PackedError, Unpacker, put};

/// The ids of recent records.
#[derive(Debug, Default)]
pub struct Window {
    /// By id, the index of the entry that brought it.
    ids: HashMap<Hash, u64, BuildHasherDefault<Spread>>,
    /// In the order of arrival: stamp, index, id.
    order: VecDeque<(u64, u64, Hash)>,
    /// Forgotten by an entry that may be read again after a restart, from a snapshot before it: that entry's index,
    /// and what it forgot. Without them a repeat between the two would look new then.
    forgotten: VecDeque<(u64, (u64, u64, Hash))>,
    stamp: u64,
    /// What entries up to this index brought can be seen.
    shown: u64,
    /// The longest that any batch wants ids remembered, as it grew: index, span. Ids of all tenants lie here, so the
    /// longest holds for all, whosever batch moves on.
    spans: Vec<(u64, u64)>,
}

impl Window {
    /// The stamp of the last entry, nanoseconds.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }
    /// How many ids are held.
    pub fn len(&self) -> usize {
        self.order.len()
    }
    /// Whether an id is known.
    pub fn knows(&self, id: Hash) -> bool {
        self.ids.contains_key(&id)
    }
    /// Whether what an id belongs to can be seen already.
    pub fn shows(&self, id: Hash) -> bool {
        self.ids.get(&id).is_some_and(|&index| index <= self.shown)
    }
    /// What the entry at `index` brought can be seen from now on.
    pub fn show(&mut self, index: u64) {
        self.shown = self.shown.max(index);
    }
    /// Moves to the stamp of the entry at `index` and forgets what is older than the longest span before it.
    pub fn advance(&mut self, index: u64, stamp: u64, span: u64) {
        self.stamp = self.stamp.max(stamp);
        if span > self.span(u64::MAX) {
            self.spans.push((index, span));
        }
        let oldest = self.stamp.saturating_sub(self.span(u64::MAX));
        while self.order.front().is_some_and(|&(stamp, ..)| stamp < oldest) {
            if let Some(old) = self.order.pop_front() {
                self.ids.remove(&old.2);
                self.forgotten.push_back((index, old));
            }
        }
    }
    /// How long ids were remembered after the entry at an index.
    fn span(&self, index: u64) -> u64 {
        self.spans.iter().rev().find(|(since, _)| *since <= index).map_or(0, |(_, span)| *span)
    }
    /// No snapshot will be labelled before this index any more.
    pub fn settle(&mut self, cut: u64) {
        let settled = self.forgotten.partition_point(|&(index, _)| index <= cut);
        self.forgotten.drain(..settled);
    }
    /// Takes an id in; false if it was there: a repeat.
    pub fn admit(&mut self, index: u64, id: Hash) -> bool {
        let new = self.ids.try_insert_new(id, index);
        if new {
            self.order.push_back((self.stamp, index, id));
        }
        new
    }
    /// Takes the ids of an entry's uploads in; for each whether it is new.
    pub fn admit_all(&mut self, index: u64, uploads: &[Vec<Hash>]) -> Vec<Vec<bool>> {
        uploads.iter().map(|ids| ids.iter().map(|&id| self.admit(index, id)).collect()).collect()
    }
    /// The ids that were known after the entry at an index, with their ages, for a snapshot labelled with it (E9).
    pub fn write(&self, to: u64, out: &mut Vec<u8>) {
        let forgotten = self.forgotten.iter().filter(|&&(by, _)| by > to).map(|(_, old)| old);
        let known = || forgotten.clone().chain(&self.order).take_while(|&&(_, index, _)| index <= to);
        put(out, known().last().map_or(0, |&(stamp, ..)| stamp));
        put(out, self.span(to));
        put(out, known().count() as u64);
        let mut before = 0;
        for &(stamp, index, id) in known() {
            put(out, stamp - before);
            put(out, index);
            out.extend_from_slice(&id.to_le_bytes());
            before = stamp;
        }
    }
    /// What [`write`](Self::write) wrote.
    pub fn read(unpacker: &mut Unpacker<'_>) -> Result<Self, PackedError> {
        let (stamp, span) = (unpacker.number()?, unpacker.number()?);
        let mut window = Self { stamp, spans: vec![(0, span)], ..Self::default() };
        let mut stamp = 0u64;
        for _ in 0..unpacker.count()? {
            let wrong = unpacker.wrong("a stamp over 64 bits");
            stamp = stamp.checked_add(unpacker.number()?).ok_or(wrong)?;
            let index = unpacker.number()?;
            let mut id = [0; 16];
            id.copy_from_slice(unpacker.take(16)?);
            let id = Hash::from_le_bytes(id);
            window.ids.insert(id, index);
            window.show(index);
            window.order.push_back((stamp, index, id));
        }
        Ok(window)
    }
}

trait TryInsertNew {
    fn try_insert_new(&mut self, id: Hash, index: u64) -> bool;
}

impl TryInsertNew for HashMap<Hash, u64, BuildHasherDefault<Spread>> {
    fn try_insert_new(&mut self, id: Hash, index: u64) -> bool {
        match self.entry(id) {
            std::collections::hash_map::Entry::Occupied(_) => false,
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(index);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeat_is_known_until_its_stamp_is_old() {
        let mut window = Window::default();
        window.advance(1, 100, 50);
        assert!(window.admit(1, 7) && !window.admit(2, 7) && !window.shows(7));
        window.show(1);
        assert!(window.shows(7) && !window.shows(8));
        window.advance(3, 150, 50);
        assert!(window.knows(7) && !window.admit(3, 7));
        window.advance(4, 151, 50);
        assert!(!window.knows(7) && window.admit(4, 7));
        window.advance(5, 10, 50);
        assert_eq!(window.stamp(), 151, "stamps never go back");
        window.advance(6, 152, 200);
        window.advance(7, 250, 50);
        assert!(window.knows(7), "the longest span holds for all");
    }

    #[test]
    fn a_snapshot_holds_the_ids_up_to_its_label() {
        let mut window = Window::default();
        for index in 1..=5 {
            window.advance(index, index * 10, 1000);
            window.admit(index, Hash::from(index));
        }
        let mut out = Vec::new();
        window.write(3, &mut out);
        let read = Window::read(&mut Unpacker::new(&out)).unwrap();
        assert_eq!((read.len(), read.stamp(), read.shows(3), read.knows(4)), (3, 30, true, false));
        for cut in 0..out.len() {
            assert!(Window::read(&mut Unpacker::new(&out[..cut])).is_err());
        }
    }

    #[test]
    fn a_snapshot_knows_what_later_entries_forgot() {
        let mut window = Window::default();
        window.advance(1, 10, 50);
        window.admit(1, 7);
        // Entry 2 was told of a repeat, entry 3 came too late for that.
        window.advance(2, 60, 50);
        assert!(!window.admit(2, 7));
        window.advance(3, 61, 50);
        assert!(!window.knows(7));
        let snapshot = |window: &Window| {
            let mut out = Vec::new();
            window.write(1, &mut out);
            Window::read(&mut Unpacker::new(&out)).unwrap()
        };
        let mut again = snapshot(&window);
        again.advance(2, 60, 50);
        assert!(!again.admit(2, 7), "read again, entry 2 says the same");
        again.advance(3, 61, 50);
        assert!(!again.knows(7));
        window.settle(2);
        assert!(snapshot(&window).knows(7));
        window.settle(3);
        assert_eq!(snapshot(&window).len(), 0);
    }
}
