//! Voter of the catalog's raft group.

mod compaction_reads;
mod job_planner;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use athanor_catalog::{
    AgeReport, BlockEntry, BlockId, BlockListing, Catalog, CatalogCommand, CatalogError, CatalogLogEntry,
    CommandResult, CompactionJob, CompactionStatus, JobRequest, RemovalReport, RetentionPolicy, RoutingView,
    TenantDocuments, Tombstone,
};
use athanor_chassis::{ByteSize, Clock, ComputePool, ErrorCode, Status, TenantId, Timestamp};
use athanor_cluster::NodeId;
use athanor_consensus::RaftGroup;
use athanor_consensus::replicated::{LeaderInfo, LeaderWatch, LeadershipError};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::catalog_clock::CatalogClock;
use crate::snapshot_store::StateCopy;
use crate::state_machine::{CatalogStateMachine, RevisionWatch};
use job_planner::JobPlanner;

/// Upper bound of an encoded command.
pub const MAX_COMMAND_SIZE: ByteSize = ByteSize::mib(1);
/// Upper bound of proposals that wait for their results.
const MAX_PENDING_PROPOSALS: usize = 1024;
/// Number of applied entries after which the voter purges its log.
const COMPACT_INTERVAL_ENTRIES: u64 = 1024;
/// Time for which watchers reuse one successful quorum check.
const QUORUM_CHECK_TTL: Duration = Duration::from_millis(2500);
/// Timeout for a membership change. A new voter first receives the log.
const VOTER_CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

/// Voter of the catalog's raft group. Cheap to clone.
#[derive(Clone)]
pub struct MetastoreVoter {
    shared: Arc<VoterShared>,
}

/// Dependencies of [`MetastoreVoter`].
pub struct MetastoreVoterDeps {
    /// Open raft group of the catalog.
    pub group: RaftGroup<CatalogStateMachine>,
    /// Clock of this machine.
    pub clock: Clock,
    /// Pool that plans compaction jobs.
    pub compute: ComputePool,
    /// True if the leader uploads snapshots. Objects of tombstoned blocks then wait for a snapshot.
    pub uploads_snapshots: bool,
}

/// Voting node and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoterInfo {
    /// Id of the voting node.
    pub node: NodeId,
    /// Address for internal requests; empty until the leader has published it.
    pub address: String,
}

/// Change of the set of voters.
#[derive(Clone, Debug)]
pub(crate) enum VoterChange {
    Add(VoterInfo),
    Remove(NodeId),
}

struct VoterShared {
    group: RaftGroup<CatalogStateMachine>,
    clock: Clock,
    /// Source of the timestamps of commands.
    catalog_clock: CatalogClock,
    revisions: Arc<RevisionWatch>,
    compacted: AtomicU64,
    waiting: Semaphore,
    /// Routing view, built at the last request for it. Rebuilt when the revision differs.
    view: Mutex<Arc<RoutingView>>,
    confirmed: tokio::sync::Mutex<Option<QuorumCheck>>,
    /// Serializes membership changes that this node runs.
    changing: tokio::sync::Mutex<()>,
    compute: ComputePool,
    planner: JobPlanner,
    uploads_snapshots: bool,
    /// Time of the catalog at the newest snapshot that this voter has uploaded.
    snapshot_time: Mutex<Timestamp>,
}

/// Result of the last check that a majority still follows this voter's leader.
struct QuorumCheck {
    begun: Duration,
    ended: Duration,
    found: Result<(), Status>,
}

