//! Queries of many blocks: computes partial results concurrently on compute threads and merges them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use athanor_catalog::BlockId;
use athanor_chassis::memory_budget::MemoryBudgetStats;
use athanor_chassis::requests::query_queue::{QueryPermit, QueryQueue, QueryQueueStats, QueueNames};
use athanor_chassis::requests::result_budget::{ResultBudget, ResultReservation};
use athanor_chassis::{CpuActivity, ErrorCode, SingleFlight, Status, TenantId};
use athanor_query::{
    BudgetedPartial, CanonicalQuery, ExcludedIds, PartialChunks, PartialMerger, PartialOrigin,
    PartialOriginCounts, PartialResult, ProfileQuery, SourceId, TimeRange,
};
use futures::FutureExt;
use futures::future::try_join;
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::block_query::{BlockQueryRunner, partial_taken_error, with_block_id};
use crate::block_reader::BlockReader;
use crate::config::StoreGatewayConfig;
use crate::disk_cache::DiskCacheStats;
use crate::part_location::PartLocation;
use crate::partial_cache::{PartialCache, PartialCacheStats, PartialKey};
use crate::stats::CacheStats;

/// Maximum number of blocks in one query.
pub const MAX_BLOCKS_PER_QUERY: usize = 256;

/// Time limit for the other blocks of a query after the bucket failed for one block.
/// Cached blocks are ready by then. The limit avoids the full retry time for each of many blocks.
const BUCKET_FAILURE_TIMEOUT: Duration = Duration::from_secs(2);

/// Block to query, with the range and the exclusions of that query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockTarget {
    /// Id of the block.
    pub block: BlockId,
    /// True if the block lies in the folder of the query's tenant, false if it lies in the shared one.
    pub in_tenant_folder: bool,
    /// True if the query covers the whole time range of the tenant's part.
    pub whole: bool,
    /// Time ranges to read, ascending and disjoint. If there are none, the query's range applies.
    pub ranges: Vec<TimeRange>,
    /// Time range in which the block also returns the ids of matching profiles, because other sources may
    /// hold duplicates.
    pub tells: Option<TimeRange>,
    /// Ids of profiles that are counted in other sources and excluded here.
    pub without: ExcludedIds,
}

/// Merged result of several blocks.
pub struct BlockQueryResult {
    /// Packed partial result, in chunks.
    pub pieces: PartialChunks,
    /// Outcome of each block.
    pub met: BlockOutcomes,
    /// Memory of the blocks that were read, in bytes.
    pub read: u64,
    /// Memory reservation of the result, held until the result is sent.
    pub taken: Option<ResultReservation>,
}

/// Outcomes of the blocks of a query. Blocks that are neither gone nor unread are part of the result.
#[derive(Debug, Default)]
pub struct BlockOutcomes {
    /// Blocks that the bucket does not contain: compaction or retention removed them.
    pub gone: Vec<BlockId>,
    /// Blocks that could not be read, with the error: the block is damaged or the bucket failed.
    pub unread: Vec<(BlockId, Status)>,
    /// Origins of the partial results of the other blocks.
    pub hits: PartialOriginCounts,
}

/// Outcome of one block in a query.
enum BlockOutcome {
    Found(PartialOrigin),
    Gone(BlockId),
    Unread(BlockId, Status),
}

/// Query of one tenant, with state that all its blocks share.
pub struct BlockQuery {
    tenant: TenantId,
    ask: Arc<ProfileQuery>,
    /// Canonical query for blocks that the query covers completely, which are the majority. None if results
    /// are not cacheable.
    whole: Option<Arc<CanonicalQuery>>,
    /// True after the bucket failed to deliver a block of this query.
    failed: Arc<AtomicBool>,
    /// Memory of the blocks that were read so far, in bytes.
    read: Arc<AtomicU64>,
}

