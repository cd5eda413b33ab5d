//! One shard: uploads come in, one proposal after the other goes into its log, answers go out.
//!
//! ```text
//!  append ─► read (many at once) ─► queue ─► prepare ─► propose ─► applied ─► answers
//!                                            next batch │ in flight
//! ```
//!
//! What waits is taken together, so that a batch grows with the load and no timer is needed. A batch says only names
//! that the log has not said; so when a proposal fails, all that comes after begins a new generation.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use athanor_chassis::{ByteSize, Clock, Code, Compute, Limits, Overrides, Random, Status, TenantId};
use athanor_consensus::Replicated;
use athanor_profile::upload::Upload;
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::entry::{Admitted, Batch, Record, TenantPart};
use crate::head::{Head, write};
use crate::heads::Heads;
use crate::intake::{Equals, Intake};
use crate::machine::{Applied, Machine, Proposed, lock};
use crate::waiting::{Answered, Placed, Waiting};
use crate::window::Window;

pub use crate::waiting::Stored;

/// The most uploads that are proposed together.
const MOST: usize = 4096;
/// Requests that wait for a shard.
const QUEUE: usize = 4096;
/// What a client is told to wait when the queue is full.
const BUSY: Duration = Duration::from_secs(1);
/// Added to the age limits: how long ids are remembered beyond them (E11).
const MARGIN: Duration = Duration::from_secs(15 * 60);
/// How long ids are remembered where profiles may have any age (E11).
const ANY_AGE: Duration = Duration::from_secs(24 * 3600);
/// Walks whose memory is kept for the next uploads.
const SPARE: usize = 16;

/// What shards share.
#[derive(Clone, Debug)]
pub struct ShardDeps {
    /// Limits of tenants.
    pub overrides: Overrides,
    /// Time.
    pub clock: Clock,
    /// Chance.
    pub random: Random,
    /// Threads for walking profiles.
    pub compute: Compute,
    /// Uncompressed bytes of profiles that are proposed together, about.
    pub batch: usize,
    /// Bytes of uploads that may wait for a shard.
    pub waiting: ByteSize,
    /// Bytes of a shard's profiles that may be in no block yet.
    pub unregistered: ByteSize,
}

/// One shard, as its callers see it.
pub struct Shard {
    deps: ShardDeps,
    queue: mpsc::Sender<Job>,
    room: Arc<Semaphore>,
    kibibytes: usize,
    spare: Mutex<Vec<Intake>>,
    heads: Arc<Heads>,
    log: Replicated<Machine>,
}

/// The working parts of a shard, to be run as tasks.
pub struct Works {
    /// Prepares batches.
    pub preparer: Preparer,
    /// Proposes them.
    pub proposer: Proposer,
}

enum Job {
    Append(Request),
    Freeze(oneshot::Sender<()>),
}

struct Request {
    tenant: TenantId,
    limits: Arc<Limits>,
    uploads: Vec<Result<Intake, Status>>,
    raw_bytes: usize,
    answer: oneshot::Sender<Answered>,
    _room: OwnedSemaphorePermit,
}

enum Step {
    Batch(Box<Prepared>),
    Freeze(oneshot::Sender<()>, Arc<Head>),
}

/// A batch that is ready to be proposed, and those who wait for it.
struct Prepared {
    bytes: Bytes,
    batch: Batch,
    head: Arc<Head>,
    waiting: Vec<Waiting>,
}

/// Makes batches of requests.
pub struct Preparer {
    jobs: mpsc::Receiver<Job>,
    steps: mpsc::Sender<Step>,
    compute: Compute,
    batch: usize,
    state: Option<Box<Preparing>>,
}

struct Preparing {
    clock: Clock,
    window: Arc<Mutex<Window>>,
    head: Arc<Head>,
    fresh: bool,
    boot: u64,
    batches: u64,
    stamp: u64,
    stamped: Duration,
    failures: Arc<Mutex<u64>>,
    seen_failures: u64,
}

/// Proposes batches, one at a time.
pub struct Proposer {
    steps: mpsc::Receiver<Step>,
    log: Replicated<Machine>,
    proposed: Arc<Proposed>,
    heads: Arc<Heads>,
    failures: Arc<Mutex<u64>>,
    /// Batches prepared before a failure that must fail as well.
    poisoned: bool,
}

