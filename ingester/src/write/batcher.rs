//! Batcher of a shard: encodes queued requests as log entries, one generation after the other.
//!
//! A batch contains only names that its generation has not logged. So if a proposal fails, or the preparation
//! of a batch panics, the following batches belong to a new generation.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::memory_budget::MemoryReservation;
use athanor_chassis::{
    ByteSize, Clock, ComputePool, CpuActivity, ErrorCode, Random, Status, TenantId, TenantLimits,
};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::admission::SHARD_BUSY_RETRY_AFTER;
use crate::decode::decode_pool::DecodePool;
use crate::decode::decoded_upload::DecodedUpload;
use crate::decode::relabel_rules::RelabelRuleCache;
use crate::delta::cumulative_tracker::CumulativeTracker;
use crate::delta::delta_converter::DeltaConverter;
use crate::head_store::head::Head;
use crate::log::entry::{BatchUpload, ProfileRecord, TenantDictionaryDelta, UploadBatch};
use crate::log::state_machine::ShardApplyResult;
use crate::window::DedupWindow;
use crate::write::pending_append::{AppendResults, PendingAppend, RequestSlots, UploadSlot};

/// Number of uploads at which a batch is full.
const MAX_UPLOADS_PER_BATCH: usize = 4096;
/// Maximum raw bytes of profiles that are prepared together, as a multiple of an entry's bytes.
const MAX_RAW_FACTOR: usize = 4;
/// Upper bound of the bytes that an entry takes per record beside its rows.
const RECORD_OVERHEAD_BYTES: usize = 90;
/// Time for which ids are kept beyond the age limits [INV-11].
const DEDUP_RETENTION_MARGIN: Duration = Duration::from_secs(15 * 60);
/// Time for which ids are kept if profiles may have any age [INV-11].
const UNLIMITED_AGE_RETENTION: Duration = Duration::from_secs(24 * 3600);

/// Job in the queue of a shard.
pub(crate) enum WriteJob {
    Append(QueuedRequest),
    Freeze(oneshot::Sender<Result<(), Status>>),
}

/// Queued request of one caller.
pub(crate) struct QueuedRequest {
    pub(crate) content: RequestContent,
    pub(crate) answer: oneshot::Sender<AppendResults>,
}

/// Content of an append request.
pub(crate) struct RequestContent {
    pub(crate) tenant: TenantId,
    /// Version of the slot table by which the uploads were placed.
    pub(crate) routed: u64,
    pub(crate) limits: Arc<TenantLimits>,
    /// Uncompressed bytes of all uploads.
    pub(crate) raw_bytes: usize,
    pub(crate) uploads: Vec<Result<DecodedUpload, Status>>,
    /// Memory of the decoded uploads; none if none was decoded.
    pub(crate) room: Option<MemoryReservation>,
}

/// Next step of the proposer.
pub(crate) enum ProposerStep {
    Batch(Box<PreparedBatch>),
    /// Results that hold if all earlier batches are stored.
    Nothing(DuplicateRequests),
    Freeze(oneshot::Sender<Result<(), Status>>, Arc<Head>),
}

/// Batch that is ready to be proposed, and the requests that wait for it.
pub(crate) struct PreparedBatch {
    pub(crate) entry: NewBatchEntry,
    pub(crate) waiting: Vec<PendingAppend>,
}

/// Requests of which nothing is stored, since batches in flight contain it already.
pub(crate) struct DuplicateRequests {
    /// Number of failed proposals at that time. After another failure those batches may be lost.
    pub(crate) failures: u64,
    pub(crate) waiting: Vec<PendingAppend>,
}

/// Result of preparing some requests.
struct BuiltBatch {
    /// Encoded entry; none if there is nothing to store.
    entry: Option<Result<NewBatchEntry, Status>>,
    /// Slots of the first requests.
    placings: Vec<RequestSlots>,
    /// True if some results hold only if all batches in flight are stored.
    leans: bool,
    /// Requests that are left for another entry.
    left: Vec<RequestContent>,
}

