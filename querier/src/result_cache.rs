//! Answers that were given before, to the same request: given again as long as they would be made of the same blocks, and
//! of nothing else.
//!
//! Blocks never change, so what was made of some stays true of them. What lies in heads does change: an answer in which a
//! head had part is not kept, and one that was kept is given again only after a new listing and a new word of all leaders
//! [INV-17] that nothing of theirs belongs into it. Whatever else comes to decide what blocks answer has to go into
//! [`QueryPlan::block_provenance`](crate::QueryPlan::block_provenance) [INV-19].
//!
//! Requests that come at once are one, as far as they may be ([`RequestCoalescer`]).

use std::future::Future;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::memory_budget::{MemoryBudget, MemoryReservation};
use athanor_chassis::{ByteSize, ErrorCode, Status, TenantLimits};
use athanor_profile::hash::{self, ContentHash};
use athanor_query::TimeRange;
use futures::future::join_all;
use moka::sync::Cache;
use prost::Message;

use crate::coalescer::{CoalescingLeader, JoinOutcome, RequestCoalescer, RequestKey};
use crate::limits;
use crate::{Querier, QueryContext};

/// Who asks what another one asks waits for that an eighth of the time that it has.
const WAIT_TIME_DIVISOR: u32 = 8;
/// What an entry takes beside its bytes, about.
const CACHE_ENTRY_OVERHEAD_BYTES: usize = 512;
/// How long it may take to learn that an answer still holds: finding it anew is then no worse.
const REVALIDATION_TIMEOUT: Duration = Duration::from_secs(1);

/// Hashes alike in every run.
type ResultCacheHasher = BuildHasherDefault<DefaultHasher>;

/// What was answered, by all that was asked.
pub(crate) struct ResultCache {
    limit: ByteSize,
    kept: Cache<RequestKey, Arc<CachedResult>, ResultCacheHasher>,
    together: Arc<RequestCoalescer<Result<SharedResult, Status>>>,
    hits: AtomicU64,
    misses: AtomicU64,
    joined: AtomicU64,
    damaged: AtomicU64,
}

/// How useful it is to keep answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResultCacheStats {
    /// What they take.
    pub bytes: u64,
    /// What they may take.
    pub limit: u64,
    /// Requests that were answered so.
    pub hits: u64,
    /// Those that might have been, and were answered anew.
    pub misses: u64,
    /// Requests that were told what an equal one was answered, which was under way.
    pub joined: u64,
    /// Kept answers that were not what had been kept.
    pub damaged: u64,
}

struct CachedResult {
    made: Vec<ResultProvenance>,
    bytes: Vec<u8>,
    sum: ContentHash,
    /// The room that the answer took when it was put together.
    room: usize,
}

/// An answer that is to be written.
struct PendingInsert {
    /// As what it is kept, if it is.
    kept_as: Option<RequestKey>,
    /// Somebody waits for it.
    is_awaited: bool,
    made: Vec<ResultProvenance>,
    /// The room that it took when it was put together.
    held: usize,
    missing: Vec<String>,
    room: Arc<MemoryBudget>,
}

/// What those are told who ask the same at once.
#[derive(Clone)]
struct SharedResult {
    kept: Arc<CachedResult>,
    /// What the answer lacks, in words.
    missing: Arc<[String]>,
    /// The room of its bytes, where they are not kept.
    _room: Option<Arc<MemoryReservation>>,
}

/// What decides whether the answer of all sources to one question still holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResultProvenance {
    /// Of which time it is, and how long before the time that was named that begins.
    pub(crate) time: TimeRange,
    pub(crate) lead: Duration,
    /// Of what it was made: [`QueryPlan::block_provenance`](crate::QueryPlan::block_provenance) of all tenants.
    pub(crate) of: Option<ContentHash>,
}

/// What can be kept.
pub(crate) trait CacheableResult: Sized {
    /// How many bytes it is.
    fn encoded_size(&self) -> usize;
    /// As bytes.
    fn to_bytes(&self) -> Vec<u8>;
    /// From those.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

impl<M: Message + Default> CacheableResult for M {
    fn encoded_size(&self) -> usize {
        self.encoded_len()
    }

    fn to_bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        M::decode(bytes).ok()
    }
}

impl ResultCache {
    /// At most so many bytes.
    pub(crate) fn new(limit: ByteSize) -> Self {
        let weigh = |key: &RequestKey, kept: &Arc<CachedResult>| {
            let made = kept.made.len() * size_of::<ResultProvenance>();
            u32::try_from(key.len() + kept.bytes.len() + made + CACHE_ENTRY_OVERHEAD_BYTES)
                .unwrap_or(u32::MAX)
        };
        let kept = Cache::builder()
            .max_capacity(limit.get())
            .weigher(weigh)
            .build_with_hasher(ResultCacheHasher::default());
        let (together, hits, misses, joined, damaged) = Default::default();
        Self { limit, kept, together, hits, misses, joined, damaged }
    }

