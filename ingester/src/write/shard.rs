//! Shard on its leader: batches uploads, proposes one batch at a time to the log, and returns the results.
//!
//! ```text
//!  append ─► decode (many at once) ─► queue ─► prepare ─► propose ─► applied ─► results
//!                                              next batch │ in flight
//! ```
//!
//! Queued requests are batched together. So a batch grows with the load, and no timer is needed.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::ShardId;
use athanor_chassis::memory_budget::{BudgetLimit, MemoryBudget, MemoryReservation};
use athanor_chassis::{
    ByteSize, Clock, ComputePool, ErrorCode, ErrorCodeExt, LimitOverrides, Random, Status, TenantId,
    TenantLimits, Timestamp,
};
use athanor_consensus::RaftGroup;
use athanor_consensus::log::LogError;
use athanor_consensus::replicated::ProposeError;
use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::store_interface::upload::ProfileUpload;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::admission::SHARD_BUSY_RETRY_AFTER;
use crate::decode::decode_pool::DecodePool;
use crate::decode::decoded_upload::{DecodedUpload, OccurrenceCounts};
use crate::head_store::generations::ShardHeads;
use crate::head_store::head::HeadSize;
use crate::log::entry::{FIRST_TABLE_VERSION, ShardLogEntry};
use crate::log::state_machine::ShardStateMachine;
use crate::stats::{FlushStats, ShardStats};
use crate::window::DedupWindow;
use crate::write::batcher::{BatcherDeps, QueuedRequest, RequestContent, UploadBatcher, WriteJob};
use crate::write::leader_term::{LeaderTerm, TermStart};
use crate::write::pending_append::AppendResults;
use crate::write::proposer::BatchProposer;

pub use crate::write::pending_append::StoredUpload;

/// Maximum number of requests in the queue of a shard.
const MAX_QUEUED_REQUESTS: usize = 4096;
/// Divisor of an entry's size that gives the size of a chunk. A request is split into chunks of that size, or
/// of one profile, since its encoding may exceed its raw bytes.
pub(crate) const CHUNKS_PER_ENTRY: usize = 8;

/// Dependencies that the shards of a node share.
#[derive(Clone)]
pub struct ShardDeps {
    /// Limits of all tenants: default and exceptions.
    pub overrides: LimitOverrides,
    /// Wall and monotonic clock of the node.
    pub clock: Clock,
    /// Source of random numbers.
    pub random: Random,
    /// Thread pool that prepares batches.
    pub compute: ComputePool,
    /// Decoders of profiles, for all shards.
    pub walkers: Arc<DecodePool>,
    /// Maximum bytes of a log entry [INV-06].
    pub entry: usize,
    /// Maximum bytes of queued uploads per shard.
    pub waiting: ByteSize,
    /// Maximum ids in the dedup window.
    pub ids: u64,
}

/// Shard that this node leads, as its callers use it.
pub struct LeaderShard {
    deps: ShardDeps,
    queue: mpsc::Sender<WriteJob>,
    budget: Arc<MemoryBudget>,
    reign: Arc<LeaderTerm>,
    window: Arc<Mutex<DedupWindow>>,
    log: RaftGroup<ShardStateMachine>,
}

/// Workers of a shard, to be run as tasks.
pub struct ShardWorkers {
    /// Worker that prepares batches.
    pub preparer: UploadBatcher,
    /// Worker that proposes prepared batches.
    pub proposer: BatchProposer,
}