/// Entry that is to be proposed.
pub(crate) struct NewBatchEntry {
    pub(crate) bytes: Bytes,
    pub(crate) batch: UploadBatch,
    pub(crate) head: Arc<Head>,
    /// Number of failed proposals when the entry was prepared. After another failure it must not be stored,
    /// since it builds on the failed entry.
    pub(crate) failures: u64,
}

/// Worker that makes batches of requests.
pub struct UploadBatcher {
    jobs: mpsc::Receiver<WriteJob>,
    steps: mpsc::Sender<ProposerStep>,
    compute: ComputePool,
    begin: BatcherDeps,
    /// State of the builder; none while a batch is prepared, and after a panic.
    state: Option<Box<UploadBatchBuilder>>,
}

/// Dependencies of a batch builder.
#[derive(Clone)]
pub(crate) struct BatcherDeps {
    pub(crate) walkers: Arc<DecodePool>,
    /// Maximum bytes of a log entry.
    pub(crate) entry: usize,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) window: Arc<Mutex<DedupWindow>>,
    /// Stamp and monotonic time at which this node began to count log time.
    pub(crate) since: (u64, Duration),
    /// Maximum ids in the window.
    pub(crate) ids: u64,
    /// Tracker of cumulative series.
    pub(crate) counters: Arc<CumulativeTracker>,
    /// Number of proposals that failed.
    pub(crate) failures: Arc<Mutex<u64>>,
}

/// Builder of batches, one generation after the other.
struct UploadBatchBuilder {
    begin: BatcherDeps,
    head: Arc<Head>,
    fresh: bool,
    boot: u64,
    batches: u64,
    /// Number of the generation's next batch.
    next_sequence: u64,
    seen_failures: u64,
    rules: RelabelRuleCache,
}

impl UploadBatcher {
    pub(crate) fn new(
        jobs: mpsc::Receiver<WriteJob>,
        steps: mpsc::Sender<ProposerStep>,
        compute: ComputePool,
        begin: BatcherDeps,
    ) -> Self {
        Self { jobs, steps, compute, state: Some(begin.preparing()), begin }
    }

    /// Runs until the shard is dropped. Requests that wait when this is dropped fail, since the shard is
    /// stopping.
    pub async fn run(mut self) {
        let mut next = self.jobs.recv().await;
        while let Some(job) = next.take() {
            let sent = match job {
                WriteJob::Freeze(done) => {
                    let head = self.state.get_or_insert_with(|| self.begin.preparing()).renew();
                    self.steps.send(ProposerStep::Freeze(done, head)).await.is_ok()
                }
                WriteJob::Append(request) => {
                    let mut requests = vec![request];
                    next = gather(&mut self.jobs, &mut requests, self.begin.entry * MAX_RAW_FACTOR);
                    let mut sent = true;
                    while sent && !requests.is_empty() {
                        let prepared = self.prepare(&mut requests).await;
                        if let Some(step) = prepared {
                            sent = self.steps.send(step).await.is_ok();
                        }
                    }
                    sent
                }
            };
            if !sent {
                return;
            }
            if next.is_none() {
                next = self.jobs.recv().await;
            }
        }
    }

