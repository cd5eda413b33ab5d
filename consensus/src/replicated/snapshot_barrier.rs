//! Barrier that delays purges until a snapshot of the group is durable on this node.
//!
//! Raft lets the log purge the entries of a received snapshot while the snapshot is still being written. An
//! immediate purge followed by a power loss would leave the member with neither.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Index of the newest durable snapshot. The log is purged up to it at most.
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

/// Error of a purge: the snapshot was not stored, so the log must keep its entries.
#[derive(Debug, thiserror::Error)]
#[error("the snapshot up to entry {upto} was not stored, so the log was not purged; restart the node")]
pub(crate) struct SnapshotBarrierError {
    upto: u64,
}

impl SnapshotBarrier {
    /// Records that a snapshot up to this index is durable.
    pub(crate) fn advance_to(&self, index: u64) {
        let mut state = self.state.lock();
        state.upto = state.upto.max(Some(index));
        drop(state);
        self.changed.notify_waiters();
    }

    /// Records that a received snapshot cannot be stored. This member ends.
    pub(crate) fn fail(&self) {
        self.state.lock().failed = true;
        self.changed.notify_waiters();
    }

    /// Waits until a snapshot up to this index is durable.
    pub(crate) async fn wait_until_durable(&self, upto: u64) -> Result<(), SnapshotBarrierError> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let state = self.state.lock();
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
