//! Test of whether a change is more than sampling noise.
//!
//! A profile is a sample. The share of samples that hit a function estimates the function's share of the
//! time, and the number of samples determines the error. Two shares are compared with the two-proportion test
//! and Yates's correction, which is conservative for few samples. Among a thousand functions, ten are "one in
//! a hundred" by chance. The procedure of Benjamini and Hochberg therefore limits the share of false
//! positives among all changes that are reported.
//!
//! The test covers no other noise. Two runs of one program differ by more than sampling, and so do two of its
//! pods.

/// Average share of false positives among the changes that are called more than sampling noise.
pub const FALSE_DISCOVERY_RATE: f64 = 0.01;

/// Returns the probability of shares that differ at least this much by chance, if both sides are samples of
/// the same distribution. `parts` and `wholes` are numbers of samples, before and after. Returns `None` if
/// there is nothing to compare.
pub fn p_value(parts: [f64; 2], wholes: [f64; 2]) -> Option<f64> {
    let is_part = |at: usize| parts[at] >= 0.0 && wholes[at] >= parts[at] && wholes[at] > 0.0;
    if !is_part(0) || !is_part(1) {
        return None;
    }
    let pooled = (parts[0] + parts[1]) / (wholes[0] + wholes[1]);
    let variance = pooled * (1.0 - pooled) * (1.0 / wholes[0] + 1.0 / wholes[1]);
    if variance <= 0.0 {
        return Some(1.0);
    }
    let correction = 0.5 * (1.0 / wholes[0] + 1.0 / wholes[1]);
    let difference = (parts[0] / wholes[0] - parts[1] / wholes[1]).abs();
    let deviations = (difference - correction).max(0.0) / variance.sqrt();
    Some(both_tails(deviations))
}

/// Returns the probability that a normal variable is at least this many standard deviations from its mean, on
/// either side.
fn both_tails(deviations: f64) -> f64 {
    complementary_error(deviations / std::f64::consts::SQRT_2).clamp(0.0, 1.0)
}

/// Returns the complementary error function for arguments that are not negative. It is a series where that
/// converges fast, else a continued fraction. Exact to twelve digits, even far out in the tail.
fn complementary_error(x: f64) -> f64 {
    let density = std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp();
    if x < 2.5 {
        let mut term = x;
        let mut sum = x;
        for n in 1..200 {
            term *= 2.0 * x * x / (2.0 * f64::from(n) + 1.0);
            sum += term;
            if term < sum * 1e-17 {
                break;
            }
        }
        return 1.0 - density * sum;
    }
    let fraction = (1..=120).rev().fold(0.0, |below, n| f64::from(n) / 2.0 / (x + below));
    density / 2.0 / (x + fraction)
}

/// Returns the largest p-value of a change that counts as more than sampling noise. On average, at most
/// [`FALSE_DISCOVERY_RATE`] of these changes are noise. Returns a value below 0 if no change counts. `tested`
/// is the number of all tests, including those left out of `probabilities` because their p-value is 1: more
/// tests find more by chance.
pub fn p_value_threshold(probabilities: impl Iterator<Item = f64>, tested: usize) -> f64 {
    let mut sorted: Vec<f64> = probabilities.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let count = tested.max(sorted.len()) as f64;
    let allowed = |rank: usize| FALSE_DISCOVERY_RATE * rank as f64 / count;
    let last = (0..sorted.len()).rev().find(|&at| sorted[at] <= allowed(at + 1));
    last.map_or(-1.0, |at| sorted[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_those_of_tables() {
        for (x, expected) in [
            (0.0, 1.0),
            (0.5, 0.479_500_122_186_953_5),
            (1.0, 0.157_299_207_050_285_13),
            (2.0, 0.004_677_734_981_047_266),
            (2.6, 0.000_236_034_416_529_349_2),
            (4.0, 1.541_725_790_028_002e-8),
            (10.0, 2.088_487_583_762_545e-45),
        ] {
            let found = complementary_error(x);
            assert!((found - expected).abs() <= expected * 1e-11, "{x}: {found} is not {expected}");
        }
    }

    #[test]
    fn equal_shares_are_chance_and_great_changes_are_not() {
        assert_eq!(p_value([5.0, 10.0], [50.0, 100.0]), Some(1.0));
        assert_eq!(p_value([7.0, 3.0], [7.0, 3.0]), Some(1.0), "all of both");
        assert!(p_value([100.0, 200.0], [1000.0, 1000.0]).unwrap() < 1e-8);
        assert!(p_value([1.0, 3.0], [1000.0, 1000.0]).unwrap() > 0.5, "two more of a thousand");
        assert_eq!(p_value([1.0, 1.0], [0.0, 10.0]), None);
        assert_eq!(p_value([11.0, 1.0], [10.0, 10.0]), None);
        assert_eq!(p_value([-1.0, 1.0], [10.0, 10.0]), None);
    }

    #[test]
    fn many_tests_need_stronger_evidence() {
        assert_eq!(p_value_threshold([0.009].into_iter(), 1), 0.009);
        let of_many = (0..100).map(|at| if at == 0 { 0.009 } else { 0.5 });
        assert_eq!(p_value_threshold(of_many, 100), -1.0);
        let of_many = (0..100).map(|at| if at < 50 { 0.004 } else { 0.5 });
        assert_eq!(p_value_threshold(of_many, 100), 0.004);
        assert_eq!(p_value_threshold([0.009].into_iter(), 2), -1.0, "the other one is equal on both sides");
        assert_eq!(p_value_threshold(std::iter::empty(), 0), -1.0);
    }
}
