//! Raft log store on the node's log: entries, vote, purge mark and committed index.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use athanor_chassis::ComputePool;
use bytes::Bytes;
use openraft::storage::{LogFlushed, LogState, RaftLogStorage};
use openraft::{EntryPayload, OptionalSend, RaftLogReader, StorageIOError, Vote};
use parking_lot::Mutex;

use super::codec;
use super::snapshot_barrier::SnapshotBarrier;
use super::type_config::{FIRST_TERM, RaftEntry, RaftLogId, RaftStorageError, Types, log_id};
use crate::log::{Log, LogEntry, LogError, LogReadError, LogRecord, error_chain};

/// Limit for the entries of one message to another member, in bytes. A single larger entry is sent alone.
const MAX_APPEND_BYTES: usize = 4 << 20;

/// Limit of entries that are read on the caller's thread if they are in memory. A thread change takes longer
/// than that.
const MAX_INLINE_READS: u64 = 16;

/// Part of the node's log that belongs to one group. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct RaftLogStore {
    log: Log,
    compute: ComputePool,
    group: u32,
    node: u64,
    kept: Arc<SnapshotBarrier>,
    /// Values that were read at the start, or have changed since.
    state: Arc<Mutex<LogStoreState>>,
}

#[derive(Debug)]
struct LogStoreState {
    vote: Option<Vote<u64>>,
    /// Hint about the committed index. It is logged with the next record, never alone.
    committed: Option<RaftLogId>,
    /// Voters of the newest membership that was logged here, reverted or not. If entries are lost, they
    /// decide whether other members have them.
    voters: BTreeSet<u64>,
}

/// Returns the log records of a group that begins with a snapshot at an index, and has one voter.
pub(super) fn initial_records(group: u32, node: u64, index: u64) -> Vec<LogRecord> {
    let begun = log_id(FIRST_TERM, index);
    let data = codec::encode_hard_state(Some(Vote::new(FIRST_TERM, node)), Some(begun), &[node].into());
    vec![LogRecord::Purge { group, index, term: FIRST_TERM }, LogRecord::State { group, data }]
}

impl RaftLogStore {
    pub(crate) fn new(
        log: Log,
        compute: ComputePool,
        group: u32,
        node: u64,
        kept: &Arc<SnapshotBarrier>,
    ) -> Option<Self> {
        let held = log.group_state(group);
        let codec::HardState { mut vote, committed, voters } = codec::decode_hard_state(&held.state)?;
        // The hint may refer to a longer log than the remaining one.
        let last = held.last.map(|(index, term)| log_id(term, index));
        // The vote was lost: a single voter continues after the terms in its log. Other members never get
        // here.
        if let Some((_, term)) = held.last.filter(|(_, term)| vote.unwrap_or_default().leader_id.term < *term)
        {
            vote = Some(Vote::new(term, node));
        }
        let state = Arc::new(Mutex::new(LogStoreState { vote, committed: committed.min(last), voters }));
        Some(Self { log, compute, group, node, kept: Arc::clone(kept), state })
    }

    /// Logs the committed index before a shutdown, so that the next start need not request it.
    pub(crate) async fn persist_committed(&self) -> Result<(), LogError> {
        self.log.append(vec![self.state_record()]).await
    }

    /// Ends the leadership that a restarted member had by its earlier votes. The member does not know the
    /// committed index, so its reads could lack acknowledged entries. Damage may also have removed entries of
    /// that term from its log, while other members hold them [INV-07]. As leader it would assign their
    /// indices to new entries.
    pub(crate) fn step_down(&self) {
        let mut state = self.state.lock();
        if let Some(vote) = &mut state.vote
            && vote.leader_id.voted_for == Some(self.node)
        {
            vote.committed = false;
        }
    }

    /// Returns the voters of this group, as far as they were logged here.
    pub(crate) fn voters(&self) -> BTreeSet<u64> {
        self.state.lock().voters.clone()
    }

    /// Returns the proposal at an index, if the entry is one.
    pub(crate) fn read_proposal(&self, index: u64) -> Result<Option<Bytes>, LogReadError> {
        let found = self.log.read(self.group, index)?;
        let entry = found.and_then(|found| codec::decode_entry(found.term, index, found.data));
        Ok(entry.and_then(|entry| match entry.payload {
            EntryPayload::Normal(proposal) => Some(proposal.0),
            EntryPayload::Blank | EntryPayload::Membership(_) => None,
        }))
    }

    fn state_record(&self) -> LogRecord {
        let state = self.state.lock();
        let data = codec::encode_hard_state(state.vote, state.committed, &state.voters);
        LogRecord::State { group: self.group, data }
    }

    /// Reads entries of a range, up to `bytes` bytes but at least one.
    async fn read_entries(
        &self,
        from: u64,
        to: u64,
        bytes: usize,
    ) -> Result<Vec<RaftEntry>, RaftStorageError> {
        if to.saturating_sub(from) <= MAX_INLINE_READS
            && let Some(found) = self.log.read_in_memory(self.group, from..to)
        {
            return self.decode_entries(from, found.into_iter(), bytes);
        }
        let store = self.clone();
        let read = move || {
            store.decode_entries(from, (from..to).map(|index| store.log.read(store.group, index)), bytes)
        };
        let read = self.compute.run(read).await;
        read.unwrap_or_else(|error| Err(StorageIOError::read_logs(&error).into()))
    }

