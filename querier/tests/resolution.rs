//! Responses state the resolution of their data, and warn if counts of profiles are unknown.

use std::collections::BTreeMap;
use std::sync::Arc;

use athanor_chassis::{
    ByteSize, Clock, ComputePool, LimitOverrides, Status, TenantId, TenantLimits, Tier, Timestamp,
};
use athanor_profile::Labels;
use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::store_interface::series::BucketCounts;
use athanor_proto::querier::v1::{AnalyzeQueryRequest, SelectSeriesRequest};
use athanor_proto::types::v1::TimeSeriesAggregationType;
use athanor_querier::{
    BlockSource, DataSources, DataTimeRange, DedupHints, PartialReceiver, Querier, QuerierConfig,
    QuerierDeps, QueryContext, QueryPlan, SourceQueryError, SourceReport,
};
use athanor_query::{
    PartialResult, ProfileQuery, QueryKind, ResolutionStretch, ResultResolution, TimeRange, TimeSeriesPoint,
};
use parking_lot::Mutex;

const HOUR_NANOS: i64 = 3_600_000_000_000;

/// Block with one point, whose profiles a downsampled row counts.
#[derive(Clone, Copy)]
struct DownsampledBlock(BucketCounts);

/// Each tenant has one block and its own tier.
struct Tiers {
    counts: BucketCounts,
    planned: Mutex<Vec<ProfileQuery>>,
    bytes: u64,
}

struct SharedTiers(Arc<Tiers>);

#[async_trait::async_trait]
impl DataSources for SharedTiers {
    async fn plan(&self, tenant: &TenantId, ask: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        self.0.planned.lock().push(ask.clone());
        let tier = if tenant.as_str() == "old" { Tier::OneDay } else { Tier::OneHour };
        let stretches = [
            ResolutionStretch { tier, after: 0, until: HOUR_NANOS },
            ResolutionStretch { tier: Tier::Raw, after: HOUR_NANOS, until: 2 * HOUR_NANOS },
        ];
        let stored: Vec<Box<dyn BlockSource>> = match ask.what {
            QueryKind::Points(_) => vec![Box::new(DownsampledBlock(self.0.counts))],
            _ => Vec::new(),
        };
        Ok(QueryPlan {
            stored,
            resolution: ResultResolution::from_stretches(stretches),
            bytes: self.0.bytes,
            made_of: Some(1),
            ..QueryPlan::default()
        })
    }

    async fn block_provenance(&self, _: &TenantId, _: TimeRange) -> Result<Option<ContentHash>, Status> {
        Ok(Some(1))
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

#[async_trait::async_trait]
impl BlockSource for DownsampledBlock {
    async fn query(
        self: Box<Self>,
        _: &mut PartialReceiver,
    ) -> Result<Option<(PartialResult, SourceReport)>, SourceQueryError> {
        let point = TimeSeriesPoint { sum: 60, downsampled: self.0, ..TimeSeriesPoint::default() };
        let points = BTreeMap::from([(Labels::default(), BTreeMap::from([(0, point)]))]);
        Ok(Some((PartialResult::Points(points), SourceReport::default())))
    }
}

fn setup(records: u64, profiles: u64, limits: TenantLimits) -> (Querier, Arc<Tiers>) {
    let counts = BucketCounts { records, profiles };
    let tiers = Arc::new(Tiers { counts, planned: Mutex::default(), bytes: 1_000 });
    let (clock, _hand) = Clock::manual(Timestamp::from_seconds(100_000));
    let overrides = LimitOverrides::new(limits);
    let sources = Arc::new(SharedTiers(Arc::clone(&tiers)));
    let deps = QuerierDeps { sources, overrides, clock, compute: ComputePool::inline() };
    (Querier::new(QuerierConfig::default(), deps), tiers)
}

fn series() -> SelectSeriesRequest {
    SelectSeriesRequest {
        profile_type_id: "process_cpu:cpu:nanoseconds:cpu:nanoseconds".to_owned(),
        label_selector: "{}".to_owned(),
        start: 1,
        end: 7_200_000,
        step: 3_600.0,
        aggregation: Some(TimeSeriesAggregationType::Average as i32),
        ..SelectSeriesRequest::default()
    }
}

fn reader(tenants: &str) -> QueryContext {
    QueryContext::parse(tenants).expect("tenants")
}

#[tokio::test]
async fn response_states_coarsest_tier_of_all_tenants_also_from_cache() {
    let (querier, tiers) = setup(4, 4, TenantLimits::default());
    assert_eq!(reader("new").resolution(), None);
    for _ in 0..2 {
        let reader = reader("new|old");
        let response = querier.select_series(&reader, series()).await.expect("series");
        let mean = response.series[0].points[0].value;
        assert!((mean - (60.0 + 60.0) / (4.0 + 4.0)).abs() < 1e-9, "{mean}");
        let resolution = reader.resolution().expect("a resolution").to_string();
        let expected =
            "1d 1970-01-01T00:00:00Z/1970-01-01T01:00:00Z, raw 1970-01-01T01:00:00Z/1970-01-01T02:00:00Z";
        assert_eq!((resolution.as_str(), reader.warnings()), (expected, vec![]));
    }
    assert_eq!(tiers.planned.lock().len(), 2, "the second response is cached");
}

#[tokio::test]
async fn unknown_count_of_split_profiles_is_a_warning() {
    let (querier, _) = setup(6, 4, TenantLimits::default());
    let reader = reader("new");
    querier.select_series(&reader, series()).await.expect("series");
    let warnings = reader.warnings();
    assert!(warnings.len() == 1 && warnings[0].starts_with("means are approximate"), "{warnings:?}");
}

#[tokio::test]
async fn estimate_states_its_resolution() {
    let (querier, _) = setup(4, 4, TenantLimits::default());
    let request = AnalyzeQueryRequest { start: 1, end: 7_200_000, ..AnalyzeQueryRequest::default() };
    let response = querier.analyze_query(&reader("new"), request).await.expect("an estimate");
    assert!(response.resolution.starts_with("1h 1970-01-01T00:00:00Z/"), "{}", response.resolution);
}

#[tokio::test]
async fn size_check_reads_the_tiers_of_the_query() {
    let limits = TenantLimits { max_query_bytes: Some(ByteSize::bytes(10)), ..TenantLimits::default() };
    let (querier, tiers) = setup(4, 4, limits);
    let reader = reader("new");
    querier.select_series(&reader, series()).await.expect("the estimate is small");
    let planned = tiers.planned.lock();
    let [query, estimate] = &planned[..] else { panic!("{} plans", planned.len()) };
    assert_eq!(estimate.what, QueryKind::Sizes);
    assert!(query.required_resolution().steps.is_some());
    assert_eq!(estimate.required_resolution(), query.required_resolution());
}
