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
    cut: u64,
    /// Status of the shard as a whole after the last applied entry.
    standing: ShardLogStatus,
    /// Status at each index at which a flush may end: snapshots contain that of the flushed index.
    marks: BTreeMap<u64, ShardLogStatus>,
    /// IDs that were taken over from settling shards. If such a shard retries, it holds them as before
    /// [INV-13].
    taken: Vec<InheritedId>,
    /// Records after the flushed index that another shard holds: they do not belong to this shard.
    dropped: Arc<HashSet<ContentHash>>,
    /// Generation that the next batch may build on.
    open: Option<OpenGeneration>,
    /// Generations that the log still contains, oldest first.
    generations: Vec<LogGeneration>,
    /// Duplicates in each batch after the flushed index: places of their uploads, and places in these.
    repeats: BTreeMap<u64, Vec<(u32, u32)>>,
    /// Entries after the flushed index with values of cumulative series.
    counted: Vec<u64>,
    /// Unflushed entries that cannot be read, mostly because they build on a lost one.
    unreadable: Vec<u64>,
    /// Index up to which ids were lost with a snapshot, if the loss is not reported yet.
    forgot: Mutex<Option<u64>>,
    /// Leader term that this process has proposed.
    claim: Arc<PendingTerm>,
    /// Notified when a flush marker is applied, so that the log may be purged.
    cuts: Arc<Notify>,
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
    /// Number of its next batch.
    place: u64,
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
    pub fn new(claim: Arc<PendingTerm>, cuts: Arc<Notify>, clock: Clock, window: DedupWindow) -> Self {
        Self {
            window: Arc::new(Mutex::new(window)),
            cut: 0,
            standing: ShardLogStatus::default(),
            marks: BTreeMap::new(),
            taken: Vec::new(),
            dropped: Arc::default(),
            open: None,
            generations: Vec::new(),
            repeats: BTreeMap::new(),
            counted: Vec::new(),
            unreadable: Vec::new(),
            forgot: Mutex::default(),
            claim,
            cuts,
            clock,
            stored: None,
            reign: None,
        }
    }
    /// Returns the log index up to which registered blocks contain all rows, according to the log.
    pub fn flushed_index(&self) -> u64 {
        self.cut
    }
    /// Returns the status of the shard as a whole.
    pub fn log_status(&self) -> &ShardLogStatus {
        &self.standing
    }
    /// Returns the settling shards from which some of the ids were taken over, by place.
    pub fn inherited_owners(&self, ids: &[ContentHash]) -> Vec<(u32, ShardId)> {
        let live = self.taken.iter().filter(|taken| taken.released.is_none());
        let of = |taken: &InheritedId| Some((ids.binary_search(&taken.id).ok()? as u32, taken.of));
        live.filter_map(of).collect()
    }
    /// Returns the records that another shard holds.
    pub fn foreign_ids(&self) -> Arc<HashSet<ContentHash>> {
        Arc::clone(&self.dropped)
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
        self.forgot.lock().or(damaged.then_some(self.cut))
    }
    /// Clears the loss of ids after it was reported: later snapshots omit it.
    pub fn clear_lost_ids(&self) {
        self.window.lock().clear_damage_count();
        self.forgot.lock().take();
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
        self.counted.clone()
    }
    /// Returns the readable batches in a range, each with the places of its duplicates.
    pub fn duplicate_records(&self, range: Range<u64>) -> BTreeMap<u64, Vec<(u32, u32)>> {
        self.repeats.range(range).map(|(&index, repeats)| (index, repeats.clone())).collect()
    }

    /// Applies a batch, with the same result on each member.
    fn batch(&mut self, index: u64, head: &EntryHead) -> Result<ShardApplyResult, CodecError> {
        if self.standing.sealed.is_some() {
            return Ok(ShardApplyResult::Refused(
                "the shard is sealed; another one takes profiles for its slot",
            ));
        }
        if head.is_generation_start() {
            self.close(index - 1);
            let generation = LogGeneration { token: head.token, first: index, last: index, closed: false };
            self.generations.push(generation);
        }
        let wanted = self.open.filter(|open| open.generation == head.generation).map(|open| open.place);
        let place = match wanted {
            _ if head.is_generation_start() => 0,
            // Versions that did not number batches made them in order.
            Some(wanted) if head.place.is_none_or(|place| place == wanted) => wanted,
            _ => return Err(CodecError { at: 0, why: "a batch that builds on one which is lost" }),
        };
        self.open = Some(OpenGeneration { generation: head.generation, place: place + 1 });
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
        if let Some(newest) = self.standing.find_newer_table(upload) {
            return UploadOutcome::Stale { newest };
        }
        self.standing.record_upload(upload);
        UploadOutcome::Records(self.window.lock().insert_all(index, &upload.ids))
    }

    /// Advances the log time to the stamp of an entry.
    fn advance(&mut self, index: u64, stamp: u64, span: u64) {
        self.window.lock().advance(index, stamp, span, !self.standing.holds.is_empty());
        self.stored = Some(self.clock.monotonic());
    }

    /// Takes over the ids of another shard.
    fn inherit(&mut self, index: u64, inherit: &InheritEntry) -> ShardApplyResult {
        let InheritEntry { source, of, first, last, stamp, span, ids, taken, holds } = inherit;
        if self.standing.sealed.is_some() {
            return ShardApplyResult::Refused("the shard is sealed; another one takes over ids for its slot");
        }
        if *source == InheritSource::Settle {
            self.standing.holds.insert(*of);
            self.advance(index, *stamp, *span);
            let held = ids.iter().map(|&id| self.settle(index, *of, id)).collect();
            self.window.lock().mark_applied(index);
            return ShardApplyResult::Inherited(held);
        }
        if self.standing.latest.is_some() {
            return ShardApplyResult::Refused(
                "the shard has taken profiles; what it knew before may not be forgotten",
            );
        }
        if *first {
            // INV-13: if the other shard is lost meanwhile, this one would hold ids of records that only that
            // one has.
            self.window.lock().forget();
            (self.standing.inherited, self.taken) = (None, Vec::new());
            self.standing.holds.clear();
        }
        if *source == InheritSource::Window {
            self.standing.holds.insert(*of);
        }
        self.standing.holds.extend(holds);
        for (place, from) in taken {
            if let Some(&id) = ids.get(*place as usize) {
                self.taken.push(InheritedId { index, of: *from, id, released: None });
            }
        }
        self.advance(index, *stamp, *span);
        let new = self.window.lock().insert_all(index, ids);
        self.window.lock().mark_applied(index);
        if *last {
            self.standing.inherited = Some((*source, *of));
        }
        ShardApplyResult::Inherited(new.into_iter().map(|new| !new).collect())
    }

    /// Takes over an id from a settling shard, unless this shard has a record of it. Returns whether it has
    /// one. A retry after a lost response gets the same result.
    fn settle(&mut self, index: u64, of: ShardId, id: ContentHash) -> bool {
        if self.window.lock().insert(index, id) {
            self.taken.push(InheritedId { index, of, id, released: None });
            return false;
        }
        !self.taken.iter().any(|taken| (taken.of, taken.id, taken.released) == (of, id, None))
    }

    /// Closes the open generation at an index.
    fn close(&mut self, last: u64) {
        self.open = None;
        let Some(generation) = self.generations.last_mut().filter(|generation| !generation.closed) else {
            return;
        };
        (generation.last, generation.closed) = (last, true);
        self.marks.insert(last, self.standing.clone());
        if let Some(reign) = &self.reign {
            reign.close(*generation);
        }
    }

    fn take(&mut self, index: u64, entry: &[u8]) -> Result<ShardApplyResult, CodecError> {
        if let Some(head) = ShardLogEntry::decode_batch_header(entry)? {
            return self.batch(index, &head);
        }
        match ShardLogEntry::decode(entry)? {
            ShardLogEntry::Begin { token, stamp, .. } => {
                self.close(index - 1);
                self.advance(index, stamp, 0);
                self.reign = self.claim.take(token);
                if let Some(reign) = &self.reign {
                    reign.mark_started(index, self.cut, self.window.lock().stamp());
                }
            }
            ShardLogEntry::End { generation }
                if self.open.is_some_and(|open| open.generation == generation) =>
            {
                self.close(index);
            }
            ShardLogEntry::Cut { to, .. } if to >= index => {
                return Err(CodecError { at: 0, why: "a cut of what comes after it" });
            }
            ShardLogEntry::Cut { to, stamp, .. } => {
                self.cut = self.cut.max(to);
                self.window.lock().set_flushed(index, self.cut, stamp);
                self.unreadable.retain(|&index| index > self.cut);
                self.counted.retain(|&index| index > self.cut);
                self.generations.retain(|generation| generation.last > self.cut);
                self.repeats = self.repeats.split_off(&(self.cut + 1));
                self.marks = self.marks.split_off(&self.cut);
                self.taken.retain(|taken| taken.released.is_none_or(|at| at > self.cut));
                self.cuts.notify_one();
            }
            ShardLogEntry::Fence { version, from, revision } => {
                return Ok(ShardApplyResult::Fence {
                    refused: self.standing.accept_fence(version, from, revision),
                });
            }
            ShardLogEntry::Void { version } => self.standing.void_fence(version),
            ShardLogEntry::Seal => return Ok(self.seal(index)),
            ShardLogEntry::Inherit(inherit) => return Ok(self.inherit(index, &inherit)),
            ShardLogEntry::Drop(ids) => Arc::make_mut(&mut self.dropped).extend(ids),
            ShardLogEntry::Release { of } => {
                self.standing.holds.remove(&of);
                self.taken.iter_mut().filter(|taken| taken.of == of).for_each(|taken| {
                    taken.released.get_or_insert(index);
                });
            }
            ShardLogEntry::Counted(_) => self.counted.push(index),
            ShardLogEntry::End { .. } | ShardLogEntry::Batch(_) => {}
        }
        Ok(ShardApplyResult::Done)
    }

    /// Seals the log. A second seal changes nothing.
    fn seal(&mut self, index: u64) -> ShardApplyResult {
        let at = *self.standing.sealed.get_or_insert(index);
        if at == index {
            self.close(index);
            self.marks.insert(index, self.standing.clone());
        }
        ShardApplyResult::Sealed { at, latest: self.standing.latest }
    }

    /// Resets the state to that of a log that begins after an index.
    fn reset(&mut self, index: u64) {
        (self.cut, self.open, self.reign) = (index, None, None);
        (self.generations, self.repeats, self.unreadable) = (Vec::new(), BTreeMap::new(), Vec::new());
        (self.standing, self.marks) = (ShardLogStatus::default(), BTreeMap::new());
        (self.taken, self.dropped, self.counted) = (Vec::new(), Arc::default(), Vec::new());
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
            tracing::error!(index, %error, "an entry of the log cannot be read; its profiles are missing");
            self.unreadable.push(index);
            ShardApplyResult::Unreadable(error)
        })
    }

    /// Captures a snapshot, labeled with the flushed index. Later entries are in no block, so the log must
    /// keep them [INV-09]. At a flushed index no generation is open.
    fn snapshot(&self) -> StateSnapshot {
        let captured = DedupWindow::capture(&self.window, self.cut);
        let forgot = self.lost_ids_index();
        let standing = self.marks.get(&self.cut).cloned().unwrap_or_default();
        let taken: Vec<InheritedId> =
            self.taken.iter().filter(|taken| taken.index <= self.cut).copied().collect();
        let saved = ShardSnapshot { forgot: forgot.unwrap_or_default(), standing, taken };
        let write = move || Ok(saved.write(&captured.write().map_err(|error| error.to_string())?));
        let window = Arc::clone(&self.window);
        StateSnapshot {
            index: self.cut,
            write: Box::new(write),
            kept: Box::new(move || DedupWindow::remove_unused_files(&window)),
        }
    }

    fn snapshot_files(&self, bytes: &[u8]) -> Result<Vec<String>, String> {
        let mut unpacker = CodecReader::new(bytes);
        let files = snapshot_format::read_times_format(&mut unpacker)
            .and_then(|times| self.window.lock().files(times, &mut unpacker));
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
            let times = snapshot_format::read_times_format(unpacker)?;
            self.window.lock().restore(index, alone, times, unpacker)?;
            ShardSnapshot::read(times, unpacker)
        };
        let ShardSnapshot { forgot, standing, taken } =
            read(&mut unpacker).map_err(|error| error.to_string())?;
        *self.forgot.lock() = (forgot > 0).then_some(forgot);
        self.reset(index);
        self.marks.insert(index, standing.clone());
        (self.standing, self.taken) = (standing, taken);
        Ok(())
    }

    fn reset_to(&mut self, index: u64) {
        self.window.lock().forget();
        // If the log begins with its first entry, a replay inserts all ids.
        *self.forgot.lock() = (index > 0).then_some(index);
        self.reset(index);
    }
}

#[cfg(test)]
mod tests;
