//! State machine of a shard's log: entries add ids to the dedup window, and start and end generations.
//!
//! All state follows from the log, and for batches from their headers alone. So it is equal on each member,
//! whichever leader made them and whatever else a process has in memory. Rows are no part of it. The leader
//! publishes rows of its own batches when they are applied, and replays those of earlier ones when its term
//! starts; see [`crate::write::leader_term`].

mod snapshot_format;

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::ShardId;
use athanor_chassis::Clock;
use athanor_consensus::StateMachine;
use athanor_consensus::replicated::{RestoreContext, StateSnapshot};
use athanor_profile::encoding::codec::{CodecError, CodecReader};
use athanor_profile::encoding::hash::ContentHash;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::log::entry::{BatchHeader as EntryHead, InheritEntry, InheritSource, ShardLogEntry, UploadHeader};
use crate::log::generation::LogGeneration;
use crate::log::shard_log_status::ShardLogStatus;
use crate::window::DedupWindow;
use crate::write::leader_term::{LeaderTerm, PendingTerm};
use snapshot_format::{InheritedId, ShardSnapshot};

/// Replicated state of one shard.
#[derive(Debug)]
pub struct ShardStateMachine {
    window: Arc<Mutex<DedupWindow>>,
    /// Log index up to which registered blocks contain all rows, according to the log.
    flushed: u64,
    /// Status of the shard as a whole after the last applied entry.
    status: ShardLogStatus,
    /// Status at each index at which a flush may end: snapshots contain that of the flushed index.
    marks: BTreeMap<u64, ShardLogStatus>,
    /// IDs that were inherited from reconciling shards. If such a shard retries, it holds them as before
    /// [INV-13].
    inherited: Vec<InheritedId>,
    /// Records after the flushed index that another shard holds: they do not belong to this shard.
    foreign_ids: Arc<HashSet<ContentHash>>,
    /// Generation that the next batch may build on.
    open: Option<OpenGeneration>,
    /// Generations that the log still contains, oldest first.
    generations: Vec<LogGeneration>,
    /// Duplicates in each batch after the flushed index: places of their uploads, and places in these.
    repeats: BTreeMap<u64, Vec<(u32, u32)>>,
    /// Entries after the flushed index with values of cumulative series.
    delta_state_entries: Vec<u64>,
    /// Unflushed entries that cannot be read, mostly because they build on a lost one.
    unreadable: Vec<u64>,
    /// Index up to which ids were lost with a snapshot, if the loss is not reported yet.
    lost_ids_index: Mutex<Option<u64>>,
    /// Leader term that this process has proposed.
    claim: Arc<PendingTerm>,
    /// Notified when a flush marker is applied, so that the log may be purged.
    flush_applied: Arc<Notify>,
    clock: Clock,
    /// Arrival of the last entry that advances the log time, by this node's monotonic clock. Not replicated.
    stored: Option<Duration>,
    /// Leader term of this node, if it leads. No verdict depends on it.
    reign: Option<Arc<LeaderTerm>>,
}

/// Open generation: batches of which each builds on those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OpenGeneration {
    generation: u64,
    /// Position of its next batch.
    next_sequence: u64,
}

/// Result of applying an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardApplyResult {
    /// Outcome of each upload of a batch.
    Batch(Vec<UploadOutcome>),
    /// The entry was applied and has no further result.
    Done,
    /// A table's fence was accepted, or rejected, since the shard already has a profile of this time or a
    /// later one.
    Fence {
        /// Timestamp of the latest profile, if the fence is rejected.
        refused: Option<i64>,
    },
    /// For each id, whether this shard has a record of its own.
    Inherited(Vec<bool>),
    /// The log is sealed: no batch follows.
    Sealed {
        /// Log index of the seal.
        at: u64,
        /// Timestamp of the latest accepted profile; none if there is none.
        latest: Option<i64>,
    },
    /// The shard does not accept the entry any more, or not yet.
    Refused(&'static str),
    /// The entry cannot be read.
    Unreadable(CodecError),
}

