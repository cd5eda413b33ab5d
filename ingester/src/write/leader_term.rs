//! In-memory state of a shard on its leader. It begins with an entry of the log and never outlives the lead.
//!
//! ```text
//!  entries:   … batches of earlier leaders …  │ Begin │ batches of this one …
//!             replayed from the log ─► heads  │       │ published as they are applied
//! ```

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use athanor_chassis::{Clock, ComputePool, CpuActivity, Status, TenantId};
use athanor_consensus::RaftGroup;
use athanor_profile::encoding::codec::CodecError;
use athanor_profile::encoding::hash::{ContentHash, PrehashedMap};
use futures::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;

use crate::delta::cumulative_tracker::{CumulativeTracker, DeltaLimits, SeriesUpdate, batch_updates};
use crate::head_store::generations::ShardHeads;
use crate::head_store::head::Head;
use crate::log::entry::{ProfileRecord, ShardLogEntry, UploadBatch};
use crate::log::state_machine::{LogGeneration, ShardStateMachine};

/// State that exists only while this replica leads the shard: heads, delta tracker, in-flight batch. Dropped
/// on step-down.
#[derive(Debug)]
pub struct LeaderTerm {
    heads: ShardHeads,
    /// Tracker of cumulative series.
    counters: Arc<CumulativeTracker>,
    clock: Clock,
    /// Batch in flight, and its head.
    proposed: Mutex<Option<(UploadBatch, Arc<Head>)>>,
    begun: OnceLock<TermStart>,
    /// Entries that are intact but do not decode as batches.
    unreadable: Mutex<Vec<u64>>,
}

/// Start of a leader term.
#[derive(Clone, Copy, Debug)]
pub struct TermStart {
    /// Index of the entry that starts it.
    pub index: u64,
    /// Index up to which rows were in blocks, according to the log.
    pub cut: u64,
    /// Log time at the start.
    pub stamp: u64,
    /// Monotonic time of the node at the start.
    pub at: Duration,
}

/// Leader term that is proposed, until its entry is applied.
#[derive(Debug, Default)]
pub struct PendingTerm(Mutex<Option<(u64, Arc<LeaderTerm>)>>);

impl PendingTerm {
    /// Sets the proposed term and its token.
    pub fn put(&self, token: u64, reign: Arc<LeaderTerm>) {
        *self.0.lock() = Some((token, reign));
    }
    /// Returns the term of a token, if this process proposed it.
    pub fn take(&self, token: u64) -> Option<Arc<LeaderTerm>> {
        self.0.lock().take_if(|(claimed, _)| *claimed == token).map(|(_, reign)| reign)
    }
}

impl LeaderTerm {
    /// Creates a term that has not started.
    pub fn new(clock: Clock, counting: DeltaLimits) -> Self {
        Self {
            heads: ShardHeads::new(),
            counters: Arc::new(CumulativeTracker::new(counting)),
            clock,
            proposed: Mutex::default(),
            begun: OnceLock::new(),
            unreadable: Mutex::default(),
        }
    }
    /// Returns the heads of the term.
    pub fn heads(&self) -> &ShardHeads {
        &self.heads
    }
    /// Returns the tracker of cumulative series.
    pub(crate) fn tracker(&self) -> &Arc<CumulativeTracker> {
        &self.counters
    }
    /// Returns the start of the term; none before its entry is applied.
    pub fn term_start(&self) -> Option<TermStart> {
        self.begun.get().copied()
    }
    /// Counts entries after `range.start` and up to `range.end` that do not decode as batches.
    pub fn unreadable(&self, range: &std::ops::Range<u64>) -> u64 {
        let unreadable = self.unreadable.lock();
        unreadable.iter().filter(|&&index| index > range.start && index <= range.end).count() as u64
    }
    /// Remembers the batch that is about to be proposed.
    pub fn put(&self, batch: UploadBatch, head: Arc<Head>) {
        *self.proposed.lock() = Some((batch, head));
    }

