//! Exponential backoff between retries, drawn from the injected randomness, so that a simulation replays it.

use std::time::Duration;

use crate::random::Random;
use crate::time::clock::Clock;

/// Delays between the attempts of one operation: they grow from `min` to `max`, less a random part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// Delay after the first failure.
    pub min: Duration,
    /// Upper bound of all delays.
    pub max: Duration,
    /// Ratio of a delay to the delay before it.
    pub factor: u32,
    /// Largest fraction of a delay that is subtracted at random, so that clients that failed together do not
    /// retry together. 0 for exact delays.
    pub jitter: f64,
}

impl Backoff {
    /// Creates a backoff that doubles from `min` to `max`. Half of each delay is random.
    pub const fn doubling(min: Duration, max: Duration) -> Self {
        Self { min, max, factor: 2, jitter: 0.5 }
    }

    /// Creates a backoff that does not grow. Half of each delay is random.
    pub const fn constant(delay: Duration) -> Self {
        Self { min: delay, max: delay, factor: 1, jitter: 0.5 }
    }

    /// Returns this backoff with another jitter.
    #[must_use]
    pub const fn with_jitter(self, jitter: f64) -> Self {
        Self { jitter, ..self }
    }

    /// Returns the delay before the next attempt, after `failures` failed attempts before the last one.
    pub fn delay(&self, failures: usize, random: &Random) -> Duration {
        let exponent = u32::try_from(failures).unwrap_or(u32::MAX);
        let longest = self.min.saturating_mul(self.factor.saturating_pow(exponent)).min(self.max);
        let spread = u64::try_from(longest.mul_f64(self.jitter).as_nanos()).unwrap_or(u64::MAX - 1);
        if spread == 0 {
            return longest;
        }
        longest.saturating_sub(Duration::from_nanos(random.next_below(spread + 1)))
    }

    /// Waits for the delay of [`Backoff::delay`].
    pub async fn wait(&self, failures: usize, clock: &Clock, random: &Random) {
        clock.sleep(self.delay(failures, random)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN_DELAY: Duration = Duration::from_millis(100);
    const MAX_DELAY: Duration = Duration::from_secs(1);

    #[test]
    fn delays_double_up_to_their_bound_within_jitter() {
        let random = Random::from_seed(1);
        let backoff = Backoff::doubling(MIN_DELAY, MAX_DELAY);
        for (failures, millis) in [(0, 100), (1, 200), (2, 400), (3, 800), (4, 1000), (500, 1000)] {
            let longest = Duration::from_millis(millis);
            for _ in 0..100 {
                let delay = backoff.delay(failures, &random);
                assert!((longest / 2..=longest).contains(&delay), "{failures}: {delay:?}");
            }
        }
    }

    #[test]
    fn delays_without_jitter_are_exact_and_draw_nothing() {
        let random = Random::from_seed(1);
        let backoff = Backoff { min: MIN_DELAY, max: MAX_DELAY, factor: 5, jitter: 0.0 };
        let delays = [0, 1, 2, 3].map(|failures| backoff.delay(failures, &random).as_millis());
        assert_eq!(delays, [100, 500, 1000, 1000]);
        assert_eq!(random.next_u64(), Random::from_seed(1).next_u64());
    }

    #[test]
    fn delays_of_equal_seeds_are_equal() {
        let backoff = Backoff::constant(MAX_DELAY).with_jitter(0.9);
        let draw = |seed| {
            let random = Random::from_seed(seed);
            (0..20).map(|failures| backoff.delay(failures, &random)).collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
        assert!(draw(3).iter().all(|delay| (MIN_DELAY..=MAX_DELAY).contains(delay)));
    }
}
