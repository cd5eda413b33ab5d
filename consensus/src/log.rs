//! Write-ahead log of a node, shared by all of its raft groups.
//!
//! # Files
//! Segments of up to 64 MiB are filled with zeros beforehand and recycled by renaming. The first are small,
//! and new ones grow with the live data in the log. A segment is a run of *frames*. A frame is one group
//! commit, written by one call and made durable by one sync. A position counts bytes over all segments, as if
//! each had its full size.
//!
//! # Rules and their reasons
//! * A durable 4 KiB block is never written again, so a torn write cannot damage acknowledged data. The
//!   exception are the last frames that no later frame attests: a start writes them again, with the same
//!   bytes.
//! * A frame names its own position, the log's salt and the frame before it. So old bytes in a recycled file,
//!   truncated frames and payloads that imitate frames fit nowhere.
//! * A frame names the position up to which the log was *durable* before it. Damage below that position is
//!   loss, damage above it is a torn commit [INV-07]. Durable is only the range that a completed sync covers,
//!   never the end of writing.
//! * After an idle period and at close, an empty frame attests the last commit. Otherwise damage to the last
//!   commit would look like a torn commit.
//! * The first frame of a segment repeats the state of each group from earlier segments. So the oldest
//!   segments can be removed once no live entry is in them. The writer relocates the live entries of the
//!   oldest segment if the log exceeds twice its live data plus three of its largest segments.
//! * Before a member votes, a start syncs all data that it read, because the data may have been in the cache
//!   only. A later sync does not write data that a failed sync dropped, so the start writes it again first.
//! * A failed write or sync is final. Reads go on.

mod error;
pub(crate) mod frame;
mod identity;
mod index;
pub mod metrics;
mod recovery;
mod segments;
mod shared;
mod writer;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::compute;
use athanor_chassis::disk::DiskError;
use athanor_chassis::observability::histogram::HistogramSnapshot;
use athanor_chassis::{ByteSize, Disk, Random};
use bytes::Bytes;
use parking_lot::Mutex;

pub use error::{LogError, LogOpenError, LogReadError};
pub use identity::LogIdentity;
pub use recovery::{DamageScope, LogDamage, LogRecoveryReport};
pub use segments::release_spare;

use frame::{FrameRow, FrameRowKind, RowWithPayload};
use index::LogIndex;
use segments::SegmentFiles;
use shared::{CommitBatch, FailOnPanic, LogShared};

pub(crate) use shared::error_chain;
use writer::{CommitProgress, LogWriter};

/// Sizes and limits of a log.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Largest size of a segment. A folder keeps the size that it was created with.
    pub segment: ByteSize,
    /// Size of the first segments. New ones grow with the live data in the log.
    pub smallest: ByteSize,
    /// Limit for the payloads of one commit. A single larger batch is committed alone.
    pub commit: ByteSize,
    /// Number of prepared files to keep.
    pub spares: usize,
    /// Minimum of free disk space below which the log refuses entries.
    pub reserve: ByteSize,
    /// Limit for payloads that wait for their commit, of all groups together.
    pub waiting: ByteSize,
    /// Budget for payloads that stay in memory after their commit, for the state machines that apply them.
    pub recent: ByteSize,
}

/// Trigger of commits: a thread of the log, or the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitMode {
    /// A thread of the log commits, and another one prepares files.
    Thread,
    /// The submitting caller commits at once. For simulations.
    Inline,
    /// The caller commits with [`Log::commit_once`].
    Hand,
}

/// Change of one group in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRecord {
    /// Appends an entry after the last one, or replaces an entry and drops all entries after it.
    Entry {
        /// Raft group of the entry.
        group: u32,
        /// Index of the entry in its group.
        index: u64,
        /// Raft term of the entry.
        term: u64,
        /// Opaque payload of the entry.
        data: Bytes,
    },
    /// Drops all entries from an index on.
    Truncate {
        /// Raft group of the entries.
        group: u32,
        /// Index of the first dropped entry.
        from: u64,
    },
    /// Drops all entries up to an index, because the group does not need them any more.
    Purge {
        /// Raft group of the entries.
        group: u32,
        /// Index of the last purged entry.
        index: u64,
        /// Raft term of the last purged entry.
        term: u64,
    },
    /// Replaces the small state of a group.
    State {
        /// Raft group of the state.
        group: u32,
        /// Opaque bytes, at most [`MAX_GROUP_STATE_BYTES`].
        data: Bytes,
    },
}

