//! Values near the limit of 63 bits, in heads, blocks and remote results: the API returns exact sums or an error.

use std::sync::Arc;

use athanor_block::{Block, MemoryFolder, MemoryProfiles, TenantBlockSource, write_from_memory};
use athanor_chassis::{
    Clock, ComputePool, ErrorCode, LimitOverrides, Status, TenantId, TenantLimits, Timestamp,
};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ProfileSource, ValueType};
use athanor_proto::athanor::v1::{FunctionsRequest, Query};
use athanor_proto::querier::v1::{SelectMergeStacktracesRequest, SelectSeriesRequest};
use athanor_querier::{
    DataSources, DataTimeRange, DedupHints, PartialReceiver, Querier, QuerierConfig, QuerierDeps,
    QueryContext, QueryPlan, RemoteSource, SourceQueryError,
};
use athanor_query::{ProfileQuery, run_all};

const TENANT: &str = "acme";
const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const SELECTOR: &str = "{service_name=\"api\"}";

/// Returns a source with a profile per second. Each has one stack of its own and one that all share.
fn source(first_id: u128, values: &[[i64; 2]]) -> MemorySource {
    let mut source = MemorySource::default();
    for (id, values) in (first_id..).zip(values) {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
        profile.header.time_nanos = id as i64 * 1_000_000_000;
        for (function, value) in ["shared".to_owned(), format!("own{id}")].iter().zip(values) {
            let stack = profile.dictionary.intern_named_stack(["main", function].into_iter());
            profile.samples.push(stack, 0, &[*value]);
        }
        let labels = [("__name__", "process_cpu"), ("service_name", "api")];
        source.add(
            &Labels::new(labels.map(|(name, value)| (name.to_owned(), value.to_owned()))),
            &profile,
            id << 64,
        );
    }
    source
}

fn block(first_id: u128, values: &[[i64; 2]]) -> Arc<dyn ProfileSource> {
    let source = source(first_id, values);
    let folder = MemoryFolder::default();
    write_from_memory(&folder, "sums", None, [(TENANT, &source as &dyn MemoryProfiles)].into_iter())
        .expect("a written block");
    let block = Block::open(Arc::new(folder)).expect("a block");
    Arc::new(TenantBlockSource::new(Arc::new(block), TENANT, ComputePool::inline()).expect("a part"))
}

/// Peer that sends partial results over the wire.
struct Peer(MemorySource);

#[async_trait::async_trait]
impl RemoteSource for Peer {
    async fn query(
        &self,
        _: &TenantId,
        ask: &ProfileQuery,
        inbox: &mut PartialReceiver,
    ) -> Result<(), SourceQueryError> {
        let partial = run_all(ask, [&self.0 as &dyn ProfileSource])?;
        let chunks = partial.pack().map_err(|error| Status::from_error(&error))?;
        chunks.into_iter().try_for_each(|chunk| inbox.push_chunk(&chunk))?;
        Ok(inbox.finish().await?)
    }
}

#[derive(Default)]
struct Sources {
    local: Vec<Arc<dyn ProfileSource>>,
    remote: Vec<Arc<dyn RemoteSource>>,
}