impl Shard {
    /// A shard on its log, and its working parts.
    pub fn new(
        deps: ShardDeps,
        heads: Arc<Heads>,
        proposed: Arc<Proposed>,
        log: Replicated<Machine>,
    ) -> (Self, Works) {
        let (queue, jobs) = mpsc::channel(QUEUE);
        let (to_proposer, steps) = mpsc::channel(1);
        let failures = Arc::new(Mutex::new(0));
        let window = log.with(Machine::window);
        let stamp = lock(&window).stamp();
        let state = Box::new(Preparing {
            clock: deps.clock.clone(),
            // What was read from the log may have said more names than this process knows.
            head: Arc::new(Head::new(0, deps.clock.monotonic())),
            fresh: true,
            boot: deps.random.next_u64() << 32,
            batches: 0,
            stamp,
            window,
            stamped: deps.clock.monotonic(),
            failures: Arc::clone(&failures),
            seen_failures: 0,
        });
        let preparer = Preparer {
            jobs,
            steps: to_proposer,
            compute: deps.compute.clone(),
            batch: deps.batch,
            state: Some(state),
        };
        let proposer = Proposer {
            steps,
            log: log.clone(),
            proposed,
            heads: Arc::clone(&heads),
            failures,
            poisoned: false,
        };
        let kibibytes = (deps.waiting.get() / 1024).clamp(1, Semaphore::MAX_PERMITS as u64) as usize;
        let room = Arc::new(Semaphore::new(kibibytes));
        (
            Self { deps, queue, room, kibibytes, spare: Mutex::default(), heads, log },
            Works { preparer, proposer },
        )
    }

    /// The shard's rows.
    pub fn heads(&self) -> &Arc<Heads> {
        &self.heads
    }
    /// The shard's log.
    pub fn log(&self) -> &Replicated<Machine> {
        &self.log
    }

    /// How many entries of the log were acknowledged and lost, after one index and up to another: themselves, or what
    /// they build on.
    pub fn lost(&self, range: Range<u64>) -> u64 {
        let within = |(first, count): (u64, u64)| {
            let end = first.saturating_add(count).min(range.end.saturating_add(1));
            end.saturating_sub(first.max(range.start.saturating_add(1)))
        };
        let unreadable = self.log.with(|machine| machine.unreadable(range.clone()));
        self.log.lost().into_iter().map(within).sum::<u64>() + unreadable
    }

    /// Stores the uploads of one request: when this returns they are durable and visible.
    pub async fn append(&self, tenant: &TenantId, uploads: Vec<Upload>) -> Vec<Result<Stored, Status>> {
        let count = uploads.len();
        match self.enqueue(tenant, uploads).await {
            Ok(answer) => match answer.await {
                Ok((answers, spare)) => {
                    let mut kept = lock(&self.spare);
                    kept.extend(spare);
                    kept.truncate(SPARE);
                    answers
                }
                Err(_) => vec![Err(stopping()); count],
            },
            Err(status) => vec![Err(status); count],
        }
    }

    async fn enqueue(
        &self,
        tenant: &TenantId,
        uploads: Vec<Upload>,
    ) -> Result<oneshot::Receiver<Answered>, Status> {
        let sent: usize = uploads.iter().map(|upload| upload.pprof.len()).sum();
        // A request that is larger than all the room waits alone.
        let kibibytes = u32::try_from(sent.div_ceil(1024).min(self.kibibytes)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).try_acquire_many_owned(kibibytes).map_err(|_| {
            let message = format!(
                "{} of profiles wait for this shard already; send them again later",
                self.deps.waiting
            );
            Status::new(Code::Exhausted, message).after(BUSY)
        })?;
        if self.heads.unregistered_bytes() as u64 > self.deps.unregistered.get() {
            let message = format!(
                "{} of profiles are in no block yet, which is the limit (ingester.unregistered): the bucket does not take them fast enough",
                self.deps.unregistered
            );
            return Err(Status::new(Code::Exhausted, message).after(BUSY));
        }
        let limits = self.deps.overrides.of(tenant);
        let now = self.deps.clock.wall();
        let mut read = Vec::with_capacity(uploads.len());
        let mut raw_bytes = 0;
        for upload in uploads {
            let spare = lock(&self.spare).pop();
            let mut intake = spare.unwrap_or_default();
            let (tenant, limits, drawn) = (tenant.clone(), Arc::clone(&limits), self.deps.random.id128());
            let walked = self
                .deps
                .compute
                .run(move || intake.read(&tenant, upload, &limits, now, drawn).map(|()| intake));
            let walked = walked.await.map_err(|error| Status::of(&error)).flatten();
            raw_bytes += walked.as_ref().map_or(0, |intake| intake.raw_bytes());
            read.push(walked);
        }
        let (answer, answered) = oneshot::channel();
        let request =
            Request { tenant: tenant.clone(), limits, uploads: read, raw_bytes, answer, _room: room };
        self.queue.send(Job::Append(request)).await.map_err(|_| stopping())?;
        Ok(answered)
    }

