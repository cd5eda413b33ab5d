//! A request that was answered is answered alike as long as its answer would be made of the same blocks.

#![expect(clippy::unwrap_used, reason = "locks in tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::time::clock::ManualClock;
use athanor_chassis::{
    ByteSize, Clock, ComputePool, ErrorCode, LimitOverrides, Random, Status, TaskGroup, TenantId,
    TenantLimits, Timestamp,
};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ProfileSource, ValueType};
use athanor_proto::querier::v1::{SelectMergeStacktracesRequest, SelectSeriesRequest};
use athanor_querier::{
    DataSources, DataTimeRange, DedupHints, PartialReceiver, Querier, QuerierClusterDeps, QuerierConfig,
    QuerierDeps, QueryContext, QueryPlan, RemoteSource, SourceQueryError,
};
use athanor_query::{ProfileQuery, TimeRange};
use parking_lot::Mutex;

/// What is there, as blocks would be: each state has a number.
#[derive(Default)]
struct Blocks {
    /// Which blocks there are by now; the value of the only profile in them, too.
    state: AtomicU64,
    /// Of which time a peer has profiles in memory, nanoseconds.
    in_memory: Mutex<Option<(i64, i64)>>,
    warnings: Mutex<Vec<String>>,
    /// What whoever asks whether an answer still holds hears instead.
    trouble: Mutex<Option<Trouble>>,
    plans: AtomicU64,
}

#[derive(Clone, Copy)]
enum Trouble {
    Fails,
    Hangs,
}

struct Peer(Option<(i64, i64)>);

#[async_trait::async_trait]
impl RemoteSource for Peer {
    async fn query(
        &self,
        _: &TenantId,
        _: &ProfileQuery,
        inbox: &mut PartialReceiver,
    ) -> Result<(), SourceQueryError> {
        inbox.report_memory_range(self.0);
        Ok(())
    }
}

struct Shared(Arc<Blocks>);

#[async_trait::async_trait]
impl DataSources for Shared {
    async fn plan(&self, tenant: &TenantId, _: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        self.0.plans.fetch_add(1, Ordering::SeqCst);
        let state = self.0.state.load(Ordering::SeqCst);
        let value = state as i64 + tenant.as_str().len() as i64;
        Ok(QueryPlan {
            remote: vec![Arc::new(Peer(*self.0.in_memory.lock()))],
            warnings: self.0.warnings.lock().clone(),
            made_of: Some(state.into()),
            ..QueryPlan::from_sources([source(value)])
        })
    }