/// Limit for a group's state in bytes, because every segment repeats it.
pub const MAX_GROUP_STATE_BYTES: usize = 512;

/// Entry as read from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Raft term of the entry.
    pub term: u64,
    /// Payload that was appended.
    pub data: Bytes,
}

/// State of one group in the log, including records that wait for their commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupLogState {
    /// Index of the first entry.
    pub first: u64,
    /// Index after the last entry. Equal to `first` if there is no entry.
    pub end: u64,
    /// Index and term of the last entry, or of the last purged entry.
    pub last: Option<(u64, u64)>,
    /// Index and term of the last purged entry.
    pub purged: Option<(u64, u64)>,
    /// Small state of the group, empty if none was logged.
    pub state: Bytes,
    /// True if durable data was lost, now or earlier. A member of a larger group must not vote then.
    pub hurt: bool,
    /// Ranges of lost entries that are not purged: (first index, count).
    pub lost: Vec<(u64, u64)>,
}

/// Sizes of a log in bytes and segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogUsage {
    /// Number of segments in use.
    pub segments: usize,
    /// Size of the segments' files, in bytes.
    pub capacity: u64,
    /// Live data in the segments, in bytes.
    pub live: u64,
    /// Bytes written since the start.
    pub written: u64,
    /// Bytes of payloads that wait for their commit.
    pub waiting: u64,
}

/// Disk usage of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogDiskUsage {
    /// Size of the segments in use.
    pub taken: ByteSize,
    /// Size of the whole disk.
    pub disk: ByteSize,
}

/// Health metrics of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogHealth {
    /// Free bytes of the disk, if the disk reports them.
    pub free: Option<u64>,
    /// Durations of syncs, nanoseconds.
    pub syncs: HistogramSnapshot,
    /// Payload bytes per commit since the start.
    pub commit_bytes: HistogramSnapshot,
    /// Number of batches per commit.
    pub commit_batches: HistogramSnapshot,
}

/// Write-ahead log of a node. Cheap to clone. The log closes with the last clone.
#[derive(Clone, Debug)]
pub struct Log {
    owner: Arc<LogOwner>,
}

#[derive(Debug)]
struct LogOwner {
    shared: Arc<LogShared>,
    writer: Arc<Mutex<LogWriter>>,
    pump: CommitMode,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

/// Smallest segment: the state of every group must fit into a part of it.
pub const MIN_SEGMENT_SIZE: ByteSize = ByteSize::kib(64);
/// Idle time after which the writer attests the last commit.
const ATTEST_IDLE_DELAY: Duration = Duration::from_millis(50);

// === impl LogConfig ===

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment: ByteSize::mib(64),
            smallest: ByteSize::mib(2),
            commit: ByteSize::mib(16),
            spares: 4,
            reserve: ByteSize::mib(512),
            waiting: ByteSize::mib(256),
            recent: ByteSize::mib(32),
        }
    }
}

// === impl LogRecord ===

impl LogRecord {
    fn into_frame_row(self) -> RowWithPayload {
        match self {
            Self::Entry { group, index, term, data } => {
                (FrameRow::without_payload(FrameRowKind::Entry, group, index, term), data)
            }
            Self::Truncate { group, from } => {
                (FrameRow::without_payload(FrameRowKind::Truncate, group, from, 0), Bytes::new())
            }
            Self::Purge { group, index, term } => {
                (FrameRow::without_payload(FrameRowKind::Purge, group, index, term), Bytes::new())
            }
            Self::State { group, data } => {
                (FrameRow::without_payload(FrameRowKind::State, group, 0, 0), data)
            }
        }
    }
}

// === impl Log ===