/// Outcome of an upload in a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UploadOutcome {
    /// For each of its records, whether it is new.
    Records(Vec<bool>),
    /// The upload was placed by a table that does not hold for its time any more. Nothing of it was stored
    /// [INV-05].
    Stale {
        /// Version of the newest table that holds.
        newest: u64,
    },
}

impl ShardStateMachine {
    /// Creates the state of an empty shard.
    pub fn new(
        claim: Arc<PendingTerm>,
        flush_applied: Arc<Notify>,
        clock: Clock,
        window: DedupWindow,
    ) -> Self {
        Self {
            window: Arc::new(Mutex::new(window)),
            flushed: 0,
            status: ShardLogStatus::default(),
            marks: BTreeMap::new(),
            inherited: Vec::new(),
            foreign_ids: Arc::default(),
            open: None,
            generations: Vec::new(),
            repeats: BTreeMap::new(),
            delta_state_entries: Vec::new(),
            unreadable: Vec::new(),
            lost_ids_index: Mutex::default(),
            claim,
            flush_applied,
            clock,
            stored: None,
            reign: None,
        }
    }
    /// Returns the log index up to which registered blocks contain all rows, according to the log.
    pub fn flushed_index(&self) -> u64 {
        self.flushed
    }
    /// Returns the status of the shard as a whole.
    pub fn log_status(&self) -> &ShardLogStatus {
        &self.status
    }
    /// Returns the reconciling shards from which some of the ids were inherited, by position.
    pub fn inherited_owners(&self, ids: &[ContentHash]) -> Vec<(u32, ShardId)> {
        let live = self.inherited.iter().filter(|known| known.released.is_none());
        let position = |known: &InheritedId| Some((ids.binary_search(&known.id).ok()? as u32, known.shard));
        live.filter_map(position).collect()
    }
    /// Returns the records that another shard holds.
    pub fn foreign_ids(&self) -> Arc<HashSet<ContentHash>> {
        Arc::clone(&self.foreign_ids)
    }
    /// Returns the arrival of the last entry that advances the log time, by this node's monotonic clock; none
    /// since the start.
    pub fn last_stored_at(&self) -> Option<Duration> {
        self.stored
    }
    /// Returns whether a leader term is the last one that has started.
    pub(crate) fn is_current_term(&self, reign: &Arc<LeaderTerm>) -> bool {
        self.reign.as_ref().is_some_and(|last| Arc::ptr_eq(last, reign))
    }
    /// Returns the index up to which ids were lost with a snapshot, or with files that it names.
    pub fn lost_ids_index(&self) -> Option<u64> {
        let damaged = self.window.lock().damage_count() > 0;
        self.lost_ids_index.lock().or(damaged.then_some(self.flushed))
    }
    /// Clears the loss of ids after it was reported: later snapshots omit it.
    pub fn clear_lost_ids(&self) {
        self.window.lock().clear_damage_count();
        self.lost_ids_index.lock().take();
    }
    /// Returns the dedup window, for lookups while entries are applied. No thread takes another lock while it
    /// holds this one.
    pub fn window(&self) -> Arc<Mutex<DedupWindow>> {
        Arc::clone(&self.window)
    }
    /// Counts entries after `range.start` and up to `range.end` that cannot be read.
    pub fn unreadable(&self, range: Range<u64>) -> u64 {
        self.unreadable.iter().filter(|&&index| index > range.start && index <= range.end).count() as u64
    }
    /// Returns the unflushed generations that begin before an entry, according to the log.
    pub fn generations(&self, before: u64) -> Vec<LogGeneration> {
        self.generations.iter().filter(|generation| generation.first < before).copied().collect()
    }
    /// Returns the entries with values of cumulative series, in their order.
    pub fn delta_state_indexes(&self) -> Vec<u64> {
        self.delta_state_entries.clone()
    }
    /// Returns the readable batches in a range, each with the places of its duplicates.
    pub fn duplicate_records(&self, range: Range<u64>) -> BTreeMap<u64, Vec<(u32, u32)>> {
        self.repeats.range(range).map(|(&index, repeats)| (index, repeats.clone())).collect()
    }

