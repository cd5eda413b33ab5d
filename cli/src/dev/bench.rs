//! `dev bench`: pushes the reference dataset to a running server and measures the cost.
//!
//! ```text
//!  dataset ─► requests in memory ─► n connections ─► acknowledgements ─► merges with the right total
//! ```
//!
//! Each run labels its profiles with a unique number, so it is repeatable against the same server. At a given
//! rate, the latency of a request counts from its scheduled time, so a stall of the server stays visible.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use athanor_chassis::{ErrorCode, Random, Status, Timestamp};
use athanor_client::{ApiClient, PUSH_METHOD};
use athanor_profile::formats::pprof;
use athanor_profile::generate::ReferenceDataset;
use athanor_proto::push::v1::{PushRequest, RawProfileSeries, RawSample};
use athanor_proto::querier::v1::{SelectMergeStacktracesRequest, SelectMergeStacktracesResponse};
use athanor_proto::types::v1::LabelPair;
use bytes::Bytes;
use futures::future::join_all;
use prost::Message;
use serde_json::{Value, json};

use crate::args::DevBenchArgs;
use crate::output::ConsoleOutput;
use crate::remote::connection;
use crate::{failure, profile::input, progress};

const MERGE_METHOD: &str = "querier.v1.QuerierService/SelectMergeStacktraces";
const CPU_PROFILE_TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
/// Clock ticks per second in the CPU times of `/proc`, a constant on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Requests to push and the result that a merge must return.
struct Workload {
    requests: Vec<Bytes>,
    raw_bytes: u64,
    total: i64,
    /// Value of the label that identifies this run.
    run: String,
    /// Time range in Unix milliseconds.
    range: (i64, i64),
}

/// Measurements of the push phase.
#[derive(Default)]
struct PushMeasurements {
    seconds: f64,
    /// Latency of each acknowledgement.
    acks: Vec<Duration>,
    /// Messages of rejections with their counts.
    rejected: BTreeMap<String, usize>,
    /// CPU time and memory of the server process during the push.
    usage: Option<ServerProcessUsage>,
    /// CPU seconds by activity that the server reported for the push.
    activities: BTreeMap<String, f64>,
}

/// Resource usage of a process.
#[derive(Clone, Copy)]
struct ServerProcessUsage {
    seconds: f64,
    peak_bytes: u64,
}

/// Runs the benchmark.
pub fn run(args: &DevBenchArgs, output: &ConsoleOutput) -> Result<(), Status> {
    let client = connection::client(&args.remote)?;
    let work = prepare(args, client.clock().wall())?;
    let (pushed, merges) = connection::block_on(async {
        let pushed = push(args, &client, &work).await?;
        let merges = if pushed.rejected.is_empty() { merge(args, &client, &work).await? } else { Vec::new() };
        Ok::<_, Status>((pushed, merges))
    })??;
    report(&work, &pushed, merges, output)?;
    match pushed.rejected.into_iter().next() {
        Some((message, _)) => {
            Err(Status::new(ErrorCode::Unavailable, format!("the server rejected requests: {message}")))
        }
        None => Ok(()),
    }
}

/// Prepares the requests. The last profile has the current time.
fn prepare(args: &DevBenchArgs, now: Timestamp) -> Result<Workload, Status> {
    let count = args.profiles.unwrap_or(args.dataset.profiles());
    let set = ReferenceDataset::new(ReferenceDataset::PUBLISHED_SEED);
    let span = set.time(count.saturating_sub(1)) - set.time(0);
    let set = set.with_start(now.nanos() - span);
    let run = format!("{:016x}", Random::system().next_u64());
    let bar = progress::files(count, "generating");
    let one = |i: usize| {
        let raw = set.pprof(i);
        let total: i64 = set.rows(i).iter().map(|row| row.1).sum();
        let labels = set.labels(i);
        let own = [("__name__", "process_cpu"), ("load", run.as_str())];
        let labels = labels
            .iter()
            .chain(own)
            .map(|(name, value)| LabelPair { name: name.to_owned(), value: value.to_owned() });
        let sample = RawSample { raw_profile: pprof::gzip(&raw).into(), ..RawSample::default() };
        let series = RawProfileSeries {
            labels: labels.collect(),
            samples: vec![sample],
            ..RawProfileSeries::default()
        };
        bar.inc(1);
        (Bytes::from(PushRequest { series: vec![series] }.encode_to_vec()), raw.len() as u64, total)
    };
    let made =
        input::compute()?.map((0..count).collect(), one).map_err(|error| Status::from_error(&error))?;
    bar.finish_and_clear();
    let millis = |nanos: i64| nanos.div_euclid(1_000_000);
    Ok(Workload {
        raw_bytes: made.iter().map(|one| one.1).sum(),
        total: made.iter().map(|one| one.2).sum(),
        requests: made.into_iter().map(|one| one.0).collect(),
        run,
        range: (millis(now.nanos() - span) - 1, millis(now.nanos()) + 1_000),
    })
}

