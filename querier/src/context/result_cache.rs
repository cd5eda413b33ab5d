//! Cache of query results, by request. An entry is valid while the same blocks hold all matching data.
//!
//! Blocks are immutable, so a result stays true of its blocks. Heads change: a result with head data is never
//! cached. A cached result is returned only after a new listing and a new report from all leaders [INV-17]
//! that no head data matches the query. Everything else that decides the results of blocks must be part of
//! [`QueryPlan::made_of`](crate::QueryPlan::made_of) [INV-19].
//!
//! Concurrent equal requests share one computation where that is allowed ([`RequestCoalescer`]).

use std::future::Future;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::requests::result_budget::{ResultBudget, ResultReservation};
use athanor_chassis::{ByteSize, ErrorCode, Status, TenantLimits};
use athanor_profile::encoding::hash::{self, ContentHash};
use athanor_query::TimeRange;
use futures::future::join_all;
use moka::sync::Cache;
use prost::Message;

use crate::context::coalescer::{CoalescingLeader, JoinOutcome, RequestCoalescer, RequestKey};
use crate::context::limits;
use crate::{Querier, QueryContext};

/// Part of its remaining time for which a request waits for an equal one: an eighth.
const WAIT_TIME_DIVISOR: u32 = 8;
/// Approximate memory of an entry beside its bytes.
const CACHE_ENTRY_OVERHEAD_BYTES: usize = 512;
/// Timeout of the check that a cached result is still valid. A longer check would cost as much as a new
/// query.
const REVALIDATION_TIMEOUT: Duration = Duration::from_secs(1);

/// Hasher with the same results in every run.
type ResultCacheHasher = BuildHasherDefault<DefaultHasher>;

/// Cache of encoded results by request key.
pub(crate) struct ResultCache {
    limit: ByteSize,
    kept: Cache<RequestKey, Arc<CachedResult>, ResultCacheHasher>,
    together: Arc<RequestCoalescer<Result<SharedResult, Status>>>,
    hits: AtomicU64,
    misses: AtomicU64,
    joined: AtomicU64,
    damaged: AtomicU64,
}

/// Counters of the result cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResultCacheStats {
    /// Memory of all entries.
    pub bytes: u64,
    /// Memory limit of the cache.
    pub limit: u64,
    /// Requests that returned a cached result.
    pub hits: u64,
    /// Requests with a stale cached result, which was recomputed.
    pub misses: u64,
    /// Requests that returned the result of an equal request in flight.
    pub joined: u64,
    /// Cached results with a wrong checksum.
    pub damaged: u64,
}

struct CachedResult {
    made: Vec<ResultProvenance>,
    bytes: Vec<u8>,
    sum: ContentHash,
    /// Memory that the result held when it was computed.
    room: usize,
}

/// Result to be encoded.
struct PendingInsert {
    /// Key of the cache entry. None if the result is not cached.
    kept_as: Option<RequestKey>,
    /// True if an equal request waits for the result.
    is_awaited: bool,
    made: Vec<ResultProvenance>,
    /// Memory that the result held when it was computed.
    held: usize,
    warnings: Vec<String>,
    room: Arc<ResultBudget>,
}

/// Encoded result that concurrent equal requests share.
#[derive(Clone)]
struct SharedResult {
    kept: Arc<CachedResult>,
    /// Warnings about data that the result lacks.
    warnings: Arc<[String]>,
    /// Memory of the bytes if they are not cached.
    _room: Option<Arc<ResultReservation>>,
}

/// Facts that decide whether the result of one query is still valid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResultProvenance {
    /// Time range of the result, and the lead that it adds before the requested range.
    pub(crate) time: TimeRange,
    pub(crate) lead: Duration,
    /// Block hash of all tenants: [`QueryPlan::made_of`](crate::QueryPlan::made_of).
    pub(crate) of: Option<ContentHash>,
}

/// Response that the cache can store.
pub(crate) trait CacheableResult: Sized {
    /// Returns the encoded size in bytes.
    fn encoded_size(&self) -> usize;
    /// Encodes the response.
    fn to_bytes(&self) -> Vec<u8>;
    /// Decodes a response. Returns none if the bytes are invalid.
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
    /// Creates a cache of at most `limit` bytes.
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
        // New entries are weighed only by pending tasks.
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

