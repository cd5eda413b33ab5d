//! Profile ids that occur more than once in one tenant's rows, in whatever series.
//!
//! An id hashes labels as sent, a series has labels after relabeling. So a retry that arrives after the label rules changed
//! has the id of the first copy and another series.

use athanor_profile::hash::{ContentHash, PrehashedMap};
use athanor_profile::series::ProfileRow;

/// Duplicate ids with the copy of each that is kept: the least by series and time, so that the result does not depend on
/// the order of the inputs. Memory: 16 bytes for each row while ids are compared, then an entry for each duplicate id.
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
    /// Finds the ids that occur twice or more in all rows together.
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

    /// Returns whether each id occurs once.
    pub(crate) fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// Returns whether the row belongs to the series that keeps its id.
    pub(crate) fn is_kept(&self, row: &ProfileRow) -> bool {
        self.copies.get(&row.id).is_none_or(|copy| (copy.series, copy.time) == (row.series, row.time))
    }

    /// Returns whether the row is to be written: true once for each id.
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
