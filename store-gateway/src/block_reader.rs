//! Reader of block parts: fetches needed ranges on demand and caches them within a memory budget.

use std::ops::Range;
use std::sync::Arc;

use athanor_block::{
    Block, BlockError, FUNCTIONS_FILE, FileRanges, LOCATIONS_FILE, MAPPINGS_FILE, PROFILES_FILE,
    ProfileProjection, ROLLUP_FILE, RowProjection, SAMPLES_FILE, SERIES_FILE, STACKS_FILE, TenantBlockSource,
};
use athanor_catalog::BlockId;
use athanor_chassis::memory_budget::{BudgetLimit, MemoryBudget, MemoryReservation};
use athanor_chassis::{ComputePool, CpuActivity, Disk, ErrorCode, SingleFlight, Status, TenantId};
use athanor_profile::ProfileSource;
use athanor_profile::store_interface::source::SourceError;
use athanor_query::{MatchedProfiles, ProfileQuery, ProfileQueryError, QueryKind, RequiredData};
use athanor_storage::Store;
use futures::FutureExt;

use crate::block_cache::BlockCache;
use crate::block_fetcher::BlockFetcher;
use crate::cached_block::CachedBlock;
use crate::config::StoreGatewayConfig;
use crate::disk_cache::{DiskCache, DiskCacheKey};
use crate::part_location::PartLocation;
use crate::sparse_files::SparseBlockFiles;

mod memory;

/// Maximum number of fetch steps to open footers or tables: the footer length, the footer, the data it points
/// to.
const MAX_READ_STEPS: usize = 8;

/// Reader of the blocks of a bucket.
pub struct BlockReader {
    /// Object store that holds the blocks.
    pub store: Store,
    /// Cache of opened block parts.
    pub parts: Arc<BlockCache>,
    /// Compute pool that decodes footers and tables.
    pub compute: ComputePool,
    /// Disk cache of results and pages. None if no disk is configured.
    pub shelf: Option<Arc<DiskCache>>,
    /// Single flight of parts that are being opened.
    beginning: SingleFlight<(BlockId, TenantId), Result<CachedBlock, Status>>,
    budget: Arc<MemoryBudget>,
}

/// Read of one tenant's part of a block for one query.
pub struct BlockRead {
    /// Reader that opens the block.
    pub blocks: Arc<BlockReader>,
    /// Part to read.
    pub location: PartLocation,
    /// Query to run.
    pub ask: Arc<ProfileQuery>,
    /// True if the query's time range seems to cover the whole part. Then sums of whole series are enough.
    pub whole: bool,
}

/// Part that is ready to be read, together with its memory reservation.
pub struct OpenBlock {
    /// Part with all required data fetched.
    pub part: CachedBlock,
    /// Profiles of the part that the query matches.
    pub picked: MatchedProfiles,
    /// Guard that holds the memory reservation until the read ends.
    pub held: Box<dyn Send>,
}

/// Memory reservation for one read. Its drop updates the size of the part in the cache.
struct BlockReadGuard {
    parts: Arc<BlockCache>,
    part: CachedBlock,
    _room: MemoryReservation,
}

/// Result of a memory reservation for one query on one part.
enum BudgetCheck {
    Held(MemoryReservation, MatchedProfiles),
    /// More bytes are required than were requested, and the budget has not that many free bytes.
    Wants(u64),
}

impl BlockReader {
    /// Creates a reader over the blocks of a bucket.
    pub fn new(
        store: Store,
        compute: ComputePool,
        disk: Option<Arc<dyn Disk>>,
        config: &StoreGatewayConfig,
    ) -> Self {
        let shelf = disk.map(|disk| {
            Arc::new(DiskCache::new(disk, config.disk_cache_bytes, config.disk_cache_min_free_bytes))
        });
        let parts = Arc::new(BlockCache::new(config.block_cache_bytes));
        let limit = BudgetLimit {
            limit: config.max_inflight_block_bytes,
            setting: "store_gateway.max_inflight_block_bytes",
        };
        let budget = MemoryBudget::new(limit);
        Self { store, parts, compute, shelf, beginning: SingleFlight::default(), budget }
    }