    async fn block_provenance(&self, _: &TenantId, _: TimeRange) -> Result<Option<u128>, Status> {
        let trouble = *self.0.trouble.lock();
        match trouble {
            Some(Trouble::Fails) => return Err(Status::new(ErrorCode::Unavailable, "no catalogue")),
            Some(Trouble::Hangs) => std::future::pending::<()>().await,
            None => {}
        }
        let in_memory = self.0.in_memory.lock().is_some();
        Ok((!in_memory).then(|| self.0.state.load(Ordering::SeqCst).into()))
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

fn source(value: i64) -> Arc<dyn ProfileSource> {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.time_nanos = 5_000_000;
    let stack = profile.dictionary.intern_named_stack(["main"].into_iter());
    profile.samples.push(stack, 0, &[value]);
    let mut source = MemorySource::default();
    let labels = [("__name__", "process_cpu"), ("service_name", "shop")];
    let labels = Labels::new(labels.map(|(name, value)| (name.to_owned(), value.to_owned())));
    source.add(&labels, &profile, 1);
    Arc::new(source)
}

/// A querier, what it reads, and the hand of its clock.
struct Setup {
    querier: Querier,
    blocks: Arc<Blocks>,
    hand: ManualClock,
}

impl Setup {
    fn of(config: QuerierConfig, limits: TenantLimits) -> Setup {
        let blocks = Arc::<Blocks>::default();
        blocks.state.store(100, Ordering::SeqCst);
        let (clock, hand) = Clock::manual(Timestamp::from_nanos(10_000_000));
        let sources = Arc::new(Shared(Arc::clone(&blocks)));
        let deps = QuerierDeps {
            sources,
            overrides: LimitOverrides::new(limits),
            clock,
            compute: ComputePool::inline(),
        };
        Setup { querier: Querier::new(config, deps), blocks, hand }
    }

    fn new() -> Setup {
        Setup::of(QuerierConfig::default(), TenantLimits::default())
    }

    async fn total(&self, tenant: &str) -> i64 {
        self.total_of(tenant, graph()).await
    }

    async fn total_of(&self, tenant: &str, request: SelectMergeStacktracesRequest) -> i64 {
        let reader = QueryContext::parse(tenant).unwrap();
        let answer = self.querier.select_merge_stacktraces(&reader, request).await.expect("an answer");
        answer.flamegraph.expect("a graph").total
    }

    fn plans(&self) -> u64 {
        self.blocks.plans.load(Ordering::SeqCst)
    }

    /// Requests that were answered as before, and anew though they were before.
    fn again(&self) -> (u64, u64) {
        let stats = self.querier.stats().again;
        (stats.hits, stats.misses)
    }
}

fn graph() -> SelectMergeStacktracesRequest {
    SelectMergeStacktracesRequest {
        profile_type_id: "process_cpu:cpu:nanoseconds::".to_owned(),
        label_selector: "{}".to_owned(),
        start: 1,
        end: 10,
        ..SelectMergeStacktracesRequest::default()
    }
}

#[tokio::test]
async fn nothing_is_read_as_long_as_nothing_has_come() {
    let setup = Setup::new();
    for _ in 0..3 {
        assert_eq!(setup.total("a").await, 101);
    }
    assert_eq!((setup.plans(), setup.again()), (1, (2, 0)));
    setup.blocks.state.store(200, Ordering::SeqCst);
    assert_eq!(setup.total("a").await, 201);
    assert_eq!(setup.total("a").await, 201);
    assert_eq!((setup.plans(), setup.again()), (2, (3, 1)));
    assert!(setup.querier.stats().again.bytes > 0);
}

#[tokio::test]
async fn an_answer_is_that_of_the_request_of_who_asks() {
    let setup = Setup::new();
    assert_eq!(setup.total("a").await, 101);
    assert_eq!(setup.total("bb").await, 102);
    assert_eq!(setup.total("a|bb").await, 203);
    let other = SelectMergeStacktracesRequest { max_nodes: Some(5), ..graph() };
    assert_eq!(setup.total_of("a", other).await, 101);
    assert_eq!((setup.plans(), setup.again()), (5, (0, 0)));
    assert_eq!(setup.total("a|bb").await, 203);
    assert_eq!((setup.plans(), setup.again()), (5, (1, 0)));

    let reader = QueryContext::parse("a").unwrap();
    let series = SelectSeriesRequest {
        profile_type_id: "process_cpu:cpu:nanoseconds::".to_owned(),
        label_selector: "{}".to_owned(),
        start: 1,
        end: 1_001,
        step: 1.0,
        ..SelectSeriesRequest::default()
    };
    let ask = || setup.querier.select_series(&reader, series.clone());
    let (first, second) = (ask().await.unwrap(), ask().await.unwrap());
    assert_eq!((first.series.len(), setup.again()), (1, (2, 0)));
    assert_eq!(first, second);

    let query = "query=process_cpu:cpu:nanoseconds::{}&from=now-1h&until=now";
    let drawn = || setup.querier.render(&reader, query);
    let first = drawn().await.unwrap();
    assert_eq!((drawn().await.unwrap(), setup.again()), (first.clone(), (3, 0)));
    assert_eq!(first.content_type, "application/json");
    // Now is later by then.
    setup.hand.advance(Duration::from_secs(1));
    drawn().await.unwrap();
    assert_eq!(setup.again(), (3, 0));
}

#[tokio::test]
async fn what_has_part_in_memory_or_lacks_something_is_not_kept() {
    let setup = Setup::new();
    *setup.blocks.in_memory.lock() = Some((5_000_000, 5_000_000));
    assert_eq!(setup.total("a").await, 101);
    assert_eq!(setup.total("a").await, 101);
    assert_eq!((setup.plans(), setup.again()), (2, (0, 0)));
    // What is of another time has no part in it.
    *setup.blocks.in_memory.lock() = Some((50_000_000, 60_000_000));
    assert_eq!(setup.total("a").await, 101);
    *setup.blocks.in_memory.lock() = None;
    assert_eq!(setup.total("a").await, 101);
    assert_eq!((setup.plans(), setup.again()), (3, (1, 0)));
    // Something comes that belongs into it.
    *setup.blocks.in_memory.lock() = Some((5_000_000, 5_000_000));
    assert_eq!(setup.total("a").await, 101);
    assert_eq!((setup.plans(), setup.again()), (4, (1, 1)));

    let setup = Setup::new();
    *setup.blocks.warnings.lock() = vec!["a block".to_owned()];
    setup.total("a").await;
    setup.blocks.warnings.lock().clear();
    setup.total("a").await;
    assert_eq!((setup.plans(), setup.again()), (2, (0, 0)));
}

#[tokio::test]
async fn who_cannot_tell_whether_an_answer_holds_asks_anew() {
    let setup = Setup::new();
    setup.total("a").await;
    *setup.blocks.trouble.lock() = Some(Trouble::Fails);
    assert_eq!(setup.total("a").await, 101);
    assert_eq!((setup.plans(), setup.again()), (2, (0, 1)));
    *setup.blocks.trouble.lock() = Some(Trouble::Hangs);
    let (total, ()) = futures::join!(setup.total("a"), async {
        tokio::task::yield_now().await;
        setup.hand.advance(Duration::from_secs(2));
    });
    assert_eq!((total, setup.plans(), setup.again()), (101, 3, (0, 2)));
}

#[tokio::test]
async fn what_limits_leave_out_by_then_is_not_given_again() {
    let limits =
        TenantLimits { max_query_lookback: Some(Duration::from_secs(60)), ..TenantLimits::default() };
    let setup = Setup::of(QuerierConfig::default(), limits);
    assert_eq!(setup.total("a").await, 101);
    assert_eq!(setup.total("a").await, 101);
    assert_eq!((setup.plans(), setup.again()), (1, (1, 0)));
    setup.hand.advance(Duration::from_secs(61));
    let reader = QueryContext::parse("a").unwrap();
    setup.querier.select_merge_stacktraces(&reader, graph()).await.unwrap();
    assert!(reader.warnings().join("\n").contains("is left out"));
    assert_eq!((setup.plans(), setup.again()), (2, (1, 1)));
}

#[tokio::test]
async fn without_memory_for_it_nothing_is_kept() {
    let config = QuerierConfig { results_cache_bytes: ByteSize::bytes(0), ..QuerierConfig::default() };
    let setup = Setup::of(config, TenantLimits::default());
    setup.total("a").await;
    setup.total("a").await;
    assert_eq!((setup.plans(), setup.again()), (2, (0, 0)));
}

/// Whoever looks into why an answer came as it did is told that nothing was read for it.
#[tokio::test]
async fn a_record_says_that_an_answer_was_kept() {
    let setup = Setup::new();
    let (clock, _) = Clock::manual(Timestamp::UNIX_EPOCH);
    let place = QuerierClusterDeps {
        node: 1,
        others: None,
        tasks: TaskGroup::new(clock, 1),
        random: Random::from_seed(1),
    };
    let querier = setup.querier.clone().with_cluster(place);
    let mut told = Vec::new();
    for state in [100, 100, 101] {
        setup.blocks.state.store(state, Ordering::SeqCst);
        let reader = querier.with_diagnostics(QueryContext::parse("a").unwrap(), "a call");
        querier.select_merge_stacktraces(&reader, graph()).await.expect("an answer");
        let record = querier.local_query_record(&reader, &reader.finish_request(None).unwrap()).unwrap();
        let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
        told.push((
            record["fromResultsCache"].as_bool().unwrap(),
            record["queries"].as_array().unwrap().len(),
        ));
    }
    assert_eq!(told, [(false, 1), (true, 0), (false, 1)]);
}
