//! How far a snapshot of the group is durable here.
//!
//! Raft tells the log to forget what a snapshot of another member holds while that is still being put away. If the log
//! did so at once, a loss of power in between would leave a member with neither.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// Cut up to where the newest durable snapshot is.
#[derive(Debug, Default)]
pub(crate) struct SnapshotBarrier {
    state: Mutex<BarrierState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct BarrierState {
    upto: Option<u64>,
    failed: bool,
}

/// A snapshot was not put away: its log must stay as it is.
#[derive(Debug, thiserror::Error)]
#[error("the snapshot up to entry {upto} was not kept, so the log keeps its entries; restart the node")]
pub(crate) struct SnapshotBarrierError {
    upto: u64,
}

impl SnapshotBarrier {
    /// One is durable up to this entry.
    pub(crate) fn advance_to(&self, index: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.upto = state.upto.max(Some(index));
        drop(state);
        self.changed.notify_waiters();
    }

    /// One that others sent cannot be put away: this member ends.
    pub(crate) fn fail(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failed = true;
        self.changed.notify_waiters();
    }

    /// Waits until one is durable up to this entry.
    pub(crate) async fn wait_until_durable(&self, upto: u64) -> Result<(), SnapshotBarrierError> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                if state.upto.is_some_and(|kept| kept >= upto) {
                    return Ok(());
                }
                if state.failed {
                    return Err(SnapshotBarrierError { upto });
                }
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use super::*;

    #[tokio::test]
    async fn who_forgets_waits_for_the_snapshot() {
        let kept = Arc::new(SnapshotBarrier::default());
        kept.advance_to(5);
        kept.wait_until_durable(5).await.unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let mut waits = Box::pin(kept.wait_until_durable(9));
        assert!(waits.as_mut().poll(&mut context).is_pending());
        kept.advance_to(8);
        assert!(waits.as_mut().poll(&mut context).is_pending());
        kept.advance_to(9);
        assert!(waits.await.is_ok());
        let waits = kept.wait_until_durable(10);
        kept.fail();
        assert!(waits.await.unwrap_err().to_string().contains("up to entry 10"));
        assert!(kept.wait_until_durable(9).await.is_ok());
    }
}