#[async_trait::async_trait]
impl DataSources for Sources {
    async fn plan(&self, _: &TenantId, _: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        Ok(QueryPlan { remote: self.remote.clone(), ..QueryPlan::from_sources(self.local.clone()) })
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

fn querier(sources: Sources) -> Querier {
    let (clock, _hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let overrides = LimitOverrides::new(TenantLimits::default());
    let deps = QuerierDeps { sources: Arc::new(sources), overrides, clock, compute: ComputePool::inline() };
    Querier::new(QuerierConfig::default(), deps)
}

/// Totals of the flame graph, of the single point of a chart and of the table of functions, over some seconds.
async fn totals(querier: &Querier, first: i64, last: i64) -> [Result<i64, Status>; 3] {
    let [for_graph, for_chart, for_table] = [(); 3].map(|()| QueryContext::parse(TENANT).expect("a tenant"));
    let start = first * 1_000;
    let end = last * 1_000;
    let graph = querier.select_merge_stacktraces(
        &for_graph,
        SelectMergeStacktracesRequest {
            profile_type_id: TYPE.to_owned(),
            label_selector: SELECTOR.to_owned(),
            start,
            end,
            ..SelectMergeStacktracesRequest::default()
        },
    );
    let graph = graph.await.map(|response| response.flamegraph.expect("a flame graph").total);
    let chart = querier.select_series(
        &for_chart,
        SelectSeriesRequest {
            profile_type_id: TYPE.to_owned(),
            label_selector: SELECTOR.to_owned(),
            start: end,
            end,
            step: (last - first + 1) as f64,
            ..SelectSeriesRequest::default()
        },
    );
    let chart = chart.await.map(|response| response.series[0].points[0].value as i64);
    let query = Query {
        profile_type: TYPE.to_owned(),
        selector: SELECTOR.to_owned(),
        start,
        end,
        ..Query::default()
    };
    let table = FunctionsRequest { query: Some(query), ..FunctionsRequest::default() };
    let table = querier.functions(&for_table, table).await.map(|response| response.total);
    [graph, chart, table]
}

async fn expect_overflow(querier: &Querier, first: i64, last: i64) {
    for result in totals(querier, first, last).await {
        let status = result.expect_err("a sum that does not fit");
        assert_eq!(status.code, ErrorCode::Invalid, "{status:?}");
        for part in ["63 bits", "9223372036854775807", "shorter time range"] {
            assert!(status.message.contains(part), "{status:?}");
        }
    }
}

#[tokio::test]
async fn sum_past_63_bits_in_one_source_is_an_error() {
    let large = i64::MAX / 2;
    // The sum of the shared stack wraps in the last two, that of a single profile in none.
    let values = [[1, large], [large, 1], [large, 1], [large, 1]];
    for source in [Arc::new(source(1, &values)) as Arc<dyn ProfileSource>, block(1, &values)] {
        let querier = querier(Sources { local: vec![source], ..Sources::default() });
        expect_overflow(&querier, 1, 4).await;
        expect_overflow(&querier, 2, 4).await;
        for total in totals(&querier, 1, 1).await {
            assert_eq!(total.expect("a sum") >> 11, (large + 1) >> 11, "charts round to 53 bits");
        }
    }
}

#[tokio::test]
async fn sum_past_63_bits_of_one_profile_is_an_error() {
    let values = [[i64::MAX, i64::MAX], [7, 8]];
    for source in [Arc::new(source(1, &values)) as Arc<dyn ProfileSource>, block(1, &values)] {
        let querier = querier(Sources { local: vec![source], ..Sources::default() });
        expect_overflow(&querier, 1, 2).await;
        expect_overflow(&querier, 1, 1).await;
        for total in totals(&querier, 2, 2).await {
            assert_eq!(total.expect("a sum"), 15);
        }
    }
}

#[tokio::test]
async fn sum_past_63_bits_over_several_sources_is_an_error() {
    let head = || Arc::new(source(1, &[[i64::MAX / 2, 3]]));
    let peer = || Arc::new(Peer(source(2, &[[i64::MAX / 2, 3]]))) as Arc<dyn RemoteSource>;
    let of_block = || block(3, &[[i64::MAX / 2, 3]]);
    let querier = querier(Sources { local: vec![head(), of_block()], remote: vec![peer()] });
    for [first, last] in [[1, 2], [2, 3], [1, 3]] {
        expect_overflow(&querier, first, last).await;
    }
    for second in 1..=3 {
        let [graph, _, table] = totals(&querier, second, second).await;
        assert_eq!([graph.expect("a sum"), table.expect("a sum")], [i64::MAX / 2 + 3; 2]);
    }
}