    /// Freezes the head: when this returns, all that was acknowledged before is in frozen heads.
    pub async fn freeze(&self) -> Result<(), Status> {
        let (done, frozen) = oneshot::channel();
        self.queue.send(Job::Freeze(done)).await.map_err(|_| stopping())?;
        frozen.await.map_err(|_| stopping())
    }
}

fn stopping() -> Status {
    Status::new(Code::Unavailable, "this shard is stopping; send it again")
}

impl Preparer {
    /// Runs until the shard is dropped. Whoever waits when this is dropped is told that the shard is stopping.
    pub async fn run(mut self) {
        let mut next = self.jobs.recv().await;
        while let Some(job) = next.take() {
            let sent = match job {
                Job::Freeze(done) => {
                    let state = self.state.as_mut().expect("it is put back after each batch");
                    let head = state.renew();
                    self.steps.send(Step::Freeze(done, head)).await.is_ok()
                }
                Job::Append(request) => {
                    let mut requests = vec![request];
                    next = gather(&mut self.jobs, &mut requests, self.batch);
                    match self.prepare(requests).await {
                        Some(prepared) => self.steps.send(Step::Batch(prepared)).await.is_ok(),
                        None => true,
                    }
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

    async fn prepare(&mut self, requests: Vec<Request>) -> Option<Box<Prepared>> {
        let mut state = self.state.take().expect("it is put back after each batch");
        let worked = self.compute.run(move || {
            let prepared = state.prepare(requests);
            (state, prepared)
        });
        match worked.await {
            Ok((state, prepared)) => {
                self.state = Some(state);
                prepared
            }
            Err(error) => {
                // Half a batch may be in the head's names: nothing may follow it.
                tracing::error!(%error, "preparing a batch failed; the shard takes no more profiles");
                self.jobs.close();
                None
            }
        }
    }
}

/// Takes what waits, up to the size of a batch; gives back what is for another one.
fn gather(jobs: &mut mpsc::Receiver<Job>, requests: &mut Vec<Request>, batch: usize) -> Option<Job> {
    let mut bytes: usize = requests.iter().map(|request| request.raw_bytes).sum();
    let mut uploads: usize = requests.iter().map(|request| request.uploads.len()).sum();
    while bytes < batch && uploads < MOST {
        match jobs.try_recv() {
            Ok(Job::Append(request)) if bytes + request.raw_bytes > batch => {
                return Some(Job::Append(request));
            }
            Ok(Job::Append(request)) => {
                bytes += request.raw_bytes;
                uploads += request.uploads.len();
                requests.push(request);
            }
            Ok(other) => return Some(other),
            Err(_) => return None,
        }
    }
    None
}

impl Preparing {
    /// Begins a new generation.
    fn renew(&mut self) -> Arc<Head> {
        self.head = Arc::new(Head::new(0, self.clock.monotonic()));
        self.fresh = true;
        Arc::clone(&self.head)
    }

    fn prepare(&mut self, requests: Vec<Request>) -> Option<Box<Prepared>> {
        let failures = *lock(&self.failures);
        if failures != self.seen_failures {
            // What was said last did not reach the log.
            self.seen_failures = failures;
            self.renew();
        }
        let mut batch = Batch::default();
        let mut places: HashMap<TenantId, u32> = HashMap::new();
        let mut waiting = Vec::with_capacity(requests.len());
        for request in requests {
            let Request { tenant, limits, uploads, answer, .. } = request;
            batch.window = batch.window.max(remembered(&limits));
            let place = *places.entry(tenant.clone()).or_insert_with(|| {
                batch.tenants.push(TenantPart { tenant: tenant.to_string(), ..TenantPart::default() });
                batch.tenants.len() as u32 - 1
            });
            let rows = self.head.rows(&tenant);
            let mut rows = write(&rows);
            let mut equals = Equals::default();
            let mut spare = Vec::new();
            let placed = uploads.into_iter().map(|intake| {
                let mut intake = intake?;
                let placed = intake.place(&mut rows, &limits, &mut equals, &mut batch);
                intake.forget();
                spare.push(intake);
                let (records, taken) = placed?;
                if let Some(stored) = self.stored(&records) {
                    batch.rows.truncate(records[0].rows.start);
                    return Ok((Placed::Before(stored), taken));
                }
                batch.uploads.push(Admitted { tenant: place, records });
                Ok((Placed::In(batch.uploads.len() - 1), taken))
            });
            let uploads = placed.collect();
            waiting.push(Waiting { uploads, spare, answer });
        }
        if batch.uploads.iter().all(|upload| upload.records.is_empty()) {
            // Nothing to store, and nothing that a log need know.
            waiting.into_iter().for_each(|waiting| waiting.answer(&Ok(Applied::Done)));
            return None;
        }
        self.finish(batch, waiting)
    }

    /// How many records there are, if there are some and each is stored already.
    fn stored(&self, records: &[Record]) -> Option<u32> {
        // Not the machine's own lock: whoever applies holds it, and may wait for the rows that are held here.
        let window = lock(&self.window);
        let known = records.iter().all(|record| window.shows(record.id));
        (!records.is_empty() && known).then_some(records.len() as u32)
    }

    fn finish(&mut self, mut batch: Batch, waiting: Vec<Waiting>) -> Option<Box<Prepared>> {
        for part in &mut batch.tenants {
            let Ok(tenant) = part.tenant.parse() else { continue };
            let rows = self.head.rows(&tenant);
            let mut rows = write(&rows);
            *part = rows.unsaid(std::mem::take(&mut part.tenant));
            rows.mark_said();
        }
        let now = self.clock.monotonic();
        self.stamp += u64::try_from(now.saturating_sub(self.stamped).as_nanos()).unwrap_or(u64::MAX);
        self.stamped = now;
        self.batches += 1;
        batch.token = self.boot | self.batches;
        batch.stamp = self.stamp;
        if std::mem::take(&mut self.fresh) {
            self.head.holds(batch.token);
        }
        batch.generation = self.head.generation();
        let bytes = batch.encode().into();
        Some(Box::new(Prepared { bytes, batch, head: Arc::clone(&self.head), waiting }))
    }
}

/// How long the ids of a tenant's records are remembered, nanoseconds (E11).
fn remembered(limits: &Limits) -> u64 {
    let span = if limits.reject_older_than.is_zero() {
        ANY_AGE
    } else {
        limits.reject_older_than + limits.reject_newer_than + MARGIN
    };
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Proposer {
    /// Runs until the preparer is gone.
    pub async fn run(mut self) {
        while let Some(step) = self.steps.recv().await {
            match step {
                Step::Freeze(done, head) => {
                    self.heads.begin(head);
                    // Whoever asked may have left.
                    let _ = done.send(());
                }
                Step::Batch(prepared) => self.propose(*prepared).await,
            }
        }
    }

    async fn propose(&mut self, prepared: Prepared) {
        let Prepared { bytes, batch, head, waiting } = prepared;
        if batch.is_fresh() {
            self.poisoned = false;
            if !Arc::ptr_eq(&self.heads.current(), &head) {
                self.heads.begin(Arc::clone(&head));
            }
        }
        let applied = if self.poisoned {
            Err(Status::new(Code::Unavailable, "an earlier write to this shard failed; send it again"))
        } else {
            self.proposed.put(batch, head);
            self.log.propose(bytes).await.map(|(_, applied)| applied).map_err(|error| Status::of(&error))
        };
        if applied.is_err() && !self.poisoned {
            self.poisoned = true;
            *lock(&self.failures) += 1;
        }
        waiting.into_iter().for_each(|waiting| waiting.answer(&applied));
    }
}