    /// Applies a batch, with the same result on each member.
    fn batch(&mut self, index: u64, head: &EntryHead) -> Result<ShardApplyResult, CodecError> {
        if self.status.sealed.is_some() {
            return Ok(ShardApplyResult::Refused("the shard is sealed; another shard serves its slot"));
        }
        if head.is_generation_start() {
            self.close(index - 1);
            let generation = LogGeneration { token: head.token, first: index, last: index, closed: false };
            self.generations.push(generation);
        }
        let wanted =
            self.open.filter(|open| open.generation == head.generation).map(|open| open.next_sequence);
        let sequence = match wanted {
            _ if head.is_generation_start() => 0,
            Some(wanted) if head.sequence == wanted => wanted,
            _ => return Err(CodecError { at: 0, why: "preceding batch of the generation is missing" }),
        };
        self.open = Some(OpenGeneration { generation: head.generation, next_sequence: sequence + 1 });
        if let Some(generation) = self.generations.last_mut() {
            generation.last = index;
        }
        self.advance(index, head.stamp, head.window);
        let verdicts: Vec<UploadOutcome> =
            head.uploads.iter().map(|upload| self.upload(index, upload)).collect();
        let new: Vec<Vec<bool>> = verdicts
            .iter()
            .zip(&head.uploads)
            .map(|(verdict, upload)| verdict.is_new(upload.ids.len()))
            .collect();
        self.repeats.insert(index, repeated(&new));
        if let Some(reign) = &self.reign {
            reign.publish_batch(index, head.token, &new);
        }
        self.window.lock().mark_applied(index);
        Ok(ShardApplyResult::Batch(verdicts))
    }

    fn upload(&mut self, index: u64, upload: &UploadHeader) -> UploadOutcome {
        if let Some(newest) = self.status.find_newer_table(upload) {
            return UploadOutcome::Stale { newest };
        }
        self.status.record_upload(upload);
        UploadOutcome::Records(self.window.lock().insert_all(index, &upload.ids))
    }

    /// Advances the log time to the stamp of an entry.
    fn advance(&mut self, index: u64, stamp: u64, span: u64) {
        self.window.lock().advance(index, stamp, span, !self.status.holds.is_empty());
        self.stored = Some(self.clock.monotonic());
    }

    /// Takes over the ids of another shard.
    fn inherit(&mut self, index: u64, inherit: &InheritEntry) -> ShardApplyResult {
        let InheritEntry { source, shard, first, last, stamp, retention, ids, inherited, held_for } = inherit;
        if self.status.sealed.is_some() {
            return ShardApplyResult::Refused("the shard is sealed; another shard serves its slot");
        }
        if *source == InheritSource::Reconciliation {
            self.status.holds.insert(*shard);
            self.advance(index, *stamp, *retention);
            let held = ids.iter().map(|&id| self.reconcile_id(index, *shard, id)).collect();
            self.window.lock().mark_applied(index);
            return ShardApplyResult::Inherited(held);
        }
        if self.status.latest.is_some() {
            return ShardApplyResult::Refused("the shard has accepted profiles and inherits no more ids");
        }
        if *first {
            // INV-13: if the other shard is lost meanwhile, this one would hold ids of records that only that
            // one has.
            self.window.lock().forget();
            (self.status.inherited, self.inherited) = (None, Vec::new());
            self.status.holds.clear();
        }
        if *source == InheritSource::DedupWindow {
            self.status.holds.insert(*shard);
        }
        self.status.holds.extend(held_for);
        for (position, shard) in inherited {
            if let Some(&id) = ids.get(*position as usize) {
                self.inherited.push(InheritedId { index, shard: *shard, id, released: None });
            }
        }
        self.advance(index, *stamp, *retention);
        let new = self.window.lock().insert_all(index, ids);
        self.window.lock().mark_applied(index);
        if *last {
            self.status.inherited = Some((*source, *shard));
        }
        ShardApplyResult::Inherited(new.into_iter().map(|new| !new).collect())
    }

