//! Spool of one server: uploads on disk until the server has acknowledged them.
//!
//! ```text
//!  store ─► pending files ── closed: full, or after a time ─► Disk::write ─► file index ─► delivery
//!    ▲                                                           │                           │
//!    └──────────────────── durable ◄─────────────────────────────┘      unlink ◄── response ─┘
//! ```
//!
//! * A file holds requests of one tenant in their final form. It is written once and never changed.
//! * Unlinking a file is the acknowledgement. A partly accepted file is sent again whole, and the server dedups
//!   it. A crash may restore an unlinked file, which is the same.
//! * There is no index on disk. A start reads the names of the files.
//! * A full spool evicts the oldest scraped files for new scraped ones, and rejects received uploads. It never
//!   evicts a received upload.

pub mod config;
pub mod file_format;
mod file_index;
pub mod file_name;
mod folder;
mod pending;
mod quarantine;
mod recovery;
mod refused_folder;
mod stats;
#[cfg(test)]
mod tests;
mod volatile_disk;
mod writer;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::disk::DiskError;
use athanor_chassis::tasks::SpawnError;
use athanor_chassis::{ByteSize, Clock, ComputePool, Disk, ErrorCode, Random, Status, TaskGroup};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, oneshot};

use crate::upload::{Upload, UploadOrigin};

pub use config::SpoolConfig;
pub use file_format::{SpoolFile, SpoolFileError, SpooledRequest};
pub use file_index::{DeliveryQueue, SpoolEntry};
use file_index::{FileIndex, occupied_bytes};
use file_name::SpoolFileName;
pub use folder::{SpoolDisks, report_abandoned_spools};
use pending::{PendingFiles, StoreWaiter};
use quarantine::Quarantine;
use refused_folder::RefusedFolder;
pub use refused_folder::RefusedUpload;
pub use stats::{DropReason, SPOOL_METRICS, ServerSnapshot, ServerStats};
pub use volatile_disk::VolatileDisk;

/// Time until files are unlinked once more after an error.
const UNLINK_RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Shortest delay that a client must wait if the spool is full.
const FULL_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Environment of a spool and its delivery.
#[derive(Clone, Debug)]
pub struct SpoolRuntime {
    /// Clock of all delays.
    pub clock: Clock,
    /// Source of jitter.
    pub random: Random,
    /// Pool that runs all calls of the disk.
    pub compute: ComputePool,
    /// Group of the background tasks. Its shutdown writes what is pending.
    pub tasks: TaskGroup,
}

/// Spool of one server. Cheap to clone.
#[derive(Clone)]
pub struct Spool {
    shared: Arc<SpoolInner>,
}

/// Failure to open a spool.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The folder cannot be used.
    #[error("spool of server {server} not opened")]
    Disk {
        /// Name of the server.
        server: String,
        /// Error of the disk.
        source: DiskError,
    },
    /// A background task cannot be started.
    #[error("spool of server {server} not started")]
    Task {
        /// Name of the server.
        server: String,
        /// Error of the task group.
        source: SpawnError,
    },
    /// A computation failed.
    #[error("spool of server {server} not opened: {reason}")]
    Compute {
        /// Name of the server.
        server: String,
        /// Error of the compute pool.
        reason: String,
    },
}

struct SpoolInner {
    server: String,
    disk: Arc<dyn Disk>,
    is_in_memory: bool,
    max_bytes: u64,
    config: SpoolConfig,
    runtime: SpoolRuntime,
    stats: ServerStats,
    refused: RefusedFolder,
    quarantine: Quarantine,
    pending_budget: Arc<Semaphore>,
    state: Mutex<SpoolState>,
    /// Wakes the writer after a change of the pending files.
    pending_changed: Notify,
    /// Wakes the delivery after a change of the file index.
    files_changed: Notify,
}

struct SpoolState {
    pending: PendingFiles,
    index: FileIndex,
    next_sequence: u64,
    /// Bytes of the file that is being written.
    writing_bytes: Option<u64>,
    /// True if the last write found less free disk than must stay free.
    is_disk_low: bool,
    /// Time at which files are unlinked that could not be unlinked. None without such files.
    unlink_retry_at: Option<Duration>,
    is_closed: bool,
}

// === impl Spool ===