    /// Returns the timestamps of the first and the last profile in a tenant's part, in nanoseconds.
    pub async fn time_range(self: &Arc<Self>, location: &PartLocation) -> Result<(i64, i64), Status> {
        let meta = self.cached_block(location).await?.meta().map_err(|error| Status::from_error(&error))?;
        Ok((meta.min_time, meta.max_time))
    }

    fn fetcher(&self, location: &PartLocation) -> BlockFetcher<'_> {
        let BlockReader { store, shelf, compute, .. } = self;
        let folder_owner = location.folder_owner();
        BlockFetcher { store, block: location.block, folder_owner, shelf: shelf.as_ref(), compute }
    }

    /// Returns the cached part, or a new part that holds only `meta.json`. Concurrent callers share one part.
    async fn cached_block(self: &Arc<Self>, location: &PartLocation) -> Result<CachedBlock, Status> {
        if let Some(cached) = self.parts.get(location.block, &location.tenant) {
            return Ok(cached);
        }
        let begin = || Arc::clone(self).open_block(location.clone()).boxed();
        self.beginning.join_or_start((location.block, location.tenant.clone()), begin).await.0
    }

    async fn open_block(self: Arc<Self>, location: PartLocation) -> Result<CachedBlock, Status> {
        // A concurrent call may have opened the part in the meantime.
        if let Some(cached) = self.parts.get(location.block, &location.tenant) {
            return Ok(cached);
        }
        let origin = self.fetcher(&location);
        let said = origin.fetch_meta().await?;
        let compute = self.compute.clone();
        let payer = location.tenant.clone();
        let begun = self.run_on_pool(&payer, move || {
            let (folder, meta) = SparseBlockFiles::from_meta(&said)?;
            let folder = Arc::new(folder);
            let block = Arc::new(Block::with_meta(Arc::<SparseBlockFiles>::clone(&folder), meta)?);
            let source = TenantBlockSource::new(Arc::clone(&block), location.tenant.as_str(), compute)?;
            Ok(CachedBlock { location, source, block, folder })
        });
        let begun = begun.await;
        if begun.as_ref().is_err_and(|status| status.code == ErrorCode::DataLoss) {
            origin.invalidate(vec![origin.meta_key()]).await;
        }
        begun.map(|part| self.parts.get_or_insert(part))
    }

    /// Evicts the fetched data of a damaged part, on disk as well: a transfer may have corrupted it.
    pub async fn invalidate(&self, cached: &CachedBlock) {
        self.parts.remove(cached);
        let block = cached.location.block;
        let origin = self.fetcher(&cached.location);
        let fetched = cached.folder.fetched_ranges();
        let of = |(file, range): &(&'static str, Range<u64>)| DiskCacheKey::for_range(block, file, range);
        origin.invalidate(fetched.iter().map(of).chain([origin.meta_key()]).collect()).await;
    }

    async fn run_on_pool<R: Send + 'static>(
        &self,
        tenant: &TenantId,
        job: impl FnOnce() -> Result<R, BlockError> + Send + 'static,
    ) -> Result<R, Status> {
        let done = self.compute.for_tenant(tenant).run_as(CpuActivity::Query, job).await;
        done.map_err(|error| Status::from_error(&error))?.map_err(|error| Status::from_error(&error))
    }
}

