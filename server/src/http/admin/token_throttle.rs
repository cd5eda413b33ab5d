//! Throttle of failed administration tokens: counts and logs failures, and delays clients that fail often.
//!
//! After several consecutive failures, responses to wrong tokens are sent one at a time, with a pause after
//! each. The right token never waits.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::{Clock, ErrorCode, Status};
use athanor_http_server::LogThrottle;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Number of consecutive failures, and of concurrent responses to wrong tokens, without a pause.
const MAX_FREE_FAILURES: usize = 5;
/// Pause after each further failure.
const FAILURE_DELAY: Duration = Duration::from_secs(1);
/// Time without a failure after which the count of failures restarts.
const FAILURE_RETENTION: Duration = Duration::from_secs(60);
/// Maximum number of tokens that wait; more are rejected.
const MAX_WAITING_TOKENS: usize = 16;

/// Throttle of failed tokens of one server.
#[derive(Debug)]
pub struct TokenThrottle {
    clock: Clock,
    failed: AtomicU64,
    state: Mutex<TokenThrottleState>,
    comparison: Semaphore,
}

#[derive(Debug, Default)]
struct TokenThrottleState {
    /// Number of consecutive failures.
    recent: usize,
    last_failure: Option<Duration>,
    comparing: usize,
    waiting: usize,
    logged: LogThrottle,
}

/// Permit to respond to one wrong token.
#[must_use]
pub struct TokenAttempt<'a> {
    throttle: &'a TokenThrottle,
    _permit: Option<SemaphorePermit<'a>>,
}

/// Wrong token that waits in the queue.
struct QueuedToken<'a>(&'a TokenThrottle);

impl TokenThrottle {
    /// Creates a throttle without failures.
    pub fn new(clock: Clock) -> Self {
        Self { clock, failed: AtomicU64::new(0), state: Mutex::default(), comparison: Semaphore::new(1) }
    }

    /// Returns the number of failed tokens.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Waits for the permit to respond to a wrong token.
    pub async fn begin(&self) -> Result<TokenAttempt<'_>, Status> {
        let Some(_waiting) = self.enter()? else {
            return Ok(TokenAttempt { throttle: self, _permit: None });
        };
        // The semaphore is never closed.
        let permit = self.comparison.acquire().await.ok();
        let pause = {
            let state = self.state.lock();
            let due = state.last_failure.map_or(Duration::ZERO, |last| last + FAILURE_DELAY);
            due.saturating_sub(self.clock.monotonic())
        };
        if !pause.is_zero() {
            self.clock.sleep(pause).await;
        }
        self.state.lock().comparing += 1;
        Ok(TokenAttempt { throttle: self, _permit: permit })
    }

    /// Returns no queue slot if a response may be sent without a pause.
    fn enter(&self) -> Result<Option<QueuedToken<'_>>, Status> {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        if state.last_failure.is_none_or(|last| now.saturating_sub(last) >= FAILURE_RETENTION) {
            state.recent = 0;
        }
        if state.recent + state.comparing < MAX_FREE_FAILURES {
            state.comparing += 1;
            return Ok(None);
        }
        if state.waiting >= MAX_WAITING_TOKENS {
            let message = format!(
                "too many wrong tokens: {MAX_WAITING_TOKENS} requests wait for a delayed comparison, which is the limit; retry later"
            );
            return Err(Status::new(ErrorCode::Exhausted, message).with_retry_after(FAILURE_DELAY));
        }
        state.waiting += 1;
        Ok(Some(QueuedToken(self)))
    }
}

impl TokenAttempt<'_> {
    /// Counts a wrong token and logs it.
    pub fn fail(self, peer: Option<SocketAddr>) {
        let throttle = self.throttle;
        throttle.failed.fetch_add(1, Ordering::Relaxed);
        let now = throttle.clock.monotonic();
        let times = {
            let mut state = throttle.state.lock();
            state.recent = state.recent.saturating_add(1);
            state.last_failure = Some(now);
            state.logged.should_log(now)
        };
        if let Some(times) = times {
            let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
            tracing::warn!(peer, times, "rejected wrong administration tokens");
        }
    }
}

impl Drop for TokenAttempt<'_> {
    fn drop(&mut self) {
        self.throttle.state.lock().comparing -= 1;
    }
}

impl Drop for QueuedToken<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Timestamp;
    use futures::future::poll_immediate;

    use super::*;

    #[tokio::test]
    async fn failures_beyond_limit_are_counted_and_delayed() {
        let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        let throttle = TokenThrottle::new(clock);
        for _ in 0..MAX_FREE_FAILURES {
            throttle.begin().await.unwrap().fail(None);
        }
        assert_eq!(throttle.failed(), 5);
        let mut queue: Vec<_> = (0..MAX_WAITING_TOKENS).map(|_| Box::pin(throttle.begin())).collect();
        for waiting in &mut queue {
            assert!(poll_immediate(waiting).await.is_none());
        }
        let refused = throttle.begin().await.err().unwrap();
        assert_eq!((refused.code, refused.retry_after), (ErrorCode::Exhausted, Some(FAILURE_DELAY)));
        // One in each pause, in order of arrival; a canceled request frees its queue slot.
        drop(queue.pop());
        for waiting in queue {
            let mut waiting = waiting;
            assert!(poll_immediate(&mut waiting).await.is_none());
            hand.advance(FAILURE_DELAY);
            waiting.await.unwrap().fail(None);
        }
        // Requests that do not fail wait once.
        hand.advance(FAILURE_DELAY);
        for _ in 0..3 {
            drop(throttle.begin().await.unwrap());
        }
        hand.advance(FAILURE_RETENTION);
        for _ in 0..MAX_FREE_FAILURES {
            throttle.begin().await.unwrap().fail(None);
        }
        assert!(poll_immediate(Box::pin(throttle.begin())).await.is_none());
    }

    #[tokio::test]
    async fn concurrent_tokens_do_not_bypass_delay() {
        let (clock, _hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        let throttle = TokenThrottle::new(clock);
        let mut at_once = Vec::new();
        for _ in 0..MAX_FREE_FAILURES {
            at_once.push(throttle.begin().await.unwrap());
        }
        let sixth = throttle.begin().await.unwrap();
        let mut seventh = Box::pin(throttle.begin());
        assert!(poll_immediate(&mut seventh).await.is_none(), "one at a time");
        sixth.fail(None);
        assert!(poll_immediate(&mut seventh).await.is_none(), "after a pause");
    }
}
