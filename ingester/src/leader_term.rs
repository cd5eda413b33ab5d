//! What a shard has in memory where this node leads it. It begins with an entry of the log and never outlives the lead.
//!
//! ```text
//!  entries:   … batches of earlier leaders …  │ Begin │ batches of this one …
//!             read back from the log ─► heads │       │ shown as they are applied
//! ```

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use athanor_chassis::{Clock, ComputePool, CpuActivity, Status, TenantId};
use athanor_consensus::RaftGroup;
use athanor_profile::codec::CodecError;
use athanor_profile::hash::{ContentHash, PrehashedMap};
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::cumulative_tracker::{CumulativeTracker, DeltaLimits, SeriesUpdate, batch_updates};
use crate::entry::{ProfileRecord, ShardLogEntry, UploadBatch};
use crate::generations::ShardHeads;
use crate::head::Head;
use crate::state_machine::{LogGeneration, ShardStateMachine, lock};

/// One node's time of leading a shard.
#[derive(Debug)]
pub struct LeaderTerm {
    heads: ShardHeads,
    /// What series have counted.
    counters: Arc<CumulativeTracker>,
    clock: Clock,
    /// The batch in flight.
    proposed: Mutex<Option<(UploadBatch, Arc<Head>)>>,
    begun: OnceLock<TermStart>,
    /// Entries of earlier batches that are whole and do not say what a batch says.
    unreadable: Mutex<Vec<u64>>,
}

/// Where a reign began.
#[derive(Clone, Copy, Debug)]
pub struct TermStart {
    /// The entry that says so.
    pub index: u64,
    /// Up to where rows lay in blocks, as far as the log said.
    pub cut: u64,
    /// The log's time then.
    pub stamp: u64,
    /// The node's monotonic time then.
    pub at: Duration,
}

/// A reign that was proposed, until its entry is applied.
#[derive(Debug, Default)]
pub struct PendingTerm(Mutex<Option<(u64, Arc<LeaderTerm>)>>);

impl PendingTerm {
    /// Says under which token a reign is proposed.
    pub fn put(&self, token: u64, reign: Arc<LeaderTerm>) {
        *lock(&self.0) = Some((token, reign));
    }
    /// The reign of a token, if it is this process's.
    pub fn take(&self, token: u64) -> Option<Arc<LeaderTerm>> {
        lock(&self.0).take_if(|(claimed, _)| *claimed == token).map(|(_, reign)| reign)
    }
}

impl LeaderTerm {
    /// One that has not begun.
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
    /// The rows.
    pub fn heads(&self) -> &ShardHeads {
        &self.heads
    }
    /// What series have counted.
    pub(crate) fn tracker(&self) -> &Arc<CumulativeTracker> {
        &self.counters
    }
    /// Where it began; none before that was applied.
    pub fn term_start(&self) -> Option<TermStart> {
        self.begun.get().copied()
    }
    /// How many entries after one index and up to another did not say what a batch says.
    pub fn unreadable(&self, range: &std::ops::Range<u64>) -> u64 {
        let unreadable = lock(&self.unreadable);
        unreadable.iter().filter(|&&index| index > range.start && index <= range.end).count() as u64
    }
    /// Remembers the batch that is about to be proposed.
    pub fn put(&self, batch: UploadBatch, head: Arc<Head>) {
        *lock(&self.proposed) = Some((batch, head));
    }

    /// Its entry is applied: rows up to the cut are not asked for here.
    pub(crate) fn mark_started(&self, index: u64, cut: u64, stamp: u64) {
        self.heads.reset_start(index, cut);
        // Nobody begins twice: each has a token of its own.
        let _ = self.begun.set(TermStart { index, cut, stamp, at: self.clock.monotonic() });
    }

    /// Shows what is new of the batch in flight, if it is the one that was applied.
    pub(crate) fn publish_batch(&self, index: u64, token: u64, verdicts: &[Vec<bool>]) {
        let proposed = lock(&self.proposed).take_if(|(batch, _)| batch.token == token);
        let Some((batch, head)) = proposed else { return };
        if batch.is_generation_start() {
            head.set_start_index(index - 1);
        }
        if head.is_empty() {
            head.set_first_profile_at(self.clock.monotonic());
        }
        if let Err(error) = show(&head, &batch, verdicts) {
            tracing::error!(index, %error, "a batch cannot be shown; its profiles are missing");
            lock(&self.unreadable).push(index);
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

    /// A generation is over.
    pub(crate) fn close(&self, generation: LogGeneration) {
        self.heads.close(generation.token, generation.last);
    }

    /// Reads back what earlier leaders stored, and is in no block yet.
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
            lock(&self.unreadable).append(&mut unreadable);
            self.counters.restore(counted.into_values(), now);
            all.push(Arc::new(head));
        }
        self.heads.prepend(all);
        Ok(())
    }

    /// Takes over what the log says that series have counted.
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

/// What was read back of a generation.
struct ReplayedGeneration {
    /// Its rows.
    head: Head,
    /// The entries that do not say what they should.
    unreadable: Vec<u64>,
    /// What its records do to what series have counted.
    counted: PrehashedMap<ContentHash, SeriesUpdate>,
}

/// Reads a generation, and counts where the log does not say what was counted after it.
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

/// Which records of a batch are new, and of this shard.
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
