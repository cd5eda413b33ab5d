//! A million values of a label: of heads, of blocks, and of peers. Names of labels, with counts.

use std::ops::Range;
use std::sync::Arc;

use athanor_block::{Block, MemoryFolder, MemoryProfiles, TenantBlockSource, write_from_memory};
use athanor_chassis::{
    ByteSize, Clock, ComputePool, ErrorCode, LimitOverrides, Status, TenantId, TenantLimits, Timestamp,
};
use athanor_profile::store_interface::source::{
    MemorySource, SourceNameVisitor, SourceReadSize, SourceRowVisitor, SourceSpanRowVisitor,
};
use athanor_profile::{Labels, Profile, ProfileRow, ProfileSeries, ProfileSource, SourceError, ValueType};
use athanor_proto::types::v1::{
    LabelNamesRequest, LabelNamesResponse, LabelValuesRequest, LabelValuesResponse,
};
use athanor_querier::{
    DataSources, DataTimeRange, DedupHints, PartialReceiver, Querier, QuerierConfig, QuerierDeps,
    QueryContext, QueryPlan, RemoteSource, SourceQueryError,
};
use athanor_query::{ProfileQuery, run_all};

const TENANT: &str = "acme";
const MILLION: u32 = 1_000_000;
/// Where pods lie: some twice.
const HEAD: Range<u32> = 0..400_000;
const BLOCKS: [Range<u32>; 2] = [398_000..401_000, 400_500..402_000];
const PEERS: [Range<u32>; 2] = [402_000..750_000, 700_000..MILLION];
/// More than the largest answer of a peer may have if names were short.
const PADDING: usize = 60;

fn pod(number: u32) -> String {
    format!("pod-{number:07}-{:x<PADDING$}", "")
}

fn labels(number: u32) -> Labels {
    let labels = [("__name__", "process_cpu".to_owned()), ("pod", pod(number))];
    Labels::new(labels.map(|(name, value)| (name.to_owned(), value)))
}

/// As much of some pods as says that there are profiles of them.
#[derive(Clone)]
struct Pods {
    series: Arc<[ProfileSeries]>,
    profiles: Arc<[ProfileRow]>,
}

impl Pods {
    fn of(pods: Range<u32>) -> Self {
        let value = ValueType::new("cpu", "nanoseconds");
        let series = pods.clone().map(|pod| ProfileSeries::new(labels(pod), value.clone(), value.clone()));
        let row = |series| ProfileRow { series, time: 5_000_000, ..ProfileRow::default() };
        Pods { series: series.collect(), profiles: (0..pods.len() as u32).map(row).collect() }
    }
}

impl ProfileSource for Pods {
    fn series(&self) -> Result<Arc<[ProfileSeries]>, SourceError> {
        Ok(Arc::clone(&self.series))
    }
    fn profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        Ok(Arc::clone(&self.profiles))
    }
    fn totals(&self, _: &[u32]) -> Result<Vec<i64>, SourceError> {
        Ok(Vec::new())
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
}

/// The same in a block.
fn block(pods: Range<u32>) -> Arc<dyn ProfileSource> {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.time_nanos = 5_000_000;
    let stack = profile.dictionary.intern_named_stack(["main"].into_iter());
    profile.samples.push(stack, 0, &[1]);
    let mut source = MemorySource::default();
    pods.for_each(|pod| source.add(&labels(pod), &profile, u128::from(pod) + 1));
    let folder = MemoryFolder::default();
    write_from_memory(&folder, "held", None, [(TENANT, &source as &dyn MemoryProfiles)].into_iter())
        .expect("it is written");
    let block = Block::open(Arc::new(folder)).expect("a block");
    Arc::new(TenantBlockSource::new(Arc::new(block), TENANT, ComputePool::inline()).expect("a part"))
}

/// Answers in pieces, as from afar.
struct Peer(Pods);

#[async_trait::async_trait]
impl RemoteSource for Peer {
    async fn query(
        &self,
        _: &TenantId,
        ask: &ProfileQuery,
        inbox: &mut PartialReceiver,
    ) -> Result<(), SourceQueryError> {
        let partial = run_all(ask, [&self.0 as &dyn ProfileSource])?;
        let pieces = partial.pack().map_err(|error| Status::from_error(&error))?;
        pieces.into_iter().try_for_each(|piece| inbox.push_chunk(&piece))?;
        Ok(inbox.finish().await?)
    }
}

struct Everywhere {
    sources: Vec<Arc<dyn ProfileSource>>,
    peers: Vec<Arc<dyn RemoteSource>>,
}