impl LeaderShard {
    /// Creates the shard of a leader term that has started, and its workers.
    pub fn new(
        deps: ShardDeps,
        reign: Arc<LeaderTerm>,
        begun: TermStart,
        log: RaftGroup<ShardStateMachine>,
        over: CancellationToken,
    ) -> (Self, ShardWorkers) {
        let (queue, jobs) = mpsc::channel(MAX_QUEUED_REQUESTS);
        let (to_proposer, steps) = mpsc::channel(1);
        let failures = Arc::new(Mutex::new(0));
        let window = log.with_state_machine(ShardStateMachine::window);
        let begin = BatcherDeps {
            walkers: Arc::clone(&deps.walkers),
            entry: deps.entry,
            clock: deps.clock.clone(),
            random: deps.random.split(),
            window: Arc::clone(&window),
            since: (begun.stamp, begun.at),
            ids: deps.ids,
            counters: Arc::clone(reign.tracker()),
            failures: Arc::clone(&failures),
        };
        let preparer = UploadBatcher::new(jobs, to_proposer, deps.compute.clone(), begin);
        let proposer = BatchProposer::new(steps, log.clone(), Arc::clone(&reign), over, failures);
        let budget = MemoryBudget::new(BudgetLimit {
            limit: deps.waiting,
            setting: "ingester.max_queued_bytes_per_shard",
        });
        (Self { deps, queue, budget, reign, window, log }, ShardWorkers { preparer, proposer })
    }

    /// Returns the heads of the shard.
    pub fn heads(&self) -> &ShardHeads {
        self.reign.heads()
    }

    /// Returns the raft log of the shard.
    pub fn log(&self) -> &RaftGroup<ShardStateMachine> {
        &self.log
    }

    /// Returns whether this leader term observed the seal at an index, and no other term started. Then the
    /// heads hold all rows up to the seal that are in no block. A term that started after the seal has
    /// replayed all of them, even if damage took the seal itself.
    pub(crate) fn has_observed_seal(&self, at: u64) -> bool {
        let began_after = self.reign.term_start().is_some_and(|begun| begun.index > at);
        let saw = |machine: &ShardStateMachine| machine.log_status().sealed == Some(at) || began_after;
        self.log.with_state_machine(|machine| saw(machine) && machine.is_current_term(&self.reign))
    }

    /// Counts acknowledged entries after `range.start` and up to `range.end` that were lost, or that build on
    /// lost ones.
    pub fn count_lost(&self, range: Range<u64>) -> u64 {
        lost(&self.log, range.clone()) + self.reign.unreadable(&range)
    }

    /// Logs the values of cumulative series before a flush purges the entries with earlier values [INV-14],
    /// and at the seal. Each flush logs all values, since it purges those of earlier flushes. A nearly full
    /// disk rejects them, and must be flushed all the same. If another node then leads before the next flush,
    /// its series start without values.
    pub(crate) async fn log_delta_state(&self) -> Result<(), Status> {
        let remembered = Duration::from_nanos(self.window.lock().span());
        self.reign.tracker().evict_idle(remembered, self.deps.clock.monotonic());
        for piece in self.reign.tracker().write(self.deps.entry / CHUNKS_PER_ENTRY) {
            match self.log.propose(ShardLogEntry::encode_delta_state(&piece).into()).await {
                Ok(_) => {}
                Err(error @ ProposeError::Refused(LogError::Full { .. })) => {
                    tracing::warn!(%error, "failed to log delta state");
                    return Ok(());
                }
                Err(error) => return Err(Status::from_error(&error)),
            }
        }
        Ok(())
    }

    /// Returns statistics of the shard, except those of its flushes.
    pub(crate) fn stats(&self, shard: ShardId) -> ShardStats {
        let heads = self.heads().unflushed_heads();
        let now = self.deps.clock.monotonic();
        let mut size = HeadSize::default();
        for head in &heads {
            let HeadSize { bytes, profiles, series } = head.size();
            (size.bytes, size.profiles, size.series) =
                (size.bytes + bytes, size.profiles + profiles, size.series + series);
        }
        let oldest = heads.iter().find(|head| !head.is_empty()).map_or(now, |head| head.first_profile_at());
        let window_ids = {
            let window = self.window.lock();
            window.len_at(window.stamp())
        };
        let (counting_series, counting_bytes, counting) = self.reign.tracker().stats();
        ShardStats {
            shard,
            heads: size,
            head_bytes: heads.last().map_or(0, |head| head.bytes() as u64),
            oldest: now.saturating_sub(oldest),
            waiting_bytes: self.budget.stats().taken,
            window_ids,
            counting_series,
            counting_bytes,
            counting,
            lost_entries: self.count_lost(0..u64::MAX),
            cuts: FlushStats::default(),
            since_cut: Duration::ZERO,
        }
    }

