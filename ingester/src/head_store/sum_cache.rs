//! Cache of sums that queries computed: a query that is sent again adds only the changes since.
//!
//! Dashboards send the same query to a head every few seconds. Its rows do not change: some enter the range
//! at one end and some leave it at the other. Sums modulo 2^64 can be subtracted exactly.

use std::collections::VecDeque;
use std::sync::Arc;

use athanor_chassis::ComputePool;
use athanor_chassis::compute::ComputeError;
use athanor_profile::encoding::codec::CodecError;
use parking_lot::Mutex;

/// Maximum cached sums. Each is a number for each stack, at most an eighth of the stack's own memory.
const MAX_CACHED_SUMS: usize = 4;
/// Minimum profiles of a sum that is cached.
const MIN_CACHED_PROFILES: usize = 64;
/// Minimum profiles for another thread: its start takes about as long as adding up some profiles.
const PROFILES_PER_THREAD: usize = 256;

/// Last sums of one tenant's rows.
#[derive(Debug, Default)]
pub struct SumCache(Mutex<VecDeque<Arc<CachedSum>>>);

/// Reason why there is no sum.
#[derive(Debug, thiserror::Error)]
pub enum SumError {
    /// The packed rows cannot be decoded.
    #[error(transparent)]
    Packed(#[from] CodecError),
    /// A thread of the pool failed.
    #[error(transparent)]
    Compute(#[from] ComputeError),
    /// The client has cancelled the query.
    #[error("caller disconnected")]
    Left,
}

#[derive(Debug)]
struct CachedSum {
    /// Places of profiles, ascending.
    picked: Vec<u32>,
    totals: Vec<i64>,
}

impl SumCache {
    /// Returns the totals, by stack, of the profiles at these ascending places. `add` adds a profile's
    /// values, times a factor of 1 or -1, to a slice with a place for each stack.
    pub fn totals(
        &self,
        picked: &[u32],
        stacks: usize,
        compute: &ComputePool,
        add: impl Fn(u32, i64, &mut [i64]) -> Result<(), SumError> + Sync,
    ) -> Result<Vec<i64>, SumError> {
        if picked.len() < MIN_CACHED_PROFILES {
            let mut totals = vec![0; stacks];
            picked.iter().try_for_each(|&place| add(place, 1, &mut totals))?;
            return Ok(totals);
        }
        let nearest = self.nearest(picked);
        let (known, mut totals) =
            nearest.as_ref().map_or((&[][..], Vec::new()), |sum| (&sum.picked[..], sum.totals.clone()));
        totals.resize(stacks.max(totals.len()), 0);
        let mut changes = Vec::new();
        differences(known, picked, |place, factor| changes.push((place, factor)));
        let share = changes.len().div_ceil(compute.parallelism()).max(PROFILES_PER_THREAD);
        let added = compute.map(changes.chunks(share).collect(), |share| {
            let mut sum = vec![0; stacks];
            share.iter().try_for_each(|&(place, factor)| add(place, factor, &mut sum)).map(|()| sum)
        });
        let added = added.map_err(ComputeError::resume_panic)?;
        for sum in added {
            totals.iter_mut().zip(sum?).for_each(|(total, value)| *total = total.wrapping_add(value));
        }
        self.keep(nearest, CachedSum { picked: picked.to_vec(), totals: totals.clone() });
        Ok(totals)
    }

    /// Returns the cached sum with the fewest changes, if they are fewer than from nothing.
    fn nearest(&self, picked: &[u32]) -> Option<Arc<CachedSum>> {
        let kept = self.0.lock().clone();
        let way = |sum: &Arc<CachedSum>| {
            let mut count = 0;
            differences(&sum.picked, picked, |_, _| count += 1);
            count
        };
        let nearest = kept.into_iter().map(|sum| (way(&sum), sum)).min_by_key(|(way, _)| *way);
        nearest.filter(|(way, _)| *way < picked.len()).map(|(_, sum)| sum)
    }

    /// Caches a sum in place of the one that it was made from, else of the oldest.
    fn keep(&self, from: Option<Arc<CachedSum>>, sum: CachedSum) {
        let mut kept = self.0.lock();
        match from.and_then(|from| kept.iter().position(|one| Arc::ptr_eq(one, &from))) {
            Some(place) => drop(kept.remove(place)),
            None if kept.len() == MAX_CACHED_SUMS => drop(kept.pop_front()),
            None => {}
        }
        kept.push_back(Arc::new(sum));
    }
}

/// Visits elements that only one of two ascending lists has: with 1 those of the second, with -1 those of the
/// first.
fn differences(mut before: &[u32], mut after: &[u32], mut visit: impl FnMut(u32, i64)) {
    loop {
        match (before.split_first(), after.split_first()) {
            (Some((old, old_rest)), Some((new, new_rest))) if old == new => {
                (before, after) = (old_rest, new_rest)
            }
            (Some((old, rest)), new) if new.is_none_or(|(new, _)| old < new) => {
                visit(*old, -1);
                before = rest;
            }
            (_, Some((new, rest))) => {
                visit(*new, 1);
                after = rest;
            }
            (_, None) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever was asked before, the answer is that of adding everything up; and what was asked is added once.
        #[test]
        fn questions_in_any_order_are_answered_as_if_alone(
            questions in prop::collection::vec((0u32..1000, 0u32..1000, 1u32..4), 1..12),
            values in prop::collection::vec((0usize..50, any::<i64>()), 1000),
        ) {
            let sums = SumCache::default();
            let compute = ComputePool::with_threads(NonZeroUsize::new(3).unwrap(), 1).unwrap();
            for (at, &(from, to, step)) in questions.iter().enumerate() {
                let picked: Vec<u32> = (from..to).step_by(step as usize).collect();
                // A dictionary that grows meanwhile.
                let stacks = 50 + at;
                let asked = AtomicUsize::new(0);
                let totals = sums.totals(&picked, stacks, &compute, |place, factor, totals| {
                    asked.fetch_add(1, Ordering::Relaxed);
                    let (stack, value) = values[place as usize];
                    totals[stack] = totals[stack].wrapping_add(value.wrapping_mul(factor));
                    Ok(())
                });
                let mut expected = vec![0i64; stacks];
                for &place in &picked {
                    let (stack, value) = values[place as usize];
                    expected[stack] = expected[stack].wrapping_add(value);
                }
                prop_assert_eq!(totals.unwrap(), expected);
                prop_assert!(asked.into_inner() <= picked.len());
                prop_assert!(sums.0.lock().len() <= MAX_CACHED_SUMS);
                if picked.len() >= MIN_CACHED_PROFILES {
                    sums.totals(&picked, stacks, &compute, |_, _, _| panic!("it was added up just now")).unwrap();
                }
            }
        }
    }
}
