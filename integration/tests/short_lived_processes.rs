//! Processes that live for one profile each: as many series as profiles. Memory stays bounded, blocks are written, and
//! every question is answered and right.
//!
//! ```text
//!  first half ─► peak ─► second half ─► no higher peak ─► questions ─► no more than the settings allow
//! ```
//!
//! `ATHANOR_ONESHOT=1000000` says how many; then figures are printed as well.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::{ByteSize, Clock, ErrorCode, TenantId};
use athanor_distributor::{PushedProfile, PushedSeries};
use athanor_integration::server::TestServer;
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::formats::pprof::encode;
use athanor_profile::{Profile, ValueType};
use athanor_proto::querier::v1::{SelectMergeStacktracesRequest, SelectSeriesRequest, SeriesRequest};
use athanor_proto::types::v1::LabelValuesRequest;
use athanor_querier::QueryContext;
use athanor_server::ServerConfig;
use bytes::Bytes;

/// Without the variable.
const PROCESSES: u64 = 100_000;
/// Profiles of one request.
const TOGETHER: u64 = 100;
/// Requests under way.
const SENDERS: u64 = 4;
const SERVICES: u64 = 7;
const LEAVES: u64 = 10;
/// What each process has in each leaf, nanoseconds.
const VALUE: u64 = 10_000_000;
const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const ALL: (i64, i64) = (1, i64::MAX / 1_000_000 - 1);
/// A head is cut when it is this large.
const HEAD: ByteSize = ByteSize::mib(4);
/// Heads that are in no block yet: beyond them profiles are refused, and sent again.
const HEADS: ByteSize = ByteSize::mib(16);
/// By how much the second half of the sending may take more than the first one: a block that is written, ids, what allocators keep.
const MORE: u64 = 64 << 20;
/// What was read and waits until it is written to the disk of a gateway, which no setting changes.
const WAITING: u64 = 64 << 20;
/// The test's own share, and what allocators keep.
const REST: u64 = 64 << 20;

/// Settings so small that whatever grows with the number of processes grows out of them.
fn small(config: &mut ServerConfig) {
    config.ingester.flush.max_head_bytes = HEAD;
    config.ingester.flush.max_retained_bytes = ByteSize::mib(8);
    config.ingester.max_unflushed_bytes = HEADS;
    config.querier.max_result_bytes = ByteSize::mib(128);
    config.querier.max_inflight_result_bytes = ByteSize::mib(128);
    config.querier.results_cache_bytes = ByteSize::mib(8);
    config.querier.adhoc.max_profiles_per_tenant = 0;
    config.store_gateway.max_inflight_block_bytes = ByteSize::mib(64);
    config.store_gateway.block_cache_bytes = ByteSize::mib(16);
    config.store_gateway.partial_cache_bytes = ByteSize::mib(16);
}

/// What those settings allow a query to leave in memory, or to take there.
fn allowed(config: &ServerConfig) -> u64 {
    let ServerConfig { querier, store_gateway, .. } = config;
    let rooms = [
        // An answer, and as much again to be shown.
        querier.max_inflight_result_bytes,
        querier.max_inflight_result_bytes,
        querier.results_cache_bytes,
        querier.diagnostics_bytes,
        store_gateway.max_inflight_block_bytes,
        store_gateway.block_cache_bytes,
        store_gateway.partial_cache_bytes,
    ];
    rooms.iter().map(|room| room.get()).sum::<u64>() + WAITING
}

#[expect(clippy::disallowed_methods, reason = "the test's own switch")]
fn processes() -> Option<u64> {
    std::env::var("ATHANOR_ONESHOT").ok().map(|number| number.parse().expect("a number"))
}

/// The stack of a leaf, root first.
fn path(leaf: u64) -> [String; 3] {
    ["main.main".to_owned(), "main.work".to_owned(), format!("main.leaf{leaf}")]
}

/// The profile of every process: they run the same program.
fn profile() -> Bytes {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
    profile.header.period = 10_000_000;
    for leaf in 0..LEAVES {
        let stack = profile.dictionary.intern_named_stack(path(leaf).iter().map(String::as_str));
        profile.samples.push(stack, 0, &[VALUE as i64]);
    }
    encode(&profile).into()
}

fn service(process: u64) -> String {
    format!("jobs-{}", process % SERVICES)
}

fn pod(process: u64) -> String {
    format!("job-{process:08x}-{:05x}", process.wrapping_mul(0x9e37_79b9) & 0xf_ffff)
}

