//! Whether a change is more than sampling noise.
//!
//! A profile is a sample: the share of samples that hit a function is near the function's share of the time, and how
//! near follows from how many samples there are. Two shares are compared by the test of two proportions, with Yates's
//! correction, which is on the safe side where samples are few. Who looks at a thousand functions finds ten that are
//! "one in a hundred", so of all that are tested together only a small part may be called more than sampling noise
//! wrongly: the procedure of Benjamini and Hochberg.
//!
//! The test knows no other noise. Two runs of one program differ by more than sampling, and so do two of its pods.

/// The part of all that is called more than sampling noise which may be that noise, on average.
pub const FALSE_DISCOVERY_RATE: f64 = 0.01;

/// How likely chance alone makes shares that differ as much or more, if both sides are samples of one and the same
/// thing. `parts` and `wholes` are numbers of samples, before and after. None where there is nothing to compare.
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

/// How likely a normal variable is so many standard deviations away from its mean, on either side.
fn both_tails(deviations: f64) -> f64 {
    complementary_error(deviations / std::f64::consts::SQRT_2).clamp(0.0, 1.0)
}

/// The complementary error function of what is not negative: the sum of a series where that is short, else a
/// continued fraction. Exact to twelve digits, also far out, where nearly nothing is left.
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

/// Up to which of these probabilities a change is more than sampling noise, so that of those that are called so at
/// most [`FALSE_DISCOVERY_RATE`] are noise on average. Below 0 if none is. `tested` is how many tests there were, also those
/// whose probabilities are left out as they are 1: whoever looks at more finds more by chance.
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
