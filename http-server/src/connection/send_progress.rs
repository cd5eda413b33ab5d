//! Progress of the transport with a response, by which stalled HTTP/2 streams are found.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Context;
use std::time::Duration;

use athanor_chassis::Clock;
use futures::task::AtomicWaker;

/// Progress of the transport with the pieces of one response.
#[derive(Debug)]
pub struct SendProgress {
    clock: Clock,
    /// Chunks that the transport has taken and not sent.
    unsent: AtomicUsize,
    /// Monotonic time in nanoseconds of the last change from which a stall is measured.
    last_nanos: AtomicU64,
    waker: AtomicWaker,
}

impl SendProgress {
    /// Creates the progress of a response that is not yet sent.
    pub fn new(clock: Clock) -> Self {
        Self { clock, unsent: AtomicUsize::new(0), last_nanos: AtomicU64::new(0), waker: AtomicWaker::new() }
    }

    pub(super) fn piece_taken(&self) {
        if self.unsent.fetch_add(1, Ordering::Relaxed) == 0 {
            self.touch();
        }
    }

    pub(super) fn piece_sent(&self) {
        self.touch();
        self.unsent.fetch_sub(1, Ordering::Release);
        self.waker.wake();
    }

    fn touch(&self) {
        let nanos = u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX);
        self.last_nanos.store(nanos, Ordering::Relaxed);
    }

    /// Returns whether all chunks are sent. If not, wakes the task when the next one is.
    pub fn is_sent(&self, context: &Context<'_>) -> bool {
        if self.unsent.load(Ordering::Acquire) == 0 {
            return true;
        }
        self.waker.register(context.waker());
        self.unsent.load(Ordering::Acquire) == 0
    }

    /// Returns the time since the last chunk was sent, or since the transport took the first unsent one.
    pub fn stalled_for(&self) -> Duration {
        let last = Duration::from_nanos(self.last_nanos.load(Ordering::Relaxed));
        self.clock.monotonic().saturating_sub(last)
    }

    /// Returns the clock that stalls are measured with.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}