fn sent(process: u64, pprof: &Bytes) -> PushedSeries {
    let pairs = [
        ("__name__", "process_cpu".to_owned()),
        ("service_name", service(process)),
        ("namespace", "batch".to_owned()),
        ("pod", pod(process)),
        ("pid", (process % 32_768).to_string()),
    ];
    PushedSeries {
        labels: pairs.map(|(name, value)| (name.to_owned(), value)).into(),
        profiles: vec![PushedProfile { pprof: pprof.clone(), id: None }],
    }
}

/// Bytes that this process has in memory, now and at most.
fn memory() -> [u64; 2] {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel tells");
    ["VmRSS:", "VmHWM:"].map(|name| {
        let line = status.lines().find(|line| line.starts_with(name)).expect("it is told");
        let kibibytes = line.split_whitespace().nth(1).expect("a number");
        kibibytes.parse::<u64>().expect("a number") * 1024
    })
}

/// Begins the peak anew, and gives what is in memory now.
fn begin_peak() -> u64 {
    std::fs::write("/proc/self/clear_refs", "5").expect("the kernel lets us");
    memory()[0]
}

/// The most that was in memory since.
fn peak() -> u64 {
    memory()[1]
}

/// Sends some of them, and gives the most bytes that were in heads.
async fn send(server: &TestServer, processes: std::ops::Range<u64>) -> u64 {
    let distributor = server.node.roles().distributor.clone().expect("it has all roles");
    let ingester = Arc::clone(server.node.roles().ingester.as_ref().expect("it has all roles"));
    let (pprof, next, end) = (profile(), Arc::new(AtomicU64::new(processes.start)), processes.end);
    let senders = (0..SENDERS).map(|_| {
        let (distributor, ingester, pprof, next) =
            (distributor.clone(), Arc::clone(&ingester), pprof.clone(), Arc::clone(&next));
        server.runtime.spawn(async move {
            let (tenant, clock, mut most) = (TenantId::anonymous(), Clock::system(), 0);
            loop {
                let first = next.fetch_add(TOGETHER, Ordering::Relaxed);
                if first >= end {
                    return most;
                }
                let request: Vec<PushedSeries> =
                    (first..end.min(first + TOGETHER)).map(|process| sent(process, &pprof)).collect();
                let expected = request.len();
                let receipt = loop {
                    match distributor.push_series(&tenant, request.clone()).await {
                        Ok(receipt) => break receipt,
                        // Blocks are not written as fast: as it says, later.
                        Err(full) if full.code == ErrorCode::Exhausted => {
                            clock.sleep(full.retry_after.expect("it says when")).await;
                        }
                        Err(status) => panic!("{status:?}"),
                    }
                };
                assert_eq!(receipt.new + receipt.repeats, expected);
                let heads: u64 = ingester.stats(&clock).iter().map(|shard| shard.heads.bytes).sum();
                most = most.max(heads);
            }
        })
    });
    let mut most = 0;
    for sender in senders.collect::<Vec<_>>() {
        most = most.max(sender.await.expect("it ends"));
    }
    most
}

/// What each service should have: as many profiles as there are processes of it.
fn by_service(count: u64) -> BTreeMap<String, u64> {
    let of = |number: u64| (count - number).div_ceil(SERVICES);
    (0..SERVICES).map(|number| (service(number), of(number))).collect()
}

/// A question: how long it took, and the most that was in memory meanwhile.
struct Took {
    what: &'static str,
    time: Duration,
    peak: u64,
}

