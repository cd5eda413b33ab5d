//! Peers that answer for sources of theirs, and plans that are overtaken.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use athanor_chassis::{
    ByteSize, Clock, ComputePool, ErrorCode, LimitOverrides, Status, TenantId, TenantLimits, Timestamp,
};
use athanor_profile::{ProfileSource, SourceError};
use athanor_proto::querier::v1::{
    AnalyzeQueryRequest, HeatmapQueryType, ProfileTypesRequest, SelectHeatmapRequest,
    SelectMergeStacktracesRequest, SelectMergeStacktracesResponse, SelectSeriesRequest, SeriesRequest,
};
use athanor_proto::types::v1::{GetProfileStatsRequest, LabelNamesRequest, LabelValuesRequest};
use athanor_querier::{
    DataSources, DataTimeRange, DedupHints, PartialReceiver, Querier, QuerierConfig, QuerierDeps,
    QueryContext, QueryPlan, RemoteSource, SourceQueryError,
};
use athanor_query::{ProfileQuery, run_all};
use parking_lot::Mutex;
use tokio::sync::Barrier;

#[path = "model/sources.rs"]
mod sources;

use sources::{FailingSource, source};

const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";

/// A peer that packs what it answers, as if it were far away.
#[derive(Default)]
struct Peer {
    /// The heads of each of its shards.
    shards: Vec<Vec<Arc<dyn ProfileSource>>>,
    /// Bytes of a piece.
    piece: usize,
    /// How it ends.
    ends: Option<SourceQueryError>,
    /// What is damaged on the way: a byte in the middle; or the rest is lost.
    spoilt: bool,
    cut: bool,
    lacks: Option<String>,
    /// It answers when so many have been asked.
    together: Option<Arc<Barrier>>,
}

#[async_trait::async_trait]
impl RemoteSource for Peer {
    async fn query(
        &self,
        _: &TenantId,
        ask: &ProfileQuery,
        inbox: &mut PartialReceiver,
    ) -> Result<(), SourceQueryError> {
        let ask = ProfileQuery::unpack(&ask.pack().expect("it is small")).expect("it was packed");
        if let Some(together) = &self.together {
            together.wait().await;
        }
        for heads in &self.shards {
            let partial = run_all(&ask, heads.iter().map(AsRef::as_ref))?;
            let mut bytes: Vec<u8> = partial.pack().expect("it is small").flatten().collect();
            if self.spoilt {
                let middle = bytes.len() / 2;
                bytes[middle] = 0xff;
            }
            if self.cut {
                bytes.pop();
                inbox.push_chunk(&bytes)?;
                return Ok(());
            }
            bytes.chunks(self.piece.max(1)).try_for_each(|piece| inbox.push_chunk(piece))?;
            inbox.finish().await?;
        }
        self.lacks.iter().for_each(|lacks| inbox.add_warning(lacks.clone()));
        self.ends.clone().map_or(Ok(()), Err)
    }
}

/// Makes the n-th plan, counted from 0.
struct Plans<F> {
    made: AtomicUsize,
    make: F,
}

#[async_trait::async_trait]
impl<F: Fn(usize) -> QueryPlan + Send + Sync> DataSources for Plans<F> {
    async fn plan(&self, _: &TenantId, _: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        Ok((self.make)(self.made.fetch_add(1, Ordering::Relaxed)))
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        let QueryPlan { warnings, moved, .. } = (self.make)(self.made.fetch_add(1, Ordering::Relaxed));
        Ok(DataTimeRange { span: Some((1_000_000, 2_000_000)), warnings, moved })
    }
}

/// What was answered, what it lacks, and how many plans that took.
struct Outcome {
    answer: Result<SelectMergeStacktracesResponse, Status>,
    warnings: Vec<String>,
    plans: usize,
}

impl Outcome {
    fn total(&self) -> i64 {
        let answer = self.answer.as_ref().expect("an answer");
        answer.flamegraph.as_ref().expect("a graph").total
    }
}

