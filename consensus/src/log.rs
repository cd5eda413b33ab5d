//! One write-ahead log for all raft groups of a node.
//!
//! # Files
//! Segments of up to 64 MiB, filled with zeros beforehand and recycled by renaming. The first are small, and new ones grow
//! with what lives in the log. A segment is a run of *frames*; a frame is one group commit, written by one call and made
//! durable by one sync. A position counts bytes over all segments, as if each had its full size.
//!
//! # Rules, each for a reason
//! * A block that is durable is never written again: a torn write cannot hurt what was acknowledged. But for the last
//!   frames, which nothing calls durable: a start writes them again, with the same bytes.
//! * A frame names its own position, the log's salt and the frame before it: old bytes in a recycled file, frames
//!   that were cut off, and payloads that imitate frames fit nowhere.
//! * A frame says how far the log was *durable* before it. Damage below that is loss, damage above it is a commit
//!   that was cut short [INV-07]. What is durable is what a completed sync covers, never the end of what was written.
//! * The last commit is attested by an empty frame after a while without work, and at close: else damage to it would
//!   look like a commit cut short.
//! * A segment's first frame repeats what each group needs of the segments before, so that those may go, oldest
//!   first, when no entry lives in them. When the log is larger than twice what lives and three of its largest segments,
//!   what lives in the oldest is written forward.
//! * Whatever was read at a start is synced before anybody votes on it: it may have been in the cache only. What a
//!   sync that failed has dropped, another one does not write; hence the writing again.
//! * A failed write or sync is final. Reads go on.

mod error;
pub(crate) mod frame;
mod identity;
mod index;
mod recovery;
mod segments;
mod shared;
mod writer;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use athanor_chassis::compute;
use athanor_chassis::disk::DiskError;
use athanor_chassis::histogram::HistogramSnapshot;
use athanor_chassis::{ByteSize, Disk, Random};
use bytes::Bytes;

pub use error::{LogError, LogOpenError, LogReadError};
pub use identity::LogIdentity;
pub use recovery::{DamageScope, LogDamage, LogRecoveryReport};
pub use segments::release_spare;

use frame::{FrameRow, FrameRowKind, RowWithPayload};
use index::LogIndex;
use segments::SegmentFiles;
use shared::{CommitBatch, LogShared};

pub(crate) use shared::error_chain;
use writer::{CommitProgress, LogWriter};

/// How large a log's parts are.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Of a segment, at most. A folder keeps the size that it was made with.
    pub segment: ByteSize,
    /// Of a segment at first. New ones grow with what lives in the log.
    pub smallest: ByteSize,
    /// Of the payloads of one commit, at most, but for a batch that is larger alone.
    pub commit: ByteSize,
    /// Prepared files to keep.
    pub spares: usize,
    /// Free space of the disk below which entries are refused.
    pub reserve: ByteSize,
    /// Payloads that may wait for their commit, of all groups together.
    pub waiting: ByteSize,
    /// Payloads that are kept in memory after their commit, to be read by those who apply them.
    pub recent: ByteSize,
}

/// Who commits what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitMode {
    /// A thread of the log; another prepares files.
    Thread,
    /// Whoever submits, at once: for simulations.
    Inline,
    /// Whoever calls [`Log::commit_once`].
    Hand,
}

/// One change of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRecord {
    /// An entry behind the last one, or in place of one; then those behind it are gone.
    Entry {
        /// Whose.
        group: u32,
        /// Its place in the group.
        index: u64,
        /// Of raft.
        term: u64,
        /// Opaque.
        data: Bytes,
    },
    /// The entries from here on are gone.
    Truncate {
        /// Whose.
        group: u32,
        /// The first that goes.
        from: u64,
    },
    /// The entries up to here are not needed any more.
    Purge {
        /// Whose.
        group: u32,
        /// The last that goes.
        index: u64,
        /// Its term.
        term: u64,
    },
    /// A small state, in place of the one before.
    State {
        /// Whose.
        group: u32,
        /// Opaque, at most [`MAX_GROUP_STATE_BYTES`] bytes.
        data: Bytes,
    },
}