    /// Builds a batch of the first requests, as many as fit.
    async fn prepare(&mut self, requests: &mut Vec<QueuedRequest>) -> Option<ProposerStep> {
        let mut state = self.state.take().unwrap_or_else(|| self.begin.preparing());
        // The senders of results stay here: each caller gets a result, whatever happens to the job.
        let (contents, answers): (Vec<RequestContent>, Vec<_>) =
            requests.drain(..).map(|request| (request.content, request.answer)).unzip();
        let counts: Vec<usize> = contents.iter().map(|content| content.uploads.len()).collect();
        let worked = self.compute.run_as(CpuActivity::Batch, move || {
            let prepared = state.prepare(contents);
            (state, prepared)
        });
        match worked.await {
            Ok((state, BuiltBatch { entry, placings, leans, left })) => {
                let failures = state.seen_failures;
                self.state = Some(state);
                let mut answers = answers.into_iter();
                let waiting = placings.into_iter().zip(&mut answers);
                let waiting: Vec<PendingAppend> =
                    waiting.map(|(placing, answer)| PendingAppend { placing, answer }).collect();
                let left = left.into_iter().zip(answers);
                requests.extend(left.map(|(content, answer)| QueuedRequest { content, answer }));
                let nowhere = match entry {
                    Some(Ok(entry)) => {
                        return Some(ProposerStep::Batch(Box::new(PreparedBatch { entry, waiting })));
                    }
                    Some(Err(status)) => Err(status),
                    None if leans => {
                        return Some(ProposerStep::Nothing(DuplicateRequests { failures, waiting }));
                    }
                    // Nothing to store, and nothing to log.
                    None => Ok(ShardApplyResult::Done),
                };
                waiting.into_iter().for_each(|waiting| waiting.send_results(&nowhere));
                None
            }
            Err(error) => {
                // The head's names may contain half a batch, so nothing builds on them. Later batches belong
                // to another generation with names of its own, as after a start.
                tracing::error!(%error, "failed to prepare batch, rejected its profiles");
                let status =
                    Status::new(ErrorCode::Internal, format!("no profile of this batch was stored: {error}"));
                for (answer, count) in answers.into_iter().zip(counts) {
                    // The caller may have disconnected.
                    let _ = answer.send(vec![Err(status.clone()); count]);
                }
                None
            }
        }
    }
}

impl BatcherDeps {
    fn preparing(&self) -> Box<UploadBatchBuilder> {
        Box::new(UploadBatchBuilder {
            begin: self.clone(),
            // Replayed entries may contain more names than this process knows.
            head: Arc::new(Head::new(0)),
            fresh: true,
            boot: self.random.next_u64() << 32,
            batches: 0,
            next_sequence: 0,
            seen_failures: *self.failures.lock(),
            rules: RelabelRuleCache::default(),
        })
    }
}

/// Takes queued requests, up to `batch` raw bytes. Returns a job that belongs to a later batch.
fn gather(
    jobs: &mut mpsc::Receiver<WriteJob>,
    requests: &mut Vec<QueuedRequest>,
    batch: usize,
) -> Option<WriteJob> {
    let mut bytes: usize = requests.iter().map(|request| request.content.raw_bytes).sum();
    let mut uploads: usize = requests.iter().map(|request| request.content.uploads.len()).sum();
    while bytes < batch && uploads < MAX_UPLOADS_PER_BATCH {
        match jobs.try_recv() {
            Ok(WriteJob::Append(request)) if bytes + request.content.raw_bytes > batch => {
                return Some(WriteJob::Append(request));
            }
            Ok(WriteJob::Append(request)) => {
                bytes += request.content.raw_bytes;
                uploads += request.content.uploads.len();
                requests.push(request);
            }
            Ok(other) => return Some(other),
            Err(_) => return None,
        }
    }
    None
}

impl UploadBatchBuilder {
    /// Begins a new generation.
    fn renew(&mut self) -> Arc<Head> {
        self.head = Arc::new(Head::new(0));
        (self.fresh, self.next_sequence) = (true, 0);
        Arc::clone(&self.head)
    }

    /// Begins to convert deltas, from the values after all batches in flight.
    fn begin_counting(&mut self) -> DeltaConverter {
        let failures = *self.begin.failures.lock();
        if failures != self.seen_failures {
            // The names of the last batch did not reach the log.
            self.seen_failures = failures;
            self.renew();
        }
        self.begin.counters.start_batch(failures);
        let counters = Arc::clone(&self.begin.counters);
        let window = Arc::clone(&self.begin.window);
        DeltaConverter::new(counters, window, self.begin.clock.monotonic())
    }

