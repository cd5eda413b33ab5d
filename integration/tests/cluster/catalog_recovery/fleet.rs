//! Processes on this machine that are a cluster.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use athanor_chassis::Clock;
use athanor_integration::athanor_binary;
use serde_json::Value;
use tempfile::TempDir;

/// So long a test waits for a state that must come.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between looks.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes at the end of a log that are shown where something went wrong.
const TAIL: usize = 3000;

/// The processes and what they share.
pub struct Fleet {
    nodes: BTreeMap<String, Node>,
    clock: Clock,
    folder: TempDir,
}

struct Node {
    folder: PathBuf,
    address: String,
    child: Option<Child>,
}

/// What a query came back with.
pub struct Answered {
    /// What is missing, in words.
    pub partial: Option<String>,
    pub value: Value,
}

/// Ports that nobody has now.
struct Ports {
    public: u16,
    internal: u16,
    gossip: u16,
}

impl Ports {
    /// Draws some for as many nodes; all are held until all are known.
    fn draw(count: usize) -> Vec<Self> {
        let tcp = || TcpListener::bind("127.0.0.1:0").unwrap();
        let held: Vec<_> =
            (0..count).map(|_| (tcp(), tcp(), UdpSocket::bind("127.0.0.1:0").unwrap())).collect();
        let port = |socket: &TcpListener| socket.local_addr().unwrap().port();
        let ports = held.iter().map(|(public, internal, gossip)| Self {
            public: port(public),
            internal: port(internal),
            gossip: gossip.local_addr().unwrap().port(),
        });
        ports.collect()
    }
}

