//! Detection of jumps of the wall clock.
//!
//! The agent measures intervals with the monotonic clock. A jump of the wall clock changes the times of later
//! profiles and nothing else. The monitor counts jumps, so that an operator can explain such times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::observability::metric_family::{MetricCollector, MetricFamily, metric_collector};
use athanor_chassis::{Clock, Timestamp};
use parking_lot::Mutex;

/// Difference between the passed wall time and the passed monotonic time that counts as a jump.
const MIN_JUMP: Duration = Duration::from_millis(500);
/// Parts of the passed time by which an adjusted clock may drift: one in so many. Time daemons adjust by at most
/// 500 millionths.
const MAX_DRIFT_DIVISOR: u32 = 1000;
/// Longest time between the two clock readings of a usable observation. A thread that was suspended between
/// them observes nothing.
const MAX_READING_TIME: Duration = Duration::from_millis(50);

/// Metrics of the wall clock.
pub const WALL_CLOCK_METRICS: &[MetricFamily<u64>] = &[MetricFamily::counter(
    "athanor_agent_clock_jumps_total",
    "Number of jumps of the wall clock that the agent detected",
    &[],
    |jumps, samples| samples.add(*jumps),
)];

/// Monitor that compares the wall clock with the monotonic clock.
#[derive(Debug)]
pub struct WallClockMonitor {
    clock: Clock,
    last: Mutex<ClockReading>,
    jumps: AtomicU64,
}

/// Jump of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockJump {
    /// Nanoseconds by which the wall clock jumped ahead, negative if back.
    pub nanos: i64,
}

/// Both clocks at one time.
#[derive(Clone, Copy, Debug)]
struct ClockReading {
    wall: Timestamp,
    monotonic: Duration,
}

impl WallClockMonitor {
    /// Creates a monitor that compares with the present time.
    pub fn new(clock: Clock) -> Arc<Self> {
        let last = ClockReading { wall: clock.wall(), monotonic: clock.monotonic() };
        Arc::new(Self { clock, last: Mutex::new(last), jumps: AtomicU64::new(0) })
    }

    /// Compares the clocks with the last observation, and counts and logs a jump.
    pub fn observe(&self) -> Option<ClockJump> {
        let mut last = self.last.lock();
        let before = self.clock.monotonic();
        let wall = self.clock.wall();
        let monotonic = self.clock.monotonic();
        if monotonic.saturating_sub(before) > MAX_READING_TIME {
            return None;
        }
        let passed = monotonic.saturating_sub(last.monotonic);
        let expected = last.wall.plus(passed);
        let tolerance = MIN_JUMP + passed / MAX_DRIFT_DIVISOR;
        let is_jump = wall.since(expected).max(expected.since(wall)) > tolerance;
        *last = ClockReading { wall, monotonic };
        if !is_jump {
            return None;
        }
        self.jumps.fetch_add(1, Ordering::Relaxed);
        let nanos = wall.nanos().saturating_sub(expected.nanos());
        tracing::warn!(jump_seconds = nanos as f64 / 1e9, wall_time = %wall, "wall clock jumped");
        Some(ClockJump { nanos })
    }

    /// Number of jumps since the start.
    pub fn jumps(&self) -> u64 {
        self.jumps.load(Ordering::Relaxed)
    }
}

/// Returns the collector of [`WALL_CLOCK_METRICS`].
pub fn wall_clock_collector(monitor: Arc<WallClockMonitor>) -> MetricCollector {
    metric_collector(WALL_CLOCK_METRICS, move || Some(monitor.jumps()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NANOS: i64 = 3_600_000_000_000;

    #[test]
    fn jumps_in_both_directions_are_counted_once_each() {
        let (clock, hand) = Clock::manual(Timestamp::from_seconds(1_000_000));
        let monitor = WallClockMonitor::new(clock.clone());
        hand.advance(Duration::from_secs(10));
        assert_eq!(monitor.observe(), None);
        clock.jump_wall_time(HOUR_NANOS);
        hand.advance(Duration::from_secs(10));
        assert_eq!(monitor.observe(), Some(ClockJump { nanos: HOUR_NANOS }));
        assert_eq!(monitor.observe(), None, "the time after a jump is the new base");
        clock.jump_wall_time(0);
        assert_eq!(monitor.observe(), Some(ClockJump { nanos: -HOUR_NANOS }));
        assert_eq!(monitor.jumps(), 2);
    }

    #[test]
    fn adjusted_clock_does_not_jump() {
        let (clock, hand) = Clock::manual(Timestamp::from_seconds(1_000_000));
        let monitor = WallClockMonitor::new(clock.clone());
        for round in 1..=100 {
            hand.advance(Duration::from_secs(10));
            clock.jump_wall_time(round * 5_000_000);
            assert_eq!(monitor.observe(), None);
        }
        clock.jump_wall_time(100 * 5_000_000 + 600_000_000);
        assert_eq!(monitor.observe(), Some(ClockJump { nanos: 600_000_000 }));
    }
}