    /// Builds an entry from the first requests, if there is something to store, and returns the outcome of
    /// each.
    fn prepare(&mut self, contents: Vec<RequestContent>) -> BuiltBatch {
        let mut counting = self.begin_counting();
        let full = self.full();
        let mut batch = UploadBatch::default();
        let mut places: HashMap<TenantId, u32> = HashMap::new();
        let mut placings = Vec::with_capacity(contents.len());
        // Upper bound of the entry's bytes.
        let mut said = 0;
        let mut left = contents.into_iter().peekable();
        // Rows and names are smaller than raw profiles, mostly by far. So half of an entry leaves space for
        // one more chunk, and a large chunk gets an entry of its own.
        let entry = self.begin.entry;
        while let Some(content) = left.next_if(|next| {
            placings.is_empty()
                || said <= entry / 2 && said + next.raw_bytes <= entry && counting.accepts_table(next.routed)
        }) {
            let RequestContent { tenant, routed, limits, uploads, raw_bytes: _, room: _room } = content;
            batch.window = batch.window.max(remembered(&limits));
            let place = *places.entry(tenant.clone()).or_insert_with(|| {
                batch.tenants.push(TenantDictionaryDelta {
                    tenant: tenant.to_string(),
                    ..TenantDictionaryDelta::default()
                });
                batch.tenants.len() as u32 - 1
            });
            let rules = self.rules.rules_for(&limits);
            counting.begin_uploads(&tenant, routed);
            let rows = self.head.rows(&tenant);
            let mut rows = rows.write();
            let before = (rows.memory(), rows.unlogged_bytes(), batch.rows.len());
            let placed = uploads.into_iter().map(|intake| {
                let mut intake = intake?;
                let start = batch.rows.len();
                let placed = match &rules {
                    Ok(rules) => intake.add_to_batch(&mut rows, rules, &mut batch, &mut counting),
                    Err(status) => Err(status.clone()),
                };
                self.begin.walkers.recycle(intake);
                let decided = placed.and_then(|(records, taken)| {
                    said += records.len() * RECORD_OVERHEAD_BYTES;
                    if let Some(stored) = self.stored(&records) {
                        return Ok((UploadSlot::Before(stored), taken));
                    }
                    if let (Some(full), false) = (&full, records.is_empty()) {
                        return Err(full.clone());
                    }
                    batch.uploads.push(BatchUpload { tenant: place, routed, records });
                    Ok((UploadSlot::In(batch.uploads.len() - 1), taken))
                });
                let is_in = matches!(decided, Ok((UploadSlot::In(_), _)));
                counting.finish_upload(is_in);
                if !is_in {
                    batch.rows.truncate(start);
                }
                decided
            });
            placings.push(placed.collect());
            self.head.add_name_bytes(&rows, before.0);
            said += rows.unlogged_bytes() - before.1 + batch.rows.len() - before.2;
        }
        let some = batch.uploads.iter().any(|upload| !upload.records.is_empty());
        if !some && self.fresh {
            // The names have no profile, and no component uses the head yet.
            self.renew();
        }
        let entry = some.then(|| self.finish(batch)).map(|entry| self.check(entry, placings.len()));
        let leans = counting.depends_on_in_flight();
        match &entry {
            Some(Ok(entry)) => counting.launch(entry.batch.token),
            // A batch that stores nothing counts nothing.
            None => counting.launch(0),
            Some(Err(_)) => {}
        }
        BuiltBatch { entry, placings, leans, left: left.collect() }
    }