    /// Inherits an id from a reconciling shard, unless this shard has a record of it. Returns whether it has
    /// one. A retry after a lost response gets the same result.
    fn reconcile_id(&mut self, index: u64, shard: ShardId, id: ContentHash) -> bool {
        if self.window.lock().insert(index, id) {
            self.inherited.push(InheritedId { index, shard, id, released: None });
            return false;
        }
        !self.inherited.iter().any(|known| (known.shard, known.id, known.released) == (shard, id, None))
    }

    /// Closes the open generation at an index.
    fn close(&mut self, last: u64) {
        self.open = None;
        let Some(generation) = self.generations.last_mut().filter(|generation| !generation.closed) else {
            return;
        };
        (generation.last, generation.closed) = (last, true);
        self.marks.insert(last, self.status.clone());
        if let Some(reign) = &self.reign {
            reign.close(*generation);
        }
    }

    fn take(&mut self, index: u64, entry: &[u8]) -> Result<ShardApplyResult, CodecError> {
        if let Some(head) = ShardLogEntry::decode_batch_header(entry)? {
            return self.batch(index, &head);
        }
        match ShardLogEntry::decode(entry)? {
            ShardLogEntry::TermStart { token, stamp, .. } => {
                self.close(index - 1);
                self.advance(index, stamp, 0);
                self.reign = self.claim.take(token);
                if let Some(reign) = &self.reign {
                    reign.mark_started(index, self.flushed, self.window.lock().stamp());
                }
            }
            ShardLogEntry::GenerationEnd { generation }
                if self.open.is_some_and(|open| open.generation == generation) =>
            {
                self.close(index);
            }
            ShardLogEntry::FlushMarker { to, .. } if to >= index => {
                return Err(CodecError { at: 0, why: "a flush marker covers later entries" });
            }
            ShardLogEntry::FlushMarker { to, stamp, .. } => {
                self.flushed = self.flushed.max(to);
                self.window.lock().set_flushed(index, self.flushed, stamp);
                self.unreadable.retain(|&index| index > self.flushed);
                self.delta_state_entries.retain(|&index| index > self.flushed);
                self.generations.retain(|generation| generation.last > self.flushed);
                self.repeats = self.repeats.split_off(&(self.flushed + 1));
                self.marks = self.marks.split_off(&self.flushed);
                self.inherited.retain(|known| known.released.is_none_or(|at| at > self.flushed));
                self.flush_applied.notify_one();
            }
            ShardLogEntry::Fence { version, from, revision } => {
                return Ok(ShardApplyResult::Fence {
                    refused: self.status.accept_fence(version, from, revision),
                });
            }
            ShardLogEntry::FenceVoided { version } => self.status.void_fence(version),
            ShardLogEntry::Seal => return Ok(self.seal(index)),
            ShardLogEntry::InheritIds(inherit) => return Ok(self.inherit(index, &inherit)),
            ShardLogEntry::ForeignIds(ids) => Arc::make_mut(&mut self.foreign_ids).extend(ids),
            ShardLogEntry::HoldReleased { shard } => {
                self.status.holds.remove(&shard);
                self.inherited.iter_mut().filter(|known| known.shard == shard).for_each(|known| {
                    known.released.get_or_insert(index);
                });
            }
            ShardLogEntry::DeltaState(_) => self.delta_state_entries.push(index),
            ShardLogEntry::GenerationEnd { .. } | ShardLogEntry::Batch(_) => {}
        }
        Ok(ShardApplyResult::Done)
    }

    /// Seals the log. A second seal changes nothing.
    fn seal(&mut self, index: u64) -> ShardApplyResult {
        let at = *self.status.sealed.get_or_insert(index);
        if at == index {
            self.close(index);
            self.marks.insert(index, self.status.clone());
        }
        ShardApplyResult::Sealed { at, latest: self.status.latest }
    }

