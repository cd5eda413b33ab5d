//! The ids of recent records: what makes a repeat known [INV-10, INV-11].
//!
//! ```text
//!  recent ids, in memory ──a cut──► a sorted file ──► merged with those before it
//!                                   filter in memory: less than two bytes an id
//! ```
//! Time here is the log's own: each entry carries a *stamp*, the one before it and what the leader's monotonic clock
//! saw since. So all members forget the same ids at the same entry, whatever their clocks say, and a failover can
//! only make the window longer. How old an id is follows from the entry that brought it, to about a second, wherever it
//! lies: so when ids go to files, and how these are merged, changes no verdict, and a log that is read again says the
//! same.
//!
//! A file holds ids of entries up to a cut only. A snapshot labelled with that cut names the files, and says itself
//! which ids are in none. Files that the newest snapshot does not name are removed.

mod bloom_filter;
mod id_page;
mod memtable;
mod run_files;
mod sorted_run;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use athanor_chassis::disk::DiskError;
use athanor_profile::codec::{CodecError, CodecReader, put_varint};
use athanor_profile::hash::ContentHash;

use crate::state_machine::lock;
use memtable::{EntryIds, RecentIds};
use sorted_run::{IdRecord, RunName, SortedRun};

pub use run_files::RunFiles;

/// Nanoseconds of a stamp are told apart down to these bits: about a second.
const STAMP_AGE_BITS: u32 = 30;
/// Files are not merged into larger ones: merging takes a filter more, and old ids go with their whole file.
const MAX_MERGED_RUN_IDS: u64 = 16 << 20;
/// Ids that are let go of at once: whoever applies waits so long.
const MAX_IDS_PER_EVICTION: usize = 1 << 14;

/// The ids of recent records.
#[derive(Debug)]
pub struct DedupWindow {
    shelf: Arc<RunFiles>,
    recent: RecentIds,
    /// Files, oldest first.
    runs: Vec<Arc<SortedRun>>,
    /// After each entry that a snapshot may yet be labelled with; at least one.
    moments: VecDeque<LogTime>,
    /// What entries up to this index brought can be seen.
    shown: u64,
    /// Pages and files that cannot be read: ids in them are not known any more.
    damaged: u64,
    /// Grows when everything is replaced.
    version: u64,
}

/// The log's time after an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LogTime {
    index: u64,
    stamp: u64,
    /// The longest that any batch wanted ids remembered. Ids of all tenants lie here, so the longest holds for all,
    /// whosever batch moves on.
    span: u64,
    /// Ids with stamps before this are not known any more, and never again, though the span may grow.
    horizon: u64,
    /// The log's time where it was cut: what came later lies in no block, so none of it is forgotten. A shard that asks
    /// for such an id must be told that it is held [INV-13].
    floor: u64,
}

/// How the times of a window are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimesFormat {
    /// As now.
    WithFloor,
    /// As by builds that forgot ids whose records lay in no block yet.
    WithoutFloor,
}

/// What of a window a snapshot holds.
pub struct WindowSnapshot {
    window: Arc<Mutex<DedupWindow>>,
    shelf: Arc<RunFiles>,
    version: u64,
    to: u64,
    moment: LogTime,
    /// Those that go to a file now.
    records: Vec<IdRecord>,
    /// Or else those that stay where they are, as they are written.
    inline: Vec<u8>,
}

fn age(stamp: u64) -> u32 {
    u32::try_from(stamp >> STAMP_AGE_BITS).unwrap_or(u32::MAX)
}

/// Stamp, span, horizon and floor.
fn read_times(times: TimesFormat, unpacker: &mut CodecReader<'_>) -> Result<[u64; 4], CodecError> {
    let stamp = unpacker.read_number()?;
    let span = unpacker.read_number()?;
    let horizon = unpacker.read_number()?;
    let floor = match times {
        TimesFormat::WithFloor => unpacker.read_number()?,
        // A snapshot is labelled with a cut: what came up to there lies in blocks.
        TimesFormat::WithoutFloor => stamp,
    };
    Ok([stamp, span, horizon, floor])
}

/// The ids that are in no file, with the entries that brought them and the stamps of these.
fn read_recent(
    unpacker: &mut CodecReader<'_>,
    mut each: impl FnMut(u64, u64, ContentHash),
) -> Result<(), CodecError> {
    let mut stamp = 0u64;
    let mut index = 0u64;
    for _ in 0..unpacker.read_count()? {
        let wrong = unpacker.error_here("a number over 64 bits");
        stamp = stamp.checked_add(unpacker.read_number()?).ok_or(wrong)?;
        index = index.checked_add(unpacker.read_number()?).ok_or(wrong)?;
        for _ in 0..unpacker.read_count()? {
            let mut id = [0; 16];
            id.copy_from_slice(unpacker.read_slice(16)?);
            each(index, stamp, ContentHash::from_le_bytes(id));
        }
    }
    Ok(())
}

