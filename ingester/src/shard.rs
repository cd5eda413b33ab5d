//! One shard: uploads come in, one proposal after the other goes into its log, answers go out.
//!
//! ```text
//!  append ─► read (many at once) ─► queue ─► prepare ─► propose ─► applied ─► answers
//!                                            next batch │ in flight
//! ```
//!
//! What waits is taken together, so that a batch grows with the load and no timer is needed.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use athanor_catalog::ShardId;
use athanor_chassis::{Activity, ByteSize, Clock, Code, Compute, Overrides, Random, Status, TenantId};
use athanor_consensus::Replicated;
use athanor_profile::upload::Upload;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::heads::Heads;
use crate::intake::Intake;
use crate::machine::{Machine, Proposed, lock};
use crate::prepare::{Begin, Content, Job, Preparer, Request};
use crate::propose::Proposer;
use crate::stats::{Cuts, HeadSize, ShardStats};
use crate::waiting::Answered;

pub use crate::waiting::Stored;

/// Requests that wait for a shard.
const QUEUE: usize = 4096;
/// What a client is told to wait when the queue is full.
const BUSY: Duration = Duration::from_secs(1);
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
        let begin = Begin {
            clock: deps.clock.clone(),
            random: deps.random.split(),
            window: log.with(Machine::window),
            failures: Arc::clone(&failures),
        };
        let preparer = Preparer::new(jobs, to_proposer, deps.compute.clone(), deps.batch, begin);
        let proposer = Proposer::new(steps, log.clone(), proposed, Arc::clone(&heads), failures);
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

    /// How it fares, but for its cuts.
    pub(crate) fn stats(&self, shard: ShardId) -> ShardStats {
        let heads = self.heads.unregistered();
        let now = self.deps.clock.monotonic();
        let mut size = HeadSize::default();
        for head in &heads {
            let HeadSize { bytes, profiles, series } = head.size();
            (size.bytes, size.profiles, size.series) =
                (size.bytes + bytes, size.profiles + profiles, size.series + series);
        }
        let oldest = heads.iter().find(|head| !head.is_empty()).map_or(now, |head| head.born());
        let window = self.log.with(Machine::window);
        ShardStats {
            shard,
            heads: size,
            head_bytes: heads.last().map_or(0, |head| head.bytes() as u64),
            oldest: now.saturating_sub(oldest),
            waiting_bytes: (self.kibibytes - self.room.available_permits()) as u64 * 1024,
            window_ids: lock(&window).len() as u64,
            lost_entries: self.lost(0..u64::MAX),
            cuts: Cuts::default(),
            since_cut: Duration::ZERO,
        }
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
            Status::new(Code::Exhausted, message).because("shard_queue_full").after(BUSY)
        })?;
        if self.heads.unregistered_bytes() as u64 > self.deps.unregistered.get() {
            let message = format!(
                "{} of profiles are in no block yet, which is the limit (ingester.unregistered): the bucket does not take them fast enough",
                self.deps.unregistered
            );
            return Err(Status::new(Code::Exhausted, message).because("unregistered_limit").after(BUSY));
        }
        let limits = self.deps.overrides.of(tenant);
        let now = self.deps.clock.wall();
        let mut read = Vec::with_capacity(uploads.len());
        let mut raw_bytes = 0;
        for upload in uploads {
            let spare = lock(&self.spare).pop();
            let mut intake = spare.unwrap_or_default();
            let (tenant, limits, drawn) = (tenant.clone(), Arc::clone(&limits), self.deps.random.id128());
            let walked = self.deps.compute.run_as(Activity::Walk, move || {
                intake.read(&tenant, upload, &limits, now, drawn).map(|()| intake)
            });
            let walked = walked.await.map_err(|error| Status::of(&error)).flatten();
            raw_bytes += walked.as_ref().map_or(0, |intake| intake.raw_bytes());
            read.push(walked);
        }
        let (answer, answered) = oneshot::channel();
        let content = Content { tenant: tenant.clone(), limits, uploads: read, room };
        let request = Request { content, raw_bytes, answer };
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