impl BlockRead {
    async fn run_on_pool<R: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<R, BlockError> + Send + 'static,
    ) -> Result<R, Status> {
        self.blocks.run_on_pool(&self.location.tenant, job).await
    }

    fn fetcher(&self) -> BlockFetcher<'_> {
        self.blocks.fetcher(&self.location)
    }

    /// Returns the names of the files that the query seems to need.
    fn required_files(&self) -> Vec<&'static str> {
        let RequiredData { totals, rows, names, .. } = self.ask.required_data();
        // A size query needs only the footers: they contain the positions of the data.
        if self.ask.what == QueryKind::Sizes {
            return vec![
                SERIES_FILE,
                PROFILES_FILE,
                ROLLUP_FILE,
                SAMPLES_FILE,
                STACKS_FILE,
                LOCATIONS_FILE,
                FUNCTIONS_FILE,
                MAPPINGS_FILE,
            ];
        }
        let mut files = vec![SERIES_FILE, PROFILES_FILE];
        if totals {
            files.push(ROLLUP_FILE);
        }
        // If the query covers only a part of a series' time, it reads the rows.
        if rows || totals && !self.whole {
            files.push(SAMPLES_FILE);
        }
        if names {
            files.extend([STACKS_FILE, LOCATIONS_FILE, FUNCTIONS_FILE, MAPPINGS_FILE]);
        }
        files
    }

    /// Runs a job that reads footers and tables. If the job misses ranges, fetches them and retries.
    async fn run_with_fetches<R: Send + 'static>(
        &self,
        part: &CachedBlock,
        job: impl Fn(&CachedBlock) -> Result<R, BlockError> + Clone + Send + 'static,
    ) -> Result<R, Status> {
        let mut tries = 0;
        loop {
            let again = job.clone();
            let of = part.clone();
            let before = part.folder.miss_count();
            let error = match self.run_on_pool(move || again(&of)).await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let missed = part.folder.take_missed_ranges();
            // A concurrent query may have taken the missed ranges to fetch them. Such a pass does not count
            // as a try.
            tries += usize::from(!missed.is_empty());
            if tries == MAX_READ_STEPS || missed.is_empty() && part.folder.miss_count() == before {
                return Err(error);
            }
            part.folder.fetch_ranges(&self.fetcher(), &missed).await?;
        }
    }

    /// Fetches footers, series and profile columns, from which the query determines the matching rows.
    async fn fetch_index(&self, part: &CachedBlock) -> Result<(), Status> {
        let files = self.required_files();
        // Most blocks contain the file footers in their meta.json.
        let all = &part.block.meta().files;
        let is_known = |file: &&&str| all.get(**file).is_some_and(|of| !of.tail.is_empty());
        let unknown = files.iter().filter(|file| !is_known(file));
        let tails: FileRanges = unknown.map(|file| part.folder.footer_range(file)).collect();
        part.folder.fetch_ranges(&self.fetcher(), &tails).await?;
        let needs = self.ask.required_data();
        let counts = self.ask.needs_dedup();
        let counts_profiles = self.ask.counts_profiles();
        let open = move |part: &CachedBlock| {
            // Every file is opened, so that all missing ranges are known after one pass.
            let extent = |file: &&'static str| part.block.tenant_range(part.location.tenant.as_str(), file);
            let opened: Vec<_> = files.iter().map(extent).collect();
            opened.into_iter().collect::<Result<Vec<_>, _>>()?;
            let reads_ids = match part.source.is_downsampled() {
                true => needs.profiles || counts_profiles,
                false => needs.profiles || counts && !part.source.has_unique_ids()?,
            };
            let columns = if reads_ids { ProfileProjection::All } else { ProfileProjection::Brief };
            let mut extents = part.source.bytes_of_series()?;
            extents.extend(part.source.bytes_of_profiles(columns)?);
            if needs.profile_totals {
                extents.extend(part.source.bytes_of_profiles(ProfileProjection::Totals)?);
            }
            Ok(extents)
        };
        let extents = self.run_with_fetches(part, open).await?;
        part.folder.fetch_ranges(&self.fetcher(), &extents).await
    }

    /// Returns the further ranges to fetch, the total memory and the matching profiles.
    async fn plan_fetch(
        &self,
        part: &CachedBlock,
        width: usize,
    ) -> Result<(FileRanges, u64, MatchedProfiles), Status> {
        let ask = Arc::clone(&self.ask);
        let plan = move |part: &CachedBlock| {
            let needs = ask.required_data();
            let picked = MatchedProfiles::find_matching(&ask, &part.source).map_err(|error| match error {
                ProfileQueryError::Source(error) => BlockError::Held(error),
                other => BlockError::Held(SourceError::Damaged(other.to_string())),
            })?;
            let mut extents = FileRanges::new();
            if !picked.row_indexes().is_empty() {
                let RequiredData { totals, groups, requests, .. } = needs;
                // Stored sums may have wrapped, or would wrap when they are added up.
                let reads_rows =
                    needs.profile_totals && !picked.sums_fit(&part.source).map_err(BlockError::Held)?;
                let each = needs.rows || reads_rows;
                extents = part
                    .source
                    .bytes_of_rows(picked.row_indexes(), RowProjection { totals, groups, each, requests })?;
                if needs.names {
                    extents.extend(part.source.bytes_of_names()?);
                }
            }
            let names = needs.names && !picked.row_indexes().is_empty();
            let bytes = memory::estimate_read_memory(part, &extents, names, &picked, width)?;
            Ok((extents, bytes, picked))
        };
        self.run_with_fetches(part, plan).await
    }

    /// Opens the part: reserves memory and fetches all data that the query needs.
    pub async fn open(self) -> Result<OpenBlock, Status> {
        let BlockReader { parts, .. } = &*self.blocks;
        let mut claim = 0;
        loop {
            let part = self.blocks.cached_block(&self.location).await?;
            if claim == 0 {
                parts.record_query(&part);
            }
            let fetched = self.fetch(&part, claim).await;
            parts.update_size(&part);
            match fetched {
                Ok(BudgetCheck::Held(room, picked)) => {
                    let held = Box::new(BlockReadGuard {
                        parts: Arc::clone(parts),
                        part: part.clone(),
                        _room: room,
                    });
                    return Ok(OpenBlock { part, picked, held });
                }
                Ok(BudgetCheck::Wants(more)) => claim = more,
                Err(status) => {
                    if status.code == ErrorCode::DataLoss {
                        self.blocks.invalidate(&part).await;
                    }
                    return Err(status);
                }
            }
        }
    }

    /// Reserves memory for the part, at least `claim` bytes, and fetches its data.
    /// If the reservation must grow beyond the free budget, returns [`BudgetCheck::Wants`] and releases the
    /// memory. A waiter that held memory could deadlock with other waiters.
    async fn fetch(&self, part: &CachedBlock, claim: u64) -> Result<BudgetCheck, Status> {
        let BlockReader { compute, .. } = &*self.blocks;
        let meta = part.meta().map_err(|error| Status::from_error(&error))?;
        let guess = memory::guess_index_memory(part, &meta).max(claim);
        let mut room = self.blocks.budget.reserve(guess).await;
        self.fetch_index(part).await?;
        // The footers are fetched now, so the size of the decoded index is known.
        let index = memory::estimate_index_memory(part, &meta).map_err(|error| Status::from_error(&error))?;
        if index > guess && !room.try_resize(index) {
            return Ok(BudgetCheck::Wants(index));
        }
        let (extents, wanted, picked) = self.plan_fetch(part, compute.parallelism()).await?;
        if !room.try_resize(wanted) {
            return Ok(BudgetCheck::Wants(wanted));
        }
        part.folder.fetch_ranges(&self.fetcher(), &extents).await?;
        Ok(BudgetCheck::Held(room, picked))
    }
}