/// The files, oldest first.
fn read_names(unpacker: &mut CodecReader<'_>) -> Result<Vec<RunName>, CodecError> {
    let mut names = Vec::new();
    for _ in 0..unpacker.read_count()? {
        let number = unpacker.read_number()?;
        let mut sum = [0; 8];
        sum.copy_from_slice(unpacker.read_slice(8)?);
        names.push(RunName { number, sum: u64::from_le_bytes(sum) });
    }
    Ok(names)
}

// === impl Moment ===

impl LogTime {
    /// The one after an entry that comes later; what came after the floor is not forgotten, and
    /// nothing if `held`.
    fn to(self, index: u64, stamp: u64, span: u64, held: bool) -> Self {
        let stamp = self.stamp.max(stamp);
        let span = self.span.max(span);
        let horizon = if held { 0 } else { stamp.saturating_sub(span).min(self.floor) };
        Self { index, stamp, span, horizon: self.horizon.max(horizon), floor: self.floor }
    }
    /// The age of the oldest id that is known.
    fn oldest(&self) -> u32 {
        age(self.horizon)
    }
}

// === impl Window ===

impl DedupWindow {
    /// An empty one.
    pub fn new(shelf: RunFiles) -> Self {
        Self::on(Arc::new(shelf))
    }
    fn on(shelf: Arc<RunFiles>) -> Self {
        Self {
            shelf,
            recent: RecentIds::default(),
            runs: Vec::new(),
            moments: [LogTime::default()].into(),
            shown: 0,
            damaged: 0,
            version: 0,
        }
    }
    fn now(&self) -> LogTime {
        self.moments.back().copied().unwrap_or_default()
    }
    /// The time after an entry.
    fn at(&self, index: u64) -> LogTime {
        let after = self.moments.partition_point(|moment| moment.index <= index);
        self.moments.get(after.saturating_sub(1)).copied().unwrap_or_default()
    }
    /// The stamp of the last entry, nanoseconds.
    pub fn stamp(&self) -> u64 {
        self.now().stamp
    }
    /// How many ids are held at a stamp, old ones beside younger ones, too.
    pub fn len_at(&self, stamp: u64) -> u64 {
        let now = self.now();
        // Whoever waits for room would wait for a cut, which waits for what is let in.
        let oldest = LogTime { floor: u64::MAX, ..now }.to(u64::MAX, stamp, 0, false).oldest();
        let runs = self.runs.iter().filter(|run| run.newest >= oldest);
        self.recent.len() as u64 + runs.map(|run| run.records).sum::<u64>()
    }
    /// How much of what it held cannot be read any more.
    pub fn damage_count(&self) -> u64 {
        self.damaged
    }
    /// Somebody was told of all that cannot be read.
    pub fn clear_damage_count(&mut self) {
        self.damaged = 0;
    }
    /// Whether an id is known.
    pub fn contains(&mut self, id: ContentHash) -> bool {
        let oldest = self.now().oldest();
        self.recent.find(id).is_some_and(|arrival| age(arrival.stamp) >= oldest) || self.is_filed(id, oldest)
    }
    /// Whether what an id belongs to is known and can be seen already.
    pub fn contains_applied(&mut self, id: ContentHash) -> bool {
        let oldest = self.now().oldest();
        match self.recent.find(id) {
            Some(arrival) if age(arrival.stamp) >= oldest => arrival.index <= self.shown,
            // What is in files was cut.
            _ => self.is_filed(id, oldest),
        }
    }
    fn is_filed(&mut self, id: ContentHash, oldest: u32) -> bool {
        for run in self.runs.iter().rev().filter(|run| run.newest >= oldest) {
            match run.find(&*self.shelf.disk, id) {
                Ok(found) if found.is_some_and(|age| age >= oldest) => return true,
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, "ids cannot be read: a repeat of them counts again");
                    self.damaged += 1;
                }
            }
        }
        false
    }
    /// What the entry at `index` brought can be seen from now on.
    pub fn mark_applied(&mut self, index: u64) {
        self.shown = self.shown.max(index);
    }
    /// Moves to the stamp of the entry at `index`. What is older than the longest span before it, and lies in a block, is
    /// not known any more; nothing is forgotten where it may lie in none, `held`.
    pub fn advance(&mut self, index: u64, stamp: u64, span: u64, held: bool) {
        self.moments.push_back(self.now().to(index, stamp, span, held));
    }
    /// The log's time after an entry, or none if that is not known any more.
    pub fn stamp_at(&self, index: u64) -> u64 {
        if self.moments.front().is_some_and(|first| first.index <= index) { self.at(index).stamp } else { 0 }
    }
    /// The entry at `index` says that all up to `cut`, at a stamp, lies in blocks. No snapshot will be labelled before
    /// that any more: what was too old then is let go of.
    pub fn set_flushed(&mut self, index: u64, cut: u64, stamp: u64) {
        let moment = self.at(cut);
        while self.moments.front().is_some_and(|first| *first != moment) {
            self.moments.pop_front();
        }
        // From here on: a snapshot of the cut says what held then.
        let now = self.now();
        self.moments.push_back(LogTime { index, floor: now.floor.max(stamp), ..now });
        let is_old = |first: EntryIds| first.index <= cut && age(first.stamp) < moment.oldest();
        while self.recent.oldest().is_some_and(is_old) {
            self.recent.pop();
        }
    }
    /// Takes an id in; false if it was there: a repeat.
    pub fn insert(&mut self, index: u64, id: ContentHash) -> bool {
        let new = !self.contains(id);
        if new {
            self.recent.push(index, self.stamp(), id);
        }
        new
    }
    /// Takes ids in; for each whether it is new.
    pub fn insert_all(&mut self, index: u64, ids: &[ContentHash]) -> Vec<bool> {
        ids.iter().map(|&id| self.insert(index, id)).collect()
    }
    /// How long ids are remembered, nanoseconds.
    pub fn span(&self) -> u64 {
        self.now().span
    }
    /// Forgets everything.
    pub fn forget(&mut self) {
        *self = Self { version: self.version + 1, ..Self::on(Arc::clone(&self.shelf)) };
    }
    /// Where its files lie.
    pub fn run_files(&self) -> Arc<RunFiles> {
        Arc::clone(&self.shelf)
    }
    /// The files that a snapshot names.
    pub fn files(
        &self,
        times: TimesFormat,
        unpacker: &mut CodecReader<'_>,
    ) -> Result<Vec<String>, CodecError> {
        read_times(times, unpacker)?;
        read_recent(unpacker, |_, _, _| ())?;
        let names = read_names(unpacker)?;
        Ok(names.iter().map(|name| self.shelf.file(name.number)).collect())
    }
    /// Becomes what a snapshot labelled with an index says. A file that is gone or damaged is counted as such, if nobody
    /// else has it.
    pub fn restore(
        &mut self,
        to: u64,
        alone: bool,
        times: TimesFormat,
        unpacker: &mut CodecReader<'_>,
    ) -> Result<(), CodecError> {
        let mut read = Self { version: self.version + 1, ..Self::on(Arc::clone(&self.shelf)) };
        let [stamp, span, horizon, floor] = read_times(times, unpacker)?;
        (read.moments, read.shown) = ([LogTime { index: to, stamp, span, horizon, floor }].into(), to);
        read_recent(unpacker, |index, stamp, id| read.recent.push(index, stamp, id))?;
        for name in read_names(unpacker)? {
            match SortedRun::open(&*read.shelf.disk, read.shelf.file(name.number), name) {
                Ok(run) => read.runs.push(Arc::new(run)),
                Err(error) if alone => {
                    tracing::error!(%error, "a file of ids cannot be read: a repeat of them counts again");
                    read.damaged += 1;
                }
                Err(error) => {
                    tracing::error!(%error, "a file of ids cannot be read");
                    return Err(unpacker.error_here("a file of ids that cannot be read"));
                }
            }
        }
        *self = read;
        Ok(())
    }
    /// What a snapshot labelled with an entry holds [INV-09]: the ids that were known after it.
    pub fn capture(window: &Arc<Mutex<Self>>, to: u64) -> WindowSnapshot {
        let this = lock(window);
        let mut captured = WindowSnapshot {
            window: Arc::clone(window),
            shelf: Arc::clone(&this.shelf),
            version: this.version,
            to,
            moment: this.at(to),
            records: Vec::new(),
            inline: Vec::new(),
        };
        let count = this.recent.count(to);
        let arrivals = this.recent.arrivals().take_while(|(arrival, _)| arrival.index <= to);
        if count >= this.shelf.batch.max(1) {
            captured.records.reserve_exact(count);
            for (arrival, ids) in arrivals {
                captured.records.extend(ids.map(|id| sorted_run::encode_record(id, age(arrival.stamp))));
            }
            put_varint(&mut captured.inline, 0);
            return captured;
        }
        let mut stamp = 0;
        let mut index = 0;
        let mut entries = 0;
        let mut bytes = Vec::new();
        for (arrival, ids) in arrivals {
            put_varint(&mut bytes, arrival.stamp - stamp);
            put_varint(&mut bytes, arrival.index - index);
            let ids: Vec<ContentHash> = ids.collect();
            put_varint(&mut bytes, ids.len() as u64);
            ids.iter().for_each(|id| bytes.extend_from_slice(&id.to_le_bytes()));
            (stamp, index, entries) = (arrival.stamp, arrival.index, entries + 1);
        }
        put_varint(&mut captured.inline, entries);
        captured.inline.append(&mut bytes);
        captured
    }
    /// A snapshot of the window as it is now is durable: files that it does not name go.
    pub fn remove_unused_files(window: &Mutex<Self>) {
        let shelf = lock(window).run_files();
        let _cleaning = shelf.lock_removal();
        let named: Vec<String> = lock(window).runs.iter().map(|run| shelf.file(run.name.number)).collect();
        shelf.remove_unnamed(&named);
    }
}