/// Store-gateway that computes and caches partial results of blocks.
pub struct StoreGateway {
    reading: Arc<BlockQueryRunner>,
    turns: Arc<QueryQueue>,
    open_blocks: usize,
    room: Arc<ResultBudget>,
}

/// Statistics of the caches and queues of a store-gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreGatewayStats {
    /// Cache of opened block parts.
    pub parts: CacheStats,
    /// Cache of partial results.
    pub answers: PartialCacheStats,
    /// Disk cache, all zero if there is no disk.
    pub shelf: DiskCacheStats,
    /// Queue of queries from other nodes.
    pub turns: QueryQueueStats,
    /// Memory budget for responses to other nodes.
    pub room: MemoryBudgetStats,
}

impl BlockTarget {
    /// Returns a target in the shared folder with profiles that have no duplicates in other sources.
    pub fn without_duplicates(block: BlockId, whole: bool) -> Self {
        Self {
            block,
            in_tenant_folder: false,
            whole,
            ranges: Vec::new(),
            tells: None,
            without: ExcludedIds::default(),
        }
    }

    /// Returns the location of a tenant's part of the block.
    fn location_for(&self, tenant: &TenantId) -> PartLocation {
        let Self { block, in_tenant_folder, .. } = *self;
        PartLocation { block, tenant: tenant.clone(), in_tenant_folder }
    }
}

impl BlockQuery {
    /// Creates a query of a tenant.
    pub fn new(tenant: TenantId, ask: ProfileQuery) -> Self {
        // If the query is too long to be packed, its results are computed but not cached.
        let lasting = ask.is_cacheable().then(|| ask.to_canonical(i64::MAX, i64::MIN).ok()).flatten();
        let (failed, read) = Default::default();
        Self { tenant, ask: Arc::new(ask), whole: lasting.map(Arc::new), failed, read }
    }

    fn add_read_bytes(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Creates a sub-query of another time range.
    fn with_range(&self, range: TimeRange) -> Self {
        let mut ask = ProfileQuery::clone(&self.ask);
        ask.selection.time = range;
        self.with_request(ask)
    }

    /// Creates a sub-query of this query, with the same failure flag and read counter.
    fn with_request(&self, ask: ProfileQuery) -> Self {
        let failed = Arc::clone(&self.failed);
        let read = Arc::clone(&self.read);
        Self { failed, read, ..Self::new(self.tenant.clone(), ask) }
    }
}

impl StoreGateway {
    /// Creates a store-gateway over the blocks of a reader.
    pub fn new(blocks: Arc<BlockReader>, config: &StoreGatewayConfig) -> Self {
        let reading = BlockQueryRunner {
            blocks,
            answers: PartialCache::new(config.partial_cache_bytes),
            flights: SingleFlight::default(),
        };
        let words = QueueNames {
            questions: "queries of other nodes",
            setting: "store_gateway.max_concurrent",
            of_tenant: "store_gateway.max_concurrent",
        };
        Self {
            reading: Arc::new(reading),
            turns: QueryQueue::new(config.max_concurrent, words),
            open_blocks: config.max_open_blocks_per_query,
            room: config.response_budget(),
        }
    }

    /// Returns the current statistics.
    pub fn stats(&self) -> StoreGatewayStats {
        let BlockQueryRunner { blocks, answers, .. } = &*self.reading;
        let shelf = blocks.shelf.as_ref().map(|shelf| shelf.stats()).unwrap_or_default();
        let turns = self.turns.stats();
        let room = self.room.stats();
        StoreGatewayStats { parts: blocks.parts.stats(), answers: answers.stats(), shelf, turns, room }
    }

    /// Returns whether a disk cache is configured. If so, the caller must run
    /// [`maintain_disk_cache`](Self::maintain_disk_cache) repeatedly, or nothing is cached there.
    pub fn has_disk(&self) -> bool {
        self.reading.blocks.shelf.is_some()
    }