fn querier(config: QuerierConfig, sources: Arc<dyn DataSources>) -> Querier {
    let (clock, _hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    querier_by(clock, config, sources)
}

fn querier_by(clock: Clock, config: QuerierConfig, sources: Arc<dyn DataSources>) -> Querier {
    let overrides = LimitOverrides::new(TenantLimits::default());
    Querier::new(config, QuerierDeps { sources, overrides, clock, compute: ComputePool::inline() })
}

fn request() -> SelectMergeStacktracesRequest {
    SelectMergeStacktracesRequest {
        profile_type_id: TYPE.to_owned(),
        label_selector: "{}".to_owned(),
        start: 1,
        end: 10,
        ..SelectMergeStacktracesRequest::default()
    }
}

async fn ask_within(
    config: QuerierConfig,
    make: impl Fn(usize) -> QueryPlan + Send + Sync + 'static,
) -> Outcome {
    let plans = Arc::new(Plans { made: AtomicUsize::new(0), make });
    let querier = querier(config, Arc::<Plans<_>>::clone(&plans));
    let reader = QueryContext::parse("acme").expect("a tenant");
    let answer = querier.select_merge_stacktraces(&reader, request()).await;
    Outcome { answer, warnings: reader.warnings(), plans: plans.made.load(Ordering::Relaxed) }
}

async fn ask(make: impl Fn(usize) -> QueryPlan + Send + Sync + 'static) -> Outcome {
    ask_within(QuerierConfig::default(), make).await
}

/// One source here, and one peer.
fn with(peer: Peer) -> QueryPlan {
    QueryPlan { remote: vec![Arc::new(peer)], ..QueryPlan::from_sources([source("here", 1)]) }
}

fn two_shards() -> Peer {
    let shards = vec![vec![source("a", 10), source("b", 20)], Vec::new(), vec![source("a", 300)]];
    Peer { shards, piece: 7, ..Peer::default() }
}

fn replan() -> Option<SourceQueryError> {
    Some(SourceQueryError::Replan("shard 7: its leader is another one".to_owned()))
}

#[tokio::test]
async fn peers_are_asked_at_once_and_their_answers_add_up() {
    let afar = ask(|_| {
        let together = Some(Arc::new(Barrier::new(3)));
        let peer = || Arc::new(Peer { together: together.clone(), ..two_shards() }) as Arc<dyn RemoteSource>;
        QueryPlan { remote: vec![peer(), peer(), peer()], ..with(Peer::default()) }
    });
    let afar = afar.await;
    assert_eq!((afar.total(), afar.warnings, afar.plans), (991, Vec::new(), 1));
    // Whoever holds a source, the answer is the same.
    let here = ask(|_| {
        let shards = (0..3).flat_map(|_| two_shards().shards).flatten();
        QueryPlan::from_sources(shards.chain([source("here", 1)]))
    });
    assert_eq!(here.await.answer, afar.answer);
}

#[tokio::test]
async fn what_was_put_together_by_an_overtaken_plan_does_not_count() {
    let overtaken: [fn() -> QueryPlan; 3] = [
        || with(Peer { ends: replan(), ..two_shards() }),
        || {
            QueryPlan::from_sources([
                source("here", 1),
                Arc::new(FailingSource(SourceError::Moved("shard 7 is on its way".to_owned()))),
            ])
        },
        || QueryPlan { moved: vec!["shard 7: in blocks".to_owned()], ..with(two_shards()) },
    ];
    for first in overtaken {
        let second = move |made| {
            if made == 0 {
                return QueryPlan { warnings: vec!["not said".to_owned()], ..first() };
            }
            with(two_shards())
        };
        let outcome = ask(second).await;
        assert_eq!((outcome.total(), outcome.warnings, outcome.plans), (331, Vec::new(), 2));
    }
}

#[tokio::test]
async fn after_three_new_plans_the_answer_goes_on_without_what_has_moved_and_says_so() {
    let always: [fn() -> QueryPlan; 3] = [
        || with(Peer { ends: replan(), ..two_shards() }),
        || {
            QueryPlan::from_sources([
                source("b", 330),
                source("here", 1),
                Arc::new(FailingSource(SourceError::Moved("shard 7 is on its way".to_owned()))),
            ])
        },
        || QueryPlan { moved: vec!["shard 7: in blocks".to_owned()], ..with(two_shards()) },
    ];
    for plan in always {
        let outcome = ask(move |_| plan()).await;
        // All other shards count, those of the same peer as well.
        assert_eq!((outcome.total(), outcome.plans), (331, 4));
        let warnings = outcome.warnings.join("\n");
        assert!(warnings.contains("shard 7") && warnings.contains("4 query plans became"), "{warnings}");
    }
}

#[tokio::test]
async fn a_block_that_is_gone_is_replaced_by_others_or_lost() {
    let gone = || Some(SourceQueryError::Gone(vec!["block 1".to_owned(), "block 2".to_owned()]));
    let replaced = ask(move |made| {
        let ends = (made == 0).then(gone).flatten();
        with(Peer { ends, ..two_shards() })
    });
    let replaced = replaced.await;
    assert_eq!((replaced.total(), replaced.warnings, replaced.plans), (331, Vec::new(), 2));
    // Whoever plans again finds it listed again: there is nothing to wait for.
    let lost = ask(move |_| with(Peer { ends: gone(), ..two_shards() })).await;
    assert_eq!((lost.total(), lost.plans), (331, 2));
    let warnings = lost.warnings.join("\n");
    assert!(warnings.contains("missing in the bucket: block 1, block 2"), "{warnings}");
}

#[tokio::test]
async fn peers_know_how_long_they_are_waited_for() {
    struct Late(Clock, Arc<Mutex<Duration>>);
    #[async_trait::async_trait]
    impl RemoteSource for Late {
        async fn query(
            &self,
            _: &TenantId,
            _: &ProfileQuery,
            inbox: &mut PartialReceiver,
        ) -> Result<(), SourceQueryError> {
            *self.1.lock() = inbox.remaining_time(&self.0);
            Ok(())
        }
    }
    let (clock, _hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let left = Arc::new(Mutex::new(Duration::ZERO));
    let late = Arc::new(Late(clock.clone(), Arc::clone(&left)));
    let plans = Plans {
        make: move |_| QueryPlan { remote: vec![late.clone()], ..QueryPlan::default() },
        made: AtomicUsize::new(0),
    };
    let querier = querier_by(clock.clone(), QuerierConfig::default(), Arc::new(plans));
    for (wait, is_left) in [(None, 300), (Some(7), 7), (Some(4000), 300)] {
        let reader = QueryContext::parse("acme").expect("a tenant");
        if let Some(wait) = wait {
            reader.set_timeout(&clock, Duration::from_secs(wait));
        }
        querier.select_merge_stacktraces(&reader, request()).await.expect("an answer");
        assert_eq!(*left.lock(), Duration::from_secs(is_left));
    }
}

/// A source whose reading panics.
struct Crashes;

#[async_trait::async_trait]
impl RemoteSource for Crashes {
    async fn query(
        &self,
        _: &TenantId,
        _: &ProfileQuery,
        _: &mut PartialReceiver,
    ) -> Result<(), SourceQueryError> {
        let crash = ComputePool::inline().run(|| panic!("index out of bounds")).await;
        Err(Status::from_error(&crash.expect_err("it panics")).into())
    }
}

#[tokio::test]
async fn a_query_that_crashed_twice_is_not_asked_again() {
    let plans = Arc::new(Plans {
        make: |_| QueryPlan { remote: vec![Arc::new(Crashes)], ..QueryPlan::default() },
        made: AtomicUsize::new(0),
    });
    let querier = querier(QuerierConfig::default(), Arc::<Plans<_>>::clone(&plans));
    let reader = QueryContext::parse("acme").expect("a tenant");
    let asked = async |end: i64, selector: &str| {
        let request = SelectMergeStacktracesRequest { end, label_selector: selector.to_owned(), ..request() };
        querier.select_merge_stacktraces(&reader, request).await.expect_err("it crashes").message
    };
    for end in [10, 11] {
        assert!(asked(end, "{}").await.contains("panicked"));
    }
    let refused = asked(12, "{}").await;
    assert!(refused.contains("crashed 2 times"), "{refused}");
    assert_eq!(plans.made.load(Ordering::Relaxed), 2);
    assert!(asked(12, "{a=\"b\"}").await.contains("panicked"), "it is another query");
}

#[tokio::test]
async fn queries_are_within_the_limits_of_their_tenants() {
    let (clock, _hand) = Clock::manual(Timestamp::from_nanos(20_000_000));
    let limits = TenantLimits {
        max_query_length: Some(Duration::from_millis(15)),
        max_query_lookback: Some(Duration::from_millis(18)),
        max_query_bytes: Some(ByteSize::bytes(23)),
        ..TenantLimits::default()
    };
    let plan = |made| QueryPlan { bytes: made as u64, ..QueryPlan::from_sources([source("here", 1)]) };
    let sources = Arc::new(Plans { made: AtomicUsize::new(20), make: plan });
    let (overrides, compute) = (LimitOverrides::new(limits), ComputePool::inline());
    let querier = Querier::new(QuerierConfig::default(), QuerierDeps { sources, overrides, clock, compute });
    let asked = async |start, end| {
        let reader = QueryContext::parse("acme|other").expect("tenants");
        let request = SelectMergeStacktracesRequest { start, end, ..request() };
        let answer = querier.select_merge_stacktraces(&reader, request).await;
        (answer.map(|answer| answer.flamegraph.expect("a graph").total), reader.warnings())
    };
    assert_eq!(asked(3, 18).await, (Ok(2), Vec::new()));
    let (total, warnings) = asked(1, 10).await;
    assert_eq!(total, Ok(2));
    assert!(warnings.join("\n").contains("older than 18ms is left out"));
    let refused = asked(3, 19).await.0.expect_err("it is longer");
    assert!(refused.message.contains("16ms long, the limit is 15ms"), "{refused}");
    // By now plans name more.
    let refused = asked(3, 18).await.0.expect_err("it reads more");
    assert!(refused.message.contains("limits.max_query_bytes"), "{refused}");
}

/// A querier at 20 ms, of one source at 5 ms in blocks of so many bytes.
fn limited(limits: TenantLimits, bytes: u64) -> Querier {
    let (clock, _hand) = Clock::manual(Timestamp::from_nanos(20_000_000));
    let make = move |_| QueryPlan { bytes, ..QueryPlan::from_sources([source("here", 1)]) };
    let sources = Arc::new(Plans { made: AtomicUsize::new(0), make });
    let (overrides, compute) = (LimitOverrides::new(limits), ComputePool::inline());
    Querier::new(QuerierConfig::default(), QuerierDeps { sources, overrides, clock, compute })
}

#[tokio::test]
async fn charts_of_a_permitted_time_are_whole() {
    let limits = TenantLimits {
        max_query_length: Some(Duration::from_millis(15)),
        max_query_lookback: Some(Duration::from_millis(18)),
        ..TenantLimits::default()
    };
    let querier = limited(limits, 0);
    let asked = async |start, end, step| {
        let reader = QueryContext::parse("acme").expect("a tenant");
        let points = SelectSeriesRequest {
            profile_type_id: TYPE.to_owned(),
            label_selector: "{}".to_owned(),
            start,
            end,
            step,
            ..SelectSeriesRequest::default()
        };
        let heat = SelectHeatmapRequest {
            profile_type_id: TYPE.to_owned(),
            label_selector: "{}".to_owned(),
            start,
            end,
            step,
            query_type: HeatmapQueryType::Individual as i32,
            ..SelectHeatmapRequest::default()
        };
        let series = querier.select_series(&reader, points).await?.series;
        let slots: usize =
            querier.select_heatmap(&reader, heat).await?.series.iter().map(|of| of.slots.len()).sum();
        let points: usize = series.iter().map(|of| of.points.len()).sum();
        Ok::<_, Status>((points, slots, reader.warnings()))
    };
    assert_eq!(asked(3, 18, 0.005).await, Ok((1, 1, Vec::new())));
    // It begins just where queries may.
    assert_eq!(asked(2, 17, 0.005).await, Ok((1, 1, Vec::new())));
    let refused = asked(3, 19, 0.004).await.expect_err("it is longer");
    assert!(refused.message.contains("16ms long, the limit is 15ms"), "{refused}");
    let refused = asked(18, 18, 0.017).await.expect_err("a point stands for more than may be read");
    assert!(refused.message.contains("limits.max_query_length"), "{refused}");
    let (.., warnings) = asked(1, 10, 0.005).await.expect("an answer");
    assert!(warnings.join("\n").contains("older than 18ms is left out"));
}

#[tokio::test]
async fn a_rendered_query_may_be_as_long_as_the_limit() {
    let limits = TenantLimits { max_query_length: Some(Duration::from_secs(60)), ..TenantLimits::default() };
    let (querier, reader) = (limited(limits, 0), QueryContext::parse("acme").expect("a tenant"));
    let render = async |until: i64| {
        let query = format!("query={TYPE}%7B%7D&from=1700000000&until={until}");
        querier.render(&reader, &query).await.map(drop).map_err(|status| status.message)
    };
    assert_eq!(render(1_700_000_060).await, Ok(()));
    assert!(render(1_700_000_061).await.expect_err("it is longer").contains("1m1s long"));
}

#[tokio::test]
async fn limits_of_zero_do_not_restrict_queries_of_several_tenants() {
    let off = TenantLimits {
        max_query_length: Some(Duration::ZERO),
        max_query_lookback: Some(Duration::ZERO),
        ..TenantLimits::default()
    };
    let (querier, reader) = (limited(off, 0), QueryContext::parse("acme|other").expect("tenants"));
    let query = format!("query={TYPE}%7B%7D&from=1&until=1700000061");
    querier.render(&reader, &query).await.expect("an answer");
    assert!(reader.warnings().is_empty());
}

#[tokio::test]
async fn what_reads_no_samples_costs_none() {
    let limits = TenantLimits { max_query_bytes: Some(ByteSize::bytes(16)), ..TenantLimits::default() };
    let (querier, reader) = (limited(limits, 1 << 40), QueryContext::parse("acme").expect("a tenant"));
    let refused = querier.select_merge_stacktraces(&reader, request()).await.expect_err("it reads more");
    assert!(refused.message.contains("limits.max_query_bytes"), "{refused}");
    let names = LabelNamesRequest { start: 1, end: 10, ..LabelNamesRequest::default() };
    assert!(!querier.label_names(&reader, names).await.expect("names").names.is_empty());
    let name = "__name__".to_owned();
    let values = LabelValuesRequest { name, start: 1, end: 10, ..LabelValuesRequest::default() };
    assert_eq!(querier.label_values(&reader, values).await.expect("values").names, ["process_cpu"]);
    let types = ProfileTypesRequest { start: 1, end: 10 };
    assert_eq!(querier.profile_types(&reader, types).await.expect("types").profile_types.len(), 1);
    let series = SeriesRequest { start: 1, end: 10, ..SeriesRequest::default() };
    assert_eq!(querier.series(&reader, series).await.expect("series").labels_set.len(), 1);
    let cost = AnalyzeQueryRequest { start: 1, end: 10, query: "{}".to_owned() };
    assert_eq!(querier.analyze_query(&reader, cost).await.expect("sizes").query_scopes.len(), 1);
}

/// However much lies in blocks of that time, what counts is what the selector means.
#[tokio::test]
async fn a_query_may_read_what_it_selects() {
    let within = |bytes: Option<u64>| {
        let limits = TenantLimits { max_query_bytes: bytes.map(ByteSize::bytes), ..TenantLimits::default() };
        limited(limits, 1 << 40)
    };
    let reader = || QueryContext::parse("acme").expect("a tenant");
    let cost = AnalyzeQueryRequest { start: 1, end: 10, query: format!("{TYPE}{{}}") };
    let told = within(None).analyze_query(&reader(), cost).await.expect("sizes");
    let told = told.query_impact.expect("an impact").total_bytes_in_time_range;
    assert!(told > 16, "{told}");
    let asked = async |limit, selector: &str| {
        let request = SelectMergeStacktracesRequest { label_selector: selector.to_owned(), ..request() };
        let answer = within(Some(limit)).select_merge_stacktraces(&reader(), request).await;
        answer.map(|answer| answer.flamegraph.expect("a graph").total).map_err(|status| status.message)
    };
    assert_eq!(asked(told, "{}").await, Ok(1));
    let refused = asked(told - 1, "{}").await.expect_err("it reads more");
    let (told, limit) = (ByteSize::bytes(told), ByteSize::bytes(told - 1));
    let numbers = format!("would read {told} of tenant acme, which are 1 samples in 1 profiles of 1 series");
    assert!(refused.contains(&numbers) && refused.contains(&format!("the limit is {limit}")), "{refused}");
    // What selects nothing reads what tells that there is nothing.
    let none = asked(limit.get(), "{service_name=\"none\"}").await;
    assert_eq!(none, Ok(0));
}

/// A peer that never answers.
struct Silent;

#[async_trait::async_trait]
impl RemoteSource for Silent {
    async fn query(
        &self,
        _: &TenantId,
        _: &ProfileQuery,
        _: &mut PartialReceiver,
    ) -> Result<(), SourceQueryError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn who_only_waited_for_a_turn_is_told_so() {
    let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
    let make = |_| QueryPlan { remote: vec![Arc::new(Silent)], ..QueryPlan::default() };
    let plans = Arc::new(Plans { made: AtomicUsize::new(0), make });
    let config = QuerierConfig { max_concurrent: 1, ..QuerierConfig::default() };
    let querier = querier_by(clock.clone(), config, plans);
    let ask = async |seconds| {
        let reader = QueryContext::parse("acme").expect("a tenant");
        reader.set_timeout(&clock, Duration::from_secs(seconds));
        // Equal ones would be one.
        let request = SelectMergeStacktracesRequest { end: 10 + seconds as i64, ..request() };
        querier.select_merge_stacktraces(&reader, request).await.expect_err("nobody answers")
    };
    let ((answered, waited), ()) = tokio::join!(async { tokio::join!(ask(9), ask(5)) }, async {
        hand.wait_for_sleepers(2).await;
        let turns = querier.stats().turns;
        assert_eq!((turns.running, turns.most, turns.waiting), (1, 1, 1));
        hand.advance(Duration::from_secs(5));
        hand.wait_for_sleepers(1).await;
        hand.advance(Duration::from_secs(4));
    });
    assert_eq!([answered.code, waited.code], [ErrorCode::Deadline; 2]);
    assert!(waited.message.contains("not done within 5s: no permit was free"), "{waited}");
    assert!(answered.message.contains("not done within 9s; select fewer series"), "{answered}");
}

#[tokio::test]
async fn what_a_peer_lacks_is_said() {
    let lacks = Some("3 batches of shard 7 were lost".to_owned());
    let outcome = ask(move |_| with(Peer { lacks: lacks.clone(), ..two_shards() })).await;
    assert_eq!(outcome.total(), 331);
    assert_eq!(outcome.warnings, ["3 batches of shard 7 were lost"]);
}

#[tokio::test]
async fn a_peer_that_fails_fails_the_whole() {
    let status = Status::new(ErrorCode::Exhausted, "32 queries are under way");
    let refused = status.clone();
    let outcome = ask(move |_| with(Peer { ends: Some(refused.clone().into()), ..two_shards() })).await;
    assert_eq!((outcome.answer, outcome.plans), (Err(status), 1));
}

#[tokio::test]
async fn answers_that_are_damaged_or_break_off_are_refused() {
    let spoilt = ask(|_| with(Peer { spoilt: true, ..two_shards() })).await.answer.expect_err("a bad byte");
    assert_eq!(spoilt.code, ErrorCode::Internal, "{spoilt}");
    let cut = ask(|_| with(Peer { cut: true, ..two_shards() })).await.answer.expect_err("no end");
    assert_eq!(cut.code, ErrorCode::Unavailable);
    assert!(cut.message.contains("ended before the result was complete"), "{cut}");
}

#[tokio::test]
async fn answers_of_peers_take_room() {
    for (config, named) in [
        (
            QuerierConfig { max_result_bytes: ByteSize::bytes(100), ..QuerierConfig::default() },
            "querier.max_result_bytes)",
        ),
        (
            QuerierConfig { max_inflight_result_bytes: ByteSize::bytes(300), ..QuerierConfig::default() },
            "querier.max_inflight_result_bytes)",
        ),
    ] {
        let outcome = ask_within(config, |_| QueryPlan { sources: Vec::new(), ..with(two_shards()) }).await;
        let refused = outcome.answer.expect_err("it is larger");
        assert!(refused.message.contains(named), "{refused}");
    }
}

#[tokio::test]
async fn times_are_of_a_plan_that_was_not_overtaken() {
    for (overtaken, plans) in [(1, 2), (9, 4)] {
        let make = move |made| QueryPlan {
            moved: if made < overtaken { vec!["shard 7: in blocks".to_owned()] } else { Vec::new() },
            ..QueryPlan::default()
        };
        let sources = Arc::new(Plans { made: AtomicUsize::new(0), make });
        let querier = querier(QuerierConfig::default(), Arc::<Plans<_>>::clone(&sources));
        let reader = QueryContext::parse("acme").expect("a tenant");
        let stats = querier.get_profile_stats(&reader, GetProfileStatsRequest {}).await.expect("times");
        assert_eq!((stats.oldest_profile_time, stats.newest_profile_time), (1, 2));
        assert_eq!(sources.made.load(Ordering::Relaxed), plans);
        assert_eq!(!reader.warnings().is_empty(), overtaken > 3);
    }
}