    /// Stores the uploads of one request. On return, stored uploads are durable and visible.
    pub async fn append(
        &self,
        table: u64,
        tenant: &TenantId,
        uploads: Vec<ProfileUpload>,
    ) -> Vec<Result<StoredUpload, Status>> {
        let _room = match self.admit(&uploads) {
            Ok(room) => room,
            Err(status) => return vec![Err(status); uploads.len()],
        };
        let mut sending = ChunkedAppend::new(self, table, tenant);
        for upload in uploads {
            sending.add(upload).await;
        }
        sending.answers().await
    }

    fn admit(&self, uploads: &[ProfileUpload]) -> Result<MemoryReservation, Status> {
        let sent: usize = uploads.iter().map(|upload| upload.pprof.len()).sum();
        self.budget.try_reserve(sent as u64).map_err(|exceeded| {
            let message = format!("too many profiles are queued for this shard: {exceeded}; retry later");
            let status = Status::new(exceeded.code(), message).with_reason("shard_queue_full");
            status.with_retry_after(SHARD_BUSY_RETRY_AFTER)
        })
    }

    /// Freezes the head. On return, all rows that were acknowledged before are in frozen heads.
    pub async fn freeze(&self) -> Result<(), Status> {
        let (done, frozen) = oneshot::channel();
        self.queue.send(WriteJob::Freeze(done)).await.map_err(|_| stopping())?;
        frozen.await.unwrap_or_else(|_| Err(stopping()))
    }
}

/// Append request that is sent to the queue in chunks.
struct ChunkedAppend<'s> {
    shard: &'s LeaderShard,
    /// Version of the slot table by which the uploads were placed.
    routed: u64,
    tenant: &'s TenantId,
    limits: Arc<TenantLimits>,
    now: Timestamp,
    equals: OccurrenceCounts,
    /// Decoded uploads that are not sent yet.
    piece: Vec<Result<DecodedUpload, Status>>,
    raw_bytes: usize,
    room: Option<MemoryReservation>,
    /// Identity of each upload; none if it was not decoded.
    identities: Vec<Option<ContentHash>>,
    /// Number of uploads in each sent chunk, and the receiver of their results.
    sent: Vec<(usize, oneshot::Receiver<AppendResults>)>,
}

