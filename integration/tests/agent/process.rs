//! `athanor-agent` as a process of its own, which a test may kill.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use athanor_chassis::Clock;
use athanor_integration::agent_binary;
use athanor_integration::server::{RESPONSE_DEADLINE, send_request, try_send_request};

/// Beginning of the line with the address of the port for pushed profiles.
const RECEIVE_LINE: &str = "receiving profiles on http://";
/// Beginning of the line with the address of the operator interface.
const OPERATOR_LINE: &str = "operator pages on http://";
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Mounts a disk in memory at the spool with the size of its first argument, and becomes the program of the others.
const MOUNT_SCRIPT: &str = r#"mount -t tmpfs -o size="$0" tmpfs spool && exec "$@""#;

/// Checks whether this process may mount a disk that only an agent sees.
///
/// # Errors
/// The process may not create namespaces, or `unshare` is missing.
pub fn check_mounts() -> Result<(), String> {
    let arguments = ["--mount", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/tmp"];
    let output = Command::new("unshare").args(arguments).output();
    let output = output.map_err(|error| format!("unshare: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Agent process with a folder for its configuration, spool and output. Dropping it kills the process.
pub struct AgentProcess {
    child: Child,
    setup: AgentSetup,
    lives: usize,
}

/// Setup of an agent process, equal for each of its lives.
#[derive(Clone, Default)]
pub struct AgentSetup {
    /// Folder for configuration, spool and output.
    pub folder: PathBuf,
    /// Text of the configuration.
    pub config: String,
    /// Environment. The process inherits none.
    pub variables: Vec<(String, String)>,
    /// Network namespace of the process.
    pub namespace: Option<String>,
    /// Size of a disk in memory for the spool, such as `6m`. It ends with the process. Without a network namespace only.
    pub spool_disk: Option<String>,
}

/// Returns a configuration with a port for pushes and one for operators, a spool in the folder of the
/// configuration, and one server. `sections` follow it.
pub fn config_text(server: SocketAddr, listen_ip: Ipv4Addr, sections: &str) -> String {
    // A sampled host has profiles of whatever runs beside the test.
    let sampler = if sections.contains("sampler:") { "" } else { "sampler:\n  enabled: false\n" };
    format!(
        "servers:
- name: server
  url: http://{server}
spool:
  folder: spool
  max_bytes: 16MiB
  min_free: 0%
receive:
  listen_address: {listen_ip}:0
operator:
  listen_address: {listen_ip}:0
{sampler}{sections}"
    )
}

impl AgentProcess {
    /// Starts an agent.
    pub fn start(setup: AgentSetup) -> Self {
        fs::create_dir_all(&setup.folder).unwrap();
        fs::write(setup.folder.join("agent.yaml"), &setup.config).unwrap();
        let child = setup.spawn(0);
        Self { child, setup, lives: 1 }
    }

    /// Kills the process with SIGKILL and starts another one on the same spool.
    pub fn restart(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "the agent ended by itself, {ended:?}:\n{}", self.log_text());
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = self.setup.spawn(self.lives);
        self.lives += 1;
    }

    /// Returns the address of the port for pushed profiles, as soon as the process prints it.
    pub fn receive_address(&mut self) -> SocketAddr {
        self.printed_address(RECEIVE_LINE)
    }

    /// Returns the address of the operator interface, as soon as the process prints it.
    pub fn operator_address(&mut self) -> SocketAddr {
        self.printed_address(OPERATOR_LINE)
    }

    /// Returns the sum of a metric over its labels.
    pub fn metric(&mut self, name: &str) -> f64 {
        let page = send_request(self.operator_address(), "GET /metrics", &[], b"");
        assert_eq!(page.status, 200, "{}", page.text());
        let samples = page
            .text()
            .lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
        let values: Vec<f64> = samples
            .filter_map(|line| line.rsplit_once(' ').and_then(|(_, value)| value.parse().ok()))
            .collect();
        assert!(!values.is_empty(), "no {name} in {}", page.text());
        values.iter().sum()
    }

    fn printed_address(&mut self, line_start: &str) -> SocketAddr {
        let clock = Clock::system();
        let begun = clock.monotonic();
        loop {
            let printed = fs::read_to_string(self.setup.output_file(self.lives - 1)).unwrap();
            let lines = printed.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            if let Some(address) = lines.filter_map(|line| line.strip_prefix(line_start)).next() {
                return address.trim_end().parse().unwrap();
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the agent ended by itself, {status}:\n{}", self.log_text());
            }
            let waited = clock.monotonic() - begun;
            assert!(waited < RESPONSE_DEADLINE, "the agent does not start:\n{}", self.log_text());
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns all log lines since the last start.
    pub fn log_text(&self) -> String {
        fs::read_to_string(self.setup.log_file(self.lives - 1)).unwrap()
    }

    /// Prints log and metrics of the agent, as far as it responds.
    fn print_state(&self) {
        println!("log of the agent:\n{}", self.log_text());
        let printed = fs::read_to_string(self.setup.output_file(self.lives - 1)).unwrap_or_default();
        let address = printed.lines().find_map(|line| line.strip_prefix(OPERATOR_LINE));
        let Some(address) = address.and_then(|address| address.parse().ok()) else { return };
        let Ok(page) = try_send_request(address, "GET /metrics", &[], b"") else { return };
        let page = String::from_utf8_lossy(&page.body).into_owned();
        let is_used =
            |line: &&str| !line.starts_with('#') && !line.ends_with(" 0") && !line.contains("_bucket{");
        println!("metrics of the agent:\n{}", page.lines().filter(is_used).collect::<Vec<_>>().join("\n"));
    }

    /// Sends SIGTERM and waits for an orderly exit.
    pub fn stop(mut self) {
        let process = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &process]).status();
        assert!(sent.is_ok_and(|status| status.success()), "SIGTERM is sent");
        assert!(self.child.wait().unwrap().success(), "{}", self.log_text());
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        if thread::panicking() {
            self.print_state();
        }
        // If the process has already exited, the signal has no target.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl AgentSetup {
    fn spawn(&self, life: usize) -> Child {
        let agent = agent_binary();
        // `ip netns exec` and the shell become the agent, so the child is the agent itself.
        let mut command = match (&self.namespace, &self.spool_disk) {
            (None, None) => Command::new(&agent),
            (Some(namespace), _) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(&agent);
                command
            }
            (None, Some(size)) => {
                fs::create_dir_all(self.folder.join("spool")).unwrap();
                let mut command = Command::new("unshare");
                command.args(["--mount", "sh", "-c", MOUNT_SCRIPT, size]).arg(&agent);
                command
            }
        };
        command
            .arg("--config")
            .arg(self.folder.join("agent.yaml"))
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(File::create(self.output_file(life)).unwrap())
            .stderr(File::create(self.log_file(life)).unwrap())
            .spawn()
            .expect("the agent starts")
    }

    fn output_file(&self, life: usize) -> PathBuf {
        self.folder.join(format!("agent-{life}.out"))
    }

    fn log_file(&self, life: usize) -> PathBuf {
        self.folder.join(format!("agent-{life}.log"))
    }
}
