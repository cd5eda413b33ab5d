//! Removal of rows past their retention from the catalog.
//!
//! ```text
//!  overdue ──Expire──► expired, restorable ──deletion_delay──► Purge ──► ObjectRemover removes the objects
//! ```
//! The catalog decides which parts of blocks are overdue, by its own time, and limits how many expire per hour.
//! A block that left the listing never registers again [INV-15]. So workers on several nodes do no harm: a
//! second command finds nothing that the first one left.

mod settings;
mod stats;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use athanor_catalog::{
    AgeReport, BlockId, Catalog, CatalogCommand, CatalogError, CommandResult, ExpiredBlock,
};
use athanor_chassis::{Clock, ErrorCode, Status, TenantId, Timestamp};
use tokio_util::sync::CancellationToken;

use crate::maintenance::removal::DELETION_GRACE_PERIOD;
use crate::maintenance::retention::stats::RetentionCounters;

pub use settings::RetentionConfig;
pub use stats::{RetentionBacklog, RetentionStats};

/// Interval of retention rounds.
const RETENTION_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of blocks that one round purges.
const MAX_BLOCKS_PER_ROUND: usize = 256;

/// Worker that removes rows past their retention from the catalog.
pub struct RetentionWorker {
    catalog: Arc<dyn Catalog>,
    clock: Clock,
    config: RetentionConfig,
    counters: RetentionCounters,
}

/// State that one round passes to the next.
#[derive(Default)]
struct RetentionProgress {
    /// True if overdue blocks exceed the hourly limit and a warning was logged.
    is_limited: bool,
}

impl RetentionWorker {
    /// Creates a worker.
    pub fn new(catalog: Arc<dyn Catalog>, clock: Clock, config: RetentionConfig) -> Self {
        Self { catalog, clock, config, counters: RetentionCounters::default() }
    }

    /// Runs until shutdown. Does nothing while `is_active` is false, because another node does the work.
    pub async fn run(&self, is_active: impl Fn() -> bool, shutdown: CancellationToken) {
        let mut progress = RetentionProgress::default();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.clock.sleep(RETENTION_INTERVAL) => {}
            }
            if !is_active() {
                self.counters.set_backlog(RetentionBacklog::default());
                continue;
            }
            let done = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                done = self.run_round(&mut progress) => done,
            };
            if let Err(status) = done {
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(error = %status, "failed to expire blocks past their retention, will retry");
            }
        }
    }

    /// Returns the counts so far.
    pub fn stats(&self) -> RetentionStats {
        self.counters.stats()
    }

    /// Expires overdue blocks, and purges those that expired long enough ago.
    async fn run_round(&self, progress: &mut RetentionProgress) -> Result<(), Status> {
        let ages = self.ages().await?;
        self.expire(&ages, progress).await?;
        self.purge(&ages).await?;
        // Purged blocks are not restorable, so the ages are read after the purge.
        let after = self.ages().await?;
        self.counters.set_backlog(RetentionBacklog {
            overdue: after.overdue as u64,
            kept_for_tiers: after.kept_for_tiers as u64,
            restorable: after.restorable as u64,
        });
        self.clear_data_loss(after.time).await
    }

    async fn ages(&self) -> Result<AgeReport, Status> {
        self.catalog.block_ages(&self.config.policy()).await.map_err(|error| Status::from_error(&error))
    }

    /// Proposes a command. Returns the number of blocks that it changed.
    async fn propose(&self, command: CatalogCommand) -> Result<u64, Status> {
        match self.catalog.propose(command).await {
            Ok(CommandResult::Changed(count)) => Ok(count as u64),
            Ok(CommandResult::Refused(refused)) => Err(Status::from_error(&CatalogError::Refused(refused))),
            Ok(other) => {
                Err(Status::new(ErrorCode::Internal, format!("unexpected result of the catalog: {other:?}")))
            }
            Err(error) => Err(Status::from_error(&error)),
        }
    }

    /// Removes overdue parts from the listing.
    async fn expire(&self, ages: &AgeReport, progress: &mut RetentionProgress) -> Result<(), Status> {
        let max_expired_percent = self.config.max_expired_percent;
        if ages.overdue == 0 {
            progress.is_limited = false;
            return Ok(());
        }
        let max_percent = Some(max_expired_percent);
        let count = self
            .propose(CatalogCommand::ExpireBlocks { retention: self.config.policy(), max_percent })
            .await?;
        self.counters.expired.fetch_add(count, Ordering::Relaxed);
        let overdue = ages.overdue as u64;
        if count > 0 {
            tracing::info!(blocks = count, overdue, "expired blocks past their retention");
        }
        let is_limited = count == 0 && overdue > 0;
        if is_limited && !progress.is_limited {
            tracing::warn!(
                overdue,
                max_expired_percent,
                "more blocks are past their retention than may expire per hour; check the clock, or run `athanor \
                 retention apply` to expire all of them now"
            );
        }
        progress.is_limited = is_limited;
        Ok(())
    }

    /// Purges blocks that expired long enough ago, so that they are not restorable any more.
    async fn purge(&self, ages: &AgeReport) -> Result<(), Status> {
        let expired_before = ages.time.minus(self.config.deletion_delay.max(DELETION_GRACE_PERIOD));
        let due = ages.expired.iter().filter(|ExpiredBlock { since, .. }| *since <= expired_before);
        let blocks: Vec<BlockId> = due.map(|expired| expired.block).take(MAX_BLOCKS_PER_ROUND).collect();
        if !blocks.is_empty() {
            // Parts of these blocks may have expired since the ages were read.
            self.propose(CatalogCommand::PurgeBlocks { blocks, expired_before }).await?;
        }
        Ok(())
    }

    /// Clears records of data loss that are older than each retention, since retention would have removed that
    /// data.
    async fn clear_data_loss(&self, now: Timestamp) -> Result<(), Status> {
        let Some(longest) = self.config.policy().longest() else { return Ok(()) };
        let before = now.minus(longest);
        let listing = self.catalog.list_blocks(&TenantId::anonymous(), 0, 0).await;
        let data_losses = listing.map_err(|error| Status::from_error(&error))?.data_losses;
        if data_losses.iter().any(|record| record.since < before) {
            self.catalog
                .propose(CatalogCommand::ClearDataLoss { before })
                .await
                .map_err(|error| Status::from_error(&error))?;
        }
        Ok(())
    }
}
