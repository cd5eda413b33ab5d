//! A gate in front of work: open until drained, and drained only when all who entered have left.

use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::code::{ErrorCode, ErrorCodeExt};

/// Lets requests in until it is closed, and knows how many are inside. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    inside: TaskTracker,
}

/// Proof of having entered; leaving is dropping it.
#[derive(Debug)]
#[must_use = "dropping it is leaving"]
pub struct GateGuard(#[expect(dead_code, reason = "held for its drop")] TaskTrackerToken);

/// The gate is closed: this process drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("shutting down, ask another node")]
pub struct GateClosedError;

impl Gate {
    /// Enters, unless the gate is closed.
    pub fn enter(&self) -> Result<GateGuard, GateClosedError> {
        let token = self.inside.token();
        // Looked at after the token is taken: whoever closes from now on waits for this one.
        if self.inside.is_closed() { Err(GateClosedError) } else { Ok(GateGuard(token)) }
    }

    /// How many are inside.
    pub fn in_flight(&self) -> usize {
        self.inside.len()
    }

    /// Refuses all who come from now on, and waits until all who are inside have left.
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