async fn push(args: &DevBenchArgs, client: &ApiClient, work: &Workload) -> Result<PushMeasurements, Status> {
    let before = args.pid.map(usage).transpose()?;
    let spent = activities(client).await;
    let bar = progress::files(work.requests.len(), "pushing");
    let next = Cell::new(0);
    let pushed = RefCell::new(PushMeasurements::default());
    let clock = client.clock();
    let start = clock.monotonic();
    let connection = async || {
        loop {
            let i = next.replace(next.get() + 1);
            let Some(request) = work.requests.get(i) else { return };
            let due = match args.rate {
                Some(rate) => start + Duration::from_secs_f64(i as f64 / rate),
                None => clock.monotonic(),
            };
            clock.sleep(due.saturating_sub(clock.monotonic())).await;
            let response = client.call(PUSH_METHOD, request.clone(), false).await;
            let took = clock.monotonic() - due;
            let mut pushed = pushed.borrow_mut();
            match response {
                Ok(_) => pushed.acks.push(took),
                Err(status) => *pushed.rejected.entry(status.message).or_default() += 1,
            }
            bar.inc(1);
        }
    };
    join_all((0..args.connections).map(|_| connection())).await;
    bar.finish_and_clear();
    let mut pushed = pushed.into_inner();
    pushed.seconds = (clock.monotonic() - start).as_secs_f64();
    pushed.acks.sort_unstable();
    if let (Some(pid), Some(before)) = (args.pid, before) {
        clock.sleep(args.settle).await;
        let after = usage(pid)?;
        pushed.usage = Some(ServerProcessUsage { seconds: after.seconds - before.seconds, ..after });
        let since = |(name, seconds): (String, f64)| {
            let seconds = seconds - spent.get(&name).unwrap_or(&0.0);
            (name, seconds)
        };
        pushed.activities = activities(client).await.into_iter().map(since).collect();
    }
    Ok(pushed)
}

/// Measures the latency of merges over the whole run. Caches may be cold for the first one.
async fn merge(args: &DevBenchArgs, client: &ApiClient, work: &Workload) -> Result<Vec<Duration>, Status> {
    let request = SelectMergeStacktracesRequest {
        profile_type_id: CPU_PROFILE_TYPE.to_owned(),
        label_selector: format!("{{load=\"{}\"}}", work.run),
        start: work.range.0,
        end: work.range.1,
        ..SelectMergeStacktracesRequest::default()
    };
    let mut took = Vec::new();
    for _ in 0..args.merges {
        let start = client.clock().monotonic();
        let response: SelectMergeStacktracesResponse = client.request(MERGE_METHOD, &request).await?;
        took.push(client.clock().monotonic() - start);
        let total = response.flamegraph.unwrap_or_default().total;
        if total != work.total {
            let message = format!(
                "merge returned {total} ns, but {} ns were acknowledged (label load={}); profiles are missing or counted twice",
                work.total, work.run
            );
            return Err(Status::new(ErrorCode::Internal, message));
        }
    }
    Ok(took)
}

/// Returns the server's CPU seconds by activity. Empty if the server is not athanor.
async fn activities(client: &ApiClient) -> BTreeMap<String, f64> {
    let page = client.page("metrics").await.unwrap_or_default();
    let read = |line: &str| {
        let (name, seconds) =
            line.strip_prefix("athanor_cpu_seconds_total{activity=\"")?.split_once("\"} ")?;
        Some((name.to_owned(), seconds.trim().parse().ok()?))
    };
    page.lines().filter_map(read).collect()
}

