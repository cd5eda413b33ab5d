//! Times of one kind of one target: its next scrape, retries and delays.

use std::time::Duration;

use athanor_chassis::{Clock, Timestamp};

use super::outcome::{ScrapeError, ScrapeErrorKind};
use super::plan::KindSlot;

/// Delay until a kind that the target does not serve is requested again.
pub(super) const NOT_FOUND_RETRY_AFTER: Duration = Duration::from_secs(600);
/// Longest delay after bodies that exceed a limit.
const MAX_TOO_LARGE_DELAY: Duration = Duration::from_secs(600);
/// Part of the interval after which a busy target is scraped once more: one in so many.
const BUSY_RETRY_DIVISOR: u32 = 4;
/// Number of scrapes after a timeout of which one has the full time limit. The others may only use the gap, so
/// that a kind that hangs does not delay the other kinds of its target.
const FULL_LIMIT_EVERY: u32 = 16;
/// Shortest time for a response.
const MIN_RESPONSE_TIME: Duration = Duration::from_millis(200);

/// Wall time and monotonic time at the start of the agent. All phases count from it, so a later jump of the wall
/// clock moves no scrape.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScheduleEpoch {
    wall: Timestamp,
    monotonic: Duration,
}

/// Timer of one kind.
#[derive(Clone, Debug)]
pub(super) struct KindTimer {
    pub(super) slot: KindSlot,
    /// Start of the current occurrence, of which all later ones are multiples of the interval away.
    due: Duration,
    /// Time of the next attempt, at or after `due`.
    next_attempt: Duration,
    /// True if this occurrence was tried and the target was busy.
    was_busy: bool,
    /// Number of scrapes since a timeout. None if the last one did not time out.
    since_timeout: Option<u32>,
    /// Number of bodies in succession that exceeded a limit.
    too_large: u32,
}

/// Bounds of one scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScrapeBounds {
    /// Seconds that the target records.
    pub(super) seconds: Option<u32>,
    /// Time until the whole response must have arrived.
    pub(super) limit: Duration,
    /// Delay of the start.
    pub(super) delay: Duration,
}

impl ScheduleEpoch {
    pub(super) fn new(clock: &Clock) -> Self {
        Self { wall: clock.wall(), monotonic: clock.monotonic() }
    }

    /// Returns the first time of a slot at or after `now`.
    pub(super) fn first_due(&self, slot: &KindSlot, now: Duration) -> Duration {
        let interval = slot.interval.as_nanos() as i128;
        let offset = (slot.phase.as_nanos() as i128 - i128::from(self.wall.nanos())).rem_euclid(interval);
        let first = self.monotonic.as_nanos() as i128 + offset;
        let behind = (now.as_nanos() as i128 - first).max(0);
        let intervals = (behind + interval - 1) / interval;
        Duration::from_nanos(u64::try_from(first + intervals * interval).unwrap_or(u64::MAX))
    }
}

impl KindTimer {
    pub(super) fn new(slot: KindSlot, due: Duration) -> Self {
        Self { slot, due, next_attempt: due, was_busy: false, since_timeout: None, too_large: 0 }
    }

    /// Time of the next attempt.
    pub(super) fn next_attempt(&self) -> Duration {
        self.next_attempt
    }

    /// Skips occurrences that have no time left at `now`, and returns their number.
    pub(super) fn skip_missed(&mut self, now: Duration) -> u64 {
        let late = now.saturating_sub(self.due);
        let missed = late.as_nanos() / self.slot.interval.as_nanos();
        let mut missed = u64::try_from(missed).unwrap_or(u64::MAX);
        // A recording needs a second before the next one begins.
        let is_last_too_short =
            self.slot.seconds.is_some() && self.recordable(now, missed) < Duration::from_secs(1);
        // The first scrape after a start is allowed to be short: the slot itself may have less than a second.
        if is_last_too_short && now > self.due {
            missed += 1;
        }
        self.advance(missed);
        missed
    }

    /// Skips the current occurrence.
    pub(super) fn skip(&mut self) {
        self.advance(1);
    }