    /// Writes pending entries to the disk cache and frees disk space that others need.
    pub async fn maintain_disk_cache(&self) {
        let BlockReader { shelf, compute, .. } = &*self.reading.blocks;
        if let Some(shelf) = shelf {
            shelf.run_maintenance(compute).await;
        }
    }

    /// Waits until an entry is pending for the disk cache. Without a disk cache, waits forever.
    pub async fn wait_for_disk_work(&self) {
        match &self.reading.blocks.shelf {
            Some(shelf) => shelf.wait_for_writes().await,
            None => std::future::pending().await,
        }
    }

    /// Waits for a permit to run a query from another node. Permits are limited, and tenants for which less
    /// was read get theirs first.
    pub async fn acquire_permit(&self, tenant: &TenantId) -> Result<QueryPermit, Status> {
        let turn = self.turns.acquire(std::slice::from_ref(tenant), self.turns.stats().most).await?;
        turn.charge(tenant, 0);
        Ok(turn)
    }

    /// Runs a query on all of these blocks and returns the merged, packed result.
    pub async fn query_blocks(
        &self,
        tenant: &TenantId,
        ask: ProfileQuery,
        blocks: Vec<BlockTarget>,
    ) -> Result<BlockQueryResult, Status> {
        if blocks.len() > MAX_BLOCKS_PER_QUERY {
            let message =
                format!("request names {} blocks, the limit is {MAX_BLOCKS_PER_QUERY}", blocks.len());
            return Err(Status::new(ErrorCode::Invalid, message));
        }
        let question = Arc::new(BlockQuery::new(tenant.clone(), ask));
        let place = Arc::new(PartialMerger::new(
            question.ask.bounds,
            self.room.for_tenants(std::slice::from_ref(tenant)),
        ));
        let met = self.merge_blocks(&question, blocks, &place).await?;
        let read = question.read.load(Ordering::Relaxed);
        let pack = move || {
            let (partial, taken) = match place.take_merged() {
                Some(BudgetedPartial { partial, taken }) => (partial, Some(taken)),
                None => (PartialResult::empty(&question.ask.what), None),
            };
            let pieces = partial.pack().map_err(|error| Status::from_error(&error))?;
            Ok::<_, Status>((pieces, taken))
        };
        let packed = self.reading.blocks.compute.for_tenant(tenant).run_as(CpuActivity::Query, pack).await;
        let (pieces, taken) = packed.map_err(|error| Status::from_error(&error))??;
        Ok(BlockQueryResult { pieces, met, read, taken })
    }

    /// Queries all of these blocks and adds their results to the merger. Returns the outcomes by block.
    pub async fn merge_blocks(
        &self,
        question: &Arc<BlockQuery>,
        blocks: Vec<BlockTarget>,
        place: &Arc<PartialMerger>,
    ) -> Result<BlockOutcomes, Status> {
        let width = self.open_blocks.max(self.reading.blocks.compute.parallelism() + 1);
        let each = blocks.into_iter().map(|at| self.merge_block(question, at, place));
        let mut said = stream::iter(each).buffer_unordered(width);
        let mut met = BlockOutcomes::default();
        while let Some(one) = said.try_next().await? {
            match one {
                BlockOutcome::Found(found) => met.hits.count_origin(found),
                BlockOutcome::Gone(block) => met.gone.push(block),
                BlockOutcome::Unread(block, why) => met.unread.push((block, why)),
            }
        }
        Ok(met)
    }

    /// Adds the result of one block to the merger and returns the block's outcome.
    async fn merge_block(
        &self,
        question: &Arc<BlockQuery>,
        at: BlockTarget,
        place: &Arc<PartialMerger>,
    ) -> Result<BlockOutcome, Status> {
        let (partial, found) = match self.query_block(question, &at).await {
            Ok(answered) => answered,
            Err(status) if status.code == ErrorCode::NotFound => return Ok(BlockOutcome::Gone(at.block)),
            Err(status) if is_skippable_failure(&status) => {
                return Ok(BlockOutcome::Unread(at.block, status));
            }
            Err(status) => return Err(status),
        };
        let place = Arc::clone(place);
        let job = move || place.add(partial, None);
        let compute = self.reading.blocks.compute.for_tenant(&question.tenant);
        let done = compute.run_as(CpuActivity::Query, job).await;
        done.map_err(|error| Status::from_error(&error))?.map(|()| BlockOutcome::Found(found))
    }

