//! What the log's callers and its writer have in common.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use athanor_chassis::disk::DiskError;
use athanor_chassis::{Activity, ByteSize, Histogram};
use bytes::Bytes;

use super::frame::{BLOCK, HEAD, Kind, Line, ROW, Row, size};
use super::index::{Found, Slot};
use super::writer::MAX_BEFORE;
use super::{
    Config, Entry, Health, Held, IDLE, Index, LogError, MAX_STATE, ReadError, Record, Segments, Space, Turn,
    Usage, Writer,
};

/// Space that stays laid out beside an entry that frees space on a full disk.
const RELIEF_BYTES: u64 = 64 << 10;
/// Space of a frame beside its payload.
const LAID_OUT_MARGIN_BYTES: u64 = 4 * BLOCK;

pub(crate) type Done = Box<dyn FnOnce(Result<(), LogError>) + Send>;

/// Changes that were handed in together.
pub(crate) struct Batch {
    /// Of its first line; each line has the next.
    pub(crate) ticket: u64,
    lines: Vec<Line>,
    bytes: u64,
    pub(crate) done: Done,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) segments: Segments,
    pub(crate) salt: u64,
    pub(crate) limits: Limits,
    core: Mutex<Core>,
    wake: Condvar,
    /// Bytes written since the start.
    pub(crate) written: AtomicU64,
    /// Bytes that the current segment still takes.
    pub(crate) current_left: AtomicU64,
    pub(crate) commits: Commits,
    /// Entries are refused for want of space, and that was said.
    full: AtomicBool,
}

/// What commits held.
#[derive(Debug)]
pub(crate) struct Commits {
    pub(crate) bytes: Histogram,
    pub(crate) batches: Histogram,
}

#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) commit: u64,
    waiting: u64,
    reserve: u64,
    groups: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Core {
    pub(crate) index: Index,
    pub(crate) recent: Recent,
    queue: VecDeque<Batch>,
    waiting: u64,
    /// Bytes of the commit that is being written.
    pub(crate) committing: u64,
    next_ticket: u64,
    pub(crate) failed: Option<Arc<str>>,
    closed: bool,
}

/// The youngest payloads, by position.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    payloads: BTreeMap<u64, Bytes>,
    bytes: u64,
    limit: u64,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("ticket", &self.ticket).field("lines", &self.lines.len()).finish()
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

// === impl Recent ===

