//! Claims of running jobs, and the renewal of their leases.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use athanor_catalog::Catalog;
use athanor_chassis::Clock;
use athanor_cluster::NodeId;
use parking_lot::Mutex;

/// Interval of renewals: a quarter of a lease, so three of them may fail.
pub(crate) const RENEWAL_INTERVAL: Duration = Duration::from_secs(15);

/// Claim of one running job.
#[derive(Debug)]
pub(crate) struct JobClaim {
    token: u64,
    has_ended: AtomicBool,
}

/// Claims of all running jobs of one worker.
#[derive(Debug, Default)]
pub(crate) struct RunningClaims {
    claims: Mutex<BTreeMap<u64, Arc<JobClaim>>>,
}

/// Guard that keeps a claim among the running ones.
pub(crate) struct ClaimGuard<'r> {
    running: &'r RunningClaims,
    pub(crate) claim: Arc<JobClaim>,
}

impl JobClaim {
    pub(crate) fn new(token: u64) -> Self {
        Self { token, has_ended: AtomicBool::new(false) }
    }

    /// Returns the token of the claim.
    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    /// Marks the claim as ended, so that its job stops.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Returns whether the catalog ended the claim.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Returns an error if the claim ended, which ends a merge at its next read or write.
    pub(crate) fn check_io(&self) -> io::Result<()> {
        match self.has_ended() {
            true => Err(io::Error::other("the claim of the job ended")),
            false => Ok(()),
        }
    }
}

impl RunningClaims {
    /// Adds the claim of a job that starts.
    pub(crate) fn start(&self, token: u64) -> ClaimGuard<'_> {
        let claim = Arc::new(JobClaim::new(token));
        self.claims.lock().insert(token, Arc::clone(&claim));
        ClaimGuard { running: self, claim }
    }

    /// Returns the number of running jobs.
    pub(crate) fn len(&self) -> usize {
        self.claims.lock().len()
    }

    /// Renews the leases of all running jobs in intervals.
    pub(crate) async fn renew(&self, catalog: &dyn Catalog, worker: NodeId, clock: &Clock) {
        loop {
            clock.sleep(RENEWAL_INTERVAL).await;
            self.renew_once(catalog, worker).await;
        }
    }

    /// Renews all leases with one command. If a claim ended, one command per job finds it.
    pub(crate) async fn renew_once(&self, catalog: &dyn Catalog, worker: NodeId) {
        let running: Vec<Arc<JobClaim>> = self.claims.lock().values().cloned().collect();
        let tokens: Vec<u64> = running.iter().map(|claim| claim.token).collect();
        let count = tokens.len() as u64;
        if count == 0 {
            return;
        }
        match catalog.renew_leases(worker, tokens).await {
            Ok(renewed) if renewed == count => return,
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(jobs = count, %error, "failed to renew leases of compaction jobs, will retry");
                return;
            }
        }
        for claim in running {
            if matches!(catalog.renew_leases(worker, vec![claim.token]).await, Ok(0)) {
                claim.end();
            }
        }
    }
}

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        self.running.claims.lock().remove(&self.claim.token);
    }
}
