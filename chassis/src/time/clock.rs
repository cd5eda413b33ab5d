//! Clock as an injected dependency.
//!
//! A [`Clock`] provides wall time (for timestamps of profiles), monotonic time (for timeouts and rates) and
//! sleeps. In tests, a [`ManualClock`] drives it and moves only on request.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use chrono::{DateTime, SecondsFormat};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

/// Wall-clock time in nanoseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

/// Source of time. Cheap to clone: clones share the same time.
#[derive(Clone)]
pub struct Clock {
    source: Arc<dyn TimeSource>,
    /// Nanoseconds added to the wall time, to simulate a node with a wrong clock.
    skew: Arc<AtomicI64>,
}

/// Handle that advances a manual clock. Cheap to clone.
#[derive(Clone)]
pub struct ManualClock {
    shared: Arc<ManualTimeSource>,
}

/// Timeout of a wait, with the limit that was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not done within {}", crate::units::format_duration(*.0))]
pub struct TimeoutElapsed(pub Duration);

#[async_trait]
trait TimeSource: Send + Sync {
    fn wall(&self) -> Timestamp;
    fn monotonic(&self) -> Duration;
    async fn sleep(&self, wait: Duration);
}

struct SystemTimeSource {
    started: Instant,
    /// Simulated wall time at `started`. None if the machine's wall clock is read.
    start: Option<Timestamp>,
}

struct ManualTimeSource {
    start: Timestamp,
    state: Mutex<ManualClockState>,
    /// Number of sleeping waiters, watched by `wait_for_sleepers`.
    sleeping: watch::Sender<usize>,
}

#[derive(Default)]
struct ManualClockState {
    now: Duration,
    next: u64,
    /// Sleepers ordered by their wake-up time, then by arrival.
    sleepers: BTreeMap<(Duration, u64), oneshot::Sender<()>>,
}

// === impl Timestamp ===

impl Timestamp {
    /// Start of Unix time: 1970-01-01 UTC.
    pub const UNIX_EPOCH: Self = Self(0);

    /// Creates a timestamp from nanoseconds since 1970.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Creates a timestamp from seconds since 1970. Saturates in the year 2262.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since 1970.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Whole milliseconds since 1970, rounded down.
    pub const fn millis(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// Adds a duration to this timestamp. Saturates.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(span)))
    }

    /// Subtracts a duration from this timestamp. Saturates.
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(saturating_nanos(span)))
    }

    /// Returns the duration from `earlier` to this timestamp, zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        let nanos = self.0 as i128 - earlier.0 as i128;
        if nanos <= 0 { Duration::ZERO } else { Duration::from_nanos(nanos as u64) }
    }
}

