//! Cache of query results, by request. An entry is valid while the same blocks hold all matching data.
//!
//! Blocks are immutable, so a result stays true of its blocks. Heads change: a result with head data is never
//! cached. A cached result is returned only after a new listing and a new report from all leaders [INV-17]
//! that no head data matches the query. Everything else that decides the results of blocks must be part of
//! [`QueryPlan::made_of`](crate::QueryPlan::made_of) [INV-19].
//!
//! Concurrent equal requests share one computation where that is allowed ([`RequestCoalescer`]).

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::requests::result_budget::{ResultBudget, ResultReservation};
use athanor_chassis::{ByteSize, Status};
use athanor_profile::encoding::hash::{self, ContentHash};
use athanor_query::{ResultResolution, TimeRange};
use moka::sync::Cache;
use prost::Message;

use crate::context::coalescer::{RequestCoalescer, RequestKey};

pub(crate) mod cached_query;

/// Approximate memory of an entry beside its bytes.
const CACHE_ENTRY_OVERHEAD_BYTES: usize = 512;

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
    resolution: Option<ResultResolution>,
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
    resolution: Option<ResultResolution>,
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
        let PendingInsert { kept_as, is_awaited, made, resolution, held, warnings, room } = of;
        let size = answer.encoded_size();
        let kept_as = kept_as.filter(|_| (size as u64) < self.limit.get() / 4);
        if kept_as.is_none() && !is_awaited {
            return None;
        }
        let written = room.reserve(size).ok()?;
        let bytes = answer.to_bytes();
        let sum = hash::hash_bytes(&bytes);
        // The response is in memory both as a value and as bytes to be sent.
        let room_bytes = held.max(size.saturating_mul(2));
        let kept = Arc::new(CachedResult { made, resolution, bytes, sum, room: room_bytes });
        let room = kept_as.is_none().then(|| Arc::new(written));
        if let Some(key) = kept_as {
            self.kept.insert(key, Arc::clone(&kept));
        }
        Some(SharedResult { kept, warnings: warnings.into(), _room: room })
    }
}