    pub(crate) fn stats(&self) -> ResultCacheStats {
        // What came last is not weighed yet.
        self.kept.run_pending_tasks();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ResultCacheStats {
            bytes: self.kept.weighted_size(),
            limit: self.limit.get(),
            hits: read(&self.hits),
            misses: read(&self.misses),
            joined: read(&self.joined),
            damaged: read(&self.damaged),
        }
    }

    fn is_on(&self) -> bool {
        self.limit.get() > 0
    }

    /// Writes an answer, if there is room for that: keeps it where that is wanted, unless it would only drive out others, and
    /// has it for those who wait.
    fn insert_result(&self, answer: &impl CacheableResult, of: PendingInsert) -> Option<SharedResult> {
        let PendingInsert { kept_as, is_awaited, made, held, missing, room } = of;
        let size = answer.encoded_size();
        let kept_as = kept_as.filter(|_| (size as u64) < self.limit.get() / 4);
        if kept_as.is_none() && !is_awaited {
            return None;
        }
        let written = room.reserve(size).ok()?;
        let bytes = answer.to_bytes();
        let sum = hash::hash_bytes(&bytes);
        // As it is, and as bytes on its way.
        let kept = Arc::new(CachedResult { made, bytes, sum, room: held.max(size.saturating_mul(2)) });
        let room = kept_as.is_none().then(|| Arc::new(written));
        if let Some(key) = kept_as {
            self.kept.insert(key, Arc::clone(&kept));
        }
        Some(SharedResult { kept, missing: missing.into(), _room: room })
    }
}

impl Querier {
    /// The answer to a request that was given before, if it still holds, or that is given to an equal one at the moment; else
    /// `answer`, which is kept if it can be.
    pub(crate) async fn run_cached<M, A, F>(
        &self,
        reader: &QueryContext,
        method: &str,
        request: M,
        answer: impl FnOnce(M) -> F,
    ) -> Result<A, Status>
    where
        M: Message,
        A: CacheableResult + Send + Sync + 'static,
        F: Future<Output = Result<A, Status>>,
    {
        let limits = &self.limits(reader);
        let key = self.request_key(reader, limits, method, &request.encode_to_vec());
        let lead = match self.join_in_flight(reader, &key).await {
            JoinOutcome::Lead(lead) => Some(lead),
            JoinOutcome::Alone => None,
            JoinOutcome::Told(told) => match self.decode_shared(reader, told).await? {
                Some(answer) => return Ok(answer),
                None => None,
            },
        };
        let answered = match self.get_cached(reader, limits, &key).await {
            Ok(Some((answer, told))) => Ok((answer, Some(told))),
            Ok(None) => match answer(request).await {
                Ok(answer) => self.store_result(reader, key, lead.as_ref(), answer).await,
                Err(status) => Err(status),
            },
            Err(status) => Err(status),
        };
        if let Some(lead) = lead {
            match &answered {
                Ok((_, Some(told))) => lead.share_result(Ok(told.clone())),
                // Others may wait longer.
                Err(status) if status.code != ErrorCode::Deadline => lead.share_result(Err(status.clone())),
                Ok((_, None)) | Err(_) => drop(lead),
            }
        }
        answered.map(|(answer, _)| answer)
    }

    /// Waits for who asks the same, if somebody does, for a part of its time: who has waited until the end could not ask itself.
    async fn join_in_flight(
        &self,
        reader: &QueryContext,
        key: &RequestKey,
    ) -> JoinOutcome<Result<SharedResult, Status>> {
        let clock = &self.deps.clock;
        let left = reader.deadline(clock).saturating_sub(clock.monotonic());
        let heard = clock
            .timeout(left / WAIT_TIME_DIVISOR, self.answers.together.join(key, reader.planned_flag()))
            .await;
        heard.unwrap_or(JoinOutcome::Alone)
    }