impl Drop for BlockReadGuard {
    /// Updates the cached size: the read may have decoded tables that stay in memory.
    fn drop(&mut self) {
        self.parts.update_size(&self.part);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use athanor_block::{
        BlockFolder, META_FILE, MemoryFolder, MemoryProfiles, PARQUET_FILES, write_from_memory,
    };
    use athanor_chassis::{ByteSize, Clock, Random};
    use athanor_profile::store_interface::source::MemorySource;
    use athanor_profile::{Labels, Profile, ProfileSource, ValueType, encoding::hash};
    use athanor_query::{FrameFilter, FramePatterns, PartialResult, QueryKind, StackFilter, run_matched};
    use athanor_storage::path::{BlockOwner, FileName, ObjectKey};
    use athanor_storage::{StorageConfig as Bucket, StoreDeps};

    use super::*;

    /// One profile of so many stacks, whose names do not compress.
    pub(crate) fn held(stacks: u32) -> MemorySource {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        for stack in 0..stacks {
            let part = |number: u32| {
                format!("{:032x}", hash::hash_bytes(&[stack, number].map(u32::to_le_bytes).concat()))
            };
            let name: String = (0..500).map(part).collect();
            let id = profile.dictionary.intern_named_stack([name.as_str()].into_iter());
            profile.samples.push(id, 0, &[i64::from(stack) + 1]);
        }
        let mut source = MemorySource::default();
        source.add(&Labels::new([("service_name".to_owned(), "shop".to_owned())]), &profile, 1);
        source
    }

    /// Puts a block of some tenants into a bucket; gives its bytes.
    pub(crate) async fn put(store: &Store, id: BlockId, tenants: &[(&str, MemorySource)]) -> u64 {
        let folder = MemoryFolder::default();
        let parts = tenants.iter().map(|(tenant, held)| (*tenant, held as &dyn MemoryProfiles));
        let meta = write_from_memory(&folder, &id.number().to_string(), None, parts).unwrap();
        for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
            let bytes = folder.read(file, 0, folder.length(file).unwrap() as usize).unwrap();
            let key = ObjectKey::Block {
                owner: BlockOwner::Shared,
                block: id.number(),
                file: FileName::new(file).unwrap(),
            };
            store.create(&key, bytes).await.unwrap();
        }
        meta.bytes()
    }