impl Spool {
    /// Opens a spool with the files of earlier processes, and starts its writer.
    ///
    /// # Errors
    ///
    /// The folder cannot be read, or the task group is full.
    pub async fn open(
        server: &str,
        disks: SpoolDisks,
        config: SpoolConfig,
        runtime: SpoolRuntime,
    ) -> Result<Self, SpoolError> {
        let name = server.to_owned();
        let opening = runtime.clone();
        let opened = runtime.compute.run(move || recovery::open(name, disks, config, opening)).await;
        let opened = opened
            .map_err(|error| SpoolError::Compute { server: server.to_owned(), reason: error.to_string() })?;
        let shared = opened.map_err(|source| SpoolError::Disk { server: server.to_owned(), source })?;
        let spool = Self { shared: Arc::new(shared) };
        let writer = runtime.tasks.spawn(format!("spool-writer-{server}"), writer::run(spool.clone()));
        writer.map_err(|source| SpoolError::Task { server: server.to_owned(), source })?;
        Ok(spool)
    }

    /// Returns the name of the server.
    pub fn server(&self) -> &str {
        &self.shared.server
    }

    /// Stores an upload. It is durable when this returns. If the caller stops waiting, it is stored all the
    /// same.
    ///
    /// # Errors
    ///
    /// `Exhausted` with a retry delay if the spool is full, `TooLarge` if the upload exceeds the whole spool,
    /// `Unavailable` during a shutdown.
    pub async fn store(&self, upload: Upload) -> Result<(), Status> {
        self.admit(&upload).await?;
        let pending_limit = self.shared.config.max_pending_bytes.as_usize();
        let bytes = upload.body.len().clamp(1, pending_limit.clamp(1, u32::MAX as usize));
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.shared.pending_budget).acquire_many_owned(permits).await;
        let permit = permit.map_err(|_| self.closed_status())?;
        let (stored, durable) = oneshot::channel();
        {
            let mut state = self.shared.state.lock();
            if state.is_closed {
                return Err(self.closed_status());
            }
            let now = self.shared.runtime.clock.monotonic();
            let max_file_bytes = self.shared.config.max_file_bytes.as_usize();
            state.pending.push(upload, StoreWaiter { stored, permit }, now, max_file_bytes);
        }
        self.shared.pending_changed.notify_one();
        durable.await.unwrap_or_else(|_| {
            let message = format!("the writer of the spool of server {} failed", self.shared.server);
            Err(Status::new(ErrorCode::Internal, message))
        })
    }

    /// Checks whether the spool may accept an upload now.
    ///
    /// # Errors
    ///
    /// As [`Spool::store`].
    pub async fn admit(&self, upload: &Upload) -> Result<(), Status> {
        let shared = &self.shared;
        let size = occupied_bytes(upload.body.len() as u64);
        if size > shared.max_bytes {
            if upload.origin == UploadOrigin::Scraped {
                shared.stats.record_dropped(DropReason::TooLarge, upload.profiles);
            }
            let message = format!(
                "upload has {}, the spool of server {} holds {}; increase spool.max_bytes",
                ByteSize::bytes(size),
                shared.server,
                ByteSize::bytes(shared.max_bytes)
            );
            return Err(Status::new(ErrorCode::TooLarge, message));
        }
        if upload.origin == UploadOrigin::Scraped {
            return Ok(());
        }
        let is_disk_low = {
            let state = shared.state.lock();
            let stored = state.index.bytes() + state.pending.bytes() as u64;
            let stored = stored + state.writing_bytes.unwrap_or_default();
            if stored.saturating_add(size) > shared.max_bytes {
                return Err(shared.full_status());
            }
            state.is_disk_low
        };
        if is_disk_low && self.is_disk_still_low(size).await {
            return Err(shared.full_status());
        }
        Ok(())
    }

    /// Closes all pending files, so that they are written now.
    pub fn close_pending_files(&self) {
        self.shared.state.lock().pending.close_all();
        self.shared.pending_changed.notify_one();
    }

    /// Returns the counters and the state of the files.
    pub fn snapshot(&self) -> ServerSnapshot {
        let shared = &self.shared;
        let state = shared.state.lock();
        let is_writing = u64::from(state.writing_bytes.is_some());
        let oldest = state.index.oldest().map(|entry| shared.file_age(entry));
        ServerSnapshot {
            server: shared.server.clone(),
            spool_bytes: state.index.bytes()
                + state.pending.bytes() as u64
                + state.writing_bytes.unwrap_or_default(),
            spool_files: (state.index.len() + state.pending.len()) as u64 + is_writing,
            oldest_file_age: oldest.unwrap_or_default(),
            is_in_memory: shared.is_in_memory,
            ..shared.stats.snapshot()
        }
    }

    /// Returns whether the files are in memory and end with the process.
    pub fn is_in_memory(&self) -> bool {
        self.shared.is_in_memory
    }

    /// Returns the counters of the server.
    pub fn stats(&self) -> &ServerStats {
        &self.shared.stats
    }

    async fn is_disk_still_low(&self, size: u64) -> bool {
        let shared = Arc::clone(&self.shared);
        let measured = self.shared.runtime.compute.run(move || shared.measure_disk(size)).await;
        measured.map_or(true, |deficit| deficit > 0)
    }

    fn closed_status(&self) -> Status {
        let message = format!("the spool of server {} is closed; the agent shuts down", self.shared.server);
        Status::new(ErrorCode::Unavailable, message)
    }
}

