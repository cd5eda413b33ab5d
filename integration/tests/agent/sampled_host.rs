//! Sampled host: the agent samples a program in the kernel, and the server has its stacks. An agent that is killed while
//! the server is away loses and doubles no sample.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use athanor_chassis::Clock;
use athanor_integration::report_skipped;
use tempfile::TempDir;

use crate::process::{AgentProcess, AgentSetup, config_text};
use crate::proxy::{NetworkFault, Proxy};
use crate::server::{CPU_TYPE, query_stacks, start_server};

const PROGRAM: &str = "
volatile unsigned long sum;
__attribute__((noinline)) void known_busy_leaf(unsigned long turns) { while (turns--) sum += turns; }
__attribute__((noinline)) int known_busy_caller(void) { for (;;) known_busy_leaf(1000000); return 0; }
int main(void) { return known_busy_caller(); }
";
const SAMPLES_TYPE: &str = "process_cpu:samples:count:cpu:nanoseconds";
const SELECTOR: &str = "{service_name=\"known-program\"}";
const STORED_METRIC: &str = "athanor_agent_sampler_samples_stored_total";
const RUNNING_METRIC: &str = "athanor_agent_sampler_running";
/// Capabilities BPF, PERFMON and SYS_PTRACE.
const CAPABILITY_BITS: [u32; 3] = [39, 38, 19];
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const DEADLINE: Duration = Duration::from_secs(120);

/// Program that burns CPU time until it is dropped.
struct BusyProgram(Child);

impl BusyProgram {
    fn start(folder: &Path) -> Self {
        let source = folder.join("known_program.c");
        fs::write(&source, PROGRAM).unwrap();
        let program = folder.join("known-program");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-o"]);
        assert!(compiler.arg(&program).arg(&source).status().unwrap().success(), "cc compiles the program");
        Self(Command::new(program).stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for BusyProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a value is there.
fn wait_for<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let clock = Clock::system();
    let deadline = clock.monotonic() + DEADLINE;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(clock.monotonic() < deadline, "no {what} within {DEADLINE:?}");
        thread::sleep(POLL_INTERVAL);
    }
}

fn can_sample() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let has_all = CAPABILITY_BITS.iter().all(|bit| bits & 1 << bit != 0);
    if !has_all {
        report_skipped("no privileges to sample a host", &format!("CapEff is {bits:#x}"));
    }
    has_all
}

#[test]
fn sampled_stacks_reach_the_server_exactly_once() {
    if !can_sample() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let ip = Ipv4Addr::LOCALHOST;
    let mut server = start_server(folder.path(), IpAddr::V4(ip), 0);
    let server_address = server.address();
    let proxy = Proxy::start(server_address, ip);
    let kill_switch = folder.path().join("stop");
    let sections = format!(
        "sampler:
  enabled: true
  window_interval: 2s
  frequency_hz: 99
  max_cpu_percent: 50
  kill_switch_file: {}
  relabel_configs:
  - {{source_labels: [__meta_process_executable_name], regex: known-program, action: keep}}
  - {{target_label: service_name, replacement: known-program}}
",
        kill_switch.display()
    );
    let config = config_text(proxy.address(), ip, &sections);
    let mut agent = AgentProcess::start(AgentSetup {
        folder: folder.path().join("agent"),
        config,
        ..AgentSetup::default()
    });
    let _program = BusyProgram::start(folder.path());

    wait_for("complete known stack", || {
        let stacks = query_stacks(server_address, "", CPU_TYPE, SELECTOR);
        let is_known = |stack: &String| {
            stack.starts_with("_start;") && stack.ends_with("main;known_busy_caller;known_busy_leaf")
        };
        stacks.into_keys().find(is_known)
    });

    // Windows that nobody takes stay in the spool of an agent that is killed.
    proxy.set_fault(NetworkFault::Partition);
    let before = agent.metric(STORED_METRIC);
    wait_for("more samples", || (agent.metric(STORED_METRIC) > before + 200.0).then_some(()));
    fs::write(&kill_switch, "").unwrap();
    wait_for("stop of the sampler", || (agent.metric(RUNNING_METRIC) == 0.0).then_some(()));
    let stored = agent.metric(STORED_METRIC);
    agent.restart();
    proxy.set_fault(NetworkFault::None);

    let total = || query_stacks(server_address, "", SAMPLES_TYPE, SELECTOR).into_values().sum::<i64>();
    wait_for("all samples", || (total() as f64 >= stored).then_some(()));
    assert_eq!(total() as f64, stored, "samples that were stored, delivered once");
}
