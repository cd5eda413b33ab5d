//! One raft group: a state machine, the same on each member, fed from one log.

mod codec;
mod error;
#[allow(clippy::result_large_err, reason = "raft's error, which its traits ask for")]
mod leadership;
#[allow(clippy::result_large_err, reason = "raft's error, which its traits ask for")]
mod network;
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
use std::sync::{Arc, Mutex};
use std::time::Duration;

use athanor_chassis::{ByteSize, ComputePool, Disk, Random};
use bytes::Bytes;
use openraft::error::{ClientWriteError, Fatal, InitializeError, RaftError};
use openraft::{ServerState, SnapshotPolicy};
use tokio::sync::watch;

pub use codec::{RaftEncoding, reencode};
pub use error::{GroupOpenError, ProposeError};
pub use leadership::{GroupMembers, LeaderInfo, LeaderWatch, LeadershipError};
pub use network::{Network, RaftCallError};

use crate::log::{Log, LogError, LogReadError};
use leadership::PROPOSE_TIMEOUT;
use network::{PeerLinks, RaftRequestHandler};
use read_index::{ReadIndexError, ReadIndexRounds};
use snapshot_barrier::SnapshotBarrier;
use state_machine::StateMachineHost;
use store::RaftLogStore;
use type_config::{RaftHandle, RaftProposal};

/// What a group replicates. Members that applied the same entries are the same.
pub trait StateMachine: Send + Sync + 'static {
    /// What a proposer is told.
    type Answer: Send + 'static;

    /// Takes an entry in. Called in the order of the log, each index once in a process; depends on nothing else than
    /// what was applied before. Runs on compute threads.
    fn apply(&mut self, index: u64, entry: &[u8]) -> Self::Answer;

    /// Why the last entry given to [`apply`](Self::apply) could not be taken in, though others may take it in. Then this
    /// member must stop, not guess: it would say something else than they do. The entry does not count as applied, what
    /// `apply` answered is not told, and the group ends here, with [`RaftGroup::failure`] saying this.
    fn apply_failure(&self) -> Option<String> {
        None
    }

    /// What may replace the entries up to an index: the label that the machine is willing to be cut at, not above
    /// what was applied [INV-09].
    fn snapshot(&self) -> StateSnapshot;

    /// The files on [`RaftGroupDeps::disk`] that a snapshot's bytes name. They never change, their names are no other member's, and
    /// they stay as long as the snapshot is the newest. Members that need the snapshot get them, too.
    fn snapshot_files(&self, bytes: &[u8]) -> Result<Vec<String>, String> {
        let _ = bytes;
        Ok(Vec::new())
    }

    /// Becomes what a snapshot says, forgetting everything else.
    fn restore(&mut self, restored: RestoreContext<'_>) -> Result<(), String>;

    /// Becomes empty, as if all entries up to an index had said nothing: the snapshot that held them was damaged. The
    /// next snapshot is labelled with that index.
    fn reset_to(&mut self, index: u64);
}

/// A state machine as bytes, to be made while others go on with it.
pub struct StateSnapshot {
    /// The last entry that it holds.
    pub index: u64,
    /// Gives the bytes; opaque. What it needs of the machine it holds already.
    pub write: Box<dyn FnOnce() -> Result<Vec<u8>, String> + Send>,
    /// Called when the bytes are durable: what only earlier snapshots needed may go.
    pub kept: Box<dyn FnOnce() + Send>,
}

/// A snapshot to become.
pub struct RestoreContext<'s> {
    /// The last entry that it holds.
    pub index: u64,
    /// What [`StateSnapshot::write`] gave, here or on another member.
    pub bytes: &'s [u8],
    /// Nobody else has it: what is damaged of its files is done without.
    pub alone: bool,
    /// Puts files that came with it into their places: to be called before they are looked for.
    pub arrive: &'s mut dyn FnMut() -> Result<(), String>,
}

/// What groups run on.
#[derive(Clone)]
pub struct RaftGroupDeps {
    /// This node's.
    pub log: Log,
    /// Where snapshots are kept; may be the log's own folder.
    pub disk: Arc<dyn Disk>,
    /// Applies entries and reads logs.
    pub compute: ComputePool,
    /// For the timeouts of elections.
    pub random: Random,
    /// The way to other members; none where every group has this node only.
    pub network: Option<Arc<dyn Network>>,
    /// This node's id.
    pub node: u64,
    /// Heartbeats and elections.
    pub timing: RaftTiming,
}

/// What a start may take for granted where this node has nothing of a group yet. Where it has, the log knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupBootstrap {
    /// It is a new group of these.
    Members(BTreeSet<u64>),
    /// Others have it, and will ask this node in. Until then it does not vote.
    Joining,
    /// It should have something: without that it does not start.
    Kept,
}

