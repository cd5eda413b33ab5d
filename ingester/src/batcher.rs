//! Making entries of what waits, one generation after the other.
//!
//! A batch says only names that its generation has not said. So when a proposal fails, or preparing one panics, all that
//! comes after begins a new generation.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use athanor_chassis::{
    ByteSize, Clock, ComputePool, CpuActivity, ErrorCode, Random, Status, TenantId, TenantLimits,
};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::cumulative_tracker::CumulativeTracker;
use crate::decode_pool::DecodePool;
use crate::decoded_upload::DecodedUpload;
use crate::delta_converter::DeltaConverter;
use crate::entry::{BatchUpload, ProfileRecord, TenantDictionaryDelta, UploadBatch};
use crate::head::{Head, write};
use crate::pending_append::{AppendResults, PendingAppend, RequestSlots, UploadSlot};
use crate::relabel_rules::RelabelRuleCache;
use crate::shard::SHARD_BUSY_RETRY_AFTER;
use crate::state_machine::{ShardApplyResult, lock};
use crate::window::DedupWindow;

/// The most uploads that are proposed together.
const MAX_UPLOADS_PER_BATCH: usize = 4096;
/// As many bytes of profiles as this times an entry's are prepared together, at most.
const MAX_RAW_FACTOR: usize = 4;
/// What an entry says of a record beside its rows, at most.
const RECORD_OVERHEAD_BYTES: usize = 90;
/// Added to the age limits: how long ids are remembered beyond them [INV-11].
pub(crate) const DEDUP_RETENTION_MARGIN: Duration = Duration::from_secs(15 * 60);
/// How long ids are remembered where profiles may have any age [INV-11].
pub(crate) const UNLIMITED_AGE_RETENTION: Duration = Duration::from_secs(24 * 3600);

/// What a shard is asked.
pub(crate) enum WriteJob {
    Append(QueuedRequest),
    Freeze(oneshot::Sender<Result<(), Status>>),
}

/// Uploads of one caller.
pub(crate) struct QueuedRequest {
    pub(crate) content: RequestContent,
    pub(crate) answer: oneshot::Sender<AppendResults>,
}

/// What a request asks to be stored.
pub(crate) struct RequestContent {
    pub(crate) tenant: TenantId,
    /// The version of the table by which they were placed.
    pub(crate) routed: u64,
    pub(crate) limits: Arc<TenantLimits>,
    /// Of all uploads, uncompressed.
    pub(crate) raw_bytes: usize,
    pub(crate) uploads: Vec<Result<DecodedUpload, Status>>,
    /// For what was walked; none where nothing was.
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

/// What the proposer does next.
pub(crate) enum ProposerStep {
    Batch(Box<PreparedBatch>),
    /// Answers that hold if all before is stored.
    Nothing(DuplicateRequests),
    Freeze(oneshot::Sender<Result<(), Status>>, Arc<Head>),
}

/// A batch that is ready to be proposed, and those who wait for it.
pub(crate) struct PreparedBatch {
    pub(crate) entry: NewBatchEntry,
    pub(crate) waiting: Vec<PendingAppend>,
}

/// Requests of which nothing is stored, since what is in flight says it already.
pub(crate) struct DuplicateRequests {
    /// How many proposals had failed when that was seen: after another one it may be said nowhere.
    pub(crate) failures: u64,
    pub(crate) waiting: Vec<PendingAppend>,
}

/// What came of some requests.
struct BuiltBatch {
    /// None if there is nothing to store.
    entry: Option<Result<NewBatchEntry, Status>>,
    /// What becomes of the first ones.
    placings: Vec<RequestSlots>,
    /// Whether some of the answers hold only if all that is in flight is stored.
    leans: bool,
    /// Those that are for another entry.
    left: Vec<RequestContent>,
}

/// An entry that is to be proposed.
pub(crate) struct NewBatchEntry {
    pub(crate) bytes: Bytes,
    pub(crate) batch: UploadBatch,
    pub(crate) head: Arc<Head>,
    /// How many proposals had failed when it was prepared: after another one it is not to be stored, since it builds on
    /// what that one said.
    pub(crate) failures: u64,
}

/// Makes batches of requests.
pub struct UploadBatcher {
    jobs: mpsc::Receiver<WriteJob>,
    steps: mpsc::Sender<ProposerStep>,
    compute: ComputePool,
    begin: BatcherDeps,
    /// None while a batch is prepared, and after one that panicked.
    state: Option<Box<UploadBatchBuilder>>,
}

/// What preparing begins with.
#[derive(Clone)]
pub(crate) struct BatcherDeps {
    pub(crate) walkers: Arc<DecodePool>,
    /// The most bytes that an entry has.
    pub(crate) entry: usize,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) window: Arc<Mutex<DedupWindow>>,
    /// Where the log's time began to be counted here: its stamp, and the monotonic time.
    pub(crate) since: (u64, Duration),
    /// How many ids the window takes.
    pub(crate) ids: u64,
    /// What series have counted.
    pub(crate) counters: Arc<CumulativeTracker>,
    /// How many proposals failed.
    pub(crate) failures: Arc<Mutex<u64>>,
}

