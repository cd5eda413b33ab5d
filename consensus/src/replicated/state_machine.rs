//! State machine under raft: applying of entries, snapshots and their files.

use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use athanor_chassis::disk::DiskError;
use athanor_chassis::{ComputePool, CpuActivity, Disk};
use bytes::Bytes;
use openraft::{EntryPayload, StorageIOError};
use parking_lot::RwLock;
use tokio::sync::watch;
use xxhash_rust::xxh3::xxh3_64;

use super::raft_adapter::{ErasedStateMachine, RaftSnapshot, RaftSnapshotMeta};
use super::snapshot_barrier::SnapshotBarrier;
use super::snapshot_transfer::SnapshotFileReceiver;
use super::type_config::{
    FIRST_TERM, ProposalResult, RaftEntry, RaftLogId, RaftMembership, RaftStorageError, log_id,
};
use super::{GroupOpenError, RestoreContext, StateMachine, codec};
use crate::log::{Log, error_chain};

const SNAPSHOT_MAGIC: [u8; 8] = *b"athsnap\x01";
const SNAPSHOT_HEADER_BYTES: usize = 24;

/// Log, disk and compute pool that a state machine uses, and the barrier of its snapshots.
pub(crate) struct StateMachineDeps {
    pub(crate) log: Log,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) compute: ComputePool,
    pub(crate) kept: Arc<SnapshotBarrier>,
}

/// State machine with its snapshots. Cheap to clone.
pub(crate) struct StateMachineHost<S> {
    shared: Arc<StateMachineShared<S>>,
}

struct StateMachineShared<S> {
    group: u32,
    log: Log,
    disk: Arc<dyn Disk>,
    compute: ComputePool,
    kept: Arc<SnapshotBarrier>,
    state: RwLock<AppliedState<S>>,
    arrivals: Arc<SnapshotFileReceiver>,
    /// Number of finished snapshot builds for raft, including failed ones.
    built: watch::Sender<u64>,
}

struct AppliedState<S> {
    machine: S,
    applied: Option<RaftLogId>,
    /// Memberships at and after the last snapshot, oldest first.
    memberships: VecDeque<RaftMembership>,
    snapshot: Option<RaftSnapshotMeta>,
    /// Prepared snapshot that raft has not received yet.
    ready: Option<(RaftSnapshotMeta, Bytes)>,
    /// Index up to which the state was lost, because the snapshot was damaged at this start.
    forgot: Option<u64>,
    /// Number in the next file name, so that no two writers use the same file.
    files: u64,
}

impl<S> Clone for StateMachineHost<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: StateMachine> StateMachineHost<S> {
    /// Returns the voters of a group from its newest intact snapshot.
    pub(crate) fn snapshot_voters(disk: &dyn Disk, group: u32) -> Result<BTreeSet<u64>, DiskError> {
        for (_, _, name) in list_snapshot_files(disk, group)? {
            if let Some((meta, _)) = open(&disk.read(&name)?.into()) {
                return Ok(meta.last_membership.membership().voter_ids().collect());
            }
        }
        Ok(BTreeSet::new())
    }

    /// Restores the newest intact snapshot. If the log lacks the entries of a damaged one, only a single-node
    /// group (`alone`) continues, from the start of its log. Members of a larger group get the data from
    /// others.
    pub(crate) fn open(
        deps: StateMachineDeps,
        group: u32,
        alone: Option<u64>,
        machine: S,
    ) -> Result<Self, GroupOpenError> {
        let StateMachineDeps { log, disk, compute, kept } = deps;
        let state = AppliedState {
            machine,
            applied: None,
            memberships: VecDeque::new(),
            snapshot: None,
            ready: None,
            forgot: None,
            files: 0,
        };
        let built = watch::Sender::new(0);
        let arrivals = Arc::new(SnapshotFileReceiver::open(Arc::clone(&disk), group)?);
        let shared = StateMachineShared {
            group,
            log,
            disk,
            compute,
            kept,
            state: RwLock::new(state),
            arrivals,
            built,
        };
        shared.load_newest_snapshot(alone.is_some())?;
        shared.skip_lost_snapshot(alone)?;
        Ok(Self { shared: Arc::new(shared) })
    }

