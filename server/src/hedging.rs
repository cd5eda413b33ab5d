//! When another gateway is asked though the first one may still answer.
//!
//! Who takes much longer than others lately is probably stuck, and what waits for all waits for the slowest. But where
//! all are slow since there is much to do, asking twice makes it worse. So only a share of all calls is asked again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Calls that are remembered.
const MAX_RECENT_CALLS: usize = 128;
/// Before so many calls it is not known what is long.
const MIN_RECENT_CALLS: usize = 16;
/// A gateway has at least so long, and where little is known, that long.
const MIN_HEDGE_DELAY: Duration = Duration::from_millis(250);
const DEFAULT_HEDGE_DELAY: Duration = Duration::from_secs(1);
/// Second calls that may be made one after another, when there were none for long.
const MAX_HEDGE_BURST: u64 = 8;

/// Decides about second calls.
#[derive(Debug)]
pub struct HedgingPolicy {
    /// Second calls per hundred.
    percent: u64,
    state: Mutex<HedgingState>,
    calls: AtomicU64,
    second: AtomicU64,
    won: AtomicU64,
}

#[derive(Debug, Default)]
struct HedgingState {
    /// In hundredths of a call.
    credit: u64,
    recent: VecDeque<Duration>,
}

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HedgeStats {
    /// Calls of gateways, without second ones.
    pub calls: u64,
    /// Second calls.
    pub second: u64,
    /// Those that answered before the first.
    pub won: u64,
}

impl HedgingPolicy {
    /// So many second calls per hundred calls.
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

    /// A call begins that is not made in another's stead: it is counted, and pays for others. For how long it is left alone.
    pub fn begin(&self) -> Duration {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        state.credit = (state.credit + self.percent).min(MAX_HEDGE_BURST * 100);
        drop(state);
        self.hedge_delay()
    }

    /// For how long a call is left alone.
    pub fn hedge_delay(&self) -> Duration {
        let state = self.state();
        if state.recent.len() < MIN_RECENT_CALLS {
            return DEFAULT_HEDGE_DELAY;
        }
        let mut sorted: Vec<Duration> = state.recent.iter().copied().collect();
        sorted.sort_unstable();
        // Twice what nine of ten took.
        (sorted[sorted.len() * 9 / 10] * 2).max(MIN_HEDGE_DELAY)
    }

    /// A call was answered after so long.
    pub fn record_latency(&self, after: Duration) {
        let mut state = self.state();
        if state.recent.len() == MAX_RECENT_CALLS {
            state.recent.pop_front();
        }
        state.recent.push_back(after);
    }

    /// Whether the same may be asked for again, of another one or here; it takes of what may be.
    pub fn try_take_credit(&self) -> bool {
        let mut state = self.state();
        let may = self.percent > 0 && state.credit >= 100;
        if may {
            state.credit -= 100;
        }
        may
    }

    /// A second call is made.
    pub fn record_hedge(&self) {
        self.second.fetch_add(1, Ordering::Relaxed);
    }

    /// A second call was answered, and the first was not before it.
    pub fn record_hedge_won(&self) {
        self.won.fetch_add(1, Ordering::Relaxed);
    }

    /// What was done so far.
    pub fn counts(&self) -> HedgeStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HedgeStats { calls: of(&self.calls), second: of(&self.second), won: of(&self.won) }
    }

    fn state(&self) -> MutexGuard<'_, HedgingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
