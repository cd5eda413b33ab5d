//! Raft group: a state machine that each member feeds from the same log.

mod codec;
mod error;
#[allow(clippy::result_large_err, reason = "raft's error, which its traits ask for")]
mod leadership;
#[allow(clippy::result_large_err, reason = "raft's error, which its traits ask for")]
mod network;
mod peer_link;
#[allow(clippy::result_large_err, reason = "raft's error, which its traits ask for")]
mod raft_adapter;
mod read_index;
mod snapshot_barrier;
mod snapshot_transfer;
#[allow(clippy::result_large_err, reason = "raft's error, which its traits ask for")]
mod state_machine;
#[allow(clippy::result_large_err, reason = "raft's error, which its traits ask for")]
mod store;
mod type_config;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{ByteSize, ComputePool, Disk, Random};
use bytes::Bytes;
use openraft::error::{ClientWriteError, Fatal, InitializeError, RaftError};
use openraft::{ServerState, SnapshotPolicy};
use parking_lot::Mutex;
use tokio::sync::watch;

pub use codec::{RaftEncoding, reencode};
pub use error::{GroupOpenError, ProposeError};
pub use leadership::{GroupMembers, LeaderInfo, LeaderWatch, LeadershipError};
pub use peer_link::{Network, RaftCallError};

use crate::log::{Log, LogError, LogReadError};
use leadership::PROPOSE_TIMEOUT;
use network::RaftRequestHandler;
use peer_link::PeerLinks;
use read_index::{ReadIndexError, ReadIndexRounds};
use snapshot_barrier::SnapshotBarrier;
use state_machine::{StateMachineDeps, StateMachineHost};
use store::RaftLogStore;
use type_config::{RaftHandle, RaftProposal};

/// State machine that a group replicates. Members that applied the same entries have equal states.
pub trait StateMachine: Send + Sync + 'static {
    /// Result of applying an entry, returned to the proposer.
    type Answer: Send + 'static;

    /// Applies an entry. The group calls this in log order, once per index and process, on compute threads.
    /// The result depends only on entries that were applied before.
    fn apply(&mut self, index: u64, entry: &[u8]) -> Self::Answer;

    /// Returns the reason why the last entry given to [`apply`](Self::apply) cannot be applied, although
    /// other members may apply it. Then this member must stop, because a guess would diverge from the others.
    /// The entry does not count as applied, and its result is dropped. The group ends here, and
    /// [`RaftGroup::failure`] returns this reason.
    fn apply_failure(&self) -> Option<String> {
        None
    }

    /// Returns a snapshot that may replace the entries up to its index. The machine chooses the index, which
    /// is not above the last applied one [INV-09].
    fn snapshot(&self) -> StateSnapshot;

    /// Returns the files on [`RaftGroupDeps::disk`] that a snapshot's bytes name. They never change, and no
    /// other member uses their names. They stay as long as the snapshot is the newest. Members that need the
    /// snapshot receive them as well.
    fn snapshot_files(&self, bytes: &[u8]) -> Result<Vec<String>, String> {
        let _ = bytes;
        Ok(Vec::new())
    }

    /// Replaces the state by a snapshot.
    fn restore(&mut self, restored: RestoreContext<'_>) -> Result<(), String>;

    /// Resets to an empty state at an index, because the snapshot with the entries up to it was damaged. The
    /// next snapshot has that index.
    fn reset_to(&mut self, index: u64);
}

/// Snapshot of a state machine. The bytes are produced while the machine continues.
pub struct StateSnapshot {
    /// Index of the last entry that it holds.
    pub index: u64,
    /// Produces the opaque bytes. It already owns the data that it needs from the machine.
    pub write: Box<dyn FnOnce() -> Result<Vec<u8>, String> + Send>,
    /// Called when the bytes are durable. Data that only earlier snapshots needed may be deleted then.
    pub kept: Box<dyn FnOnce() + Send>,
}

