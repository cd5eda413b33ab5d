//! Profiles that lie in two places: found by their ids, and counted in one of them.
//!
//! A repeat that its shard no longer knows, or that came to another shard, is a profile in a second place until blocks are
//! merged. So wherever two places may hold profiles of one moment, each says which profiles it has of those that are meant,
//! beside its answer. Where one lies in several, the question is asked again: all but the first of them leave it out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use athanor_profile::hash::Hash;

/// Where profiles lie. Heads come first: they count what blocks leave out, since a block answers the same again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Rows of a shard that are in memory: of the n-th of its heads, the oldest first.
    Head {
        /// The shard.
        shard: u32,
        /// Which of its heads.
        n: u32,
    },
    /// A block, by its number.
    Block(u128),
}

/// The ids of the profiles that were meant, by where they lie: those that were left out as well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids(BTreeMap<Place, Vec<Hash>>);

/// The profiles that do not count in a place.
pub type Without = Arc<BTreeSet<Hash>>;

/// Which profiles do not count where, since they count elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubles(BTreeMap<Place, Without>);

/// What ids take, beside the list that they are in.
const ID: usize = size_of::<Hash>();
/// What a list of them takes.
const LIST: usize = 128;

impl Ids {
    /// Of one place.
    pub fn of(place: Place, mut ids: Vec<Hash>) -> Self {
        ids.sort_unstable();
        ids.dedup();
        Ids(BTreeMap::from([(place, ids)]))
    }

    /// By place.
    pub fn places(&self) -> &BTreeMap<Place, Vec<Hash>> {
        &self.0
    }

    /// Adds those of other places, or of other tenants in the same one.
    pub(crate) fn merge(&mut self, other: Ids) {
        for (place, mut ids) in other.0 {
            self.0.entry(place).or_default().append(&mut ids);
        }
    }

    /// About how many bytes they take.
    pub fn bytes(&self) -> usize {
        self.0.values().map(|ids| Self::bytes_of(ids.len())).sum()
    }

    /// What a list of so many takes.
    pub(crate) fn bytes_of(count: usize) -> usize {
        LIST + count * ID
    }

    /// Whether each profile counted in one place, of those that were left out where this says; else what is to be left out.
    pub fn once(&self, doubles: &Doubles) -> Result<(), Doubles> {
        let counting = self.0.values().filter(|ids| !ids.is_empty()).count();
        if counting < 2 && doubles.is_empty() {
            return Ok(());
        }
        let mut counted = Vec::with_capacity(self.0.values().map(Vec::len).sum());
        let mut others = Vec::new();
        for (place, ids) in &self.0 {
            match doubles.at(*place) {
                None => counted.extend_from_slice(ids),
                Some(without) => {
                    let (left, counts): (Vec<Hash>, Vec<Hash>) =
                        ids.iter().partition(|id| without.contains(*id));
                    counted.extend(counts);
                    others.extend(left);
                }
            }
        }
        // Those of each place are in order.
        counted.sort();
        let twice = counted.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        let nowhere = others.iter().copied().filter(|id| counted.binary_search(id).is_err());
        let doubtful: BTreeSet<Hash> = twice.chain(nowhere).collect();
        if doubtful.is_empty() {
            return Ok(());
        }
        Err(self.leave_out(&doubtful, doubles))
    }

    /// Of some profiles each counts in the first of its places, of the others each where it did.
    fn leave_out(&self, doubtful: &BTreeSet<Hash>, before: &Doubles) -> Doubles {
        let mut all: BTreeMap<Place, BTreeSet<Hash>> = BTreeMap::new();
        // Of what was thought of other places nothing is known now.
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
        Doubles(all.into_iter().map(|(place, without)| (place, Arc::new(without))).collect())
    }
}

impl FromIterator<(Place, Vec<Hash>)> for Ids {
    fn from_iter<I: IntoIterator<Item = (Place, Vec<Hash>)>>(all: I) -> Self {
        Ids(all.into_iter().collect())
    }
}

impl FromIterator<(Place, Without)> for Doubles {
    fn from_iter<I: IntoIterator<Item = (Place, Without)>>(all: I) -> Self {
        Doubles(all.into_iter().collect())
    }
}

impl Doubles {
    /// What does not count in a place; none if all does.
    pub fn at(&self, place: Place) -> Option<&Without> {
        self.0.get(&place)
    }