// === impl Captured ===

/// Why a window was not written.
#[derive(Debug, thiserror::Error)]
pub enum WindowWriteError {
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// It is another window by now.
    #[error("the window of ids was replaced while it was written")]
    Replaced,
}

impl WindowSnapshot {
    /// Puts what is to go to a file there, merges files, and gives the bytes for the snapshot. Nobody who applies or
    /// asks waits for the disk.
    pub fn write(self) -> Result<Vec<u8>, WindowWriteError> {
        let Self { window, shelf, version, to, moment, records, inline } = self;
        let oldest = moment.oldest();
        let held = || {
            let held = lock(&window);
            if held.version == version { Ok(held) } else { Err(WindowWriteError::Replaced) }
        };
        if !records.is_empty() {
            let run = shelf.write_sorted_run(records)?;
            held()?.runs.push(Arc::new(run));
            // From here on they are there twice, which says the same.
            while held()?.evict_ids(to) {}
        }
        loop {
            let picked = held()?.pick(oldest);
            if picked.len() < 2 {
                break;
            }
            match shelf.merge(&picked, oldest) {
                Ok((merged, damaged)) => held()?.replace_runs(picked.len(), merged, damaged),
                Err(error) => {
                    tracing::warn!(%error, "files of ids were not merged, it will be tried again");
                    break;
                }
            }
        }
        let mut out = Vec::new();
        [moment.stamp, moment.span, moment.horizon, moment.floor]
            .into_iter()
            .for_each(|number| put_varint(&mut out, number));
        out.extend_from_slice(&inline);
        let window = held()?;
        put_varint(&mut out, window.runs.len() as u64);
        for run in &window.runs {
            put_varint(&mut out, run.name.number);
            out.extend_from_slice(&run.name.sum.to_le_bytes());
        }
        Ok(out)
    }
}

