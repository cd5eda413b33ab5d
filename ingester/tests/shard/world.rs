//! A node of one shard on what outlives it: disks that lose power, a bucket, and a catalogue that fails when it is told to.

use std::future::Future;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use athanor_block::{Block, BlockFolder, META_FILE, MemoryFolder, PARQUET_FILES, TenantBlockSource};
use athanor_catalog::{
    BlockEntry, BlockId, BlockListing, Catalog, CatalogCommand, CatalogError, CommandResult, InMemoryCatalog,
    ShardId, TenantDocuments, Tombstone,
};
use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::{
    ByteSize, Clock, ComputePool, ErrorCode, LimitOverrides, Random, Status, TaskGroup, TenantId,
    TenantLimits,
};
use athanor_consensus::log::{CommitMode, Log, LogConfig, LogIdentity};
use athanor_consensus::replicated;
use athanor_ingester::{
    DedupConfig, DeltaConfig, FlushConfig, Ingester, IngesterConfig, IngesterDeps, StoredUpload,
};
use athanor_profile::store_interface::upload::ProfileUpload;
use athanor_storage::path::{BlockOwner, FileName, KeyPrefix, ObjectKey};
use athanor_storage::{StorageConfig as Bucket, Store, StoreDeps};

use crate::samples::{Row, read};

/// What a cut may take.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A catalogue that outlives processes, and that fails when it is told to.
pub struct Facts {
    pub held: InMemoryCatalog,
    /// Registrations that do not arrive.
    pub deaf: AtomicU32,
    /// Registrations that arrive, and whose answers do not.
    pub dumb: AtomicU32,
    /// A shard whose registrations never arrive.
    pub barred: AtomicU32,
}

impl Facts {
    pub fn new(clock: Clock) -> Self {
        let never = AtomicU32::default;
        Self { held: InMemoryCatalog::new(clock), deaf: never(), dumb: never(), barred: never() }
    }
}

fn spend(count: &AtomicU32) -> bool {
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1)).is_ok()
}

#[async_trait]
impl Catalog for Facts {
    async fn propose(&self, command: CatalogCommand) -> Result<CommandResult, CatalogError> {
        let registers = matches!(
            command,
            CatalogCommand::RegisterBlock { .. } | CatalogCommand::RegisterStagedBlock { .. }
        );
        let failed = || Err(CatalogError::Unavailable(Status::new(ErrorCode::Unavailable, "told to fail")));
        let is_barred = |shard| shard == self.barred.load(Ordering::Relaxed);
        if matches!(&command, CatalogCommand::RegisterBlock { block, .. } if is_barred(block.shard)) {
            return failed();
        }
        if registers && spend(&self.deaf) {
            return failed();
        }
        let answer = self.held.propose(command).await;
        if registers && spend(&self.dumb) { failed() } else { answer }
    }
    async fn list_blocks(&self, tenant: &TenantId, from: i64, to: i64) -> Result<BlockListing, CatalogError> {
        self.held.list_blocks(tenant, from, to).await
    }
    async fn blocks(&self) -> Result<Vec<BlockEntry>, CatalogError> {
        self.held.blocks().await
    }
    async fn tenants(&self) -> Result<Vec<TenantId>, CatalogError> {
        self.held.tenants().await
    }
    async fn tenant_documents(&self, tenant: &TenantId) -> Result<TenantDocuments, CatalogError> {
        self.held.tenant_documents(tenant).await
    }
    async fn tombstones(&self) -> Result<Vec<(BlockId, Tombstone)>, CatalogError> {
        self.held.tombstones().await
    }
}

/// What a process leaves behind when it dies.
pub struct Remains {
    pub log_disk: MemoryDisk,
    pub state_disk: MemoryDisk,
    pub catalog: Arc<Facts>,
    pub store: Store,
    pub random: Random,
    pub clock: Clock,
    pub limits: TenantLimits,
    pub slots: u32,
    /// What the log keeps free of its disk.
    pub reserve: ByteSize,
    /// Room for what was walked.
    pub decoded: ByteSize,
    /// Memory for what is in no block yet.
    pub unflushed_bytes: ByteSize,
    /// Percent of the disk for it.
    pub wal_disk_percent: u32,
    /// Ids that the shard remembers.
    pub ids: u64,
    /// Memory for what series have counted.
    pub counters: ByteSize,
    /// Threads of the process; inline where it has one only.
    pub compute: ComputePool,
    /// Who commits.
    pub pump: CommitMode,
    /// True if the log is damaged.
    pub damaged: bool,
}

