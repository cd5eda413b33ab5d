//! Comparison of two sets of weights: ranked changes, each with a test against sampling noise.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::analysis::sampling_noise::{p_value, p_value_threshold};
use crate::analysis::top_table::FunctionWeights;

/// Weight that is compared, ranked and tested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightKind {
    /// Flat weight: the function's own values.
    #[default]
    Flat,
    /// Cumulative weight: own values plus those of all callees.
    Cum,
}

/// Order of the changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangeRanking {
    /// Largest change of the share first.
    #[default]
    Share,
    /// Largest change of the value first.
    Value,
    /// Smallest p-value first: the change that sampling noise is least likely to cause.
    Noise,
}

/// Result of testing a change against sampling noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoiseVerdict {
    /// Not tested, because the number of samples is unknown or no test applies.
    Untested,
    /// Two samples of one distribution may differ as much.
    Noise,
    /// Two samples of one distribution seldom differ as much. The test ignores all other differences between
    /// two runs.
    MoreThanNoise,
}

/// Input for one side of a comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComparisonSide<K> {
    /// Weights by key.
    pub weights: Vec<(K, FunctionWeights)>,
    /// Total that shares refer to.
    pub total: i64,
    /// Value of a single sample; `None` if unknown.
    pub sample: Option<f64>,
}

/// Change of one key between both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightChange<K> {
    /// Key of the entry.
    pub key: K,
    /// Weights on the left and on the right side.
    pub sides: [FunctionWeights; 2],
    /// Share on the right minus share on the left.
    pub share_change: f64,
    /// P-value: the probability that sampling noise causes such a change; 1 if untested.
    pub p: f64,
    /// Verdict on `p`, given all tests of the comparison.
    pub verdict: NoiseVerdict,
}

impl WeightKind {
    fn select_value(self, weights: FunctionWeights) -> i64 {
        match self {
            WeightKind::Flat => weights.flat,
            WeightKind::Cum => weights.cum,
        }
    }
}

/// Returns all keys with a change of value or share, each with a verdict, in key order.
pub fn compare<K: Ord>(
    left: ComparisonSide<K>,
    right: ComparisonSide<K>,
    measure: WeightKind,
) -> Vec<WeightChange<K>> {
    let totals = [left.total, right.total];
    let samples = [left.sample, right.sample];
    let mut entries: BTreeMap<K, [FunctionWeights; 2]> = BTreeMap::new();
    for (at, side) in [left, right].into_iter().enumerate() {
        for (key, weights) in side.weights {
            entries.entry(key).or_default()[at] = weights;
        }
    }
    let share = |value: i64, total: i64| if total == 0 { 0.0 } else { value as f64 / total as f64 };
    let in_samples = |values: [i64; 2]| match samples {
        [Some(left), Some(right)] => Some([values[0] as f64 / left, values[1] as f64 / right]),
        _ => None,
    };
    let mut compared = Vec::new();
    let mut tested = 0;
    for (key, sides) in entries {
        let values = sides.map(|weights| measure.select_value(weights));
        let p = in_samples(values).zip(in_samples(totals)).and_then(|(parts, wholes)| p_value(parts, wholes));
        // A key without samples on both sides cannot differ. Every other key counts as a test, even if it did
        // not change.
        tested += usize::from(p.is_some() && values != [0, 0]);
        let share_change = share(values[1], totals[1]) - share(values[0], totals[0]);
        if values[0] == values[1] && share_change == 0.0 {
            continue;
        }
        let verdict = if p.is_some() { NoiseVerdict::Noise } else { NoiseVerdict::Untested };
        compared.push(WeightChange { key, sides, share_change, p: p.unwrap_or(1.0), verdict });
    }
    let probabilities = compared.iter().filter(|one| one.verdict != NoiseVerdict::Untested).map(|one| one.p);
    let least = p_value_threshold(probabilities, tested);
    for one in compared.iter_mut().filter(|one| one.verdict == NoiseVerdict::Noise && one.p <= least) {
        one.verdict = NoiseVerdict::MoreThanNoise;
    }
    compared
}

