//! Many sources on many threads, several tenants, and sources that fail.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use athanor_chassis::{ByteSize, Clock, Code, Compute, Limits, Overrides, Status, TenantId, Timestamp};
use athanor_profile::source::{EachRequests, EachRows, Extent, MemorySource, ReadNames};
use athanor_profile::{Labels, Profile, ProfileRow, Series, Source, SourceError, ValueType};
use athanor_proto::querier::v1::{SelectMergeStacktracesRequest, SeriesRequest};
use athanor_querier::{
    Asked, Config, Deps, Doubts, Inbox, Part, Plan, Querier, Reader, Sources, Stored, Times,
};
use athanor_query::{Ask, Partial, run};

const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";

fn source(function: &str, value: i64) -> Arc<dyn Source> {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
    profile.header.time_nanos = 5_000_000;
    let stack = profile.dictionary.named_stack(["main", function].into_iter());
    profile.samples.push(stack, 0, &[value]);
    let mut source = MemorySource::default();
    source.add(&Labels::new([("__name__".to_owned(), "process_cpu".to_owned())]), &profile, 1);
    Arc::new(source)
}

/// A source whose peer is gone.
struct Gone;

impl Source for Gone {
    fn series(&self) -> Result<Arc<[Series]>, SourceError> {
        Err(SourceError::Unavailable("its peer left".to_owned()))
    }
    fn profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        Ok(Arc::new([]))
    }
    fn totals(&self, _: &[u32]) -> Result<Vec<i64>, SourceError> {
        Ok(Vec::new())
    }
    fn rows(&self, _: &[u32], _: &mut EachRows<'_>) -> Result<(), SourceError> {
        Ok(())
    }
    fn rows_of_requests(&self, _: &[u32], _: &mut EachRequests<'_>) -> Result<(), SourceError> {
        Ok(())
    }
    fn extent(&self, _: &[u32], _: bool) -> Result<Extent, SourceError> {
        Ok(Extent::default())
    }
    fn names(&self, _: &mut ReadNames<'_>) -> Result<(), SourceError> {
        Ok(())
    }
}

/// Sources that are fetched, and how many of them are open: now, and at most.
#[derive(Default)]
struct Counts {
    open: AtomicUsize,
    most: AtomicUsize,
}

