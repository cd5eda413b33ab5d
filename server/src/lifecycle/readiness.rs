//! Readiness of the node for requests, with the reason if it is not ready. Load balancers poll it.
//!
//! ```text
//!  starting ─► serving ─► stopping
//!                ├─ unless a log has failed
//!                └─ unless the bucket was never found
//! ```

use std::sync::OnceLock;
use std::time::Duration;

use athanor_chassis::{Clock, ErrorCode, Status};
use parking_lot::Mutex;
use tokio::sync::watch;

/// Interval at which a watcher of readiness runs the check.
const READINESS_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Retry delay that a client receives before the node is ready.
const NOT_READY_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Phases in the life of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LifecyclePhase {
    #[default]
    Starting,
    Serving,
    Stopping,
}

/// Check that returns an error if the roles cannot work.
pub type ReadinessCheck = Box<dyn Fn() -> Result<(), Status> + Send + Sync>;

/// Readiness state of the node.
#[derive(Default)]
pub struct Readiness {
    phase: watch::Sender<LifecyclePhase>,
    check: OnceLock<ReadinessCheck>,
    /// Reason that overrides the phase and the check until it is cleared.
    blocked: Mutex<Option<Status>>,
}

impl Readiness {
    /// Makes the node not ready until [`unblock`](Self::unblock), with a reason.
    pub fn block(&self, why: Status) {
        *self.blocked.lock() = Some(why);
    }

    /// Ends a [`block`](Self::block).
    pub fn unblock(&self) {
        *self.blocked.lock() = None;
    }

    /// Makes the node ready, as long as the check succeeds.
    pub fn serve(&self, check: ReadinessCheck) {
        // The node starts only once.
        let _ = self.check.set(check);
        // A node that was stopped meanwhile does not begin to serve.
        self.phase.send_if_modified(|phase| {
            let begins = *phase == LifecyclePhase::Starting;
            *phase = if begins { LifecyclePhase::Serving } else { *phase };
            begins
        });
    }

    /// Makes the node not ready because it is stopping.
    pub fn stop(&self) {
        self.phase.send_replace(LifecyclePhase::Stopping);
    }

    /// Returns `Ok` if the node is ready, else the reason.
    pub fn now(&self) -> Result<(), Status> {
        let phase = *self.phase.borrow();
        let blocked = self.blocked.lock().clone();
        if let (LifecyclePhase::Starting | LifecyclePhase::Serving, Some(why)) = (phase, blocked) {
            return Err(why);
        }
        match phase {
            LifecyclePhase::Starting => {
                let message = "starting: the log and the catalog are being read; retry";
                Err(Status::new(ErrorCode::Unavailable, message).with_retry_after(NOT_READY_RETRY_AFTER))
            }
            LifecyclePhase::Serving => self.check.get().map_or(Ok(()), |check| check()),
            LifecyclePhase::Stopping => Err(Status::new(
                ErrorCode::Unavailable,
                "stopping: this node accepts no new requests; use another node",
            )),
        }
    }

    /// Returns a receiver of changes after this call.
    pub fn changes(&self) -> ReadinessChanges {
        ReadinessChanges(self.phase.subscribe())
    }
}

/// Receiver of possible changes of readiness.
pub struct ReadinessChanges(watch::Receiver<LifecyclePhase>);

impl ReadinessChanges {
    /// Waits until readiness may have changed.
    pub async fn next(&mut self, clock: &Clock) {
        tokio::select! {
            changed = self.0.changed() => if changed.is_err() {
                // The sender is gone, so the phase cannot change.
                clock.sleep(READINESS_CHECK_INTERVAL).await;
            },
            () = clock.sleep(READINESS_CHECK_INTERVAL) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn it_says_why_requests_are_not_welcome() {
        let readiness = Readiness::default();
        let why = |readiness: &Readiness| readiness.now().map_err(|status| status.message);
        assert!(why(&readiness).unwrap_err().starts_with("starting"));
        let broken = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&broken);
        readiness.serve(Box::new(move || match seen.load(Ordering::Relaxed) {
            true => Err(Status::new(ErrorCode::Unavailable, "the disk is gone")),
            false => Ok(()),
        }));
        assert_eq!(why(&readiness), Ok(()));
        readiness.block(Status::new(ErrorCode::Unavailable, "there is no bucket"));
        assert_eq!(why(&readiness), Err("there is no bucket".to_owned()));
        readiness.unblock();
        assert_eq!(why(&readiness), Ok(()));
        broken.store(true, Ordering::Relaxed);
        assert_eq!(why(&readiness), Err("the disk is gone".to_owned()));
        readiness.stop();
        assert!(why(&readiness).unwrap_err().starts_with("stopping"));
    }
}
