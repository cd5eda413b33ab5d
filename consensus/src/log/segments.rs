//! Segment files: segments in use, and prepared files for later segments.
//!
//! A file is filled with zeros and synced before its first write, so a commit changes only the file's bytes.
//! Files are recycled by renaming. A helper thread prepares files, because on the commit path it would take a
//! fifth of a second.
//!
//! A position is the number of a segment times the segment size, plus an offset. A file may be shorter than
//! its segment. Files are small while the log holds little live data, and grow with it, so an idle log takes
//! little disk space. The part of a segment that its file does not have is never written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::disk::DiskError;
use athanor_chassis::{CpuActivity, Disk};
use parking_lot::{Condvar, Mutex};

use super::LogConfig;
use super::frame::FRAME_ALIGNMENT_BYTES;

/// Minimum size of a segment file: some frames of one block each.
const MIN_SEGMENT_FILE_BYTES: u64 = 4 * FRAME_ALIGNMENT_BYTES;
/// Delay before the helper checks the disk once more for space for another file.
const SPARE_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Limit of the delay, which doubles after each failure.
const MAX_SPARE_RETRY_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct SegmentFiles {
    pub(crate) disk: Arc<dyn Disk>,
    /// Full size of a segment, the limit of its file.
    pub(crate) size: u64,
    /// Minimum size of a new file.
    smallest: u64,
    /// Size of files that are prepared now.
    target: AtomicU64,
    /// Number of prepared files to keep.
    wanted: usize,
    /// Free bytes below which no file is prepared.
    reserve: u64,
    spares: Mutex<SparePool>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct SparePool {
    ready: VecDeque<SpareFile>,
    next: u64,
    closed: bool,
}

/// Prepared file for a later segment.
#[derive(Debug)]
struct SpareFile {
    file: String,
    capacity: u64,
}

pub(crate) fn segment_file_name(number: u64) -> String {
    format!("{number:012}.log")
}

/// Returns the number in a file name with this ending. Names that the log would not have created belong to
/// others.
fn parse_file_number(name: &str, ending: &str, limit: u64) -> Option<u64> {
    let number = name.strip_suffix(ending)?.parse().ok()?;
    (number < limit && name == format!("{number:012}{ending}")).then_some(number)
}

/// Returns the part of a segment that its file has, in whole blocks.
pub(crate) fn file_capacity(disk: &dyn Disk, file: &str, size: u64) -> Result<u64, DiskError> {
    Ok(disk.len(file)?.min(size) / FRAME_ALIGNMENT_BYTES * FRAME_ALIGNMENT_BYTES)
}

/// Removes a prepared file of a log that is not open, unless it is the last one. Returns false if it removes
/// none.
pub fn release_spare(disk: &dyn Disk) -> Result<bool, DiskError> {
    let names = disk.list()?.into_iter();
    let mut spares: Vec<String> =
        names.filter(|name| parse_file_number(name, ".spare", u64::MAX).is_some()).collect();
    spares.sort_unstable();
    match spares.pop().filter(|_| !spares.is_empty()) {
        Some(last) => disk.remove(&last).map(|()| true),
        None => Ok(false),
    }
}

impl SegmentFiles {
    /// Scans the folder. Returns the files, and the numbers of its segments in ascending order.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        size: u64,
        config: &LogConfig,
    ) -> Result<(Self, Vec<u64>), DiskError> {
        let mut numbers = Vec::new();
        let mut pool = SparePool::default();
        // Larger positions cannot come from a valid log, and would overflow a word in later sums.
        let limit = (1 << 62) / size;
        for file in disk.list()? {
            if let Some(number) = parse_file_number(&file, ".log", limit) {
                numbers.push(number);
            } else if let Some(spare) = parse_file_number(&file, ".spare", limit) {
                pool.next = pool.next.max(spare + 1);
                // A crash during filling leaves the file short. Up to its length it is usable.
                let capacity = file_capacity(&*disk, &file, size)?;
                if capacity >= MIN_SEGMENT_FILE_BYTES {
                    pool.ready.push_back(SpareFile { file, capacity });
                } else {
                    disk.remove(&file)?;
                }
            }
        }
        numbers.sort_unstable();
        let smallest = config.smallest.get().clamp(MIN_SEGMENT_FILE_BYTES, size);
        let segments = Self {
            disk,
            size,
            smallest,
            target: AtomicU64::new(smallest),
            wanted: config.spares,
            reserve: config.reserve.get(),
            spares: Mutex::new(pool),
            wake: Condvar::new(),
        };
        Ok((segments, numbers))
    }

    /// Sets the size of files that are prepared from now on, by the live bytes in the log.
    pub(crate) fn grow_with(&self, live: u64) {
        let power_of_two = (live / 2).checked_ilog2().map_or(0, |exponent| 1 << exponent);
        self.target.store(power_of_two.clamp(self.smallest, self.size), Ordering::Relaxed);
    }

    /// Returns the size of files that are prepared now.
    pub(crate) fn target_capacity(&self) -> u64 {
        self.target.load(Ordering::Relaxed)
    }

    /// Returns the size of a new file with first frames of `need` bytes. They take at most a quarter of it,
    /// if the segment size permits. Otherwise files would be half empty, and live entries would be relocated
    /// without end.
    pub(crate) fn capacity_for(&self, need: u64) -> u64 {
        (4 * need).next_power_of_two().max(self.target_capacity()).min(self.size)
    }

    /// Removes prepared files that are larger than the current target, because the load that required them
    /// has ended. If the disk has no space for new files, they stay.
    pub(crate) fn remove_oversized_spares(&self) -> Result<(), DiskError> {
        let target = self.target_capacity();
        if self.disk.free_bytes()? < self.reserve.saturating_add(target) {
            return Ok(());
        }
        let mut pool = self.spares.lock();
        let spares = std::mem::take(&mut pool.ready).into_iter();
        let (larger, kept): (VecDeque<SpareFile>, VecDeque<SpareFile>) =
            spares.partition(|spare| spare.capacity > target);
        pool.ready = kept;
        drop(pool);
        larger.iter().try_for_each(|spare| self.disk.remove(&spare.file))
    }

    /// Turns a prepared file into a segment, durably. Its first frames take `need` bytes. If no prepared file
    /// is large enough, prepares one. Returns the size of the file.
    pub(crate) fn begin_segment(&self, number: u64, need: u64) -> Result<u64, DiskError> {
        let SpareFile { file, capacity } = match self.take_ready(need) {
            Some(spare) => spare,
            // On a full disk the only usable file is a prepared one that the frames just fit into.
            None => match self.create_spare(self.capacity_for(need)) {
                Ok(spare) => spare,
                Err(error) => self.take_largest(need).ok_or(error)?,
            },
        };
        self.disk.rename(&file, &segment_file_name(number))?;
        // Syncs before the first write. Otherwise the bytes could survive under the file's old name and be
        // read later.
        self.disk.sync_dir()?;
        self.wake.notify_all();
        Ok(capacity)
    }

    fn take_ready(&self, need: u64) -> Option<SpareFile> {
        let mut pool = self.spares.lock();
        let least = (4 * need).min(self.size);
        let place = pool.ready.iter().position(|spare| spare.capacity >= least)?;
        pool.ready.remove(place)
    }

    /// Takes the largest prepared file if it has at least `need` bytes.
    fn take_largest(&self, need: u64) -> Option<SpareFile> {
        let mut pool = self.spares.lock();
        let (place, _) = pool.ready.iter().enumerate().max_by_key(|(_, spare)| spare.capacity)?;
        if pool.ready[place].capacity < need {
            return None;
        }
        pool.ready.remove(place)
    }

    /// Turns an unneeded segment into a prepared file.
    pub(crate) fn recycle_segment(&self, number: u64) -> Result<(), DiskError> {
        let file = self.new_spare_name();
        let capacity = file_capacity(&*self.disk, &segment_file_name(number), self.size)?;
        self.disk.rename(&segment_file_name(number), &file)?;
        self.spares.lock().ready.push_back(SpareFile { file, capacity });
        self.wake.notify_all();
        Ok(())
    }

    /// Creates or removes one prepared file, if the pool is not as configured. Returns whether there was
    /// anything to do.
    pub(crate) fn prepare_spare(&self) -> Result<bool, DiskError> {
        let ready = self.spares.lock().ready.len();
        if ready > self.wanted {
            if let Some(spare) = self.take_surplus() {
                self.disk.remove(&spare.file)?;
            }
            return Ok(true);
        }
        let target = self.target_capacity();
        if self.has_enough_spares(&self.spares.lock())
            || self.disk.free_bytes()? < self.reserve.saturating_add(target)
        {
            return Ok(false);
        }
        // A file that is too small for the current load would never be taken, and it occupies the place of a
        // usable one.
        let too_small = if ready == self.wanted { self.take_smallest() } else { None };
        if let Some(spare) = too_small {
            self.disk.remove(&spare.file)?;
        }
        let spare = self.create_spare(target)?;
        self.spares.lock().ready.push_back(spare);
        Ok(true)
    }

    /// Returns the size of the largest prepared file, in bytes.
    pub(crate) fn prepared_bytes(&self) -> u64 {
        self.spares.lock().ready.iter().map(|spare| spare.capacity).max().unwrap_or(0)
    }

    /// Removes a prepared file from a full disk to make space for other data. Returns false if the disk has
    /// space, or only `kept` files are left.
    pub(crate) fn release_spare_if_full(&self, kept: usize) -> Result<bool, DiskError> {
        if self.disk.free_bytes()? >= self.size {
            return Ok(false);
        }
        let mut pool = self.spares.lock();
        if pool.ready.len() <= kept {
            return Ok(false);
        }
        let Some(spare) = pool.ready.pop_back() else { return Ok(false) };
        drop(pool);
        self.disk.remove(&spare.file)?;
        Ok(true)
    }

    /// Takes a surplus file: the smallest if it is smaller than new ones, otherwise the largest.
    fn take_surplus(&self) -> Option<SpareFile> {
        let target = self.target_capacity();
        let mut pool = self.spares.lock();
        if pool.ready.len() <= self.wanted {
            return None;
        }
        let capacities = || pool.ready.iter().map(|spare| spare.capacity).enumerate();
        let smallest = capacities().min_by_key(|(_, capacity)| *capacity);
        let largest = capacities().max_by_key(|(_, capacity)| *capacity);
        let (place, _) = smallest.filter(|(_, capacity)| *capacity < target).or(largest)?;
        pool.ready.remove(place)
    }

    fn take_smallest(&self) -> Option<SpareFile> {
        let mut pool = self.spares.lock();
        let (place, _) = pool.ready.iter().enumerate().min_by_key(|(_, spare)| spare.capacity)?;
        pool.ready.remove(place)
    }

    /// Returns whether the pool has the configured number of files, and one of them is as large as new ones.
    fn has_enough_spares(&self, pool: &SparePool) -> bool {
        let target = self.target_capacity();
        let is_large = || pool.ready.iter().any(|spare| spare.capacity >= target);
        pool.ready.len() == self.wanted && (self.wanted == 0 || is_large())
    }

    fn create_spare(&self, capacity: u64) -> Result<SpareFile, DiskError> {
        let file = self.new_spare_name();
        self.disk.create_zeroed(&file, capacity).inspect_err(|_| {
            // A half-written file takes space and is of no use.
            let _ = self.disk.remove(&file);
        })?;
        Ok(SpareFile { file, capacity })
    }

    fn new_spare_name(&self) -> String {
        let mut pool = self.spares.lock();
        let number = pool.next;
        pool.next += 1;
        format!("{number:012}.spare")
    }

    /// Prepares files until the log closes. Runs on the helper thread.
    pub(crate) fn run_preparer(&self) {
        let mut pause = SPARE_RETRY_INTERVAL;
        loop {
            match CpuActivity::Wal.measure(|| self.prepare_spare()) {
                Ok(true) => {
                    pause = SPARE_RETRY_INTERVAL;
                    continue;
                }
                Ok(false) => pause = SPARE_RETRY_INTERVAL,
                Err(error) => {
                    pause = (pause * 2).min(MAX_SPARE_RETRY_INTERVAL);
                    tracing::warn!(%error, again_in = ?pause, "failed to prepare log segment, will retry");
                }
            }
            let mut pool = self.spares.lock();
            let settled = |pool: &mut SparePool| !pool.closed && self.has_enough_spares(pool);
            self.wake.wait_while(&mut pool, settled);
            if pool.closed {
                return;
            }
            if !self.has_enough_spares(&pool) {
                // A file was just taken, or the disk is full. The pause avoids polling the disk in a busy
                // loop.
                self.wake.wait_for(&mut pool, pause);
                if pool.closed {
                    return;
                }
            }
        }
    }

    pub(crate) fn close(&self) {
        self.spares.lock().closed = true;
        self.wake.notify_all();
    }
}
