//! Dedup window: the ids of recent records, by which duplicates are recognized [INV-10, INV-11].
//!
//! ```text
//!  recent ids, in memory ──flush──► sorted file ──► merged with older files
//!                                   filter in memory: less than two bytes an id
//! ```
//! Log time is the log's own: each entry carries a *stamp*, the previous stamp plus the time since, by the
//! leader's monotonic clock. So all members forget the same ids at the same entry, whatever their clocks
//! show. A failover can only lengthen the window. The age of an id follows from its entry, to about a second,
//! wherever the id is stored. So neither a move to a file nor a merge changes a verdict, and a replay of the
//! log has the same results.
//!
//! A file holds only ids of flushed entries. A snapshot labeled with the flushed index names the files, and
//! contains the ids that are in none. Files that the newest snapshot does not name are removed.

mod bloom_filter;
mod id_page;
mod memtable;
mod run_files;
mod sorted_run;

use std::collections::VecDeque;
use std::sync::Arc;

use athanor_chassis::disk::DiskError;
use athanor_profile::encoding::codec::{CodecError, CodecReader, put_varint};
use athanor_profile::encoding::hash::ContentHash;
use parking_lot::Mutex;

use memtable::{EntryIds, RecentIds};
use sorted_run::{IdRecord, RunName, SortedRun};

pub use run_files::RunFiles;

/// Low bits of a stamp in nanoseconds that an age leaves out: ages are exact to about a second.
const STAMP_AGE_BITS: u32 = 30;
/// Maximum ids of a merged file. Merging takes memory for a second filter, and old ids are dropped with their
/// whole file.
const MAX_MERGED_RUN_IDS: u64 = 16 << 20;
/// Maximum ids evicted under one lock: the thread that applies entries waits that long.
const MAX_IDS_PER_EVICTION: usize = 1 << 14;

/// Dedup window of a shard: the ids of recent records.
#[derive(Debug)]
pub struct DedupWindow {
    shelf: Arc<RunFiles>,
    recent: RecentIds,
    /// Sorted files, oldest first.
    runs: Vec<Arc<SortedRun>>,
    /// Log times after entries with which a snapshot may yet be labeled; at least one.
    moments: VecDeque<LogTime>,
    /// Index up to which the records of entries are visible.
    shown: u64,
    /// Number of unreadable pages and files. The ids in them are not known any more.
    damaged: u64,
    /// Version that grows when the whole window is replaced.
    version: u64,
}

/// Log time after an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LogTime {
    index: u64,
    stamp: u64,
    /// Longest time for which any batch requires ids to be kept. It holds for the ids of all tenants,
    /// whichever batch advances the log time.
    span: u64,
    /// Stamp before which ids are forgotten. It never decreases, though the span may grow.
    horizon: u64,
    /// Log time of the flushed index. Later ids are in no block, so none of them is forgotten. A shard that
    /// requests such an id must learn that it is held [INV-13].
    floor: u64,
}

/// Part of a window that a snapshot contains.
pub struct WindowSnapshot {
    window: Arc<Mutex<DedupWindow>>,
    shelf: Arc<RunFiles>,
    version: u64,
    to: u64,
    moment: LogTime,
    /// Records that this snapshot moves to a file.
    records: Vec<IdRecord>,
    /// Encoded ids that stay in memory, if no file is written.
    inline: Vec<u8>,
}

fn age(stamp: u64) -> u32 {
    u32::try_from(stamp >> STAMP_AGE_BITS).unwrap_or(u32::MAX)
}

/// Reads stamp, span, horizon and floor.
fn read_times(unpacker: &mut CodecReader<'_>) -> Result<[u64; 4], CodecError> {
    let stamp = unpacker.read_number()?;
    let span = unpacker.read_number()?;
    let horizon = unpacker.read_number()?;
    let floor = unpacker.read_number()?;
    Ok([stamp, span, horizon, floor])
}

