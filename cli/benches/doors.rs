//! How much text, recordings and exports a server takes to its synced log, by the processor time of its whole process,
//! beside a floor: hashing the bytes once, and finding the lines of text.
//!
//! `cargo bench -p athanor-cli --bench doors`. One client sends a body at a time and waits for the acknowledgement, which
//! comes when the log is synced; each body is new to the server. Real recordings are used where they lie beside the project.
//! `-- --only OTLP` measures the doors whose names begin so.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a bench measures time")]

use std::fmt::Write as _;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use athanor_chassis::Random;
use athanor_profile::ValueType;
use athanor_profile::formats::otlp::encode;
use athanor_profile::formats::pprof::{DecodeLimits, decode, inflate};
use athanor_profile::generate::ReferenceDataset;

const BODIES: u64 = 30;
const EXPORTS: usize = 720;
/// Bytes of a recording: what is sent has its chunks again and again.
const RECORDING: usize = 20 << 20;
const STACKS: usize = 16_000;
const FUNCTIONS: u64 = 4_000;
/// In a second, as Linux counts for programs, whatever its own clock does.
const TICKS: f64 = 100.0;

/// What comes through one door.
struct Door {
    name: String,
    content_type: &'static str,
    bodies: Vec<Vec<u8>>,
    /// The path and query of a body, which begins then.
    path: fn(u64) -> String,
    floor: fn(&[u8]),
}

impl Door {
    fn folded() -> Self {
        let floor = |body: &[u8]| {
            black_box((memchr::memchr_iter(b'\n', body).count(), xxhash_rust::xxh3::xxh3_64(body)));
        };
        let path = |from| format!("/ingest?name=bench&from={from}&until={}", from + 10);
        let bodies = (0..=BODIES).map(|number| text(number).into_bytes()).collect();
        Self { name: "folded".to_owned(), content_type: "text/plain", bodies, path, floor }
    }

    fn recordings() -> Vec<Self> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/jfr");
        let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        let path = |from| format!("/ingest?name=bench&format=jfr&from={from}&until={}", from + 10);
        let mut doors = Vec::new();
        for file in entries {
            let raw = inflate(&fs::read(&file).unwrap(), 1 << 30).unwrap();
            if raw.starts_with(b"FLR\0") {
                let name = format!("JFR: {}", file.file_name().unwrap().to_string_lossy());
                let body = raw.repeat((RECORDING / raw.len()).max(1));
                let bodies = vec![body; BODIES as usize + 1];
                doors.push(Self {
                    name,
                    content_type: "application/octet-stream",
                    bodies,
                    path,
                    floor: hash,
                });
            }
        }
        doors
    }

    /// The reference profiles, each as one export.
    fn exports() -> Self {
        let request = |raw: Vec<u8>| {
            let mut profile = decode(&raw, &DecodeLimits::default()).unwrap().0;
            let period = ValueType { kind: "cpu".into(), unit: "count".into() };
            profile.header.period_type.get_or_insert(period);
            encode(&profile, &[("service.name", "shop")])
        };
        Self {
            name: "OTLP: R".to_owned(),
            content_type: "application/x-protobuf",
            bodies: ReferenceDataset::new(ReferenceDataset::PUBLISHED_SEED)
                .profiles(EXPORTS)
                .map(request)
                .collect(),
            path: |_| "/v1development/profiles".to_owned(),
            floor: hash,
        }
    }

    fn measure(&self) {
        let (first, bodies) = self.bodies.split_first().unwrap();
        let megabytes = bodies.iter().map(Vec::len).sum::<usize>() as f64 / 1e6;
        let begun = Instant::now();
        bodies.iter().for_each(|body| (self.floor)(body));
        let floor = megabytes / begun.elapsed().as_secs_f64();

        let mut server = Server::start();
        let address = server.address();
        let mut connection = BufReader::new(TcpStream::connect(address).unwrap());
        let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() - 600;
        let path = |number| {
            format!("POST {} HTTP/1.1\r\ncontent-type: {}", (self.path)(start + number), self.content_type)
        };
        // Names and threads are there before it counts.
        send(&mut connection, &path(0), first);
        let (spent, begun) = (server.spent(), Instant::now());
        for (number, body) in (1..).zip(bodies) {
            send(&mut connection, &path(number), body);
        }
        let (wall, spent) = (begun.elapsed().as_secs_f64(), server.spent() - spent);
        println!(
            "| {}, {} bodies, {megabytes:.0} MB | {floor:.0} | {:.0} | {:.2} % | {:.0} |",
            self.name,
            bodies.len(),
            megabytes / spent,
            100.0 * megabytes / spent / floor,
            megabytes / wall
        );
    }
}