impl Log {
    /// Opens the log in its own folder and reports the recovery. Creates the log if the folder is empty.
    /// Reads the whole log, about a second per GiB.
    pub fn open(
        disk: Arc<dyn Disk>,
        random: &Random,
        identity: LogIdentity,
        config: &LogConfig,
        pump: CommitMode,
    ) -> Result<(Self, LogRecoveryReport), LogOpenError> {
        if config.segment < MIN_SEGMENT_SIZE {
            return Err(LogOpenError::SmallSegments { segment: config.segment, least: MIN_SEGMENT_SIZE });
        }
        let mut made = identity::LogManifest::open(&*disk, identity, config.segment.get(), random)?;
        let size = made.segment;
        let (segments, mut numbers) = SegmentFiles::open(Arc::clone(&disk), size, config)?;
        if numbers.is_empty() {
            if made.begun {
                return Err(LogOpenError::Missing);
            }
            segments.begin_segment(1, 0).map_err(|error| match error {
                DiskError::Full { .. } => LogOpenError::NoRoom {
                    free: ByteSize::bytes(disk.free_bytes().unwrap_or_default()),
                    segment: ByteSize::bytes(segments.target_capacity()),
                    spares: config.spares,
                },
                error => error.into(),
            })?;
            numbers.push(1);
        }
        made.mark_begun(&*disk)?;
        let recovered = recovery::recover_log(&disk, size, made.salt, &numbers)?;
        // Newest first, so that the remaining segments are a contiguous run at any time.
        for number in numbers.iter().rev().filter(|number| **number > recovered.current) {
            segments.recycle_segment(*number)?;
        }
        recovery::rewrite_frames(&*disk, size, &recovered.unattested)?;
        for number in recovered.index.segments.keys() {
            disk.sync(&segments::segment_file_name(*number))?;
        }
        disk.sync_dir()?;
        segments.grow_with(recovered.index.live_bytes());
        segments.remove_oversized_spares()?;
        let mut writer = LogWriter::new(&recovered);
        let shared = Arc::new(LogShared::new(segments, made.salt, config, recovered.index));
        writer.publish_remaining_bytes(&shared);
        let hurt = shared.core().index.damage_marks();
        if !hurt.is_empty() {
            // The evidence of a loss may be purged and recycled. This commit keeps the fact that data was
            // lost.
            writer.commit(&shared, &hurt)?;
        }
        let writer = Arc::new(Mutex::new(writer));
        let owner = LogOwner { shared, writer, pump, threads: Mutex::default() };
        owner.start()?;
        Ok((Self { owner: Arc::new(owner) }, recovered.report))
    }

    /// Submits records that become durable together or not at all, after all earlier ones. They are readable
    /// at once. The log calls `done` when they are durable, or can never become durable. If this call refuses
    /// them, it does not call `done`.
    pub fn submit(
        &self,
        records: Vec<LogRecord>,
        done: impl FnOnce(Result<(), LogError>) + Send + 'static,
    ) -> Result<(), LogError> {
        self.owner.shared.submit(records, Box::new(done))?;
        if self.owner.pump == CommitMode::Inline {
            self.drain();
        }
        Ok(())
    }

