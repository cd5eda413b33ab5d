//! Latency of one tenant's pushes and queries, alone and beside another tenant's wide merges.
//!
//! `cargo bench -p athanor-cli --bench neighbor`. The server runs on the first core, the clients on all others. The
//! aggressor sends 64 merges over all its profiles at once, each as soon as the last one is answered. Runs alternate: the
//! neighbor alone, the neighbor beside the aggressor. Latencies count from when a request was due.
//!
//! `-- --runs 1 --seconds 3 --profiles 50` makes a short try of it.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a bench measures time")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use athanor_profile::formats::pprof;
use athanor_profile::generate::ReferenceDataset;
use athanor_proto::push::v1::{PushRequest, RawProfileSeries, RawSample};
use athanor_proto::querier::v1::SelectMergeStacktracesRequest;
use athanor_proto::types::v1::LabelPair;
use prost::Message;

const PUSH_PATH: &str = "/push.v1.PusherService/Push";
const MERGE_PATH: &str = "/querier.v1.QuerierService/SelectMergeStacktraces";
const PROFILE_TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
/// Requests of the neighbor in a second.
const PUSHES_PER_SECOND: f64 = 20.0;
const QUERIES_PER_SECOND: f64 = 10.0;
/// Profiles that the neighbor's queries read.
const NEIGHBOR_PROFILES: usize = 50;
const NEIGHBOR: &str = "neighbor";
const AGGRESSOR: &str = "aggressor";

/// Size of the bench.
#[derive(Clone, Copy)]
struct Options {
    runs: usize,
    seconds: u64,
    /// Profiles of the aggressor.
    profiles: usize,
    aggressors: usize,
}

/// Profiles of one tenant.
struct ProfileSet {
    profiles: Vec<SetProfile>,
    /// Unix milliseconds.
    start: i64,
    end: i64,
}

/// Profile with its labels.
struct SetProfile {
    gzipped: Vec<u8>,
    labels: Vec<(String, String)>,
}

/// Latencies of one kind of request, and what was refused.
#[derive(Default)]
struct Latencies {
    millis: Vec<f64>,
    refused: Vec<String>,
}

/// Server process, killed when it is dropped.
struct Server {
    child: Child,
    folder: tempfile::TempDir,
}

/// Connection that sends one request after the other.
struct Connection {
    stream: BufReader<TcpStream>,
    tenant: &'static str,
}

impl Options {
    fn from_args() -> Self {
        let args: Vec<String> = std::env::args().collect();
        let number = |name: &str, default: usize| {
            let value = args.iter().skip_while(|arg| *arg != name).nth(1);
            value.map_or(default, |value| value.parse().unwrap())
        };
        Self {
            runs: number("--runs", 5),
            seconds: number("--seconds", 30) as u64,
            profiles: number("--profiles", 1_000),
            aggressors: number("--aggressors", 64),
        }
    }
}

impl ProfileSet {
    /// The first profiles of the reference set, of which the last one is of now.
    fn new(count: usize) -> Self {
        let now_nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
        let set = ReferenceDataset::new(ReferenceDataset::PUBLISHED_SEED);
        let span_nanos = set.time(count - 1) - set.time(0);
        let set = set.with_start(now_nanos - span_nanos);
        let profile = |i: usize| {
            let labels = set.labels(i);
            let labels = labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
            SetProfile { gzipped: pprof::gzip(&set.pprof(i)), labels: labels.collect() }
        };
        let millis = |nanos: i64| nanos.div_euclid(1_000_000);
        Self {
            profiles: (0..count).map(profile).collect(),
            start: millis(now_nanos - span_nanos) - 1,
            end: millis(now_nanos) + 1_000,
        }
    }

    /// Body of a push of one profile. Each value of `load` makes it new to the server.
    fn push_body(&self, number: usize, load: &str) -> Vec<u8> {
        let SetProfile { gzipped, labels } = &self.profiles[number % self.profiles.len()];
        let labels = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let labels = labels.chain([("__name__", "process_cpu"), ("load", load)]);
        let labels = labels.map(|(name, value)| LabelPair { name: name.to_owned(), value: value.to_owned() });
        let sample = RawSample { raw_profile: gzipped.clone().into(), ..RawSample::default() };
        let series = RawProfileSeries {
            labels: labels.collect(),
            samples: vec![sample],
            ..RawProfileSeries::default()
        };
        PushRequest { series: vec![series] }.encode_to_vec()
    }

