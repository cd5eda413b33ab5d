//! Time budget of a node's shutdown: its steps share one deadline.
//!
//! ```text
//!  signal ─► serve ─────────► transfer ─► requests │ flush, leave ─────────│ tasks, groups, log ─► end
//!            shutdown_delay   leaders              │◄────── 3 tenths ──────┼──── 1 tenth ─────────►│
//! ```
//! A step that hangs takes time from later steps, but never all of it. Without the leave, other nodes would
//! have to detect this node as missing. A log that is not closed recovers more slowly.

use std::time::Duration;

use athanor_chassis::Clock;

/// Tenths of the budget that are reserved for the steps after the requests.
const TENTHS_AFTER_REQUESTS: u32 = 3;
/// Tenths of the budget that are reserved for the steps after the flush and the leave.
const TENTHS_AFTER_LEAVE: u32 = 1;

/// Deadline of a node that is shutting down.
pub struct ShutdownBudget {
    clock: Clock,
    whole: Duration,
    /// Deadline by the monotonic clock.
    until: Duration,
}

impl ShutdownBudget {
    /// Starts the budget now.
    pub fn begin(clock: &Clock, whole: Duration) -> Self {
        let until = clock.monotonic().saturating_add(whole);
        Self { clock: clock.clone(), whole, until }
    }

    /// Returns the time left for the delay, the transfers and the requests.
    pub fn for_requests(&self) -> Duration {
        self.left(TENTHS_AFTER_REQUESTS)
    }

    /// Returns the time left for the last flush and the leave.
    pub fn for_leave(&self) -> Duration {
        self.left(TENTHS_AFTER_LEAVE)
    }

    /// Returns the time left for all remaining steps.
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