// === impl Spool: delivery ===

impl Spool {
    /// Takes the next file of a queue. It is in flight until it is released or acknowledged.
    pub fn take(&self, queue: DeliveryQueue) -> Option<SpoolEntry> {
        let now = self.shared.runtime.clock.monotonic();
        self.shared.state.lock().index.take(queue, now)
    }

    /// Reads a file that is in flight. Returns None if the file is damaged, which moves it to quarantine.
    ///
    /// # Errors
    ///
    /// The disk fails to read for another reason than a damaged medium. The file is still in flight.
    pub async fn read(&self, entry: &SpoolEntry) -> Result<Option<SpoolFile>, Status> {
        let shared = Arc::clone(&self.shared);
        let entry = *entry;
        let read = self.shared.runtime.compute.run(move || shared.read_file(&entry)).await;
        let read = read.map_err(|error| Status::from_error(&error))?;
        read.map_err(|error| Status::from_error(&error))
    }

    /// Returns a file in flight to its queue. It is not taken before the delay has passed.
    pub fn release(&self, entry: &SpoolEntry, delay: Duration) {
        let now = self.shared.runtime.clock.monotonic();
        self.shared.state.lock().index.release(entry.name.sequence, delay, now);
        self.shared.files_changed.notify_one();
    }

    /// Takes no file of the tenant of a file before the delay has passed.
    pub fn pause_tenant(&self, entry: &SpoolEntry, delay: Duration) {
        let now = self.shared.runtime.clock.monotonic();
        self.shared.state.lock().index.pause_tenant(entry.name.tenant, delay, now);
    }

    /// Unlinks a file that the server acknowledged. If that fails, the file counts for the bounds until a later
    /// attempt succeeds, and this process does not send it again.
    pub async fn acknowledge(&self, entry: &SpoolEntry) {
        let shared = Arc::clone(&self.shared);
        let name = entry.name;
        let unlinked = self.shared.runtime.compute.run(move || shared.unlink(&name)).await;
        self.shared.end_file(entry, unlinked.unwrap_or(false));
        self.shared.files_changed.notify_one();
    }

    /// Stores a rejected upload in the folder of refused profiles, and counts its profiles.
    pub async fn refuse(&self, refused: RefusedUpload, profiles: u32) {
        let shared = Arc::clone(&self.shared);
        let store = move || shared.refused.store(&refused, &shared.stats);
        match self.shared.runtime.compute.run(store).await {
            // An earlier delivery of the same file has counted it.
            Ok(Ok(false)) => return,
            Ok(Ok(true)) => {}
            Ok(Err(error)) => {
                tracing::warn!(server = self.server(), %error, "failed to store a refused profile");
            }
            Err(error) => tracing::warn!(server = self.server(), %error, "failed to store a refused profile"),
        }
        self.shared.stats.record_refused(profiles);
    }

    /// Waits for a change of the files.
    pub async fn files_changed(&self) {
        self.shared.files_changed.notified().await;
    }

    /// Returns the next time at which a delayed file may be taken.
    pub fn next_due(&self) -> Option<Duration> {
        let now = self.shared.runtime.clock.monotonic();
        self.shared.state.lock().index.next_due(now)
    }

    /// Returns whether no file waits for delivery.
    pub fn is_idle(&self) -> bool {
        self.shared.state.lock().index.is_idle()
    }

    /// Returns whether nothing waits for delivery, and no upload is accepted any more.
    pub fn is_drained(&self) -> bool {
        let state = self.shared.state.lock();
        let is_written = state.pending.len() == 0 && state.writing_bytes.is_none();
        state.is_closed && is_written && state.index.is_idle()
    }