    /// Marks the term as started by an applied entry. Rows up to `cut` are not requested here.
    pub(crate) fn mark_started(&self, index: u64, cut: u64, stamp: u64) {
        self.heads.reset_start(index, cut);
        // No term starts a second time: each has a token of its own.
        let _ = self.begun.set(TermStart { index, cut, stamp, at: self.clock.monotonic() });
    }

    /// Publishes the new records of the batch in flight, if it is the applied one.
    pub(crate) fn publish_batch(&self, index: u64, token: u64, verdicts: &[Vec<bool>]) {
        let proposed = self.proposed.lock().take_if(|(batch, _)| batch.token == token);
        let Some((batch, head)) = proposed else { return };
        if batch.is_generation_start() {
            head.set_start_index(index - 1);
        }
        if head.is_empty() {
            head.set_first_profile_at(self.clock.monotonic());
        }
        if let Err(error) = show(&head, &batch, verdicts) {
            tracing::error!(index, %error, "a batch cannot be shown; its profiles are missing");
            self.unreadable.lock().push(index);
        }
        if batch.has_delta_records() {
            match batch_updates(&head, index, &batch, verdicts) {
                Ok(changes) => self.counters.apply(token, changes, self.clock.monotonic()),
                Err(error) => {
                    tracing::error!(index, %error, "what a batch counts cannot be read: it counts again");
                }
            }
        }
        head.mark_applied(index);
    }

    /// Closes the head of a generation that has ended.
    pub(crate) fn close(&self, generation: LogGeneration) {
        self.heads.close(generation.token, generation.last);
    }

    /// Replays the unflushed entries of earlier leaders.
    pub(crate) async fn replay_log(
        &self,
        log: &RaftGroup<ShardStateMachine>,
        compute: &ComputePool,
    ) -> Result<(), Status> {
        let Some(TermStart { index, .. }) = self.term_start() else { return Ok(()) };
        let generations = log.with_state_machine(|machine| machine.generations(index));
        let now = self.clock.monotonic();
        self.read_counted(log, compute).await?;
        let reached = Arc::new(self.counters.counted_indexes());
        let read = |generation: LogGeneration| {
            let log = log.clone();
            let compute = compute.clone();
            let reached = Arc::clone(&reached);
            async move {
                let read = move || read_back(&log, generation, &reached, now);
                compute.run_as(CpuActivity::Apply, read).await.map_err(|error| Status::from_error(&error))?
            }
        };
        let read: Vec<ReplayedGeneration> =
            stream::iter(generations).map(read).buffered(compute.parallelism()).try_collect().await?;
        let mut all = Vec::with_capacity(read.len());
        for ReplayedGeneration { head, mut unreadable, counted } in read {
            self.unreadable.lock().append(&mut unreadable);
            self.counters.restore(counted.into_values(), now);
            all.push(Arc::new(head));
        }
        self.heads.prepend(all);
        Ok(())
    }

    /// Takes over the values of cumulative series from the log.
    async fn read_counted(
        &self,
        log: &RaftGroup<ShardStateMachine>,
        compute: &ComputePool,
    ) -> Result<(), Status> {
        let log = log.clone();
        let counters = Arc::clone(&self.counters);
        let now = self.clock.monotonic();
        let read = move || {
            for index in log.with_state_machine(ShardStateMachine::delta_state_indexes) {
                let entry = log.read_proposal(index).map_err(|error| Status::from_error(&error))?;
                let piece = match entry.map(|entry| ShardLogEntry::decode(&entry)) {
                    Some(Ok(ShardLogEntry::Counted(piece))) => counters.read(&piece, now),
                    Some(Err(error)) => Err(error),
                    Some(Ok(_)) | None => {
                        Err(CodecError { at: 0, why: "what was counted, which is not there" })
                    }
                };
                if let Err(error) = piece {
                    tracing::error!(index, %error, "what series have counted cannot be read: they begin anew");
                }
            }
            Ok(())
        };
        compute.run_as(CpuActivity::Apply, read).await.map_err(|error| Status::from_error(&error))?
    }
}

