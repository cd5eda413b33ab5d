//! Whether requests are welcome, and if not, why: what load balancers ask.
//!
//! ```text
//!  starting ─► serving ─► stopping
//!                ├─ unless a log has failed
//!                └─ unless the bucket was never found
//! ```

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use athanor_chassis::{Clock, ErrorCode, Status};
use tokio::sync::watch;

/// How often somebody who watches has it looked at whether all works.
const READINESS_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// How long who comes too early is asked to wait.
const NOT_READY_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Where a process is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LifecyclePhase {
    #[default]
    Starting,
    Serving,
    Stopping,
}

/// Says why what serves cannot do its work, if it cannot.
pub type ReadinessCheck = Box<dyn Fn() -> Result<(), Status> + Send + Sync>;

/// Whether requests are welcome.
#[derive(Default)]
pub struct Readiness {
    phase: watch::Sender<LifecyclePhase>,
    check: OnceLock<ReadinessCheck>,
    /// Why requests are not welcome whatever else works.
    blocked: Mutex<Option<Status>>,
}

impl Readiness {
    /// No requests are welcome until [`unblock`](Self::unblock), for this reason.
    pub fn block(&self, why: Status) {
        *self.blocked.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    /// Ends a [`block`](Self::block).
    pub fn unblock(&self) {
        *self.blocked.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Requests are welcome from now on, as long as the check says so.
    pub fn serve(&self, check: ReadinessCheck) {
        // There is one start.
        let _ = self.check.set(check);
        // Who was told to stop meanwhile does not begin.
        self.phase.send_if_modified(|phase| {
            let begins = *phase == LifecyclePhase::Starting;
            *phase = if begins { LifecyclePhase::Serving } else { *phase };
            begins
        });
    }

    /// No more requests are welcome.
    pub fn stop(&self) {
        self.phase.send_replace(LifecyclePhase::Stopping);
    }

    /// Whether requests are welcome, or why not.
    pub fn now(&self) -> Result<(), Status> {
        let phase = *self.phase.borrow();
        let blocked = self.blocked.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let (LifecyclePhase::Starting | LifecyclePhase::Serving, Some(why)) = (phase, blocked) {
            return Err(why);
        }
        match phase {
            LifecyclePhase::Starting => {
                let message = "starting: the log and the catalogue are being read; ask again";
                Err(Status::new(ErrorCode::Unavailable, message).with_retry_after(NOT_READY_RETRY_AFTER))
            }
            LifecyclePhase::Serving => self.check.get().map_or(Ok(()), |check| check()),
            LifecyclePhase::Stopping => Err(Status::new(
                ErrorCode::Unavailable,
                "stopping: it takes no new requests; ask another node",
            )),
        }
    }

    /// Tells of changes after this call.
    pub fn changes(&self) -> ReadinessChanges {
        ReadinessChanges(self.phase.subscribe())
    }
}

/// Tells when it may have changed.
pub struct ReadinessChanges(watch::Receiver<LifecyclePhase>);

impl ReadinessChanges {
    /// Waits until it may have changed.
    pub async fn next(&mut self, clock: &Clock) {
        tokio::select! {
            changed = self.0.changed() => if changed.is_err() {
                // Nobody can change it any more.
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
