//! Retries of requests that failed temporarily.

use std::time::Duration;

use athanor_chassis::{Backoff, ErrorCode, Random, Status};

/// Delays between the attempts of one request: exponential backoff with jitter, but not less than the server
/// requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Delays if the server requests none.
    pub backoff: Backoff,
    /// Maximum number of retries. None retries until a response is final.
    pub max_retries: Option<u32>,
    /// Maximum delay that a server may request. A longer one ends the retries.
    pub max_retry_after: Duration,
}

/// Returns whether the same request may succeed later: no response, a timeout, or status 408, 429 or 5xx
/// except 501.
pub fn is_temporary(status: &Status) -> bool {
    // A foreign server returns 500 for failures that pass.
    status.code.is_retryable() || status.code == ErrorCode::Internal
}

/// Returns whether the server rejected the content of a request, and not the caller or all requests.
pub fn is_rejection(status: &Status) -> bool {
    matches!(status.code, ErrorCode::Invalid | ErrorCode::TooLarge)
}

impl RetryPolicy {
    /// Returns a policy for a person who waits: delays from 250 ms to 15 s.
    pub const fn interactive(max_retries: u32) -> Self {
        RetryPolicy {
            backoff: Backoff::doubling(Duration::from_millis(250), Duration::from_secs(15)),
            max_retries: Some(max_retries),
            max_retry_after: Duration::from_secs(300),
        }
    }

    /// Returns the delay before the next attempt, after `failures` failed attempts before the last one. None
    /// if a retry is pointless or no longer allowed.
    pub fn delay(&self, failures: u32, status: &Status, random: &Random) -> Option<Duration> {
        let requested = status.retry_after.unwrap_or_default();
        let is_exhausted = self.max_retries.is_some_and(|max| failures >= max);
        if !is_temporary(status) || is_exhausted || requested > self.max_retry_after {
            return None;
        }
        Some(self.backoff.delay(failures as usize, random).max(requested))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_grows_and_is_at_least_what_the_server_requests() {
        let policy = RetryPolicy::interactive(3);
        let random = Random::from_seed(1);
        let busy = Status::new(ErrorCode::Unavailable, "busy");
        let delays: Vec<_> = (0..4).map(|failures| policy.delay(failures, &busy, &random)).collect();
        let millis: Vec<_> = delays.iter().flatten().map(Duration::as_millis).collect();
        assert_eq!(delays.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, true, false]);
        assert!((125..=250).contains(&millis[0]) && (500..=1000).contains(&millis[2]), "{millis:?}");
        let requested = busy.clone().with_retry_after(Duration::from_secs(40));
        assert_eq!(policy.delay(0, &requested, &random), Some(Duration::from_secs(40)));
        let too_long = busy.with_retry_after(Duration::from_secs(301));
        assert_eq!(policy.delay(0, &too_long, &random), None);
    }

    #[test]
    fn only_temporary_failures_are_retried() {
        let temporary = [408, 429, 500, 502, 503, 504, 507];
        for http in [400, 401, 403, 404, 409, 413, 422, 501].into_iter().chain(temporary) {
            let status = Status::new(ErrorCode::from_http(http), "");
            assert_eq!(is_temporary(&status), temporary.contains(&http), "{http}");
            assert_eq!(is_rejection(&status), [400, 413, 422].contains(&http), "{http}");
        }
    }
}
