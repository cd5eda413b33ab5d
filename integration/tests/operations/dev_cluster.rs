//! `athanor dev cluster`, as a person at a terminal has it: it tells that all shards are led, takes a profile and finds it,
//! tells who dies, goes on, and Ctrl-C leaves nobody behind.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use athanor_chassis::{Clock, compute};
use athanor_integration::athanor_binary;
use serde_json::Value;
use tempfile::TempDir;

/// So long a test waits for what must come: fifteen processes start.
const PATIENCE: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(50);
/// Two for each of six ingesters.
const SHARDS: usize = 12;
const PROCESSES: usize = 15;

/// The command, while it runs.
struct Local {
    child: Child,
    lines: Receiver<String>,
    /// All that it said so far.
    said: Vec<String>,
    folder: PathBuf,
    clock: Clock,
}

/// The first of ports that are all free now: for clients, for nodes, and, of UDP, for gossip.
fn free_ports() -> u16 {
    let tcp = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let udp = |port: u16| UdpSocket::bind(("127.0.0.1", port)).is_ok();
    let is_free = |first: &u16| {
        let (mut clients, mut nodes) = (*first..first + 20, first + 100..first + 115);
        clients.all(tcp) && nodes.all(tcp) && (first + 200..first + 215).all(udp)
    };
    // Others that look at the same time begin elsewhere. Above are ports that any connection may be given.
    let begin = std::process::id() as u16 % 50;
    let mut tried = (0..50).map(|place| 20_000 + (begin + place) % 50 * 220);
    tried.find(is_free).expect("some of the ports from 20000 on are free")
}

/// Runs a command, which must succeed; gives what it says.
fn athanor(arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } =
        Command::new(athanor_binary()).args(arguments).env_clear().output().unwrap();
    assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

fn signal(signal: &str, process: u32) {
    let told = Command::new("kill").args([signal, &process.to_string()]).status().unwrap();
    assert!(told.success());
}

impl Local {
    fn start(folder: &Path, port: u16) -> Self {
        let mut child = Command::new(athanor_binary())
            .args(["dev", "cluster", "--port", &port.to_string(), "--data"])
            .arg(folder)
            // The tests have variables of their own under the prefix of settings.
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, lines) = mpsc::channel();
        let said = BufReader::new(child.stdout.take().unwrap());
        let reading = move || {
            // Until it says nothing more, or nobody listens.
            let _ = said.lines().map_while(Result::ok).try_for_each(|line| tell.send(line));
        };
        compute::spawn_dedicated_thread("reads what is said", reading).unwrap();
        Self { child, lines, said: Vec::new(), folder: folder.to_owned(), clock: Clock::system() }
    }

    /// Reads on until it has said something.
    fn until(&mut self, what: &str, mut is: impl FnMut(&[String]) -> bool) {
        let begun = self.clock.monotonic();
        while !is(&self.said) {
            let left = PATIENCE.saturating_sub(self.clock.monotonic() - begun);
            match self.lines.recv_timeout(left) {
                Ok(line) => self.said.push(line),
                Err(why) => panic!("not said: {what}: {why}; what was said:\n{}", self.said.join("\n")),
            }
        }
    }

    /// The processes that serve from its folder, by name.
    fn serving(&self) -> BTreeMap<String, u32> {
        let config = |process: u32| {
            // It may have ended meanwhile, or be somebody's of whom nothing is told.
            let line = fs::read_to_string(format!("/proc/{process}/cmdline")).ok()?;
            let (_, config) = line.trim_end_matches('\0').split_once("\0serve\0--config\0")?;
            let folder = Path::new(config).strip_prefix(&self.folder).ok()?.parent()?;
            Some((folder.to_str()?.to_owned(), process))
        };
        let processes = fs::read_dir("/proc").unwrap();
        let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        numbers.filter_map(config).collect()
    }

    /// Ctrl-C; gives how it ended.
    fn interrupt(&mut self) -> ExitStatus {
        signal("-INT", self.child.id());
        self.wait()
    }

    fn wait(&mut self) -> ExitStatus {
        let begun = self.clock.monotonic();
        loop {
            if let Some(how) = self.child.try_wait().unwrap() {
                self.said.extend(self.lines.iter());
                return how;
            }
            assert!(self.clock.monotonic() - begun < PATIENCE, "it does not end");
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // Whoever fails leaves nobody behind either. They may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for process in self.serving().into_values() {
            let _ = Command::new("kill").args(["-KILL", &process.to_string()]).status();
        }
    }
}