/// How long members wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaftTiming {
    /// Between heartbeats of a leader.
    pub heartbeat: Duration,
    /// Without a heartbeat until an election, at least.
    pub election_min: Duration,
    /// And at most.
    pub election_max: Duration,
}

/// One raft group on this node. Cheap to clone.
pub struct RaftGroup<S> {
    shared: Arc<RaftGroupShared<S>>,
}

struct RaftGroupShared<S> {
    node: u64,
    group: u32,
    raft: RaftHandle,
    links: PeerLinks,
    /// After so long without a word of the leader others may be voted for.
    silence: Duration,
    log: Log,
    store: RaftLogStore,
    machine: StateMachineHost<S>,
    answers: RaftRequestHandler,
}

/// How long a single voter may take to lead: it asks nobody.
const SINGLE_VOTER_ELECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Until raft is asked for a snapshot once more.
const SNAPSHOT_RETRY_INTERVAL: Duration = Duration::from_millis(200);

impl StateSnapshot {
    /// Of bytes that need nothing beside them.
    pub fn from_bytes(index: u64, bytes: Vec<u8>) -> Self {
        Self { index, write: Box::new(move || Ok(bytes)), kept: Box::new(|| ()) }
    }
}

impl fmt::Debug for StateSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Default for RaftTiming {
    fn default() -> Self {
        let [heartbeat, election_min, election_max] = [200, 500, 900].map(Duration::from_millis);
        Self { heartbeat, election_min, election_max }
    }
}

impl GroupBootstrap {
    /// A group of this node alone.
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
            // A snapshot at what was applied would let the log purge what no block holds.
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: u64::MAX,
            purge_batch_size: 1,
            // Followers are sent a snapshot only where the log is gone.
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
        f.debug_struct("Replicated").field("group", &self.shared.group).finish_non_exhaustive()
    }
}