    /// Submits records and waits until they are durable.
    pub async fn append(&self, records: Vec<LogRecord>) -> Result<(), LogError> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        self.submit(records, move |done| {
            // The caller may have dropped its future.
            let _ = answer.send(done);
        })?;
        answered.await.unwrap_or(Err(LogError::Closed))
    }

    /// Returns an error if the log accepts no entries now. Callers that can refuse a request check this
    /// first.
    pub fn admit(&self) -> Result<(), LogError> {
        self.owner.shared.admit(1, None)
    }

    /// Returns whether the disk has space for entries, as far as it can be checked. A disk that was full
    /// counts as full until a segment more than the reserve is free.
    pub fn has_disk_space(&self) -> bool {
        self.owner.shared.has_disk_space()
    }

    /// Returns an error if the log does not accept entries of `bytes` bytes that free space when they are
    /// applied. They may use most of the reserve, and on a full disk the preallocated files.
    pub fn admit_relief(&self, bytes: u64) -> Result<(), LogError> {
        self.owner.shared.admit_relief(bytes)
    }

    /// Returns an error if the log does not accept raft's own entries, which a group needs to begin.
    pub(crate) fn admit_internal(&self) -> Result<(), LogError> {
        self.owner.shared.admit_internal(0)
    }

    /// Removes a prepared file from a full disk, so that a snapshot can be written. Returns false if none is
    /// to spare.
    pub(crate) fn release_spare(&self) -> bool {
        self.owner.shared.release_spare()
    }

    /// Returns the full size of a segment.
    pub(crate) fn segment_size(&self) -> ByteSize {
        ByteSize::bytes(self.owner.shared.segments.size)
    }

    /// Returns the cause of the failure, if the log refuses everything until a restart.
    pub fn failure(&self) -> Option<Arc<str>> {
        self.owner.shared.core().failed.clone()
    }

    /// Returns the size limit of an entry, in bytes.
    pub fn max_entry_bytes(&self) -> u64 {
        self.owner.shared.max_entry_bytes()
    }

    /// Reads an entry, or returns `None` if there is none at the index.
    pub fn read(&self, group: u32, index: u64) -> Result<Option<LogEntry>, LogReadError> {
        self.owner.shared.read(group, index)
    }

    /// Reads entries as [`Log::read`] does. Returns `None` if one of them is on disk only.
    pub(crate) fn read_in_memory(
        &self,
        group: u32,
        entries: Range<u64>,
    ) -> Option<Vec<Result<Option<LogEntry>, LogReadError>>> {
        self.owner.shared.read_in_memory(group, entries)
    }

    /// Returns the term of an entry without reading its payload.
    pub fn term(&self, group: u32, index: u64) -> Option<u64> {
        self.owner.shared.term(group, index)
    }

    /// Returns the state of a group in the log.
    pub fn group_state(&self, group: u32) -> GroupLogState {
        self.owner.shared.group_state(group)
    }

    /// Returns the groups that have logged anything.
    pub fn groups(&self) -> Vec<u32> {
        self.owner.shared.core().index.groups.keys().copied().collect()
    }

    /// Returns the sizes of the log.
    pub fn usage(&self) -> LogUsage {
        self.owner.shared.usage()
    }

    /// Returns the disk usage of the log, if the disk reports its size. Calls the disk.
    pub fn disk_usage(&self) -> Option<LogDiskUsage> {
        self.owner.shared.disk_usage()
    }

    /// Returns health metrics of the log. Calls the disk.
    pub fn health(&self) -> LogHealth {
        self.owner.shared.health()
    }

    /// Commits waiting batches once. Returns false if there was nothing to do.
    pub fn commit_once(&self) -> bool {
        self.try_commit_once() == Some(CommitProgress::Worked)
    }

    fn try_commit_once(&self) -> Option<CommitProgress> {
        let mut writer = self.owner.writer.try_lock()?;
        // After a panic half-way, the writer must not go on.
        let _ending = FailOnPanic(&self.owner.shared);
        Some(writer.commit_once(&self.owner.shared))
    }

    /// Attests the last commit, as the log's thread does after an idle period.
    pub fn attest(&self) {
        if let Some(mut writer) = self.owner.writer.try_lock() {
            let _ending = FailOnPanic(&self.owner.shared);
            writer.attest(&self.owner.shared);
        }
    }

    fn drain(&self) {
        // If another thread holds the writer, that thread checks the queue once more after releasing it.
        while let Some(turn) = self.try_commit_once() {
            if turn != CommitProgress::Worked && self.owner.shared.is_drained() {
                break;
            }
        }
    }

    /// Commits waiting batches, attests the commit and refuses all later ones. Blocks the caller.
    pub fn close(&self) {
        self.owner.close();
    }
}

// === impl LogOwner ===

impl LogOwner {
    fn start(&self) -> Result<(), LogOpenError> {
        if self.pump != CommitMode::Thread {
            while self.shared.segments.prepare_spare()? {}
            return Ok(());
        }
        let mut threads = self.threads.lock();
        let shared = Arc::clone(&self.shared);
        threads.push(compute::spawn_dedicated_thread("log-files", move || shared.segments.run_preparer())?);
        let shared = Arc::clone(&self.shared);
        let writer = Arc::clone(&self.writer);
        threads.push(compute::spawn_dedicated_thread("log", move || {
            let mut writer = writer.lock();
            shared.run_writer(&mut writer);
        })?);
        Ok(())
    }

    fn close(&self) {
        self.shared.close();
        let threads = std::mem::take(&mut *self.threads.lock());
        if self.pump == CommitMode::Thread {
            for thread in threads {
                // The thread reports its own failure.
                let _ = thread.join();
            }
            return;
        }
        let mut writer = self.writer.lock();
        while writer.commit_once(&self.shared) == CommitProgress::Worked {}
        writer.attest(&self.shared);
    }
}

impl Drop for LogOwner {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