impl<'s> ChunkedAppend<'s> {
    fn new(shard: &'s LeaderShard, table: u64, tenant: &'s TenantId) -> Self {
        Self {
            shard,
            // A sender without a table has placed by the first one.
            routed: table.max(FIRST_TABLE_VERSION),
            tenant,
            limits: shard.deps.overrides.for_tenant(tenant),
            now: shard.deps.clock.wall(),
            equals: OccurrenceCounts::default(),
            piece: Vec::new(),
            raw_bytes: 0,
            room: None,
            identities: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// Decodes an upload. No decoded upload stays here while this waits for a permit or for memory.
    async fn add(&mut self, upload: ProfileUpload) {
        let walkers = &*self.shard.deps.walkers;
        let turn = match walkers.try_acquire() {
            Some(turn) => turn,
            None => {
                self.send().await;
                walkers.acquire_permit().await
            }
        };
        let tenant = self.tenant.clone();
        let limits = Arc::clone(&self.limits);
        let now = self.now;
        let read = move |intake: &mut DecodedUpload| intake.read(&tenant, upload, &limits, now);
        let walked = walkers.decode_upload(&turn, self.tenant, read).await;
        let walked = match walked {
            Ok(mut intake) => {
                let room = match walkers.try_reserve_memory(&intake) {
                    Some(room) => room,
                    None => {
                        self.send().await;
                        walkers.reserve_memory(&intake).await
                    }
                };
                match &mut self.room {
                    Some(all) => all.merge(room),
                    None => self.room = Some(room),
                }
                intake.count(&mut self.equals);
                if intake.raw_bytes() >= self.piece_bytes() {
                    // The uploads before it need not fit into the same entry.
                    self.send().await;
                }
                self.raw_bytes += intake.raw_bytes();
                Ok(intake)
            }
            Err(status) => Err(status),
        };
        self.identities.push(walked.as_ref().ok().map(DecodedUpload::identity));
        self.piece.push(walked);
        if self.raw_bytes >= self.piece_bytes() {
            self.send().await;
        }
    }

    fn piece_bytes(&self) -> usize {
        self.shard.deps.entry / CHUNKS_PER_ENTRY
    }

    /// Sends the decoded uploads to the queue.
    async fn send(&mut self) {
        if self.piece.is_empty() {
            return;
        }
        let (answer, answered) = oneshot::channel();
        let uploads = std::mem::take(&mut self.piece);
        self.sent.push((uploads.len(), answered));
        let tenant = self.tenant.clone();
        let limits = Arc::clone(&self.limits);
        let room = self.room.take();
        let raw_bytes = std::mem::take(&mut self.raw_bytes);
        let routed = self.routed;
        let request = QueuedRequest {
            content: RequestContent { tenant, routed, limits, raw_bytes, uploads, room },
            answer,
        };
        // If the batcher has ended, the receiver fails, too.
        let _ = self.shard.queue.send(WriteJob::Append(request)).await;
    }

    async fn answers(mut self) -> Vec<Result<StoredUpload, Status>> {
        self.send().await;
        let mut all = Vec::new();
        for (count, answered) in self.sent {
            all.extend(answered.await.unwrap_or_else(|_| vec![Err(stopping()); count]));
        }
        together(&mut all, &self.identities);
        all
    }
}

/// Aligns the results of equal uploads. They differ only by their number in the request [INV-02], and may be
/// in different entries. If one was not stored and may be later, all must be sent again: a retry of it alone
/// would have the number of a stored one.
fn together(answers: &mut [Result<StoredUpload, Status>], identities: &[Option<ContentHash>]) {
    let of = |(answer, identity): (&Result<StoredUpload, Status>, &Option<ContentHash>)| {
        let status = answer.as_ref().err().filter(|status| status.code.is_retryable())?;
        Some(((*identity)?, status.clone()))
    };
    let failed: HashMap<ContentHash, Status> = answers.iter().zip(identities).filter_map(of).collect();
    for (answer, identity) in answers.iter_mut().zip(identities) {
        if let Some(status) = identity.and_then(|identity| failed.get(&identity)) {
            *answer = Err(status.clone());
        }
    }
}

/// Counts lost entries after `range.start` and up to `range.end`.
pub(crate) fn lost(log: &RaftGroup<ShardStateMachine>, range: Range<u64>) -> u64 {
    let within = |(first, count): (u64, u64)| {
        let end = first.saturating_add(count).min(range.end.saturating_add(1));
        end.saturating_sub(first.max(range.start.saturating_add(1)))
    };
    let unreadable = log.with_state_machine(|machine| machine.unreadable(range.clone()));
    log.lost_entries().into_iter().map(within).sum::<u64>() + unreadable
}

fn stopping() -> Status {
    Status::new(ErrorCode::Unavailable, "this shard is stopping; retry")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// INV-02: alone it would be sent as the first of its kind, and taken for a repeat of the one that was stored.
    #[test]
    fn equal_uploads_are_sent_again_together() {
        let stored = || Ok(StoredUpload { new: 1, ..StoredUpload::default() });
        let (later, never) =
            (Status::new(ErrorCode::Unavailable, "later"), Status::new(ErrorCode::Invalid, "never"));
        let mut answers = vec![stored(), stored(), Err(later.clone()), Err(never.clone()), stored()];
        together(&mut answers, &[Some(1), Some(2), Some(1), None, Some(1)]);
        assert_eq!(answers, [Err(later.clone()), stored(), Err(later.clone()), Err(never), Err(later)]);
    }
}
