//! Hedged requests: a second call to another store-gateway while the first one may still respond.
//!
//! A store-gateway that takes much longer than others recently is probably stuck, and a query waits for its
//! slowest part. If all are slow under high load, second calls make it worse. Therefore only a share of all
//! calls is hedged.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Number of recent latencies that the policy keeps.
const MAX_RECENT_CALLS: usize = 128;
/// Number of latencies below which the default delay applies.
const MIN_RECENT_CALLS: usize = 16;
/// Lower bound of the delay before a second call. The default below applies while few latencies are known.
const MIN_HEDGE_DELAY: Duration = Duration::from_millis(250);
const DEFAULT_HEDGE_DELAY: Duration = Duration::from_secs(1);
/// Maximum consecutive second calls after a quiet time.
const MAX_HEDGE_BURST: u64 = 8;

/// Policy that limits and delays hedged calls.
#[derive(Debug)]
pub struct HedgingPolicy {
    /// Second calls per hundred calls.
    percent: u64,
    state: Mutex<HedgingState>,
    calls: AtomicU64,
    second: AtomicU64,
    won: AtomicU64,
}

#[derive(Debug, Default)]
struct HedgingState {
    /// Credit for second calls, in hundredths of a call.
    credit: u64,
    recent: VecDeque<Duration>,
}

/// Counters of first and second calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HedgeStats {
    /// Calls to store-gateways, without second calls.
    pub calls: u64,
    /// Second calls to store-gateways.
    pub second: u64,
    /// Second calls that responded before the first call.
    pub won: u64,
}

impl HedgingPolicy {
    /// Creates a policy that allows `percent` second calls per hundred calls.
    pub fn new(percent: u8) -> Self {
        let state = HedgingState { credit: MAX_HEDGE_BURST * 100, ..HedgingState::default() };
        Self {
            percent: percent.into(),
            state: Mutex::new(state),
            calls: AtomicU64::new(0),
            second: AtomicU64::new(0),
            won: AtomicU64::new(0),
        }
    }

    /// Counts a first call, which adds credit for second calls. Returns the delay before a second call.
    pub fn begin(&self) -> Duration {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.credit = (state.credit + self.percent).min(MAX_HEDGE_BURST * 100);
        drop(state);
        self.hedge_delay()
    }

    /// Returns the delay before a second call.
    pub fn hedge_delay(&self) -> Duration {
        let state = self.state.lock();
        if state.recent.len() < MIN_RECENT_CALLS {
            return DEFAULT_HEDGE_DELAY;
        }
        let mut sorted: Vec<Duration> = state.recent.iter().copied().collect();
        sorted.sort_unstable();
        // Twice the 90th percentile of recent latencies.
        (sorted[sorted.len() * 9 / 10] * 2).max(MIN_HEDGE_DELAY)
    }

    /// Records the latency of a call.
    pub fn record_latency(&self, after: Duration) {
        let mut state = self.state.lock();
        if state.recent.len() == MAX_RECENT_CALLS {
            state.recent.pop_front();
        }
        state.recent.push_back(after);
    }

    /// Returns whether a second call is allowed, to another store-gateway or locally, and takes the credit
    /// for it.
    pub fn try_take_credit(&self) -> bool {
        let mut state = self.state.lock();
        let may = self.percent > 0 && state.credit >= 100;
        if may {
            state.credit -= 100;
        }
        may
    }

    /// Counts a second call.
    pub fn record_hedge(&self) {
        self.second.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a second call that responded before the first.
    pub fn record_hedge_won(&self) {
        self.won.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counters of first and second calls.
    pub fn counts(&self) -> HedgeStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HedgeStats { calls: of(&self.calls), second: of(&self.second), won: of(&self.won) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_calls_are_a_share_of_all() {
        let hedges = HedgingPolicy::new(10);
        let burst = (0..100).filter(|_| hedges.try_take_credit()).count();
        assert_eq!(burst as u64, MAX_HEDGE_BURST);
        let share = (0..1000)
            .filter(|_| {
                hedges.begin();
                hedges.try_take_credit()
            })
            .inspect(|_| hedges.record_hedge())
            .count();
        assert_eq!(share, 100);
        assert_eq!(hedges.counts(), HedgeStats { calls: 1000, second: 100, won: 0 });
        let none = HedgingPolicy::new(0);
        none.begin();
        assert!(!none.try_take_credit());
    }

    #[test]
    fn what_is_long_follows_what_was() {
        let hedges = HedgingPolicy::new(10);
        assert_eq!(hedges.hedge_delay(), DEFAULT_HEDGE_DELAY);
        (0..MIN_RECENT_CALLS).for_each(|_| hedges.record_latency(Duration::from_millis(10)));
        assert_eq!(hedges.hedge_delay(), MIN_HEDGE_DELAY);
        (0..MAX_RECENT_CALLS).for_each(|_| hedges.record_latency(Duration::from_millis(400)));
        assert_eq!(hedges.hedge_delay(), Duration::from_millis(800));
    }
}