    /// What does not count in the heads of a shard.
    pub fn in_heads(&self, shard: u32) -> impl Iterator<Item = (u32, &Without)> {
        let heads = Place::Head { shard, n: 0 }..=Place::Head { shard, n: u32::MAX };
        self.0.range(heads).filter_map(|(place, without)| match place {
            Place::Head { n, .. } => Some((*n, without)),
            Place::Block(_) => None,
        })
    }

    /// Whether everything counts everywhere.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many of some profiles do not count somewhere.
    pub fn profiles_of(&self, ids: &Ids) -> usize {
        let of_place = |(place, without): (&Place, &Without)| {
            let told = ids.0.get(place).map_or(&[][..], Vec::as_slice);
            told.iter().filter(|id| without.contains(*id)).count()
        };
        self.0.iter().map(of_place).sum()
    }

    /// How many profiles do not count somewhere.
    pub fn profiles(&self) -> usize {
        self.0.values().map(|without| without.len()).sum()
    }

    /// Adds what another question has found, whose word is newer.
    pub fn learn(&mut self, newer: &Doubles) {
        let told: BTreeSet<Hash> = newer.0.values().flat_map(|without| without.iter().copied()).collect();
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

    fn ids(all: &[&[Hash]]) -> Ids {
        (0..).zip(all).map(|(n, ids)| (Place::Block(n), ids.to_vec())).collect()
    }

    /// Of each id, in how many places it counts.
    fn counts(ids: &Ids, doubles: &Doubles) -> BTreeMap<Hash, usize> {
        let mut counts = BTreeMap::new();
        for (place, of_place) in ids.places() {
            for id in of_place {
                let counted = doubles.at(*place).is_none_or(|without| !without.contains(id));
                *counts.entry(*id).or_default() += usize::from(counted);
            }
        }
        counts
    }

    #[test]
    fn what_lies_in_one_place_is_left_out_nowhere() {
        assert_eq!(ids(&[&[1, 2], &[3], &[]]).once(&Doubles::default()), Ok(()));
        assert_eq!(Ids::default().once(&Doubles::default()), Ok(()));
    }

    #[test]
    fn heads_count_what_blocks_leave_out() {
        let (head, block) = (Place::Head { shard: 9, n: 0 }, Place::Block(1));
        let both: Ids = [(block, vec![7, 8]), (head, vec![6, 7])].into_iter().collect();
        let doubles = both.once(&Doubles::default()).unwrap_err();
        assert_eq!((doubles.at(head), doubles.profiles()), (None, 1));
        assert!(doubles.at(block).unwrap().contains(&7));
        assert_eq!(both.once(&doubles), Ok(()));
        // The other place is gone since: nobody else counts it.
        let alone = ids(&[&[], &[7, 8]]);
        assert_eq!(alone.once(&doubles), Err(Doubles::default()));
    }

    #[test]
    fn what_is_newer_is_believed() {
        let mut known = ids(&[&[1, 2], &[1, 2]]).once(&Doubles::default()).unwrap_err();
        // The first block counts 1 no more, so that the second one must.
        let newer = Doubles(BTreeMap::from([(Place::Block(0), Arc::new(BTreeSet::from([1])))]));
        known.learn(&newer);
        assert_eq!(known.at(Place::Block(0)).unwrap().iter().collect::<Vec<_>>(), [&1]);
        assert_eq!(known.at(Place::Block(1)).unwrap().iter().collect::<Vec<_>>(), [&2]);
    }

    fn sets() -> impl Strategy<Value = Vec<BTreeSet<Hash>>> {
        prop::collection::vec(prop::collection::btree_set(0u128..12, 0..8), 0..5)
    }

    proptest! {
        /// Whatever was thought before, the next answer counts each profile once.
        #[test]
        fn all_count_once(sets in sets(), thought in sets()) {
            let ids: Ids =
                (0..).zip(&sets).map(|(n, set)| (Place::Block(n), set.iter().copied().collect())).collect();
            let thought = Doubles(
                (0..).zip(thought).map(|(n, set)| (Place::Block(n), Arc::new(set))).collect(),
            );
            let doubles = match ids.once(&thought) {
                Ok(()) => thought,
                Err(better) => better,
            };
            prop_assert!(counts(&ids, &doubles).values().all(|count| *count == 1));
            prop_assert_eq!(ids.once(&doubles), Ok(()));
        }
    }
}
