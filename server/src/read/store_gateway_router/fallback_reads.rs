//! Blocks for which no gateway responds are read by the node that runs the query.

use athanor_block::{BlockFolder, META_FILE, MemoryFolder, MemoryProfiles, PARQUET_FILES, write_from_memory};
use athanor_catalog::TenantSpan;
use athanor_chassis::{ByteSize, Clock, ComputePool, LimitOverrides, Random, TenantLimits, Tier, Timestamp};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ValueType};
use athanor_proto::types::v1::LabelValuesRequest;
use athanor_querier::{
    DataSources, DataTimeRange, DedupHints, Querier, QuerierConfig as Queries, QuerierDeps, QueryContext,
    QueryPlan,
};
use athanor_query::{LabelValuesQuery, QueryKind};
use athanor_storage::path::{BlockOwner, FileName, ObjectKey};
use athanor_storage::{StorageConfig as Bucket, Store, StoreDeps};
use athanor_store_gateway::{BlockReader, StoreGatewayConfig};

use super::*;
use crate::read::hedging::HedgeStats;

const TEST_BLOCK_ID: BlockId = BlockId::from_number(7);

/// A block that belongs to others, of whom none can be reached.
struct UnreachableBlock {
    gateways: StoreGatewayRouter,
    block: BlockTarget,
}

#[async_trait]
impl DataSources for UnreachableBlock {
    async fn plan(&self, _: &TenantId, _: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        let blocks = vec![OwnedBlock { at: self.block.clone(), owners: vec![2, 3] }];
        let away = RemoteBlocks { gateways: self.gateways.clone(), blocks };
        Ok(QueryPlan { remote: vec![Arc::new(away)], ..QueryPlan::default() })
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

/// A bucket with one block of so many pods, in the folder of an owner.
async fn bucket(owner: &BlockOwner, pods: u32) -> Store {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.time_nanos = 5_000_000;
    let stack = profile.dictionary.intern_named_stack(["main"].into_iter());
    profile.samples.push(stack, 0, &[1]);
    let mut held = MemorySource::default();
    for pod in 0..pods {
        let labels = Labels::new([("pod".to_owned(), format!("pod-{pod:040}"))]);
        held.add(&labels, &profile, u128::from(pod) + 1);
    }
    let folder = MemoryFolder::default();
    write_from_memory(&folder, "7", None, [("anonymous", &held as &dyn MemoryProfiles)].into_iter()).unwrap();
    let deps = StoreDeps { clock: Clock::system(), random: Random::from_seed(1) };
    let store = Store::open(&Bucket { memory: true, ..Bucket::default() }, deps).unwrap();
    for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
        let bytes = folder.read(file, 0, folder.length(file).unwrap() as usize).unwrap();
        let key = ObjectKey::Block {
            owner: owner.clone(),
            block: TEST_BLOCK_ID.number(),
            file: FileName::new(file).unwrap(),
        };
        store.create(&key, bytes).await.unwrap();
    }
    store
}

#[tokio::test]
async fn what_is_read_here_takes_the_room_of_the_query() {
    let config = StoreGatewayConfig { max_result_bytes: ByteSize::kib(64), ..StoreGatewayConfig::default() };
    let blocks =
        BlockReader::new(bucket(&BlockOwner::Shared, 2_000).await, ComputePool::inline(), None, &config);
    let here = Arc::new(StoreGateway::new(Arc::new(blocks), &config));
    // As an answer to another node it is too large.
    let what =
        QueryKind::LabelValues(LabelValuesQuery { name: "pod".to_owned(), ..LabelValuesQuery::default() });
    let ask = ProfileQuery { what, ..ProfileQuery::default() };
    let at = vec![BlockTarget::without_duplicates(TEST_BLOCK_ID, true)];
    let refused = here.query_blocks(&TenantId::anonymous(), ask, at).await.err().unwrap();
    assert!(refused.message.contains("the limit is 64KiB (store_gateway.max_result_bytes)"), "{refused}");

    let hedges = Arc::new(HedgingPolicy::new(10));
    let names = pod_names(here, &hedges, BlockTarget::without_duplicates(TEST_BLOCK_ID, true)).await;
    assert_eq!((names.len(), names[17].as_str()), (2_000, format!("pod-{:040}", 17).as_str()));
    // Both others were tried, for one call.
    assert_eq!(hedges.counts(), HedgeStats { calls: 1, second: 0, won: 0 });
}

/// Queries the pods of one block that no other node reads.
async fn pod_names(here: Arc<StoreGateway>, hedges: &Arc<HedgingPolicy>, block: BlockTarget) -> Vec<String> {
    let clock = Clock::system();
    let ways =
        IngesterClient { me: 1, ingester: None, loads: Arc::default(), remote: None, clock: clock.clone() };
    let hedges = Arc::clone(hedges);
    let gateways = StoreGatewayRouter { here, is_one: false, members: None, ways, hedges };
    let sources = Arc::new(UnreachableBlock { gateways, block });
    let overrides = LimitOverrides::new(TenantLimits::default());
    let deps = QuerierDeps { sources, overrides, clock, compute: ComputePool::inline() };
    let querier = Querier::new(Queries::default(), deps);
    let request =
        LabelValuesRequest { name: "pod".to_owned(), start: 1, end: 10, ..LabelValuesRequest::default() };
    querier.label_values(&QueryContext::for_tenant(TenantId::anonymous()), request).await.unwrap().names
}

/// Entry of a merged block of the anonymous tenant.
fn merged_entry(level: u8) -> BlockEntry {
    let time = 5_000_000;
    let span = TenantSpan {
        tenant: TenantId::anonymous(),
        min_time: time,
        max_time: time,
        profiles: 3,
        samples: 3,
        sum: Some(3),
        newest_arrival: Timestamp::UNIX_EPOCH,
    };
    BlockEntry {
        id: TEST_BLOCK_ID,
        shard: 1,
        epoch: 1,
        from: 0,
        to: 1,
        bytes: 1_000,
        samples: 3,
        lost: 0,
        level,
        additional_ranges: Vec::new(),
        tier: Tier::Raw,
        is_covered: false,
        job: Some(4),
        tenants: vec![span],
    }
}

#[tokio::test]
async fn level_of_block_selects_its_folder() {
    let tenant = TenantId::anonymous();
    let config = StoreGatewayConfig::default();
    for (owner, level) in
        [(BlockOwner::Shared, 0), (BlockOwner::Shared, 1), (BlockOwner::Tenant(tenant.clone()), 2)]
    {
        let blocks = BlockReader::new(bucket(&owner, 3).await, ComputePool::inline(), None, &config);
        let here = Arc::new(StoreGateway::new(Arc::new(blocks), &config));
        let block = block_selection(&merged_entry(level), &tenant, i64::MIN, i64::MAX);
        let names = pod_names(here, &Arc::new(HedgingPolicy::new(10)), block).await;
        assert_eq!(names.len(), 3, "level {level}");
    }
}
