//! What is recorded of a query is what became of it, to the millisecond, for its tenants alone, and within bounds.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::time::clock::ManualClock;
use athanor_chassis::{
    ByteSize, Clock, ComputePool, ErrorCode, LimitOverrides, Random, Status, TaskGroup, TenantId,
    TenantLimits, Timestamp,
};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, Profile, ProfileSource, ValueType};
use athanor_proto::querier::v1::{
    AsyncQueryRequest, AsyncQueryType, SelectMergeStacktracesRequest, SelectMergeStacktracesResponse,
};
use athanor_querier::{
    BlockSource, DataSources, DataTimeRange, DedupHints, PartialReceiver, Querier, QuerierClusterDeps,
    QuerierConfig, QuerierDeps, QueryContext, QueryHandleId, QueryPlan, SourceKind, SourceQueryError,
    SourceReport,
};
use athanor_query::{PartialOriginCounts, PartialResult, ProfileQuery, run};
use serde_json::{Value, json};

const PLANNED: Duration = Duration::from_millis(5);
const READ: Duration = Duration::from_millis(20);
const BLOCKS: usize = 70;

/// A head and many blocks, each of which takes its time.
struct Slow {
    held: Arc<dyn ProfileSource>,
    hand: ManualClock,
}

struct Block {
    held: Arc<dyn ProfileSource>,
    hand: ManualClock,
    ask: ProfileQuery,
    number: usize,
}

#[async_trait::async_trait]
impl DataSources for Slow {
    async fn plan(&self, tenant: &TenantId, ask: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
        self.hand.advance(PLANNED);
        if tenant.as_str() == "broken" {
            return Err(Status::new(ErrorCode::Unavailable, "the catalogue is away"));
        }
        let block = |number| {
            let (held, hand, ask) = (Arc::clone(&self.held), self.hand.clone(), ask.clone());
            Box::new(Block { held, hand, ask, number }) as Box<dyn BlockSource>
        };
        let warnings = vec!["a shard".to_owned()];
        let stored = (0..BLOCKS).map(block).collect();
        let held = QueryPlan::from_sources([Arc::clone(&self.held)]);
        Ok(QueryPlan { stored, warnings, bytes: 1_234, blocks: BLOCKS, ..held })
    }

    async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
        Ok(DataTimeRange::default())
    }
}

#[async_trait::async_trait]
impl BlockSource for Block {
    async fn query(
        self: Box<Self>,
        _: &mut PartialReceiver,
    ) -> Result<Option<(PartialResult, SourceReport)>, SourceQueryError> {
        let mut origins = PartialOriginCounts::default();
        match self.number {
            // One of them is slow.
            17 => {
                self.hand.advance(READ);
                origins.computed = 1;
            }
            _ => origins.memory = 1,
        }
        let report = SourceReport {
            kind: SourceKind::Block(format!("block {}", self.number)),
            origins,
            ..SourceReport::default()
        };
        Ok(Some((run(&self.ask, self.held.as_ref())?, report)))
    }
}

fn querier(diagnostics: ByteSize) -> (Querier, ManualClock) {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.time_nanos = 5_000_000;
    let stack = profile.dictionary.intern_named_stack(["main"].into_iter());
    profile.samples.push(stack, 0, &[7]);
    let mut source = MemorySource::default();
    source.add(&Labels::default(), &profile, 1);
    let (clock, hand) = Clock::manual(Timestamp::from_seconds(100));
    let sources = Slow { held: Arc::new(source), hand: hand.clone() };
    let tasks = TaskGroup::new(clock.clone(), 100);
    let overrides = LimitOverrides::new(TenantLimits::default());
    let deps = QuerierDeps { sources: Arc::new(sources), overrides, clock, compute: ComputePool::inline() };
    let place = QuerierClusterDeps { node: 7, others: None, tasks, random: Random::from_seed(1) };
    let config = QuerierConfig { diagnostics_bytes: diagnostics, ..QuerierConfig::default() };
    (Querier::new(config, deps).with_cluster(place), hand)
}