/// Returns the resource usage of a process since its start.
fn usage(pid: u32) -> Result<ServerProcessUsage, Status> {
    let strange = |path: &str| {
        Status::new(ErrorCode::Internal, format!("{path}: unexpected format, not that of Linux"))
    };
    let read = |name: &str| {
        let path = format!("/proc/{pid}/{name}");
        let text = fs::read_to_string(&path).map_err(|error| failure::io_error(path.as_ref(), error))?;
        Ok::<_, Status>((path, text))
    };
    let (path, stat) = read("stat")?;
    // The command name may contain spaces and brackets, but the fields after it do not.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
    let ticks = |place: usize| fields.get(place).and_then(|text| text.parse::<f64>().ok());
    let (Some(user), Some(system)) = (ticks(11), ticks(12)) else { return Err(strange(&path)) };
    let (path, status) = read("status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = peak.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let peak_bytes = kibibytes.ok_or_else(|| strange(&path))? * 1024;
    Ok(ServerProcessUsage { seconds: (user + system) / TICKS_PER_SECOND, peak_bytes })
}

fn report(
    work: &Workload,
    pushed: &PushMeasurements,
    mut merges: Vec<Duration>,
    output: &ConsoleOutput,
) -> Result<(), Status> {
    let megabytes = work.raw_bytes as f64 / 1e6;
    let first = merges.first().copied();
    if !merges.is_empty() {
        merges.remove(0);
        merges.sort_unstable();
    }
    let json = || {
        json!({
            "run": work.run, "profiles": work.requests.len(), "raw_bytes": work.raw_bytes,
            "total": work.total, "seconds": pushed.seconds, "acks": pushed.acks.len(),
            "ack_ms": quantiles(&pushed.acks), "rejected": pushed.rejected,
            "server": pushed.usage.map(|usage| json!({
                "cpu_seconds": usage.seconds, "peak_bytes": usage.peak_bytes,
                "megabytes_per_core_second": megabytes / usage.seconds, "activities": pushed.activities,
            })),
            "first_merge_ms": first.map(millis), "merge_ms": quantiles(&merges),
        })
    };
    let text = || {
        let mut text = format!(
            "{} profiles, {megabytes:.0} MB of raw pprof in {:.2} s: {:.0} MB/s\nacknowledged {}, latency in ms: {}\n",
            work.requests.len(),
            pushed.seconds,
            megabytes / pushed.seconds,
            pushed.acks.len(),
            line(&pushed.acks),
        );
        for (message, count) in &pushed.rejected {
            text.push_str(&format!("rejected {count}: {message}\n"));
        }
        if let Some(usage) = pushed.usage {
            text.push_str(&format!(
                "server: {:.2} s of CPU time, {:.0} MB of raw pprof per core second, {:.0} MB peak memory\n",
                usage.seconds,
                megabytes / usage.seconds,
                usage.peak_bytes as f64 / 1e6
            ));
            let part =
                |(name, seconds): (&String, &f64)| format!("{name} {:.0} %", seconds / usage.seconds * 100.0);
            let parts: Vec<String> = pushed.activities.iter().map(part).collect();
            if !parts.is_empty() {
                text.push_str(&format!("CPU time by activity: {}\n", parts.join(", ")));
            }
        }
        if let Some(first) = first {
            text.push_str(&format!(
                "merge queries returned the expected {} ns; first {:.1} ms, others in ms: {}\n",
                work.total,
                millis(first),
                line(&merges)
            ));
        }
        text
    };
    output.print_json_or_text(json, text)
}

/// Names and ranks of the reported quantiles.
const REPORTED_QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];

fn quantile(sorted: &[Duration], part: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * part) as usize).copied().map(millis)
}

fn quantiles(sorted: &[Duration]) -> Value {
    REPORTED_QUANTILES.iter().map(|&(name, part)| (name.to_owned(), json!(quantile(sorted, part)))).collect()
}

fn line(sorted: &[Duration]) -> String {
    let part = |&(name, part): &(&str, f64)| {
        quantile(sorted, part).map_or_else(String::new, |millis| format!("{name} {millis:.2}"))
    };
    REPORTED_QUANTILES.iter().map(part).collect::<Vec<_>>().join(", ")
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}
