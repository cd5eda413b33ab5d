//! Equal requests at once are answered once, and each by a plan that was made after it came.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::time::clock::ManualClock;
use athanor_chassis::{
    ByteSize, Clock, ComputePool, ErrorCode, LimitOverrides, Status, TenantId, TenantLimits, Timestamp,
};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ProfileSource, ValueType};
use athanor_proto::querier::v1::{SelectMergeStacktracesRequest, SelectMergeStacktracesResponse};
use athanor_proto::types::v1::GetProfileStatsRequest;
use athanor_querier::{
    DataSources, DataTimeRange, DedupHints, Querier, QuerierConfig, QuerierDeps, QueryContext, QueryPlan,
};
use athanor_query::ProfileQuery;
use futures::future::join_all;
use futures::poll;
use tokio::sync::Semaphore;

/// What is there: the value of the only profile. A plan is made at once, and known when it may be.
struct Slow {
    value: AtomicU64,
    plans: AtomicU64,
    fails: AtomicBool,
    lacks: AtomicBool,
    go: Semaphore,
}

struct Shared(Arc<Slow>);

#[async_trait::async_trait]
impl DataSources for Shared {
    async fn plan(&self, _: &TenantId, _: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        self.0.plans.fetch_add(1, Ordering::SeqCst);
        let value = self.0.value.load(Ordering::SeqCst);
        let fails = self.0.fails.load(Ordering::SeqCst);
        self.0.go.acquire().await.expect("open").forget();
        if fails {
            return Err(Status::new(ErrorCode::Unavailable, format!("no catalogue at {value}")));
        }
        let warnings =
            self.0.lacks.load(Ordering::SeqCst).then(|| "a block".to_owned()).into_iter().collect();
        Ok(QueryPlan { warnings, ..QueryPlan::from_sources([source(value as i64)]) })
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        self.0.plans.fetch_add(1, Ordering::SeqCst);
        let value = self.0.value.load(Ordering::SeqCst) as i64;
        self.0.go.acquire().await.expect("open").forget();
        Ok(DataTimeRange { span: Some((0, value * 1_000_000)), ..DataTimeRange::default() })
    }
}

fn source(value: i64) -> Arc<dyn ProfileSource> {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.time_nanos = 5_000_000;
    let stack = profile.dictionary.intern_named_stack(["main"].into_iter());
    profile.samples.push(stack, 0, &[value]);
    let mut source = MemorySource::default();
    source.add(&Labels::new([("__name__".to_owned(), "process_cpu".to_owned())]), &profile, 1);
    Arc::new(source)
}

struct Setup {
    querier: Querier,
    slow: Arc<Slow>,
    clock: Clock,
    hand: ManualClock,
}

/// One of those who ask.
type Asking<'s, A = SelectMergeStacktracesResponse> =
    Pin<Box<dyn Future<Output = (Result<A, Status>, QueryContext)> + 's>>;

impl Setup {
    fn of(config: QuerierConfig) -> Setup {
        let slow = Arc::new(Slow {
            value: AtomicU64::new(100),
            plans: AtomicU64::new(0),
            fails: AtomicBool::new(false),
            lacks: AtomicBool::new(false),
            go: Semaphore::new(0),
        });
        let (clock, hand) = Clock::manual(Timestamp::from_nanos(10_000_000));
        let (sources, overrides) =
            (Arc::new(Shared(Arc::clone(&slow))), LimitOverrides::new(TenantLimits::default()));
        let deps = QuerierDeps { sources, overrides, clock: clock.clone(), compute: ComputePool::inline() };
        Setup { querier: Querier::new(config, deps), slow, clock, hand }
    }

    /// Asks for a graph, as far as it goes now.
    async fn asks(&self, reader: QueryContext, max_nodes: i64) -> Asking<'_> {
        let request = SelectMergeStacktracesRequest {
            profile_type_id: "process_cpu:cpu:nanoseconds::".to_owned(),
            label_selector: "{}".to_owned(),
            start: 1,
            end: 10,
            max_nodes: Some(max_nodes),
            ..SelectMergeStacktracesRequest::default()
        };
        let mut asking = Box::pin(async move {
            let answer = self.querier.select_merge_stacktraces(&reader, request).await;
            (answer, reader)
        });
        assert!(poll!(&mut asking).is_pending());
        asking
    }

    async fn all(&self, count: usize) -> Vec<Asking<'_>> {
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(self.asks(reader(), 8).await);
        }
        all
    }

    fn go(&self, plans: usize) {
        self.slow.go.add_permits(plans);
    }

    /// Plans that were made, and requests that were answered along with others.
    fn seen(&self) -> (u64, u64) {
        (self.slow.plans.load(Ordering::SeqCst), self.querier.stats().again.joined)
    }
}

fn reader() -> QueryContext {
    QueryContext::for_tenant(TenantId::anonymous())
}

fn total((answer, _): (Result<SelectMergeStacktracesResponse, Status>, QueryContext)) -> i64 {
    answer.expect("an answer").flamegraph.expect("a graph").total
}

fn refused((answer, _): (Result<SelectMergeStacktracesResponse, Status>, QueryContext)) -> String {
    answer.expect_err("refused").message
}

