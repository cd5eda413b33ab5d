//! Background tasks of voters.
//!
//! Every voter purges its log and reads the clocks of the other voters. The leader also adds voters until
//! there are enough, publishes the voters' addresses and uploads snapshots to the bucket.

mod clock_watch;

use std::collections::BTreeSet;
use std::time::Duration;

use athanor_catalog::{Catalog, CatalogCommand};
use athanor_chassis::tasks::SpawnError;
use athanor_chassis::{ComputePool, TaskGroup, Timestamp};
use athanor_cluster::NodeId;
use athanor_cluster::members::{ClusterMember, MemberState, RoleName};
use athanor_cluster::rpc_client::RpcClient;
use athanor_proto::athanor::internal::v1 as wire;
use futures::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::group_bootstrap::BootstrapDeps;
use crate::snapshot_store::SnapshotStore;
use crate::voter::{MetastoreVoter, VoterInfo};

/// Interval between checks for due work.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum interval between snapshot uploads while there are new entries. A purge of the log also triggers an
/// upload.
const SNAPSHOT_UPLOAD_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// Interval between computations of the status of compaction, for metrics.
const COMPACTION_STATUS_INTERVAL: Duration = Duration::from_secs(15);
/// Interval between readings of the other voters' clocks.
const READ_CLOCKS_INTERVAL: Duration = Duration::from_secs(10);
/// Timeout for the reading of a clock. The error of the result is at most half of it.
const READ_CLOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Background tasks of one voter, with their dependencies.
#[derive(Clone)]
pub struct VoterMaintenance {
    /// Voter that the tasks maintain.
    pub metastore: MetastoreVoter,
    /// Bucket and membership, shared with the bootstrap decision.
    pub deciding: BootstrapDeps,
    /// Pool that compresses snapshots.
    pub compute: ComputePool,
    /// Client of the other voters, for reading their clocks.
    pub remote: RpcClient,
}

impl MetastoreVoter {
    /// Purges this voter's log whenever it has grown, until the process ends. A single node needs no other
    /// task.
    pub async fn compact_periodically(self, token: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                () = self.clock().sleep(MAINTENANCE_INTERVAL) => self.compact().await,
            }
        }
    }
}

impl MetastoreVoter {
    /// Computes the status of compaction for metrics while this voter leads, until the process ends.
    pub async fn watch_compaction(self, token: CancellationToken) {
        let watching = async {
            loop {
                self.clock().sleep(COMPACTION_STATUS_INTERVAL).await;
                if self.leader().here
                    && let Err(error) = self.compaction_status().await
                {
                    tracing::debug!(%error, "failed to compute the status of compaction, will retry");
                }
            }
        };
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            () = watching => {}
        }
    }
}

impl VoterMaintenance {
    /// Starts the tasks. They run until the process ends.
    pub fn spawn(self, tasks: &TaskGroup) -> Result<(), SpawnError> {
        let growing = self.clone();
        let token = tasks.shutdown_token();
        tasks.spawn("catalog voters", async move { growing.maintain_voters(&token).await })?;
        let voter = self.metastore.clone();
        let token = tasks.shutdown_token();
        tasks.spawn("catalog log", async move { voter.compact_periodically(token).await })?;
        let reading = self.clone();
        let token = tasks.shutdown_token();
        tasks.spawn("catalog voter clocks", async move { reading.read_clocks(&token).await })?;
        let token = tasks.shutdown_token();
        tasks.spawn("catalog snapshots", async move { self.upload_snapshots(&token).await })?;
        Ok(())
    }

    /// Waits for one interval. Returns false if the process ends.
    async fn sleep_or_stop(&self, token: &CancellationToken) -> bool {
        tokio::select! {
            biased;
            () = token.cancelled() => false,
            () = self.deciding.clock.sleep(MAINTENANCE_INTERVAL) => true,
        }
    }