async fn ask(
    querier: &Querier,
    reader: &QueryContext,
    selector: &str,
    force: bool,
) -> Result<SelectMergeStacktracesResponse, Status> {
    let request = SelectMergeStacktracesRequest {
        profile_type_id: ":cpu:nanoseconds::".to_owned(),
        label_selector: selector.to_owned(),
        start: 1,
        end: 10,
        r#async: force.then(|| AsyncQueryRequest {
            r#type: AsyncQueryType::Force as i32,
            ..AsyncQueryRequest::default()
        }),
        ..SelectMergeStacktracesRequest::default()
    };
    querier.select_merge_stacktraces(reader, request).await
}

fn reader(tenants: &str) -> QueryContext {
    QueryContext::parse(tenants).expect("tenants")
}

fn of(querier: &Querier, tenants: &str, id: &str) -> Value {
    let record = querier.local_query_record(&reader(tenants), id).expect("a record");
    serde_json::from_slice(&record).expect("JSON")
}

#[tokio::test]
async fn a_record_tells_where_the_time_went() {
    let (querier, hand) = querier(ByteSize::mib(1));
    let watched = querier.with_diagnostics(reader("acme"), "a call");
    ask(&querier, &watched, "{pod!=\"x\"}", false).await.expect("an answer");
    hand.advance(Duration::from_millis(3));
    let id = watched.finish_request(None).expect("an id");
    assert_eq!(QueryHandleId::parse(&id).expect("a ticket").node, 7);
    let record = of(&querier, "acme", &id);
    assert_eq!((&record["totalMillis"], &record["renderMillis"]), (&json!(28.0), &json!(3.0)));
    for (field, expected) in [
        ("id", json!(id)),
        ("node", json!("0000000000000007")),
        ("call", json!("a call")),
        ("tenants", json!(["acme"])),
        ("timeMillis", json!(100_000)),
        ("outcome", json!("ok")),
        ("warnings", json!(["a shard"])),
    ] {
        assert_eq!(record[field], expected, "{field}");
    }
    let query = &record["queries"][0];
    assert_eq!((&query["kind"], &query["selector"]), (&json!("tree"), &json!("{pod!=\"x\"}")));
    assert_eq!((&query["fromNanos"], &query["toNanos"]), (&json!("1000000"), &json!("10000001")));
    for (phase, millis) in
        [("queueMillis", 0.0), ("planMillis", 5.0), ("fetchMillis", 20.0), ("mergeMillis", 0.0)]
    {
        assert_eq!(query[phase], millis, "{phase}");
    }
    let plan = json!({
        "tenant": "acme", "planMillis": 5.0, "blocks": BLOCKS, "heads": 1, "remoteShards": 0, "calls": 0, "bytes": 1234,
        "stale": [],
    });
    assert_eq!(query["plans"], json!([plan]));
    let cache = json!({ "memory": BLOCKS - 1, "disk": 0, "coalesced": 0, "computed": 1 });
    let totals = json!({
        "sources": BLOCKS + 1, "failed": 0, "heads": 1, "blocks": BLOCKS, "shards": 0, "bytesReceived": 0, "cache": cache,
    });
    assert_eq!(query["totals"], totals);
    // The slowest first; of many not all.
    let slowest = &query["slowestSources"];
    assert_eq!((&slowest[0]["block"], &slowest[0]["totalMillis"]), (&json!("block 17"), &json!(20.0)));
    assert_eq!(slowest[0]["cache"]["computed"], 1);
    let listed = slowest.as_array().expect("a list").len();
    assert_eq!(query["sourcesOmitted"], BLOCKS + 1 - listed);
    assert!(listed < BLOCKS, "{listed}");
}

