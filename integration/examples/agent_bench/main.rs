//! Measures an agent process: its processor time and memory while it scrapes, the latency of received profiles, and
//! its wake-ups while it is idle.
//!
//! ```text
//!  targets (127.1.x.y, one listener) ◄── agent process ──► sink, which accepts everything
//!  clients ───────────────────────────────────┘
//! ```
//! Run it with `just agent-bench`. Arguments: `--agent PATH`, `--folder PATH`, `--seconds N`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement that stops at the first problem, with threads of its own"
)]

mod http_peers;
mod process_usage;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use athanor_chassis::Clock;
use parking_lot::Mutex;

use http_peers::{read_request, start_server};
use process_usage::ProcessUsage;

/// Plain bytes of a target's profile, which compresses to about 100 kB.
const PROFILE_BYTES: usize = 100_000;
const SCRAPE_INTERVAL: Duration = Duration::from_secs(15);
const PUSHES_PER_SECOND: u32 = 500;
/// Clients that push. Each waits for its response, so there are many more than requests wait at one time.
const PUSH_CLIENTS: u32 = 100;

fn argument(name: &str) -> Option<String> {
    let arguments: Vec<String> = std::env::args().collect();
    let place = arguments.iter().position(|argument| argument == name)?;
    Some(arguments.get(place + 1).unwrap_or_else(|| panic!("{name} needs a value")).clone())
}

/// Agent process of one measurement. Dropping it ends the process.
struct AgentProcess {
    child: Child,
    receive: SocketAddr,
    operator: SocketAddr,
}

