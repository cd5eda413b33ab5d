//! Real targets: programs that serve their profiles with the libraries of Go, Node and Python. The agent scrapes them, and
//! the server has all of their kinds.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::thread;
use std::time::Duration;

use athanor_chassis::Clock;
use athanor_integration::report_skipped;
use athanor_integration::sdk_programs::{command, prepare_go, prepare_node, prepare_python, python_command};
use athanor_integration::server::TestServer;
use serde_json::json;
use tempfile::TempDir;

use crate::client_program::ClientProgram;
use crate::process::{AgentProcess, AgentSetup, config_text};
use crate::server::query_stacks;

/// Server of profiles, with versions of packages that it works with.
const PYTHON_PACKAGES: [&str; 3] = ["pypprof==0.0.1", "protobuf==3.20.3", "setuptools<81"];
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const SCRAPE_DEADLINE: Duration = Duration::from_secs(60);
const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";

/// Program that serves its profiles.
struct RealTarget {
    folder: TempDir,
    program: ClientProgram,
    address: SocketAddr,
}

/// Profile that a target must have at the server.
struct ExpectedProfile {
    service: &'static str,
    profile_type: &'static str,
    /// Function of the program on some stack.
    function: &'static str,
}

impl RealTarget {
    /// Prepares and starts a program. None if its language or packages are missing.
    fn start(
        name: &str,
        prepare: impl FnOnce(&Path) -> Result<String, String>,
        command: &[String],
    ) -> Option<Self> {
        let folder = TempDir::new().unwrap();
        if let Err(error) = prepare(folder.path()) {
            report_skipped(&format!("no client of {name}"), &error);
            return None;
        }
        let mut program = ClientProgram::start(command, folder.path());
        let line = program.next_line();
        let address = line.as_ref().and_then(|line| line.parse().ok());
        let address = address.unwrap_or_else(|| {
            let errors = std::fs::read_to_string(folder.path().join("errors.log"));
            panic!("{name} prints no address but {line:?}: {errors:?}")
        });
        Some(Self { folder, program, address })
    }
}

/// Returns a job with an interval of 4 s. `kinds` are the settings of its kinds in YAML; all others are disabled.
fn scrape_job(name: &str, target: SocketAddr, kinds: &[(&str, &str)]) -> String {
    let mut job = format!(
        "- job_name: {name}
  scrape_interval: 4s
  static_configs:
  - {{targets: ['{target}'], labels: {{team: real}}}}
  profiling_config:
    pprof_config:
"
    );
    let defaults = ["process_cpu", "memory", "goroutine", "mutex", "block"];
    let disabled = defaults.iter().filter(|default| kinds.iter().all(|(kind, _)| kind != *default));
    for kind in disabled {
        job.push_str(&format!("      {kind}: {{enabled: false}}\n"));
    }
    for (kind, settings) in kinds {
        job.push_str(&format!("      {kind}: {settings}\n"));
    }
    job
}

/// Waits until the server has a profile of a target, with the labels of the target.
fn wait_for_profile(server: &TestServer, target: SocketAddr, expected: &ExpectedProfile, deadline: Duration) {
    let ExpectedProfile { service, profile_type, function } = expected;
    let selector =
        format!("{{service_name=\"{service}\", job=\"{service}\", instance=\"{target}\", team=\"real\"}}");
    let clock = Clock::system();
    loop {
        let stacks = query_stacks(server.address, "", profile_type, &selector);
        let has_function = |stack: &str| stack.split(';').any(|frame| frame.contains(function));
        let value: i64 = stacks.iter().filter(|(stack, _)| has_function(stack)).map(|(_, value)| value).sum();
        if value > 0 {
            return;
        }
        if clock.monotonic() > deadline {
            let types = json!({ "start": 1, "end": i64::MAX / 1_000_000 - 1 });
            let types = server.call_json("", "querier.v1.QuerierService/ProfileTypes", &types);
            panic!("{profile_type} of {service} has no {function}: {stacks:?}, {types}");
        }
        thread::sleep(POLL_INTERVAL);
    }
}

const GO_JOBS: [(&str, &[(&str, &str)]); 2] = [
    (
        "go-target",
        &[
            ("process_cpu", "{seconds: 1}"),
            ("fgprof", "{seconds: 1}"),
            ("memory", "{}"),
            ("goroutine", "{}"),
            ("mutex", "{}"),
            ("block", "{}"),
        ],
    ),
    // Their series have the names of the cumulative kinds.
    ("go-delta", &[("godeltaprof_memory", "{}"), ("godeltaprof_mutex", "{}"), ("godeltaprof_block", "{}")]),
];
const NODE_KINDS: [(&str, &str); 2] =
    [("process_cpu", "{seconds: 1}"), ("memory", "{path: /debug/pprof/heap}")];