    /// Returns the result of one block and its origin. Fails with [`ErrorCode::NotFound`] if the bucket does
    /// not contain the block.
    pub async fn query_block(
        &self,
        question: &BlockQuery,
        at: &BlockTarget,
    ) -> Result<(PartialResult, PartialOrigin), Status> {
        let finding = self.query_with_ids(question, at);
        let found = match question.failed.load(Ordering::Relaxed) {
            false => finding.await,
            true => {
                let late = |_| {
                    let message = format!(
                        "block was not read within {BUCKET_FAILURE_TIMEOUT:?} after other reads from the bucket failed"
                    );
                    Err(Status::new(ErrorCode::Deadline, message))
                };
                self.reading
                    .blocks
                    .store
                    .clock()
                    .timeout(BUCKET_FAILURE_TIMEOUT, finding)
                    .await
                    .unwrap_or_else(late)
            }
        };
        if found
            .as_ref()
            .is_err_and(|status| is_skippable_failure(status) && status.code != ErrorCode::DataLoss)
        {
            question.failed.store(true, Ordering::Relaxed);
        }
        found
    }

    /// Returns the result of one block without its excluded profiles. Adds the matching ids if the target
    /// requests them.
    async fn query_with_ids(
        &self,
        question: &BlockQuery,
        at: &BlockTarget,
    ) -> Result<(PartialResult, PartialOrigin), Status> {
        let less = (!at.without.is_empty())
            .then(|| question.with_request(question.ask.with_excluded_ids(&at.without)));
        let answer = self.query_ranges(less.as_ref().unwrap_or(question), at);
        let Some(time) = at.tells else { return answer.await };
        // The ids query is separate, because its cached result is valid for every query of the same profiles.
        let of_ids = question.with_request(question.ask.to_ids_query(time));
        let within =
            |range: &TimeRange| TimeRange { from: range.from.max(time.from), to: range.to.min(time.to) };
        let of_block = BlockTarget {
            in_tenant_folder: at.in_tenant_folder,
            ranges: at.ranges.iter().map(within).collect(),
            ..BlockTarget::without_duplicates(at.block, at.whole && time == TimeRange::default())
        };
        match try_join(answer, self.query_ranges(&of_ids, &of_block)).await? {
            ((answer, found), (PartialResult::Ids(ids), _)) => {
                Ok((answer.with_ids(SourceId::Block(at.block.number()), ids), found))
            }
            _ => Err(Status::new(
                ErrorCode::Internal,
                "ids query of a block returned a result of another kind",
            )),
        }
    }

    /// Returns the result of all ranges of the target, with the origin of the first one.
    async fn query_ranges(
        &self,
        question: &BlockQuery,
        at: &BlockTarget,
    ) -> Result<(PartialResult, PartialOrigin), Status> {
        let [first, others @ ..] = &at.ranges[..] else { return self.find_partial(question, at).await };
        let at = &BlockTarget { whole: false, ..at.clone() };
        let (mut merged, origin) = self.find_partial(&question.with_range(*first), at).await?;
        for range in others {
            let (partial, _) = self.find_partial(&question.with_range(*range), at).await?;
            let bounds = question.ask.bounds;
            let merge =
                move || merged.merge_range(partial, &bounds).map_err(|error| Status::from_error(&error));
            let compute = self.reading.blocks.compute.for_tenant(&question.tenant);
            let done = compute.run_as(CpuActivity::Query, merge).await;
            merged = done.map_err(|error| Status::from_error(&error))??;
        }
        Ok((merged, origin))
    }

