//! Detection of profile IDs that occur more than once in one tenant's rows, in any series.
//!
//! An ID hashes the labels as sent, a series has labels after relabeling. So a retry after a change of the
//! label rules has the ID of the first copy but another series.

use athanor_profile::encoding::hash::{ContentHash, PrehashedSet};

/// Duplicate IDs of one tenant. The first copy that the caller takes is kept [INV-20]. Memory: 8 bytes per row
/// while IDs are compared, then one entry per duplicate ID.
#[derive(Default)]
pub(crate) struct DuplicateIds {
    /// Prefixes that occur more than once. Different IDs rarely share one.
    prefixes: PrehashedSet<u64>,
    /// IDs with such a prefix of which a copy was taken.
    taken: PrehashedSet<ContentHash>,
}

impl DuplicateIds {
    /// Finds candidates from the prefixes of all IDs.
    pub(crate) fn from_prefixes(mut prefixes: Vec<u64>) -> Self {
        prefixes.sort_unstable();
        let pairs = prefixes.windows(2).filter(|pair| pair[0] == pair[1]);
        DuplicateIds { prefixes: pairs.map(|pair| pair[0]).collect(), taken: PrehashedSet::default() }
    }

    /// Returns the part of an ID by which candidates are found.
    pub(crate) fn prefix(id: ContentHash) -> u64 {
        id as u64
    }

    /// Returns whether any of the IDs occurs twice.
    pub(crate) fn has_any(ids: impl Iterator<Item = ContentHash> + Clone) -> bool {
        let mut duplicates = DuplicateIds::from_prefixes(ids.clone().map(DuplicateIds::prefix).collect());
        !duplicates.is_empty() && !{ ids }.all(|id| duplicates.take_first(id))
    }

    /// Returns whether there are no duplicates.
    pub(crate) fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// Takes a row. Returns true for the first copy of an ID and false for all others.
    pub(crate) fn take_first(&mut self, id: ContentHash) -> bool {
        !self.prefixes.contains(&DuplicateIds::prefix(id)) || self.taken.insert(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_copy_of_each_id_is_kept() {
        let other_with_same_prefix = 3 | 1 << 64;
        let ids = [5u128, 3, 3, other_with_same_prefix, 7, 5];
        let mut duplicates = DuplicateIds::from_prefixes(ids.map(DuplicateIds::prefix).to_vec());
        assert_eq!(ids.map(|id| duplicates.take_first(id)), [true, true, false, true, true, false]);
        assert!(DuplicateIds::has_any(ids.into_iter()));
        assert!(!DuplicateIds::has_any([3, other_with_same_prefix].into_iter()));
    }
}