/// Snapshot to restore.
pub struct RestoreContext<'s> {
    /// Index of the last entry that it holds.
    pub index: u64,
    /// Bytes from [`StateSnapshot::write`], of this or another member.
    pub bytes: &'s [u8],
    /// True if no other member has the snapshot. Then the restore leaves out damaged files.
    pub alone: bool,
    /// Moves files that were received with the snapshot into their places. The machine calls it before it
    /// reads them.
    pub arrive: &'s mut dyn FnMut() -> Result<(), String>,
}

/// Resources that groups run on.
#[derive(Clone)]
pub struct RaftGroupDeps {
    /// Write-ahead log of this node.
    pub log: Log,
    /// Disk for snapshots. May be the log's own folder.
    pub disk: Arc<dyn Disk>,
    /// Compute pool that applies entries and reads the log.
    pub compute: ComputePool,
    /// Source of random election timeouts.
    pub random: Random,
    /// Connection to other members. Absent if every group has this node only.
    pub network: Option<Arc<dyn Network>>,
    /// Id of this node.
    pub node: u64,
    /// Intervals of heartbeats and elections.
    pub timing: RaftTiming,
}

/// Bootstrap of a group without local data on this node. If local data exists, the log decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupBootstrap {
    /// The group is new and has these members.
    Members(BTreeSet<u64>),
    /// Other nodes have the group and will add this node. Until then it does not vote.
    Joining,
    /// Local data should exist. Without it the group does not start.
    Kept,
}

/// Timeouts between the members of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaftTiming {
    /// Interval between heartbeats of a leader.
    pub heartbeat: Duration,
    /// Minimum time without a heartbeat until an election.
    pub election_min: Duration,
    /// Maximum time without a heartbeat until an election.
    pub election_max: Duration,
}

/// Member of a raft group on this node. Cheap to clone.
pub struct RaftGroup<S> {
    shared: Arc<RaftGroupShared<S>>,
}

struct RaftGroupShared<S> {
    node: u64,
    group: u32,
    raft: RaftHandle,
    links: PeerLinks,
    /// Time without a message of the leader after which a member may vote for another.
    silence: Duration,
    log: Log,
    store: RaftLogStore,
    machine: StateMachineHost<S>,
    answers: RaftRequestHandler,
}

/// Time limit for a single voter to become leader. It needs no vote of another member.
const SINGLE_VOTER_ELECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay before the group requests a snapshot from raft once more.
const SNAPSHOT_RETRY_INTERVAL: Duration = Duration::from_millis(200);

impl StateSnapshot {
    /// Creates a snapshot from bytes that need no other resources.
    pub fn from_bytes(index: u64, bytes: Vec<u8>) -> Self {
        Self { index, write: Box::new(move || Ok(bytes)), kept: Box::new(|| ()) }
    }
}

impl fmt::Debug for StateSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateSnapshot").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Default for RaftTiming {
    fn default() -> Self {
        let [heartbeat, election_min, election_max] = [200, 500, 900].map(Duration::from_millis);
        Self { heartbeat, election_min, election_max }
    }
}

impl GroupBootstrap {
    /// Returns the bootstrap of a group that has this node only.
    pub fn single_voter(node: u64) -> Self {
        Self::Members([node].into())
    }

    fn members(&self) -> BTreeSet<u64> {
        match self {
            Self::Members(members) => members.clone(),
            Self::Joining | Self::Kept => BTreeSet::new(),
        }
    }
}

impl RaftTiming {
    fn config(&self, group: u32) -> openraft::Config {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        openraft::Config {
            cluster_name: format!("group {group}"),
            heartbeat_interval: millis(self.heartbeat),
            election_timeout_min: millis(self.election_min),
            election_timeout_max: millis(self.election_max),
            // A snapshot at the last applied index would let the log purge entries that no block holds.
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: u64::MAX,
            purge_batch_size: 1,
            // Followers receive a snapshot only if the log is gone.
            replication_lag_threshold: u64::MAX,
            install_snapshot_timeout: 10_000,
            ..openraft::Config::default()
        }
    }
}

impl<S> Clone for RaftGroup<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S> fmt::Debug for RaftGroup<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RaftGroup").field("group", &self.shared.group).finish_non_exhaustive()
    }
}

