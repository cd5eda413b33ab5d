//! Dedup of profiles that exist in two places: found by their ids, and counted in one place.
//!
//! A duplicate that its shard no longer recognizes, or that another shard received, is a profile in a second
//! place until blocks are merged. So if two places may hold profiles of the same time, each reports the ids
//! of its selected profiles beside its result. If a profile exists in several places, the query is retried,
//! and all but the first exclude it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use athanor_profile::encoding::hash::ContentHash;

/// Place where profiles are stored. Heads sort first, so they count the profiles that blocks exclude. The
/// result of a block is repeatable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceId {
    /// Rows of a shard in memory, in one of its heads.
    Head {
        /// Shard of the head.
        shard: u32,
        /// Index of the head, oldest first.
        n: u32,
    },
    /// Block, by its number.
    Block(u128),
}

/// Ids of the selected profiles by place, including excluded ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileIdsBySource(BTreeMap<SourceId, Vec<ContentHash>>);

/// Profiles that do not count in a place.
pub type ExcludedIds = Arc<BTreeSet<ContentHash>>;

/// Exclusions by place: profiles that do not count there, because they count elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DuplicateExclusions(BTreeMap<SourceId, ExcludedIds>);

/// Memory of one id in a list.
const PROFILE_ID_BYTES: usize = size_of::<ContentHash>();
/// Memory of an id list beside its ids.
const ID_LIST_OVERHEAD_BYTES: usize = 128;

impl ProfileIdsBySource {
    /// Returns the ids of one place.
    pub fn from_source(place: SourceId, mut ids: Vec<ContentHash>) -> Self {
        ids.sort_unstable();
        ids.dedup();
        ProfileIdsBySource(BTreeMap::from([(place, ids)]))
    }

    /// Returns the ids by place.
    pub fn by_source(&self) -> &BTreeMap<SourceId, Vec<ContentHash>> {
        &self.0
    }

    /// Adds ids of other places, or of other tenants in the same place.
    pub(crate) fn merge(&mut self, other: ProfileIdsBySource) {
        for (place, mut ids) in other.0 {
            self.0.entry(place).or_default().append(&mut ids);
        }
    }

    /// Returns the approximate memory in bytes.
    pub fn bytes(&self) -> usize {
        self.0.values().map(|ids| Self::list_bytes(ids.len())).sum()
    }

    /// Returns the memory of a list of `count` ids.
    pub(crate) fn list_bytes(count: usize) -> usize {
        ID_LIST_OVERHEAD_BYTES + count * PROFILE_ID_BYTES
    }

    /// Checks that each profile counted in exactly one place, given the exclusions of the query. Otherwise
    /// returns the exclusions for a retry.
    pub fn check_counted_once(&self, doubles: &DuplicateExclusions) -> Result<(), DuplicateExclusions> {
        let counting = self.0.values().filter(|ids| !ids.is_empty()).count();
        if counting < 2 && doubles.is_empty() {
            return Ok(());
        }
        let mut counted = Vec::with_capacity(self.0.values().map(Vec::len).sum());
        let mut others = Vec::new();
        for (place, ids) in &self.0 {
            match doubles.excluded_from(*place) {
                None => counted.extend_from_slice(ids),
                Some(without) => {
                    let (left, counts): (Vec<ContentHash>, Vec<ContentHash>) =
                        ids.iter().partition(|id| without.contains(*id));
                    counted.extend(counts);
                    others.extend(left);
                }
            }
        }
        // The ids of each place are already sorted.
        counted.sort();
        let twice = counted.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        let nowhere = others.iter().copied().filter(|id| counted.binary_search(id).is_err());
        let doubtful: BTreeSet<ContentHash> = twice.chain(nowhere).collect();
        if doubtful.is_empty() {
            return Ok(());
        }
        Err(self.assign_exclusions(&doubtful, doubles))
    }

    /// Returns exclusions by which each doubtful profile counts in its first place. Other profiles count
    /// where they did.
    fn assign_exclusions(
        &self,
        doubtful: &BTreeSet<ContentHash>,
        before: &DuplicateExclusions,
    ) -> DuplicateExclusions {
        let mut all: BTreeMap<SourceId, BTreeSet<ContentHash>> = BTreeMap::new();
        // Places that did not report now may have changed, so their exclusions are dropped.
        for (place, without) in before.0.iter().filter(|(place, _)| self.0.contains_key(place)) {
            all.insert(*place, without.difference(doubtful).copied().collect());
        }
        let mut counted = BTreeSet::new();
        for (place, ids) in &self.0 {
            for id in ids.iter().filter(|id| doubtful.contains(*id)) {
                if !counted.insert(*id) {
                    all.entry(*place).or_default().insert(*id);
                }
            }
        }
        all.retain(|_, without| !without.is_empty());
        DuplicateExclusions(all.into_iter().map(|(place, without)| (place, Arc::new(without))).collect())
    }
}

impl FromIterator<(SourceId, Vec<ContentHash>)> for ProfileIdsBySource {
    fn from_iter<I: IntoIterator<Item = (SourceId, Vec<ContentHash>)>>(all: I) -> Self {
        ProfileIdsBySource(all.into_iter().collect())
    }
}

impl FromIterator<(SourceId, ExcludedIds)> for DuplicateExclusions {
    fn from_iter<I: IntoIterator<Item = (SourceId, ExcludedIds)>>(all: I) -> Self {
        DuplicateExclusions(all.into_iter().collect())
    }
}