/// Shards that have been said to be led, and who was said to lead them last.
fn leaders(said: &[String]) -> BTreeMap<&str, &str> {
    // 12:34:56  shard 7        is led by ingester-1-a
    said.iter()
        .filter_map(|line| line.get(10..)?.split_once(" is led by "))
        .map(|(s, l)| (s.trim(), l))
        .collect()
}

/// One port for clients, one for nodes and one for gossip are taken: the command names them and starts nothing.
fn cluster_with_taken_ports_is_refused(folder: &Path, port: u16) {
    let client = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let node = TcpListener::bind(("127.0.0.1", port + 107)).unwrap();
    let gossip = UdpSocket::bind(("127.0.0.1", port + 203)).unwrap();
    let mut command = Command::new(athanor_binary());
    command.args(["dev", "cluster", "--port", &port.to_string(), "--data"]).arg(folder);
    let Output { status, stdout, stderr } = command.env_clear().output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!((status.code(), stdout.as_slice()), (Some(69), &b""[..]), "{said}");
    for taken in [
        format!("port {port} of distributor-a, for clients"),
        format!("port {} of ingester-2-b, for other nodes", port + 107),
        format!("port {} of distributor-a, for gossip", port + 203),
    ] {
        assert!(said.contains(&taken), "{taken}: {said}");
    }
    assert!(said.contains("--port") && said.lines().count() == 4, "{said}");
    let processes = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().join("log"));
    assert!(!processes.into_iter().any(|log| log.exists()), "nothing is started");
    drop((client, node, gossip));
}

/// Lines at level ERROR in the logs of all processes.
fn error_lines(folder: &Path) -> Vec<String> {
    let logs = fs::read_dir(folder).unwrap().filter_map(|entry| {
        let path = entry.ok()?.path().join("log");
        Some((path.display().to_string(), fs::read_to_string(path).ok()?))
    });
    let of_log = |(name, text): (String, String)| {
        let errors =
            text.lines().filter(|line| line.contains(" ERROR ")).map(|line| format!("{name}: {line}"));
        errors.collect::<Vec<_>>()
    };
    logs.flat_map(of_log).collect()
}

#[test]
fn a_local_cluster_does_all_that_it_says() {
    let folder = TempDir::new().unwrap();
    let port = free_ports();
    cluster_with_taken_ports_is_refused(&folder.path().join("refused"), port);
    // As processes are told it.
    let mut local = Local::start(&folder.path().canonicalize().unwrap().join("cluster"), port);
    local.until("where to push", |said| {
        said.iter().any(|line| line.starts_with("push to ") && line.contains(&format!(":{port}")))
    });
    local.until("all shards are led", |said| leaders(said).len() == SHARDS);
    let serving = local.serving();
    assert_eq!(serving.len(), PROCESSES, "{serving:?}");

    let (door, querier) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{}", port + 1));
    let push = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        athanor(&["push", file.to_str().unwrap(), "--service", "shop", "--url", &door]);
    };
    let total = || {
        let selector = r#"{service_name="shop"}"#;
        let said = athanor(&["query", "top", "--selector", selector, "--url", &querier, "--json"]);
        serde_json::from_str::<Value>(&said).unwrap()["total"].as_i64().unwrap()
    };
    push("first.txt", "main;pay 3\nmain;ship 4\n");
    assert_eq!(total(), 7);
    let errors = error_lines(&local.folder);
    assert!(errors.is_empty(), "nothing has failed:\n{}", errors.join("\n"));

    // One that leads dies: it is told, others take over, and all goes on.
    let victim = leaders(&local.said).into_values().next().unwrap().to_owned();
    let led: BTreeSet<String> = leaders(&local.said)
        .into_iter()
        .filter(|(_, who)| *who == victim)
        .map(|(s, _)| s.to_owned())
        .collect();
    signal("-KILL", serving[&victim]);
    local.until("who died, and who leads instead", |said| {
        let told = |line: &String| line.contains(&victim) && line.contains(" exited: signal: 9 (SIGKILL)");
        let now = leaders(said);
        said.iter().any(told) && led.iter().all(|shard| now[shard.as_str()] != victim)
    });
    push("second.txt", "main;pay 30\n");
    assert_eq!(total(), 37);

    let how = local.interrupt();
    assert!(how.success(), "{how}: {}", local.said.join("\n"));
    assert!(local.said.iter().any(|line| line == "stopping"), "{}", local.said.join("\n"));
    assert_eq!(local.serving(), BTreeMap::new(), "nobody is left behind");
}
