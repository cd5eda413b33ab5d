//! Whether a server accepts requests, from the results of the last ones.

use std::time::Duration;

use super::RequestSlot;

/// Time between two probes with fresh files, and between two with cumulative ones. The bound of probes, times this, is
/// the timeout of a request with a small body, so probes go on while earlier ones hang.
const PROBE_INTERVAL: Duration = Duration::from_secs(3);

/// State of a server. Times are monotonic.
#[derive(Debug, Default)]
pub(super) struct ServerHealth {
    /// Failed requests since the last one with a response.
    failures: usize,
    /// Time of the last response.
    responded_at: Duration,
    /// End of the delay that the server requested. No request begins before.
    paused_until: Duration,
    /// Time at which a fresh file may show whether the server recovered.
    fresh_probe_at: Duration,
    /// Time at which a cumulative file may show whether the server recovered.
    cumulative_probe_at: Duration,
    /// Time at which a file of the backlog may show whether the server recovered.
    backlog_probe_at: Duration,
    last_error: Option<String>,
    is_method_missing: bool,
}

impl ServerHealth {
    /// Records that the server processed a request. Returns whether it recovered.
    pub(super) fn record_response(&mut self, now: Duration) -> bool {
        let has_recovered = self.failures > 0;
        self.failures = 0;
        self.responded_at = now;
        self.last_error = None;
        has_recovered
    }

    /// Records a request without a final response. Returns whether it is the first one. A request that began
    /// before the last response shows nothing about the state after it.
    pub(super) fn record_failure(&mut self, failure: &RequestFailure, now: Duration) -> bool {
        if let Some(requested) = failure.retry_after {
            self.paused_until = self.paused_until.max(now.saturating_add(requested));
        }
        if failure.began_at < self.responded_at {
            return false;
        }
        let is_first = self.failures == 0;
        self.failures = self.failures.saturating_add(1);
        let probe_at = failure.began_at.saturating_add(PROBE_INTERVAL);
        self.fresh_probe_at = self.fresh_probe_at.max(probe_at);
        self.backlog_probe_at = now.saturating_add(failure.delay);
        self.last_error = Some(failure.message.clone());
        is_first
    }

    /// Records that the server limits the requests of one tenant. It may accept those of others.
    pub(super) fn record_limit(&mut self, message: &str) {
        self.last_error = Some(message.to_owned());
    }

    /// Records that the server does not have a method. Returns whether it is the first time.
    pub(super) fn record_missing_method(&mut self, message: &str) -> bool {
        self.last_error = Some(message.to_owned());
        !std::mem::replace(&mut self.is_method_missing, true)
    }

    /// Records the begin of a request with delta profiles. Returns the slot that it uses.
    pub(super) fn begin_delta_request(&mut self, slot: RequestSlot, now: Duration) -> RequestSlot {
        if !self.is_failing() {
            return slot;
        }
        self.fresh_probe_at = now.saturating_add(PROBE_INTERVAL);
        RequestSlot::Probe
    }

    /// Records the begin of a request with cumulative profiles.
    pub(super) fn begin_cumulative_request(&mut self, now: Duration) {
        if self.is_failing() {
            self.cumulative_probe_at = now.saturating_add(PROBE_INTERVAL);
        }
    }

    /// Returns whether the last request failed.
    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Returns the failures since the last response.
    pub(super) fn failures(&self) -> usize {
        self.failures
    }

    /// Returns the error of the last request, if it failed.
    pub(super) fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Returns whether the server requested that no request begins now.
    pub(super) fn is_paused(&self, now: Duration) -> bool {
        now < self.paused_until
    }

    /// Returns whether a fresh file may show now whether a failing server recovered.
    pub(super) fn allows_fresh_probe(&self, now: Duration) -> bool {
        now >= self.fresh_probe_at
    }

    /// Returns whether a cumulative file may show now whether a failing server recovered.
    pub(super) fn allows_cumulative_probe(&self, now: Duration) -> bool {
        now >= self.cumulative_probe_at
    }

    /// Returns whether a file of the backlog may show now whether a failing server recovered.
    pub(super) fn allows_backlog_probe(&self, now: Duration) -> bool {
        now >= self.backlog_probe_at
    }

