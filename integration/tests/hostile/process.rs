//! A server as a process, so that its memory is its own.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use athanor_chassis::Clock;
use athanor_integration::binary;
use athanor_integration::server::{PATIENCE, send};
use tempfile::TempDir;

/// A process, killed when it is dropped.
pub struct Served {
    child: Child,
    folder: TempDir,
    address: SocketAddr,
}

impl Served {
    /// Starts one with these limits.
    pub fn start(body: u64, profile: u64) -> Self {
        let folder = TempDir::new().unwrap();
        let said = folder.path().join("said.log");
        let child = Command::new(binary())
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder.path().join("data"))
            .args(["--set", "ingester.shards=1", "--set", "log.reserve=0MiB", "--set", "log.spares=1"])
            .args(["--set", &format!("limits.ingestion_body_limit={body}B")])
            .args(["--set", &format!("limits.max_profile_size_bytes={profile}B")])
            .args(["--set", "limits.max_profile_stacktrace_samples=10000000"])
            .args(["--set", "telemetry.level=warn", "--set", "shutdown_delay=0s"])
            // The tests have variables of their own under the prefix of settings.
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&said).unwrap())
            .spawn()
            .unwrap();
        let mut served = Served { child, folder, address: ([127, 0, 0, 1], 0).into() };
        served.address = served.found();
        served
    }

    /// Where it serves, as soon as it says so.
    fn found(&mut self) -> SocketAddr {
        let clock = Clock::system();
        let begun = clock.monotonic();
        loop {
            let said = self.said();
            let told = said.lines().find_map(|line| line.strip_prefix("athanor serves at http://"));
            if let Some(address) = told.filter(|_| said.ends_with('\n')) {
                return address.parse().unwrap();
            }
            assert!(self.child.try_wait().unwrap().is_none(), "the server ended by itself:\n{said}");
            assert!(clock.monotonic() - begun < PATIENCE, "the server does not start:\n{said}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("said.log")).unwrap()
    }

    fn proc(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.child.id()))
    }

    /// Begins the peak anew, and gives the memory that is held now.
    pub fn begin_peak(&self) -> u64 {
        fs::write(self.proc("clear_refs"), "5").unwrap();
        self.of_status("VmRSS:")
    }

    /// The most memory that was held since.
    pub fn peak(&self) -> u64 {
        self.of_status("VmHWM:")
    }

    fn of_status(&self, name: &str) -> u64 {
        let status = fs::read_to_string(self.proc("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel says it");
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
    }

    /// Status and body of an answer.
    pub fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, String) {
        let answer = send(self.address, &format!("POST {path}"), headers, body);
        (answer.status, String::from_utf8_lossy(&answer.body).chars().take(300).collect())
    }

    /// It never panicked, and ends in order.
    pub fn end(mut self) {
        let asked = Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(asked.success());
        assert!(self.child.wait().unwrap().success(), "{}", self.said());
        assert!(!self.said().contains("panicked"), "{}", self.said());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Where it has ended already there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