impl Fleet {
    /// Writes the settings of all; none of them runs yet.
    pub fn plan(metastores: &[&str], ingesters: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("secret"), "a secret of a cluster that is rebuilt\n").unwrap();
        let ports = Ports::draw(metastores.len() + ingesters.len());
        let seeds: Vec<u16> = ports[..metastores.len()].iter().map(|ports| ports.gossip).collect();
        let metastores = metastores.iter().map(|name| (*name, "metastore"));
        let ingesters = ingesters.iter().map(|name| (*name, "ingester,distributor,querier"));
        let mut nodes = BTreeMap::new();
        for ((name, target), ports) in metastores.chain(ingesters).zip(&ports) {
            let own = folder.path().join(name);
            fs::create_dir(&own).unwrap();
            let text = settings(folder.path(), &own, (name, target), ports, &seeds);
            fs::write(own.join("athanor.yaml"), text).unwrap();
            let address = format!("127.0.0.1:{}", ports.public);
            nodes.insert(name.to_owned(), Node { folder: own, address, child: None });
        }
        Self { nodes, clock: Clock::system(), folder }
    }

    pub fn bucket(&self) -> PathBuf {
        self.folder.path().join("bucket")
    }

    pub fn data(&self, name: &str) -> String {
        self.nodes[name].folder.join("data").display().to_string()
    }

    pub fn config(&self, name: &str) -> String {
        self.nodes[name].folder.join("athanor.yaml").display().to_string()
    }

    /// Seconds.
    pub fn now(&self) -> u64 {
        u64::try_from(self.clock.wall().millis() / 1000).unwrap()
    }

    pub fn start(&mut self, names: &[&str]) {
        for name in names {
            let node = self.nodes.get_mut(*name).unwrap();
            let open = || File::options().create(true).append(true).open(node.folder.join("log")).unwrap();
            let child = Command::new(athanor_binary())
                .args(["serve", "--config"])
                .arg(node.folder.join("athanor.yaml"))
                // The tests have variables of their own under the prefix of settings.
                .env_clear()
                .stdin(Stdio::null())
                .stdout(open())
                .stderr(open())
                .spawn();
            node.child = Some(child.unwrap());
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self, names: &[&str]) {
        for name in names {
            let mut child = self.nodes.get_mut(*name).unwrap().child.take().unwrap();
            assert!(child.try_wait().unwrap().is_none(), "{name} ended by itself:\n{}", self.tails());
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// The disks are lost.
    pub fn wipe(&self, names: &[&str]) {
        for name in names {
            fs::remove_dir_all(self.nodes[*name].folder.join("data")).unwrap();
        }
    }

    /// Runs a command that must succeed; gives what it says.
    pub fn command(&self, arguments: &[&str]) -> String {
        let output = Command::new(athanor_binary()).args(arguments).env_clear().output().unwrap();
        let (said, complaint) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {complaint}\n{}", self.tails());
        said.into_owned()
    }

    /// Waits for a state.
    pub fn until(&self, what: &str, mut is: impl FnMut(&Self) -> bool) {
        let begun = self.clock.monotonic();
        while !is(self) {
            assert!(self.clock.monotonic() - begun < PATIENCE, "not so: {what}\n{}", self.tails());
            thread::sleep(LOOK);
        }
    }

    /// Slot and epoch of the shards that take profiles, where all that serve are led.
    pub fn serving(&self) -> Vec<(u64, u64)> {
        let some = self.nodes.values().rfind(|node| node.child.is_some()).unwrap();
        let mut asked = self.nodes.iter().filter(|(name, _)| name.starts_with("ingester"));
        if !asked.all(|(_, node)| is_ready(node)) {
            return Vec::new();
        }
        let shards = get(some, "/shards.json").and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let shards = shards.unwrap_or_default();
        let serve =
            shards["shards"].as_array().into_iter().flatten().filter(|shard| shard["serving"] == true);
        let is_led = |shard: &&Value| shard["phase"] == "open" && shard["leader"]["node"].is_string();
        let numbers = |shard: &Value| (shard["slot"].as_u64().unwrap(), shard["epoch"].as_u64().unwrap());
        let mut found: Vec<(u64, u64)> = serve.filter(is_led).map(numbers).collect();
        found.sort_unstable();
        found
    }

    /// Sends a profile until it is acknowledged.
    pub fn push(&self, door: &str, path: &str, body: &str) {
        self.until(path, |fleet| {
            let sent = send(&fleet.nodes[door].address, &format!("POST {path}"), "text/plain", body);
            sent.is_ok_and(|(head, _)| is_ok(&head))
        });
    }

    /// Asks until there is an answer.
    pub fn ask(&self, node: &str, path: &str, body: &str) -> Answered {
        let mut answered = None;
        self.until(path, |fleet| {
            let asked = send(&fleet.nodes[node].address, &format!("POST {path}"), "application/json", body);
            answered = asked.ok().filter(|(head, _)| is_ok(head));
            answered.is_some()
        });
        let (head, body) = answered.unwrap();
        let partial = head.lines().find_map(|line| line.strip_prefix("athanor-warnings: "));
        Answered { partial: partial.map(str::to_owned), value: serde_json::from_str(&body).unwrap() }
    }

    /// The ends of all logs.
    fn tails(&self) -> String {
        let tail = |(name, node): (&String, &Node)| {
            let log = fs::read(node.folder.join("log")).unwrap_or_default();
            format!("== {name}\n{}\n", String::from_utf8_lossy(&log[log.len().saturating_sub(TAIL)..]))
        };
        self.nodes.iter().map(tail).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn settings(
    folder: &Path,
    own: &Path,
    (name, target): (&str, &str),
    Ports { public, internal, gossip }: &Ports,
    seeds: &[u16],
) -> String {
    let quoted = |path: PathBuf| Value::from(path.display().to_string()).to_string();
    let seeds: Vec<String> = seeds.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
    // Nothing is cut but by command.
    format!(
        "target: {target}\nhttp_listen_address: \"127.0.0.1:{public}\"\ndata_dir: {data}\nshutdown_delay: 0s\n\
         wal:\n  segment_bytes: 1MiB\n  preallocated_segments: 1\n  min_free_bytes: 0MiB\nstorage:\n  local: {bucket}\n\
         ingester:\n  flush:\n    max_head_age: 1h\ncluster:\n  id: \"5f0c6e1d9a7b4c3e8f2a1b0c9d8e7f60\"\n  node_name: {name}\n  \
         availability_zone: {name}\n  initial_slots: 2\n  secret_file: {secret}\n  internal_listen_address: \"127.0.0.1:{internal}\"\n  \
         gossip_listen_address: \"127.0.0.1:{gossip}\"\n  seed_nodes: [{seeds}]\n",
        data = quoted(own.join("data")),
        bucket = quoted(folder.join("bucket")),
        secret = quoted(folder.join("secret")),
        seeds = seeds.join(", "),
    )
}

fn is_ready(node: &Node) -> bool {
    get(node, "/ready").is_some()
}

fn is_ok(head: &str) -> bool {
    head.starts_with("http/1.1 200")
}

fn get(node: &Node, path: &str) -> Option<String> {
    let answered = send(&node.address, &format!("GET {path}"), "text/plain", "").ok();
    answered.filter(|(head, _)| is_ok(head)).map(|(_, body)| body)
}

/// Sends one request on a connection of its own; gives the head in small letters, and the body.
fn send(address: &str, begin: &str, kind: &str, body: &str) -> io::Result<(String, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    let request = format!(
        "{begin} HTTP/1.1\r\nhost: {address}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let cut_short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(cut_short)?;
    Ok((head.to_ascii_lowercase(), body.to_owned()))
}
