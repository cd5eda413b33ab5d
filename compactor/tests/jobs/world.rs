//! Catalog, bucket and compactor of one test, and a plain list of all rows.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_block::{
    Block, BlockFolder, BlockMeta, BlockOrigin, META_FILE, MemoryFolder, MemoryProfiles, PARQUET_FILES,
    TenantBlockSource, write_from_memory,
};
use athanor_catalog::{BlockEntry, BlockId, Catalog, TenantSpan};
use athanor_chassis::time::clock::ManualClock;
use athanor_chassis::{Clock, ComputePool, Random, TenantId, Tier, Timestamp};
use athanor_compactor::{Compactor, CompactorConfig, CompactorDeps, JobOutcome, MemoryScratch};
use athanor_profile::store_interface::series::BucketCounts;
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ProfileSource, ValueType};
use athanor_storage::path::{BlockOwner, FileName, ObjectKey};
use athanor_storage::{StorageConfig, Store, StoreDeps};
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::test_catalog::{JobPlan, TestCatalog};

pub const SECOND: i64 = 1_000_000_000;
pub const START: i64 = 1_800_000_000;
pub const CLUSTER: u128 = 0xc1;

/// Profile of a test.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    pub tenant: String,
    pub service: String,
    pub time: i64,
    pub id: u64,
    pub values: Vec<i64>,
}

/// Row as a block holds it: the values of one profile are summed.
pub type ListedRow = (String, String, i64, u128, i64);

/// Totals of one series and bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct BucketTotals {
    counts: BucketCounts,
    value: i64,
}

impl BucketTotals {
    fn add(&mut self, counts: BucketCounts, value: i64) {
        self.counts.add(counts);
        self.value = self.value.wrapping_add(value);
    }
}

pub struct World {
    pub catalog: Arc<TestCatalog>,
    pub objects: Arc<InMemory>,
    pub store: Store,
    pub clock: Clock,
    pub hand: ManualClock,
    pub random: Random,
    next_index: AtomicU64,
}

/// Checks that a future can run as a task.
pub fn require_send<F: Future + Send>(future: F) -> F {
    future
}

pub fn row(tenant: &str, service: &str, time: i64, id: u64) -> Row {
    let values = vec![id as i64 + 1, time ^ 0x55];
    Row { tenant: tenant.to_owned(), service: service.to_owned(), time, id, values }
}

impl World {
    pub async fn new() -> Self {
        let (clock, hand) = Clock::manual(Timestamp::from_seconds(START));
        let deps = StoreDeps { clock: clock.clone(), random: Random::from_seed(3) };
        let objects = Arc::new(InMemory::new());
        let store = Store::with_object_store(Arc::clone(&objects), &StorageConfig::default(), deps);
        let catalog = Arc::new(TestCatalog::new(clock.clone()));
        catalog.open_shard(0, 1).await.unwrap();
        let random = Random::from_seed(4);
        Self { catalog, objects, store, clock, hand, random, next_index: AtomicU64::new(0) }
    }

    /// Sets the level and the number of pieces of the next jobs, which merge raw parts.
    pub fn plan(&self, level: u8, splits: u32) {
        self.plan_tier(Tier::Raw, level, splits);
    }

    /// Sets the tier, the level and the number of pieces of the next jobs.
    pub fn plan_tier(&self, tier: Tier, level: u8, splits: u32) {
        *self.catalog.plan.lock() = Some(JobPlan { level, splits, tier });
    }

    /// Creates a world whose store is a local folder.
    pub async fn with_local_bucket(folder: &std::path::Path) -> Self {
        let mut world = Self::new().await;
        let mut config = StorageConfig { local: Some(folder.to_owned()), ..StorageConfig::default() };
        // Nothing moves the clock between two attempts.
        config.retry.max_attempts = 1;
        let deps = StoreDeps { clock: world.clock.clone(), random: Random::from_seed(3) };
        world.store = Store::open(&config, deps).unwrap();
        world
    }

    /// Leaves the choice of jobs to the catalog's planner.
    pub fn plan_by_catalog(&self) {
        *self.catalog.plan.lock() = None;
    }

    pub fn compactor(&self, config: CompactorConfig) -> Compactor {
        self.compactor_with_clock(config, self.clock.clone())
    }

    pub fn compactor_with_clock(&self, config: CompactorConfig, clock: Clock) -> Compactor {
        let deps = CompactorDeps {
            catalog: Arc::clone(&self.catalog) as Arc<dyn Catalog>,
            store: self.store.clone(),
            clock,
            random: self.random.split(),
            compute: ComputePool::inline(),
            scratch: Arc::new(MemoryScratch),
            node: 1,
            cluster: CLUSTER,
        };
        Compactor::new(config, deps)
    }

