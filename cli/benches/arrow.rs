//! Processor time, bytes and memory of exports as Arrow, beside a floor: copying the same bytes through a socket.
//!
//! `cargo bench -p athanor-cli --bench arrow`. A server gets the profiles of R-1k. One client exports all samples over
//! heads, then over blocks. After that it requests Functions as Arrow and as JSON in turn. Processor time is that of the
//! whole server process, and memory is its peak above what it had before the first export.
//!
//! `-- --profiles 100 --exports 2` makes a short try of it.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a bench measures time")]

use std::fs::{self, File};
use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use athanor_arrow_format::{ARROW_STREAM_TYPE, SampleReader};
use athanor_profile::formats::pprof;
use athanor_profile::generate::ReferenceDataset;
use athanor_proto::athanor::v1::{FunctionsRequest, Page, Query, SamplesRequest};
use athanor_proto::push::v1::{PushRequest, RawProfileSeries, RawSample};
use athanor_proto::types::v1::LabelPair;
use prost::Message;

const PUSH_PATH: &str = "/push.v1.PusherService/Push";
const SAMPLES_PATH: &str = "/athanor.v1.ExploreService/Samples";
const FUNCTIONS_PATH: &str = "/athanor.v1.ExploreService/Functions";
const PROFILE_TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const JSON_TYPE: &str = "application/json";
const PROTO_TYPE: &str = "application/proto";
/// Rows of a page of functions, the maximum.
const FUNCTION_ROWS: u32 = 10_000;
/// In a second, as Linux counts for programs, whatever its own clock does.
const TICKS_PER_SECOND: f64 = 100.0;
const GOAL_MILLIS: f64 = 250.0;
const GOAL_ROW_BYTES: f64 = 8.0;
const GOAL_PEAK_MIB: f64 = 64.0;

/// Size of the bench.
#[derive(Clone, Copy)]
struct Options {
    profiles: usize,
    exports: usize,
}

impl Options {
    fn from_args() -> Self {
        let args: Vec<String> = std::env::args().collect();
        let number = |name: &str, default: usize| {
            let value = args.iter().skip_while(|arg| *arg != name).nth(1);
            value.map_or(default, |value| value.parse().unwrap())
        };
        Self { profiles: number("--profiles", 1_200), exports: number("--exports", 10).max(1) }
    }
}

/// Time range of the pushed profiles, Unix milliseconds.
#[derive(Clone, Copy)]
struct MillisRange {
    start: i64,
    end: i64,
}

impl MillisRange {
    /// Returns a query of all profiles. The start differs by number, so no result is cached.
    fn query(self, number: usize) -> Option<Query> {
        Some(Query {
            profile_type: PROFILE_TYPE.to_owned(),
            selector: "{}".to_owned(),
            start: self.start - number as i64,
            end: self.end,
            ..Query::default()
        })
    }
}

/// Server process, killed when it is dropped.
struct Server {
    child: Child,
    folder: tempfile::TempDir,
    address: String,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_athanor"))
            .args(["serve", "--listen", "127.0.0.1:0", "--set", "telemetry.level=warn"])
            .args(["--set", "limits.reject_older_than=0s", "--data"])
            .arg(folder.path().join("data"))
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.path().join("stderr")).unwrap())
            .spawn()
            .unwrap();
        let address = loop {
            let stderr = fs::read_to_string(folder.path().join("stderr")).unwrap();
            let address = stderr.lines().find_map(|line| line.strip_prefix("athanor listens on http://"));
            if let Some(address) = address.filter(|_| stderr.ends_with('\n')) {
                break address.to_owned();
            }
            assert!(child.try_wait().unwrap().is_none(), "the server has ended:\n{stderr}");
            thread::sleep(Duration::from_millis(5));
        };
        Self { child, folder, address }
    }

    fn flush(&self) {
        let flushed = Command::new(env!("CARGO_BIN_EXE_athanor"))
            .args(["flush", "--data"])
            .arg(self.folder.path().join("data"))
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(flushed.success());
    }

    /// Returns the processor time of the process in seconds.
    fn cpu_seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        let ticks = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        ticks / TICKS_PER_SECOND
    }

    /// Returns a field of `/proc/PID/status` in MiB.
    fn memory_mib(&self, field: &str) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        let kib = line.trim_start_matches(':').trim().trim_end_matches(" kB");
        kib.parse::<f64>().unwrap() / 1024.0
    }

    /// Sets the peak of the memory to what the process has.
    fn reset_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").unwrap();
    }

    /// Sends a request on a connection of its own and returns the body.
    fn send(&self, path: &str, accept: &str, body: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: {}\r\naccept: {accept}\r\n\
             content-length: {}\r\n\r\n",
            self.address,
            if accept == JSON_TYPE { JSON_TYPE } else { PROTO_TYPE },
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        let end = response.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&response[..end]).to_ascii_lowercase();
        let body = &response[end + 4..];
        assert!(head.starts_with("http/1.1 200"), "{head}\n{}", String::from_utf8_lossy(body));
        if head.contains("transfer-encoding: chunked") { join_chunks(body) } else { body.to_vec() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Joins the chunks of a chunked body.
fn join_chunks(mut body: &[u8]) -> Vec<u8> {
    let mut joined = Vec::new();
    loop {
        let end = body.windows(2).position(|two| two == b"\r\n").expect("the last chunk is missing");
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return joined;
        }
        let from = end + 2;
        joined.extend_from_slice(&body[from..from + size]);
        body = &body[from + size + 2..];
    }
}

