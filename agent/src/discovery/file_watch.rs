//! Notifications of changed files, by inotify.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use athanor_chassis::Clock;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::file_pattern::FilePattern;

/// Time after a notification in which further changes are gathered.
const SETTLE_TIME: Duration = Duration::from_millis(200);
const EVENT_BUFFER_BYTES: usize = 8 << 10;
/// Prefix of names that Kubernetes replaces if a mounted volume changes.
const VOLUME_LINK_PREFIX: &str = "..";

/// Watch on the folders of patterns.
pub(super) struct FileWatch {
    notifications: AsyncFd<OwnedFd>,
    patterns: Vec<FilePattern>,
    clock: Clock,
}

impl FileWatch {
    /// Creates a watch without folders.
    ///
    /// # Errors
    ///
    /// The system has no inotify, or the user has too many instances.
    #[expect(
        deprecated,
        reason = "sound for an OwnedFd, whose descriptor never changes; the replacement is unsafe"
    )]
    pub(super) fn new(patterns: Vec<FilePattern>, clock: Clock) -> std::io::Result<Self> {
        let descriptor = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let notifications = AsyncFd::with_interest(descriptor, Interest::READABLE)?;
        Ok(Self { notifications, patterns, clock })
    }

    /// Watches the folders that exist. Returns those that cannot be watched. A folder that is watched already
    /// stays so.
    pub(super) fn add_folders(&self) -> Vec<(PathBuf, Errno)> {
        let flags = WatchFlags::CREATE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO;
        let mut failed = Vec::new();
        for pattern in &self.patterns {
            match inotify::add_watch(self.notifications.as_fd(), pattern.folder(), flags) {
                Ok(_) | Err(Errno::NOENT) => {}
                Err(error) => failed.push((pattern.folder().to_owned(), error)),
            }
        }
        failed
    }

    /// Waits until a matching file changed, and until no change follows for a short time.
    pub(super) async fn wait_for_change(&self) {
        while !self.wait_for_events().await {}
        self.clock.sleep(SETTLE_TIME).await;
        self.drain_events();
    }

    /// Waits for events. Returns whether one concerns a matching file.
    async fn wait_for_events(&self) -> bool {
        let Ok(mut ready) = self.notifications.readable().await else {
            // The interval of the discoverer goes on without notifications.
            return std::future::pending().await;
        };
        let is_match = self.drain_events();
        ready.clear_ready();
        is_match
    }

    /// Reads all pending events. Returns whether one concerns a matching file.
    fn drain_events(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); EVENT_BUFFER_BYTES];
        let mut reader = inotify::Reader::new(self.notifications.as_fd(), &mut buffer);
        let mut is_match = false;
        loop {
            match reader.next() {
                // An event without a name concerns a folder, or says that events were lost.
                Ok(event) => {
                    is_match |=
                        event.file_name().is_none_or(|name| self.is_relevant(&name.to_string_lossy()));
                }
                Err(Errno::INTR) => {}
                Err(_) => return is_match,
            }
        }
    }

    fn is_relevant(&self, name: &str) -> bool {
        name.starts_with(VOLUME_LINK_PREFIX) || self.patterns.iter().any(|pattern| pattern.matches(name))
    }
}