/// Makes this node the single voter of a group that begins with a snapshot at an index. The bytes come from
/// [`StateSnapshot::write`]. The node must have no data of the group, and opens it afterwards with
/// [`GroupBootstrap::Kept`]. An interrupted call can be retried, and must be.
pub async fn bootstrap_from_snapshot(
    deps: &RaftGroupDeps,
    group: u32,
    index: u64,
    bytes: Vec<u8>,
) -> Result<(), GroupOpenError> {
    if deps.log.group_state(group).last.is_some() {
        return Err(GroupOpenError::Taken { group });
    }
    let fail = |error: &dyn fmt::Display| GroupOpenError::Raft { cause: error.to_string() };
    let disk = Arc::clone(&deps.disk);
    let node = deps.node;
    let keep = move || state_machine::write_initial_snapshot(&*disk, group, node, index, &bytes);
    deps.compute.run(keep).await.map_err(|error| fail(&error))??;
    // The snapshot becomes durable first. Otherwise a crash would leave a log without its snapshot.
    deps.log.append(store::initial_records(group, node, index)).await.map_err(|error| fail(&error))
}

fn peer_links<S: StateMachine>(deps: &RaftGroupDeps, group: u32, machine: &StateMachineHost<S>) -> PeerLinks {
    let machine = machine.clone();
    PeerLinks {
        network: deps.network.clone(),
        group,
        disk: Arc::clone(&deps.disk),
        compute: deps.compute.clone(),
        files: Arc::new(move |bytes: &[u8]| {
            machine.with_state_machine(|machine| machine.snapshot_files(bytes))
        }),
    }
}

fn request_handler<S: StateMachine>(
    deps: &RaftGroupDeps,
    group: u32,
    raft: &RaftHandle,
    machine: &StateMachineHost<S>,
) -> RaftRequestHandler {
    RaftRequestHandler {
        group,
        raft: raft.clone(),
        log: deps.log.clone(),
        compute: deps.compute.clone(),
        arrivals: machine.file_receiver(),
        part: Mutex::default(),
        rounds: ReadIndexRounds::default(),
    }
}

impl<S: StateMachine> RaftGroup<S> {
    /// Starts this node's member of a group. When this returns, a single voter leads and has applied all
    /// acknowledged entries. A single voter also starts with a damaged log or snapshot.
    /// [`RaftGroup::lost_entries`] and [`RaftGroup::lost_snapshot_index`] then report the loss.
    pub async fn open(
        deps: &RaftGroupDeps,
        group: u32,
        founding: GroupBootstrap,
        machine: S,
    ) -> Result<Self, GroupOpenError> {
        type_config::seed_random(&deps.random);
        // The visible records may never have become durable. The group would appear initialized, and a crash
        // would undo it.
        if let Some(cause) = deps.log.failure() {
            return Err(GroupOpenError::Raft { cause: LogError::Failed { cause }.to_string() });
        }
        let kept = Arc::<SnapshotBarrier>::default();
        let store = RaftLogStore::new(deps.log.clone(), deps.compute.clone(), group, deps.node, &kept);
        let store = store.ok_or(GroupOpenError::BadState { group })?;
        let opened = {
            let log = deps.log.clone();
            let disk = Arc::clone(&deps.disk);
            let compute = deps.compute.clone();
            let logged = store.voters();
            let founders = founding.members();
            let node = deps.node;
            let open = move || {
                let known = match logged.is_empty() {
                    true => StateMachineHost::<S>::snapshot_voters(&*disk, group)?,
                    false => logged,
                };
                let voters = if known.is_empty() { founders } else { known };
                let alone = voters == [node].into();
                if log.group_state(group).hurt && !alone {
                    return Err(GroupOpenError::Hurt { group });
                }
                let machine_deps = StateMachineDeps { log, disk, compute, kept };
                Ok((alone, StateMachineHost::open(machine_deps, group, alone.then_some(node), machine)?))
            };
            deps.compute.run(open).await
        };
        let (alone, machine) =
            opened.map_err(|error| GroupOpenError::Raft { cause: error.to_string() })??;
        if !alone {
            store.step_down();
        }
        let start = |error: &dyn fmt::Display| GroupOpenError::Raft { cause: error.to_string() };
        let config = deps.timing.config(group).validate().map_err(|error| start(&error))?;
        let links = peer_links(deps, group, &machine);
        let driven = Arc::new(machine.clone());
        let raft =
            raft_adapter::start_raft(deps.node, Arc::new(config), links.clone(), store.clone(), driven);
        let raft = raft.await.map_err(|error| start(&error))?;
        let answers = request_handler(deps, group, &raft, &machine);
        let node = deps.node;
        let log = deps.log.clone();
        let silence = deps.timing.election_max;
        let shared =
            Arc::new(RaftGroupShared { node, group, raft, links, silence, log, store, machine, answers });
        let opened = Self { shared };
        opened.initialize_members(founding).await?;
        if alone {
            opened.become_leader().await?;
        }
        Ok(opened)
    }