/// What a group's state may have, in bytes: it is repeated in every segment.
pub const MAX_GROUP_STATE_BYTES: usize = 512;

/// An entry as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Its term.
    pub term: u64,
    /// What was appended.
    pub data: Bytes,
}

/// What a group holds, what waits for its commit included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupLogState {
    /// The first entry.
    pub first: u64,
    /// Behind the last entry; equal to `first` where there is none.
    pub end: u64,
    /// Index and term of the last entry, or of the last one that was purged.
    pub last: Option<(u64, u64)>,
    /// Index and term of the last one that was purged.
    pub purged: Option<(u64, u64)>,
    /// The group's state; empty where none was logged.
    pub state: Bytes,
    /// Something durable was lost, now or earlier: a member of a larger group must not vote.
    pub hurt: bool,
    /// (first, how many): entries that are gone and not purged.
    pub lost: Vec<(u64, u64)>,
}

/// How large a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogUsage {
    /// Segments in use.
    pub segments: usize,
    /// Bytes of their files.
    pub capacity: u64,
    /// Bytes that live in them.
    pub live: u64,
    /// Bytes written since the start.
    pub written: u64,
    /// Payloads that wait for their commit.
    pub waiting: u64,
}

/// What a log takes of its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogDiskUsage {
    /// Bytes of segments in use.
    pub taken: ByteSize,
    /// Bytes of the whole disk.
    pub disk: ByteSize,
}

/// How a log fares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogHealth {
    /// Free bytes of the disk, where it tells.
    pub free: Option<u64>,
    /// How long syncs took, nanoseconds.
    pub syncs: HistogramSnapshot,
    /// Payload of each commit since the start.
    pub commit_bytes: HistogramSnapshot,
    /// How many batches were committed together.
    pub commit_batches: HistogramSnapshot,
}

/// The log of a node. Cheap to clone; it closes with the last clone.
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

/// The smallest segment: every group's state must fit into a part of it.
pub const MIN_SEGMENT_SIZE: ByteSize = ByteSize::kib(64);
/// How long nothing must happen until the last commit is attested.
const ATTEST_IDLE_DELAY: Duration = Duration::from_millis(50);

// === impl Config ===

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

