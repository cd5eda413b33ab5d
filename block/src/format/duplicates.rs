//! Detection of profile IDs that occur more than once in one tenant's rows, in any series.
//!
//! An ID hashes the labels as sent, a series has labels after relabeling. So a retry after a change of the
//! label rules has the ID of the first copy but another series.

use athanor_profile::encoding::hash::{ContentHash, PrehashedMap};
use athanor_profile::store_interface::series::ProfileRow;

/// Duplicate IDs, each with the copy to keep: the least by series and time, so the result does not depend on
/// the order of inputs. Memory: 16 bytes per row while IDs are compared, then one entry per duplicate ID.
#[derive(Default)]
pub(crate) struct DuplicateIds {
    copies: PrehashedMap<ContentHash, KeptCopy>,
}

struct KeptCopy {
    series: u32,
    time: i64,
    is_taken: bool,
}

impl DuplicateIds {
    /// Finds the IDs that occur more than once in all rows.
    pub(crate) fn find<'r>(rows: impl Iterator<Item = &'r ProfileRow> + Clone) -> Self {
        let mut ids: Vec<ContentHash> = rows.clone().map(|row| row.id).collect();
        ids.sort_unstable();
        let mut copies: PrehashedMap<ContentHash, KeptCopy> = PrehashedMap::default();
        for pair in ids.windows(2).filter(|pair| pair[0] == pair[1]) {
            copies.insert(pair[0], KeptCopy { series: u32::MAX, time: i64::MAX, is_taken: false });
        }
        drop(ids);
        if copies.is_empty() {
            return DuplicateIds::default();
        }
        for row in rows {
            if let Some(copy) = copies.get_mut(&row.id) {
                (copy.series, copy.time) = (copy.series, copy.time).min((row.series, row.time));
            }
        }
        DuplicateIds { copies }
    }

    /// Returns whether there are no duplicates.
    pub(crate) fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// Returns whether the row is a kept copy by series and time.
    pub(crate) fn is_kept(&self, row: &ProfileRow) -> bool {
        self.copies.get(&row.id).is_none_or(|copy| (copy.series, copy.time) == (row.series, row.time))
    }

    /// Returns whether to write the row. Returns true for exactly one copy per ID.
    pub(crate) fn take_kept(&mut self, row: &ProfileRow) -> bool {
        match self.copies.get_mut(&row.id) {
            None => true,
            Some(copy) => {
                let is_kept = (copy.series, copy.time) == (row.series, row.time) && !copy.is_taken;
                copy.is_taken |= is_kept;
                is_kept
            }
        }
    }
}