    /// The answer to an equal request that was under way; none where it was damaged since.
    async fn decode_shared<A: CacheableResult + Send + 'static>(
        &self,
        reader: &QueryContext,
        told: Result<SharedResult, Status>,
    ) -> Result<Option<A>, Status> {
        let SharedResult { kept, missing, _room } = told?;
        let room = kept.bytes.len().saturating_mul(2);
        let answer = self.decode_cached(reader, kept, room).await?;
        if answer.is_some() {
            self.answers.joined.fetch_add(1, Ordering::Relaxed);
            reader.add_warnings(missing.to_vec());
            reader.record_coalesced();
        }
        Ok(answer)
    }

    /// What was answered before, if that still holds; and as others are told it.
    async fn get_cached<A: CacheableResult + Send + 'static>(
        &self,
        reader: &QueryContext,
        limits: &TenantLimits,
        key: &RequestKey,
    ) -> Result<Option<(A, SharedResult)>, Status> {
        let Some(kept) = self.answers.kept.get(key) else { return Ok(None) };
        let of = Arc::clone(&kept);
        // All nodes are asked whether it holds, so that has its turn as a question has.
        let look = |turn| async move {
            let told = self.revalidate(reader, limits, of).await;
            drop(turn);
            told
        };
        if let Some(answer) = self.with_permit(reader, limits, look).await? {
            self.answers.hits.fetch_add(1, Ordering::Relaxed);
            reader.record_cache_hit();
            return Ok(Some((answer, SharedResult { kept, missing: Arc::default(), _room: None })));
        }
        self.answers.misses.fetch_add(1, Ordering::Relaxed);
        // Nobody is to look at it once more.
        self.answers.kept.invalidate(key);
        Ok(None)
    }

    /// An answer; and as others are told it, where it is kept or somebody waits for it.
    async fn store_result<A: CacheableResult + Send + Sync + 'static>(
        &self,
        reader: &QueryContext,
        key: RequestKey,
        lead: Option<&CoalescingLeader<Result<SharedResult, Status>>>,
        answer: A,
    ) -> Result<(A, Option<SharedResult>), Status> {
        let made = reader.result_provenance();
        let missing = reader.all_warnings();
        let is_of_blocks = !made.is_empty() && made.iter().all(|made| made.of.is_some());
        let is_kept = self.answers.is_on() && is_of_blocks && missing.is_empty();
        let is_awaited = lead.is_some_and(CoalescingLeader::has_waiters);
        if !is_kept && !is_awaited {
            return Ok((answer, None));
        }
        let kept_as = is_kept.then_some(key);
        let held = reader.held_bytes();
        let room = self.response_budget_for(reader);
        let of = PendingInsert { kept_as, is_awaited, made, held, missing, room };
        let answers = Arc::clone(&self.answers);
        self.compute_on_pool(reader, move || {
            let told = answers.insert_result(&answer, of);
            (answer, told)
        })
        .await
    }

    /// Reads what was written; none where it was damaged since.
    async fn decode_cached<A: CacheableResult + Send + 'static>(
        &self,
        reader: &QueryContext,
        kept: Arc<CachedResult>,
        room: usize,
    ) -> Result<Option<A>, Status> {
        self.reserve_memory(reader, room)?;
        let read =
            move || (hash::hash_bytes(&kept.bytes) == kept.sum).then(|| A::from_bytes(&kept.bytes)).flatten();
        let answer = self.compute_on_pool(reader, read).await?;
        if answer.is_none() {
            self.answers.damaged.fetch_add(1, Ordering::Relaxed);
        }
        Ok(answer)
    }

    async fn revalidate<A: CacheableResult + Send + 'static>(
        &self,
        reader: &QueryContext,
        limits: &TenantLimits,
        kept: Arc<CachedResult>,
    ) -> Result<Option<A>, Status> {
        let clock = &self.deps.clock;
        let left = reader.deadline(clock).saturating_sub(clock.monotonic());
        if !matches!(
            clock
                .timeout(left.min(REVALIDATION_TIMEOUT), self.is_still_valid(reader, limits, &kept.made))
                .await,
            Ok(true)
        ) {
            return Ok(None);
        }
        let room = kept.room;
        self.decode_cached(reader, kept, room).await
    }

    /// Whether an answer would be made of the same.
    async fn is_still_valid(
        &self,
        reader: &QueryContext,
        limits: &TenantLimits,
        made: &[ResultProvenance],
    ) -> bool {
        let all = made.iter().map(|of| self.has_same_provenance(reader, limits, of));
        join_all(all).await.into_iter().all(|holds| holds)
    }

    /// Whether the answer to one question would be.
    async fn has_same_provenance(
        &self,
        reader: &QueryContext,
        limits: &TenantLimits,
        made: &ResultProvenance,
    ) -> bool {
        let ResultProvenance { time, lead, of } = *made;
        match limits::clamp_time_range(limits, self.deps.clock.wall(), time, lead) {
            Ok((within, None)) if within == time => {}
            _ => return false,
        }
        let still = reader.tenants().iter().map(|tenant| self.deps.sources.block_provenance(tenant, time));
        let still: Option<Vec<ContentHash>> =
            join_all(still).await.into_iter().map(|made_of| made_of.ok().flatten()).collect();
        still.is_some_and(|still| Some(hash::hash_list(&still)) == of)
    }

    /// All that decides what is answered, beside what there is: each part behind its length, so that no two are alike.
    fn request_key(
        &self,
        reader: &QueryContext,
        limits: &TenantLimits,
        method: &str,
        request: &[u8],
    ) -> RequestKey {
        let nodes = [limits.max_flamegraph_nodes_default, limits.max_flamegraph_nodes_max].map(u64::from);
        let mut key = Vec::new();
        let mut part = |bytes: &[u8]| {
            key.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            key.extend_from_slice(bytes);
        };
        part(method.as_bytes());
        part(&[u8::from(reader.utf8_labels)]);
        part(&nodes.map(u64::to_le_bytes).concat());
        part(&(reader.tenants().len() as u64).to_le_bytes());
        for tenant in reader.tenants() {
            part(tenant.as_str().as_bytes());
            let most = self.deps.overrides.for_tenant(tenant).max_query_bytes;
            part(&most.map_or(u64::MAX, ByteSize::get).to_le_bytes());
        }
        part(request);
        key.into()
    }
}