/// Asks every kind of question, and checks what is said.
async fn ask(server: &TestServer, count: u64) -> Vec<Took> {
    let querier = server.node.roles().querier.as_ref().expect("it has all roles");
    let reader = QueryContext::for_tenant(TenantId::anonymous());
    let (start, end) = ALL;
    let mut took = Vec::new();
    let clock = Clock::system();
    let mut timed = clock.monotonic();
    let mut told = |what| {
        let now = clock.monotonic();
        took.push(Took { what, time: now.saturating_sub(timed), peak: peak() });
        begin_peak();
        timed = now;
    };
    let merged = SelectMergeStacktracesRequest {
        profile_type_id: TYPE.into(),
        label_selector: "{}".into(),
        start,
        end,
        ..SelectMergeStacktracesRequest::default()
    };
    let of_all = querier.merged_tree(&reader, merged.clone()).await.expect("it is answered");
    check_leaves(&of_all, count);
    told("merge of all");
    let one = |selector| SelectMergeStacktracesRequest { label_selector: selector, ..merged.clone() };
    let of_one = querier.merged_tree(&reader, one(format!("{{pod=\"{}\"}}", pod(count / 2)))).await;
    check_leaves(&of_one.expect("it is answered"), 1);
    told("merge of one process");
    for (service, processes) in by_service(count) {
        let tree = querier.merged_tree(&reader, one(format!("{{service_name=\"{service}\"}}"))).await;
        check_leaves(&tree.expect("it is answered"), processes);
    }
    told("merges of each service");
    let values =
        |limit| LabelValuesRequest { name: "pod".into(), start, end, limit, ..LabelValuesRequest::default() };
    let pods = querier.label_values(&reader, values(1000)).await.expect("it is answered");
    let first: Vec<String> = (0..count.min(1000)).map(pod).collect();
    assert_eq!((pods.names, pods.more), (first, count > 1000));
    told("1000 values of the label that each has its own of");
    let names = ["service_name", "namespace"].map(str::to_owned);
    let services = SeriesRequest { label_names: names.into(), start, end, ..SeriesRequest::default() };
    let services = querier.series(&reader, services).await.expect("it is answered");
    let named = |name: &str| {
        let labels = services.labels_set.iter().flat_map(|labels| &labels.labels);
        labels.filter(|label| label.name == name).map(|label| label.value.clone()).collect::<Vec<_>>()
    };
    assert_eq!(named("service_name"), by_service(count).into_keys().collect::<Vec<_>>());
    assert_eq!(named("namespace"), vec!["batch"; SERVICES as usize]);
    told("series by service");
    let points = SelectSeriesRequest {
        profile_type_id: TYPE.into(),
        label_selector: "{}".into(),
        start,
        end,
        step: 1e9,
        group_by: vec!["service_name".into()],
        ..SelectSeriesRequest::default()
    };
    let series = querier.select_series(&reader, points).await.expect("it is answered");
    let chart = series.series.iter().map(|series| {
        let total: f64 = series.points.iter().map(|point| point.value).sum();
        (series.labels[0].value.clone(), total as u64 / (LEAVES * VALUE))
    });
    assert_eq!(chart.collect::<BTreeMap<_, _>>(), by_service(count));
    told("chart by service");
    took
}

/// Every leaf has what so many processes spent in it, and there is nothing else.
fn check_leaves(tree: &Tree, processes: u64) {
    assert_eq!(tree.total(), (processes * LEAVES * VALUE) as i64);
    for leaf in 0..LEAVES {
        let node = tree.find(&path(leaf)).map(|node| tree.nodes()[node as usize]);
        assert_eq!(node.map(|node| node.self_value), Some((processes * VALUE) as i64), "leaf {leaf}");
    }
}

#[test]
fn as_many_series_as_profiles_take_bounded_memory_and_are_found() {
    let asked = processes();
    let count = asked.unwrap_or(PROCESSES);
    let mut allowed_to_queries = 0;
    let server = TestServer::start(|config| {
        small(config);
        allowed_to_queries = allowed(config);
    });
    let clock = Clock::system();
    let began = clock.monotonic();
    let before = begin_peak();
    let mut heads = server.runtime.block_on(send(&server, 0..count / 2));
    let first = peak();
    begin_peak();
    heads = heads.max(server.runtime.block_on(send(&server, count / 2..count)));
    let second = peak();
    let sending = clock.monotonic().saturating_sub(began);
    let after = begin_peak();
    let took = server.runtime.block_on(ask(&server, count));
    let asking = took.iter().map(|took| took.peak).max().unwrap_or(after);
    if asked.is_some() {
        let mib = |bytes: u64| bytes >> 20;
        println!(
            "{count} processes in {sending:?}; heads at most {} MiB; memory {} MiB before, at most {} for the first half and {} for \
             the second, {} after it, at most {} while asked",
            mib(heads),
            mib(before),
            mib(first),
            mib(second),
            mib(after),
            mib(asking)
        );
        took.iter().for_each(|Took { what, time, peak }| println!("{what}: {time:?}, {} MiB", mib(*peak)));
    }
    // Requests that were let in while there was room.
    assert!(heads <= HEADS.get() + HEAD.get(), "heads took {heads} bytes");
    assert!(
        second <= first + MORE,
        "{before} bytes before, at most {first} for the first half, {second} for the second"
    );
    assert!(
        asking <= after + allowed_to_queries + REST,
        "{after} bytes before the questions, {asking} at most, {allowed_to_queries} by the settings"
    );
    server.runtime.block_on(server.node.stop()).expect("all is kept");
}