/// Reads the ids that are in no file, with their entries and stamps.
fn read_recent(
    unpacker: &mut CodecReader<'_>,
    mut each: impl FnMut(u64, u64, ContentHash),
) -> Result<(), CodecError> {
    let mut stamp = 0u64;
    let mut index = 0u64;
    for _ in 0..unpacker.read_count()? {
        let wrong = unpacker.error_here("number over 64 bits");
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

/// Reads the names of the files, oldest first.
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

// === impl LogTime ===

impl LogTime {
    /// Returns the time after a later entry. No id after the floor is forgotten, and none at all if `held`.
    fn to(self, index: u64, stamp: u64, span: u64, held: bool) -> Self {
        let stamp = self.stamp.max(stamp);
        let span = self.span.max(span);
        let horizon = if held { 0 } else { stamp.saturating_sub(span).min(self.floor) };
        Self { index, stamp, span, horizon: self.horizon.max(horizon), floor: self.floor }
    }
    /// Returns the age of the oldest known id.
    fn oldest(&self) -> u32 {
        age(self.horizon)
    }
}

// === impl DedupWindow ===

impl DedupWindow {
    /// Creates an empty window.
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
    /// Returns the log time after an entry.
    fn at(&self, index: u64) -> LogTime {
        let after = self.moments.partition_point(|moment| moment.index <= index);
        self.moments.get(after.saturating_sub(1)).copied().unwrap_or_default()
    }
    /// Returns the stamp of the last entry, nanoseconds.
    pub fn stamp(&self) -> u64 {
        self.now().stamp
    }
    /// Counts the ids that are held at a stamp. Old ids beside younger ones count, too.
    pub fn len_at(&self, stamp: u64) -> u64 {
        let now = self.now();
        // The floor is ignored: clients that wait for free ids would wait for a flush, which waits for new
        // profiles.
        let oldest = LogTime { floor: u64::MAX, ..now }.to(u64::MAX, stamp, 0, false).oldest();
        let runs = self.runs.iter().filter(|run| run.newest >= oldest);
        self.recent.len() as u64 + runs.map(|run| run.records).sum::<u64>()
    }
    /// Returns the number of unreadable pages and files.
    pub fn damage_count(&self) -> u64 {
        self.damaged
    }
    /// Resets the damage count after the damage was reported.
    pub fn clear_damage_count(&mut self) {
        self.damaged = 0;
    }
    /// Returns whether an id is known.
    pub fn contains(&mut self, id: ContentHash) -> bool {
        let oldest = self.now().oldest();
        self.recent.find(id).is_some_and(|arrival| age(arrival.stamp) >= oldest) || self.is_filed(id, oldest)
    }
    /// Returns whether an id is known and its record is visible.
    pub fn contains_applied(&mut self, id: ContentHash) -> bool {
        let oldest = self.now().oldest();
        match self.recent.find(id) {
            Some(arrival) if age(arrival.stamp) >= oldest => arrival.index <= self.shown,
            // Files hold only ids of flushed entries.
            _ => self.is_filed(id, oldest),
        }
    }
    fn is_filed(&mut self, id: ContentHash, oldest: u32) -> bool {
        for run in self.runs.iter().rev().filter(|run| run.newest >= oldest) {
            match run.find(&*self.shelf.disk, id) {
                Ok(found) if found.is_some_and(|age| age >= oldest) => return true,
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, "failed to read dedup ids, their duplicates are stored");
                    self.damaged += 1;
                }
            }
        }
        false
    }
    /// Marks the records of the entry at `index` as visible.
    pub fn mark_applied(&mut self, index: u64) {
        self.shown = self.shown.max(index);
    }
    /// Advances to the stamp of the entry at `index`. IDs older than the longest span are forgotten if their
    /// records are in a block. If `held`, records may be in no block, and no id is forgotten.
    pub fn advance(&mut self, index: u64, stamp: u64, span: u64, held: bool) {
        self.moments.push_back(self.now().to(index, stamp, span, held));
    }
    /// Returns the log time after an entry, or 0 if it is not known any more.
    pub fn stamp_at(&self, index: u64) -> u64 {
        if self.moments.front().is_some_and(|first| first.index <= index) { self.at(index).stamp } else { 0 }
    }
    /// Applies a flush marker at `index`: all entries up to `cut`, with this stamp, are in blocks. No later
    /// snapshot is labeled before `cut`, so ids that were too old at that entry are dropped.
    pub fn set_flushed(&mut self, index: u64, cut: u64, stamp: u64) {
        let moment = self.at(cut);
        while self.moments.front().is_some_and(|first| *first != moment) {
            self.moments.pop_front();
        }
        // The floor holds from here on: a snapshot labeled with `cut` contains the state as of `cut`.
        let now = self.now();
        self.moments.push_back(LogTime { index, floor: now.floor.max(stamp), ..now });
        let is_old = |first: EntryIds| first.index <= cut && age(first.stamp) < moment.oldest();
        while self.recent.oldest().is_some_and(is_old) {
            self.recent.pop();
        }
    }
    /// Inserts an id. Returns false if it is known, as for a duplicate.
    pub fn insert(&mut self, index: u64, id: ContentHash) -> bool {
        let new = !self.contains(id);
        if new {
            self.recent.push(index, self.stamp(), id);
        }
        new
    }
    /// Inserts ids. Returns for each whether it is new.
    pub fn insert_all(&mut self, index: u64, ids: &[ContentHash]) -> Vec<bool> {
        ids.iter().map(|&id| self.insert(index, id)).collect()
    }
    /// Returns the time for which ids are kept, nanoseconds.
    pub fn span(&self) -> u64 {
        self.now().span
    }
    /// Resets the window to an empty one.
    pub fn forget(&mut self) {
        *self = Self { version: self.version + 1, ..Self::on(Arc::clone(&self.shelf)) };
    }
    /// Returns the store of its sorted files.
    pub fn run_files(&self) -> Arc<RunFiles> {
        Arc::clone(&self.shelf)
    }
    /// Returns the files that a snapshot names.
    pub fn files(&self, unpacker: &mut CodecReader<'_>) -> Result<Vec<String>, CodecError> {
        read_times(unpacker)?;
        read_recent(unpacker, |_, _, _| ())?;
        let names = read_names(unpacker)?;
        Ok(names.iter().map(|name| self.shelf.file(name.number)).collect())
    }
    /// Restores the window from a snapshot labeled with `to`. If no other member has a missing or damaged
    /// file (`alone`), the file counts as damage. Otherwise it fails the restore.
    pub fn restore(
        &mut self,
        to: u64,
        alone: bool,
        unpacker: &mut CodecReader<'_>,
    ) -> Result<(), CodecError> {
        let mut read = Self { version: self.version + 1, ..Self::on(Arc::clone(&self.shelf)) };
        let [stamp, span, horizon, floor] = read_times(unpacker)?;
        (read.moments, read.shown) = ([LogTime { index: to, stamp, span, horizon, floor }].into(), to);
        read_recent(unpacker, |index, stamp, id| read.recent.push(index, stamp, id))?;
        for name in read_names(unpacker)? {
            match SortedRun::open(&*read.shelf.disk, read.shelf.file(name.number), name) {
                Ok(run) => read.runs.push(Arc::new(run)),
                Err(error) if alone => {
                    tracing::error!(%error, "failed to read dedup id file, duplicates of its ids are stored");
                    read.damaged += 1;
                }
                Err(error) => {
                    tracing::error!(%error, "failed to read dedup id file");
                    return Err(unpacker.error_here("unreadable dedup id file"));
                }
            }
        }
        *self = read;
        Ok(())
    }
    /// Captures the ids that were known after an entry, for a snapshot labeled with it [INV-09].
    pub fn capture(window: &Arc<Mutex<Self>>, to: u64) -> WindowSnapshot {
        let this = window.lock();
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
    /// Removes files that the window does not name, once a snapshot of it is durable.
    pub fn remove_unused_files(window: &Mutex<Self>) {
        let shelf = window.lock().run_files();
        let _cleaning = shelf.lock_removal();
        let named: Vec<String> = window.lock().runs.iter().map(|run| shelf.file(run.name.number)).collect();
        shelf.remove_unnamed(&named);
    }
}

// === impl WindowSnapshot ===

/// Reason why a window was not written.
#[derive(Debug, thiserror::Error)]
pub enum WindowWriteError {
    /// A disk operation of the snapshot failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The window was replaced meanwhile.
    #[error("the dedup window was replaced during the write")]
    Replaced,
}

impl WindowSnapshot {
    /// Writes the captured ids to a file, merges files and returns the bytes of the snapshot. Neither apply
    /// nor lookups wait for the disk.
    pub fn write(self) -> Result<Vec<u8>, WindowWriteError> {
        let Self { window, shelf, version, to, moment, records, inline } = self;
        let oldest = moment.oldest();
        let held = || {
            let held = window.lock();
            if held.version == version { Ok(held) } else { Err(WindowWriteError::Replaced) }
        };
        if !records.is_empty() {
            let run = shelf.write_sorted_run(records)?;
            held()?.runs.push(Arc::new(run));
            // From here on the ids are in memory and in the file, which changes no verdict.
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
                    tracing::warn!(%error, "failed to merge dedup id files, will retry");
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
    /// Evicts some ids of entries up to an index. Returns false when none are left.
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
    /// Drops files with only expired ids. Returns the youngest files to merge: none is larger than all
    /// younger ones together, so that few files remain.
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
    /// Replaces the youngest files by the merged one.
    fn replace_runs(&mut self, count: usize, merged: SortedRun, damaged: u64) {
        self.runs.truncate(self.runs.len() - count);
        self.runs.push(Arc::new(merged));
        self.damaged += damaged;
    }
}

#[cfg(test)]
mod tests;
