//! Capabilities of a running agent, and sampling with three capabilities as another user.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::busy_program::{
    BusyProgram, RunningProgram, SAMPLER_CAPABILITIES, can_sample, capability_set, perf_event_paranoid,
};

/// Start of the last line that an agent prints when it starts.
const RECEIVE_LINE: &str = "receiving profiles on http://";
/// Highest `kernel.perf_event_paranoid` of kernels without changes of distributions. Above, some ask for CAP_SYS_ADMIN.
const MAX_UPSTREAM_PARANOIA: i32 = 2;

/// Starts an agent that samples. Returns it as soon as it runs.
fn start_agent(folder: &Path, sampler: &str) -> RunningProgram {
    let config = format!(
        "servers: [{{name: server, url: 'http://127.0.0.1:1'}}]
spool: {{folder: spool, max_bytes: 16MiB, min_free: 0%}}
receive: {{listen_address: '127.0.0.1:0'}}
operator: {{listen_address: '127.0.0.1:0'}}
sampler: {{enabled: true{sampler}}}
"
    );
    let file = folder.join("agent.yaml");
    fs::write(&file, config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_athanor-agent"));
    command.arg("--config").arg(&file).env_clear().current_dir(folder).stdin(Stdio::null());
    let mut agent = RunningProgram(command.stdout(Stdio::piped()).spawn().unwrap());
    // Both addresses are printed, so the agent needs the pipe until the second line.
    let lines = BufReader::new(agent.0.stdout.take().unwrap()).lines();
    let is_running = lines.map_while(Result::ok).any(|line| line.starts_with(RECEIVE_LINE));
    assert!(is_running, "the agent ended: {:?}", agent.0.wait());
    agent
}

#[test]
fn threads_of_a_running_agent_have_the_allowed_capabilities_only() {
    if !can_sample() {
        return;
    }
    let syslog = 1 << 34;
    let held = capability_set("/proc/self/status", "CapEff");
    let with_syslog = SAMPLER_CAPABILITIES | syslog & held;
    let cases = [("", SAMPLER_CAPABILITIES), (", extra_capabilities: [SYSLOG]", with_syslog)];
    for (setting, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let agent = start_agent(folder.path(), setting);
        let threads: Vec<_> = fs::read_dir(format!("/proc/{}/task", agent.0.id())).unwrap().collect();
        assert!(threads.len() > 1, "{threads:?}");
        for thread in threads {
            let status = thread.unwrap().path().join("status");
            let sets = ["CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"];
            let found = sets.map(|set| capability_set(&status, set));
            assert_eq!(found, [expected, expected, expected, 0, 0], "{setting}: {}", status.display());
        }
    }
}

#[test]
fn another_user_with_three_capabilities_has_names_and_callers_of_foreign_processes() {
    if !can_sample() {
        return;
    }
    if perf_event_paranoid() > MAX_UPSTREAM_PARANOIA {
        println!("skip: kernel.perf_event_paranoid is over {MAX_UPSTREAM_PARANOIA}");
        return;
    }
    let program = BusyProgram::compile();
    let known = program.start("known");
    // The folder of the binary may be closed to other users.
    let binary = program.folder.path().join("agent");
    fs::copy(env!("CARGO_BIN_EXE_athanor-agent"), &binary).unwrap();
    fs::set_permissions(&binary, Permissions::from_mode(0o755)).unwrap();
    let output = program.folder.path().join("out");
    fs::create_dir(&output).unwrap();
    fs::set_permissions(&output, Permissions::from_mode(0o777)).unwrap();
    let file = output.join("process.folded");
    let kept = "-all,+bpf,+perfmon,+sys_ptrace";
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args([format!("--inh-caps={kept}"), format!("--ambient-caps={kept}")]);
    command.arg(&binary).args(["record", "--for", "3s", "--pid", &known.0.id().to_string(), "-o"]).arg(&file);
    let recorded = command.output().unwrap();
    assert!(recorded.status.success(), "{recorded:?}");
    let folded = fs::read_to_string(&file).unwrap();
    let is_whole = |line: &str| {
        !line.contains("[incomplete") && line.contains(";main;known_busy_caller;known_busy_leaf ")
    };
    assert!(folded.lines().any(is_whole), "{folded}");
}

#[test]
fn check_of_the_host_tells_whether_perf_events_are_restricted() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_athanor-agent")).args(["check", "--host"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let is_restricted = perf_event_paranoid() > MAX_UPSTREAM_PARANOIA;
    assert_eq!(text.contains("limited: perf_event_paranoid is"), is_restricted && can_sample(), "{text}");
}