    /// Returns the bounds of a scrape that starts now.
    pub(super) fn bounds(&mut self, now: Duration, timeout: Duration) -> ScrapeBounds {
        let seconds = self.slot.seconds.map(|seconds| {
            let recordable = self.recordable(now, 0).as_secs().max(1);
            seconds.min(u32::try_from(recordable).unwrap_or(u32::MAX))
        });
        let has_full_limit =
            self.since_timeout.is_none_or(|scrapes| scrapes % FULL_LIMIT_EVERY == FULL_LIMIT_EVERY - 1);
        let response = match has_full_limit {
            true => timeout.min(self.slot.interval),
            false => timeout.min(self.slot.gap),
        };
        let recorded = Duration::from_secs(seconds.unwrap_or_default().into());
        ScrapeBounds {
            seconds,
            limit: recorded + response.max(MIN_RESPONSE_TIME),
            delay: now.saturating_sub(self.next_attempt),
        }
    }

    /// Plans the next attempt after a scrape that ended at `now`.
    pub(super) fn plan_next(&mut self, result: Result<(), &ScrapeError>, now: Duration) {
        let kind = result.err().map(|error| error.kind);
        self.since_timeout = match (kind, self.since_timeout) {
            (Some(ScrapeErrorKind::Timeout), since) => {
                Some(since.map_or(0, |scrapes| scrapes.saturating_add(1)))
            }
            _ => None,
        };
        self.too_large = match kind {
            Some(ScrapeErrorKind::TooLarge) => self.too_large.saturating_add(1),
            _ => 0,
        };
        let interval = self.slot.interval;
        match kind {
            Some(ScrapeErrorKind::Busy) if !self.was_busy => {
                let retry = now + interval / BUSY_RETRY_DIVISOR;
                let fits = self.slot.seconds.is_none() || self.recordable(retry, 0) >= Duration::from_secs(1);
                if fits && retry < self.due + interval {
                    self.was_busy = true;
                    self.next_attempt = retry;
                    return;
                }
                self.advance(1);
            }
            Some(ScrapeErrorKind::NotFound) => self.advance_by(NOT_FOUND_RETRY_AFTER, now),
            Some(ScrapeErrorKind::TooLarge) => {
                let delay = interval.saturating_mul(1 << (self.too_large - 1).min(16));
                self.advance_by(delay.min(MAX_TOO_LARGE_DELAY.max(interval)), now);
            }
            _ => self.advance(1),
        }
    }

    /// Moves to the first occurrence that is `delay` after now.
    fn advance_by(&mut self, delay: Duration, now: Duration) {
        let distance = (now + delay).saturating_sub(self.due).as_nanos();
        let intervals = distance.div_ceil(self.slot.interval.as_nanos()).max(1);
        self.advance(u64::try_from(intervals).unwrap_or(u64::MAX));
    }

    fn advance(&mut self, intervals: u64) {
        if intervals == 0 {
            return;
        }
        let nanos = self.slot.interval.as_nanos().saturating_mul(u128::from(intervals));
        let distance = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.due = self.due.saturating_add(distance);
        self.next_attempt = self.due;
        self.was_busy = false;
    }

