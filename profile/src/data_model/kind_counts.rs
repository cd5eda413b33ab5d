//! Counts by kind: one number for each variant of an enum, under the names that metrics use.

use std::fmt;
use std::marker::PhantomData;

/// Enum whose variants are counted. `N` is the number of its variants.
pub trait CountedKind<const N: usize>: Copy + 'static {
    /// All variants, each at its index, with their names in metrics.
    const NAMES: [(Self, &'static str); N];

    /// Returns the position of the variant in [`NAMES`](Self::NAMES).
    fn index(self) -> usize;

    /// Returns the variant with a name.
    fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.into_iter().find(|(_, known)| *known == name).map(|(kind, _)| kind)
    }
}

/// One count for each kind. Counts saturate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KindCounts<K, const N: usize> {
    counts: [u64; N],
    kind: PhantomData<K>,
}

impl<K, const N: usize> KindCounts<K, N> {
    /// Counts of nothing.
    pub const ZERO: Self = Self { counts: [0; N], kind: PhantomData };
}

impl<K: CountedKind<N>, const N: usize> KindCounts<K, N> {
    /// Returns the count of a kind.
    pub fn get(&self, kind: K) -> u64 {
        self.counts[kind.index()]
    }

    /// Adds to the count of a kind.
    pub fn add(&mut self, kind: K, count: u64) {
        let sum = &mut self.counts[kind.index()];
        *sum = sum.saturating_add(count);
    }

    /// Replaces the count of a kind.
    pub fn set(&mut self, kind: K, count: u64) {
        self.counts[kind.index()] = count;
    }

    /// Returns the counts with the name of each kind.
    pub fn counts(&self) -> [(&'static str, u64); N] {
        K::NAMES.map(|(kind, name)| (name, self.get(kind)))
    }
}

impl<K, const N: usize> Default for KindCounts<K, N> {
    fn default() -> Self {
        Self::ZERO
    }
}

impl<K: CountedKind<N>, const N: usize> fmt::Debug for KindCounts<K, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.counts().into_iter().filter(|(_, count)| *count > 0)).finish()
    }
}

impl<K: CountedKind<N>, const N: usize> std::ops::AddAssign for KindCounts<K, N> {
    fn add_assign(&mut self, other: Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum = sum.saturating_add(count);
        }
    }
}

impl<K: CountedKind<N>, const N: usize, const M: usize> From<[(K, u64); M]> for KindCounts<K, N> {
    fn from(counts: [(K, u64); M]) -> Self {
        let mut all = Self::ZERO;
        counts.into_iter().for_each(|(kind, count)| all.add(kind, count));
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Debug;

    use super::*;
    use crate::data_model::dropped_counts::{DropReason, DroppedCounts};
    use crate::formats::otlp::OtlpViolation;

    fn check_names<K: CountedKind<N> + Debug, const N: usize>() {
        let names: BTreeSet<&str> = K::NAMES.into_iter().map(|(_, name)| name).collect();
        assert_eq!(names.len(), N, "names are distinct");
        for (index, (kind, name)) in K::NAMES.into_iter().enumerate() {
            assert_eq!(kind.index(), index, "{kind:?}");
            assert_eq!(K::from_name(name).map(K::index), Some(index), "{kind:?}");
        }
        assert!(K::from_name("unknown").is_none());
    }

    #[test]
    fn each_kind_has_its_own_index_and_name() {
        check_names::<DropReason, { DropReason::COUNT }>();
        check_names::<OtlpViolation, { OtlpViolation::COUNT }>();
    }

    #[test]
    fn counts_add_up_by_kind_and_saturate() {
        let mut counts = DroppedCounts::from([(DropReason::DeepStack, 2), (DropReason::LongText, 1)]);
        counts += DroppedCounts::from([(DropReason::DeepStack, 3)]);
        assert_eq!((counts.get(DropReason::DeepStack), counts.get(DropReason::LongText)), (5, 1));
        assert_eq!(format!("{counts:?}"), r#"{"deep_stacks": 5, "long_texts": 1}"#);
        counts.add(DropReason::DeepStack, u64::MAX);
        assert_eq!(counts.get(DropReason::DeepStack), u64::MAX);
    }
}