impl MetastoreVoter {
    /// Creates a voter on an open raft group.
    pub fn new(deps: MetastoreVoterDeps) -> Self {
        let MetastoreVoterDeps { group, clock, compute, uploads_snapshots } = deps;
        let revisions = group.with_state_machine(CatalogStateMachine::revision_watch);
        let shared = VoterShared {
            group,
            catalog_clock: CatalogClock::new(clock.clone()),
            clock,
            revisions,
            compacted: AtomicU64::new(0),
            waiting: Semaphore::new(MAX_PENDING_PROPOSALS),
            view: Mutex::default(),
            confirmed: tokio::sync::Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            compute,
            planner: JobPlanner::default(),
            uploads_snapshots,
            snapshot_time: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns a watch on the leadership. Tasks that only one node may run depend on its field `here`.
    pub fn leader_watch(&self) -> LeaderWatch {
        self.shared.group.leadership()
    }

    pub(crate) fn leader(&self) -> LeaderInfo {
        self.leader_watch().current()
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    pub(crate) fn catalog_clock(&self) -> &CatalogClock {
        &self.shared.catalog_clock
    }

    pub(crate) fn node(&self) -> NodeId {
        self.leader_watch().node()
    }

    /// Returns the catalog's time, the timestamp of the next command.
    pub fn time(&self) -> Timestamp {
        self.shared.catalog_clock.now(self.newest_command_time(), self.node(), &self.voters())
    }

    /// Returns the time of the newest command that this voter has applied.
    pub fn newest_command_time(&self) -> Timestamp {
        self.shared.group.with_state_machine(|machine| machine.state().time())
    }

    /// Sets the catalog's time to this machine's clock at once, after an operator confirmed that clock. Only
    /// a sole voter needs this. With several voters a majority decides, and the call returns an error.
    pub fn confirm_clock(&self) -> Result<Timestamp, Status> {
        let voters = self.voters().len();
        if voters > 1 {
            let message = format!(
                "the catalog has {voters} voters, so the majority of their clocks decides; correct the clocks of the other voters"
            );
            return Err(Status::new(ErrorCode::Invalid, message));
        }
        let confirmed = self.shared.catalog_clock.confirm();
        tracing::info!(seconds = confirmed.millis() / 1000, "an operator confirmed the clock");
        Ok(confirmed)
    }

    pub(crate) fn revision_watch(&self) -> &RevisionWatch {
        &self.shared.revisions
    }

    /// Returns the routing view at the revision that this voter has applied.
    pub fn routing_view(&self) -> Arc<RoutingView> {
        let mut held = self.shared.view.lock();
        if held.revision != self.shared.revisions.revision() {
            *held = Arc::new(self.shared.group.with_state_machine(|machine| machine.state().routing_view()));
        }
        Arc::clone(&held)
    }

    /// Returns an error if this voter is partitioned from the majority. On success the voter has applied
    /// everything that was committed when the check began. Concurrent callers share one check.
    pub(crate) async fn confirm_quorum(&self) -> Result<(), Status> {
        let VoterShared { clock, confirmed, .. } = &*self.shared;
        let asked = clock.monotonic();
        let mut confirmed = confirmed.lock().await;
        if let Some(QuorumCheck { begun, ended, found }) = &*confirmed {
            let holds = match found {
                Ok(()) => *begun + QUORUM_CHECK_TTL > asked,
                Err(_) => *ended >= asked,
            };
            if holds {
                return found.clone();
            }
        }
        let begun = clock.monotonic();
        let found = self.ensure_current().await.map_err(|error| Status::from_error(&error));
        *confirmed = Some(QuorumCheck { begun, ended: clock.monotonic(), found: found.clone() });
        found
    }

    async fn ensure_current(&self) -> Result<(), CatalogError> {
        let read = self.shared.group.read_index().await;
        read.map(|_| ()).map_err(|error| CatalogError::Unavailable(Status::from_error(&error)))
    }

    /// Returns the voters of the raft group after a quorum check. Addresses come from the catalog.
    pub async fn voter_infos(&self) -> Result<Vec<VoterInfo>, CatalogError> {
        self.ensure_current().await?;
        Ok(self.known_voter_infos())
    }

    fn known_voter_infos(&self) -> Vec<VoterInfo> {
        let voters = self.voters();
        let view = self.routing_view();
        let address = |node| view.voters.get(node).map(|voter| voter.address.clone()).unwrap_or_default();
        voters.iter().map(|node| VoterInfo { node: *node, address: address(node) }).collect()
    }

    pub(crate) fn voters(&self) -> BTreeSet<NodeId> {
        self.shared.group.members().voters
    }

    /// Adds a voter that was started in joining mode. Only the leader can do this. Idempotent.
    pub async fn add_voter(&self, seat: VoterInfo) -> Result<(), Status> {
        let VoterInfo { node, address } = seat;
        let one = self.shared.changing.lock().await;
        let added = self.shared.group.add_voter(node, VOTER_CHANGE_TIMEOUT).await;
        drop(one);
        added.map_err(|error| Status::from_error(&error))?;
        self.apply_command(CatalogCommand::AddVoter { node, address })
            .await
            .map_err(|error| Status::from_error(&error))
    }

    /// Removes a voter. Only the leader can do this. A leader that removes itself first transfers the
    /// leadership and returns `NotLeader`; the caller then retries at the new leader. Idempotent.
    pub async fn remove_voter(&self, node: NodeId) -> Result<(), Status> {
        let group = &self.shared.group;
        let leader = self.leader();
        if leader.here && leader.node == Some(node) {
            let voters = self.voters();
            let others = group.replication_progress().into_iter();
            let others = others.filter(|(other, _)| *other != node && voters.contains(other));
            if let Some((to, _)) = others.max_by_key(|(_, has)| *has) {
                group
                    .transfer_leadership(to, VOTER_CHANGE_TIMEOUT)
                    .await
                    .map_err(|error| Status::from_error(&error))?;
                let message =
                    format!("node {node} transferred leadership to node {to}; send the request there");
                return Err(Status::new(ErrorCode::NotLeader, message));
            }
        }
        let one = self.shared.changing.lock().await;
        let removed = group.remove_voter(node, VOTER_CHANGE_TIMEOUT).await;
        drop(one);
        removed.map_err(|error| match error {
            // Final: no other voter would accept the change either.
            LeadershipError::LastVoter { .. } => Status::new(ErrorCode::Invalid, error.to_string()),
            error => Status::from_error(&error),
        })?;
        self.apply_command(CatalogCommand::RemoveVoter { node })
            .await
            .map_err(|error| Status::from_error(&error))
    }

    /// Applies a change of the voters, if there is one, and returns the current voters.
    pub(crate) async fn update_voters(&self, change: Option<VoterChange>) -> Result<Vec<VoterInfo>, Status> {
        match change {
            None => {}
            Some(VoterChange::Add(seat)) => self.add_voter(seat).await?,
            Some(VoterChange::Remove(node)) => self.remove_voter(node).await?,
        }
        self.voter_infos().await.map_err(to_status)
    }

    /// Completes a membership change that a failed leader has begun.
    pub(crate) async fn finish_voter_change(&self) {
        let group = &self.shared.group;
        let Ok(_one) = self.shared.changing.try_lock() else { return };
        if group.members().changing
            && let Err(error) = group.finish_membership_change(VOTER_CHANGE_TIMEOUT).await
        {
            // This voter may have lost the leadership.
            tracing::debug!(%error, "membership change of the catalog group is not complete yet");
        }
    }

    /// Purges this voter's log if it has grown by [`COMPACT_INTERVAL_ENTRIES`]. Each voter purges its own
    /// log.
    pub(crate) async fn compact(&self) {
        let VoterShared { group, compacted, .. } = &*self.shared;
        let before = self.compacted_index();
        let index = self.applied_index();
        let claim = || compacted.compare_exchange(before, index, Ordering::Relaxed, Ordering::Relaxed);
        if index < before + COMPACT_INTERVAL_ENTRIES || claim().is_err() {
            return;
        }
        if let Err(error) = group.compact(index).await {
            tracing::warn!(%error, "failed to purge the catalog log, will retry");
        }
    }

    /// Returns the index up to which the log is purged.
    pub(crate) fn compacted_index(&self) -> u64 {
        self.shared.compacted.load(Ordering::Relaxed)
    }

    /// Returns the index of the last applied entry.
    pub(crate) fn applied_index(&self) -> u64 {
        self.shared.group.applied_index().unwrap_or_default()
    }

    /// Returns a copy of the catalog state with its log index. A read that visits all blocks uses a copy, so
    /// that commands do not wait for it.
    pub(crate) fn copy_state(&self) -> StateCopy {
        self.shared.group.with_state_machine(CatalogStateMachine::copy_state)
    }

    /// Returns the cause if this voter has failed and rejects everything until a restart.
    pub fn failure(&self) -> Option<String> {
        self.shared.group.failure()
    }
}

/// Returns whether a command may be needed to free a full disk. Excluded are the commands that create further
/// work.
fn frees_space(command: &CatalogCommand) -> bool {
    !matches!(
        command,
        CatalogCommand::OpenShard { .. }
            | CatalogCommand::OpenSlots { .. }
            | CatalogCommand::AddSlot { .. }
            | CatalogCommand::ProposeTable { .. }
            | CatalogCommand::SetServiceRates { .. }
            | CatalogCommand::PutTenantDocument { .. }
    )
}

/// Rejects a command larger than [`MAX_COMMAND_SIZE`].
pub(crate) fn check_command_size(bytes: usize) -> Result<(), Status> {
    match bytes as u64 <= MAX_COMMAND_SIZE.get() {
        true => Ok(()),
        false => {
            let seen = ByteSize::bytes(bytes as u64);
            let message = format!(
                "catalog command has {seen}, the limit is {MAX_COMMAND_SIZE}; split the command, or name fewer blocks"
            );
            Err(Status::new(ErrorCode::TooLarge, message))
        }
    }
}

/// Converts a catalog error to the status for other nodes.
pub(crate) fn to_status(error: CatalogError) -> Status {
    match error {
        CatalogError::Unavailable(status) => status,
        refused @ CatalogError::Refused(_) => Status::from_error(&refused),
    }
}

#[async_trait]
impl Catalog for MetastoreVoter {
    async fn propose(&self, command: CatalogCommand) -> Result<CommandResult, CatalogError> {
        let VoterShared { group, waiting, .. } = &*self.shared;
        let frees = frees_space(&command);
        let entry = CatalogLogEntry { time: self.time(), command }.encode();
        check_command_size(entry.len()).map_err(CatalogError::Unavailable)?;
        let Ok(_waiting) = waiting.try_acquire() else {
            let message =
                format!("{MAX_PENDING_PROPOSALS} proposals are pending at the catalog, the limit; retry");
            return Err(CatalogError::Unavailable(Status::new(ErrorCode::Exhausted, message)));
        };
        let proposed = match frees {
            true => group.propose_relief(entry.into()).await,
            false => group.propose(entry.into()).await,
        };
        let (_, applied) = proposed.map_err(|error| CatalogError::Unavailable(Status::from_error(&error)))?;
        self.compact().await;
        let unread = || Status::new(ErrorCode::Internal, "this voter cannot decode its own log entry");
        applied.ok_or_else(|| CatalogError::Unavailable(unread()))
    }

    async fn list_blocks(&self, tenant: &TenantId, from: i64, to: i64) -> Result<BlockListing, CatalogError> {
        self.ensure_current().await?;
        Ok(self.shared.group.with_state_machine(|machine| machine.state().list_blocks(tenant, from, to)))
    }

    async fn blocks(&self) -> Result<Vec<BlockEntry>, CatalogError> {
        self.ensure_current().await?;
        Ok(self.copy_state().state.blocks().cloned().collect())
    }

    async fn tenants(&self) -> Result<Vec<TenantId>, CatalogError> {
        self.ensure_current().await?;
        Ok(self.copy_state().state.tenants().cloned().collect())
    }

    async fn tenant_documents(&self, tenant: &TenantId) -> Result<TenantDocuments, CatalogError> {
        self.ensure_current().await?;
        Ok(self.shared.group.with_state_machine(|machine| machine.state().tenant_documents(tenant)))
    }

    async fn tombstones(&self) -> Result<Vec<(BlockId, Tombstone)>, CatalogError> {
        self.tombstones_after(None, usize::MAX).await
    }

    async fn block_ages(&self, retention: &RetentionPolicy) -> Result<AgeReport, CatalogError> {
        self.ensure_current().await?;
        let time = self.time();
        Ok(self.copy_state().state.block_ages(time, retention))
    }

    async fn compaction_jobs(&self, request: &JobRequest) -> Result<Vec<CompactionJob>, CatalogError> {
        self.offer_jobs(request).await
    }

    async fn compaction_status(&self) -> Result<CompactionStatus, CatalogError> {
        Ok((*self.current_status().await?).clone())
    }

    async fn removal_report(&self) -> Result<RemovalReport, CatalogError> {
        self.current_removal_report().await
    }

    async fn unknown_blocks(&self, blocks: &[BlockId]) -> Result<Vec<BlockId>, CatalogError> {
        self.ensure_current().await?;
        let group = &self.shared.group;
        Ok(group.with_state_machine(|machine| machine.state().unknown_blocks(blocks.to_vec())))
    }
}