    pub(crate) fn bucket() -> Store {
        let deps = StoreDeps { clock: Clock::system(), random: Random::from_seed(1) };
        Store::open(&Bucket { memory: true, ..Bucket::default() }, deps).unwrap()
    }

    async fn stored(room: ByteSize) -> (Arc<BlockReader>, BlockId, u64) {
        stored_parts(room, &[("large", held(300)), ("small", held(2))]).await
    }

    async fn stored_parts(
        room: ByteSize,
        parts: &[(&str, MemorySource)],
    ) -> (Arc<BlockReader>, BlockId, u64) {
        let store = bucket();
        let id = BlockId::from_number(7);
        let bytes = put(&store, id, parts).await;
        let config = StoreGatewayConfig {
            max_inflight_block_bytes: room,
            block_cache_bytes: ByteSize::mib(64),
            ..StoreGatewayConfig::default()
        };
        (Arc::new(BlockReader::new(store, ComputePool::inline(), None, &config)), id, bytes)
    }

    async fn open(
        blocks: &Arc<BlockReader>,
        block: BlockId,
        tenant: &str,
        what: &QueryKind,
        whole: bool,
    ) -> OpenBlock {
        let blocks = Arc::clone(blocks);
        let location = PartLocation { block, tenant: tenant.parse().unwrap(), in_tenant_folder: false };
        let ask = Arc::new(ProfileQuery { what: what.clone(), ..ProfileQuery::default() });
        BlockRead { blocks, location, ask, whole }.open().await.unwrap()
    }

    fn held_of(blocks: &BlockReader, block: BlockId, tenant: &str) -> u64 {
        blocks.parts.get(block, &tenant.parse().unwrap()).unwrap().folder.fetched_bytes() as u64
    }