    pub(crate) fn with_state_machine<R>(&self, look: impl FnOnce(&S) -> R) -> R {
        look(&self.shared.state.read().machine)
    }

    pub(crate) fn applied_index(&self) -> Option<u64> {
        self.shared.state.read().applied.map(|id| id.index)
    }

    #[cfg(test)]
    pub(crate) fn snapshot_index(&self) -> Option<u64> {
        self.shared.state.read().snapshot.as_ref()?.last_log_id.map(|id| id.index)
    }

    pub(crate) fn lost_snapshot_index(&self) -> Option<u64> {
        self.shared.state.read().forgot
    }

    /// Takes a snapshot if there are new entries to include. Returns the index of the newest snapshot.
    pub(crate) async fn prepare_snapshot(&self) -> Result<Option<u64>, RaftStorageError> {
        self.run(CpuActivity::Snapshot, StateMachineShared::prepare_snapshot).await
    }

    /// Returns the receiver of snapshot files from other members.
    pub(crate) fn file_receiver(&self) -> Arc<SnapshotFileReceiver> {
        Arc::clone(&self.shared.arrivals)
    }

    pub(crate) fn subscribe_built(&self) -> watch::Receiver<u64> {
        self.shared.built.subscribe()
    }

    /// Runs a job on the compute pool, because applying and snapshots have no time limit.
    async fn run<R: Send + 'static>(
        &self,
        activity: CpuActivity,
        job: impl FnOnce(&StateMachineShared<S>) -> Result<R, RaftStorageError> + Send + 'static,
    ) -> Result<R, RaftStorageError> {
        let shared = Arc::clone(&self.shared);
        let done = self.shared.compute.run_as(activity, move || job(&shared)).await;
        done.unwrap_or_else(|error| Err(StorageIOError::write_state_machine(&error).into()))
    }
}

impl<S> StateMachineShared<S> {
    fn list_snapshot_files(&self) -> Result<Vec<(u64, u64, String)>, DiskError> {
        list_snapshot_files(&*self.disk, self.group)
    }
}

fn file_prefix(group: u32) -> String {
    format!("group-{group}-")
}

/// Lists the snapshot files of a group, newest first.
fn list_snapshot_files(disk: &dyn Disk, group: u32) -> Result<Vec<(u64, u64, String)>, DiskError> {
    let prefix = file_prefix(group);
    let names = disk.list()?.into_iter().filter_map(|name| {
        let (index, file) = name.strip_prefix(&prefix)?.strip_suffix(".snapshot")?.split_once('-')?;
        Some((index.parse().ok()?, file.parse().ok()?, name))
    });
    let mut files: Vec<(u64, u64, String)> = names.collect();
    files.sort_unstable();
    files.reverse();
    Ok(files)
}

impl<S: StateMachine> StateMachineShared<S> {
    fn load_newest_snapshot(&self, alone: bool) -> Result<(), GroupOpenError> {
        let mut state = self.state.write();
        for (index, file, name) in self.list_snapshot_files()? {
            state.files = state.files.max(file + 1);
            if state.snapshot.is_some() {
                // An older snapshot, which a crash kept from being removed.
                self.disk.remove(&name)?;
                continue;
            }
            let Some((meta, data)) = open(&self.disk.read(&name)?.into()) else {
                tracing::error!(name, "snapshot is damaged");
                continue;
            };
            let restored = RestoreContext { index, bytes: &data, alone, arrive: &mut || Ok(()) };
            match state.machine.restore(restored) {
                Ok(()) => {}
                Err(reason) if alone => {
                    tracing::error!(name, reason, "state machine rejected a snapshot");
                    state.machine.reset_to(0);
                    continue;
                }
                Err(reason) => return Err(GroupOpenError::Snapshot { name, reason }),
            }
            state.applied = meta.last_log_id;
            state.memberships = [meta.last_membership.clone()].into();
            state.snapshot = Some(meta);
            self.kept.advance_to(index);
        }
        Ok(())
    }