const PYTHON_KINDS: [(&str, &str); 3] = [
    ("process_cpu", "{seconds: 1}"),
    ("goroutine", "{}"),
    ("wall", "{path: /debug/pprof/wall, delta: true, seconds: 1}"),
];

const fn expect(
    service: &'static str,
    profile_type: &'static str,
    function: &'static str,
) -> ExpectedProfile {
    ExpectedProfile { service, profile_type, function }
}

const GO_PROFILES: [ExpectedProfile; 10] = [
    expect("go-target", CPU, "main.knownBusyFunction"),
    expect("go-target", "fgprof:time:nanoseconds:wallclock:nanoseconds", "main.knownWaitingFunction"),
    expect("go-target", "memory:alloc_space:bytes:space:bytes", "main.knownGreedyFunction"),
    expect("go-target", "memory:inuse_space:bytes:space:bytes", "main.knownGreedyFunction"),
    expect("go-target", "goroutine:goroutine:count:goroutine:count", "main.knownWaitingFunction"),
    expect("go-target", "mutex:contentions:count:contentions:count", "main.knownContendedFunction"),
    expect("go-target", "block:delay:nanoseconds:contentions:count", "main.knownContendedFunction"),
    expect("go-delta", "memory:alloc_space:bytes:space:bytes", "main.knownGreedyFunction"),
    expect("go-delta", "mutex:contentions:count:contentions:count", "main.knownContendedFunction"),
    expect("go-delta", "block:delay:nanoseconds:contentions:count", "main.knownContendedFunction"),
];
const NODE_PROFILES: [ExpectedProfile; 2] = [
    expect("node-target", "process_cpu:wall:nanoseconds:wall:nanoseconds", "knownBusyFunction"),
    // The middleware samples allocations only while it responds.
    expect("node-target", "memory:space:bytes:space:bytes", "(external)"),
];
const PYTHON_PROFILES: [ExpectedProfile; 3] = [
    expect("python-target", "process_cpu:CPU:nanoseconds:CPU:nanoseconds", "known_busy_function"),
    expect("python-target", "goroutine:THREADS:count:THREADS:count", "known_busy_function"),
    expect("python-target", "wall:wall:nanoseconds:wall:nanoseconds", "known_busy_function"),
];

/// Prepares and starts all programs at once.
fn start_targets() -> [Option<RealTarget>; 3] {
    thread::scope(|scope| {
        let go = scope.spawn(|| {
            let prepare = |folder: &Path| prepare_go("go-target", &["main.go", "go.mod", "go.sum"], folder);
            RealTarget::start("go-target", prepare, &command(&["./busy"]))
        });
        let node = scope.spawn(|| {
            let prepare =
                |folder: &Path| prepare_node("node-target", &["package.json", "target.mjs"], folder);
            RealTarget::start("node-target", prepare, &command(&["node", "target.mjs"]))
        });
        let python = scope.spawn(|| {
            let prepare = |folder: &Path| prepare_python(folder, &PYTHON_PACKAGES);
            let command = python_command("python-target", "target.py", &[]);
            RealTarget::start("python-target", prepare, &command)
        });
        [go, node, python].map(|target| target.join().unwrap())
    })
}

#[test]
fn profiles_of_real_targets_are_scraped() {
    let [go, node, python] = start_targets();
    let mut jobs = "scrape_configs:\n".to_owned();
    let mut expected = Vec::new();
    if let Some(target) = &go {
        GO_JOBS.iter().for_each(|(job, kinds)| jobs.push_str(&scrape_job(job, target.address, kinds)));
        expected.extend(GO_PROFILES.iter().map(|profile| (target.address, profile)));
    }
    if let Some(target) = &node {
        jobs.push_str(&scrape_job("node-target", target.address, &NODE_KINDS));
        expected.extend(NODE_PROFILES.iter().map(|profile| (target.address, profile)));
    }
    if let Some(target) = &python {
        jobs.push_str(&scrape_job("python-target", target.address, &PYTHON_KINDS));
        expected.extend(PYTHON_PROFILES.iter().map(|profile| (target.address, profile)));
    }
    if expected.is_empty() {
        return;
    }
    let server = TestServer::start(|_| {});
    let folder = TempDir::new().unwrap();
    let config = config_text(server.address, Ipv4Addr::LOCALHOST, &jobs);
    let setup = AgentSetup { folder: folder.path().to_owned(), config, ..AgentSetup::default() };
    let agent = AgentProcess::start(setup);
    let deadline = Clock::system().monotonic() + SCRAPE_DEADLINE;
    for (target, profile) in expected {
        wait_for_profile(&server, target, profile, deadline);
    }
    agent.stop();
    for target in [go, node, python].into_iter().flatten() {
        target.program.finish(target.folder.path());
    }
}
