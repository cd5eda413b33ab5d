//! How long the steps of a node's end may take: they share one deadline.
//!
//! ```text
//!  told ─► answers still ─► leads go ─► requests finish │ last cut, goodbye │ tasks, groups and log end ─► over
//!          shutdown_delay ─►                            │◄─── 3 tenths ─────┼──────── 1 tenth ─────────►│
//! ```
//! What hangs takes time from what comes after it, but never all: who is not told goodbye would have to be missed, and a
//! log that is not closed is read back more slowly.

use std::time::Duration;

use athanor_chassis::Clock;

/// Tenths of the whole that are kept for what comes after requests.
const TENTHS_AFTER_REQUESTS: u32 = 3;
/// Tenths that are kept for what comes after the cut and the goodbye.
const TENTHS_AFTER_LEAVE: u32 = 1;

/// When a node that was told to end is over.
pub struct ShutdownBudget {
    clock: Clock,
    whole: Duration,
    /// By the monotonic clock.
    until: Duration,
}

impl ShutdownBudget {
    /// It begins now.
    pub fn begin(clock: &Clock, whole: Duration) -> Self {
        let until = clock.monotonic().saturating_add(whole);
        Self { clock: clock.clone(), whole, until }
    }

    /// For the delay, the leads and the requests, each in its turn.
    pub fn for_requests(&self) -> Duration {
        self.left(TENTHS_AFTER_REQUESTS)
    }

    /// For the last cut and the goodbye.
    pub fn for_leave(&self) -> Duration {
        self.left(TENTHS_AFTER_LEAVE)
    }

    /// For all that is left to do.
    pub fn for_remainder(&self) -> Duration {
        self.left(0)
    }

    fn left(&self, tenths: u32) -> Duration {
        let kept = self.whole / 10 * tenths;
        self.until.saturating_sub(kept).saturating_sub(self.clock.monotonic())
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Timestamp;

    use super::*;

    #[test]
    fn what_hangs_leaves_time_for_what_comes_after_it() {
        const SECOND: Duration = Duration::from_secs(1);
        let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        hand.advance(5 * SECOND);
        let ending = ShutdownBudget::begin(&clock, 10 * SECOND);
        let left = || [ending.for_requests(), ending.for_leave(), ending.for_remainder()];
        assert_eq!(left(), [7, 9, 10].map(|seconds| seconds * SECOND));
        hand.advance(8 * SECOND);
        assert_eq!(left(), [0, 1, 2].map(|seconds| seconds * SECOND));
        hand.advance(8 * SECOND);
        assert_eq!(left(), [Duration::ZERO; 3]);
        assert_eq!(ShutdownBudget::begin(&clock, Duration::ZERO).for_remainder(), Duration::ZERO);
        // Nobody waits so long, and nothing overflows.
        assert!(ShutdownBudget::begin(&clock, Duration::MAX).for_requests() > 1_000_000 * SECOND);
    }
}