    /// Returns the time that a recording of the occurrence `skipped` later may last if it starts at `now`. It
    /// ends half of the gap before the next one, so a late start shortens it and delays no other kind.
    fn recordable(&self, now: Duration, skipped: u64) -> Duration {
        let skipped = u32::try_from(skipped).unwrap_or(u32::MAX);
        let seconds = Duration::from_secs(self.slot.seconds.unwrap_or_default().into());
        let end = self.due + self.slot.interval.saturating_mul(skipped) + seconds + self.slot.gap / 2;
        end.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn timer(seconds: Option<u32>) -> KindTimer {
        let slot = KindSlot { interval: 15 * SECOND, phase: 3 * SECOND, seconds, gap: SECOND };
        KindTimer::new(slot, 18 * SECOND)
    }

    fn error(kind: ScrapeErrorKind) -> ScrapeError {
        ScrapeError::new(kind, "test")
    }

    #[test]
    fn phase_counts_from_unix_time_and_not_from_the_start() {
        let slot = KindSlot { interval: 15 * SECOND, phase: 3 * SECOND, seconds: None, gap: SECOND };
        let at = |wall: i64, monotonic: u32, now: u32| {
            let epoch = ScheduleEpoch { wall: Timestamp::from_seconds(wall), monotonic: monotonic * SECOND };
            epoch.first_due(&slot, now * SECOND)
        };
        // At second 1500, the phase is 3 s ahead; at second 1508 it is 10 s ahead.
        assert_eq!(at(1500, 100, 100), 103 * SECOND);
        assert_eq!(at(1508, 100, 100), 110 * SECOND);
        assert_eq!(at(1508, 100, 111), 125 * SECOND);
        assert_eq!(at(1503, 7, 7), 7 * SECOND);
        assert_eq!(at(-4, 0, 0), 7 * SECOND);
    }

    #[test]
    fn late_recording_is_shorter_and_ends_before_the_next_one() {
        let mut timer = timer(Some(14));
        assert_eq!(timer.bounds(18 * SECOND, 10 * SECOND).seconds, Some(14));
        assert_eq!(timer.bounds(18 * SECOND + SECOND / 2, 10 * SECOND).seconds, Some(14));
        let late = timer.bounds(20 * SECOND, 10 * SECOND);
        let expected = ScrapeBounds { seconds: Some(12), limit: 22 * SECOND, delay: 2 * SECOND };
        assert_eq!(late, expected);
        assert_eq!(timer.skip_missed(31 * SECOND), 0);
        assert_eq!(timer.skip_missed(32 * SECOND), 1);
        assert_eq!(timer.next_attempt(), 33 * SECOND);
        assert_eq!(timer.skip_missed(70 * SECOND), 2);
        assert_eq!(timer.bounds(70 * SECOND, 10 * SECOND).seconds, Some(7));
    }

    #[test]
    fn busy_target_is_asked_once_more_in_the_interval() {
        let mut timer = timer(Some(14));
        let busy = error(ScrapeErrorKind::Busy);
        timer.plan_next(Err(&busy), 18 * SECOND);
        assert_eq!(timer.next_attempt(), 18 * SECOND + 15 * SECOND / 4);
        let retry = timer.bounds(timer.next_attempt(), 10 * SECOND);
        assert_eq!((retry.seconds, retry.delay), (Some(10), Duration::ZERO));
        timer.plan_next(Err(&busy), 22 * SECOND);
        assert_eq!(timer.next_attempt(), 33 * SECOND);
    }

    #[test]
    fn absent_kind_is_requested_after_ten_minutes() {
        let mut timer = timer(None);
        timer.plan_next(Err(&error(ScrapeErrorKind::NotFound)), 18 * SECOND);
        assert_eq!(timer.next_attempt(), 618 * SECOND);
    }

    #[test]
    fn too_large_bodies_are_requested_ever_more_rarely() {
        let mut timer = timer(None);
        let too_large = error(ScrapeErrorKind::TooLarge);
        let mut last = timer.next_attempt();
        let mut delays = Vec::new();
        for _ in 0..8 {
            timer.plan_next(Err(&too_large), last);
            delays.push((timer.next_attempt() - last).as_secs());
            last = timer.next_attempt();
        }
        assert_eq!(delays, [15, 30, 60, 120, 240, 480, 600, 600]);
        timer.plan_next(Ok(()), last);
        assert_eq!(timer.next_attempt() - last, 15 * SECOND);
    }

    #[test]
    fn kind_that_hangs_gets_the_gap_and_rarely_the_full_limit() {
        let mut timer = timer(None);
        let timeout = error(ScrapeErrorKind::Timeout);
        let mut full = 0;
        for _ in 0..32 {
            let now = timer.next_attempt();
            let limit = timer.bounds(now, 10 * SECOND).limit;
            assert!(limit == 10 * SECOND || limit == SECOND);
            full += u32::from(limit == 10 * SECOND);
            timer.plan_next(Err(&timeout), now + limit);
        }
        assert_eq!(full, 2, "the first and one of 16");
        timer.plan_next(Ok(()), timer.next_attempt());
        assert_eq!(timer.bounds(timer.next_attempt(), 10 * SECOND).limit, 10 * SECOND);
    }
}
