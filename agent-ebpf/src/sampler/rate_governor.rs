//! Governor of the sampling rate: holds the sampler's share of the machine below its limit.
//!
//! The share is averaged over a minute. Above the limit, the rate falls to what the last window allows. It grows back
//! by a quarter per window. Down to
//! 1 Hz the period of the clock changes. Below it, a sample is taken by probability. Both are recorded with
//! each sample, so estimates of CPU time stay unbiased.

use std::time::Duration;

/// Time over which the share is averaged.
const AVERAGED_TIME: Duration = Duration::from_secs(60);
/// Lowest frequency of the clock.
const MIN_FREQUENCY_HZ: f64 = 1.0;
/// Lowest probability of a sample at [`MIN_FREQUENCY_HZ`].
const MIN_PROBABILITY: f64 = 1.0 / 64.0;
/// Growth of the rate per window.
const GROWTH_PER_WINDOW: f64 = 1.25;
/// Share of the limit up to which the rate may grow, so that it does not swing around the limit.
const GROWTH_HEADROOM: f64 = 0.8;

/// Sampling rate of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SamplingRate {
    /// Frequency of the clock.
    pub(super) frequency_hz: u32,
    /// Probability that a sample is taken.
    pub(super) probability: f64,
}

impl SamplingRate {
    fn from_hz(rate_hz: f64) -> Self {
        // A fraction above a whole frequency is dropped: the next lower frequency holds the limit.
        let frequency_hz = rate_hz.max(MIN_FREQUENCY_HZ).floor() as u32;
        Self { frequency_hz, probability: rate_hz.clamp(MIN_PROBABILITY, 1.0) }
    }

    /// Returns samples per second and CPU.
    pub(super) fn hz(self) -> f64 {
        f64::from(self.frequency_hz) * self.probability
    }
}

/// Governor of the sampling rate.
#[derive(Clone, Debug)]
pub(super) struct RateGovernor {
    configured_hz: f64,
    max_cpu_percent: f64,
    rate_hz: f64,
    /// Average share of all CPUs, in percent.
    average_percent: f64,
}

impl RateGovernor {
    pub(super) fn new(frequency_hz: u32, max_cpu_percent: f64) -> Self {
        let configured_hz = f64::from(frequency_hz.max(1));
        Self { configured_hz, max_cpu_percent, rate_hz: configured_hz, average_percent: 0.0 }
    }

    /// Returns the rate in force.
    pub(super) fn rate(&self) -> SamplingRate {
        SamplingRate::from_hz(self.rate_hz)
    }

    /// Decides the rate of the next window from the length of the last one, and the share of all CPUs that it used,
    /// in percent.
    pub(super) fn next_rate(&mut self, cpu_percent: f64, duration: Duration) -> SamplingRate {
        let lowest = MIN_FREQUENCY_HZ * MIN_PROBABILITY;
        let weight = (duration.as_secs_f64() / AVERAGED_TIME.as_secs_f64()).min(1.0);
        self.average_percent += (cpu_percent - self.average_percent) * weight;
        if cpu_percent > self.max_cpu_percent {
            // A single window may cost more, as the first one that reads all tables does.
            if self.average_percent > self.max_cpu_percent {
                self.rate_hz *= self.max_cpu_percent / cpu_percent;
            }
        } else {
            let share = cpu_percent.max(self.average_percent) / self.max_cpu_percent;
            let allowed = if share > 0.0 { GROWTH_HEADROOM / share } else { GROWTH_PER_WINDOW };
            self.rate_hz *= allowed.clamp(1.0, GROWTH_PER_WINDOW);
        }
        self.rate_hz = self.rate_hz.clamp(lowest, self.configured_hz);
        self.rate()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn cheap_windows_keep_the_configured_rate() {
        let mut governor = RateGovernor::new(19, 0.5);
        assert_eq!(governor.next_rate(0.03, MINUTE).frequency_hz, 19);
        assert_eq!(governor.rate().probability, 1.0);
    }

    #[test]
    fn expensive_window_lowers_the_rate_in_proportion() {
        let mut governor = RateGovernor::new(100, 0.5);
        assert_eq!(governor.next_rate(1.0, MINUTE).frequency_hz, 50);
        assert_eq!(governor.next_rate(0.5, MINUTE).frequency_hz, 50);
        assert_eq!(governor.next_rate(0.1, MINUTE).frequency_hz, 62);
    }

    #[test]
    fn rate_below_one_hertz_uses_probability() {
        let mut governor = RateGovernor::new(2, 0.5);
        let rate = governor.next_rate(4.0, MINUTE);
        assert_eq!(rate.frequency_hz, 1);
        assert_eq!(rate.probability, 0.25);
    }

    #[test]
    fn one_expensive_window_keeps_the_rate() {
        let mut governor = RateGovernor::new(19, 0.5);
        assert_eq!(governor.next_rate(5.0, Duration::from_secs(2)).frequency_hz, 19);
        assert_eq!(governor.next_rate(0.1, Duration::from_secs(10)).frequency_hz, 19);
        let seconds = Duration::from_secs(10);
        let rates =
            [1.0, 1.0, 1.0, 1.0, 1.0, 1.0].map(|percent| governor.next_rate(percent, seconds).frequency_hz);
        assert!(rates.last().is_some_and(|rate| *rate < 10), "{rates:?}");
    }

    proptest! {
        #[test]
        fn rate_stays_in_its_range(
            frequency in 1_u32..=997,
            shares in proptest::collection::vec(0.0_f64..200.0, 1..40),
        ) {
            let mut governor = RateGovernor::new(frequency, 0.5);
            for share in shares {
                let rate = governor.next_rate(share, Duration::from_secs(10));
                prop_assert!((1..=frequency).contains(&rate.frequency_hz));
                prop_assert!((MIN_PROBABILITY..=1.0).contains(&rate.probability));
                prop_assert!(rate.frequency_hz == 1 || rate.probability == 1.0);
            }
        }

        #[test]
        fn average_cost_in_proportion_to_the_rate_settles_at_the_limit(
            frequency in 1_u32..=997,
            cost_per_hz in 0.001_f64..0.5,
        ) {
            let mut governor = RateGovernor::new(frequency, 0.5);
            let mut costs = Vec::new();
            for _ in 0..240 {
                let cost = governor.rate().hz() * cost_per_hz;
                governor.next_rate(cost, Duration::from_secs(10));
                costs.push(cost);
            }
            // Whole frequencies may be above and below in turn.
            let average = costs.iter().skip(120).sum::<f64>() / 120.0;
            prop_assert!(average <= 0.5 * 1.05, "{average}");
        }
    }
}