#[async_trait::async_trait]
impl DataSources for Everywhere {
    async fn plan(&self, _: &TenantId, _: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        Ok(QueryPlan { remote: self.peers.clone(), ..QueryPlan::from_sources(self.sources.clone()) })
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

fn querier(config: QuerierConfig, sources: Arc<dyn DataSources>) -> Querier {
    let (clock, _hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let overrides = LimitOverrides::new(TenantLimits::default());
    Querier::new(config, QuerierDeps { sources, overrides, clock, compute: ComputePool::inline() })
}

/// Pods of a head and of two blocks, and further ones of a peer, some of them twice.
fn hundred_thousand_pods() -> Arc<Everywhere> {
    let head = Arc::new(Pods::of(0..40_000)) as Arc<dyn ProfileSource>;
    let blocks = [39_000..40_500, 40_500..42_000].map(block);
    let peer = Arc::new(Peer(Pods::of(42_000..100_000))) as Arc<dyn RemoteSource>;
    Arc::new(Everywhere { sources: std::iter::once(head).chain(blocks).collect(), peers: vec![peer] })
}

#[tokio::test]
async fn page_of_a_hundred_thousand_values_is_exact() {
    let querier = querier(QuerierConfig::default(), hundred_thousand_pods());
    let reader = QueryContext::parse(TENANT).expect("a tenant");
    for (prefix, limit, pods, more) in [
        ("pod-00391", 20, 39_100..39_120, true),
        ("pod-004199", 20, 41_990..42_000, false),
        ("pod-0099999", 1, 99_999..100_000, false),
        ("pod-01", 5, 0..0, false),
    ] {
        let request = LabelValuesRequest {
            name: "pod".to_owned(),
            prefix: prefix.to_owned(),
            limit,
            start: 1,
            end: 10,
            ..LabelValuesRequest::default()
        };
        let page = querier.label_values(&reader, request).await.expect("a page");
        assert_eq!(page.names, pods.clone().map(pod).collect::<Vec<_>>(), "{prefix}");
        let copies = pods.map(|pod| 1 + i64::from((39_000..40_000).contains(&pod)));
        assert_eq!((page.counts, page.more), (copies.collect(), more), "{prefix}");
    }
}

#[tokio::test]
async fn names_of_labels_are_counted_on_demand() {
    let querier = querier(QuerierConfig::default(), hundred_thousand_pods());
    let reader = QueryContext::parse(TENANT).expect("a tenant");
    let names = async |prefix: &str, limit: i64, counts: bool| {
        let prefix = prefix.to_owned();
        let request =
            LabelNamesRequest { start: 1, end: 10, prefix, limit, counts, ..LabelNamesRequest::default() };
        let LabelNamesResponse { names, counts, more, warnings } =
            querier.label_names(&reader, request).await.expect("names");
        assert!(warnings.is_empty());
        (names, counts, more)
    };
    let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(names("p", 0, true).await, (own(&["pod"]), vec![101_000], false));
    assert_eq!(names("p", 0, false).await, (own(&["pod"]), vec![], false));
    // Profiles of the blocks state no period.
    let periods = own(&["__period_type__", "__period_unit__"]);
    assert_eq!(names("__p", 2, true).await, (periods.clone(), vec![98_000; 2], true));
    assert!(!names("__p", 3, true).await.2, "the third is __profile_type__");
    assert_eq!(names("__p", 2, false).await, (periods, vec![], true));
    assert_eq!(names("q", 0, true).await, (vec![], vec![], false));
}

#[tokio::test]
async fn a_million_values_are_answered_within_the_budget() {
    let sources =
        std::iter::once(Arc::new(Pods::of(HEAD)) as Arc<dyn ProfileSource>).chain(BLOCKS.map(block));
    let peers = PEERS.map(|pods| Arc::new(Peer(Pods::of(pods))) as Arc<dyn RemoteSource>);
    let everywhere = Arc::new(Everywhere { sources: sources.collect(), peers: peers.into() });
    let ask = async |config: QuerierConfig, prefix: &str, limit: i64| {
        let sources: Arc<dyn DataSources> = Arc::<Everywhere>::clone(&everywhere);
        let request = LabelValuesRequest {
            name: "pod".to_owned(),
            prefix: prefix.to_owned(),
            limit,
            start: 1,
            end: 10,
            ..LabelValuesRequest::default()
        };
        querier(config, sources).label_values(&QueryContext::parse(TENANT).expect("a tenant"), request).await
    };
    let lies = |number: u32| {
        let places = [HEAD].into_iter().chain(BLOCKS).chain(PEERS);
        places.filter(|place| place.contains(&number)).count() as i64
    };
    let is = |answer: LabelValuesResponse, pods: Range<u32>, more: bool| {
        assert_eq!((answer.names.len(), answer.more), (pods.len(), more));
        for (number, (name, count)) in pods.zip(answer.names.iter().zip(&answer.counts)) {
            assert_eq!((name, *count), (&pod(number), lies(number)));
        }
    };
    let all = ask(QuerierConfig::default(), "", 0).await.expect("all of them");
    is(all, 0..MILLION, false);
    is(ask(QuerierConfig::default(), "pod-0400", 0).await.expect("some"), 400_000..401_000, false);
    // What does not fit is refused, and says with which numbers; less of it is answered in the same room.
    let small = || QuerierConfig {
        max_result_bytes: ByteSize::mib(16),
        max_inflight_result_bytes: ByteSize::mib(64),
        ..QuerierConfig::default()
    };
    let refused = ask(small(), "", 0).await.expect_err("it takes more");
    assert_eq!(refused.code, ErrorCode::Invalid);
    assert!(refused.message.contains("the limit is 16MiB (querier.max_result_bytes)"), "{refused}");
    is(ask(small(), "", 1_000).await.expect("the first"), 0..1_000, true);
}
