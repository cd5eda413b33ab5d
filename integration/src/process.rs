//! `athanor serve` as a process of its own, which a test may kill and whose memory it measures.

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

/// Empty environment, for processes that need no variables.
pub const NO_VARIABLES: [(&str, &str); 0] = [];

/// Server process. Dropping it kills the process.
pub struct ServerProcess {
    child: Child,
    said: PathBuf,
}

impl ServerProcess {
    /// Starts a server on a data folder, at a free port; its output goes to a file. `settings` are pairs of a
    /// name and a value. The process inherits no environment: tests set variables with the prefix of settings
    /// themselves.
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

    /// Returns the address of the server, as soon as the process prints it.
    pub fn address(&mut self) -> SocketAddr {
        let clock = Clock::system();
        let begun = clock.monotonic();
        loop {
            let said = self.log_text();
            let told = said.lines().find_map(|line| line.strip_prefix("athanor listens on http://"));
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

    /// Returns all output of the process so far.
    #[must_use]
    pub fn log_text(&self) -> String {
        fs::read_to_string(&self.said).expect("readable")
    }

    /// Returns the id of the process.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL. Panics if the process has already exited.
    pub fn kill(mut self) {
        assert!(
            self.child.try_wait().expect("it is known").is_none(),
            "it ended by itself:\n{}",
            self.log_text()
        );
        self.child.kill().expect("it is killed");
        self.child.wait().expect("it ends");
    }

    /// Sends SIGTERM and waits for an orderly exit.
    pub fn stop(mut self) {
        self.signal("-TERM");
        assert!(self.child.wait().expect("it ends").success(), "{}", self.log_text());
    }

    /// Sends SIGABRT, the signal of a process that aborts on an internal error.
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
        // If the process has already exited, the signal has no target.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