    /// Runs jobs until none is left. Returns the outcomes.
    pub async fn compact(&self) -> Vec<JobOutcome> {
        let compactor = self.compactor(CompactorConfig::default());
        let mut outcomes = Vec::new();
        loop {
            match compactor.run_once().await.unwrap() {
                JobOutcome::Idle => return outcomes,
                outcome => outcomes.push(outcome),
            }
            assert!(outcomes.len() < 200, "{outcomes:?}");
        }
    }

    /// Flushes rows into a block of the next log range.
    pub async fn flush(&self, rows: &[Row]) -> BlockId {
        self.flush_of_cluster(rows, CLUSTER).await
    }

    pub async fn flush_of_cluster(&self, rows: &[Row], cluster: u128) -> BlockId {
        self.hand.advance(Duration::from_millis(5));
        let id = BlockId::new(self.clock.wall(), &self.random);
        let shard = self.catalog.open_shard(0, 1).await.unwrap();
        let from = self.next_index.fetch_add(10, Ordering::Relaxed);
        let origin = BlockOrigin {
            cluster: format!("{cluster:032x}"),
            shard: shard.id,
            epoch: shard.epoch,
            from,
            to: from + 10,
            lost: 0,
            level: 0,
            additional_ranges: Vec::new(),
            tier: Tier::Raw,
            is_covered: false,
            job: None,
        };
        let folder = MemoryFolder::default();
        let sources = sources(rows);
        let parts = sources.iter().map(|(tenant, source)| (tenant.as_str(), source as &dyn MemoryProfiles));
        let meta = write_from_memory(&folder, &id.to_string(), Some(origin.clone()), parts).unwrap();
        for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
            let bytes = folder.read(file, 0, folder.length(file).unwrap() as usize).unwrap();
            self.store.create(&key(id, None, file), bytes).await.unwrap();
        }
        self.catalog.register_block(entry(id, &meta, &origin)).await.unwrap();
        id
    }

    /// Returns the listed raw blocks.
    pub async fn listed(&self) -> Vec<BlockEntry> {
        self.listed_of_tier(Tier::Raw).await
    }

    /// Returns the listed blocks of a tier.
    pub async fn listed_of_tier(&self, tier: Tier) -> Vec<BlockEntry> {
        let blocks = self.catalog.blocks().await.unwrap();
        blocks.into_iter().filter(|block| block.tier == tier).collect()
    }

    /// Reads all listed raw parts, and compares the tiers with those that are covered.
    pub async fn rows(&self) -> Vec<ListedRow> {
        let mut rows = Vec::new();
        let mut covered = Vec::new();
        for entry in self.listed().await {
            let part = self.read_block(&entry).await;
            if entry.is_covered {
                covered.extend(part.clone());
            }
            rows.extend(part);
        }
        self.check_tiers(&covered).await;
        rows.sort();
        rows
    }

    /// Checks that each tier holds the sums of these raw rows, and no others.
    async fn check_tiers(&self, covered: &[ListedRow]) {
        for tier in Tier::DOWNSAMPLED {
            let mut expected: BTreeMap<(String, String, i64), BucketTotals> = BTreeMap::new();
            for (tenant, service, time, _, value) in covered {
                let bucket = (tenant.clone(), service.clone(), tier.bucket_end(*time));
                expected.entry(bucket).or_default().add(BucketCounts { records: 1, profiles: 1 }, *value);
            }
            let mut seen: BTreeMap<(String, String, i64), BucketTotals> = BTreeMap::new();
            for entry in self.listed_of_tier(tier).await {
                for (tenant, service, time, id, value) in self.read_block(&entry).await {
                    let counts = BucketCounts::from_row_id(id);
                    seen.entry((tenant, service, time)).or_default().add(counts, value);
                }
            }
            assert_eq!(seen, expected, "tier {tier}");
        }
    }

    /// Reads the listed parts of a block.
    async fn read_block(&self, entry: &BlockEntry) -> Vec<ListedRow> {
        let folder = Arc::new(MemoryFolder::default());
        for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
            let bytes = self.store.get(&key(entry.id, entry.folder_tenant(), file)).await.unwrap();
            folder.create(file).unwrap().write_all(&bytes).unwrap();
        }
        let block = Arc::new(Block::open(folder).unwrap());
        let mut rows = Vec::new();
        for span in &entry.tenants {
            let part = read_part(&block, span.tenant.as_str());
            let times = part.iter().map(|row| row.2);
            let records = |row: &ListedRow| match entry.tier {
                Tier::Raw => 1,
                _ => BucketCounts::from_row_id(row.3).records,
            };
            let profiles: u64 = part.iter().map(records).sum();
            assert_eq!(
                (times.clone().min().unwrap(), times.max().unwrap(), profiles),
                (span.min_time, span.max_time, span.profiles)
            );
            rows.extend(part);
        }
        rows
    }

    /// Returns the keys of all objects of a block.
    pub async fn keys(&self, id: BlockId) -> Vec<String> {
        let all: Vec<_> = self.objects.list(None).try_collect().await.unwrap();
        let keys = all.iter().map(|object| object.location.to_string());
        keys.filter(|key| key.contains(&id.to_string())).collect()
    }

    /// Changes the bytes of an object.
    pub async fn tamper(&self, id: BlockId, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let path = path(id, None, file);
        let mut bytes = self.objects.get(&path).await.unwrap().bytes().await.unwrap().to_vec();
        change(&mut bytes);
        self.objects.put(&path, bytes.into()).await.unwrap();
    }
}