    /// Resets a machine without a snapshot to the start of its log. The log does not hold the earlier entries
    /// any more. So a snapshot of the current machine replaces the lost one before raft reads it.
    fn skip_lost_snapshot(&self, alone: Option<u64>) -> Result<(), GroupOpenError> {
        let group = self.group;
        let Some((purged, term)) = self.log.group_state(group).purged else { return Ok(()) };
        let found = self.state.read().applied.map(|id| id.index);
        if found.is_some_and(|found| found >= purged) {
            return Ok(());
        }
        let Some(node) = alone else { return Err(GroupOpenError::NoSnapshot { group, purged, found }) };
        tracing::error!(
            group,
            purged,
            ?found,
            "snapshot of the group is missing, continuing without the purged entries"
        );
        for (_, _, name) in self.list_snapshot_files()? {
            self.quarantine_file(&name)?;
        }
        let mut state = self.state.write();
        state.machine.reset_to(purged);
        let begun = log_id(term, purged);
        (state.applied, state.snapshot, state.forgot) = (Some(begun), None, Some(purged));
        state.memberships = [RaftMembership::new(Some(begun), codec::members([node].into()))].into();
        drop(state);
        let fail = |error: RaftStorageError| GroupOpenError::Raft { cause: error_chain(&error) };
        self.prepare_snapshot().map_err(fail)?;
        self.state.write().ready = None;
        Ok(())
    }

    /// Keeps the last damaged snapshot of the group under another name, for inspection.
    fn quarantine_file(&self, name: &str) -> Result<(), DiskError> {
        let aside = format!("group-{}.damaged", self.group);
        self.disk.rename(name, &aside)?;
        self.disk.sync_dir()
    }

    fn apply(&self, entries: Vec<RaftEntry>) -> Result<Vec<ProposalResult>, RaftStorageError> {
        let mut state = self.state.write();
        let mut answers = Vec::with_capacity(entries.len());
        for entry in entries {
            answers.push(match entry.payload {
                EntryPayload::Normal(proposal) => {
                    let answer = state.machine.apply(entry.log_id.index, &proposal.0);
                    if let Some(reason) = state.machine.apply_failure() {
                        let group = self.group;
                        let index = entry.log_id.index;
                        tracing::error!(group, index, reason, "state machine failed, stopping member");
                        let reason = openraft::AnyError::error(reason);
                        return Err(StorageIOError::apply(entry.log_id, reason).into());
                    }
                    ProposalResult::from_value(answer)
                }
                EntryPayload::Membership(membership) => {
                    state.memberships.push_back(RaftMembership::new(Some(entry.log_id), membership));
                    ProposalResult::empty()
                }
                EntryPayload::Blank => ProposalResult::empty(),
            });
            state.applied = Some(entry.log_id);
        }
        Ok(answers)
    }

    /// Requests a snapshot from the machine and stores it, unless the stored one is as new. Returns the index
    /// of the newest snapshot, if any.
    fn prepare_snapshot(&self) -> Result<Option<u64>, RaftStorageError> {
        let (meta, snapshot) = {
            let state = self.state.read();
            let snapshot = state.machine.snapshot();
            let index = snapshot.index;
            let known = state.snapshot.as_ref().and_then(|meta| meta.last_log_id);
            let Some(applied) =
                state.applied.filter(|id| known.is_none_or(|known| known.index < index.min(id.index)))
            else {
                return Ok(known.map(|id| id.index));
            };
            let term = match index.cmp(&applied.index) {
                Ordering::Less => self.log.term(self.group, index),
                Ordering::Equal => Some(applied.leader_id.term),
                Ordering::Greater => None,
            };
            // A machine without a possible snapshot returns index 0, or an index before its log.
            let Some(term) = term else { return Ok(known.map(|id| id.index)) };
            let before =
                |membership: &&RaftMembership| membership.log_id().is_none_or(|id| id.index <= index);
            let membership = state.memberships.iter().rfind(before);
            let meta = RaftSnapshotMeta {
                last_log_id: Some(log_id(term, index)),
                last_membership: membership.cloned().unwrap_or_default(),
                snapshot_id: format!("{}-{index}-{}", self.group, state.files),
            };
            (meta, snapshot)
        };
        let written = (snapshot.write)().map_err(|reason| {
            StorageIOError::write_snapshot(Some(meta.signature()), openraft::AnyError::error(reason))
        });
        let data = Bytes::from(written?);
        self.store_snapshot(&meta, &data)?;
        (snapshot.kept)();
        self.state.write().ready = Some((meta.clone(), data));
        Ok(meta.last_log_id.map(|id| id.index))
    }

