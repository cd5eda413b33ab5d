//! Index from the ids in a file to positions in its tables.

use super::DecodeError;
use crate::encoding::hash::vec_memory;

const ABSENT_POSITION: u32 = u32::MAX;

/// Positions of one table's entries by id.
#[derive(Default)]
pub(super) struct IdIndex {
    form: IdIndexKind,
    length: usize,
    /// Position of each id, if ids are small numbers.
    table: Vec<u32>,
    /// Ids and positions in id order, if ids are not small. A sorted list resists senders that choose
    /// colliding ids, which a hash table does not.
    sorted: Vec<(u64, u32)>,
}

#[derive(Default, Clone, Copy)]
enum IdIndexKind {
    /// Ids 1, 2, 3 …: the id gives the position.
    #[default]
    Dense,
    Table,
    Sorted,
}

impl IdIndex {
    /// Indexes the ids of a table, in table order.
    pub(super) fn build(
        &mut self,
        what: &'static str,
        ids: impl ExactSizeIterator<Item = u64> + Clone,
    ) -> Result<(), DecodeError> {
        self.length = ids.len();
        self.form = IdIndexKind::Dense;
        if ids.clone().enumerate().all(|(at, id)| id == at as u64 + 1) {
            return Ok(());
        }
        if let Some(at) = ids.clone().position(|id| id == 0) {
            return Err(DecodeError::IdZero { what, at });
        }
        let largest = ids.clone().max().unwrap_or_default();
        if largest / 4 <= self.length as u64 {
            self.build_table(what, largest as usize, ids)
        } else {
            self.build_sorted(what, ids)
        }
    }

    fn build_table(
        &mut self,
        what: &'static str,
        largest: usize,
        ids: impl Iterator<Item = u64>,
    ) -> Result<(), DecodeError> {
        self.form = IdIndexKind::Table;
        self.table.clear();
        self.table.resize(largest, ABSENT_POSITION);
        for (at, id) in (0..).zip(ids) {
            let place = &mut self.table[id as usize - 1];
            if *place != ABSENT_POSITION {
                return Err(DecodeError::IdTwice { what, id });
            }
            *place = at;
        }
        Ok(())
    }

    fn build_sorted(
        &mut self,
        what: &'static str,
        ids: impl Iterator<Item = u64>,
    ) -> Result<(), DecodeError> {
        self.form = IdIndexKind::Sorted;
        self.sorted.clear();
        self.sorted.extend(ids.zip(0..));
        self.sorted.sort_unstable();
        match self.sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(DecodeError::IdTwice { what, id: pair[0].0 }),
            None => Ok(()),
        }
    }

    /// Returns the allocated bytes.
    pub(super) fn memory(&self) -> usize {
        vec_memory(&self.table) + vec_memory(&self.sorted)
    }

    /// Returns the position of an id.
    #[inline(always)]
    pub(super) fn position(&self, id: u64) -> Option<usize> {
        match self.form {
            IdIndexKind::Dense => (id.wrapping_sub(1) < self.length as u64).then(|| id as usize - 1),
            _ => self.find_position(id),
        }
    }

    fn find_position(&self, id: u64) -> Option<usize> {
        let place = match self.form {
            IdIndexKind::Table => *self.table.get(usize::try_from(id.wrapping_sub(1)).ok()?)?,
            _ => self.sorted[self.sorted.binary_search_by_key(&id, |entry| entry.0).ok()?].1,
        };
        (place != ABSENT_POSITION).then_some(place as usize)
    }
}
