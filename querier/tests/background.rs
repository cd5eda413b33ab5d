//! Queries in the background answer what they would have answered at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use athanor_chassis::{
    ByteSize, Clock, ComputePool, ErrorCode, LimitOverrides, Random, Status, TaskGroup, TenantId,
    TenantLimits, Timestamp,
};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ProfileSource, ValueType};
use athanor_proto::querier::v1::{
    AsyncQueryRequest, AsyncQueryStatus, AsyncQueryType, SelectMergeStacktracesRequest,
};
use athanor_querier::{
    AsyncQueryProgress, AsyncQueryReport, AsyncQueryResult, DataSources, DataTimeRange, DedupHints,
    PeerQueriers, PeerRequest, Querier, QuerierClusterDeps, QuerierConfig, QuerierDeps, QueryContext,
    QueryHandleId, QueryPlan,
};
use athanor_query::ProfileQuery;
use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;

struct One(Arc<dyn ProfileSource>);

#[async_trait::async_trait]
impl DataSources for One {
    async fn plan(&self, _: &TenantId, ask: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        if ask.selection.time.from > 0 {
            return Err(Status::new(ErrorCode::Unavailable, "the catalogue is away"));
        }
        let warnings = vec!["a block".to_owned()];
        Ok(QueryPlan { warnings, ..QueryPlan::from_sources([Arc::clone(&self.0)]) })
    }
    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

fn querier(max_async_queries: usize) -> Querier {
    querier_of(
        1,
        QuerierConfig { max_async_queries_per_tenant: max_async_queries, ..QuerierConfig::default() },
    )
}

/// Over so many functions that `main` calls.
fn querier_of(functions: usize, config: QuerierConfig) -> Querier {
    querier_at(7, None, functions, config)
}

fn querier_at(
    node: u64,
    others: Option<Arc<dyn PeerQueriers>>,
    functions: usize,
    config: QuerierConfig,
) -> Querier {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.time_nanos = 5_000_000;
    for function in 0..functions {
        let stack = profile.dictionary.intern_named_stack(["main", &format!("f{function}")].into_iter());
        profile.samples.push(stack, 0, &[7]);
    }
    let mut source = MemorySource::default();
    source.add(&Labels::default(), &profile, 1);
    let (clock, _) = Clock::manual(Timestamp::UNIX_EPOCH);
    let tasks = TaskGroup::new(clock.clone(), 100);
    let overrides = LimitOverrides::new(TenantLimits::default());
    let deps = QuerierDeps {
        sources: Arc::new(One(Arc::new(source))),
        overrides,
        clock,
        compute: ComputePool::inline(),
    };
    Querier::new(config, deps).with_cluster(QuerierClusterDeps {
        node,
        others,
        tasks,
        random: Random::from_seed(node),
    })
}

fn request(start: i64, asked: Option<(AsyncQueryType, &str)>) -> SelectMergeStacktracesRequest {
    SelectMergeStacktracesRequest {
        profile_type_id: ":cpu:nanoseconds::".to_owned(),
        label_selector: "{}".to_owned(),
        start,
        end: 10,
        r#async: asked.map(|(kind, id)| AsyncQueryRequest { request_id: id.to_owned(), r#type: kind as i32 }),
        ..SelectMergeStacktracesRequest::default()
    }
}

const FORCE: Option<(AsyncQueryType, &str)> = Some((AsyncQueryType::Force, ""));

#[tokio::test]
async fn what_runs_in_the_background_answers_as_at_once() {
    let (querier, reader) = (querier(2), QueryContext::for_tenant(TenantId::anonymous()));
    let at_once = querier.select_merge_stacktraces(&reader, request(-5, None)).await.expect("an answer");
    assert!(at_once.r#async.is_none() && at_once.flamegraph.as_ref().is_some_and(|graph| graph.total == 7));
    for (start, status) in [(-5, AsyncQueryStatus::Success), (5, AsyncQueryStatus::Failure)] {
        let begun =
            querier.select_merge_stacktraces(&reader, request(start, FORCE)).await.expect("it begins");
        let begun = begun.r#async.expect("it says so");
        assert_eq!(begun.status, AsyncQueryStatus::InProgress as i32);
        let poll = || request(start, Some((AsyncQueryType::Disabled, &begun.request_id)));
        let (answer, asker) = loop {
            tokio::task::yield_now().await;
            let asker = QueryContext::for_tenant(TenantId::anonymous());
            let answer = querier.select_merge_stacktraces(&asker, poll()).await.expect("it is known");
            if answer.r#async.as_ref().is_some_and(|of| of.status != AsyncQueryStatus::InProgress as i32) {
                break (answer, asker);
            }
        };
        let of = answer.r#async.expect("it says so");
        assert_eq!((of.status, &of.request_id), (status as i32, &begun.request_id));
        let is_done = status == AsyncQueryStatus::Success;
        assert_eq!(answer.flamegraph, at_once.flamegraph.clone().filter(|_| is_done));
        assert_eq!(asker.warnings(), if is_done { vec!["a block".to_owned()] } else { Vec::new() });
        assert_eq!(of.error_message.is_empty(), is_done);
        let other = QueryContext::for_tenant("other".parse().expect("a tenant"));
        let refused = querier.select_merge_stacktraces(&other, poll()).await.expect_err("it is not theirs");
        assert_eq!(refused.code, ErrorCode::NotFound);
    }
    let mut wrong = request(-5, FORCE);
    wrong.label_selector.clear();
    let refused = querier.select_merge_stacktraces(&reader, wrong).await.expect_err("no selector");
    assert_eq!(refused.code, ErrorCode::Invalid);
}

#[tokio::test]
async fn an_answer_that_is_kept_takes_the_room_of_its_bytes() {
    let with_room = |bytes| {
        let answers = ByteSize::bytes(bytes);
        querier_of(
            100,
            QuerierConfig {
                max_inflight_result_bytes: answers,
                max_async_queries_per_tenant: 1,
                ..QuerierConfig::default()
            },
        )
    };
    let at_once = async |querier: &Querier| {
        let asker = QueryContext::for_tenant(TenantId::anonymous());
        querier.select_merge_stacktraces(&asker, request(-5, None)).await
    };
    // The least room in which one query runs.
    let (mut none, mut enough) = (0, 1 << 24);
    while enough - none > 1 {
        let middle = (none + enough) / 2;
        match at_once(&with_room(middle)).await {
            Ok(_) => enough = middle,
            Err(_) => none = middle,
        }
    }
    let answer = at_once(&with_room(enough)).await.expect("an answer");
    let bytes = answer.encoded_len() as u64;
    assert!(bytes < enough / 4, "{bytes} of {enough}");
    for (room, is_enough) in [(enough + bytes, true), (enough + bytes - 1, false)] {
        let querier = with_room(room);
        let ask = async |asked: (AsyncQueryType, &str)| {
            let asker = QueryContext::for_tenant(TenantId::anonymous());
            querier.select_merge_stacktraces(&asker, request(-5, Some(asked))).await.expect("it is known")
        };
        let begun = ask((AsyncQueryType::Force, "")).await;
        let id = begun.r#async.expect("it says so").request_id;
        let kept = loop {
            let polled = ask((AsyncQueryType::Disabled, &id)).await;
            if polled.flamegraph.is_some() {
                break polled;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(kept.flamegraph, answer.flamegraph);
        // What is kept takes room, but no more than it must.
        let another = at_once(&querier).await.map_err(|status| status.code);
        assert_eq!(another.is_ok(), is_enough, "{another:?}");
    }
}

#[tokio::test]
async fn where_nothing_runs_in_the_background_the_answer_is_waited_for() {
    let (querier, reader) = (querier(0), QueryContext::for_tenant(TenantId::anonymous()));
    let answer = querier.select_merge_stacktraces(&reader, request(-5, FORCE)).await.expect("an answer");
    assert!(answer.r#async.is_none() && answer.flamegraph.is_some());
    let poll = request(-5, Some((AsyncQueryType::Force, "7")));
    let refused = querier.select_merge_stacktraces(&reader, poll).await.expect_err("none was begun");
    assert_eq!(refused.code, ErrorCode::NotFound);
}

/// All queriers, each of which asks the others as if by a call.
#[derive(Default)]
struct Fleet(Mutex<BTreeMap<u64, Querier>>);

impl Fleet {
    fn at(&self, node: u64) -> Result<Querier, Status> {
        let gone = || Status::new(ErrorCode::NotFound, format!("node {node} is gone"));
        self.0.lock().get(&node).cloned().ok_or_else(gone)
    }
}

#[async_trait::async_trait]
impl PeerQueriers for Fleet {
    async fn poll_async_query(
        &self,
        ticket: QueryHandleId,
        errand: &PeerRequest<'_>,
    ) -> Result<AsyncQueryReport, Status> {
        let tenants: Vec<&str> = errand.tenants().iter().map(TenantId::as_str).collect();
        let asker = QueryContext::parse(&tenants.join("|")).expect("tenants");
        let AsyncQueryReport { progress, warnings, resolution } =
            self.at(ticket.node)?.poll_local(&asker, &ticket.to_string())?;
        let progress = match progress {
            AsyncQueryProgress::Done(AsyncQueryResult { bytes, shown, .. }) => {
                errand.reserve_memory(bytes.len())?;
                AsyncQueryProgress::Done(AsyncQueryResult::from_peer(bytes, shown))
            }
            progress => progress,
        };
        Ok(AsyncQueryReport { progress, warnings, resolution })
    }

    async fn query_record(&self, ticket: QueryHandleId, errand: &PeerRequest<'_>) -> Result<Bytes, Status> {
        let tenants: Vec<&str> = errand.tenants().iter().map(TenantId::as_str).collect();
        let asker = QueryContext::parse(&tenants.join("|")).expect("tenants");
        self.at(ticket.node)?.local_query_record(&asker, &ticket.to_string())
    }
}

#[tokio::test]
async fn whichever_querier_is_asked_asks_the_one_that_runs_the_query() {
    let fleet = Arc::<Fleet>::default();
    // One of them runs none itself.
    for (node, max_async_queries) in [(1, 2), (2, 0)] {
        let config =
            QuerierConfig { max_async_queries_per_tenant: max_async_queries, ..QuerierConfig::default() };
        let querier = querier_at(node, Some(Arc::<Fleet>::clone(&fleet)), 1, config);
        fleet.0.lock().insert(node, querier);
    }
    let (one, two) = (fleet.at(1).expect("it is there"), fleet.at(2).expect("it is there"));
    let asker = || QueryContext::for_tenant(TenantId::anonymous());
    for (start, status) in [(-5, AsyncQueryStatus::Success), (5, AsyncQueryStatus::Failure)] {
        let begun = one.select_merge_stacktraces(&asker(), request(start, FORCE)).await.expect("it begins");
        let id = begun.r#async.expect("it says so").request_id;
        assert_eq!(QueryHandleId::parse(&id).expect("an id").node, 1);
        let poll = || request(start, Some((AsyncQueryType::Force, &id)));
        let (of, reader, answer) = loop {
            tokio::task::yield_now().await;
            let reader = asker();
            let answer = two.select_merge_stacktraces(&reader, poll()).await.expect("it is known");
            let of = answer.r#async.clone().expect("it says so");
            if of.status != AsyncQueryStatus::InProgress as i32 {
                break (of, reader, answer);
            }
        };
        let here = one.select_merge_stacktraces(&asker(), poll()).await.expect("it is known");
        assert_eq!((&answer, of.status), (&here, status as i32));
        let is_done = status == AsyncQueryStatus::Success;
        assert_eq!((answer.flamegraph.is_some(), reader.warnings().is_empty()), (is_done, !is_done));
        let other = QueryContext::for_tenant("other".parse().expect("a tenant"));
        let refused = two.select_merge_stacktraces(&other, poll()).await.expect_err("it is not theirs");
        assert_eq!(refused.code, ErrorCode::NotFound);
        let both = QueryContext::parse("anonymous|other").expect("tenants");
        assert!(two.select_merge_stacktraces(&both, poll()).await.is_err(), "nor of both");
    }
    let gone = QueryHandleId::parse("00000000-0000-0003-0000-000000000001").expect("an id").to_string();
    let refused =
        one.select_merge_stacktraces(&asker(), request(-5, Some((AsyncQueryType::Force, &gone)))).await;
    assert_eq!(refused.expect_err("nobody is there").message, "node 3 is gone");
}