/// A node of one shard.
pub struct World {
    pub ingester: Ingester,
    pub tasks: TaskGroup,
    pub log: Log,
    pub remains: Remains,
}

pub fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

/// Runs a world whose time is only waited for.
pub fn simulate<R>(world: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(world)
}

impl Remains {
    /// What a process finds that is the first.
    pub fn new(bucket: Bucket, limits: TenantLimits, clock: Clock) -> Self {
        let random = Random::from_seed(7);
        let deps = StoreDeps { clock: clock.clone(), random: random.split() };
        Self {
            log_disk: MemoryDisk::new(),
            state_disk: MemoryDisk::new(),
            catalog: Arc::new(Facts::new(clock.clone())),
            store: Store::open(&bucket, deps).unwrap(),
            random,
            clock,
            limits,
            slots: 1,
            reserve: ByteSize::bytes(0),
            decoded: IngesterConfig::default().max_decoded_bytes,
            unflushed_bytes: IngesterConfig::default().max_unflushed_bytes,
            wal_disk_percent: 100,
            ids: 1000,
            counters: DeltaConfig::default().max_state_bytes_per_shard,
            compute: ComputePool::inline(),
            pump: CommitMode::Inline,
            damaged: false,
        }
    }
}

impl World {
    pub async fn new() -> Self {
        Self::with(TenantLimits::default(), Clock::system()).await
    }

    pub async fn with(limits: TenantLimits, clock: Clock) -> Self {
        Self::on(Bucket { memory: true, ..Bucket::default() }, limits, clock).await
    }

    pub async fn on(bucket: Bucket, limits: TenantLimits, clock: Clock) -> Self {
        Self::boot(Remains::new(bucket, limits, clock)).await
    }

    pub async fn boot(remains: Remains) -> Self {
        let Remains {
            log_disk,
            state_disk,
            catalog,
            store,
            random,
            clock,
            limits,
            slots,
            reserve,
            decoded,
            unflushed_bytes,
            wal_disk_percent,
            ids,
            counters,
            compute,
            pump,
            damaged,
        } = &remains;
        let tasks = TaskGroup::new(clock.clone(), 1000);
        let (segment, reserve) = (ByteSize::kib(256), *reserve);
        let config = LogConfig { segment, spares: 1, reserve, ..LogConfig::default() };
        let identity = LogIdentity { cluster: 1, node: 1 };
        let disk = Arc::new(log_disk.clone());
        let (log, recovery) = Log::open(disk, random, identity, &config, *pump).unwrap();
        assert_eq!(!recovery.damage.is_empty(), *damaged);
        let consensus = replicated::RaftGroupDeps {
            log: log.clone(),
            disk: Arc::new(state_disk.clone()),
            compute: compute.clone(),
            random: random.split(),
            network: None,
            node: 1,
            timing: replicated::RaftTiming::default(),
        };
        let deps = IngesterDeps {
            catalog: Arc::<Facts>::clone(catalog),
            store: store.clone(),
            consensus,
            overrides: LimitOverrides::new(limits.clone()),
            clock: clock.clone(),
            random: random.split(),
            compute: compute.clone(),
            tasks: tasks.clone(),
            cluster: 1,
            alone: true,
            kin: None,
        };
        let never = FlushConfig {
            max_head_age: Duration::from_secs(1 << 30),
            max_head_bytes: ByteSize::mib(1024),
            ..FlushConfig::default()
        };
        // Every cut puts its ids into a file.
        let config = IngesterConfig {
            flush: never,
            dedup: DedupConfig { max_ids_per_shard: *ids, max_memory_ids: 1 },
            delta: DeltaConfig { max_state_bytes_per_shard: *counters, ..DeltaConfig::default() },
            single_node_shards: *slots,
            max_decoded_bytes: *decoded,
            max_unflushed_bytes: *unflushed_bytes,
            max_wal_disk_percent: *wal_disk_percent,
            ..IngesterConfig::default()
        };
        let ingester = Ingester::open(&config, deps).await.unwrap();
        Self { ingester, tasks, log, remains }
    }

