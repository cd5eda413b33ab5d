//! Processes that live for one profile each: as many series as profiles. Memory stays bounded, blocks are written, and
//! every question is answered and right. `ATHANOR_ONESHOT=1000000` says how many; then figures are printed as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::{ByteSize, Clock, TenantId};
use athanor_distributor::{SentProfile, SentSeries};
use athanor_integration::server::Server;
use athanor_profile::pprof::encode;
use athanor_profile::{Profile, ValueType};
use athanor_proto::querier::v1::{SelectMergeStacktracesRequest, SelectSeriesRequest, SeriesRequest};
use athanor_proto::types::v1::LabelValuesRequest;
use athanor_querier::Reader;
use bytes::Bytes;

/// Without the variable.
const PROCESSES: u64 = 20_000;
/// Profiles of one request.
const TOGETHER: u64 = 100;
/// Requests under way.
const SENDERS: u64 = 4;
const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const ALL: (i64, i64) = (1, i64::MAX / 1_000_000 - 1);
/// A head is cut when it is this large.
const HEAD: ByteSize = ByteSize::mib(4);
/// The test's own share, caches, and what allocators keep.
const REST: u64 = 512 << 20;

#[expect(clippy::disallowed_methods, reason = "the test's own switch")]
fn processes() -> Option<u64> {
    std::env::var("ATHANOR_ONESHOT").ok().map(|number| number.parse().expect("a number"))
}

/// The profile of every process: they run the same program.
fn profile() -> Bytes {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
    profile.header.period = 10_000_000;
    for leaf in 0..10 {
        let frames = [format!("main.leaf{leaf}"), "main.work".to_owned(), "main.main".to_owned()];
        let stack = profile.dictionary.named_stack(frames.iter().map(String::as_str));
        profile.samples.push(stack, 0, &[10_000_000]);
    }
    encode(&profile).into()
}

fn sent(process: u64, pprof: &Bytes) -> SentSeries {
    let pairs = [
        ("__name__", "process_cpu".to_owned()),
        ("service_name", format!("jobs-{}", process % 7)),
        ("namespace", "batch".to_owned()),
        ("pod", format!("job-{process:08x}-{:05x}", process.wrapping_mul(0x9e37_79b9) & 0xf_ffff)),
        ("pid", (process % 32_768).to_string()),
    ];
    SentSeries {
        labels: pairs.map(|(name, value)| (name.to_owned(), value)).into(),
        profiles: vec![SentProfile { pprof: pprof.clone(), id: None }],
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

/// Sends all of them, and gives the most bytes that were in heads.
async fn send(server: &Server, count: u64) -> u64 {
    let distributor = server.node.roles().distributor.clone().expect("it has all roles");
    let ingester = Arc::clone(server.node.roles().ingester.as_ref().expect("it has all roles"));
    let (pprof, next) = (profile(), Arc::new(AtomicU64::new(0)));
    let senders = (0..SENDERS).map(|_| {
        let (distributor, ingester, pprof, next) =
            (distributor.clone(), Arc::clone(&ingester), pprof.clone(), Arc::clone(&next));
        server.runtime.spawn(async move {
            let (tenant, clock, mut most) = (TenantId::anonymous(), Clock::system(), 0);
            loop {
                let first = next.fetch_add(TOGETHER, Ordering::Relaxed);
                if first >= count {
                    return most;
                }
                let request: Vec<SentSeries> =
                    (first..count.min(first + TOGETHER)).map(|process| sent(process, &pprof)).collect();
                let expected = request.len();
                let receipt = distributor.push_series(&tenant, request).await.expect("all are taken");
                assert_eq!(receipt.new, expected);
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

/// Asks every kind of question, checks what is said, and tells how long each took.
async fn ask(server: &Server, count: u64) -> Vec<(&'static str, Duration)> {
    let querier = server.node.roles().querier.as_ref().expect("it has all roles");
    let reader = Reader::of(TenantId::anonymous());
    let (start, end) = ALL;
    let mut took = Vec::new();
    let clock = Clock::system();
    let mut timed = clock.monotonic();
    let mut told = |what| {
        let now = clock.monotonic();
        took.push((what, now.saturating_sub(timed)));
        timed = now;
    };
    let merged = SelectMergeStacktracesRequest {
        profile_type_id: TYPE.into(),
        label_selector: "{}".into(),
        start,
        end,
        ..SelectMergeStacktracesRequest::default()
    };
    let tree = querier.merged_tree(&reader, merged.clone()).await.expect("it is answered");
    let total: i64 = tree.children(0).map(|child| tree.nodes()[child as usize].total).sum();
    assert_eq!(total, count as i64 * 100_000_000);
    told("merge of all");
    let pod = sent(count / 2, &Bytes::new()).labels[3].1.clone();
    let one = SelectMergeStacktracesRequest { label_selector: format!("{{pod=\"{pod}\"}}"), ..merged };
    let tree = querier.merged_tree(&reader, one).await.expect("it is answered");
    let total: i64 = tree.children(0).map(|child| tree.nodes()[child as usize].total).sum();
    assert_eq!(total, 100_000_000);
    told("merge of one process");
    let values =
        |limit| LabelValuesRequest { name: "pod".into(), start, end, limit, ..LabelValuesRequest::default() };
    let pods = querier.label_values(&reader, values(1000)).await.expect("it is answered");
    assert_eq!((pods.names.len() as u64, pods.more), (count.min(1000), count > 1000));
    told("1000 values of the label that each has its own of");
    let services = SeriesRequest {
        label_names: vec!["service_name".into(), "namespace".into()],
        start,
        end,
        ..SeriesRequest::default()
    };
    let services = querier.series(&reader, services).await.expect("it is answered");
    assert_eq!(services.labels_set.len(), 7);
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
    let values = series.series.iter().flat_map(|series| &series.points).map(|point| point.value);
    assert_eq!(values.sum::<f64>(), count as f64 * 100_000_000.0);
    told("chart by service");
    took
}

#[test]
fn as_many_series_as_profiles_take_bounded_memory_and_are_found() {
    let asked = processes();
    let count = asked.unwrap_or(PROCESSES);
    let server = Server::start(|config| {
        config.ingester.cut.max_bytes = HEAD;
        config.ingester.unregistered = ByteSize::mib(256);
    });
    let [before, _] = memory();
    let clock = Clock::system();
    let began = clock.monotonic();
    let heads = server.runtime.block_on(send(&server, count));
    let sending = clock.monotonic().saturating_sub(began);
    let after = memory();
    let took = server.runtime.block_on(ask(&server, count));
    let at_last = memory();
    if asked.is_some() {
        let mib = |bytes: u64| bytes >> 20;
        println!(
            "{count} processes in {sending:?}; heads at most {} MiB; memory {} MiB before, {} sent, {} at most, {} asked, {} at most",
            mib(heads),
            mib(before),
            mib(after[0]),
            mib(after[1]),
            mib(at_last[0]),
            mib(at_last[1])
        );
        took.iter().for_each(|(what, took)| println!("{what}: {took:?}"));
    }
    assert!(heads <= 256 << 20, "heads took {heads} bytes");
    // Heads are kept for a minute after they were cut, up to 256 MiB as they count themselves.
    assert!(after[1] - before < 2 * (256 << 20) + REST, "{before} bytes before, {after:?} after sending");
    assert!(asked.is_some() || at_last[1] - before < (256 << 20) + REST, "{at_last:?} after asking");
    server.runtime.block_on(server.node.stop()).expect("all is kept");
}