/// Pushes the first profiles of the reference set, of which the last one is of now. Returns their time range.
fn push_profiles(server: &Server, count: usize) -> MillisRange {
    let now_nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
    let set = ReferenceDataset::new(ReferenceDataset::PUBLISHED_SEED);
    let span_nanos = set.time(count - 1) - set.time(0);
    let set = set.with_start(now_nanos - span_nanos);
    for number in 0..count {
        let labels = set.labels(number);
        let labels = labels.iter().chain([("__name__", "process_cpu")]);
        let labels = labels.map(|(name, value)| LabelPair { name: name.to_owned(), value: value.to_owned() });
        let sample =
            RawSample { raw_profile: pprof::gzip(&set.pprof(number)).into(), ..RawSample::default() };
        let series = RawProfileSeries {
            labels: labels.collect(),
            samples: vec![sample],
            ..RawProfileSeries::default()
        };
        server.send(PUSH_PATH, PROTO_TYPE, &PushRequest { series: vec![series] }.encode_to_vec());
    }
    let millis = |nanos: i64| nanos.div_euclid(1_000_000);
    MillisRange { start: millis(now_nanos - span_nanos) - 1, end: millis(now_nanos) + 1_000 }
}

/// Cost of an export, the mean of all.
struct ExportCost {
    cpu_millis: f64,
    peak_mib: f64,
    stream: Vec<u8>,
    rows: usize,
}

/// Exports all samples repeatedly.
fn measure_exports(server: &Server, range: MillisRange, exports: usize) -> ExportCost {
    let export = || {
        let request = SamplesRequest { query: range.query(0), ..SamplesRequest::default() };
        server.send(SAMPLES_PATH, ARROW_STREAM_TYPE, &request.encode_to_vec())
    };
    let before_mib = server.memory_mib("VmRSS");
    server.reset_peak();
    let stream = export();
    let peak_mib = server.memory_mib("VmHWM") - before_mib;
    let before = server.cpu_seconds();
    (0..exports).for_each(|_| assert_eq!(export().len() / 1_000, stream.len() / 1_000));
    let cpu_millis = (server.cpu_seconds() - before) * 1e3 / exports as f64;
    let rows = SampleReader::new(stream.as_slice()).unwrap().map(Result::unwrap).count();
    ExportCost { cpu_millis, peak_mib, stream, rows }
}

/// Returns the processor time of a thread that writes the bytes into a socket, in milliseconds. Another thread reads.
fn measure_floor(bytes: &[u8], rounds: usize) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let reader = thread::spawn(move || {
        let mut stream = BufReader::new(listener.accept().unwrap().0);
        std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
    });
    let mut stream = TcpStream::connect(address).unwrap();
    let cpu_nanos = || {
        let schedule = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        schedule.split(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let before = cpu_nanos();
    (0..rounds).for_each(|_| stream.write_all(bytes).unwrap());
    let spent = cpu_nanos() - before;
    drop(stream);
    assert_eq!(reader.join().unwrap(), (bytes.len() * rounds) as u64);
    spent / rounds as f64 / 1e6
}

/// Measures Functions as Arrow and as JSON in turn. Returns the mean processor time of each in milliseconds.
fn measure_functions(server: &Server, range: MillisRange, rounds: usize) -> [f64; 2] {
    let mut spent = [0.0; 2];
    for number in 0..2 * rounds {
        let page = Some(Page { limit: FUNCTION_ROWS, ..Page::default() });
        let request =
            FunctionsRequest { query: range.query(1 + number), page, ..FunctionsRequest::default() };
        let is_json = number % 2 == 1;
        let before = server.cpu_seconds();
        if is_json {
            server.send(FUNCTIONS_PATH, JSON_TYPE, &serde_json::to_vec(&request).unwrap());
        } else {
            server.send(FUNCTIONS_PATH, ARROW_STREAM_TYPE, &request.encode_to_vec());
        }
        spent[usize::from(is_json)] += server.cpu_seconds() - before;
    }
    spent.map(|seconds| seconds * 1e3 / rounds as f64)
}

fn main() {
    let options = Options::from_args();
    let server = Server::start();
    let range = push_profiles(&server, options.profiles);
    println!("| samples of | rows | CPU, ms | goal | floor, ms | bytes a row | goal | peak, MiB | goal |");
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    for source in ["heads", "blocks"] {
        if source == "blocks" {
            server.flush();
        }
        let ExportCost { cpu_millis, peak_mib, stream, rows } =
            measure_exports(&server, range, options.exports);
        let floor = measure_floor(&stream, options.exports);
        let row_bytes = stream.len() as f64 / rows as f64;
        println!(
            "| {source} | {rows} | {cpu_millis:.0} | {GOAL_MILLIS:.0} | {floor:.1} | {row_bytes:.2} | {GOAL_ROW_BYTES:.0} | \
             {peak_mib:.1} | {GOAL_PEAK_MIB:.0} |"
        );
    }
    // Ticks are coarse, so there are more rounds than exports.
    let [arrow, json] = measure_functions(&server, range, 10 * options.exports);
    println!(
        "Functions: {arrow:.1} ms of CPU as Arrow, {json:.1} ms as JSON: the goal is no more than JSON."
    );
}