    /// Rejects an entry that is too large. Its names do not reach the log, so a new generation starts.
    fn check(&mut self, entry: NewBatchEntry, requests: usize) -> Result<NewBatchEntry, Status> {
        if entry.bytes.len() <= self.begin.entry {
            return Ok(entry);
        }
        self.renew();
        // The size may be due to the other requests: sent alone, each gets the result that is true of it.
        if requests > 1 {
            let message = "profiles of several requests exceed one log entry; retry";
            return Err(Status::new(ErrorCode::Unavailable, message).with_retry_after(SHARD_BUSY_RETRY_AFTER));
        }
        let [size, limit] = [entry.bytes.len(), self.begin.entry].map(|bytes| ByteSize::bytes(bytes as u64));
        let message = format!(
            "profiles of the request make a log entry of {size}, the limit is {limit} (8MiB, or half of wal.segment_bytes); send smaller profiles"
        );
        Err(Status::new(ErrorCode::TooLarge, message).with_reason("wal_entry_too_large"))
    }

    /// Returns why no new id is accepted, if the window holds too many [INV-11]. The count expires ids by the
    /// time that has passed on this node. So a waiting client is admitted even if nothing was logged
    /// meanwhile.
    fn full(&self) -> Option<Status> {
        let ids = self.begin.window.lock().len_at(self.stamp_now());
        let limit = self.begin.ids;
        (ids >= limit).then(|| {
            let message = format!(
                "the dedup window of this shard has {ids} ids, the limit is {limit} (ingester.dedup.max_ids_per_shard); retry when the oldest ids have expired, after about limits.reject_older_than, or raise the limit, at two bytes of memory per id"
            );
            Status::new(ErrorCode::Exhausted, message).with_reason("dedup_window_full").with_retry_after(SHARD_BUSY_RETRY_AFTER)
        })
    }

    /// Returns the current log time.
    fn stamp_now(&self) -> u64 {
        let (stamp, at) = self.begin.since;
        let since = self.begin.clock.monotonic().saturating_sub(at);
        stamp + u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the number of records, if there are some and each is stored already.
    fn stored(&self, records: &[ProfileRecord]) -> Option<u32> {
        // Locks the window, not the machine: the thread that applies entries holds the machine, and may wait
        // for the rows that are held here.
        let mut window = self.begin.window.lock();
        let known = records.iter().all(|record| window.contains_applied(record.id));
        (!records.is_empty() && known).then_some(records.len() as u32)
    }

    fn finish(&mut self, mut batch: UploadBatch) -> NewBatchEntry {
        for part in &mut batch.tenants {
            let Ok(tenant) = part.tenant.parse() else { continue };
            let rows = self.head.rows(&tenant);
            let mut rows = rows.write();
            *part = rows.unlogged_delta(std::mem::take(&mut part.tenant));
            rows.mark_logged();
        }
        self.batches += 1;
        batch.token = self.boot | self.batches;
        batch.stamp = self.stamp_now();
        batch.sequence = self.next_sequence;
        self.next_sequence += 1;
        if std::mem::take(&mut self.fresh) {
            self.head.set_generation(batch.token);
        }
        batch.generation = self.head.generation();
        let bytes = batch.encode().into();
        NewBatchEntry { bytes, batch, head: Arc::clone(&self.head), failures: self.seen_failures }
    }
}

/// Returns the longest time for which any shard keeps ids, for the given limits of the age of profiles. The
/// objects of a flushed block stay as long, because a successor reads their ids [INV-13].
pub fn longest_id_retention(oldest_accepted: Duration, newest_accepted: Duration) -> Duration {
    if oldest_accepted.is_zero() {
        return UNLIMITED_AGE_RETENTION;
    }
    (oldest_accepted + newest_accepted + DEDUP_RETENTION_MARGIN).max(UNLIMITED_AGE_RETENTION)
}

/// Returns the time for which ids of a tenant's records are kept, nanoseconds [INV-11].
fn remembered(limits: &TenantLimits) -> u64 {
    let span = if limits.reject_older_than.is_zero() {
        UNLIMITED_AGE_RETENTION
    } else {
        limits.reject_older_than + limits.reject_newer_than + DEDUP_RETENTION_MARGIN
    };
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
