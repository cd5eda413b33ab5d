//! Files of one dedup window: written, merged, removed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use athanor_chassis::Disk;
use athanor_chassis::disk::DiskError;
use athanor_profile::encoding::hash;
use parking_lot::{Mutex, MutexGuard};

use super::sorted_run::{self, IdRecord, RunReader, RunWriter, SortedRun};

/// Bits of a file number that a node counts up; the other bits distinguish nodes.
const LOCAL_FILE_NUMBER_MASK: u64 = (1 << 24) - 1;

/// Store of the files of one window.
pub struct RunFiles {
    pub(super) disk: Arc<dyn Disk>,
    /// Prefix of the file names.
    prefix: String,
    /// Number of ids from which a file is written; fewer stay in memory and in snapshots.
    pub(super) batch: usize,
    next: AtomicU64,
    /// Lock that is held while files are removed, and while received files arrive.
    cleaning: Mutex<()>,
}

impl RunFiles {
    /// Opens the files of a shard's ids on a node's disk. Members send each other their files, so file
    /// numbers differ between nodes: they begin with a hash of the node's id.
    pub fn open(disk: Arc<dyn Disk>, shard: u32, node: u64, batch: usize) -> Result<Self, DiskError> {
        let prefix = format!("ids-{shard}-");
        let next = AtomicU64::new(0);
        let cleaning = Mutex::default();
        let mut shelf = Self { disk, prefix, batch, next, cleaning };
        let first = (hash::hash_bytes(&node.to_le_bytes()) as u64) & !LOCAL_FILE_NUMBER_MASK;
        let numbers = shelf.files()?.into_iter().filter_map(|name| shelf.number(&name));
        let last = numbers.filter(|number| number & !LOCAL_FILE_NUMBER_MASK == first).max();
        shelf.next = AtomicU64::new(last.map_or(first, |last| last + 1));
        Ok(shelf)
    }
    /// Blocks the removal of files while the guard is held.
    pub fn lock_removal(&self) -> MutexGuard<'_, ()> {
        self.cleaning.lock()
    }
    pub(super) fn file(&self, number: u64) -> String {
        format!("{}{number}", self.prefix)
    }
    fn number(&self, name: &str) -> Option<u64> {
        name.strip_prefix(&self.prefix)?.parse().ok()
    }
    pub(super) fn files(&self) -> Result<Vec<String>, DiskError> {
        Ok(self.disk.list()?.into_iter().filter(|name| self.number(name).is_some()).collect())
    }
    /// Writes a file of records that come in any order.
    pub(super) fn write_sorted_run(&self, mut records: Vec<IdRecord>) -> Result<SortedRun, DiskError> {
        records.sort_unstable();
        let count = records.len() as u64;
        let mut records = records.into_iter().peekable();
        self.write(count, || {
            loop {
                let Some(record) = records.next() else { return Ok(None) };
                // The latest arrival of an id comes last.
                if records
                    .peek()
                    .is_none_or(|next| sorted_run::record_id(next) != sorted_run::record_id(&record))
                {
                    return Ok(Some(record));
                }
            }
        })
    }
    /// Merges files into one, without ids that are too old. Returns also the number of unreadable pages.
    pub(super) fn merge(&self, runs: &[Arc<SortedRun>], oldest: u32) -> Result<(SortedRun, u64), DiskError> {
        let mut pages: Vec<RunReader<'_>> =
            runs.iter().map(|run| RunReader::new(&*self.disk, Arc::clone(run))).collect();
        let mut heap = BinaryHeap::new();
        for (place, pages) in pages.iter_mut().enumerate() {
            heap.extend(pages.next()?.map(|record| Reverse((record, place))));
        }
        let most = runs.iter().map(|run| run.records).sum();
        let merged = self.write(most, || {
            loop {
                let Some(Reverse((record, place))) = heap.pop() else { return Ok(None) };
                heap.extend(pages[place].next()?.map(|record| Reverse((record, place))));
                let later = heap.peek().is_some_and(|Reverse((next, _))| {
                    sorted_run::record_id(next) == sorted_run::record_id(&record)
                });
                if !later && sorted_run::record_age(&record) >= oldest {
                    return Ok(Some(record));
                }
            }
        })?;
        Ok((merged, pages.iter().map(|pages| pages.damaged).sum()))
    }
    fn write(
        &self,
        most: u64,
        mut next: impl FnMut() -> Result<Option<IdRecord>, DiskError>,
    ) -> Result<SortedRun, DiskError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let file = self.file(number);
        let mut written = RunWriter::begin(&*self.disk, file.clone(), number, most);
        let run = loop {
            match (written, next()) {
                (Ok(mut writing), Ok(Some(record))) => written = writing.push(&record).map(|()| writing),
                (Ok(writing), Ok(None)) => break writing.finish(),
                (Err(error), _) | (_, Err(error)) => break Err(error),
            }
        };
        if run.is_err() {
            // A partial file must not fill a full disk. If this fails, the next snapshot removes the file.
            let _ = self.disk.remove(&file);
        }
        run
    }
    pub(super) fn remove_unnamed(&self, named: &[String]) {
        let remove = |files: Vec<String>| -> Result<(), DiskError> {
            let mut unnamed = files.into_iter().filter(|file| !named.contains(file));
            unnamed.try_for_each(|file| self.disk.remove(&file))
        };
        if let Err(error) = self.files().and_then(remove) {
            tracing::warn!(%error, "failed to remove unused dedup id files, will retry");
        }
    }
}

impl fmt::Debug for RunFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunFiles").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
