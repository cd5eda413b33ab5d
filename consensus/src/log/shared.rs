//! State that callers of the log share with its writer.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use athanor_chassis::disk::DiskError;
use athanor_chassis::{ByteSize, CpuActivity, Histogram};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::frame::{
    FRAME_ALIGNMENT_BYTES, FRAME_HEADER_BYTES, FRAME_ROW_BYTES, FrameRow, FrameRowKind, RowWithPayload,
    frame_bytes,
};
use super::index::{EntryLocation, EntryLookup};
use super::writer::MAX_BEFORE_ROWS;
use super::{
    ATTEST_IDLE_DELAY, CommitProgress, GroupLogState, LogConfig, LogDiskUsage, LogEntry, LogError, LogHealth,
    LogIndex, LogReadError, LogRecord, LogUsage, LogWriter, MAX_GROUP_STATE_BYTES, SegmentFiles,
};

/// Preallocated space that is kept beside an entry that frees space on a full disk.
const RELIEF_BYTES: u64 = 64 << 10;
/// Space of a frame beyond its payload.
const LAID_OUT_MARGIN_BYTES: u64 = 4 * FRAME_ALIGNMENT_BYTES;

pub(crate) type CommitCallback = Box<dyn FnOnce(Result<(), LogError>) + Send>;

/// Records that were submitted together.
pub(crate) struct CommitBatch {
    /// Ticket of the first line. Each later line has the next ticket.
    pub(crate) ticket: u64,
    lines: Vec<RowWithPayload>,
    bytes: u64,
    pub(crate) done: CommitCallback,
}

#[derive(Debug)]
pub(crate) struct LogShared {
    pub(crate) segments: SegmentFiles,
    pub(crate) salt: u64,
    pub(crate) limits: LogLimits,
    core: Mutex<LogCore>,
    wake: Condvar,
    /// Bytes written since the start.
    pub(crate) written: AtomicU64,
    /// Remaining bytes in the current segment's file.
    pub(crate) current_left: AtomicU64,
    pub(crate) commits: CommitHistograms,
    /// True while entries are refused for lack of space, and the log has reported it.
    full: AtomicBool,
}

/// Histograms of commit sizes.
#[derive(Debug)]
pub(crate) struct CommitHistograms {
    pub(crate) bytes: Histogram,
    pub(crate) batches: Histogram,
}

#[derive(Debug)]
pub(crate) struct LogLimits {
    pub(crate) commit: u64,
    waiting: u64,
    reserve: u64,
    groups: u64,
}

#[derive(Debug, Default)]
pub(crate) struct LogCore {
    pub(crate) index: LogIndex,
    pub(crate) recent: RecentPayloads,
    queue: VecDeque<CommitBatch>,
    waiting: u64,
    /// Bytes of the commit that is being written.
    pub(crate) committing: u64,
    next_ticket: u64,
    pub(crate) failed: Option<Arc<str>>,
    closed: bool,
}

/// Newest payloads, by position.
#[derive(Debug, Default)]
pub(crate) struct RecentPayloads {
    payloads: BTreeMap<u64, Bytes>,
    bytes: u64,
    limit: u64,
}

impl fmt::Debug for CommitBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommitBatch").field("ticket", &self.ticket).field("lines", &self.lines.len()).finish()
    }
}

/// Formats an error with its causes.
pub(crate) fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

// === impl RecentPayloads ===

impl RecentPayloads {
    pub(crate) fn get(&self, at: u64) -> Option<Bytes> {
        self.payloads.get(&at).cloned()
    }

    fn put(&mut self, at: u64, data: &Bytes) {
        if data.is_empty() {
            return;
        }
        self.bytes += data.len() as u64;
        self.payloads.insert(at, data.clone());
        while self.bytes > self.limit {
            let Some((_, oldest)) = self.payloads.pop_first() else { return };
            self.bytes -= oldest.len() as u64;
        }
    }
}

// === impl LogShared ===

