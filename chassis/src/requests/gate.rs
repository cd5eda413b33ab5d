//! Gate in front of requests: open until drained. A drain ends when all admitted requests have ended.

use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::code::{ErrorCode, ErrorCodeExt};

/// Gate that admits requests until it is closed and counts those in flight. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    inside: TaskTracker,
}

/// Guard of an admitted request. Dropping it leaves the gate.
#[derive(Debug)]
#[must_use = "dropping it is leaving"]
pub struct GateGuard(#[expect(dead_code, reason = "held for its drop")] TaskTrackerToken);

/// Rejection by a closed gate: this process is draining.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("shutting down, retry on another node")]
pub struct GateClosedError;

impl Gate {
    /// Enters the gate, unless it is closed.
    pub fn enter(&self) -> Result<GateGuard, GateClosedError> {
        let token = self.inside.token();
        // Checked after the token is taken, so a concurrent drain waits for this request.
        if self.inside.is_closed() { Err(GateClosedError) } else { Ok(GateGuard(token)) }
    }

    /// Number of admitted requests that are in flight.
    pub fn in_flight(&self) -> usize {
        self.inside.len()
    }

    /// Rejects all further requests and waits until all admitted requests have ended.
    pub async fn drain(&self) {
        self.inside.close();
        self.inside.wait().await;
    }
}

impl ErrorCodeExt for GateClosedError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Unavailable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn draining_waits_for_those_inside_and_refuses_the_rest() {
        let gate = Gate::default();
        let entered = gate.enter().unwrap();
        assert_eq!(gate.in_flight(), 1);
        let drained = gate.drain();
        tokio::pin!(drained);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(drained.as_mut().poll(&mut context).is_pending());
        let refused = gate.enter().unwrap_err();
        assert_eq!(refused.code(), ErrorCode::Unavailable);
        drop(entered);
        drained.await;
    }
}
