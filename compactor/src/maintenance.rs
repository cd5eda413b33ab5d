//! Maintenance: expires rows by age, and removes objects that no listing and no plan refers to.
//!
//! ```text
//!  rows past their retention ──RetentionWorker──► tombstones ──ObjectRemover──► objects are removed, recorded
//!  folders in the bucket ────────OrphanFinder───►
//!  merged, deleted blocks ──────────────────────►
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::{Clock, Status};
use tokio_util::sync::CancellationToken;

use crate::maintenance::orphans::OrphanFinder;
use crate::maintenance::removal::{ObjectRemover, RemovalFacts};

pub(crate) mod orphans;
pub(crate) mod removal;
pub(crate) mod retention;

/// Interval of rounds that remove objects.
const REMOVAL_INTERVAL: Duration = Duration::from_secs(60);
/// Number of removal rounds between rounds that search orphans.
const ORPHAN_ROUND_INTERVAL: u64 = 10;

/// Worker that removes objects of tombstoned blocks, and tombstones orphans.
pub struct MaintenanceWorker {
    clock: Clock,
    orphans: tokio::sync::Mutex<OrphanFinder>,
    remover: tokio::sync::Mutex<ObjectRemover>,
    removed_blocks: AtomicU64,
    orphaned_blocks: AtomicU64,
    failed_rounds: AtomicU64,
}

/// Counts of a maintenance worker since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaintenanceStats {
    /// Number of tombstoned blocks whose objects were removed.
    pub removed_blocks: u64,
    /// Number of folders in the bucket that were tombstoned.
    pub orphaned_blocks: u64,
    /// Number of rounds that failed.
    pub failed_rounds: u64,
}

impl MaintenanceWorker {
    /// Creates a worker.
    pub fn new(clock: Clock, orphans: OrphanFinder, remover: ObjectRemover) -> Self {
        Self {
            clock,
            orphans: tokio::sync::Mutex::new(orphans),
            remover: tokio::sync::Mutex::new(remover),
            removed_blocks: AtomicU64::new(0),
            orphaned_blocks: AtomicU64::new(0),
            failed_rounds: AtomicU64::new(0),
        }
    }

    /// Runs until shutdown. Does nothing while `is_active` is false, because another node does the work. Two
    /// active workers do no harm.
    pub async fn run<F>(
        &self,
        is_active: impl Fn() -> bool,
        facts: impl Fn() -> F,
        shutdown: CancellationToken,
    ) where
        F: Future<Output = Result<RemovalFacts, Status>>,
    {
        let mut round = 0;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.clock.sleep(REMOVAL_INTERVAL) => {}
            }
            if !is_active() {
                continue;
            }
            let done = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                done = self.run_round(facts(), round % ORPHAN_ROUND_INTERVAL == 0) => done,
            };
            if let Err(status) = done {
                self.failed_rounds.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(error = %status, "failed to remove objects of the bucket, will retry");
            }
            round += 1;
        }
    }

    /// Returns the counts so far.
    pub fn stats(&self) -> MaintenanceStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MaintenanceStats {
            removed_blocks: read(&self.removed_blocks),
            orphaned_blocks: read(&self.orphaned_blocks),
            failed_rounds: read(&self.failed_rounds),
        }
    }

    /// Removes objects, and searches orphans if wanted. A failure of one does not keep the other from running.
    async fn run_round(
        &self,
        facts: impl Future<Output = Result<RemovalFacts, Status>>,
        finds_orphans: bool,
    ) -> Result<(), Status> {
        let removing = async {
            let facts = facts.await?;
            let round = self.remover.lock().await.run_round(&facts).await?;
            self.removed_blocks.fetch_add(round.removed, Ordering::Relaxed);
            round.failure.map_or(Ok(()), Err)
        };
        let removed = removing.await;
        if finds_orphans {
            let round = self.orphans.lock().await.run_round().await?;
            self.orphaned_blocks.fetch_add(round.tombstoned, Ordering::Relaxed);
        }
        removed
    }
}