    /// Returns the prepared snapshot, or the newest stored one.
    fn take_prepared_snapshot(&self) -> Result<RaftSnapshot, RaftStorageError> {
        if let Some((meta, data)) = self.state.write().ready.take() {
            return Ok(RaftSnapshot { meta, snapshot: Box::new(data) });
        }
        let meta = self.state.read().snapshot.clone();
        let text = "no snapshot was made yet";
        let meta = meta.ok_or_else(|| StorageIOError::read_state_machine(openraft::AnyError::error(text)))?;
        self.read_stored_snapshot(&meta)
    }

    /// Writes a snapshot durably, then removes earlier ones.
    fn store_snapshot(&self, meta: &RaftSnapshotMeta, data: &Bytes) -> Result<(), RaftStorageError> {
        let index = meta.last_log_id.map_or(0, |id| id.index);
        let file = {
            let mut state = self.state.write();
            state.files += 1;
            state.files - 1
        };
        let name = format!("{}{index}-{file}.snapshot", file_prefix(self.group));
        let signature = Some(meta.signature());
        let fail = |error: &(dyn std::error::Error + 'static)| {
            StorageIOError::write_snapshot(signature.clone(), openraft::AnyError::error(error_chain(error)))
        };
        self.disk.write(&name, &encode_snapshot_file(meta, data)).map_err(|error| fail(&error))?;
        self.kept.advance_to(index);
        let mut state = self.state.write();
        if state.snapshot.as_ref().is_some_and(|known| known.last_log_id > meta.last_log_id) {
            // A newer snapshot was installed meanwhile.
            return Ok(());
        }
        state.snapshot = Some(meta.clone());
        while state.memberships.get(1).is_some_and(|next| next.log_id().is_none_or(|id| id.index <= index)) {
            state.memberships.pop_front();
        }
        drop(state);
        let files = self.list_snapshot_files().map_err(|error| fail(&error))?;
        // A newer snapshot may have been written meanwhile.
        for (.., old) in files.into_iter().filter(|(at, number, _)| (*at, *number) < (index, file)) {
            match self.disk.remove(&old) {
                // A concurrent writer may have removed the file as well.
                Ok(()) | Err(DiskError::NotFound { .. }) => {}
                Err(error) => return Err(fail(&error).into()),
            }
        }
        Ok(())
    }

    fn read_stored_snapshot(&self, meta: &RaftSnapshotMeta) -> Result<RaftSnapshot, RaftStorageError> {
        let fail = |text: String| {
            StorageIOError::read_snapshot(Some(meta.signature()), openraft::AnyError::error(text))
        };
        for (_, _, name) in self.list_snapshot_files().map_err(|error| fail(error_chain(&error)))? {
            let bytes = self.disk.read(&name).map_err(|error| fail(error_chain(&error)))?;
            if let Some((found, data)) = open(&bytes.into())
                && found.last_log_id == meta.last_log_id
            {
                return Ok(RaftSnapshot { meta: found, snapshot: Box::new(data) });
            }
        }
        Err(fail("the snapshot file is missing or damaged".to_owned()).into())
    }

    /// Returns the newest stored snapshot. Retries if a newer one replaces it during the read.
    fn newest_snapshot(&self) -> Result<Option<RaftSnapshot>, RaftStorageError> {
        loop {
            let Some(meta) = self.state.read().snapshot.clone() else { return Ok(None) };
            match self.read_stored_snapshot(&meta) {
                Err(_) if self.state.read().snapshot.as_ref() != Some(&meta) => {}
                stored => return stored.map(Some),
            }
        }
    }