    /// Ends the delays of cumulative files, after the server has recovered. Those of other files end one by one, so
    /// that the backlog does not arrive at once.
    pub fn end_cumulative_delays(&self) {
        let now = self.shared.runtime.clock.monotonic();
        self.shared.state.lock().index.end_lane_delays(now);
        self.shared.files_changed.notify_one();
    }

    /// Ends the delays of all files and tenants.
    pub fn end_delays(&self) {
        let now = self.shared.runtime.clock.monotonic();
        self.shared.state.lock().index.end_delays(now);
        self.shared.files_changed.notify_one();
    }
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").field("server", &self.shared.server).field("disk", &self.shared.disk).finish()
    }
}

// === impl SpoolInner ===

impl SpoolInner {
    /// Returns the bytes that are missing on the disk so that the reserve stays free after a write, and remembers
    /// whether there are any. Blocks.
    fn measure_disk(&self, size: u64) -> u64 {
        let measured = self.disk.free_bytes().and_then(|free| Ok((free, self.disk.capacity_bytes()?)));
        let deficit = match measured {
            Ok((free, capacity)) => {
                let reserve = capacity / 100 * u64::from(self.config.min_free_disk_percent.min(100));
                reserve.saturating_add(size).saturating_sub(free)
            }
            // The write shows whether the disk works.
            Err(_) => 0,
        };
        self.state.lock().is_disk_low = deficit > 0;
        deficit
    }

    /// Unlinks a file. Returns whether it is gone. Blocks.
    fn unlink(&self, name: &SpoolFileName) -> bool {
        match self.disk.remove(&name.to_string()) {
            Ok(()) | Err(DiskError::NotFound { .. }) => true,
            Err(error) => {
                // A restart sends an acknowledged file once more, and the server dedups it.
                tracing::warn!(server = self.server, file = %name, %error, "failed to unlink a spool file, will retry");
                false
            }
        }
    }

    /// Removes a file from its queue. A file that is still on the disk counts for the bounds.
    fn end_file(&self, entry: &SpoolEntry, is_unlinked: bool) {
        let now = self.runtime.clock.monotonic();
        let mut state = self.state.lock();
        state.index.remove(entry.name.sequence);
        if !is_unlinked {
            state.index.keep_undeleted(*entry);
            state.unlink_retry_at.get_or_insert(now.saturating_add(UNLINK_RETRY_INTERVAL));
            self.pending_changed.notify_one();
        }
    }

    fn full_status(&self) -> Status {
        let wait = FULL_RETRY_AFTER + self.runtime.random.jitter(FULL_RETRY_AFTER);
        let message = format!(
            "the spool of server {} is full: the limit is {} (spool.max_bytes), and {} % of the disk stay free \
             (spool.min_free); retry later, or check why the server accepts no profiles",
            self.server,
            ByteSize::bytes(self.max_bytes),
            self.config.min_free_disk_percent
        );
        Status::new(ErrorCode::Exhausted, message).with_retry_after(wait)
    }

    fn file_age(&self, entry: &SpoolEntry) -> Duration {
        match entry.stored_at {
            Some(stored_at) => self.runtime.clock.monotonic().saturating_sub(stored_at),
            None => self.runtime.clock.wall().since(entry.name.time()),
        }
    }

    /// Reads and decodes a file in flight. Blocks.
    fn read_file(&self, entry: &SpoolEntry) -> Result<Option<SpoolFile>, DiskError> {
        let name = entry.name.to_string();
        let damage = match self.disk.read(&name) {
            Ok(bytes) => match SpoolFile::decode(&bytes.into()) {
                Ok(file) if file.sequence == entry.name.sequence => return Ok(Some(file)),
                Ok(file) => SpoolFileError::Sequence(file.sequence).to_string(),
                Err(error) => error.to_string(),
            },
            Err(error) if quarantine::is_lost(&error) => error.to_string(),
            Err(error) => return Err(error),
        };
        tracing::error!(
            server = self.server,
            file = name,
            damage,
            "quarantined a damaged spool file, its profiles are lost"
        );
        self.stats.record_damaged_file();
        self.stats.record_dropped(DropReason::Damaged, entry.name.profiles);
        self.quarantine.store(&*self.disk, &name, entry.bytes);
        self.state.lock().index.remove(entry.name.sequence);
        Ok(None)
    }
}