/// Sorts changes by rank. Ties are broken by share, value and key.
pub fn rank_changes<K: Ord>(changes: &mut [WeightChange<K>], rank: ChangeRanking, measure: WeightKind) {
    let by_share =
        |a: &WeightChange<K>, b: &WeightChange<K>| b.share_change.abs().total_cmp(&a.share_change.abs());
    let change = |one: &WeightChange<K>| {
        measure.select_value(one.sides[0]).abs_diff(measure.select_value(one.sides[1]))
    };
    let by_value = |a: &WeightChange<K>, b: &WeightChange<K>| change(b).cmp(&change(a));
    changes.sort_by(|a, b| {
        let first = match rank {
            ChangeRanking::Share => by_share(a, b),
            ChangeRanking::Value => by_value(a, b),
            ChangeRanking::Noise => a.p.total_cmp(&b.p),
        };
        let then = || by_share(a, b).then_with(|| by_value(a, b)).then_with(|| a.key.cmp(&b.key));
        if first == Ordering::Equal { then() } else { first }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::SeededRandom;

    fn side(values: &[(&'static str, i64)], sample: Option<f64>) -> ComparisonSide<&'static str> {
        let of = |flat| FunctionWeights { flat, cum: flat };
        let weights = values.iter().map(|(name, value)| (*name, of(*value))).collect();
        ComparisonSide { weights, total: values.iter().map(|(_, value)| value).sum(), sample }
    }

    #[test]
    fn changes_are_ranked() {
        let left = side(&[("a", 100), ("b", 800), ("c", 100), ("gone", 10)], Some(1.0));
        let right = side(&[("a", 240), ("b", 1600), ("c", 150), ("new", 22)], Some(1.0));
        let mut changes = compare(left, right, WeightKind::Flat);
        let shown = |changes: &[WeightChange<&'static str>]| -> Vec<&'static str> {
            changes.iter().map(|one| one.key).collect()
        };
        rank_changes(&mut changes, ChangeRanking::Value, WeightKind::Flat);
        assert_eq!(shown(&changes), ["b", "a", "c", "new", "gone"]);
        rank_changes(&mut changes, ChangeRanking::Share, WeightKind::Flat);
        assert_eq!(shown(&changes)[..2], ["c", "a"]);
        rank_changes(&mut changes, ChangeRanking::Noise, WeightKind::Flat);
        assert_eq!(changes[0].verdict, NoiseVerdict::MoreThanNoise, "{changes:?}");
        let same = side(&[("a", 1), ("b", 2)], Some(1.0));
        assert!(compare(same.clone(), same, WeightKind::Cum).is_empty());
    }

    #[test]
    fn what_is_equal_on_both_sides_was_tested_too() {
        let names: Vec<String> = (0..500).map(|at| format!("f{at}")).collect();
        let verdict = |others: &[String]| {
            let of = |changed: [i64; 2]| {
                let rest = others.iter().map(|name| (name.as_str(), 50_000 / others.len() as i64));
                let all = ["less", "more"].into_iter().zip(changed).chain(rest);
                let weights = all.map(|(name, flat)| (name, FunctionWeights { flat, cum: flat })).collect();
                ComparisonSide { weights, total: 50_000 + changed.iter().sum::<i64>(), sample: Some(1.0) }
            };
            let changes = compare(of([100, 60]), of([60, 100]), WeightKind::Flat);
            let [less, more] = &changes[..] else { panic!("{changes:?}") };
            assert!((0.001..0.005).contains(&less.p) && less.verdict == more.verdict, "{changes:?}");
            less.verdict
        };
        // Of three functions two have changed; of five hundred two do so by chance.
        assert_eq!(verdict(&names[..1]), NoiseVerdict::MoreThanNoise);
        assert_eq!(verdict(&names), NoiseVerdict::Noise);
    }

    #[test]
    fn without_samples_nothing_is_tested() {
        let changes =
            compare(side(&[("a", 1)], None), side(&[("a", 1_000), ("b", 1)], Some(1.0)), WeightKind::Flat);
        assert!(changes.iter().all(|one| (one.verdict, one.p) == (NoiseVerdict::Untested, 1.0)));
        assert_eq!(changes.len(), 2);
    }

    /// Draws so many samples of functions with these weights.
    fn drawn(random: &mut SeededRandom, weights: &[u64], samples: usize) -> ComparisonSide<usize> {
        let all: u64 = weights.iter().sum();
        let mut counts = vec![0i64; weights.len()];
        for _ in 0..samples {
            let mut left = random.next_u64() % all;
            let place = weights.iter().position(|weight| {
                let is_it = left < *weight;
                left = left.saturating_sub(*weight);
                is_it
            });
            counts[place.unwrap()] += 10;
        }
        let weights =
            counts.into_iter().map(|flat| FunctionWeights { flat, cum: flat }).enumerate().collect();
        ComparisonSide { weights, total: 10 * samples as i64, sample: Some(10.0) }
    }

    #[test]
    fn two_samples_of_one_program_are_noise_and_a_change_is_found() {
        let mut random = SeededRandom::new(7);
        let weights: Vec<u64> = (1..=100).map(|rank| 10_000 / rank).collect();
        let mut slower = weights.clone();
        slower[20] *= 3;
        let (mut wrong, mut found) = (0, 0);
        for _ in 0..200 {
            let before = drawn(&mut random, &weights, 4_000);
            let again = compare(before.clone(), drawn(&mut random, &weights, 4_000), WeightKind::Flat);
            wrong += usize::from(again.iter().any(|one| one.verdict == NoiseVerdict::MoreThanNoise));
            let after = compare(before, drawn(&mut random, &slower, 4_000), WeightKind::Flat);
            found += usize::from(
                after.iter().any(|one| one.key == 20 && one.verdict == NoiseVerdict::MoreThanNoise),
            );
        }
        // A comparison of equals should be wrong in one of a hundred.
        assert!(wrong <= 5, "{wrong} of 200 comparisons of equals found a change");
        assert!(found >= 190, "the change was found in {found} of 200 comparisons");
    }
}