    fn install_received(&self, meta: &RaftSnapshotMeta, data: &Bytes) -> Result<(), RaftStorageError> {
        let fail = |reason: String| {
            StorageIOError::read_snapshot(Some(meta.signature()), openraft::AnyError::error(reason))
        };
        let index = meta.last_log_id.map_or(0, |id| id.index);
        // Raft continues from the snapshot in any case, so it is stored only if the machine accepts it.
        let mut state = self.state.write();
        let files = state.machine.snapshot_files(data).map_err(fail)?;
        let mut arrive = || self.arrivals.install_files(&files);
        let restored = RestoreContext { index, bytes: data, alone: false, arrive: &mut arrive };
        state.machine.restore(restored).map_err(fail)?;
        state.applied = meta.last_log_id;
        state.memberships = [meta.last_membership.clone()].into();
        drop(state);
        self.store_snapshot(meta, data)?;
        self.arrivals.remove_partial_files().map_err(|error| fail(error_chain(&error)).into())
    }
}

/// Writes the initial snapshot of a group with one voter.
pub(super) fn write_initial_snapshot(
    disk: &dyn Disk,
    group: u32,
    node: u64,
    index: u64,
    data: &[u8],
) -> Result<(), DiskError> {
    let begun = Some(log_id(FIRST_TERM, index));
    let meta = RaftSnapshotMeta {
        last_log_id: begun,
        last_membership: RaftMembership::new(begun, codec::members([node].into())),
        snapshot_id: format!("{group}-{index}-0"),
    };
    disk.write(&format!("{}{index}-0.snapshot", file_prefix(group)), &encode_snapshot_file(&meta, data))
}

/// Encodes the file of a snapshot: magic, checksum of all bytes after it, length of the metadata, metadata,
/// data.
fn encode_snapshot_file(meta: &RaftSnapshotMeta, data: &[u8]) -> Vec<u8> {
    let mut described = Vec::new();
    codec::put_meta(&mut described, meta);
    let mut bytes =
        [&SNAPSHOT_MAGIC[..], &[0; 8], &(described.len() as u64).to_le_bytes(), &described, data].concat();
    let sum = xxh3_64(&bytes[16..]);
    bytes[8..16].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn open(bytes: &Bytes) -> Option<(RaftSnapshotMeta, Bytes)> {
    let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    if bytes.get(..8)? != SNAPSHOT_MAGIC || word(8)? != xxh3_64(bytes.get(16..)?) {
        return None;
    }
    let end = SNAPSHOT_HEADER_BYTES.checked_add(usize::try_from(word(16)?).ok()?)?;
    Some((codec::meta(bytes.get(SNAPSHOT_HEADER_BYTES..end)?)?, bytes.slice(end..)))
}

#[async_trait]
impl<S: StateMachine> ErasedStateMachine for StateMachineHost<S> {
    fn applied_state(&self) -> (Option<RaftLogId>, RaftMembership) {
        let state = self.shared.state.read();
        (state.applied, state.memberships.back().cloned().unwrap_or_default())
    }

    async fn apply(&self, entries: Vec<RaftEntry>) -> Result<Vec<ProposalResult>, RaftStorageError> {
        let applied = self.run(CpuActivity::Apply, move |shared| shared.apply(entries)).await;
        // Raft ends here, and with it any snapshot installation.
        applied.inspect_err(|_| self.shared.kept.fail())
    }

    async fn build_snapshot(&self) -> Result<RaftSnapshot, RaftStorageError> {
        let built = self.run(CpuActivity::Snapshot, StateMachineShared::take_prepared_snapshot).await;
        self.shared.built.send_modify(|count| *count += 1);
        built
    }

    async fn install_snapshot(&self, meta: &RaftSnapshotMeta, data: Bytes) -> Result<(), RaftStorageError> {
        let meta = meta.clone();
        let installed =
            self.run(CpuActivity::Snapshot, move |shared| shared.install_received(&meta, &data)).await;
        installed.inspect_err(|_| self.shared.kept.fail())
    }

    async fn current_snapshot(&self) -> Result<Option<RaftSnapshot>, RaftStorageError> {
        let current = self.run(CpuActivity::Snapshot, StateMachineShared::newest_snapshot).await;
        current.inspect_err(|_| self.shared.kept.fail())
    }
}