impl LogShared {
    pub(crate) fn new(segments: SegmentFiles, salt: u64, config: &LogConfig, index: LogIndex) -> Self {
        let commit = config.commit.get().min(segments.size / 4);
        let marks = segments.size / 4 - FRAME_HEADER_BYTES - FRAME_ROW_BYTES * MAX_BEFORE_ROWS as u64;
        let groups = marks / (LogIndex::MAX_MARKS_PER_GROUP * FRAME_ROW_BYTES + MAX_GROUP_STATE_BYTES as u64);
        let limits =
            LogLimits { commit, groups, waiting: config.waiting.get(), reserve: config.reserve.get() };
        let recent = RecentPayloads { limit: config.recent.get(), ..RecentPayloads::default() };
        let core = LogCore { index, recent, next_ticket: 1, ..LogCore::default() };
        let core = Mutex::new(core);
        let wake = Condvar::new();
        let commits = CommitHistograms {
            bytes: Histogram::for_sizes(),
            batches: Histogram::with_doubling_buckets(1, 12),
        };
        let written = AtomicU64::new(0);
        let current_left = AtomicU64::new(0);
        let full = AtomicBool::new(false);
        Self { segments, salt, limits, core, wake, written, current_left, commits, full }
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, LogCore> {
        self.core.lock()
    }

    /// Returns an error if too many bytes wait, or less than a part of the reserve is free. On a full disk it
    /// still admits raft's own entries, and entries that free space. The preallocated files must have space
    /// for `laid_out` more bytes.
    pub(crate) fn admit(&self, part: u64, laid_out: Option<u64>) -> Result<(), LogError> {
        if let Some(error) = self.core().refusal() {
            return Err(error);
        }
        let free = match self.segments.disk.free_bytes() {
            Ok(free) => free,
            // The folder or the disk is gone, so no later write could be found by a start.
            Err(error) => return Err(self.fail(&error)),
        };
        let waiting = self.core().waiting;
        if waiting > self.limits.waiting * part {
            let waiting = ByteSize::bytes(waiting);
            let limit = ByteSize::bytes(self.limits.waiting);
            return Err(LogError::Busy { waiting, limit });
        }
        self.report_disk_space(free);
        if free < self.limits.reserve / part
            && !laid_out.is_some_and(|bytes| self.fits_preallocated(waiting + bytes))
        {
            let reserve = ByteSize::bytes(self.limits.reserve);
            return Err(LogError::Full { free: ByteSize::bytes(free), reserve });
        }
        Ok(())
    }

    /// Returns whether so many bytes fit into the current segment or a prepared one, which take no further
    /// disk space.
    fn fits_preallocated(&self, bytes: u64) -> bool {
        let (committing, marks) = {
            let core = self.core();
            (core.committing, core.index.marks())
        };
        // A frame is larger than its payload.
        let bytes = bytes + committing;
        let needed = bytes + bytes / 4 + LAID_OUT_MARGIN_BYTES;
        // A new segment begins with the marks of every group.
        let of_marks =
            frame_bytes(marks.len() + MAX_BEFORE_ROWS, marks.iter().map(|(_, data)| data.len() as u64).sum());
        self.current_left.load(Ordering::Relaxed) >= needed
            || self.segments.prepared_bytes() >= needed + of_marks
    }

    /// Returns an error if raft's own entries are not admitted.
    pub(crate) fn admit_internal(&self, bytes: u64) -> Result<(), LogError> {
        self.admit(8, Some(bytes))
    }

    /// Returns an error if entries of `bytes` bytes that free space are not admitted. On a full disk twice
    /// their bytes must fit. Other entries may be submitted before them, and an admitted entry must not be
    /// refused later.
    pub(crate) fn admit_relief(&self, bytes: u64) -> Result<(), LogError> {
        self.admit(4, Some(2 * bytes + RELIEF_BYTES.min(self.segments.size / 8)))
    }

    /// Removes a prepared file from a full disk, if the log has others or the current segment has enough
    /// space.
    pub(crate) fn release_spare(&self) -> bool {
        let has_current = self.current_left.load(Ordering::Relaxed) >= self.segments.target_capacity() / 2;
        let released = self.segments.release_spare_if_full(usize::from(!has_current));
        released.unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to remove a prepared log segment from a full disk");
            false
        })
    }

    /// Returns whether the disk has space. A disk that fails to report its free space does not change the
    /// result.
    pub(crate) fn has_disk_space(&self) -> bool {
        if let Ok(free) = self.segments.disk.free_bytes() {
            self.report_disk_space(free);
        }
        !self.full.load(Ordering::Relaxed)
    }

    /// Logs once when entries are refused for lack of space, and once when they are admitted once more. The
    /// thresholds are a segment apart, so the log does not report every entry.
    fn report_disk_space(&self, free: u64) {
        let reserve = self.limits.reserve;
        let was_full = self.full.load(Ordering::Relaxed);
        let is_full = free < if was_full { reserve.saturating_add(self.segments.size) } else { reserve };
        if is_full == was_full || self.full.swap(is_full, Ordering::Relaxed) == is_full {
            return;
        }
        let free = ByteSize::bytes(free).to_approximate_string();
        let reserve = ByteSize::bytes(reserve);
        if is_full {
            tracing::warn!(%free, %reserve, "disk is nearly full, rejecting profiles until space is free (wal.min_free_bytes)");
        } else {
            tracing::info!(%free, %reserve, "disk has free space, accepting profiles");
        }
    }

    /// Returns the payload size that fits into a batch with an entry, a state and a mark.
    pub(crate) fn max_entry_bytes(&self) -> u64 {
        self.segments.size / 2 - frame_bytes(MAX_BEFORE_ROWS + 8, MAX_GROUP_STATE_BYTES as u64)
    }

    pub(crate) fn submit(&self, records: Vec<LogRecord>, done: CommitCallback) -> Result<(), LogError> {
        let lines: Vec<RowWithPayload> = records.into_iter().map(LogRecord::into_frame_row).collect();
        let bytes: u64 = lines.iter().map(|(_, data)| data.len() as u64).sum();
        if lines.iter().any(|(row, _)| row.kind == FrameRowKind::Entry) {
            // The check is weaker than the one for proposals: refusing an admitted entry here would end its
            // group.
            self.admit_internal(bytes)?;
        }
        let frame = frame_bytes(lines.len() + MAX_BEFORE_ROWS, bytes);
        let limit = self.segments.size / 2;
        let state = lines
            .iter()
            .any(|(row, data)| row.kind == FrameRowKind::State && data.len() > MAX_GROUP_STATE_BYTES);
        if frame > limit || state {
            let limit = if state { MAX_GROUP_STATE_BYTES as u64 } else { limit };
            return Err(LogError::TooLarge { size: ByteSize::bytes(frame), limit: ByteSize::bytes(limit) });
        }
        let mut core = self.core();
        if let Some(error) = core.refusal() {
            return Err(error);
        }
        core.check(&lines, self.limits.groups)?;
        let ticket = core.next_ticket;
        core.next_ticket += lines.len() as u64;
        core.waiting += bytes;
        core.index.add_pending(ticket, &lines);
        core.queue.push_back(CommitBatch { ticket, lines, bytes, done });
        drop(core);
        self.wake.notify_one();
        Ok(())
    }

    /// Takes waiting batches for one commit.
    pub(crate) fn take_commit(&self) -> (Vec<CommitBatch>, Vec<RowWithPayload>) {
        let mut core = self.core();
        let mut batches = Vec::new();
        let mut lines = Vec::new();
        let mut bytes = 0;
        while let Some(next) = core.queue.front() {
            let rows = lines.len() + next.lines.len() + MAX_BEFORE_ROWS;
            let full = bytes + next.bytes > self.limits.commit
                || frame_bytes(rows, bytes + next.bytes) > self.segments.size / 2;
            if full && !batches.is_empty() {
                break;
            }
            let Some(mut batch) = core.queue.pop_front() else { break };
            bytes += batch.bytes;
            lines.append(&mut batch.lines);
            batches.push(batch);
        }
        core.waiting -= bytes;
        core.committing = bytes;
        (batches, lines)
    }

    /// Marks lines as durable at their positions. Relocated lines have no ticket.
    pub(crate) fn complete_commit(&self, ticket: u64, rows: &[(FrameRow, u64)], lines: &[RowWithPayload]) {
        let mut core = self.core();
        let LogCore { index, recent, .. } = &mut *core;
        for (number, ((row, at), (_, data))) in (0..).zip(rows.iter().zip(lines)) {
            if row.kind == FrameRowKind::Move {
                index.apply(row, *at, data);
                continue;
            }
            index.complete_pending(ticket + number, row, *at, data);
            if row.kind == FrameRowKind::Entry {
                recent.put(*at, data);
            }
        }
        drop(core);
        self.recycle_empty_segments();
    }

    /// Recycles segments without live data, oldest first. So after a crash the remaining segments are a
    /// contiguous run.
    pub(crate) fn recycle_empty_segments(&self) {
        let retired = self.core().index.take_retired_segments();
        for number in retired {
            if let Err(error) = self.segments.recycle_segment(number) {
                // The segment stays as it is. The next start finds no live data in it.
                tracing::warn!(number, %error, "failed to recycle log segment, will retry at next start");
                return;
            }
        }
    }

    /// Fails the log: all waiting batches and all later ones are refused.
    pub(crate) fn fail(&self, error: &DiskError) -> LogError {
        let mut core = self.core();
        let cause: Arc<str> = core.failed.clone().unwrap_or_else(|| error_chain(error).into());
        let first = core.failed.replace(Arc::clone(&cause)).is_none();
        core.waiting = 0;
        let waiting = std::mem::take(&mut core.queue);
        drop(core);
        if first {
            tracing::error!(%cause, "write-ahead log failed, rejecting writes until a restart");
        }
        for batch in waiting {
            (batch.done)(Err(LogError::Failed { cause: Arc::clone(&cause) }));
        }
        LogError::Failed { cause }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.core().failed.is_some()
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.core().queue.is_empty()
    }

    pub(crate) fn close(&self) {
        self.core().closed = true;
        self.wake.notify_all();
        self.segments.close();
    }

    /// Runs the writer until the log closes. Body of the log's thread.
    pub(crate) fn run_writer(&self, writer: &mut LogWriter) {
        let _ending = FailOnPanic(self);
        loop {
            let CommitProgress::Idle { attested } = CpuActivity::Wal.measure(|| writer.commit_once(self))
            else {
                continue;
            };
            let mut core = self.core();
            let idle = |core: &mut LogCore| core.queue.is_empty() && !core.closed;
            let quiet = if attested || core.failed.is_some() {
                self.wake.wait_while(&mut core, idle);
                false
            } else {
                self.wake.wait_while_for(&mut core, idle, ATTEST_IDLE_DELAY);
                // A batch may have come in at the end of the wait, and the log is not quiet then.
                idle(&mut core)
            };
            let ended = core.closed && core.queue.is_empty();
            drop(core);
            if quiet || ended {
                writer.attest(self);
            }
            if ended {
                return;
            }
        }
    }

    pub(crate) fn read(&self, group: u32, index: u64) -> Result<Option<LogEntry>, LogReadError> {
        let mut tried = None;
        loop {
            let found =
                self.core().index.groups.get(&group).map_or(EntryLookup::Nothing, |held| held.find(index));
            let (term, slot) = match found {
                EntryLookup::Waiting(term, data) => return Ok(Some(LogEntry { term, data })),
                EntryLookup::At(term, slot) => (term, slot),
                EntryLookup::Lost(_) => return Err(LogReadError::Lost { group, index }),
                EntryLookup::Nothing => return Ok(None),
            };
            match self.read_payload(slot) {
                Ok(Some(data)) => return Ok(Some(LogEntry { term, data })),
                // The entry may have been relocated and its segment recycled since the lookup.
                _ if tried != Some(slot) => tried = Some(slot),
                Ok(None) => return Err(LogReadError::Lost { group, index }),
                Err(source) => return Err(LogReadError::Disk { group, index, source }),
            }
        }
    }

    pub(crate) fn read_in_memory(
        &self,
        group: u32,
        entries: Range<u64>,
    ) -> Option<Vec<Result<Option<LogEntry>, LogReadError>>> {
        let core = self.core();
        let Some(held) = core.index.groups.get(&group) else {
            return Some(entries.map(|_| Ok(None)).collect());
        };
        let read = entries.map(|index| match held.find(index) {
            EntryLookup::Waiting(term, data) => Some(Ok(Some(LogEntry { term, data }))),
            EntryLookup::At(term, slot) if slot.length == 0 => {
                Some(Ok(Some(LogEntry { term, data: Bytes::new() })))
            }
            EntryLookup::At(term, slot) => Some(Ok(Some(LogEntry { term, data: core.recent.get(slot.at)? }))),
            EntryLookup::Lost(_) => Some(Err(LogReadError::Lost { group, index })),
            EntryLookup::Nothing => Some(Ok(None)),
        });
        read.collect()
    }

    pub(crate) fn term(&self, group: u32, index: u64) -> Option<u64> {
        match self.core().index.groups.get(&group)?.find(index) {
            EntryLookup::Waiting(term, _) | EntryLookup::At(term, _) | EntryLookup::Lost(term) => Some(term),
            EntryLookup::Nothing => None,
        }
    }

    pub(crate) fn group_state(&self, group: u32) -> GroupLogState {
        let core = self.core();
        let all = core.index.all_hurt;
        let Some(held) = core.index.groups.get(&group) else {
            return GroupLogState { hurt: all, ..GroupLogState::default() };
        };
        let (first, end) = held.visible_range();
        let purged = held.visible_purged();
        let last = end.checked_sub(1).filter(|_| first < end);
        let last = last.and_then(|last| match held.find(last) {
            EntryLookup::Waiting(term, _) | EntryLookup::At(term, _) | EntryLookup::Lost(term) => {
                Some((last, term))
            }
            EntryLookup::Nothing => None,
        });
        let hurt = held.hurt || all;
        let lost = held.lost.clone();
        GroupLogState { first, end, last: last.or(purged), purged, state: held.visible_state(), hurt, lost }
    }

    pub(crate) fn health(&self) -> LogHealth {
        LogHealth {
            free: self.segments.disk.free_bytes().ok(),
            syncs: self.segments.disk.sync_latencies(),
            commit_bytes: self.commits.bytes.snapshot(),
            commit_batches: self.commits.batches.snapshot(),
        }
    }

    pub(crate) fn disk_usage(&self) -> Option<LogDiskUsage> {
        let disk = self.segments.disk.capacity_bytes().ok()?;
        let taken = ByteSize::bytes(self.core().index.capacity_bytes());
        Some(LogDiskUsage { taken, disk: ByteSize::bytes(disk) })
    }

    pub(crate) fn usage(&self) -> LogUsage {
        let core = self.core();
        LogUsage {
            segments: core.index.segments.len(),
            capacity: core.index.capacity_bytes(),
            live: core.index.live_bytes(),
            written: self.written.load(Ordering::Relaxed),
            waiting: core.waiting,
        }
    }
}

