//! Many sources on many threads, several tenants, and sources that fail.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use athanor_chassis::{
    ByteSize, Clock, ComputePool, ErrorCode, LimitOverrides, Status, TenantId, TenantLimits, Timestamp,
};
use athanor_profile::store_interface::source::{
    SourceNameVisitor, SourceReadSize, SourceRowVisitor, SourceSpanRowVisitor,
};
use athanor_profile::{ProfileRow, ProfileSeries, ProfileSource, SourceError};
use athanor_proto::querier::v1::{SelectMergeStacktracesRequest, SeriesRequest};
use athanor_querier::{
    BlockSource, DataSources, DataTimeRange, DedupHints, PartialReceiver, Querier, QuerierConfig,
    QuerierDeps, QueryContext, QueryPlan, SourceQueryError, SourceReport,
};
use athanor_query::{PartialResult, ProfileQuery, run};

#[path = "model/sources.rs"]
mod sources;

use sources::{FailingSource, source};

const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";

/// Sources that are fetched, and how many of them are open: now, and at most.
#[derive(Default)]
struct Counts {
    open: AtomicUsize,
    most: AtomicUsize,
}

struct Fetched(Arc<Counts>);
struct Fetch(Arc<Counts>, ProfileQuery);
struct Held(Arc<Counts>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[async_trait::async_trait]
impl BlockSource for Fetch {
    async fn query(
        self: Box<Self>,
        _: &mut PartialReceiver,
    ) -> Result<Option<(PartialResult, SourceReport)>, SourceQueryError> {
        let open = self.0.open.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.most.fetch_max(open, Ordering::Relaxed);
        tokio::task::yield_now().await;
        let _held = Held(Arc::clone(&self.0));
        Ok(Some((run(&self.1, source("a", 10).as_ref())?, SourceReport::default())))
    }
}

#[async_trait::async_trait]
impl DataSources for Fetched {
    async fn plan(&self, _: &TenantId, ask: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        let fetch = || Box::new(Fetch(Arc::clone(&self.0), ask.clone())) as Box<dyn BlockSource>;
        let stored = (0..100).map(|_| fetch()).collect();
        Ok(QueryPlan { stored, ..QueryPlan::from_sources([source("a", 1)]) })
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

struct ByTenant;

#[async_trait::async_trait]
impl DataSources for ByTenant {
    async fn plan(&self, tenant: &TenantId, _: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        let sources: Vec<Arc<dyn ProfileSource>> = match tenant.as_str() {
            "many" => (0..200).map(|n| source(["a", "b", "c"][n % 3], 1)).collect(),
            "one" => vec![source("a", 1_000)],
            "broken" => vec![
                source("a", 1),
                Arc::new(FailingSource(SourceError::Unavailable("its peer left".to_owned()))),
            ],
            _ => Vec::new(),
        };
        let warnings = if tenant.as_str() == "one" { vec!["half of it".to_owned()] } else { Vec::new() };
        Ok(QueryPlan { warnings, ..QueryPlan::from_sources(sources) })
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

async fn total(tenants: &str) -> Result<i64, Status> {
    total_of(QuerierConfig::default(), Arc::new(ByTenant), tenants).await
}

async fn total_of(
    config: QuerierConfig,
    sources: Arc<dyn DataSources>,
    tenants: &str,
) -> Result<i64, Status> {
    let (clock, _hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let compute = ComputePool::with_threads(NonZeroUsize::new(3).expect("3"), 4).expect("threads");
    let overrides = LimitOverrides::new(TenantLimits::default());
    let querier = Querier::new(config, QuerierDeps { sources, overrides, clock, compute });
    let request = SelectMergeStacktracesRequest {
        profile_type_id: TYPE.to_owned(),
        label_selector: "{}".to_owned(),
        start: 1,
        end: 10,
        ..SelectMergeStacktracesRequest::default()
    };
    let reader = QueryContext::parse(tenants).expect("tenants");
    let graph = querier.select_merge_stacktraces(&reader, request).await?.flamegraph.expect("a graph");
    Ok(graph.total)
}

#[tokio::test]
async fn answers_of_all_sources_and_tenants_add_up() {
    assert_eq!(total("many").await, Ok(200));
    assert_eq!(total("many|one|many").await, Ok(1_200));
    assert_eq!(total("nobody").await, Ok(0));
}

#[tokio::test]
async fn what_is_fetched_is_open_a_few_at_a_time() {
    let counts = Arc::new(Counts::default());
    let sources = Arc::new(Fetched(Arc::clone(&counts)));
    assert_eq!(total_of(QuerierConfig::default(), sources, "one").await, Ok(1_001));
    let most = counts.most.load(Ordering::Relaxed);
    assert!((2..=16).contains(&most), "{most}");
    assert_eq!(counts.open.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_answer_that_takes_too_much_is_refused() {
    for (config, named) in [
        (
            QuerierConfig { max_result_bytes: ByteSize::bytes(100), ..QuerierConfig::default() },
            "querier.max_result_bytes)",
        ),
        (
            QuerierConfig { max_inflight_result_bytes: ByteSize::bytes(500), ..QuerierConfig::default() },
            "querier.max_inflight_result_bytes)",
        ),
    ] {
        let refused = total_of(config, Arc::new(ByTenant), "many").await.expect_err("it is larger");
        assert!(refused.message.contains(named), "{refused}");
    }
}

#[tokio::test]
async fn one_that_fails_fails_the_whole() {
    let refused = total("one|broken").await.expect_err("a source is gone");
    assert_eq!(refused.code, ErrorCode::Unavailable);
    assert!(refused.message.contains("its peer left"), "{}", refused.message);
}

#[tokio::test]
async fn what_is_missing_is_said() {
    let (clock, _hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let overrides = LimitOverrides::new(TenantLimits::default());
    let deps = QuerierDeps { sources: Arc::new(ByTenant), overrides, clock, compute: ComputePool::inline() };
    let (querier, reader) =
        (Querier::new(QuerierConfig::default(), deps), QueryContext::parse("many|one").expect("tenants"));
    assert!(reader.warnings().is_empty());
    querier
        .series(&reader, SeriesRequest { start: 1, end: 10, ..SeriesRequest::default() })
        .await
        .expect("an answer");
    assert_eq!(reader.clone().warnings(), ["half of it"]);
}

/// A source whose reading takes until whoever asked has left. It counts those that begin and those that end so.
#[derive(Clone, Default)]
struct Endless {
    begun: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
    has_left: Option<Arc<AtomicBool>>,
}

impl ProfileSource for Endless {
    fn series(&self) -> Result<Arc<[ProfileSeries]>, SourceError> {
        source("a", 1).series()
    }
    fn profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        source("a", 1).profiles()
    }
    fn max_sum(&self, _: &[u32]) -> Result<Option<u64>, SourceError> {
        Ok(Some(0))
    }
    fn totals(&self, _: &[u32]) -> Result<Vec<i64>, SourceError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let has_left = self.has_left.as_ref().expect("it is said who asks");
        while !has_left.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        self.ended.fetch_add(1, Ordering::SeqCst);
        Err(SourceError::Left)
    }
    fn visit_rows(&self, _: &[u32], _: &mut SourceRowVisitor<'_>) -> Result<(), SourceError> {
        Ok(())
    }
    fn visit_span_rows(&self, _: &[u32], _: &mut SourceSpanRowVisitor<'_>) -> Result<(), SourceError> {
        Ok(())
    }
    fn read_size(&self, _: &[u32], _: bool) -> Result<SourceReadSize, SourceError> {
        Ok(SourceReadSize::default())
    }
    fn visit_names(&self, _: &mut SourceNameVisitor<'_>) -> Result<(), SourceError> {
        Ok(())
    }
    fn with_cancellation(&self, has_left: &Arc<AtomicBool>) -> Option<Arc<dyn ProfileSource>> {
        Some(Arc::new(Endless { has_left: Some(Arc::clone(has_left)), ..self.clone() }))
    }
}

#[async_trait::async_trait]
impl DataSources for Endless {
    async fn plan(&self, tenant: &TenantId, _: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        let sources: Vec<Arc<dyn ProfileSource>> = match tenant.as_str() {
            "endless" => vec![source("a", 1), Arc::new(self.clone())],
            _ => vec![source("a", 1)],
        };
        Ok(QueryPlan::from_sources(sources))
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

/// What is read for who leaves ends, on the thread that reads it; its turn and the room of what came by then are others'.
#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_stops_what_is_read() {
    let sources = Endless::default();
    let compute = ComputePool::with_threads(NonZeroUsize::MIN, 8).expect("a thread");
    let querier = |answer: u64, answers: u64| {
        let (clock, _hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        let overrides = LimitOverrides::new(TenantLimits::default());
        let deps =
            QuerierDeps { sources: Arc::new(sources.clone()), overrides, clock, compute: compute.clone() };
        let (answer, answers) = (ByteSize::bytes(answer), ByteSize::bytes(answers));
        Querier::new(
            QuerierConfig {
                max_result_bytes: answer,
                max_inflight_result_bytes: answers,
                max_concurrent: 1,
                ..QuerierConfig::default()
            },
            deps,
        )
    };
    let ask = async |querier: &Querier, tenant: &str| {
        let reader = QueryContext::parse(tenant).expect("a tenant");
        let request = SelectMergeStacktracesRequest {
            profile_type_id: TYPE.to_owned(),
            label_selector: "{}".to_owned(),
            start: 1,
            end: 10,
            ..SelectMergeStacktracesRequest::default()
        };
        querier.select_merge_stacktraces(&reader, request).await
    };
    // The least room in which one answer is made: nothing else may take any.
    let mut least = 1;
    while ask(&querier(least, least), "one").await.is_err() {
        least += 1;
    }
    // Each of two tenants may have half.
    let querier = querier(least, 2 * least);
    for round in 1..4 {
        tokio::select! {
            answer = ask(&querier, "endless") => panic!("{answer:?}"),
            () = async { while sources.begun.load(Ordering::SeqCst) < round { tokio::task::yield_now().await } } => {}
        }
        assert!(ask(&querier, "one").await.is_ok(), "its turn was given back");
        // It ends by itself, though it may still run beside the query of another tenant.
        let ended = async {
            while sources.ended.load(Ordering::SeqCst) < round || querier.stats().room.taken > 0 {
                tokio::task::yield_now().await;
            }
        };
        Clock::system().timeout(Duration::from_secs(60), ended).await.expect("what it took is given back");
    }
}
