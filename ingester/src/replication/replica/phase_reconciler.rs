//! Reconciler of a shard's phase: its leader logs fences and the seal, and ends the shard, as the catalog's
//! view requires.
//!
//! Each step is retried until the catalog shows it as done, and has no effect the second time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use athanor_catalog::{CatalogCommand, HandoffSource, RoutingView, ShardEntry, ShardPhase};
use athanor_chassis::Status;
use tokio_util::sync::CancellationToken;

use super::ShardReplica;
use crate::log::entry::ShardLogEntry;
use crate::log::state_machine::ShardApplyResult;
use crate::write::shard::LeaderShard;

/// Interval of retries without a new view.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(1);
/// Time without a response of a majority after which a leader reads the catalog before it accepts more. A
/// shard is lost after five minutes, and profiles in an abandoned shard would never be read.
pub(crate) const QUORUM_SILENCE_LIMIT: Duration = Duration::from_secs(240);

/// Reconciler for one leader term.
pub(crate) struct PhaseReconciler {
    pub(crate) group: Arc<ShardReplica>,
    pub(crate) shard: Arc<LeaderShard>,
    pub(crate) over: CancellationToken,
}

impl PhaseReconciler {
    /// Runs until the leader term ends.
    pub(crate) async fn run(self) {
        loop {
            if self.group.has_lost_quorum() {
                // The next leader term starts with a read of the catalog.
                self.over.cancel();
                return;
            }
            if let Some(view) = self.group.view()
                && let Some(entry) = view.shards.iter().find(|entry| entry.id == self.group.id)
                && let Err(error) = self.reconcile_phase(&view, entry).await
            {
                tracing::debug!(shard = self.group.id, %error, "failed to reconcile shard phase, will retry");
            }
            tokio::select! {
                biased;
                () = self.group.told.notified() => {}
                () = self.group.deps().clock.sleep(RECONCILE_INTERVAL) => {}
            }
        }
    }

    async fn reconcile_phase(&self, view: &RoutingView, entry: &ShardEntry) -> Result<(), Status> {
        match entry.phase {
            ShardPhase::Lost { .. } => {
                tracing::warn!(
                    shard = entry.id,
                    "shard is marked lost in the catalog, reconciling its ids before it continues"
                );
                self.over.cancel();
                return Ok(());
            }
            ShardPhase::Sealing => self.close(view, entry).await?,
            ShardPhase::Sealed { last_index } => self.retire(entry, last_index).await?,
            // A rebuilt catalog does not know that the shard opened, and the next term reports it. Or this
            // view is old.
            ShardPhase::Opening { .. } => {
                if matches!(self.group.read_catalog_entry(entry.id).await?.phase, ShardPhase::Opening { .. })
                {
                    self.over.cancel();
                    return Ok(());
                }
            }
            ShardPhase::Open | ShardPhase::Retired { .. } => {}
        }
        self.fence(view, entry).await?;
        self.release(view).await
    }

    async fn change(&self, command: CatalogCommand) -> Result<(), Status> {
        self.group.deps().catalog.apply_command(command).await.map_err(|error| Status::from_error(&error))
    }

    /// Seals the shard when a successor has a copy of its ids, except for late ones.
    async fn close(&self, view: &RoutingView, entry: &ShardEntry) -> Result<(), Status> {
        let copies = |other: &ShardEntry| matches!(other.phase, ShardPhase::Opening { source: HandoffSource::DedupWindow { predecessor, .. } } if predecessor == entry.id);
        let is_copied = self.group.copied.load(Ordering::SeqCst) && view.shards.iter().any(copies);
        if !is_copied && !self.group.sealed.load(Ordering::SeqCst) {
            return Ok(());
        }
        let (last_index, latest) = self.group.log_seal().await?;
        self.group.sealed.store(true, Ordering::SeqCst);
        // The successor requests the values as soon as it learns of the seal.
        self.shard.log_delta_state().await?;
        self.change(CatalogCommand::Sealed { shard: entry.id, last_index, latest }).await?;
        // The head that the seal closed must not grow, so it is flushed like any other.
        self.shard.freeze().await
    }

    /// Retires the shard when all of its rows are in blocks. A leader that did not observe the seal may lack
    /// later rows, and retires nothing.
    async fn retire(&self, entry: &ShardEntry, last_index: u64) -> Result<(), Status> {
        let has_rows = || self.shard.heads().unflushed_heads().iter().any(|head| !head.is_empty());
        if !self.shard.has_observed_seal(last_index) || has_rows() {
            return Ok(());
        }
        let rest_is_empty = Some(self.group.read_catalog_entry(entry.id).await?.watermark);
        self.change(CatalogCommand::RetireShard { shard: entry.id, rest_is_empty }).await
    }

    /// Logs the fence of a proposed table, and voids the fences of abandoned tables [INV-05].
    async fn fence(&self, view: &RoutingView, entry: &ShardEntry) -> Result<(), Status> {
        let pending = view.pending.as_ref().filter(|pending| pending.unfenced.contains(&entry.id));
        let logged: Vec<(u64, u64)> =
            self.group.log.with_state_machine(|machine| machine.log_status().fences().collect());
        let published = |version: u64| {
            let tables = view.tables.iter().flat_map(|tables| tables.tables_between(i64::MIN, i64::MAX));
            tables.into_iter().any(|table| table.version() == version)
        };
        let proposed =
            |version| view.pending.as_ref().is_some_and(|pending| pending.table.version() == version);
        let oldest = view.tables.iter().flat_map(|tables| tables.tables_between(i64::MIN, i64::MAX).first());
        let oldest = oldest.map(|table| table.version()).min().unwrap_or_default();
        for (version, revision) in logged {
            // Fences of tables older than the known ones stay: all late profiles are too late for those
            // tables.
            if revision <= view.revision && version > oldest && !published(version) && !proposed(version) {
                self.group.propose_entry(ShardLogEntry::encode_fence_voided(version)).await?;
            }
        }
        let Some(pending) = pending else { return Ok(()) };
        let shard = entry.id;
        let version = pending.table.version();
        let from = pending.table.from();
        match self.group.propose_entry(ShardLogEntry::encode_fence(version, from, view.revision)).await? {
            ShardApplyResult::Fence { refused: None } => {
                self.change(CatalogCommand::Fenced { shard, version }).await
            }
            ShardApplyResult::Fence { refused: Some(latest) } => {
                self.change(CatalogCommand::FenceRejected { shard, version, latest }).await
            }
            other => {
                tracing::error!(shard, ?other, "unexpected result of a fence entry");
                Ok(())
            }
        }
    }

    /// Releases the ids of shards that have ended: their rows are in blocks, or were abandoned.
    async fn release(&self, view: &RoutingView) -> Result<(), Status> {
        let holds = self.group.log.with_state_machine(|machine| machine.log_status().holds.clone());
        for of in holds {
            if view.shards.iter().find(|other| other.id == of).is_none_or(ShardEntry::is_retired) {
                self.group.propose_entry(ShardLogEntry::encode_hold_released(of)).await?;
            }
        }
        Ok(())
    }
}