// === impl Record ===

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
    /// Opens the log in a folder of its own, making it if the folder is empty, and says what was found. Reads all of
    /// it: about a second for a GiB.
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
        // Newest first, so that the rest is a run at any time.
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
            // What shows a loss may be purged and given away; that there was one is known from now on.
            writer.commit(&shared, &hurt)?;
        }
        let writer = Arc::new(Mutex::new(writer));
        let owner = LogOwner { shared, writer, pump, threads: Mutex::default() };
        owner.start()?;
        Ok((Self { owner: Arc::new(owner) }, recovered.report))
    }

    /// Hands in changes, which become durable together or not at all, after everything that was handed in before.
    /// They can be read at once. `done` hears when they are durable, or never will be; if they are refused here, it
    /// hears nothing.
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

    /// Hands in changes and waits until they are durable.
    pub async fn append(&self, records: Vec<LogRecord>) -> Result<(), LogError> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        self.submit(records, move |done| {
            // The caller may have left.
            let _ = answer.send(done);
        })?;
        answered.await.unwrap_or(Err(LogError::Closed))
    }

    /// Whether entries are taken now; callers that can say no ask before they hand in.
    pub fn admit(&self) -> Result<(), LogError> {
        self.owner.shared.admit(1, None)
    }

    /// Whether the disk has room for entries, as far as can be seen. Once it has not, more than was missing must be free
    /// until it has again.
    pub fn has_disk_space(&self) -> bool {
        self.owner.shared.has_disk_space()
    }

    /// Whether entries of so many bytes are taken now that free space when they are applied: they may use most of the reserve,
    /// and on a full disk the files that are laid out.
    pub fn admit_relief(&self, bytes: u64) -> Result<(), LogError> {
        self.owner.shared.admit_relief(bytes)
    }

    /// Whether raft's own entries are taken, without which a group cannot begin.
    pub(crate) fn admit_internal(&self) -> Result<(), LogError> {
        self.owner.shared.admit_internal(0)
    }

    /// Removes a prepared file if the disk is full, so that a snapshot can be written; false if there is none to spare.
    pub(crate) fn release_spare(&self) -> bool {
        self.owner.shared.release_spare()
    }

    /// Bytes of a segment.
    pub(crate) fn segment_size(&self) -> ByteSize {
        ByteSize::bytes(self.owner.shared.segments.size)
    }

    /// Why the log takes nothing more until a restart, if it does not.
    pub fn failure(&self) -> Option<Arc<str>> {
        self.owner.shared.core().failed.clone()
    }

    /// The largest entry that is taken, in bytes.
    pub fn max_entry_bytes(&self) -> u64 {
        self.owner.shared.max_entry_bytes()
    }

    /// An entry; none where there is none.
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

    /// The term of an entry, without reading it.
    pub fn term(&self, group: u32, index: u64) -> Option<u64> {
        self.owner.shared.term(group, index)
    }

    /// What a group holds.
    pub fn group_state(&self, group: u32) -> GroupLogState {
        self.owner.shared.group_state(group)
    }

    /// The groups of which something was logged.
    pub fn groups(&self) -> Vec<u32> {
        self.owner.shared.core().index.groups.keys().copied().collect()
    }

    /// How large the log is.
    pub fn usage(&self) -> LogUsage {
        self.owner.shared.usage()
    }

    /// What it takes of its disk, where the disk tells how large it is. Asks the disk.
    pub fn disk_usage(&self) -> Option<LogDiskUsage> {
        self.owner.shared.disk_usage()
    }

    /// How it fares. Asks the disk.
    pub fn health(&self) -> LogHealth {
        self.owner.shared.health()
    }

    /// Commits what waits, once; false if there was nothing to do.
    pub fn commit_once(&self) -> bool {
        self.try_commit_once() == Some(CommitProgress::Worked)
    }

    fn try_commit_once(&self) -> Option<CommitProgress> {
        let mut writer = self.owner.writer.try_lock().ok()?;
        Some(writer.commit_once(&self.owner.shared))
    }

    /// What the log's thread does after a while without work.
    pub fn attest(&self) {
        if let Ok(mut writer) = self.owner.writer.try_lock() {
            writer.attest(&self.owner.shared);
        }
    }

    fn drain(&self) {
        // Where the writer is taken, whoever has it looks once more after letting go.
        while let Some(turn) = self.try_commit_once() {
            if turn != CommitProgress::Worked && self.owner.shared.is_drained() {
                break;
            }
        }
    }

    /// Commits what waits, attests it and takes nothing more. Blocks.
    pub fn close(&self) {
        self.owner.close();
    }
}

// === impl Owner ===

impl LogOwner {
    fn lock(&self) -> std::sync::MutexGuard<'_, LogWriter> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> Result<(), LogOpenError> {
        if self.pump != CommitMode::Thread {
            while self.shared.segments.prepare_spare()? {}
            return Ok(());
        }
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = Arc::clone(&self.shared);
        threads.push(compute::spawn_dedicated_thread("log-files", move || shared.segments.run_preparer())?);
        let shared = Arc::clone(&self.shared);
        let writer = Arc::clone(&self.writer);
        threads.push(compute::spawn_dedicated_thread("log", move || {
            let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
            shared.run_writer(&mut writer);
        })?);
        Ok(())
    }

    fn close(&self) {
        self.shared.close();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        if self.pump == CommitMode::Thread {
            for thread in threads {
                // It says itself why it ended.
                let _ = thread.join();
            }
            return;
        }
        let mut writer = self.lock();
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
