//! How much folded text a server takes to its synced log, by the processor time of its whole process, beside a floor:
//! finding the lines and hashing the bytes, once.
//!
//! `cargo bench -p athanor-server --bench folded`. One client sends a body at a time by `POST /ingest` and waits for the
//! acknowledgement, which comes when the log is synced. All bodies have the same stacks, with other counts.

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

const BODIES: u64 = 30;
const STACKS: usize = 16_000;
const FUNCTIONS: u64 = 4_000;
/// In a second, as Linux counts for programs, whatever its own clock does.
const TICKS: f64 = 100.0;

/// Each stack once, of 12 to 31 frames.
fn body(number: u64) -> String {
    let random = Random::seeded(1);
    let mut text = String::new();
    for stack in 0..STACKS as u64 {
        for depth in 0..12 + random.below(20) {
            let separator = if depth == 0 { "" } else { ";" };
            let function = random.below(FUNCTIONS);
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
            .args(["serve", "--listen", "127.0.0.1:0", "--set", "telemetry.level=warn", "--data"])
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
            let told = said.lines().find_map(|line| line.strip_prefix("athanor serves at http://"));
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
fn send(connection: &mut BufReader<TcpStream>, number: u64, body: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let from = now - 600 + number;
    let head = format!(
        "POST /ingest?name=bench&from={from}&until={} HTTP/1.1\r\nhost: bench\r\ncontent-length: {}\r\n\r\n",
        from + 10,
        body.len()
    );
    connection.get_mut().write_all(head.as_bytes()).unwrap();
    connection.get_mut().write_all(body.as_bytes()).unwrap();
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
    let bodies: Vec<String> = (0..BODIES).map(body).collect();
    let megabytes = bodies.iter().map(String::len).sum::<usize>() as f64 / 1e6;
    let begun = Instant::now();
    for body in &bodies {
        black_box((
            memchr::memchr_iter(b'\n', body.as_bytes()).count(),
            xxhash_rust::xxh3::xxh3_64(body.as_bytes()),
        ));
    }
    let floor = megabytes / begun.elapsed().as_secs_f64();

    let mut server = Server::start();
    let address = server.address();
    let mut connection = BufReader::new(TcpStream::connect(address).unwrap());
    // Names and threads are there before it counts.
    send(&mut connection, BODIES, &body(BODIES));
    let (spent, begun) = (server.spent(), Instant::now());
    for (number, body) in bodies.iter().enumerate() {
        send(&mut connection, number as u64, body);
    }
    let (wall, spent) = (begun.elapsed().as_secs_f64(), server.spent() - spent);
    println!(
        "| bytes | floor | to the synced log, MB/s a core | of the floor | MB/s by the clock |\n|---|---:|---:|---:|---:|"
    );
    println!(
        "| {BODIES} bodies, {megabytes:.0} MB | {floor:.0} | {:.0} | {:.1} % | {:.0} |",
        megabytes / spent,
        100.0 * megabytes / spent / floor,
        megabytes / wall
    );
}
