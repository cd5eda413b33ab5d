//! The processes of a cluster: their settings, their lives.

use std::fmt::Write;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_integration::athanor_binary;
use parking_lot::Mutex;
use serde_json::Value;

use crate::chaos::http::TOKEN;
use crate::chaos::world::{Inside, ZONES, address};

/// What each zone has: roles, and names within a zone.
pub const ROLES: [(&str, &str); 5] = [
    ("metastore", "metastore"),
    ("ingester", "ingester-1"),
    ("ingester", "ingester-2"),
    ("distributor", "distributor"),
    ("querier", "querier"),
];
const PUBLIC: u16 = 4040;
const INTERNAL: u16 = 9095;
const GOSSIP: u16 = 7946;
/// Bytes at the end of a log that are shown where something went wrong.
const TAIL: usize = 3000;

/// One process, in all its lives.
pub struct Process {
    pub name: String,
    pub role: &'static str,
    pub zone: usize,
    /// For clients.
    pub address: SocketAddr,
    namespace: String,
    folder: PathBuf,
    child: Mutex<Option<Child>>,
    /// Bytes of its log when it was started last.
    said: AtomicU64,
}

impl Process {
    /// All processes of a cluster, with their settings in the folder; none of them runs yet.
    pub fn all(inside: &Inside, folder: &Path, node_failure_timeout: Duration) -> Vec<Self> {
        fs::write(folder.join("secret"), "a secret of a cluster that dies often\n").unwrap();
        fs::write(folder.join("admin-token"), TOKEN).unwrap();
        let places = (0..ZONES.len()).flat_map(|zone| (0..ROLES.len()).map(move |place| (zone, place)));
        places.map(|(zone, place)| Self::new(inside, folder, (zone, place), node_failure_timeout)).collect()
    }

    fn new(
        inside: &Inside,
        folder: &Path,
        (zone, place): (usize, usize),
        node_failure_timeout: Duration,
    ) -> Self {
        let (role, name) = ROLES[place];
        let name = format!("{name}-{}", ZONES[zone]);
        let own = folder.join(&name);
        fs::create_dir_all(&own).unwrap();
        let address = address(zone, place);
        let mut text = settings(folder, &own, (&name, role, zone), &address);
        let _ = writeln!(text, "  node_failure_timeout: {}s", node_failure_timeout.as_secs());
        fs::write(own.join("athanor.yaml"), text).unwrap();
        Self {
            name,
            role,
            zone,
            address: format!("{address}:{PUBLIC}").parse().unwrap(),
            namespace: inside.zone(zone),
            folder: own,
            child: Mutex::default(),
            said: AtomicU64::default(),
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn bytes(&self) -> u64 {
        fs::metadata(self.log()).map_or(0, |log| log.len())
    }

    /// Whether it has said nothing since it was started: it may not know yet what it is asked.
    pub fn is_silent(&self) -> bool {
        self.bytes() == self.said.load(Ordering::Relaxed)
    }

    /// Starts it; it is ready when it says so.
    pub fn start(&self) {
        let said = self.bytes();
        let open = || File::options().create(true).append(true).open(self.log()).unwrap();
        // `ip netns exec` becomes the command, so that the child is the server itself.
        let child = Command::new("ip")
            .args(["netns", "exec", &self.namespace])
            .arg(athanor_binary())
            .args(["serve", "--config"])
            .arg(self.folder.join("athanor.yaml"))
            // The tests have variables of their own under the prefix of settings.
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(open())
            .stderr(open())
            .spawn()
            .unwrap();
        self.said.store(said, Ordering::Relaxed);
        assert!(self.child.lock().replace(child).is_none(), "{} runs already", self.name);
    }

    /// SIGKILL.
    pub fn kill(&self) {
        let mut child = self.taken();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Has it stand still: whatever it is about to do, it does when it goes on.
    pub fn stand_still(&self) {
        self.signal("-STOP");
    }

    /// It goes on, at another time than it may think.
    pub fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        self.check();
        let id = self.child.lock().as_ref().unwrap().id();
        let told = Command::new("kill").args([signal, &id.to_string()]).status().unwrap();
        assert!(told.success(), "{} was not told {signal}", self.name);
    }

    /// SIGTERM; gives how it ended.
    pub fn stop(&self) -> ExitStatus {
        let mut child = self.taken();
        let asked = Command::new("kill").arg(child.id().to_string()).status().unwrap();
        assert!(asked.success());
        child.wait().unwrap()
    }

    /// What runs, as long as it still does.
    fn taken(&self) -> Child {
        self.check();
        self.child.lock().take().unwrap_or_else(|| panic!("{} does not run", self.name))
    }

    /// Fails where it has ended by itself.
    pub fn check(&self) {
        let ended = self.child.lock().as_mut().and_then(|child| child.try_wait().unwrap());
        if let Some(how) = ended {
            panic!("{} ended by itself, {how}:\n{}", self.name, self.tail());
        }
    }

    /// The end of its log.
    pub fn tail(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(TAIL)..]).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = self.child.get_mut() {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn settings(folder: &Path, own: &Path, (name, role, zone): (&str, &str, usize), here: &str) -> String {
    // Blocks belong to queriers, so that those who read them die, too.
    let target = if role == "querier" { "querier,store-gateway" } else { role };
    let quoted = |path: PathBuf| Value::from(path.display().to_string()).to_string();
    let seeds: Vec<String> =
        (0..ZONES.len()).map(|zone| format!("\"{}:{GOSSIP}\"", address(zone, 0))).collect();
    let mut text = String::new();
    // Writing to a string does not fail. Cuts run all the time, so that deaths fall between their steps.
    let _ = write!(
        text,
        "target: {target}\nhttp_listen_address: \"{here}:{PUBLIC}\"\nadmin_token_file: {token}\ndata_dir: {data}\nshutdown_delay: 0s\n\
         wal:\n  segment_bytes: 16MiB\n  preallocated_segments: 1\n  min_free_bytes: 0MiB\nstorage:\n  local: {bucket}\n\
         ingester:\n  flush:\n    max_head_age: 3s\ntelemetry:\n  level: info\ncluster:\n  \
         id: \"5f0c6e1d9a7b4c3e8f2a1b0c9d8e7f60\"\n  node_name: {name}\n  availability_zone: {zone}\n  secret_file: {secret}\n  \
         internal_listen_address: \"{here}:{INTERNAL}\"\n  gossip_listen_address: \"{here}:{GOSSIP}\"\n  seed_nodes: [{seeds}]\n",
        token = quoted(folder.join("admin-token")),
        data = quoted(own.join("data")),
        zone = ZONES[zone],
        secret = quoted(folder.join("secret")),
        seeds = seeds.join(", "),
        bucket = quoted(folder.join("bucket")),
    );
    text
}