/// Result of replaying a generation.
struct ReplayedGeneration {
    /// Rows of the generation.
    head: Head,
    /// Entries that do not decode as batches.
    unreadable: Vec<u64>,
    /// Effect of its records on cumulative series.
    counted: PrehashedMap<ContentHash, SeriesUpdate>,
}

/// Replays a generation. Records count only if the log has no later values of their series.
fn read_back(
    log: &RaftGroup<ShardStateMachine>,
    generation: LogGeneration,
    reached: &PrehashedMap<ContentHash, u64>,
    now: Duration,
) -> Result<ReplayedGeneration, Status> {
    let head = Head::new(generation.first - 1);
    head.set_generation(generation.token);
    head.set_first_profile_at(now);
    let (repeats, dropped) = log.with_state_machine(|machine| {
        (machine.duplicate_records(generation.first..generation.last + 1), machine.foreign_ids())
    });
    let mut unreadable = Vec::new();
    let mut counted = PrehashedMap::default();
    for (index, repeats) in repeats {
        let read = log.read_proposal(index).map_err(|error| Status::from_error(&error))?;
        let said = match read.map(|entry| ShardLogEntry::decode(&entry)) {
            Some(Ok(ShardLogEntry::Batch(batch))) => {
                let new = verdicts(&batch, &repeats, &dropped);
                learn(&head, &batch, &new).and_then(|()| count(&head, index, &batch, &new)).map(|changes| {
                    let is_later =
                        |change: &SeriesUpdate| reached.get(&change.series).is_none_or(|&to| index > to);
                    changes.into_iter().filter(is_later).for_each(|change| compose(&mut counted, change));
                })
            }
            Some(Err(error)) => Err(error),
            Some(Ok(_)) | None => Err(CodecError { at: 0, why: "a batch that is none" }),
        };
        if let Err(error) = said {
            tracing::error!(index, %error, "a batch of the log cannot be read; its profiles are missing");
            unreadable.push(index);
        }
    }
    head.mark_applied(generation.last);
    head.close();
    Ok(ReplayedGeneration { head, unreadable, counted })
}

fn count(
    head: &Head,
    index: u64,
    batch: &UploadBatch,
    new: &[Vec<bool>],
) -> Result<Vec<SeriesUpdate>, CodecError> {
    if batch.has_delta_records() { batch_updates(head, index, batch, new) } else { Ok(Vec::new()) }
}

fn compose(all: &mut PrehashedMap<ContentHash, SeriesUpdate>, change: SeriesUpdate) {
    let both = match all.remove(&change.series) {
        Some(before) => before.with_later(change),
        None => change,
    };
    all.insert(both.series, both);
}

fn learn(head: &Head, batch: &UploadBatch, new: &[Vec<bool>]) -> Result<(), CodecError> {
    for part in &batch.tenants {
        head.apply_dictionary_delta(part, &tenant(&part.tenant)?)?;
    }
    show(head, batch, new)
}

/// Returns for each record of a batch whether it is new and belongs to this shard.
fn verdicts(batch: &UploadBatch, repeats: &[(u32, u32)], dropped: &HashSet<ContentHash>) -> Vec<Vec<bool>> {
    let is_here = |record: &ProfileRecord| !dropped.contains(&record.id);
    let mut verdicts: Vec<Vec<bool>> =
        batch.uploads.iter().map(|upload| upload.records.iter().map(is_here).collect()).collect();
    for &(upload, record) in repeats {
        verdicts[upload as usize][record as usize] = false;
    }
    verdicts
}

fn show(head: &Head, batch: &UploadBatch, verdicts: &[Vec<bool>]) -> Result<(), CodecError> {
    for (upload, new) in batch.uploads.iter().zip(verdicts) {
        let tenant = tenant(&batch.tenants[upload.tenant as usize].tenant)?;
        head.publish_upload(&tenant, batch, upload, new);
    }
    Ok(())
}

fn tenant(name: &str) -> Result<TenantId, CodecError> {
    name.parse().map_err(|_| CodecError { at: 0, why: "a tenant's name that is none" })
}