/// One generation after the other.
struct UploadBatchBuilder {
    begin: BatcherDeps,
    head: Arc<Head>,
    fresh: bool,
    boot: u64,
    batches: u64,
    /// The number of the generation's next batch.
    place: u64,
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

    /// Runs until the shard is dropped. Whoever waits when this is dropped is told that the shard is stopping.
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

    /// Makes a batch of the first of the requests, as many as it takes.
    async fn prepare(&mut self, requests: &mut Vec<QueuedRequest>) -> Option<ProposerStep> {
        let mut state = self.state.take().unwrap_or_else(|| self.begin.preparing());
        // The answers stay here: whatever happens there, everybody is told.
        let (contents, answers): (Vec<RequestContent>, Vec<_>) =
            requests.drain(..).map(|request| (request.content, request.answer)).unzip();
        let counts: Vec<usize> = contents.iter().map(|content| content.uploads.len()).collect();
        let worked = self.compute.run_as(CpuActivity::Prepare, move || {
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
                    // Nothing to store, and nothing that a log need know.
                    None => Ok(ShardApplyResult::Done),
                };
                waiting.into_iter().for_each(|waiting| waiting.send_results(&nowhere));
                None
            }
            Err(error) => {
                // Half a batch may be in the head's names. So nothing is built on them: what comes is of another
                // generation, by names of its own, as after a start.
                tracing::error!(%error, "a batch was not prepared, and is refused");
                let status =
                    Status::new(ErrorCode::Internal, format!("nothing of this batch was stored: {error}"));
                for (answer, count) in answers.into_iter().zip(counts) {
                    // Whoever asked may have left.
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
            // What was read from the log may have said more names than this process knows.
            head: Arc::new(Head::new(0)),
            fresh: true,
            boot: self.random.next_u64() << 32,
            batches: 0,
            place: 0,
            seen_failures: *lock(&self.failures),
            rules: RelabelRuleCache::default(),
        })
    }
}

