//! Reloads of the configuration: on SIGHUP, and after the file changed.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use athanor_chassis::Clock;
use parking_lot::Mutex;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Interval of reading the file's metadata. An idle agent wakes up seldom.
const CHECK_INTERVAL: Duration = Duration::from_secs(4);

/// Cause of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadCause {
    /// Signal SIGHUP.
    Signal,
    /// The file changed.
    FileChange,
}

/// Version of a file, as its metadata shows it. A replaced symbolic link, such as that of a Kubernetes volume,
/// changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileVersion {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
    device: u64,
}

/// Waits for causes of reloads.
pub struct ReloadWatch {
    hangup: Signal,
    file: Option<PathBuf>,
    /// Version of the file that was read last. None if it was missing.
    known: Option<FileVersion>,
    clock: Clock,
}

/// Counters of reloads.
#[derive(Debug)]
pub struct ReloadStats {
    state: Mutex<ReloadState>,
}

#[derive(Debug, Default)]
struct ReloadState {
    applied: u64,
    failed: u64,
    error: Option<String>,
    applied_at: Duration,
}

/// Counters at one scrape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadSnapshot {
    /// Number of reloads whose settings came into force.
    pub applied: u64,
    /// Number of reloads that changed nothing, because of an error.
    pub failed: u64,
    /// Error of the last reload, if it failed.
    pub error: Option<String>,
    /// Monotonic time since which the settings are in force.
    pub applied_at: Duration,
}

impl ReloadWatch {
    /// Creates a watch on a file and on SIGHUP. Call it before the file is read, so that no change is missed.
    ///
    /// # Errors
    ///
    /// The system refuses a handler of the signal.
    pub fn new(file: Option<&Path>, clock: Clock) -> io::Result<Self> {
        let hangup = signal(SignalKind::hangup())?;
        let known = file.and_then(read_version);
        Ok(ReloadWatch { hangup, file: file.map(Path::to_owned), known, clock })
    }

    /// Waits for the next cause. A file that is still being written is reported when two reads of its metadata
    /// agree. A missing file is no change, because editors and deployments replace files.
    pub async fn next(&mut self) -> ReloadCause {
        let mut changed: Option<FileVersion> = None;
        loop {
            tokio::select! {
                Some(()) = self.hangup.recv() => {
                    if let Some(file) = &self.file {
                        self.known = read_version(file);
                    }
                    return ReloadCause::Signal;
                }
                () = self.clock.sleep(CHECK_INTERVAL) => {}
            }
            let Some(file) = &self.file else { continue };
            let version = read_version(file);
            if version.is_none() || version == self.known {
                changed = None;
            } else if version == changed {
                self.known = version;
                return ReloadCause::FileChange;
            } else {
                changed = version;
            }
        }
    }
}

/// Reads the metadata on the calling thread: it takes microseconds, and another thread would be a further wake-up.
fn read_version(file: &Path) -> Option<FileVersion> {
    use std::os::unix::fs::MetadataExt;

    let metadata = std::fs::metadata(file).ok()?;
    Some(FileVersion {
        modified: metadata.modified().ok(),
        bytes: metadata.len(),
        inode: metadata.ino(),
        device: metadata.dev(),
    })
}

impl ReloadStats {
    /// Creates counters of a configuration that is in force since the given monotonic time.
    pub fn new(applied_at: Duration) -> Self {
        ReloadStats { state: Mutex::new(ReloadState { applied_at, ..ReloadState::default() }) }
    }

    /// Counts a reload.
    pub fn record(&self, result: Result<(), String>, now: Duration) {
        let mut state = self.state.lock();
        match result {
            Ok(()) => {
                state.applied += 1;
                state.applied_at = now;
                state.error = None;
            }
            Err(error) => {
                state.failed += 1;
                state.error = Some(error);
            }
        }
    }

    /// Returns the counters.
    pub fn snapshot(&self) -> ReloadSnapshot {
        let ReloadState { applied, failed, error, applied_at } = &*self.state.lock();
        ReloadSnapshot { applied: *applied, failed: *failed, error: error.clone(), applied_at: *applied_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn written_and_replaced_files_are_changes_and_a_missing_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("agent.yaml");
        std::fs::write(&file, "a").unwrap();
        let mut watch = ReloadWatch::new(Some(&file), Clock::system()).unwrap();
        let before = watch.known.clone();
        assert_eq!(read_version(&file), before);
        std::fs::write(&file, "ab").unwrap();
        assert_ne!(read_version(&file), before);
        assert_eq!(watch.next().await, ReloadCause::FileChange);
        let written = watch.known.clone();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(read_version(&file), None);
        std::fs::write(folder.path().join("new"), "ab").unwrap();
        std::fs::rename(folder.path().join("new"), &file).unwrap();
        assert_ne!(read_version(&file), written);
    }

    #[test]
    fn failed_reload_keeps_the_time_of_the_settings_in_force() {
        let stats = ReloadStats::new(Duration::from_secs(1));
        stats.record(Ok(()), Duration::from_secs(5));
        stats.record(Err("bad".to_owned()), Duration::from_secs(9));
        let expected = ReloadSnapshot {
            applied: 1,
            failed: 1,
            error: Some("bad".to_owned()),
            applied_at: Duration::from_secs(5),
        };
        assert_eq!(stats.snapshot(), expected);
        stats.record(Ok(()), Duration::from_secs(11));
        assert_eq!(stats.snapshot().error, None);
    }
}