fn hash(body: &[u8]) {
    black_box(xxhash_rust::xxh3::xxh3_64(body));
}

/// Each stack once, of 12 to 31 frames.
fn text(number: u64) -> String {
    let random = Random::from_seed(1);
    let mut text = String::new();
    for stack in 0..STACKS as u64 {
        for depth in 0..12 + random.next_below(20) {
            let separator = if depth == 0 { "" } else { ";" };
            let function = random.next_below(FUNCTIONS);
            write!(
                text,
                "{separator}github.com/example/service/internal/part{:02}.(*Worker).step{function}",
                function % 100
            )
            .unwrap();
        }
        writeln!(text, " {}", 1 + (stack * 7 + number) % 100).unwrap();
    }
    text
}

/// A server, ended when it is dropped.
struct Server {
    child: Child,
    folder: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_athanor"))
            .args(["serve", "--listen", "127.0.0.1:0", "--set", "telemetry.level=warn"])
            .args(["--set", "limits.reject_older_than=0s", "--data"])
            .arg(folder.path().join("data"))
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.path().join("said")).unwrap())
            .spawn()
            .unwrap();
        Self { child, folder }
    }

    fn address(&mut self) -> String {
        loop {
            let said = fs::read_to_string(self.folder.path().join("said")).unwrap();
            let told = said.lines().find_map(|line| line.strip_prefix("athanor listens on http://"));
            if let Some(address) = told.filter(|_| said.ends_with('\n')) {
                return address.to_owned();
            }
            assert!(self.child.try_wait().unwrap().is_none(), "the server has ended:\n{said}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Seconds of processors, by the process.
    fn spent(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        let ticks = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        ticks / TICKS
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Sends a body and waits until it is acknowledged.
fn send(connection: &mut BufReader<TcpStream>, head: &str, body: &[u8]) {
    let head = format!("{head}\r\nhost: bench\r\ncontent-length: {}\r\n\r\n", body.len());
    connection.get_mut().write_all(head.as_bytes()).unwrap();
    connection.get_mut().write_all(body).unwrap();
    let (mut line, mut length, mut status) = (String::new(), 0, String::new());
    loop {
        line.clear();
        connection.read_line(&mut line).unwrap();
        if status.is_empty() {
            status.clone_from(&line);
        }
        let lower = line.to_ascii_lowercase();
        length = lower.strip_prefix("content-length:").map_or(length, |text| text.trim().parse().unwrap());
        if line == "\r\n" {
            break;
        }
    }
    let mut answer = vec![0; length];
    connection.read_exact(&mut answer).unwrap();
    assert!(status.contains(" 200 "), "{status}{}", String::from_utf8_lossy(&answer));
}

fn main() {
    println!(
        "| what | floor | to the synced log, MB/s a core | of the floor | MB/s by the clock |\n|---|---:|---:|---:|---:|"
    );
    let only = std::env::args().skip_while(|argument| argument != "--only").nth(1).unwrap_or_default();
    let doors = [vec![Door::folded()], Door::recordings(), vec![Door::exports()]].into_iter().flatten();
    doors.filter(|door| door.name.starts_with(&only)).for_each(|door| door.measure());
}