    /// Body of a merge over all profiles that were pushed as `base`. The start differs, so no result is cached.
    fn merge_body(&self, number: u64) -> Vec<u8> {
        let request = SelectMergeStacktracesRequest {
            profile_type_id: PROFILE_TYPE.to_owned(),
            label_selector: "{load=\"base\"}".to_owned(),
            start: self.start - number as i64,
            end: self.end,
            ..SelectMergeStacktracesRequest::default()
        };
        request.encode_to_vec()
    }
}

impl Latencies {
    fn add(&mut self, due: Instant, refused: Option<String>) {
        match refused {
            None => self.millis.push(due.elapsed().as_secs_f64() * 1e3),
            Some(refused) => self.refused.push(refused),
        }
    }

    fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.millis.clone();
        sorted.sort_by(f64::total_cmp);
        let place = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
        sorted.get(place).copied().unwrap_or(f64::NAN)
    }
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        let child = Command::new("taskset")
            .args(["-c", "0", env!("CARGO_BIN_EXE_athanor"), "serve", "--listen", "127.0.0.1:0"])
            .args(["--set", "multitenancy_enabled=true", "--set", "telemetry.level=warn"])
            .args(["--set", "limits.reject_older_than=0s", "--data"])
            .arg(folder.path().join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.path().join("stderr")).unwrap())
            .spawn()
            .unwrap();
        Self { child, folder }
    }

    fn wait_for_address(&mut self) -> String {
        loop {
            let stderr = fs::read_to_string(self.folder.path().join("stderr")).unwrap();
            let address = stderr.lines().find_map(|line| line.strip_prefix("athanor listens on http://"));
            if let Some(address) = address.filter(|_| stderr.ends_with('\n')) {
                return address.to_owned();
            }
            assert!(self.child.try_wait().unwrap().is_none(), "the server has ended:\n{stderr}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Connection {
    fn open(address: &str, tenant: &'static str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream), tenant }
    }

    /// Sends a request and reads the response. Returns why it was refused.
    fn send(&mut self, path: &str, body: &[u8]) -> Option<String> {
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-scope-orgid: {}\r\ncontent-type: application/proto\r\n\
             content-length: {}\r\n\r\n",
            self.tenant,
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.stream.get_mut().write_all(&request).unwrap();
        let (mut line, mut status, mut length) = (String::new(), String::new(), 0);
        loop {
            line.clear();
            assert_ne!(self.stream.read_line(&mut line).unwrap(), 0, "the server closed the connection");
            if status.is_empty() {
                status = line.trim().to_owned();
            }
            let lower = line.to_ascii_lowercase();
            length =
                lower.strip_prefix("content-length:").map_or(length, |text| text.trim().parse().unwrap());
            if line == "\r\n" {
                break;
            }
        }
        let mut response = vec![0; length];
        self.stream.read_exact(&mut response).unwrap();
        let refused = !status.contains(" 200 ");
        refused.then(|| format!("{status}: {}", String::from_utf8_lossy(&response)))
    }
}

/// Sends requests at a fixed rate on one connection.
fn send_at_rate(
    mut connection: Connection,
    path: &str,
    requests_per_second: f64,
    seconds: u64,
    body: impl Fn(usize) -> Vec<u8>,
) -> Latencies {
    let mut latencies = Latencies::default();
    let begun = Instant::now();
    for number in 0..(requests_per_second * seconds as f64) as usize {
        let body = body(number);
        let due = begun + Duration::from_secs_f64(number as f64 / requests_per_second);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        latencies.add(due, connection.send(path, &body));
    }
    latencies
}

/// Starts clients that send wide merges until `stop` is set. They return how many were answered.
fn start_aggressors(
    address: &str,
    set: &Arc<ProfileSet>,
    count: usize,
    stop: &Arc<AtomicBool>,
) -> Vec<thread::JoinHandle<usize>> {
    static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
    let start = |_| {
        let (address, set, stop) = (address.to_owned(), Arc::clone(set), Arc::clone(stop));
        thread::spawn(move || {
            let mut connection = Connection::open(&address, AGGRESSOR);
            let mut answered = 0;
            while !stop.load(Ordering::Relaxed) {
                let body = set.merge_body(NEXT_NUMBER.fetch_add(1, Ordering::Relaxed));
                answered += usize::from(connection.send(MERGE_PATH, &body).is_none());
            }
            answered
        })
    };
    (0..count).map(start).collect()
}

/// Measures the neighbor's pushes and queries.
fn run_neighbor(address: &str, set: &Arc<ProfileSet>, seconds: u64, load: &str) -> (Latencies, Latencies) {
    static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
    let (pusher_set, pusher_load) = (Arc::clone(set), load.to_owned());
    let pushes = Connection::open(address, NEIGHBOR);
    let pushes = thread::spawn(move || {
        let body =
            |number| pusher_set.push_body(number, &format!("{pusher_load}-{}", number / NEIGHBOR_PROFILES));
        send_at_rate(pushes, PUSH_PATH, PUSHES_PER_SECOND, seconds, body)
    });
    let body = |_| set.merge_body(NEXT_NUMBER.fetch_add(1, Ordering::Relaxed));
    let queries = Connection::open(address, NEIGHBOR);
    let queries = send_at_rate(queries, MERGE_PATH, QUERIES_PER_SECOND, seconds, body);
    (pushes.join().unwrap(), queries)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Keeps this process off the server's core, if there is another one.
fn move_to_other_cores() {
    let cores = thread::available_parallelism().unwrap().get();
    if cores > 1 {
        let pid = std::process::id().to_string();
        let status = Command::new("taskset")
            .args(["-pc", &format!("1-{}", cores - 1), &pid])
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
    }
}

fn main() {
    let options = Options::from_args();
    let mut server = Server::start();
    let address = server.wait_for_address();
    move_to_other_cores();
    let own = Arc::new(ProfileSet::new(NEIGHBOR_PROFILES));
    let others = Arc::new(ProfileSet::new(options.profiles));
    for (tenant, set) in [(NEIGHBOR, &own), (AGGRESSOR, &others)] {
        let mut connection = Connection::open(&address, tenant);
        for number in 0..set.profiles.len() {
            assert_eq!(connection.send(PUSH_PATH, &set.push_body(number, "base")), None);
        }
        assert_eq!(connection.send(MERGE_PATH, &set.merge_body(0)), None);
    }
    println!(
        "| run | aggressor | push p50/p99, ms | query p50/p99, ms | refused | merges of the aggressor |"
    );
    println!("|---|---|---:|---:|---:|---:|");
    let mut p99 = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    for run in 0..options.runs {
        for with_aggressor in [false, true] {
            let stop = Arc::new(AtomicBool::new(false));
            let aggressors = if with_aggressor { options.aggressors } else { 0 };
            let aggressors = start_aggressors(&address, &others, aggressors, &stop);
            let load = format!("run-{run}-{with_aggressor}");
            let (pushes, queries) = run_neighbor(&address, &own, options.seconds, &load);
            stop.store(true, Ordering::Relaxed);
            let merges: usize = aggressors.into_iter().map(|thread| thread.join().unwrap()).sum();
            println!(
                "| {run} | {} | {:.1}/{:.1} | {:.1}/{:.1} | {} | {merges} |",
                if with_aggressor { "yes" } else { "no" },
                pushes.quantile(0.5),
                pushes.quantile(0.99),
                queries.quantile(0.5),
                queries.quantile(0.99),
                pushes.refused.len() + queries.refused.len()
            );
            for (kind, latencies) in [pushes, queries].iter().enumerate() {
                p99[kind][usize::from(with_aggressor)].push(latencies.quantile(0.99));
                latencies.refused.first().into_iter().for_each(|refused| println!("refused: {refused}"));
            }
        }
    }
    for (kind, [alone, beside]) in ["push", "query"].into_iter().zip(p99) {
        let (alone, beside) = (median(alone), median(beside));
        println!(
            "{kind} p99, median of runs: {alone:.1} ms alone, {beside:.1} ms with the aggressor: {:.2} times, the goal is 1.2",
            beside / alone
        );
    }
}