/// Makes this node the single voter of a group that begins with a snapshot: what [`StateSnapshot::write`] gave once, to be
/// found at an index. The node must have nothing of the group; it opens it then as one that it kept. Broken off, it may
/// be done again, and must be.
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
    // A log without its snapshot would have lost it: so the snapshot is durable first.
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
    /// Starts this node's member of a group. A single voter leads, and has applied all that it acknowledged, when this
    /// returns; one whose log was hurt starts, too, with [`RaftGroup::lost_entries`] telling what is missing, and so does one
    /// whose snapshot was damaged, with [`RaftGroup::lost_snapshot_index`].
    pub async fn open(
        deps: &RaftGroupDeps,
        group: u32,
        founding: GroupBootstrap,
        machine: S,
    ) -> Result<Self, GroupOpenError> {
        type_config::seed_random(&deps.random);
        // What it shows may never have become durable: a group would seem to have begun that a crash leaves nothing of.
        if let Some(cause) = deps.log.failure() {
            return Err(GroupOpenError::Raft { cause: LogError::Failed { cause }.to_string() });
        }
        let kept = Arc::<SnapshotBarrier>::default();
        let store = RaftLogStore::new(deps.log.clone(), deps.compute.clone(), (group, deps.node), &kept);
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
                Ok((
                    alone,
                    StateMachineHost::open(
                        (log, disk, compute, kept),
                        group,
                        alone.then_some(node),
                        machine,
                    )?,
                ))
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

    /// The first start of a new group writes its members into the log.
    async fn initialize_members(&self, founding: GroupBootstrap) -> Result<(), GroupOpenError> {
        let fail = |error: &dyn fmt::Display| self.bootstrap_error(error);
        // Raft calls a second beginning an error, in the log that people read.
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
            // It was called in between by a member that has a log.
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(error) => Err(fail(&error)),
        }
    }

    /// Why the group does not begin. Raft says what it was doing; the log knows that the disk is full.
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
            .state(ServerState::Leader, "a single voter leads")
            .await;
        led.map_err(|error| fail(&error))?;
        self.read_index().await.map_err(|error| fail(&error))?;
        Ok(())
    }

    /// Proposes an entry, and gives its index and what the machine answered when it is committed and applied here. A leader
    /// that others do not answer does not wait for ever.
    pub async fn propose(&self, entry: Bytes) -> Result<(u64, S::Answer), ProposeError> {
        self.propose_if(entry, Log::admit).await
    }

    /// As [`propose`](Self::propose), for a small entry that frees space when it is applied: a disk that is nearly full
    /// takes it, or it would never have room again.
    pub async fn propose_relief(&self, entry: Bytes) -> Result<(u64, S::Answer), ProposeError> {
        let bytes = entry.len() as u64;
        self.propose_if(entry, move |log| log.admit_relief(bytes)).await
    }

    /// As [`propose`](Self::propose), for a small entry without which nothing goes on: taken as long as raft's own are.
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
                    cause: "the state machine gave no answer".to_owned(),
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

    /// Everything that was acknowledged anywhere before this call is applied here, when it returns the index up to which
    /// that is. Members that do not lead ask the one that does.
    pub async fn read_index(&self) -> Result<u64, ProposeError> {
        let RaftGroupShared { node, raft, links, answers, .. } = &*self.shared;
        let read = match self.leadership().current().node.filter(|leader| leader != node) {
            Some(leader) => read_index::request_read_index(raft, &links.to(leader)).await,
            None => answers.rounds.confirm_read_index(raft).await,
        };
        read.map_err(|why| self.read_index_error(why))
    }

    /// As [`read_index`](Self::read_index), if this member leads: what it has beside the log is what there is.
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
        // Raft says what it was doing; the log knows why that failed.
        if let Some(cause) = self.shared.log.failure() {
            return ProposeError::Failed { cause: cause.to_string() };
        }
        match fatal {
            Fatal::Stopped => ProposeError::ShuttingDown,
            fatal => ProposeError::Failed { cause: self.failure_cause(fatal) },
        }
    }

    /// Looks at the machine. Waits while an entry is applied, so on an I/O thread only for short looks at machines
    /// that apply fast.
    pub fn with_state_machine<R>(&self, look: impl FnOnce(&S) -> R) -> R {
        self.shared.machine.with_state_machine(look)
    }

    /// What was proposed at an index, as the log holds it; none where that was nothing, or is purged. Reads from the
    /// disk, so it is for compute threads.
    pub fn read_proposal(&self, index: u64) -> Result<Option<Bytes>, LogReadError> {
        self.shared.store.read_proposal(index)
    }

    /// The last entry that was applied here.
    pub fn applied_index(&self) -> Option<u64> {
        self.shared.machine.applied_index()
    }

    /// Takes a snapshot where the machine is willing to be cut, and purges the log up to `upto` of what it holds.
    /// Gives the snapshot's label, if there is a snapshot.
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

    /// Has raft build a snapshot of what was prepared.
    async fn build_snapshot(&self, built: &mut watch::Receiver<u64>) -> Result<(), ProposeError> {
        let raft = &self.shared.raft;
        let mut server = raft.data_metrics();
        loop {
            built.borrow_and_update();
            // Raft passes over it while it builds another one, or has not yet heard that one is built.
            raft.trigger().snapshot().await.map_err(|fatal| self.fatal_error(&fatal))?;
            tokio::select! {
                biased;
                told = built.changed() => {
                    return told.map_err(|error| ProposeError::Failed { cause: error.to_string() });
                }
                // The sender goes with raft.
                () = async { while server.changed().await.is_ok() {} } => return Err(ProposeError::ShuttingDown),
                () = leadership::sleep(SNAPSHOT_RETRY_INTERVAL) => {}
            }
        }
    }

    /// Answers another member's message.
    pub async fn handle_request(&self, request: Bytes) -> Bytes {
        self.shared.answers.handle_request(&request).await
    }

    /// (first, how many): entries that this node has lost and that are not purged; answers over them are partial.
    pub fn lost_entries(&self) -> Vec<(u64, u64)> {
        self.shared.log.group_state(self.shared.group).lost
    }

    /// Something of this group was lost, now or earlier, perhaps unknown what.
    pub fn is_damaged(&self) -> bool {
        self.shared.log.group_state(self.shared.group).hurt
    }

    /// The snapshot was damaged at this start: what the machine knew of entries up to this one is gone.
    pub fn lost_snapshot_index(&self) -> Option<u64> {
        self.shared.machine.lost_snapshot_index()
    }

    /// Why this member takes nothing more until a restart, if it has failed.
    pub fn failure(&self) -> Option<String> {
        let cause = self.shared.log.failure().map(|cause| cause.to_string());
        cause.or_else(|| match &self.shared.raft.metrics().borrow().running_state {
            Ok(()) | Err(Fatal::Stopped) => None,
            Err(fatal) => Some(self.failure_cause(fatal)),
        })
    }

    /// What ended the group: the machine says it in fewer words than raft.
    fn failure_cause(&self, fatal: &Fatal<u64>) -> String {
        self.with_state_machine(S::apply_failure).unwrap_or_else(|| fatal.to_string())
    }

    /// Ends this member. What was acknowledged is kept.
    pub async fn shutdown(&self) {
        if let Err(error) = self.shared.raft.shutdown().await {
            tracing::error!(group = self.shared.group, %error, "raft ended badly");
        }
        if let Err(error) = self.shared.store.persist_committed().await {
            tracing::warn!(group = self.shared.group, %error, "how far was committed was not noted");
        }
    }
}

#[cfg(test)]
mod tests;
