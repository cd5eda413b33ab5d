//! How far a snapshot of the group is durable here.
//!
//! Raft tells the log to forget what a snapshot of another member holds while that is still being put away. If the log
//! did so at once, a loss of power in between would leave a member with neither.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// Cut up to where the newest durable snapshot is.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    upto: Option<u64>,
    failed: bool,
}

/// A snapshot was not put away: its log must stay as it is.
#[derive(Debug, thiserror::Error)]
#[error("the snapshot up to entry {upto} was not kept, so the log keeps its entries; restart the node")]
pub(crate) struct NotKept {
    upto: u64,
}

impl Kept {
    /// One is durable up to this entry.
    pub(crate) fn upto(&self, index: u64) {
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
    pub(crate) async fn reaches(&self, upto: u64) -> Result<(), NotKept> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                if state.upto.is_some_and(|kept| kept >= upto) {
                    return Ok(());
                }
                if state.failed {
                    return Err(NotKept { upto });
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
        let kept = Arc::new(Kept::default());
        kept.upto(5);
        kept.reaches(5).await.unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let mut waits = Box::pin(kept.reaches(9));
        assert!(waits.as_mut().poll(&mut context).is_pending());
        kept.upto(8);
        assert!(waits.as_mut().poll(&mut context).is_pending());
        kept.upto(9);
        assert!(waits.await.is_ok());
        let waits = kept.reaches(10);
        kept.fail();
        assert!(waits.await.unwrap_err().to_string().contains("up to entry 10"));
        assert!(kept.reaches(9).await.is_ok());
    }
}