    /// Resets the state to that of a log that begins after an index.
    fn reset(&mut self, index: u64) {
        (self.flushed, self.open, self.reign) = (index, None, None);
        (self.generations, self.repeats, self.unreadable) = (Vec::new(), BTreeMap::new(), Vec::new());
        (self.status, self.marks) = (ShardLogStatus::default(), BTreeMap::new());
        (self.inherited, self.foreign_ids, self.delta_state_entries) =
            (Vec::new(), Arc::default(), Vec::new());
    }
}

impl UploadOutcome {
    /// Returns for each of the records whether it is new.
    fn is_new(&self, records: usize) -> Vec<bool> {
        match self {
            Self::Records(new) => new.clone(),
            Self::Stale { .. } => vec![false; records],
        }
    }
}

/// Returns the places of records that are not new.
fn repeated(verdicts: &[Vec<bool>]) -> Vec<(u32, u32)> {
    let uploads = verdicts.iter().zip(0..);
    let places = uploads.flat_map(|(records, upload)| {
        records.iter().zip(0..).filter(|(new, _)| !**new).map(move |(_, record)| (upload, record))
    });
    places.collect()
}

impl StateMachine for ShardStateMachine {
    type Answer = ShardApplyResult;

    fn apply(&mut self, index: u64, entry: &[u8]) -> ShardApplyResult {
        self.take(index, entry).unwrap_or_else(|error| {
            tracing::error!(index, %error, "failed to decode log entry, its profiles are lost");
            self.unreadable.push(index);
            ShardApplyResult::Unreadable(error)
        })
    }

    /// Captures a snapshot, labeled with the flushed index. Later entries are in no block, so the log must
    /// keep them [INV-09]. At a flushed index no generation is open.
    fn snapshot(&self) -> StateSnapshot {
        let captured = DedupWindow::capture(&self.window, self.flushed);
        let lost_ids_index = self.lost_ids_index().unwrap_or_default();
        let status = self.marks.get(&self.flushed).cloned().unwrap_or_default();
        let inherited: Vec<InheritedId> =
            self.inherited.iter().filter(|known| known.index <= self.flushed).copied().collect();
        let snapshot = ShardSnapshot { lost_ids_index, status, inherited };
        let write = move || Ok(snapshot.write(&captured.write().map_err(|error| error.to_string())?));
        let window = Arc::clone(&self.window);
        StateSnapshot {
            index: self.flushed,
            write: Box::new(write),
            kept: Box::new(move || DedupWindow::remove_unused_files(&window)),
        }
    }

    fn snapshot_files(&self, bytes: &[u8]) -> Result<Vec<String>, String> {
        let mut unpacker = CodecReader::new(bytes);
        let files = snapshot_format::read_version(&mut unpacker)
            .and_then(|()| self.window.lock().files(&mut unpacker));
        files.map_err(|error| error.to_string())
    }

    fn restore(&mut self, restored: RestoreContext<'_>) -> Result<(), String> {
        let RestoreContext { index, bytes, alone, arrive } = restored;
        let shelf = self.window.lock().run_files();
        // Arrived files are not removed before the window names them.
        let _cleaning = shelf.lock_removal();
        arrive()?;
        let mut unpacker = CodecReader::new(bytes);
        let read = |unpacker: &mut CodecReader<'_>| -> Result<ShardSnapshot, CodecError> {
            snapshot_format::read_version(unpacker)?;
            self.window.lock().restore(index, alone, unpacker)?;
            ShardSnapshot::read(unpacker)
        };
        let ShardSnapshot { lost_ids_index, status, inherited } =
            read(&mut unpacker).map_err(|error| error.to_string())?;
        *self.lost_ids_index.lock() = (lost_ids_index > 0).then_some(lost_ids_index);
        self.reset(index);
        self.marks.insert(index, status.clone());
        (self.status, self.inherited) = (status, inherited);
        Ok(())
    }

    fn reset_to(&mut self, index: u64) {
        self.window.lock().forget();
        // If the log begins with its first entry, a replay inserts all ids.
        *self.lost_ids_index.lock() = (index > 0).then_some(index);
        self.reset(index);
    }
}

#[cfg(test)]
mod tests;
