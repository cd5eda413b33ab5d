//! When another gateway is asked though the first one may still answer.
//!
//! Who takes much longer than others lately is probably stuck, and what waits for all waits for the slowest. But where
//! all are slow since there is much to do, asking twice makes it worse. So only a share of all calls is asked again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Calls that are remembered.
const RECENT: usize = 128;
/// Before so many calls it is not known what is long.
const FEW: usize = 16;
/// A gateway has at least so long, and where little is known, that long.
const LEAST: Duration = Duration::from_millis(250);
const UNKNOWN: Duration = Duration::from_secs(1);
/// Second calls that may be made one after another, when there were none for long.
const BURST: u64 = 8;

/// Decides about second calls.
#[derive(Debug)]
pub struct Hedges {
    /// Second calls per hundred.
    percent: u64,
    state: Mutex<State>,
    calls: AtomicU64,
    second: AtomicU64,
    won: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// In hundredths of a call.
    credit: u64,
    recent: VecDeque<Duration>,
}

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HedgeCounts {
    /// Calls of gateways, without second ones.
    pub calls: u64,
    /// Second calls.
    pub second: u64,
    /// Those that answered before the first.
    pub won: u64,
}

impl Hedges {
    /// So many second calls per hundred calls.
    pub fn new(percent: u8) -> Self {
        let state = State { credit: BURST * 100, ..State::default() };
        Self {
            percent: percent.into(),
            state: Mutex::new(state),
            calls: AtomicU64::new(0),
            second: AtomicU64::new(0),
            won: AtomicU64::new(0),
        }
    }

    /// A call begins that is no second one: for how long it is left alone.
    pub fn begin(&self) -> Duration {
        self.calls.fetch_add(1, Ordering::Relaxed);
        {
            let mut state = self.state();
            state.credit = (state.credit + self.percent).min(BURST * 100);
        }
        self.patience()
    }

    /// For how long a call is left alone.
    pub fn patience(&self) -> Duration {
        let state = self.state();
        if state.recent.len() < FEW {
            return UNKNOWN;
        }
        let mut sorted: Vec<Duration> = state.recent.iter().copied().collect();
        sorted.sort_unstable();
        // Twice what nine of ten took.
        (sorted[sorted.len() * 9 / 10] * 2).max(LEAST)
    }

    /// A call was answered after so long.
    pub fn answered(&self, after: Duration) {
        let mut state = self.state();
        if state.recent.len() == RECENT {
            state.recent.pop_front();
        }
        state.recent.push_back(after);
    }

    /// Whether a second call may be made; it counts as made.
    pub fn may_ask_again(&self) -> bool {
        let mut state = self.state();
        let may = self.percent > 0 && state.credit >= 100;
        if may {
            state.credit -= 100;
            self.second.fetch_add(1, Ordering::Relaxed);
        }
        may
    }

    /// A second call was the first to be answered.
    pub fn second_won(&self) {
        self.won.fetch_add(1, Ordering::Relaxed);
    }

    /// What was done so far.
    pub fn counts(&self) -> HedgeCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HedgeCounts { calls: of(&self.calls), second: of(&self.second), won: of(&self.won) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_calls_are_a_share_of_all() {
        let hedges = Hedges::new(10);
        let burst = (0..100).filter(|_| hedges.may_ask_again()).count();
        assert_eq!(burst as u64, BURST);
        let share = (0..1000)
            .filter(|_| {
                hedges.begin();
                hedges.may_ask_again()
            })
            .count();
        assert_eq!(share, 100);
        assert_eq!(hedges.counts(), HedgeCounts { calls: 1000, second: 100 + BURST, won: 0 });
        let none = Hedges::new(0);
        none.begin();
        assert!(!none.may_ask_again());
    }

    #[test]
    fn what_is_long_follows_what_was() {
        let hedges = Hedges::new(10);
        assert_eq!(hedges.begin(), UNKNOWN);
        (0..FEW).for_each(|_| hedges.answered(Duration::from_millis(10)));
        assert_eq!(hedges.begin(), LEAST);
        (0..RECENT).for_each(|_| hedges.answered(Duration::from_millis(400)));
        assert_eq!(hedges.begin(), Duration::from_millis(800));
    }
}