impl DedupWindow {
    /// Lets go of some ids of entries up to an index; false if there are none.
    fn evict_ids(&mut self, to: u64) -> bool {
        for _ in 0..MAX_IDS_PER_EVICTION {
            if self.recent.oldest().is_none_or(|first| first.index > to) {
                self.recent.shrink();
                return false;
            }
            self.recent.pop();
        }
        true
    }
    /// Drops files of which all is too old, and names the youngest ones that are to become one: no file is larger than
    /// all younger ones together, so there are few.
    fn pick(&mut self, oldest: u32) -> Vec<Arc<SortedRun>> {
        self.runs.retain(|run| run.newest >= oldest);
        let Some((last, older)) = self.runs.split_last() else { return Vec::new() };
        let mut records = last.records;
        let mut count = 1;
        for run in older.iter().rev() {
            if run.records > records || run.records + records > MAX_MERGED_RUN_IDS {
                break;
            }
            (records, count) = (records + run.records, count + 1);
        }
        self.runs[self.runs.len() - count..].to_vec()
    }
    /// Puts a file in place of the youngest ones.
    fn replace_runs(&mut self, count: usize, merged: SortedRun, damaged: u64) {
        self.runs.truncate(self.runs.len() - count);
        self.runs.push(Arc::new(merged));
        self.damaged += damaged;
    }
}

#[cfg(test)]
mod tests;