/// Takes what waits, up to so many bytes of profiles; gives back what is for another one.
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
        (self.fresh, self.place) = (true, 0);
        Arc::clone(&self.head)
    }

    /// Begins to count, from what the log says once all that is in flight has reached it.
    fn begin_counting(&mut self) -> DeltaConverter {
        let failures = *lock(&self.begin.failures);
        if failures != self.seen_failures {
            // What was said last did not reach the log.
            self.seen_failures = failures;
            self.renew();
        }
        self.begin.counters.start_batch(failures);
        let counters = Arc::clone(&self.begin.counters);
        let window = Arc::clone(&self.begin.window);
        DeltaConverter::new(counters, window, self.begin.clock.monotonic())
    }

    /// Makes an entry of the first requests, if there is something to store, and says what becomes of each.
    fn prepare(&mut self, contents: Vec<RequestContent>) -> BuiltBatch {
        let mut counting = self.begin_counting();
        let full = self.full();
        let mut batch = UploadBatch::default();
        let mut places: HashMap<TenantId, u32> = HashMap::new();
        let mut placings = Vec::with_capacity(contents.len());
        // What the entry will say, at most.
        let mut said = 0;
        let mut left = contents.into_iter().peekable();
        // Rows and names take less than profiles do, mostly much less: so half of an entry leaves room for one more piece,
        // and what is large goes alone.
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
            let mut rows = write(&rows);
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
            // Names that no profile has, in a head that nobody looks after yet.
            self.renew();
        }
        let entry = some.then(|| self.finish(batch)).map(|entry| self.check(entry, placings.len()));
        let leans = counting.depends_on_in_flight();
        match &entry {
            Some(Ok(entry)) => counting.launch(entry.batch.token),
            // Nothing counts in what nothing is stored of.
            None => counting.launch(0),
            Some(Err(_)) => {}
        }
        BuiltBatch { entry, placings, leans, left: left.collect() }
    }

    /// An entry that is too large is none, and what it would have said is said by nobody: so nothing builds on it.
    fn check(&mut self, entry: NewBatchEntry, requests: usize) -> Result<NewBatchEntry, Status> {
        if entry.bytes.len() <= self.begin.entry {
            return Ok(entry);
        }
        self.renew();
        // Nobody is to blame for the company: alone, each is told what is true of it.
        if requests > 1 {
            let message = "the profiles of several requests do not fit together; send them again";
            return Err(Status::new(ErrorCode::Unavailable, message).with_retry_after(SHARD_BUSY_RETRY_AFTER));
        }
        let [size, limit] = [entry.bytes.len(), self.begin.entry].map(|bytes| ByteSize::bytes(bytes as u64));
        let message = format!(
            "profiles of the request take {size} of the log at once, the limit of an entry is {limit} (8MiB, or half of log.segment): send smaller profiles"
        );
        Err(Status::new(ErrorCode::TooLarge, message).with_reason("log_entry_limit"))
    }

    /// Why no new id is taken, if the window holds too many [INV-11]. Those count that are young enough by the time
    /// that has passed here, so that whoever waits is let in, though nothing was logged meanwhile.
    fn full(&self) -> Option<Status> {
        let ids = lock(&self.begin.window).len_at(self.stamp_now());
        let limit = self.begin.ids;
        (ids >= limit).then(|| {
            let message = format!(
                "this shard remembers the ids of {ids} profiles, by which it knows repeats; the limit is {limit} (ingester.ids): send again when the oldest are forgotten, which takes about as long as profiles may be late (limits.reject_older_than), or raise the limit, at two bytes of memory for each id"
            );
            Status::new(ErrorCode::Exhausted, message).with_reason("id_window_full").with_retry_after(SHARD_BUSY_RETRY_AFTER)
        })
    }

    /// The log's time.
    fn stamp_now(&self) -> u64 {
        let (stamp, at) = self.begin.since;
        let since = self.begin.clock.monotonic().saturating_sub(at);
        stamp + u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    /// How many records there are, if there are some and each is stored already.
    fn stored(&self, records: &[ProfileRecord]) -> Option<u32> {
        // Not the machine's own lock: whoever applies holds it, and may wait for the rows that are held here.
        let mut window = lock(&self.begin.window);
        let known = records.iter().all(|record| window.contains_applied(record.id));
        (!records.is_empty() && known).then_some(records.len() as u32)
    }

    fn finish(&mut self, mut batch: UploadBatch) -> NewBatchEntry {
        for part in &mut batch.tenants {
            let Ok(tenant) = part.tenant.parse() else { continue };
            let rows = self.head.rows(&tenant);
            let mut rows = write(&rows);
            *part = rows.unlogged_delta(std::mem::take(&mut part.tenant));
            rows.mark_logged();
        }
        self.batches += 1;
        batch.token = self.boot | self.batches;
        batch.stamp = self.stamp_now();
        batch.place = Some(self.place);
        self.place += 1;
        if std::mem::take(&mut self.fresh) {
            self.head.set_generation(batch.token);
        }
        batch.generation = self.head.generation();
        let bytes = batch.encode().into();
        NewBatchEntry { bytes, batch, head: Arc::clone(&self.head), failures: self.seen_failures }
    }
}

/// How long the ids of a tenant's records are remembered, nanoseconds [INV-11].
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