    /// Writes the members into the log at the first start of a new group.
    async fn initialize_members(&self, founding: GroupBootstrap) -> Result<(), GroupOpenError> {
        let fail = |error: &dyn fmt::Display| self.bootstrap_error(error);
        // Raft reports a second initialization as an error in the operator's log.
        if self.shared.raft.is_initialized().await.map_err(|fatal| fail(&fatal))? {
            return Ok(());
        }
        let members = match founding {
            GroupBootstrap::Members(members) => members,
            GroupBootstrap::Joining => return Ok(()),
            GroupBootstrap::Kept => return Err(GroupOpenError::Nothing { group: self.shared.group }),
        };
        let members: std::collections::BTreeMap<u64, openraft::EmptyNode> =
            members.into_iter().map(|member| (member, openraft::EmptyNode {})).collect();
        match self.shared.raft.initialize(members).await {
            // A member that has a log called in between.
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(error) => Err(fail(&error)),
        }
    }

    /// Returns the reason why the group does not begin. Raft names its operation, but only the log knows that
    /// the disk is full.
    fn bootstrap_error(&self, error: &dyn fmt::Display) -> GroupOpenError {
        let log = &self.shared.log;
        match log.admit_internal() {
            Err(LogError::Full { free, .. }) => GroupOpenError::Full { free, segment: log.segment_size() },
            Ok(()) | Err(_) => GroupOpenError::Raft { cause: error.to_string() },
        }
    }

    async fn become_leader(&self) -> Result<(), GroupOpenError> {
        let fail = |error: &dyn fmt::Display| self.bootstrap_error(error);
        let raft = &self.shared.raft;
        if raft.current_leader().await != Some(self.shared.node) {
            raft.trigger().elect().await.map_err(|error| fail(&error))?;
        }
        let led = raft
            .wait(Some(SINGLE_VOTER_ELECTION_TIMEOUT))
            .state(ServerState::Leader, "single voter leads")
            .await;
        led.map_err(|error| fail(&error))?;
        self.read_index().await.map_err(|error| fail(&error))?;
        Ok(())
    }

    /// Proposes an entry. Returns its index and the machine's result once it is committed and applied here. A
    /// leader without responses from a majority times out.
    pub async fn propose(&self, entry: Bytes) -> Result<(u64, S::Answer), ProposeError> {
        self.propose_if(entry, Log::admit).await
    }

    /// Same as [`propose`](Self::propose), for a small entry that frees space when it is applied. A nearly
    /// full disk accepts it, because otherwise it could never free space.
    pub async fn propose_relief(&self, entry: Bytes) -> Result<(u64, S::Answer), ProposeError> {
        let bytes = entry.len() as u64;
        self.propose_if(entry, move |log| log.admit_relief(bytes)).await
    }

    /// Same as [`propose`](Self::propose), for a small entry that is necessary for progress. It is accepted
    /// whenever raft's own entries are.
    pub async fn propose_essential(&self, entry: Bytes) -> Result<(u64, S::Answer), ProposeError> {
        self.propose_if(entry, |_| Ok(())).await
    }