#[tokio::test]
async fn what_failed_or_was_left_is_recorded_and_nothing_that_nobody_asked_for() {
    let (querier, _hand) = querier(ByteSize::mib(1));
    let watched = querier.with_diagnostics(reader("broken"), "a call");
    let status = ask(&querier, &watched, "{}", false).await.expect_err("it is away");
    let id = watched.finish_request(Some(&status)).expect("an id");
    let record = of(&querier, "broken", &id);
    assert_eq!(
        (&record["outcome"], &record["error"]),
        (&json!("unavailable"), &json!("the catalogue is away"))
    );
    // It is ended once.
    watched.finish_request(None);
    assert_eq!(of(&querier, "broken", &id), record);

    let left = querier.with_diagnostics(reader("acme"), "another call");
    ask(&querier, &left, "{}", false).await.expect("an answer");
    drop(left);
    let told = querier.query_records(&reader("acme"));
    assert_eq!((told.len(), told[0].outcome, told[0].call), (1, "cancelled", "another call"));

    let unwatched = reader("acme");
    ask(&querier, &unwatched, "{}", false).await.expect("an answer");
    assert_eq!((unwatched.finish_request(None), querier.query_records(&reader("acme")).len()), (None, 1));
    let (off, _hand) = self::querier(ByteSize::bytes(0));
    let watched = off.with_diagnostics(reader("acme"), "a call");
    ask(&off, &watched, "{}", false).await.expect("an answer");
    assert_eq!(watched.finish_request(None), None);
}

#[tokio::test]
async fn a_query_in_the_background_is_recorded_when_it_ends() {
    let (querier, _hand) = querier(ByteSize::mib(1));
    let watched = querier.with_diagnostics(reader("acme"), "a call");
    ask(&querier, &watched, "{}", true).await.expect("it begins");
    let id = watched.finish_request(None).expect("an id");
    drop(watched);
    let record = loop {
        if let Ok(record) = querier.local_query_record(&reader("acme"), &id) {
            break record;
        }
        tokio::task::yield_now().await;
    };
    let record: Value = serde_json::from_slice(&record).expect("JSON");
    assert_eq!(
        (&record["outcome"], &record["queries"][0]["totals"]["blocks"]),
        (&json!("ok"), &json!(BLOCKS))
    );
    assert_eq!(record["warnings"], json!(["a shard"]));
}

#[tokio::test]
async fn tenants_see_their_own_and_none_takes_all_the_room() {
    let room = ByteSize::kib(64);
    let (querier, hand) = querier(room);
    let mut ids = Vec::new();
    for number in 0..40 {
        let tenants = if number == 0 { "few" } else { "many" };
        let watched = querier.with_diagnostics(reader(tenants), "a call");
        ask(&querier, &watched, "{}", false).await.expect("an answer");
        ids.push(watched.finish_request(None).expect("an id"));
        hand.advance(Duration::from_secs(1));
    }
    let bytes = |tenants: &str| -> usize {
        let records = querier.query_records(&reader(tenants));
        records
            .iter()
            .map(|of| querier.local_query_record(&reader(tenants), &of.id).expect("it is listed").len())
            .sum()
    };
    assert!((bytes("many") as u64) <= room.get() / 2, "{}", bytes("many"));
    let listed: Vec<String> = querier.query_records(&reader("many")).into_iter().map(|of| of.id).collect();
    let newest: Vec<String> = ids.iter().rev().take(listed.len()).cloned().collect();
    assert!(listed.len() > 2 && listed == newest, "the newest first: {listed:?}");
    assert_eq!(querier.query_records(&reader("few")).len(), 1, "others drive nothing out");
    for (tenants, id) in [("few", &ids[39]), ("many", &ids[0]), ("few|many", &ids[39]), ("many", &ids[1])] {
        let refused =
            querier.query_record(&reader(tenants), id).await.expect_err("it is not theirs, or gone");
        assert_eq!(refused.code, ErrorCode::NotFound);
    }
    assert_eq!(querier.query_record(&reader("few"), "7").await.expect_err("no id").code, ErrorCode::NotFound);
}