    /// The power goes, and comes again.
    pub async fn crash(self, seed: u64) -> Self {
        let Self { ingester, tasks, log, mut remains, .. } = self;
        remains.log_disk = remains.log_disk.crash(seed);
        remains.state_disk = remains.state_disk.crash(seed);
        tasks.shutdown(Duration::ZERO).await;
        ingester.shutdown().await;
        drop((ingester, log));
        Self::boot(remains).await
    }

    /// As who took the request would: what has nothing drawn is like no other.
    pub async fn push(&self, name: &str, uploads: Vec<ProfileUpload>) -> Vec<Result<StoredUpload, Status>> {
        self.push_to(1, name, uploads).await
    }

    /// As [`push`](Self::push), to another shard than the first.
    pub async fn push_to(
        &self,
        shard: ShardId,
        name: &str,
        uploads: Vec<ProfileUpload>,
    ) -> Vec<Result<StoredUpload, Status>> {
        let drawn = uploads.into_iter().map(|upload| match upload.drawn {
            0 => ProfileUpload { drawn: self.remains.random.next_id(), ..upload },
            _ => upload,
        });
        let uploads: Vec<ProfileUpload> = drawn.collect();
        self.ingester.append(shard, 1, &tenant(name), uploads).await.unwrap()
    }

    /// Pushes one upload; says how many profiles are new.
    pub async fn push_one(&self, upload: &ProfileUpload) -> u32 {
        self.push("acme", vec![upload.clone()]).await.remove(0).unwrap().new
    }

    pub async fn cut(&self) {
        self.ingester.flush_all(&self.remains.clock, PATIENCE).await.unwrap();
    }

    pub async fn blocks(&self) -> usize {
        self.remains.catalog.blocks().await.unwrap().len()
    }

    /// The blocks of which the bucket has any object, registered or not.
    pub async fn uploaded_names(&self) -> Vec<u128> {
        let all =
            self.remains.store.list(&KeyPrefix::BlocksOf(BlockOwner::Shared), None, 1000).await.unwrap();
        let block = |key: &str| match ObjectKey::parse(key) {
            Ok(ObjectKey::Block { block, .. }) => block,
            other => panic!("{other:?}"),
        };
        let mut blocks: Vec<u128> = all.iter().map(|entry| block(&entry.key)).collect();
        blocks.dedup();
        blocks
    }

    pub async fn uploaded(&self) -> usize {
        self.uploaded_names().await.len()
    }

    /// Everything of a tenant, from blocks and heads, as a query plans it.
    pub async fn rows(&self, name: &str) -> Vec<Row> {
        let tenant = tenant(name);
        let listing = self.remains.catalog.list_blocks(&tenant, i64::MIN, i64::MAX).await.unwrap();
        let mut rows = Vec::new();
        for shard in &listing.shards {
            for view in self.ingester.head_snapshots(shard.id, shard.watermark, &tenant).unwrap() {
                read(&view, &mut rows);
            }
        }
        for block in &listing.blocks {
            let block = Arc::new(self.fetch(block).await);
            read(&TenantBlockSource::new(block, name, ComputePool::inline()).unwrap(), &mut rows);
        }
        rows.sort();
        rows
    }

    async fn fetch(&self, block: &BlockEntry) -> Block {
        fetch(&self.remains.store, block).await
    }

    pub async fn total(&self) -> i64 {
        self.rows("acme").await.iter().map(|row| row.4).sum()
    }
}

/// The key of one file of a block.
pub fn object(block: u128, file: &str) -> ObjectKey {
    ObjectKey::Block { owner: BlockOwner::Shared, block, file: FileName::new(file).unwrap() }
}

/// A block, as it lies in the bucket.
pub async fn fetch(store: &Store, block: &BlockEntry) -> Block {
    let folder = MemoryFolder::default();
    for name in PARQUET_FILES.into_iter().chain([META_FILE]) {
        let bytes = store.get(&object(block.id.number(), name)).await.unwrap();
        folder.create(name).unwrap().write_all(&bytes).unwrap();
    }
    Block::open(Arc::new(folder)).unwrap()
}