    /// Returns the next time after `now` at which more is allowed.
    pub(super) fn next_change(&self, now: Duration) -> Option<Duration> {
        let probes = [self.fresh_probe_at, self.cumulative_probe_at, self.backlog_probe_at];
        let probes = probes.into_iter().filter(|_| self.failures > 0);
        probes.chain([self.paused_until]).filter(|at| *at > now).min()
    }

    /// Allows a request of each queue now.
    pub(super) fn end_delays(&mut self) {
        self.paused_until = Duration::ZERO;
        self.fresh_probe_at = Duration::ZERO;
        self.cumulative_probe_at = Duration::ZERO;
        self.backlog_probe_at = Duration::ZERO;
    }
}

/// Request without a final response.
#[derive(Clone, Debug)]
pub(super) struct RequestFailure {
    /// Time at which the request began.
    pub(super) began_at: Duration,
    /// Time until the next attempt of the file.
    pub(super) delay: Duration,
    /// Delay that the server requested.
    pub(super) retry_after: Option<Duration>,
    /// Error text.
    pub(super) message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn failure(began_at: Duration, delay: Duration, retry_after: Option<Duration>) -> RequestFailure {
        RequestFailure { began_at, delay, retry_after, message: "refused".to_owned() }
    }

    #[test]
    fn failing_server_gets_fresh_probes_at_an_interval_and_backlog_after_the_backoff() {
        let mut health = ServerHealth::default();
        assert_eq!(health.begin_delta_request(RequestSlot::Fresh, SECOND), RequestSlot::Fresh);
        assert!(health.record_failure(&failure(SECOND, 60 * SECOND, None), SECOND) && health.is_failing());
        assert!(!health.allows_fresh_probe(3 * SECOND) && health.allows_fresh_probe(4 * SECOND));
        assert!(!health.allows_backlog_probe(60 * SECOND) && health.allows_backlog_probe(61 * SECOND));
        assert_eq!(health.next_change(4 * SECOND), Some(61 * SECOND));
        assert_eq!(health.begin_delta_request(RequestSlot::Fresh, 4 * SECOND), RequestSlot::Probe);
        assert!(!health.allows_fresh_probe(6 * SECOND) && health.allows_fresh_probe(7 * SECOND));
        assert!(health.record_response(8 * SECOND) && !health.is_failing());
        assert_eq!((health.next_change(SECOND), health.last_error()), (None, None));
    }

    #[test]
    fn failing_server_gets_cumulative_probes_at_an_interval() {
        let mut health = ServerHealth::default();
        health.begin_cumulative_request(SECOND);
        assert!(health.allows_cumulative_probe(SECOND));
        health.record_failure(&failure(SECOND, 60 * SECOND, None), SECOND);
        health.begin_cumulative_request(2 * SECOND);
        assert!(!health.allows_cumulative_probe(4 * SECOND) && health.allows_cumulative_probe(5 * SECOND));
        assert_eq!(health.next_change(4 * SECOND), Some(5 * SECOND));
    }

    #[test]
    fn failure_of_a_request_from_before_the_last_response_is_ignored() {
        let mut health = ServerHealth::default();
        health.record_response(5 * SECOND);
        assert!(!health.record_failure(&failure(4 * SECOND, SECOND, None), 30 * SECOND));
        assert!(!health.is_failing() && health.last_error().is_none());
        assert!(health.record_failure(&failure(5 * SECOND, SECOND, None), 30 * SECOND));
        assert!(health.is_failing() && health.last_error() == Some("refused"));
    }

    #[test]
    fn requested_delay_pauses_all_requests() {
        let mut health = ServerHealth::default();
        health.record_failure(&failure(SECOND, SECOND, Some(30 * SECOND)), SECOND);
        health.record_response(SECOND);
        assert!(health.is_paused(30 * SECOND) && !health.is_paused(31 * SECOND));
        assert_eq!(health.next_change(2 * SECOND), Some(31 * SECOND));
        health.end_delays();
        assert!(!health.is_paused(2 * SECOND));
    }
}