#[tokio::test]
async fn who_comes_after_a_plan_waits_for_the_next_together() {
    for results_cache in [ByteSize::bytes(0), ByteSize::mib(1)] {
        let setup =
            Setup::of(QuerierConfig { results_cache_bytes: results_cache, ..QuerierConfig::default() });
        let first = setup.asks(reader(), 8).await;
        // Something is stored, and whoever comes now may know of it.
        setup.slow.value.store(200, Ordering::SeqCst);
        let later = setup.all(20).await;
        assert_eq!(setup.seen(), (1, 0));
        setup.go(2);
        assert_eq!(total(first.await), 100);
        assert!(join_all(later).await.into_iter().all(|answer| total(answer) == 200));
        assert_eq!(setup.seen(), (2, 19));
        assert_eq!(setup.querier.stats().room.taken, 0, "all room is given back");
    }
}

#[tokio::test]
async fn who_waits_for_a_turn_has_others_wait_along() {
    let setup = Setup::of(QuerierConfig { max_concurrent: 1, ..QuerierConfig::default() });
    setup.slow.lacks.store(true, Ordering::SeqCst);
    let other = setup.asks(reader(), 9).await;
    let equal = setup.all(10).await;
    assert_eq!((setup.seen(), setup.querier.stats().turns.waiting), ((1, 0), 1));
    setup.slow.value.store(300, Ordering::SeqCst);
    setup.go(2);
    assert_eq!(total(other.await), 100);
    for (answer, reader) in join_all(equal).await {
        let answer = answer.expect("an answer");
        assert_eq!(answer.flamegraph.expect("a graph").total, 300);
        assert_eq!([answer.warnings, reader.warnings()], [["a block"], ["a block"]]);
    }
    assert_eq!(setup.seen(), (2, 9));
}

#[tokio::test]
async fn who_leaves_leaves_the_others_their_answer() {
    let setup = Setup::of(QuerierConfig::default());
    let first = setup.asks(reader(), 8).await;
    let others = setup.all(3).await;
    drop(first);
    setup.slow.value.store(200, Ordering::SeqCst);
    setup.go(1);
    assert!(join_all(others).await.into_iter().all(|answer| total(answer) == 200));
    assert_eq!(setup.seen(), (2, 2));
    // Nothing is left behind: whoever asks now asks for itself.
    let next = setup.asks(reader(), 8).await;
    setup.go(1);
    assert_eq!((total(next.await), setup.seen()), (200, (3, 2)));
}

#[tokio::test]
async fn what_fails_fails_for_all_who_share_it() {
    let setup = Setup::of(QuerierConfig { max_concurrent: 1, ..QuerierConfig::default() });
    setup.slow.fails.store(true, Ordering::SeqCst);
    let other = setup.asks(reader(), 9).await;
    let equal = setup.all(5).await;
    setup.go(2);
    assert_eq!(refused(other.await), "no catalogue at 100");
    assert!(join_all(equal).await.into_iter().all(|answer| refused(answer) == "no catalogue at 100"));
    assert_eq!(setup.seen(), (2, 0));
}

#[tokio::test]
async fn each_waits_as_long_as_it_says() {
    let setup = Setup::of(QuerierConfig::default());
    let hurried = || {
        let reader = reader();
        reader.set_timeout(&setup.clock, Duration::from_secs(1));
        reader
    };
    let first = setup.asks(reader(), 8).await;
    let second = setup.asks(hurried(), 8).await;
    setup.hand.advance(Duration::from_secs(2));
    let late = refused(second.await);
    assert!(late.contains("query not done within"), "{late}");
    setup.go(1);
    assert_eq!(total(first.await), 100);
    // One that leads and is late is late for itself alone.
    let first = setup.asks(hurried(), 8).await;
    let second = setup.asks(reader(), 8).await;
    setup.hand.advance(Duration::from_secs(2));
    let late = refused(first.await);
    assert!(late.contains("select fewer series or a shorter time"), "{late}");
    setup.go(1);
    assert_eq!(total(second.await), 100);
}

#[tokio::test]
async fn of_which_time_there_are_profiles_is_asked_once_at_once() {
    let setup = Setup::of(QuerierConfig::default());
    let asks = || async {
        let reader = reader();
        let answer = setup.querier.get_profile_stats(&reader, GetProfileStatsRequest::default()).await;
        answer.expect("an answer").newest_profile_time
    };
    let mut first = Box::pin(asks());
    assert!(poll!(&mut first).is_pending());
    setup.slow.value.store(200, Ordering::SeqCst);
    let later = join_all((0..5).map(|_| asks()));
    let mut later = Box::pin(later);
    assert!(poll!(&mut later).is_pending());
    setup.go(2);
    assert_eq!((first.await, later.await), (100, vec![200; 5]));
    assert_eq!(setup.seen(), (2, 4));
}

#[tokio::test]
async fn who_has_waited_for_a_part_of_its_time_asks_itself() {
    let setup = Setup::of(QuerierConfig::default());
    let hurried = reader();
    hurried.set_timeout(&setup.clock, Duration::from_secs(8));
    let first = setup.asks(reader(), 8).await;
    let second = setup.asks(hurried, 8).await;
    setup.hand.advance(Duration::from_secs(2));
    setup.go(2);
    assert!(total(second.await) > 0);
    assert!(total(first.await) > 0);
    assert_eq!(setup.seen().0, 2);
}