impl DuplicateExclusions {
    /// Returns the exclusions of a place. None if everything counts there.
    pub fn excluded_from(&self, place: SourceId) -> Option<&ExcludedIds> {
        self.0.get(&place)
    }

    /// Returns the exclusions of a shard's heads, by head index.
    pub fn excluded_from_heads(&self, shard: u32) -> impl Iterator<Item = (u32, &ExcludedIds)> {
        let heads = SourceId::Head { shard, n: 0 }..=SourceId::Head { shard, n: u32::MAX };
        self.0.range(heads).filter_map(|(place, without)| match place {
            SourceId::Head { n, .. } => Some((*n, without)),
            SourceId::Block(_) => None,
        })
    }

    /// Returns true if no place excludes anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns how many of the given ids are excluded somewhere.
    pub fn count_excluded_of(&self, ids: &ProfileIdsBySource) -> usize {
        let of_place = |(place, without): (&SourceId, &ExcludedIds)| {
            let told = ids.0.get(place).map_or(&[][..], Vec::as_slice);
            told.iter().filter(|id| without.contains(*id)).count()
        };
        self.0.iter().map(of_place).sum()
    }

    /// Returns the number of exclusions of all places.
    pub fn count_excluded(&self) -> usize {
        self.0.values().map(|without| without.len()).sum()
    }

    /// Adds the exclusions of a later query. They override earlier exclusions of the same profiles.
    pub fn merge_newer(&mut self, newer: &DuplicateExclusions) {
        let told: BTreeSet<ContentHash> =
            newer.0.values().flat_map(|without| without.iter().copied()).collect();
        for without in self.0.values_mut().filter(|without| !without.is_disjoint(&told)) {
            *without = Arc::new(without.difference(&told).copied().collect());
        }
        for (place, without) in &newer.0 {
            let known = self.0.entry(*place).or_default();
            *known = Arc::new(known.union(without).copied().collect());
        }
        self.0.retain(|_, without| !without.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(all: &[&[ContentHash]]) -> ProfileIdsBySource {
        (0..).zip(all).map(|(n, ids)| (SourceId::Block(n), ids.to_vec())).collect()
    }

    /// Of each id, in how many places it counts.
    fn counts(ids: &ProfileIdsBySource, doubles: &DuplicateExclusions) -> BTreeMap<ContentHash, usize> {
        let mut counts = BTreeMap::new();
        for (place, of_place) in ids.by_source() {
            for id in of_place {
                let counted = doubles.excluded_from(*place).is_none_or(|without| !without.contains(id));
                *counts.entry(*id).or_default() += usize::from(counted);
            }
        }
        counts
    }

    #[test]
    fn what_lies_in_one_place_is_left_out_nowhere() {
        assert_eq!(ids(&[&[1, 2], &[3], &[]]).check_counted_once(&DuplicateExclusions::default()), Ok(()));
        assert_eq!(ProfileIdsBySource::default().check_counted_once(&DuplicateExclusions::default()), Ok(()));
    }

    #[test]
    fn heads_count_what_blocks_leave_out() {
        let (head, block) = (SourceId::Head { shard: 9, n: 0 }, SourceId::Block(1));
        let both: ProfileIdsBySource = [(block, vec![7, 8]), (head, vec![6, 7])].into_iter().collect();
        let doubles = both.check_counted_once(&DuplicateExclusions::default()).unwrap_err();
        assert_eq!((doubles.excluded_from(head), doubles.count_excluded()), (None, 1));
        assert!(doubles.excluded_from(block).unwrap().contains(&7));
        assert_eq!(both.check_counted_once(&doubles), Ok(()));
        // The other place is gone since: nobody else counts it.
        let alone = ids(&[&[], &[7, 8]]);
        assert_eq!(alone.check_counted_once(&doubles), Err(DuplicateExclusions::default()));
    }

    #[test]
    fn what_is_newer_is_believed() {
        let mut known =
            ids(&[&[1, 2], &[1, 2]]).check_counted_once(&DuplicateExclusions::default()).unwrap_err();
        // The first block counts 1 no more, so that the second one must.
        let newer =
            DuplicateExclusions(BTreeMap::from([(SourceId::Block(0), Arc::new(BTreeSet::from([1])))]));
        known.merge_newer(&newer);
        assert_eq!(known.excluded_from(SourceId::Block(0)).unwrap().iter().collect::<Vec<_>>(), [&1]);
        assert_eq!(known.excluded_from(SourceId::Block(1)).unwrap().iter().collect::<Vec<_>>(), [&2]);
    }

    fn sets() -> impl Strategy<Value = Vec<BTreeSet<ContentHash>>> {
        prop::collection::vec(prop::collection::btree_set(0u128..12, 0..8), 0..5)
    }

    proptest! {
        /// Whatever was thought before, the next answer counts each profile once.
        #[test]
        fn all_count_once(sets in sets(), thought in sets()) {
            let ids: ProfileIdsBySource =
                (0..).zip(&sets).map(|(n, set)| (SourceId::Block(n), set.iter().copied().collect())).collect();
            let thought = DuplicateExclusions(
                (0..).zip(thought).map(|(n, set)| (SourceId::Block(n), Arc::new(set))).collect(),
            );
            let doubles = match ids.check_counted_once(&thought) {
                Ok(()) => thought,
                Err(better) => better,
            };
            prop_assert!(counts(&ids, &doubles).values().all(|count| *count == 1));
            prop_assert_eq!(ids.check_counted_once(&doubles), Ok(()));
        }
    }
}