    /// Reads the clocks of the other voters until the process ends. Followers do this too, so that any next
    /// leader has read a majority of the clocks.
    async fn read_clocks(&self, token: &CancellationToken) {
        let reading = async {
            loop {
                let others =
                    self.metastore.voters().into_iter().filter(|node| *node != self.metastore.node());
                join_all(others.map(|voter| self.read_clock(voter))).await;
                self.metastore.time();
                self.deciding.clock.sleep(READ_CLOCKS_INTERVAL).await;
            }
        };
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            () = reading => {}
        }
    }

    async fn read_clock(&self, voter: NodeId) {
        let clock = &self.deciding.clock;
        let header = self.remote.handshake.call_header(voter, READ_CLOCK_TIMEOUT);
        let begun = clock.monotonic();
        let request = wire::GetClockRequest { header: Some(header) };
        let mut client = self.remote.peers.metastore(voter);
        // A voter that is unreachable, or of a version without this call, is not counted.
        if let Ok(Ok(response)) = clock.timeout(READ_CLOCK_TIMEOUT, client.get_clock(request)).await {
            let wall = Timestamp::from_nanos(response.into_inner().wall_nanos);
            let read_at = begun + clock.monotonic().saturating_sub(begun) / 2;
            self.metastore.catalog_clock().record(voter, wall, read_at);
        }
    }

    fn is_leader(&self) -> bool {
        self.metastore.leader().here
    }

    async fn maintain_voters(&self, token: &CancellationToken) {
        let mut is_noted = false;
        let mut skipped = BTreeSet::new();
        while self.sleep_or_stop(token).await {
            if !self.is_leader() {
                continue;
            }
            let round = async {
                is_noted = is_noted || self.deciding.ensure_record().await;
                self.metastore.finish_voter_change().await;
                self.add_missing_voter(&mut skipped).await;
                self.publish_voter_addresses().await;
            };
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                () = round => {}
            }
        }
    }

    /// Adds one voter if there are fewer than wanted. It never removes a missing voter: the voter may return,
    /// and only operators know that it will not.
    async fn add_missing_voter(&self, skipped: &mut BTreeSet<NodeId>) {
        let voters = self.metastore.voters();
        if voters.len() >= usize::from(self.deciding.wanted) {
            return;
        }
        let members = self.deciding.members.current();
        let may_vote = |member: &&ClusterMember| {
            member.is_alive()
                && member.roles.contains(&RoleName::Metastore)
                && matches!(member.state, MemberState::Starting | MemberState::Ready)
                && !voters.contains(&member.node)
        };
        let next = members.values().filter(may_vote).filter(|member| !skipped.contains(&member.node));
        // Candidates that are ready come before candidates that are still starting.
        let Some(next) = next.min_by_key(|member| (member.state != MemberState::Ready, member.node)) else {
            skipped.clear();
            return;
        };
        let node = next.node;
        let address = next.internal.to_string();
        match self.metastore.add_voter(VoterInfo { node, address }).await {
            Ok(()) => tracing::info!(node, "added voter to the catalog group"),
            Err(why) => {
                tracing::warn!(node, %why, "failed to add voter to the catalog group, will retry");
                skipped.insert(node);
            }
        }
    }

    /// Updates the voters and their addresses in the catalog to the actual ones.
    async fn publish_voter_addresses(&self) {
        let voters = self.metastore.voters();
        let view = self.metastore.routing_view();
        let members = self.deciding.members.current();
        let mut changes = Vec::new();
        for node in &voters {
            let found = members.get(node).filter(|member| member.is_alive());
            let Some(address) = found.map(|member| member.internal.to_string()) else { continue };
            if view.voters.get(node).is_none_or(|voter| voter.address != address) {
                changes.push(CatalogCommand::AddVoter { node: *node, address });
            }
        }
        let gone = view.voters.keys().filter(|node| !voters.contains(node));
        changes.extend(gone.map(|node| CatalogCommand::RemoveVoter { node: *node }));
        for change in changes {
            if let Err(error) = self.metastore.apply_command(change).await {
                tracing::warn!(%error, "failed to record voter addresses in the catalog, will retry");
                return;
            }
        }
    }

    async fn upload_snapshots(&self, token: &CancellationToken) {
        let BootstrapDeps { store, cluster, clock, .. } = &self.deciding;
        let snapshots = SnapshotStore::new(store.clone(), *cluster);
        let mut uploaded = None;
        let mut tried = None;
        let mut last = clock.monotonic();
        while self.sleep_or_stop(token).await {
            let cut = self.metastore.compacted_index();
            let applied = self.metastore.applied_index();
            let is_due = tried != Some(cut) || clock.monotonic() >= last + SNAPSHOT_UPLOAD_INTERVAL;
            if !is_due || Some(applied) == uploaded || !self.is_leader() {
                continue;
            }
            (tried, last) = (Some(cut), clock.monotonic());
            let copy = self.metastore.copy_state();
            let time = copy.state.time();
            let put = async {
                let packed =
                    self.compute.run(move || copy.encode()).await.map_err(|error| error.to_string())??;
                snapshots.upload(packed).await.map_err(|error| error.to_string())
            };
            let put = tokio::select! {
                biased;
                () = token.cancelled() => return,
                put = put => put,
            };
            match put {
                Ok(()) => {
                    uploaded = Some(applied);
                    self.metastore.record_snapshot(time);
                }
                Err(error) => {
                    tracing::warn!(error, "failed to upload catalog snapshot, will retry")
                }
            }
        }
    }
}