/// Formats as RFC 3339 in UTC, with milliseconds.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = DateTime::from_timestamp_nanos(self.0);
        f.write_str(&time.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

fn saturating_nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

// === impl Clock ===

impl Clock {
    /// Clock of this machine. Its monotonic time and its sleeps use the tokio runtime, so they follow a
    /// runtime with paused time.
    #[expect(clippy::disallowed_methods, reason = "one of the places that read the runtime's clock")]
    pub fn system() -> Self {
        Self {
            source: Arc::new(SystemTimeSource { started: Instant::now(), start: None }),
            skew: Arc::default(),
        }
    }

    /// Clock with a wall time that starts at `start` and advances with the tokio runtime. For simulations on
    /// a runtime with paused time.
    #[expect(clippy::disallowed_methods, reason = "one of the places that read the runtime's clock")]
    pub fn starting_at(start: Timestamp) -> Self {
        Self {
            source: Arc::new(SystemTimeSource { started: Instant::now(), start: Some(start) }),
            skew: Arc::default(),
        }
    }

    /// Creates a stopped clock and the handle that advances it.
    pub fn manual(start: Timestamp) -> (Self, ManualClock) {
        let hand = ManualClock {
            shared: Arc::new(ManualTimeSource {
                start,
                state: Mutex::default(),
                sleeping: watch::Sender::new(0),
            }),
        };
        (hand.clock(), hand)
    }

    /// Returns a clock with the same passage of time, and a wall time `nanos` ahead (behind, if negative).
    #[must_use]
    pub fn with_skew(&self, nanos: i64) -> Self {
        let skew = self.skew.load(Ordering::Relaxed).saturating_add(nanos);
        Self { source: Arc::clone(&self.source), skew: Arc::new(AtomicI64::new(skew)) }
    }

    /// Sets the skew of the wall time of this clock and its clones to `nanos` ahead of the source (behind, if
    /// negative). The monotonic time is unaffected.
    pub fn jump_wall_time(&self, nanos: i64) {
        self.skew.store(nanos, Ordering::Relaxed);
    }

    /// Returns the wall time, which may jump in both directions.
    pub fn wall(&self) -> Timestamp {
        Timestamp(self.source.wall().0.saturating_add(self.skew.load(Ordering::Relaxed)))
    }

    /// Returns the monotonic time since a fixed point before the start of this clock. It never goes back.
    pub fn monotonic(&self) -> Duration {
        self.source.monotonic()
    }

    /// Sleeps for the given duration.
    pub async fn sleep(&self, wait: Duration) {
        self.source.sleep(wait).await;
    }

    /// Polls a future for at most `limit`, then drops it. A ready future wins over an expired limit.
    pub async fn timeout<F: Future>(&self, limit: Duration, future: F) -> Result<F::Output, TimeoutElapsed> {
        tokio::select! {
            biased;
            output = future => Ok(output),
            () = self.sleep(limit) => Err(TimeoutElapsed(limit)),
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("wall", &self.wall()).field("skew", &self.skew).finish()
    }
}

#[async_trait]
impl TimeSource for SystemTimeSource {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    fn wall(&self) -> Timestamp {
        if let Some(start) = self.start {
            return start.plus(self.monotonic());
        }
        match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => Timestamp(saturating_nanos(after)),
            Err(before) => Timestamp(-saturating_nanos(before.duration())),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "one of the places that read the runtime's clock")]
    fn monotonic(&self) -> Duration {
        Instant::now().duration_since(self.started)
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that sleeps")]
    async fn sleep(&self, wait: Duration) {
        tokio::time::sleep(wait).await;
    }
}

// === impl ManualClock ===

impl ManualClock {
    /// Returns a clock that this handle advances.
    pub fn clock(&self) -> Clock {
        let source: Arc<dyn TimeSource> = Arc::clone(&self.shared) as _;
        Clock { source, skew: Arc::default() }
    }

    /// Advances time and wakes all due sleepers in order.
    pub fn advance(&self, by: Duration) {
        let mut state = self.shared.state.lock();
        state.now = state.now.saturating_add(by);
        state.wake_due_sleepers();
        self.shared.sleeping.send_replace(state.sleepers.len());
    }

    /// Advances time to the next wake-up. Returns whether there was a sleeper.
    pub fn advance_to_next(&self) -> bool {
        let mut state = self.shared.state.lock();
        state.remove_cancelled_sleepers();
        let next = state.sleepers.keys().next().map(|(at, _)| *at);
        if let Some(at) = next {
            state.now = at;
            state.wake_due_sleepers();
        }
        self.shared.sleeping.send_replace(state.sleepers.len());
        next.is_some()
    }

    /// Waits until at least `count` sleepers wait on this clock.
    pub async fn wait_for_sleepers(&self, count: usize) {
        let mut sleeping = self.shared.sleeping.subscribe();
        sleeping
            .wait_for(|now| *now >= count)
            .await
            .expect("the sender lives in the clock, which self holds");
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualClock").field("now", &self.shared.state.lock().now).finish()
    }
}

impl ManualTimeSource {
    /// Registers a sleeper, unless its wait is zero.
    fn register_sleeper(&self, wait: Duration) -> Option<oneshot::Receiver<()>> {
        if wait.is_zero() {
            return None;
        }
        let mut state = self.state.lock();
        state.remove_cancelled_sleepers();
        let (wake, woken) = oneshot::channel();
        let key = (state.now.saturating_add(wait), state.next);
        state.next += 1;
        state.sleepers.insert(key, wake);
        self.sleeping.send_replace(state.sleepers.len());
        Some(woken)
    }
}

impl ManualClockState {
    fn wake_due_sleepers(&mut self) {
        while let Some(entry) = self.sleepers.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            // A cancelled sleeper has dropped its receiver.
            let _ = entry.remove().send(());
        }
    }

    fn remove_cancelled_sleepers(&mut self) {
        self.sleepers.retain(|_, wake| !wake.is_closed());
    }
}

#[async_trait]
impl TimeSource for ManualTimeSource {
    fn wall(&self) -> Timestamp {
        self.start.plus(self.state.lock().now)
    }

    fn monotonic(&self) -> Duration {
        self.state.lock().now
    }

    async fn sleep(&self, wait: Duration) {
        if let Some(woken) = self.register_sleeper(wait) {
            woken.await.expect("a waiting sleeper is dropped only with the clock, which this call holds");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn timestamps_count_and_saturate() {
        let moment = Timestamp::from_seconds(10);
        assert_eq!(moment.plus(SECOND).nanos(), 11_000_000_000);
        assert_eq!(moment.minus(SECOND).since(moment), Duration::ZERO);
        assert_eq!(moment.since(Timestamp::UNIX_EPOCH), 10 * SECOND);
        assert_eq!(moment.plus(Duration::MAX), Timestamp::from_nanos(i64::MAX));
        assert_eq!(Timestamp::from_nanos(-1).millis(), -1);
        let all = Timestamp::from_nanos(i64::MAX).since(Timestamp::from_nanos(i64::MIN));
        assert_eq!(all, Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn a_wall_clock_jumps_in_all_clones_and_in_no_other() {
        let (clock, hand) = Clock::manual(Timestamp::from_seconds(100));
        let wrong = clock.with_skew(5_000_000_000);
        let clone = wrong.clone();
        wrong.jump_wall_time(-2_000_000_000);
        hand.advance(SECOND);
        let walls = [&clock, &wrong, &clone].map(|clock| clock.wall());
        assert_eq!(walls, [101, 99, 99].map(Timestamp::from_seconds));
        assert_eq!(clone.monotonic(), SECOND);
    }

    #[tokio::test]
    async fn sleepers_wake_in_order_and_only_when_time_passes() {
        let (clock, hand) = Clock::manual(Timestamp::from_seconds(100));
        let (woken, mut order) = tokio::sync::mpsc::unbounded_channel();
        let mut sleepers = Vec::new();
        for seconds in [3_u32, 1, 2] {
            let (clock, woken) = (clock.clone(), woken.clone());
            sleepers.push(async move {
                clock.sleep(seconds * SECOND).await;
                woken.send(seconds).unwrap();
            });
        }
        let mut sleepers = sleepers.into_iter();
        let (a, b, c) = (sleepers.next().unwrap(), sleepers.next().unwrap(), sleepers.next().unwrap());
        let driver = async {
            hand.wait_for_sleepers(3).await;
            assert!(order.try_recv().is_err());
            assert!(hand.advance_to_next());
            assert_eq!(order.recv().await, Some(1));
            assert_eq!(clock.wall(), Timestamp::from_seconds(101));
            hand.advance(2 * SECOND);
            assert_eq!(order.recv().await.min(order.recv().await), Some(2));
            assert!(!hand.advance_to_next());
        };
        tokio::join!(a, b, c, driver);
        assert_eq!(clock.monotonic(), 3 * SECOND);
    }

    #[tokio::test]
    async fn within_gives_up_at_the_limit_and_forgets_its_sleeper() {
        let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        assert_eq!(clock.timeout(SECOND, async { 7 }).await, Ok(7));
        assert!(!hand.advance_to_next(), "the sleeper of a finished wait is gone");
        let stuck = clock.timeout(SECOND, std::future::pending::<()>());
        let (outcome, ()) = tokio::join!(stuck, async {
            hand.wait_for_sleepers(1).await;
            hand.advance(SECOND);
        });
        assert_eq!(outcome, Err(TimeoutElapsed(SECOND)));
        assert_eq!(TimeoutElapsed(SECOND).to_string(), "not done within 1s");
    }

    #[test]
    fn a_skewed_clock_is_wrong_by_as_much_and_passes_alike() {
        let (clock, hand) = Clock::manual(Timestamp::from_seconds(50));
        let wrong = clock.with_skew(-5_000_000_000);
        hand.advance(SECOND);
        assert_eq!(clock.wall().since(wrong.wall()), 5 * SECOND);
        assert_eq!(clock.monotonic(), wrong.monotonic());
    }

    #[tokio::test(start_paused = true)]
    async fn the_system_clock_follows_a_paused_runtime() {
        let clock = Clock::system();
        let before = clock.monotonic();
        clock.sleep(3600 * SECOND).await;
        assert!(clock.monotonic() - before >= 3600 * SECOND);
        assert!(clock.wall() > Timestamp::from_seconds(1_600_000_000));
    }

    #[tokio::test(start_paused = true)]
    async fn a_started_clock_asks_no_machine() {
        let clock = Clock::starting_at(Timestamp::from_seconds(50));
        assert_eq!(clock.wall(), Timestamp::from_seconds(50));
        clock.sleep(3600 * SECOND).await;
        assert_eq!((clock.wall(), clock.monotonic()), (Timestamp::from_seconds(3650), 3600 * SECOND));
    }
}
