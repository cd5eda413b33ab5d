//! `athanor serve` as a process of its own, which may be killed, and whose memory is its own.

#![expect(clippy::missing_panics_doc, reason = "what does not work fails the test")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use athanor_chassis::Clock;

use crate::athanor_binary;
use crate::server::RESPONSE_DEADLINE;

/// Where a process needs no variables.
pub const NO_VARIABLES: [(&str, &str); 0] = [];

/// A process, killed when it is dropped.
pub struct ServerProcess {
    child: Child,
    said: PathBuf,
}

impl ServerProcess {
    /// Starts one on a folder, at a port of its choice; what it says goes to a file. `settings` are pairs of a name and a
    /// value. Of variables it has these alone, since tests have some of their own under the prefix of settings.
    pub fn start<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        data: &Path,
        said: PathBuf,
        settings: &[String],
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let child = Command::new(athanor_binary())
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .args(settings.iter().flat_map(|setting| ["--set", setting]))
            .env_clear()
            .envs(variables)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&said).expect("a file"))
            .spawn()
            .expect("it starts");
        Self { child, said }
    }

    /// Where it serves, as soon as it says so.
    pub fn address(&mut self) -> SocketAddr {
        let clock = Clock::system();
        let begun = clock.monotonic();
        loop {
            let said = self.log_text();
            let told = said.lines().find_map(|line| line.strip_prefix("athanor serves at http://"));
            if let Some(address) = told.filter(|_| said.ends_with('\n')) {
                return address.parse().expect("an address");
            }
            if let Some(status) = self.child.try_wait().expect("it is known") {
                panic!("the server ended by itself, {status}:\n{said}");
            }
            assert!(clock.monotonic() - begun < RESPONSE_DEADLINE, "the server does not start:\n{said}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// What it said so far.
    #[must_use]
    pub fn log_text(&self) -> String {
        fs::read_to_string(&self.said).expect("readable")
    }

    /// Its number.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, to one that lives.
    pub fn kill(mut self) {
        assert!(
            self.child.try_wait().expect("it is known").is_none(),
            "it ended by itself:\n{}",
            self.log_text()
        );
        self.child.kill().expect("it is killed");
        self.child.wait().expect("it ends");
    }

    /// SIGTERM; it ends in order.
    pub fn stop(mut self) {
        self.signal("-TERM");
        assert!(self.child.wait().expect("it ends").success(), "{}", self.log_text());
    }

    /// SIGABRT, as a process ends that has found itself broken.
    pub fn abort(mut self) {
        self.signal("-ABRT");
        assert!(!self.child.wait().expect("it ends").success());
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.process_id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{signal} is sent");
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Where it has ended already there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