    async fn find_partial(
        &self,
        question: &BlockQuery,
        at: &BlockTarget,
    ) -> Result<(PartialResult, PartialOrigin), Status> {
        let BlockQuery { tenant, ask, whole, .. } = question;
        let reading = &self.reading;
        let location = at.location_for(tenant);
        let Some(canonical) = whole else {
            let made = Arc::clone(reading).compute(location, at.whole, Arc::clone(ask), || false).await?;
            question.add_read_bytes(made.bytes);
            return Ok((made.take_fresh().ok_or_else(partial_taken_error)?, PartialOrigin::Computed));
        };
        let canonical = match at.whole {
            true => Arc::clone(canonical),
            false => {
                let span = reading.blocks.time_range(&location).await;
                let (first, last) = span.map_err(|status| with_block_id(at.block, status))?;
                let canonical = ask.to_canonical(first, last).map_err(|error| Status::from_error(&error))?;
                Arc::new(canonical)
            }
        };
        let key = PartialKey { block: at.block, tenant: tenant.clone(), ask: canonical.key };
        if let Some(answered) = reading.find_cached(&key, &canonical).await {
            return answered;
        }
        let asked = Arc::new(canonical.ask.clone());
        let begin = || {
            reading.answers.record_miss();
            let asked = Arc::clone(&asked);
            Arc::clone(reading).compute_and_cache(key.clone(), location.clone(), at.whole, asked).boxed()
        };
        let (made, joined) = reading.flights.join_or_start(key.clone(), begin).await;
        if joined {
            reading.answers.record_coalesced();
        }
        let made = made?;
        question.add_read_bytes(made.bytes);
        let found = if joined { PartialOrigin::Coalesced } else { PartialOrigin::Computed };
        let partial = match (made.take_fresh(), &made.packed) {
            (Some(partial), _) => reading.remap_to_request(tenant, &canonical, partial).await?,
            (None, Some(packed)) => reading.decode(tenant, &canonical, packed.clone()).await?,
            (None, None) => {
                let made = Arc::clone(reading).compute(location, at.whole, asked, || false).await?;
                reading
                    .remap_to_request(tenant, &canonical, made.take_fresh().ok_or_else(partial_taken_error)?)
                    .await?
            }
        };
        Ok((partial, found))
    }
}

/// Returns whether the block or the bucket failed, and not the query or this node. Then the result may omit
/// the block, if it reports that.
pub fn is_skippable_failure(status: &Status) -> bool {
    match status.code {
        ErrorCode::DataLoss | ErrorCode::Unimplemented => true,
        ErrorCode::Unavailable
        | ErrorCode::Deadline
        | ErrorCode::PermissionDenied
        | ErrorCode::Unauthenticated => true,
        ErrorCode::Invalid
        | ErrorCode::TooLarge
        | ErrorCode::Exhausted
        | ErrorCode::Cancelled
        | ErrorCode::Internal => false,
        ErrorCode::NotFound | ErrorCode::Conflict | ErrorCode::NotLeader | ErrorCode::Precondition => false,
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::{ByteSize, ComputePool};
    use athanor_query::{PartialChunkBuffer, ProfileSelection, QueryKind, ResultLimits, StackFilter};

    use super::*;
    use crate::block_reader::tests::{bucket, held, put};

    fn tree() -> ProfileQuery {
        let time = TimeRange { from: i64::MIN, to: i64::MAX };
        let selection = ProfileSelection { time, ..ProfileSelection::default() };
        ProfileQuery {
            selection,
            what: QueryKind::Tree(StackFilter::default()),
            bounds: ResultLimits::default(),
        }
    }

    async fn gateway(blocks: u32) -> StoreGateway {
        let store = bucket();
        for block in 1..=blocks {
            let tenants = [("other", held(50)), ("shop", held(block))];
            put(&store, BlockId::from_number(block.into()), &tenants).await;
        }
        let config = StoreGatewayConfig {
            max_inflight_block_bytes: ByteSize::mib(64),
            block_cache_bytes: ByteSize::mib(64),
            ..StoreGatewayConfig::default()
        };
        let blocks = BlockReader::new(store, ComputePool::inline(), None, &config);
        StoreGateway::new(Arc::new(blocks), &config)
    }

    fn at(blocks: impl Iterator<Item = u128>) -> Vec<BlockTarget> {
        blocks.map(|number| BlockTarget::without_duplicates(BlockId::from_number(number), true)).collect()
    }

    async fn total(gateway: &StoreGateway, tenant: &str, blocks: Vec<BlockTarget>) -> (i64, Vec<BlockId>) {
        let ask = tree();
        let answer = gateway.query_blocks(&tenant.parse().unwrap(), ask.clone(), blocks).await.unwrap();
        let mut received = PartialChunkBuffer::default();
        answer.pieces.for_each(|piece| received.push(&piece).unwrap());
        let PartialResult::Tree(tree) = received.unpack(&ask).unwrap() else { panic!("no tree") };
        assert_eq!(answer.met.unread, []);
        (tree.total(), answer.met.gone)
    }

    #[tokio::test]
    async fn blocks_answer_as_one() {
        let gateway = gateway(40).await;
        let of = |block: i64| block * (block + 1) / 2;
        assert_eq!(total(&gateway, "shop", at(1..=40)).await, ((1..=40).map(of).sum(), vec![]));
        assert_eq!(total(&gateway, "shop", at(7..=8)).await, (of(7) + of(8), vec![]));
        assert_eq!(total(&gateway, "other", at(7..=8)).await, (2 * of(50), vec![]));
        assert_eq!(total(&gateway, "shop", vec![]).await, (0, vec![]));
    }

    #[tokio::test]
    async fn blocks_that_are_gone_are_named_and_too_much_is_refused() {
        let mut gateway = gateway(3).await;
        let gone = [4, 5].map(BlockId::from_number).to_vec();
        let (sum, mut named) = total(&gateway, "shop", at(2..=5)).await;
        named.sort_unstable();
        assert_eq!((sum, named), (3 + 6, gone));
        let shop: TenantId = "shop".parse().unwrap();
        let refused = gateway.query_blocks(&shop, tree(), at(0..MAX_BLOCKS_PER_QUERY as u128 + 1)).await;
        assert_eq!(refused.err().unwrap().code, ErrorCode::Invalid);
        gateway.room =
            StoreGatewayConfig { max_result_bytes: ByteSize::bytes(100), ..StoreGatewayConfig::default() }
                .response_budget();
        let refused = gateway.query_blocks(&shop, tree(), at(1..=3)).await.err().unwrap();
        assert!(refused.message.contains("the limit is 100B"), "{refused}");
    }

    #[tokio::test]
    async fn of_tenants_that_wait_the_one_of_which_less_was_read_is_next() {
        let mut gateway = gateway(2).await;
        let words = QueueNames { questions: "questions", setting: "questions", of_tenant: "questions" };
        gateway.turns = QueryQueue::new(1, words);
        let tenant = |name: &str| name.parse::<TenantId>().unwrap();
        let (wide, narrow) = (tenant("other"), tenant("shop"));
        let held = gateway.acquire_permit(&wide).await.unwrap();
        let answer = gateway.query_blocks(&wide, tree(), at(1..=2)).await.unwrap();
        assert!(answer.read > 200_000, "{}", answer.read);
        held.charge(&wide, answer.read);
        let mut again = Box::pin(gateway.acquire_permit(&wide));
        let mut other = Box::pin(gateway.acquire_permit(&narrow));
        assert!((&mut again).now_or_never().is_none() && (&mut other).now_or_never().is_none());
        drop(held);
        assert!((&mut again).now_or_never().is_none(), "it came first, and more was read of it");
        let turn = (&mut other).now_or_never().expect("its turn").unwrap();
        drop(turn);
        assert!(again.now_or_never().is_some());
    }
}