    #[tokio::test]
    async fn only_what_a_question_needs_is_fetched() {
        let (blocks, block, all) = stored(ByteSize::mib(64)).await;
        let tree = &QueryKind::Tree(StackFilter::default());
        assert!(all > 2_000_000, "{all}");
        let total = |opened: &OpenBlock| {
            let totals = opened.part.source.totals(&[0]).unwrap();
            opened.part.source.tree(&totals).unwrap().total()
        };
        let lists = open(&blocks, block, "large", &QueryKind::ProfileTypes, false).await;
        assert_eq!(lists.part.source.profiles().unwrap().len(), 1);
        assert!(held_of(&blocks, block, "large") < all / 10);
        assert!(lists.part.source.totals(&[0]).is_err(), "that was not fetched");
        let small = open(&blocks, block, "small", tree, true).await;
        assert_eq!(total(&small), 3);
        assert!(held_of(&blocks, block, "small") < all / 5, "the other tenant's names are not");
        // What is there is added to.
        for whole in [true, false] {
            let large = open(&blocks, block, "large", tree, whole).await;
            assert_eq!(total(&large), 300 * 301 / 2);
        }
        let held = held_of(&blocks, block, "large");
        assert!(held > all / 2 && held < all + 200_000, "{held} {all}");
    }

    #[tokio::test]
    async fn rows_are_fetched_if_stored_sums_may_wrap() {
        let mut source = MemorySource::default();
        for (id, stacks) in [(1, ["f", "g"]), (2, ["f", "h"])] {
            let mut profile = Profile::default();
            profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
            for (stack, value) in stacks.into_iter().zip([i64::MAX, 7]) {
                let stack = profile.dictionary.intern_named_stack([stack].into_iter());
                profile.samples.push(stack, 0, &[value]);
            }
            source.add(&Labels::default(), &profile, id << 64);
        }
        let (blocks, block, _) = stored_parts(ByteSize::mib(64), &[("a", source)]).await;
        let run = async |names: &[&str]| {
            let included = FramePatterns {
                names: names.iter().map(|name| (*name).to_owned()).collect(),
                regexes: Vec::new(),
            };
            let frames = FrameFilter::new(included, FramePatterns::default()).unwrap();
            let what = QueryKind::Tree(StackFilter { frames, ..StackFilter::default() });
            let opened = open(&blocks, block, "a", &what, true).await;
            let ask = ProfileQuery { what, ..ProfileQuery::default() };
            run_matched(&ask, &opened.part.source, &opened.picked)
        };
        match run(&["h"]).await {
            Ok(PartialResult::Tree(tree)) => assert_eq!(tree.total(), 7),
            other => panic!("{other:?}"),
        }
        for names in [&["f"][..], &[]] {
            assert!(matches!(run(names).await, Err(ProfileQueryError::SumTooLarge { .. })));
        }
    }

    #[tokio::test]
    async fn what_is_read_takes_room_until_it_was_read() {
        let (blocks, block, _) = stored(ByteSize::mib(64)).await;
        let taken = || blocks.budget.stats().taken;
        let tree = &QueryKind::Tree(StackFilter::default());
        let opened = open(&blocks, block, "large", tree, true).await;
        assert!(taken() > 4_000 << 10, "{}", taken());
        drop(opened);
        assert_eq!(taken(), 0);
        let (small, block, _) = stored(ByteSize::kib(64)).await;
        let opened = open(&small, block, "large", tree, true).await;
        assert_eq!((small.budget.stats().taken, opened.part.source.series().unwrap().len()), (64 << 10, 1));
    }

    #[tokio::test]
    async fn parts_leave_when_they_grow_beyond_the_bound() {
        let (blocks, block, _) = stored(ByteSize::mib(64)).await;
        let blocks = BlockReader {
            parts: Arc::new(BlockCache::new(ByteSize::mib(1))),
            ..Arc::into_inner(blocks).unwrap()
        };
        let blocks = Arc::new(blocks);
        let tree = &QueryKind::Tree(StackFilter::default());
        drop(open(&blocks, block, "small", tree, true).await);
        drop(open(&blocks, block, "large", &QueryKind::ProfileTypes, true).await);
        assert_eq!(blocks.parts.stats().entries, 2);
        drop(open(&blocks, block, "large", tree, true).await);
        let stats = blocks.parts.stats();
        assert!(stats.bytes <= 1 << 20 && stats.entries < 2, "{stats:?}");
    }
}