    /// Encodes a result if the memory budget allows it. Inserts it into the cache if that is intended, and
    /// shares it with waiting requests. Results of at least a quarter of the cache are not inserted: they
    /// would only evict others.
    fn insert_result(&self, answer: &impl CacheableResult, of: PendingInsert) -> Option<SharedResult> {
        let PendingInsert { kept_as, is_awaited, made, held, warnings, room } = of;
        let size = answer.encoded_size();
        let kept_as = kept_as.filter(|_| (size as u64) < self.limit.get() / 4);
        if kept_as.is_none() && !is_awaited {
            return None;
        }
        let written = room.reserve(size).ok()?;
        let bytes = answer.to_bytes();
        let sum = hash::hash_bytes(&bytes);
        // The response is in memory both as a value and as bytes to be sent.
        let kept = Arc::new(CachedResult { made, bytes, sum, room: held.max(size.saturating_mul(2)) });
        let room = kept_as.is_none().then(|| Arc::new(written));
        if let Some(key) = kept_as {
            self.kept.insert(key, Arc::clone(&kept));
        }
        Some(SharedResult { kept, warnings: warnings.into(), _room: room })
    }
}

impl Querier {
    /// Returns a cached result that is still valid, or the result of an equal request in flight. Otherwise
    /// computes `answer`, and caches it if possible.
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
                // Other requests may have later deadlines.
                Err(status) if status.code != ErrorCode::Deadline => lead.share_result(Err(status.clone())),
                Ok((_, None)) | Err(_) => drop(lead),
            }
        }
        answered.map(|(answer, _)| answer)
    }

    /// Waits for an equal request in flight, for a part of the remaining time. The rest suffices for an own
    /// query.
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

    /// Decodes the result of an equal request in flight. Returns none if the bytes were damaged since.
    async fn decode_shared<A: CacheableResult + Send + 'static>(
        &self,
        reader: &QueryContext,
        told: Result<SharedResult, Status>,
    ) -> Result<Option<A>, Status> {
        let SharedResult { kept, warnings, _room } = told?;
        let room = kept.bytes.len().saturating_mul(2);
        let answer = self.decode_cached(reader, kept, room).await?;
        if answer.is_some() {
            self.answers.joined.fetch_add(1, Ordering::Relaxed);
            reader.add_warnings(warnings.to_vec());
            reader.record_coalesced();
        }
        Ok(answer)
    }

    /// Returns a cached result that is still valid, also in shared form.
    async fn get_cached<A: CacheableResult + Send + 'static>(
        &self,
        reader: &QueryContext,
        limits: &TenantLimits,
        key: &RequestKey,
    ) -> Result<Option<(A, SharedResult)>, Status> {
        let Some(kept) = self.answers.kept.get(key) else { return Ok(None) };
        let of = Arc::clone(&kept);
        // The check sends a request to all nodes, so it needs a permit as a query does.
        let look = |turn| async move {
            let told = self.revalidate(reader, limits, of).await;
            drop(turn);
            told
        };
        if let Some(answer) = self.with_permit(reader, limits, look).await? {
            self.answers.hits.fetch_add(1, Ordering::Relaxed);
            reader.record_cache_hit();
            return Ok(Some((answer, SharedResult { kept, warnings: Arc::default(), _room: None })));
        }
        self.answers.misses.fetch_add(1, Ordering::Relaxed);
        // Other requests need not check this entry.
        self.answers.kept.invalidate(key);
        Ok(None)
    }

    /// Stores a result. Returns it, also in shared form if it is cached or another request waits for it.
    async fn store_result<A: CacheableResult + Send + Sync + 'static>(
        &self,
        reader: &QueryContext,
        key: RequestKey,
        lead: Option<&CoalescingLeader<Result<SharedResult, Status>>>,
        answer: A,
    ) -> Result<(A, Option<SharedResult>), Status> {
        let made = reader.result_provenance();
        let warnings = reader.warnings();
        let is_of_blocks = !made.is_empty() && made.iter().all(|made| made.of.is_some());
        let is_kept = self.answers.is_on() && is_of_blocks && warnings.is_empty();
        let is_awaited = lead.is_some_and(CoalescingLeader::has_waiters);
        if !is_kept && !is_awaited {
            return Ok((answer, None));
        }
        let kept_as = is_kept.then_some(key);
        let held = reader.held_bytes();
        let room = self.response_budget_for(reader);
        let of = PendingInsert { kept_as, is_awaited, made, held, warnings, room };
        let answers = Arc::clone(&self.answers);
        self.compute_on_pool(reader, move || {
            let told = answers.insert_result(&answer, of);
            (answer, told)
        })
        .await
    }

    /// Decodes cached bytes. Returns none if they were damaged since.
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

    /// Returns true if a new result would be computed from the same blocks.
    async fn is_still_valid(
        &self,
        reader: &QueryContext,
        limits: &TenantLimits,
        made: &[ResultProvenance],
    ) -> bool {
        let all = made.iter().map(|of| self.has_same_provenance(reader, limits, of));
        join_all(all).await.into_iter().all(|holds| holds)
    }

    /// Returns true if a new result of one query would be computed from the same blocks.
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

    /// Returns a key of all request inputs that decide the response. Each part follows its length, so that
    /// keys are unique.
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