    async fn propose_if(
        &self,
        entry: Bytes,
        admit: impl FnOnce(&Log) -> Result<(), LogError>,
    ) -> Result<(u64, S::Answer), ProposeError> {
        let size = entry.len() as u64;
        let limit = self.shared.log.max_entry_bytes();
        if size > limit {
            let size = ByteSize::bytes(size);
            let limit = ByteSize::bytes(limit);
            return Err(ProposeError::TooLarge { size, limit });
        }
        admit(&self.shared.log).map_err(|error| match error {
            LogError::Failed { cause } => ProposeError::Failed { cause: cause.to_string() },
            LogError::Closed => ProposeError::ShuttingDown,
            refused => ProposeError::Refused(refused),
        })?;
        let write = self.shared.raft.client_write(RaftProposal(entry));
        let written = tokio::select! {
            biased;
            written = write => written,
            () = self.wait_for_quorum_loss() => return Err(ProposeError::Unknown { limit: PROPOSE_TIMEOUT }),
        };
        match written {
            Ok(written) => {
                let answer = written.data.take().ok_or_else(|| ProposeError::Failed {
                    cause: "the state machine returned no result".to_owned(),
                })?;
                Ok((written.log_id.index, answer))
            }
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward))) => {
                Err(ProposeError::NotLeader { leader: forward.leader_id })
            }
            Err(RaftError::APIError(error)) => Err(ProposeError::Failed { cause: error.to_string() }),
            Err(RaftError::Fatal(fatal)) => Err(self.fatal_error(&fatal)),
        }
    }

    /// Waits until everything that was acknowledged before this call, by any member, is applied here. Returns
    /// the read index. A member that does not lead requests it from the leader.
    pub async fn read_index(&self) -> Result<u64, ProposeError> {
        let RaftGroupShared { node, raft, links, answers, .. } = &*self.shared;
        let read = match self.leadership().current().node.filter(|leader| leader != node) {
            Some(leader) => read_index::request_read_index(raft, &links.to(leader)).await,
            None => answers.rounds.confirm_read_index(raft).await,
        };
        read.map_err(|why| self.read_index_error(why))
    }

    /// Same as [`read_index`](Self::read_index), but requires that this member leads. So its state beside the
    /// log is current as well.
    pub async fn leader_read_index(&self) -> Result<u64, ProposeError> {
        let RaftGroupShared { raft, answers, .. } = &*self.shared;
        answers.rounds.confirm_read_index(raft).await.map_err(|why| self.read_index_error(why))
    }

    fn read_index_error(&self, why: ReadIndexError) -> ProposeError {
        match why {
            ReadIndexError::NotLeader(leader) => ProposeError::NotLeader { leader },
            ReadIndexError::NoQuorum => ProposeError::NoQuorum,
            ReadIndexError::Fatal(fatal) => self.fatal_error(&fatal),
        }
    }

    fn fatal_error(&self, fatal: &Fatal<u64>) -> ProposeError {
        // Raft names its operation, but only the log has the cause of the failure.
        if let Some(cause) = self.shared.log.failure() {
            return ProposeError::Failed { cause: cause.to_string() };
        }
        match fatal {
            Fatal::Stopped => ProposeError::ShuttingDown,
            fatal => ProposeError::Failed { cause: self.failure_cause(fatal) },
        }
    }

    /// Reads the state machine. Waits while an entry is applied. On an I/O thread it is only for short reads
    /// of machines that apply fast.
    pub fn with_state_machine<R>(&self, look: impl FnOnce(&S) -> R) -> R {
        self.shared.machine.with_state_machine(look)
    }

    /// Returns the proposal at an index from the log. Returns `None` if the index has no proposal or is
    /// purged. Reads the disk, so it is for compute threads.
    pub fn read_proposal(&self, index: u64) -> Result<Option<Bytes>, LogReadError> {
        self.shared.store.read_proposal(index)
    }

    /// Returns the index of the last entry that was applied here.
    pub fn applied_index(&self) -> Option<u64> {
        self.shared.machine.applied_index()
    }

    /// Takes a snapshot at the index that the machine chooses, and purges the log up to the lower of that
    /// index and `upto`. Returns the index of the snapshot, if there is one.
    pub async fn compact(&self, upto: u64) -> Result<Option<u64>, ProposeError> {
        let fail = |error: &dyn fmt::Display| ProposeError::Failed { cause: error.to_string() };
        let raft = &self.shared.raft;
        let mut built = self.shared.machine.subscribe_built();
        let mut prepared = self.shared.machine.prepare_snapshot().await;
        while prepared.is_err() && self.shared.log.release_spare() {
            prepared = self.shared.machine.prepare_snapshot().await;
        }
        let prepared = prepared.map_err(|error| fail(&error))?;
        let Some(label) = prepared else { return Ok(None) };
        let known = raft.data_metrics().borrow().snapshot.is_some_and(|known| known.index >= label);
        if !known {
            self.build_snapshot(&mut built).await?;
        }
        raft.trigger().purge_log(upto.min(label)).await.map_err(|fatal| self.fatal_error(&fatal))?;
        Ok(Some(label))
    }

    /// Waits until raft has built a snapshot from the prepared one.
    async fn build_snapshot(&self, built: &mut watch::Receiver<u64>) -> Result<(), ProposeError> {
        let raft = &self.shared.raft;
        let mut server = raft.data_metrics();
        loop {
            built.borrow_and_update();
            // Raft ignores the trigger while it builds another snapshot, or before it learns that one was
            // built.
            raft.trigger().snapshot().await.map_err(|fatal| self.fatal_error(&fatal))?;
            tokio::select! {
                biased;
                told = built.changed() => {
                    return told.map_err(|error| ProposeError::Failed { cause: error.to_string() });
                }
                // The sender is dropped with raft.
                () = async { while server.changed().await.is_ok() {} } => return Err(ProposeError::ShuttingDown),
                () = leadership::sleep(SNAPSHOT_RETRY_INTERVAL) => {}
            }
        }
    }

    /// Handles a request from another member and returns the response.
    pub async fn handle_request(&self, request: Bytes) -> Bytes {
        self.shared.answers.handle_request(&request).await
    }

    /// Returns ranges of entries that this node lost and that are not purged: (first index, count). Results
    /// over them are partial.
    pub fn lost_entries(&self) -> Vec<(u64, u64)> {
        self.shared.log.group_state(self.shared.group).lost
    }

    /// Returns whether any data of this group was lost, now or earlier, possibly of unknown extent.
    pub fn is_damaged(&self) -> bool {
        self.shared.log.group_state(self.shared.group).hurt
    }

    /// Returns the index up to which the machine lost its state, if the snapshot was damaged at this start.
    pub fn lost_snapshot_index(&self) -> Option<u64> {
        self.shared.machine.lost_snapshot_index()
    }

    /// Returns the cause of the failure, if this member refuses everything until a restart.
    pub fn failure(&self) -> Option<String> {
        let cause = self.shared.log.failure().map(|cause| cause.to_string());
        cause.or_else(|| match &self.shared.raft.metrics().borrow().running_state {
            Ok(()) | Err(Fatal::Stopped) => None,
            Err(fatal) => Some(self.failure_cause(fatal)),
        })
    }

    /// Returns the cause that ended the group. The machine's reason is shorter than raft's.
    fn failure_cause(&self, fatal: &Fatal<u64>) -> String {
        self.with_state_machine(S::apply_failure).unwrap_or_else(|| fatal.to_string())
    }

    /// Stops this member. Acknowledged entries stay in the log.
    pub async fn shutdown(&self) {
        if let Err(error) = self.shared.raft.shutdown().await {
            tracing::error!(group = self.shared.group, %error, "raft shutdown failed");
        }
        if let Err(error) = self.shared.store.persist_committed().await {
            tracing::warn!(group = self.shared.group, %error, "failed to persist the committed index");
        }
    }
}

#[cfg(test)]
mod tests;