struct Fetched(Arc<Counts>);
struct Fetch(Arc<Counts>, Ask);
struct Held(Arc<Counts>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[async_trait::async_trait]
impl Stored for Fetch {
    async fn answer(self: Box<Self>, _: &mut Inbox) -> Result<Option<(Partial, Part)>, Asked> {
        let open = self.0.open.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.most.fetch_max(open, Ordering::Relaxed);
        tokio::task::yield_now().await;
        let _held = Held(Arc::clone(&self.0));
        Ok(Some((run(&self.1, source("a", 10).as_ref())?, Part::default())))
    }
}

#[async_trait::async_trait]
impl Sources for Fetched {
    async fn plan(&self, _: &TenantId, ask: &Ask, _: &Doubts) -> Result<Plan, Status> {
        let fetch = || Box::new(Fetch(Arc::clone(&self.0), ask.clone())) as Box<dyn Stored>;
        let stored = (0..100).map(|_| fetch()).collect();
        Ok(Plan { stored, ..Plan::of([source("a", 1)]) })
    }

    async fn times(&self, _: &TenantId) -> Result<Times, Status> {
        Ok(Times::default())
    }
}

struct ByTenant;

#[async_trait::async_trait]
impl Sources for ByTenant {
    async fn plan(&self, tenant: &TenantId, _: &Ask, _: &Doubts) -> Result<Plan, Status> {
        let sources: Vec<Arc<dyn Source>> = match tenant.as_str() {
            "many" => (0..200).map(|n| source(["a", "b", "c"][n % 3], 1)).collect(),
            "one" => vec![source("a", 1_000)],
            "broken" => vec![source("a", 1), Arc::new(Gone)],
            _ => Vec::new(),
        };
        let missing = if tenant.as_str() == "one" { vec!["half of it".to_owned()] } else { Vec::new() };
        Ok(Plan { missing, ..Plan::of(sources) })
    }

    async fn times(&self, _: &TenantId) -> Result<Times, Status> {
        Ok(Times::default())
    }
}

async fn total(tenants: &str) -> Result<i64, Status> {
    total_of(Config::default(), Arc::new(ByTenant), tenants).await
}

async fn total_of(config: Config, sources: Arc<dyn Sources>, tenants: &str) -> Result<i64, Status> {
    let (clock, _hand) = Clock::manual(Timestamp::EPOCH);
    let compute = Compute::threads(NonZeroUsize::new(3).expect("3"), 4).expect("threads");
    let overrides = Overrides::new(Limits::default());
    let querier = Querier::new(config, Deps { sources, overrides, clock, compute });
    let request = SelectMergeStacktracesRequest {
        profile_type_id: TYPE.to_owned(),
        label_selector: "{}".to_owned(),
        start: 1,
        end: 10,
        ..SelectMergeStacktracesRequest::default()
    };
    let reader = Reader::parse(tenants).expect("tenants");
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
    assert_eq!(total_of(Config::default(), sources, "one").await, Ok(1_001));
    let most = counts.most.load(Ordering::Relaxed);
    assert!((2..=16).contains(&most), "{most}");
    assert_eq!(counts.open.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_answer_that_takes_too_much_is_refused() {
    for (config, named) in [
        (Config { answer: ByteSize::bytes(100), ..Config::default() }, "querier.answer)"),
        (Config { answers: ByteSize::bytes(500), ..Config::default() }, "querier.answers)"),
    ] {
        let refused = total_of(config, Arc::new(ByTenant), "many").await.expect_err("it is larger");
        assert!(refused.message.contains(named), "{refused}");
    }
}

#[tokio::test]
async fn one_that_fails_fails_the_whole() {
    let refused = total("one|broken").await.expect_err("a source is gone");
    assert_eq!(refused.code, Code::Unavailable);
    assert!(refused.message.contains("its peer left"), "{}", refused.message);
}

#[tokio::test]
async fn what_is_missing_is_said() {
    let (clock, _hand) = Clock::manual(Timestamp::EPOCH);
    let overrides = Overrides::new(Limits::default());
    let deps = Deps { sources: Arc::new(ByTenant), overrides, clock, compute: Compute::inline() };
    let (querier, reader) =
        (Querier::new(Config::default(), deps), Reader::parse("many|one").expect("tenants"));
    assert_eq!(reader.missing(), None);
    querier
        .series(&reader, SeriesRequest { start: 1, end: 10, ..SeriesRequest::default() })
        .await
        .expect("an answer");
    assert_eq!(reader.clone().missing().as_deref(), Some("half of it"));
}

/// A source whose reading takes until whoever asked has left. It counts those that begin and those that end so.
#[derive(Clone, Default)]
struct Endless {
    begun: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
    has_left: Option<Arc<AtomicBool>>,
}

impl Source for Endless {
    fn series(&self) -> Result<Arc<[Series]>, SourceError> {
        source("a", 1).series()
    }
    fn profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        source("a", 1).profiles()
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
    fn rows(&self, _: &[u32], _: &mut EachRows<'_>) -> Result<(), SourceError> {
        Ok(())
    }
    fn rows_of_requests(&self, _: &[u32], _: &mut EachRequests<'_>) -> Result<(), SourceError> {
        Ok(())
    }
    fn extent(&self, _: &[u32], _: bool) -> Result<Extent, SourceError> {
        Ok(Extent::default())
    }
    fn names(&self, _: &mut ReadNames<'_>) -> Result<(), SourceError> {
        Ok(())
    }
    fn until_left(&self, has_left: &Arc<AtomicBool>) -> Option<Arc<dyn Source>> {
        Some(Arc::new(Endless { has_left: Some(Arc::clone(has_left)), ..self.clone() }))
    }
}

#[async_trait::async_trait]
impl Sources for Endless {
    async fn plan(&self, tenant: &TenantId, _: &Ask, _: &Doubts) -> Result<Plan, Status> {
        let sources: Vec<Arc<dyn Source>> = match tenant.as_str() {
            "endless" => vec![source("a", 1), Arc::new(self.clone())],
            _ => vec![source("a", 1)],
        };
        Ok(Plan::of(sources))
    }

    async fn times(&self, _: &TenantId) -> Result<Times, Status> {
        Ok(Times::default())
    }
}

/// What is read for who leaves ends, on the thread that reads it; its turn and the room of what came by then are others'.
#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_stops_what_is_read() {
    let sources = Endless::default();
    let compute = Compute::threads(NonZeroUsize::MIN, 8).expect("a thread");
    let querier = |answer: u64, answers: u64| {
        let (clock, _hand) = Clock::manual(Timestamp::EPOCH);
        let overrides = Overrides::new(Limits::default());
        let deps = Deps { sources: Arc::new(sources.clone()), overrides, clock, compute: compute.clone() };
        let (answer, answers) = (ByteSize::bytes(answer), ByteSize::bytes(answers));
        Querier::new(Config { answer, answers, concurrent_queries: 1, ..Config::default() }, deps)
    };
    let ask = async |querier: &Querier, tenant: &str| {
        let reader = Reader::parse(tenant).expect("a tenant");
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
        Clock::system().within(Duration::from_secs(60), ended).await.expect("what it took is given back");
    }
}