impl Recent {
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

// === impl Shared ===

impl Shared {
    pub(crate) fn new(segments: Segments, salt: u64, config: &Config, index: Index) -> Self {
        let commit = config.commit.get().min(segments.size / 4);
        let marks = segments.size / 4 - HEAD - ROW * MAX_BEFORE as u64;
        let groups = marks / (Index::MARKS * ROW + MAX_STATE as u64);
        let limits = Limits { commit, groups, waiting: config.waiting.get(), reserve: config.reserve.get() };
        let recent = Recent { limit: config.recent.get(), ..Recent::default() };
        let core = Core { index, recent, next_ticket: 1, ..Core::default() };
        let (core, wake) = (Mutex::new(core), Condvar::new());
        let commits = Commits { bytes: Histogram::of_sizes(), batches: Histogram::doubling(1, 12) };
        let (written, current_left) = (AtomicU64::new(0), AtomicU64::new(0));
        let full = AtomicBool::new(false);
        Self { segments, salt, limits, core, wake, written, current_left, commits, full }
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses entries when too much waits, or less than a part of the reserve is free. Raft's own few entries, and those that
    /// free space, are taken from a full disk as well while the files that are laid out have space for `laid_out` bytes more.
    pub(crate) fn admit(&self, part: u64, laid_out: Option<u64>) -> Result<(), LogError> {
        if let Some(error) = self.core().refusal() {
            return Err(error);
        }
        let free = match self.segments.disk.free() {
            Ok(free) => free,
            // Its folder is gone, or the disk: nothing that is written from now on would be found again.
            Err(error) => return Err(self.fail(&error)),
        };
        let waiting = self.core().waiting;
        if waiting > self.limits.waiting * part {
            let (waiting, limit) = (ByteSize::bytes(waiting), ByteSize::bytes(self.limits.waiting));
            return Err(LogError::Busy { waiting, limit });
        }
        self.tell_of_space(free);
        if free < self.limits.reserve / part
            && !laid_out.is_some_and(|bytes| self.fits_laid_out(waiting + bytes))
        {
            let reserve = ByteSize::bytes(self.limits.reserve);
            return Err(LogError::Full { free: ByteSize::bytes(free), reserve });
        }
        Ok(())
    }

    /// Whether so many bytes fit into the current segment or a prepared one, which take no space of the disk any more.
    fn fits_laid_out(&self, bytes: u64) -> bool {
        let (committing, marks) = {
            let core = self.core();
            (core.committing, core.index.marks())
        };
        // A frame has more than its payload...
        let bytes = bytes + committing;
        let needed = bytes + bytes / 4 + LAID_OUT_MARGIN_BYTES;
        // ...and a new segment begins with what every group needs.
        let of_marks = size(marks.len() + MAX_BEFORE, marks.iter().map(|(_, data)| data.len() as u64).sum());
        self.current_left.load(Ordering::Relaxed) >= needed
            || self.segments.prepared_bytes() >= needed + of_marks
    }

    /// Whether raft's own entries are taken.
    pub(crate) fn admit_own(&self, bytes: u64) -> Result<(), LogError> {
        self.admit(8, Some(bytes))
    }

    /// Whether entries of so many bytes are taken that free space. On a full disk twice their bytes have to fit, since others may
    /// be handed in before them, and an entry that was let in must not be refused then.
    pub(crate) fn admit_relief(&self, bytes: u64) -> Result<(), LogError> {
        self.admit(4, Some(2 * bytes + RELIEF_BYTES.min(self.segments.size / 8)))
    }

    /// Removes a prepared file from a full disk, if the log has others, or can do without.
    pub(crate) fn release_spare(&self) -> bool {
        let has_current = self.current_left.load(Ordering::Relaxed) >= self.segments.target() / 2;
        let released = self.segments.release(usize::from(!has_current));
        released.unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to remove a prepared log segment from a full disk");
            false
        })
    }

    /// Whether the disk has room. One that does not say is none that is full.
    pub(crate) fn has_room(&self) -> bool {
        if let Ok(free) = self.segments.disk.free() {
            self.tell_of_space(free);
        }
        !self.full.load(Ordering::Relaxed)
    }

    /// Says once that entries are refused for want of space, and once that they are taken again, with so much between
    /// the two that this cannot be said of every entry.
    fn tell_of_space(&self, free: u64) {
        let (reserve, was_full) = (self.limits.reserve, self.full.load(Ordering::Relaxed));
        let is_full = free < if was_full { reserve.saturating_add(self.segments.size) } else { reserve };
        if is_full == was_full || self.full.swap(is_full, Ordering::Relaxed) == is_full {
            return;
        }
        let (free, reserve) = (ByteSize::bytes(free).about(), ByteSize::bytes(reserve));
        if is_full {
            tracing::warn!(%free, %reserve, "the disk is nearly full: profiles are refused until space is free (log.reserve)");
        } else {
            tracing::info!(%free, %reserve, "the disk has space again: profiles are taken");
        }
    }

    /// Payload that fits into a batch with an entry, a state and a mark.
    pub(crate) fn largest(&self) -> u64 {
        self.segments.size / 2 - size(MAX_BEFORE + 8, MAX_STATE as u64)
    }

