//! The files: segments in use, and prepared ones that wait.
//!
//! A file is filled with zeros and synced before it is written to, so that a commit changes bytes only; it is
//! recycled by renaming. Preparing is for a helper: on the commit path it would take a fifth of a second.
//!
//! A position is the number of a segment times the size of a segment, plus an offset. A file may be shorter than that:
//! files are small while little lives in the log, and grow with it, so that an idle log takes little disk. What a file
//! does not have of its segment is never written.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use athanor_chassis::disk::DiskError;
use athanor_chassis::{CpuActivity, Disk};

use super::LogConfig;
use super::frame::FRAME_ALIGNMENT_BYTES;

/// The smallest file is no smaller: it has a frame of some blocks.
const MIN_SEGMENT_FILE_BYTES: u64 = 4 * FRAME_ALIGNMENT_BYTES;
/// Until the disk is asked again whether it has room for another file.
const SPARE_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// And at most, where it fails.
const MAX_SPARE_RETRY_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct SegmentFiles {
    pub(crate) disk: Arc<dyn Disk>,
    /// The size of a segment: the most that its file has.
    pub(crate) size: u64,
    /// The least that a new file has.
    smallest: u64,
    /// What a file has that is prepared now.
    target: AtomicU64,
    /// How many prepared files to keep.
    wanted: usize,
    /// Free bytes below which nothing is prepared.
    reserve: u64,
    shelf: Mutex<SparePool>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct SparePool {
    ready: VecDeque<SpareFile>,
    next: u64,
    closed: bool,
}

/// A prepared file.
#[derive(Debug)]
struct SpareFile {
    file: String,
    capacity: u64,
}

pub(crate) fn segment_file_name(number: u64) -> String {
    format!("{number:012}.log")
}

/// The number in a name with this ending. What a log would not have named like this is somebody else's.
fn parse_file_number(name: &str, ending: &str, limit: u64) -> Option<u64> {
    let number = name.strip_suffix(ending)?.parse().ok()?;
    (number < limit && name == format!("{number:012}{ending}")).then_some(number)
}

/// How much of a segment its file has.
pub(crate) fn file_capacity(disk: &dyn Disk, file: &str, size: u64) -> Result<u64, DiskError> {
    Ok(disk.len(file)?.min(size) / FRAME_ALIGNMENT_BYTES * FRAME_ALIGNMENT_BYTES)
}

/// Removes a prepared file of a log that is not open, unless it is the last one; false if nothing is removed.
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
    /// Looks through the folder: the segments in it, in order, and the prepared files.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        size: u64,
        config: &LogConfig,
    ) -> Result<(Self, Vec<u64>), DiskError> {
        let mut numbers = Vec::new();
        let mut shelf = SparePool::default();
        // Positions beyond this come from nobody's log, and would not fit into a word with what is added to them.
        let limit = (1 << 62) / size;
        for file in disk.list()? {
            if let Some(number) = parse_file_number(&file, ".log", limit) {
                numbers.push(number);
            } else if let Some(spare) = parse_file_number(&file, ".spare", limit) {
                shelf.next = shelf.next.max(spare + 1);
                // A crash while it was being filled leaves it short, but for what it has as good as any.
                let capacity = file_capacity(&*disk, &file, size)?;
                if capacity >= MIN_SEGMENT_FILE_BYTES {
                    shelf.ready.push_back(SpareFile { file, capacity });
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
            shelf: Mutex::new(shelf),
            wake: Condvar::new(),
        };
        Ok((segments, numbers))
    }

    /// Sets how large the files are that are prepared from now on, by the bytes that live in the log.
    pub(crate) fn grow_with(&self, live: u64) {
        let power_of_two = (live / 2).checked_ilog2().map_or(0, |exponent| 1 << exponent);
        self.target.store(power_of_two.clamp(self.smallest, self.size), Ordering::Relaxed);
    }

    /// The capacity of a file that is prepared now.
    pub(crate) fn target_capacity(&self) -> u64 {
        self.target.load(Ordering::Relaxed)
    }

    /// The capacity of a new file whose first frames take so many bytes. They are a quarter of it at most, if a segment
    /// allows that: else files would be half empty, and what lives in them would be written forward without end.
    pub(crate) fn capacity_for(&self, need: u64) -> u64 {
        (4 * need).next_power_of_two().max(self.target_capacity()).min(self.size)
    }

    /// Removes prepared files that are larger than those that are prepared now: the load that they were for is over. Where the
    /// disk has no space for others they stay.
    pub(crate) fn remove_oversized_spares(&self) -> Result<(), DiskError> {
        let target = self.target_capacity();
        if self.disk.free_bytes()? < self.reserve.saturating_add(target) {
            return Ok(());
        }
        let mut shelf = self.spares();
        let spares = std::mem::take(&mut shelf.ready).into_iter();
        let (larger, kept): (VecDeque<SpareFile>, VecDeque<SpareFile>) =
            spares.partition(|spare| spare.capacity > target);
        shelf.ready = kept;
        drop(shelf);
        larger.iter().try_for_each(|spare| self.disk.remove(&spare.file))
    }

    fn spares(&self) -> MutexGuard<'_, SparePool> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a prepared file the segment of this number, durably, whose first frames take `need` bytes; prepares one if
    /// none is large enough. Returns its capacity.
    pub(crate) fn begin_segment(&self, number: u64, need: u64) -> Result<u64, DiskError> {
        let SpareFile { file, capacity } = match self.take_ready(need) {
            Some(spare) => spare,
            // A disk that is full has no other file than a prepared one that the frames just fit into.
            None => match self.create_spare(self.capacity_for(need)) {
                Ok(spare) => spare,
                Err(error) => self.take_largest(need).ok_or(error)?,
            },
        };
        self.disk.rename(&file, &segment_file_name(number))?;
        // Before the first write: else the bytes could survive under the file's old name and be met again.
        self.disk.sync_dir()?;
        self.wake.notify_all();
        Ok(capacity)
    }

    fn take_ready(&self, need: u64) -> Option<SpareFile> {
        let mut shelf = self.spares();
        let least = (4 * need).min(self.size);
        let place = shelf.ready.iter().position(|spare| spare.capacity >= least)?;
        shelf.ready.remove(place)
    }

    /// Takes the largest prepared file, if it has so many bytes.
    fn take_largest(&self, need: u64) -> Option<SpareFile> {
        let mut shelf = self.spares();
        let (place, _) = shelf.ready.iter().enumerate().max_by_key(|(_, spare)| spare.capacity)?;
        if shelf.ready[place].capacity < need {
            return None;
        }
        shelf.ready.remove(place)
    }

    /// Makes a segment that nobody needs a prepared file.
    pub(crate) fn recycle_segment(&self, number: u64) -> Result<(), DiskError> {
        let file = self.new_spare_name();
        let capacity = file_capacity(&*self.disk, &segment_file_name(number), self.size)?;
        self.disk.rename(&segment_file_name(number), &file)?;
        self.spares().ready.push_back(SpareFile { file, capacity });
        self.wake.notify_all();
        Ok(())
    }

    /// One step towards as many prepared files as are wanted: makes one or removes one. Says whether there was
    /// something to do.
    pub(crate) fn prepare_spare(&self) -> Result<bool, DiskError> {
        let ready = self.spares().ready.len();
        if ready > self.wanted {
            if let Some(spare) = self.take_surplus() {
                self.disk.remove(&spare.file)?;
            }
            return Ok(true);
        }
        let target = self.target_capacity();
        if self.has_enough_spares(&self.spares())
            || self.disk.free_bytes()? < self.reserve.saturating_add(target)
        {
            return Ok(false);
        }
        // One that is too small for the load of now would never be taken, and is in the place of one that is.
        let too_small = if ready == self.wanted { self.take_smallest() } else { None };
        if let Some(spare) = too_small {
            self.disk.remove(&spare.file)?;
        }
        let spare = self.create_spare(target)?;
        self.spares().ready.push_back(spare);
        Ok(true)
    }

    /// Returns the most bytes of frames that a prepared file has.
    pub(crate) fn prepared_bytes(&self) -> u64 {
        self.spares().ready.iter().map(|spare| spare.capacity).max().unwrap_or(0)
    }

    /// Removes a prepared file from a disk that is full, so that something else can be written; false if the disk has space, or
    /// the last file but `kept` would go.
    pub(crate) fn release_spare_if_full(&self, kept: usize) -> Result<bool, DiskError> {
        if self.disk.free_bytes()? >= self.size {
            return Ok(false);
        }
        let mut shelf = self.spares();
        if shelf.ready.len() <= kept {
            return Ok(false);
        }
        let Some(spare) = shelf.ready.pop_back() else { return Ok(false) };
        drop(shelf);
        self.disk.remove(&spare.file)?;
        Ok(true)
    }

    /// Takes one that is too many: the smallest, if it is smaller than new ones, else the largest.
    fn take_surplus(&self) -> Option<SpareFile> {
        let target = self.target_capacity();
        let mut shelf = self.spares();
        if shelf.ready.len() <= self.wanted {
            return None;
        }
        let capacities = || shelf.ready.iter().map(|spare| spare.capacity).enumerate();
        let smallest = capacities().min_by_key(|(_, capacity)| *capacity);
        let largest = capacities().max_by_key(|(_, capacity)| *capacity);
        let (place, _) = smallest.filter(|(_, capacity)| *capacity < target).or(largest)?;
        shelf.ready.remove(place)
    }

    fn take_smallest(&self) -> Option<SpareFile> {
        let mut shelf = self.spares();
        let (place, _) = shelf.ready.iter().enumerate().min_by_key(|(_, spare)| spare.capacity)?;
        shelf.ready.remove(place)
    }

    /// Whether there are as many prepared files as are wanted, and one of them is as large as new ones.
    fn has_enough_spares(&self, shelf: &SparePool) -> bool {
        let target = self.target_capacity();
        let is_large = || shelf.ready.iter().any(|spare| spare.capacity >= target);
        shelf.ready.len() == self.wanted && (self.wanted == 0 || is_large())
    }

    fn create_spare(&self, capacity: u64) -> Result<SpareFile, DiskError> {
        let file = self.new_spare_name();
        self.disk.create_zeroed(&file, capacity).inspect_err(|_| {
            // Half a file takes space and is of no use.
            let _ = self.disk.remove(&file);
        })?;
        Ok(SpareFile { file, capacity })
    }

    fn new_spare_name(&self) -> String {
        let mut shelf = self.spares();
        let number = shelf.next;
        shelf.next += 1;
        format!("{number:012}.spare")
    }

    /// The helper: prepares until closed.
    pub(crate) fn run_preparer(&self) {
        let mut pause = SPARE_RETRY_INTERVAL;
        loop {
            match CpuActivity::Log.measure(|| self.prepare_spare()) {
                Ok(true) => {
                    pause = SPARE_RETRY_INTERVAL;
                    continue;
                }
                Ok(false) => pause = SPARE_RETRY_INTERVAL,
                Err(error) => {
                    pause = (pause * 2).min(MAX_SPARE_RETRY_INTERVAL);
                    tracing::warn!(%error, again_in = ?pause, "segment not prepared");
                }
            }
            let shelf = self.spares();
            let settled = |shelf: &mut SparePool| !shelf.closed && self.has_enough_spares(shelf);
            let shelf = self.wake.wait_while(shelf, settled).unwrap_or_else(PoisonError::into_inner);
            if shelf.closed {
                return;
            }
            if !self.has_enough_spares(&shelf) {
                // Either just taken, or there is no room: do not ask the disk without end.
                let waited = self.wake.wait_timeout(shelf, pause).unwrap_or_else(PoisonError::into_inner);
                if waited.0.closed {
                    return;
                }
            }
        }
    }

    pub(crate) fn close(&self) {
        self.spares().closed = true;
        self.wake.notify_all();
    }
}