/// Guard of a thread that commits: if it panics, all waiting batches fail.
pub(crate) struct FailOnPanic<'a>(pub(crate) &'a LogShared);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(&DiskError::Io {
                op: "commit to",
                name: "the log".to_owned(),
                source: std::io::Error::other("the log thread panicked"),
            });
        }
    }
}

// === impl LogCore ===

impl LogCore {
    fn refusal(&self) -> Option<LogError> {
        let failed = self.failed.as_ref().map(|cause| LogError::Failed { cause: Arc::clone(cause) });
        failed.or_else(|| self.closed.then_some(LogError::Closed))
    }

    /// Checks that entries follow the existing ones, and that the number of groups is within the limit.
    fn check(&self, lines: &[RowWithPayload], limit: u64) -> Result<(), LogError> {
        let mut next: BTreeMap<u32, Option<u64>> = BTreeMap::new();
        let mut purged: BTreeMap<u32, u64> = BTreeMap::new();
        for (row, _) in lines {
            let held = self.index.groups.get(&row.group);
            let next =
                next.entry(row.group).or_insert_with(|| held.and_then(super::index::GroupIndex::next_index));
            let gone = purged.entry(row.group).or_insert_with(|| {
                held.and_then(|held| held.visible_purged()).map_or(0, |(index, _)| index + 1)
            });
            match row.kind {
                FrameRowKind::Entry if row.index < *gone => {
                    return Err(LogError::Hole { group: row.group, index: row.index, next: None });
                }
                FrameRowKind::Entry if next.is_some_and(|next| row.index > next) => {
                    return Err(LogError::Hole { group: row.group, index: row.index, next: *next });
                }
                FrameRowKind::Entry => *next = Some(row.index + 1),
                FrameRowKind::Truncate => *next = next.map(|next| next.min(row.index).max(*gone)),
                FrameRowKind::Purge => {
                    *gone = (*gone).max(row.index + 1);
                    *next = Some(next.map_or(*gone, |next| next.max(*gone)));
                }
                _ => {}
            }
        }
        let new = next.keys().filter(|group| !self.index.groups.contains_key(group)).count() as u64;
        if new > 0 && self.index.groups.len() as u64 + new > limit {
            return Err(LogError::TooManyGroups { limit });
        }
        Ok(())
    }
}

impl LogIndex {
    /// Marks an entry as lost after its payload turned out to be damaged.
    pub(crate) fn mark_entry_lost(&mut self, group: u32, index: u64) {
        let Some(held) = self.groups.get_mut(&group) else { return };
        let place = index.checked_sub(held.first).and_then(|place| held.slots.get_mut(place as usize));
        let Some(place) = place else { return };
        let slot = std::mem::replace(place, EntryLocation::LOST_ENTRY);
        held.mark_lost(index, 1);
        self.adjust_live_bytes(slot, false);
    }
}