impl AgentProcess {
    fn start(binary: &Path, folder: &Path, config: &str) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let file = folder.join("agent.yaml");
        std::fs::write(&file, config).unwrap();
        let log = std::fs::File::create(folder.join("agent.log")).unwrap();
        let mut command = Command::new(binary);
        command.arg("--config").arg(&file).env_clear().env("HOME", folder).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address = |purpose: &str| {
            let line = lines.next().unwrap().unwrap();
            line.strip_prefix(purpose).unwrap_or_else(|| panic!("{line}")).parse().unwrap()
        };
        let operator = address("operator pages on http://");
        let receive = address("receiving profiles on http://");
        Self { child, receive, operator }
    }

    fn usage(&self) -> ProcessUsage {
        ProcessUsage::of(self.child.id())
    }

    /// Returns the value of a metric without labels.
    fn metric(&self, name: &str) -> f64 {
        let mut stream = TcpStream::connect(self.operator).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: agent\r\nconnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no metric {name} in {page}")).trim().parse().unwrap()
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn config(folder: &Path, sink: SocketAddr, jobs: &str) -> String {
    let spool = folder.join("spool");
    format!(
        "servers:\n- name: sink\n  url: http://{sink}\nspool:\n  folder: {}\nreceive:\n  listen_address: 127.0.0.1:0\n\
         operator:\n  listen_address: 127.0.0.1:0\n{jobs}",
        spool.display()
    )
}

/// Returns the job of `count` targets at addresses of their own with one kind.
fn scrape_job(count: u32, port: u16) -> String {
    let mut text = format!(
        "scrape_configs:\n- job_name: bench\n  scrape_interval: {}s\n  profiling_config:\n    pprof_config:\n",
        SCRAPE_INTERVAL.as_secs()
    );
    for kind in ["process_cpu", "goroutine", "mutex", "block"] {
        writeln!(text, "      {kind}: {{enabled: false}}").unwrap();
    }
    text.push_str("  static_configs:\n  - targets:\n");
    for target in 0..count {
        writeln!(text, "    - 127.1.{}.{}:{port}", target / 250, target % 250 + 1).unwrap();
    }
    text
}

/// Scrapes `targets` targets, and prints the load after the first interval.
fn measure_scrapes(binary: &Path, folder: &Path, targets: u32, seconds: u64) {
    let profile = http_peers::pprof_of_bytes(PROFILE_BYTES);
    let served = start_server("0.0.0.0:0", move |_| http_peers::response(&profile));
    let sink = start_server("127.0.0.1:0", |_| http_peers::response(b""));
    let text = config(folder, sink, &scrape_job(targets, served.port()));
    let agent = AgentProcess::start(binary, folder, &text);
    thread::sleep(SCRAPE_INTERVAL + Duration::from_secs(5));
    let before = agent.usage();
    let scrapes_before = agent.metric("athanor_agent_scrapes_total");
    thread::sleep(Duration::from_secs(seconds));
    let after = agent.usage();
    let scrapes = agent.metric("athanor_agent_scrapes_total") - scrapes_before;
    let cores = (after.cpu - before.cpu).as_secs_f64() / seconds as f64;
    println!(
        "scrapes: {targets} targets of {PROFILE_BYTES} bytes every {} s: {cores:.3} cores, {:.1} MB resident, \
         {scrapes} scrapes, {} over 1 s late, {} missed",
        SCRAPE_INTERVAL.as_secs(),
        after.resident_bytes as f64 / 1e6,
        agent.metric("athanor_agent_late_scrapes_total"),
        agent.metric("athanor_agent_missed_scrapes_total"),
    );
}

/// Pushes profiles at a fixed rate, and prints the latencies from the planned time of a request to its response.
fn measure_receiving(binary: &Path, folder: &Path, seconds: u64) {
    let sink = start_server("127.0.0.1:0", |_| http_peers::response(b""));
    let agent = AgentProcess::start(binary, folder, &config(folder, sink, ""));
    let clock = Clock::system();
    let latencies = Mutex::new(Vec::new());
    let next = AtomicU64::new(0);
    let start = clock.monotonic() + Duration::from_millis(100);
    let total = u64::from(PUSHES_PER_SECOND) * seconds;
    thread::scope(|scope| {
        for _ in 0..PUSH_CLIENTS {
            scope.spawn(|| {
                let mut stream = TcpStream::connect(agent.receive).unwrap();
                stream.set_nodelay(true).unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut own = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= total {
                        break;
                    }
                    let planned = start + Duration::from_secs(1) / PUSHES_PER_SECOND * number as u32;
                    thread::sleep(planned.saturating_sub(clock.monotonic()));
                    stream.write_all(&http_peers::folded_push(number)).unwrap();
                    assert!(read_request(&mut reader).unwrap().starts_with("HTTP/1.1 200"));
                    own.push(clock.monotonic().saturating_sub(planned));
                }
                latencies.lock().extend(own);
            });
        }
    });
    let mut latencies = latencies.into_inner();
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!(
        "receiving: {PUSHES_PER_SECOND} requests/s for {seconds} s: p50 {:.1} ms, p99 {:.1} ms, most {:.1} ms",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

/// Prints the wake-ups of an agent that has nothing to do but its own profile.
fn measure_idle(binary: &Path, folder: &Path, seconds: u64, jobs: &str, name: &str) {
    let sink = start_server("127.0.0.1:0", |_| http_peers::response(b""));
    let agent = AgentProcess::start(binary, folder, &config(folder, sink, jobs));
    thread::sleep(Duration::from_secs(5));
    let before = agent.usage();
    thread::sleep(Duration::from_secs(seconds));
    let after = agent.usage();
    println!(
        "idle, {name}: {:.2} wake-ups/s, {:.5} cores, {:.1} MB resident",
        (after.wake_ups - before.wake_ups) as f64 / seconds as f64,
        (after.cpu - before.cpu).as_secs_f64() / seconds as f64,
        after.resident_bytes as f64 / 1e6
    );
}

fn main() {
    let binary =
        PathBuf::from(argument("--agent").unwrap_or_else(|| "target/release/athanor-agent".to_owned()));
    let binary = binary.canonicalize().unwrap();
    let folder =
        argument("--folder").map_or_else(|| std::env::temp_dir().join("athanor-agent-bench"), PathBuf::from);
    let seconds = argument("--seconds").map_or(60, |text| text.parse().unwrap());
    // A spool of an earlier run would be delivered during the measurement.
    let _ = std::fs::remove_dir_all(&folder);
    let size = std::fs::metadata(&binary).unwrap().len();
    println!("binary: {:.1} MB", size as f64 / 1e6);
    measure_idle(&binary, &folder.join("idle"), seconds, "scrape_self: false\n", "no job");
    measure_idle(&binary, &folder.join("self"), seconds, "scrape_self: true\n", "own profile");
    measure_receiving(&binary, &folder.join("receiving"), seconds.min(30));
    measure_scrapes(&binary, &folder.join("scrapes-100"), 100, seconds);
    measure_scrapes(&binary, &folder.join("scrapes-1000"), 1000, seconds);
    std::fs::remove_dir_all(&folder).unwrap();
}