/// Returns the key of a block's object.
fn key(id: BlockId, tenant: Option<&TenantId>, file: &str) -> ObjectKey {
    let owner = tenant.map_or(BlockOwner::Shared, |tenant| BlockOwner::Tenant(tenant.clone()));
    ObjectKey::Block { owner, block: id.number(), file: FileName::new(file).unwrap() }
}

/// Returns the path of a block's object in memory.
pub fn path(id: BlockId, tenant: Option<&TenantId>, file: &str) -> Path {
    let owner = tenant.map_or("_shared".to_owned(), ToString::to_string);
    Path::from(format!("blocks/{owner}/{id}/{file}"))
}

/// Returns the rows as a plain list keeps them: the first copy of each id.
pub fn model(flushes: &[&[Row]]) -> Vec<ListedRow> {
    let mut kept: BTreeMap<(String, u128), ListedRow> = BTreeMap::new();
    for flush in flushes {
        for (tenant, source) in sources(flush) {
            for row in read_source(&tenant, &source) {
                kept.entry((tenant.clone(), row.3)).or_insert(row);
            }
        }
    }
    let mut rows: Vec<ListedRow> = kept.into_values().collect();
    rows.sort();
    rows
}

fn sources(rows: &[Row]) -> BTreeMap<String, MemorySource> {
    let mut sources: BTreeMap<String, MemorySource> = BTreeMap::new();
    for row in rows {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        profile.header.time_nanos = row.time;
        for (place, &value) in row.values.iter().enumerate() {
            let name = format!("{}_{place}", row.service);
            let stack = profile.dictionary.intern_named_stack(["main", name.as_str()].into_iter());
            profile.samples.push(stack, 0, &[value]);
        }
        let labels = Labels::new([("service_name".to_owned(), row.service.clone())]);
        sources.entry(row.tenant.clone()).or_default().add(&labels, &profile, u128::from(row.id) << 64 | 7);
    }
    sources
}

fn read_part(block: &Arc<Block>, tenant: &str) -> Vec<ListedRow> {
    let source = TenantBlockSource::new(Arc::clone(block), tenant, ComputePool::inline()).unwrap();
    read_source(tenant, &source)
}

fn read_source(tenant: &str, source: &dyn ProfileSource) -> Vec<ListedRow> {
    let series = source.series().unwrap();
    let profiles = source.profiles().unwrap();
    let mut rows: Vec<ListedRow> = profiles
        .iter()
        .map(|row| {
            let service = series[row.series as usize].service().to_owned();
            (tenant.to_owned(), service, row.time, row.id, 0)
        })
        .collect();
    let all: Vec<u32> = (0..rows.len() as u32).collect();
    let mut add = |place: u32, _: &[u32], values: &[i64]| {
        let total = &mut rows[place as usize].4;
        *total = values.iter().fold(*total, |sum, value| sum.wrapping_add(*value));
    };
    source.visit_rows(&all, &mut add).unwrap();
    rows
}

/// Returns the catalog's entry of a flushed block.
fn entry(id: BlockId, meta: &BlockMeta, origin: &BlockOrigin) -> BlockEntry {
    let span = |part: &athanor_block::TenantMeta| TenantSpan {
        tenant: part.tenant.parse().unwrap(),
        min_time: part.min_time,
        max_time: part.max_time,
        profiles: u64::from(part.profiles.1),
        samples: part.samples,
        sum: part.sum,
        newest_arrival: Timestamp::UNIX_EPOCH,
    };
    BlockEntry {
        id,
        shard: origin.shard,
        epoch: origin.epoch,
        from: origin.from,
        to: origin.to,
        bytes: meta.bytes(),
        samples: meta.samples(),
        lost: 0,
        level: 0,
        additional_ranges: Vec::new(),
        tier: Tier::Raw,
        is_covered: false,
        job: None,
        tenants: meta.tenants.iter().map(span).collect(),
    }
}