    /// Decodes log entries that begin at index `from` into raft entries.
    fn decode_entries(
        &self,
        from: u64,
        found: impl Iterator<Item = Result<Option<LogEntry>, LogReadError>>,
        bytes: usize,
    ) -> Result<Vec<RaftEntry>, RaftStorageError> {
        let held = self.log.group_state(self.group);
        let first = if held.purged.is_none() { held.first } else { 0 };
        let mut entries = Vec::new();
        let mut size = 0;
        for (index, found) in (from..).zip(found) {
            let fail = |error: &(dyn std::error::Error + 'static)| {
                StorageIOError::read_log_at_index(index, openraft::AnyError::error(error_chain(error)))
            };
            let entry = match found {
                Ok(Some(found)) => {
                    size += found.data.len();
                    codec::decode_entry(found.term, index, found.data)
                        .ok_or_else(|| fail(&io::Error::other("not a raft entry")))?
                }
                // An entry that is missing before all known ones was lost unnoticed.
                Ok(None) if index < first => codec::placeholder_entry(0, index, self.node),
                Ok(None) => break,
                // Only a single voter gets here, and it reports its results as partial.
                Err(LogReadError::Lost { .. }) => {
                    let term = self.log.term(self.group, index).unwrap_or_default();
                    codec::placeholder_entry(term, index, self.node)
                }
                Err(error) => return Err(fail(&error).into()),
            };
            entries.push(entry);
            if size >= bytes {
                break;
            }
        }
        Ok(entries)
    }
}

fn write_error(error: &LogError) -> RaftStorageError {
    StorageIOError::write_logs(error).into()
}

impl RaftLogReader<Types> for RaftLogStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<RaftEntry>, RaftStorageError> {
        let from = match range.start_bound() {
            Bound::Included(from) => *from,
            Bound::Excluded(from) => from + 1,
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(to) => to + 1,
            Bound::Excluded(to) => *to,
            Bound::Unbounded => u64::MAX,
        };
        let held = self.log.group_state(self.group);
        let first = held.purged.map_or(0, |(index, _)| index + 1);
        self.read_entries(from.max(first), to.min(held.end), usize::MAX).await
    }

    async fn limited_get_log_entries(
        &mut self,
        from: u64,
        to: u64,
    ) -> Result<Vec<RaftEntry>, RaftStorageError> {
        self.read_entries(from, to, MAX_APPEND_BYTES).await
    }
}

impl RaftLogStorage<Types> for RaftLogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, RaftStorageError> {
        let held = self.log.group_state(self.group);
        let of = |mark: Option<(u64, u64)>| mark.map(|(index, term)| log_id(term, index));
        Ok(LogState { last_purged_log_id: of(held.purged), last_log_id: of(held.last) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<u64>) -> Result<(), RaftStorageError> {
        self.state.lock().vote = Some(*vote);
        let saved = self.log.append(vec![self.state_record()]).await;
        saved.map_err(|error| StorageIOError::write_vote(&error).into())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<u64>>, RaftStorageError> {
        Ok(self.state.lock().vote)
    }

    async fn save_committed(&mut self, committed: Option<RaftLogId>) -> Result<(), RaftStorageError> {
        self.state.lock().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<RaftLogId>, RaftStorageError> {
        Ok(self.state.lock().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Types>) -> Result<(), RaftStorageError>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let group = self.group;
        let mut records = Vec::new();
        for entry in entries {
            if let EntryPayload::Membership(membership) = &entry.payload {
                let mut state = self.state.lock();
                state.voters = membership.voter_ids().collect();
            }
            let RaftLogId { index, leader_id } = entry.log_id;
            records.push(LogRecord::Entry {
                group,
                index,
                term: leader_id.term,
                data: codec::encode_payload(&entry),
            });
        }
        records.push(self.state_record());
        let done = |done: Result<(), LogError>| callback.log_io_completed(done.map_err(io::Error::other));
        self.log.submit(records, done).map_err(|error| write_error(&error))
    }

    async fn truncate(&mut self, from: RaftLogId) -> Result<(), RaftStorageError> {
        let records = vec![LogRecord::Truncate { group: self.group, from: from.index }];
        self.log.append(records).await.map_err(|error| write_error(&error))
    }

    async fn purge(&mut self, upto: RaftLogId) -> Result<(), RaftStorageError> {
        let index = upto.index;
        let term = upto.leader_id.term;
        self.kept.wait_until_durable(index).await.map_err(|error| StorageIOError::write_logs(&error))?;
        let records = vec![LogRecord::Purge { group: self.group, index, term }, self.state_record()];
        self.log.append(records).await.map_err(|error| write_error(&error))
    }
}