    pub(crate) fn submit(&self, records: Vec<Record>, done: Done) -> Result<(), LogError> {
        let lines: Vec<Line> = records.into_iter().map(Record::into_line).collect();
        let bytes: u64 = lines.iter().map(|(_, data)| data.len() as u64).sum();
        if lines.iter().any(|(row, _)| row.kind == Kind::Entry) {
            // Less than was asked of whoever proposed: an entry that was let in must not end its group here.
            self.admit_own(bytes)?;
        }
        let (frame, limit) = (size(lines.len() + MAX_BEFORE, bytes), self.segments.size / 2);
        let state = lines.iter().any(|(row, data)| row.kind == Kind::State && data.len() > MAX_STATE);
        if frame > limit || state {
            let limit = if state { MAX_STATE as u64 } else { limit };
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
        core.index.wait(ticket, &lines);
        core.queue.push_back(Batch { ticket, lines, bytes, done });
        drop(core);
        self.wake.notify_one();
        Ok(())
    }

    /// What waits, up to one commit.
    pub(crate) fn take(&self) -> (Vec<Batch>, Vec<Line>) {
        let mut core = self.core();
        let (mut batches, mut lines, mut bytes) = (Vec::new(), Vec::new(), 0);
        while let Some(next) = core.queue.front() {
            let rows = lines.len() + next.lines.len() + MAX_BEFORE;
            let full = bytes + next.bytes > self.limits.commit
                || size(rows, bytes + next.bytes) > self.segments.size / 2;
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

    /// Lines are durable, at these places. Moved ones have no ticket.
    pub(crate) fn settle(&self, ticket: u64, rows: &[(Row, u64)], lines: &[Line]) {
        let mut core = self.core();
        let Core { index, recent, .. } = &mut *core;
        for (number, ((row, at), (_, data))) in (0..).zip(rows.iter().zip(lines)) {
            if row.kind == Kind::Move {
                index.apply(row, *at, data);
                continue;
            }
            index.settle(ticket + number, row, *at, data);
            if row.kind == Kind::Entry {
                recent.put(*at, data);
            }
        }
        drop(core);
        self.retire();
    }

    /// Gives segments away in which nothing lives, oldest first: whatever of it survives a crash, the rest is a run.
    pub(crate) fn retire(&self) {
        let retired = self.core().index.retire();
        for number in retired {
            if let Err(error) = self.segments.retire(number) {
                // It stays as it is; the next start finds nothing alive in it.
                tracing::warn!(number, %error, "segment not given away");
                return;
            }
        }
    }

    /// The end of the log: everything that waits, and whatever comes, is refused.
    pub(crate) fn fail(&self, error: &DiskError) -> LogError {
        let mut core = self.core();
        let cause: Arc<str> = core.failed.clone().unwrap_or_else(|| chain(error).into());
        let first = core.failed.replace(Arc::clone(&cause)).is_none();
        core.waiting = 0;
        let waiting = std::mem::take(&mut core.queue);
        drop(core);
        if first {
            tracing::error!(%cause, "the log has failed");
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

    /// The log's thread.
    pub(crate) fn run(&self, writer: &mut Writer) {
        let _ending = Ending(self);
        loop {
            let Turn::Idle { attested } = Activity::Log.measure(|| writer.turn(self)) else { continue };
            let core = self.core();
            let idle = |core: &mut Core| core.queue.is_empty() && !core.closed;
            let (core, quiet) = if attested || core.failed.is_some() {
                (self.wake.wait_while(core, idle).unwrap_or_else(PoisonError::into_inner), false)
            } else {
                let waited = self.wake.wait_timeout_while(core, IDLE, idle);
                let (core, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                (core, timeout.timed_out())
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

    pub(crate) fn read(&self, group: u32, index: u64) -> Result<Option<Entry>, ReadError> {
        let mut tried = None;
        loop {
            let found = self.core().index.groups.get(&group).map_or(Found::Nothing, |held| held.find(index));
            let (term, slot) = match found {
                Found::Waiting(term, data) => return Ok(Some(Entry { term, data })),
                Found::At(term, slot) => (term, slot),
                Found::Lost(_) => return Err(ReadError::Lost { group, index }),
                Found::Nothing => return Ok(None),
            };
            match self.fetch(slot) {
                Ok(Some(data)) => return Ok(Some(Entry { term, data })),
                // It may have been moved, and its segment given away, meanwhile.
                _ if tried != Some(slot) => tried = Some(slot),
                Ok(None) => return Err(ReadError::Lost { group, index }),
                Err(source) => return Err(ReadError::Disk { group, index, source }),
            }
        }
    }

    pub(crate) fn read_in_memory(
        &self,
        group: u32,
        entries: Range<u64>,
    ) -> Option<Vec<Result<Option<Entry>, ReadError>>> {
        let core = self.core();
        let Some(held) = core.index.groups.get(&group) else {
            return Some(entries.map(|_| Ok(None)).collect());
        };
        let read = entries.map(|index| match held.find(index) {
            Found::Waiting(term, data) => Some(Ok(Some(Entry { term, data }))),
            Found::At(term, slot) if slot.length == 0 => Some(Ok(Some(Entry { term, data: Bytes::new() }))),
            Found::At(term, slot) => Some(Ok(Some(Entry { term, data: core.recent.get(slot.at)? }))),
            Found::Lost(_) => Some(Err(ReadError::Lost { group, index })),
            Found::Nothing => Some(Ok(None)),
        });
        read.collect()
    }

    pub(crate) fn term(&self, group: u32, index: u64) -> Option<u64> {
        match self.core().index.groups.get(&group)?.find(index) {
            Found::Waiting(term, _) | Found::At(term, _) | Found::Lost(term) => Some(term),
            Found::Nothing => None,
        }
    }

    pub(crate) fn held(&self, group: u32) -> Held {
        let core = self.core();
        let all = core.index.all_hurt;
        let Some(held) = core.index.groups.get(&group) else { return Held { hurt: all, ..Held::default() } };
        let (first, end) = held.seen();
        let purged = held.seen_purged();
        let last = end.checked_sub(1).filter(|_| first < end);
        let last = last.and_then(|last| match held.find(last) {
            Found::Waiting(term, _) | Found::At(term, _) | Found::Lost(term) => Some((last, term)),
            Found::Nothing => None,
        });
        let (hurt, lost) = (held.hurt || all, held.lost.clone());
        Held { first, end, last: last.or(purged), purged, state: held.seen_state(), hurt, lost }
    }

    pub(crate) fn health(&self) -> Health {
        Health {
            free: self.segments.disk.free().ok(),
            syncs: self.segments.disk.syncs(),
            commit_bytes: self.commits.bytes.now(),
            commit_batches: self.commits.batches.now(),
        }
    }

    pub(crate) fn space(&self) -> Option<Space> {
        let disk = self.segments.disk.size().ok()?;
        let taken = ByteSize::bytes(self.core().index.capacity());
        Some(Space { taken, disk: ByteSize::bytes(disk) })
    }

    pub(crate) fn usage(&self) -> Usage {
        let core = self.core();
        Usage {
            segments: core.index.segments.len(),
            capacity: core.index.capacity(),
            live: core.index.live(),
            written: self.written.load(Ordering::Relaxed),
            waiting: core.waiting,
        }
    }
}

/// However the log's thread ends, nobody waits for it.
struct Ending<'a>(&'a Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(&DiskError::Io {
                op: "commit to",
                name: "the log".to_owned(),
                source: std::io::Error::other("its thread panicked"),
            });
        }
    }
}

// === impl Core ===

impl Core {
    fn refusal(&self) -> Option<LogError> {
        let failed = self.failed.as_ref().map(|cause| LogError::Failed { cause: Arc::clone(cause) });
        failed.or_else(|| self.closed.then_some(LogError::Closed))
    }

    /// Entries follow those that are held; groups are not too many.
    fn check(&self, lines: &[Line], limit: u64) -> Result<(), LogError> {
        let mut next: BTreeMap<u32, Option<u64>> = BTreeMap::new();
        let mut purged: BTreeMap<u32, u64> = BTreeMap::new();
        for (row, _) in lines {
            let held = self.index.groups.get(&row.group);
            let next = next.entry(row.group).or_insert_with(|| held.and_then(super::index::Group::next));
            let gone = purged.entry(row.group).or_insert_with(|| {
                held.and_then(|held| held.seen_purged()).map_or(0, |(index, _)| index + 1)
            });
            match row.kind {
                Kind::Entry if row.index < *gone => {
                    return Err(LogError::Hole { group: row.group, index: row.index, next: None });
                }
                Kind::Entry if next.is_some_and(|next| row.index > next) => {
                    return Err(LogError::Hole { group: row.group, index: row.index, next: *next });
                }
                Kind::Entry => *next = Some(row.index + 1),
                Kind::Truncate => *next = next.map(|next| next.min(row.index).max(*gone)),
                Kind::Purge => {
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

impl Index {
    /// An entry turned out to be damaged.
    pub(crate) fn lose(&mut self, group: u32, index: u64) {
        let Some(held) = self.groups.get_mut(&group) else { return };
        let place = index.checked_sub(held.first).and_then(|place| held.slots.get_mut(place as usize));
        let Some(place) = place else { return };
        let slot = std::mem::replace(place, Slot::LOST);
        held.mark_lost(index, 1);
        self.weigh(slot, false);
    }
}
