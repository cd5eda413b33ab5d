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
use athanor_chassis::{Activity, Disk};

use super::Config;
use super::frame::BLOCK;

/// The smallest file is no smaller: it has a frame of some blocks.
const MIN_CAPACITY: u64 = 4 * BLOCK;
/// Until the disk is asked again whether it has room for another file.
const PAUSE: Duration = Duration::from_millis(100);
/// And at most, where it fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Segments {
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
    shelf: Mutex<Shelf>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Shelf {
    ready: VecDeque<Spare>,
    next: u64,
    closed: bool,
}

/// A prepared file.
#[derive(Debug)]
struct Spare {
    file: String,
    capacity: u64,
}

pub(crate) fn name(number: u64) -> String {
    format!("{number:012}.log")
}

/// The number in a name with this ending. What a log would not have named like this is somebody else's.
fn number(name: &str, ending: &str, limit: u64) -> Option<u64> {
    let number = name.strip_suffix(ending)?.parse().ok()?;
    (number < limit && name == format!("{number:012}{ending}")).then_some(number)
}

/// How much of a segment its file has.
pub(crate) fn capacity(disk: &dyn Disk, file: &str, size: u64) -> Result<u64, DiskError> {
    Ok(disk.len(file)?.min(size) / BLOCK * BLOCK)
}

/// Removes a prepared file of a log that is not open, unless it is the last one; false if nothing is removed.
pub fn release_spare(disk: &dyn Disk) -> Result<bool, DiskError> {
    let names = disk.list()?.into_iter();
    let mut spares: Vec<String> = names.filter(|name| number(name, ".spare", u64::MAX).is_some()).collect();
    spares.sort_unstable();
    match spares.pop().filter(|_| !spares.is_empty()) {
        Some(last) => disk.remove(&last).map(|()| true),
        None => Ok(false),
    }
}

impl Segments {
    /// Looks through the folder: the segments in it, in order, and the prepared files.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        size: u64,
        config: &Config,
    ) -> Result<(Self, Vec<u64>), DiskError> {
        let (mut numbers, mut shelf) = (Vec::new(), Shelf::default());
        // Positions beyond this come from nobody's log, and would not fit into a word with what is added to them.
        let limit = (1 << 62) / size;
        for file in disk.list()? {
            if let Some(number) = number(&file, ".log", limit) {
                numbers.push(number);
            } else if let Some(spare) = number(&file, ".spare", limit) {
                shelf.next = shelf.next.max(spare + 1);
                // A crash while it was being filled leaves it short, but for what it has as good as any.
                let capacity = capacity(&*disk, &file, size)?;
                if capacity >= MIN_CAPACITY {
                    shelf.ready.push_back(Spare { file, capacity });
                } else {
                    disk.remove(&file)?;
                }
            }
        }
        numbers.sort_unstable();
        let smallest = config.smallest.get().clamp(MIN_CAPACITY, size);
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
    pub(crate) fn target(&self) -> u64 {
        self.target.load(Ordering::Relaxed)
    }

    /// The capacity of a new file whose first frames take so many bytes. They are a quarter of it at most, if a segment
    /// allows that: else files would be half empty, and what lives in them would be written forward without end.
    pub(crate) fn capacity_for(&self, need: u64) -> u64 {
        (4 * need).next_power_of_two().max(self.target()).min(self.size)
    }

    /// Removes prepared files that are larger than those that are prepared now: the load that they were for is over. Where the
    /// disk has no space for others they stay.
    pub(crate) fn trim(&self) -> Result<(), DiskError> {
        let target = self.target();
        if self.disk.free()? < self.reserve.saturating_add(target) {
            return Ok(());
        }
        let mut shelf = self.shelf();
        let spares = std::mem::take(&mut shelf.ready).into_iter();
        let (larger, kept): (VecDeque<Spare>, VecDeque<Spare>) =
            spares.partition(|spare| spare.capacity > target);
        shelf.ready = kept;
        drop(shelf);
        larger.iter().try_for_each(|spare| self.disk.remove(&spare.file))
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a prepared file the segment of this number, durably, whose first frames take `need` bytes; prepares one if
    /// none is large enough. Returns its capacity.
    pub(crate) fn begin(&self, number: u64, need: u64) -> Result<u64, DiskError> {
        let Spare { file, capacity } = match self.take_ready(need) {
            Some(spare) => spare,
            // A disk that is full has no other file than a prepared one that the frames just fit into.
            None => match self.fill(self.capacity_for(need)) {
                Ok(spare) => spare,
                Err(error) => self.take_largest(need).ok_or(error)?,
            },
        };
        self.disk.rename(&file, &name(number))?;
        // Before the first write: else the bytes could survive under the file's old name and be met again.
        self.disk.sync_dir()?;
        self.wake.notify_all();
        Ok(capacity)
    }

    fn take_ready(&self, need: u64) -> Option<Spare> {
        let mut shelf = self.shelf();
        let least = (4 * need).min(self.size);
        let place = shelf.ready.iter().position(|spare| spare.capacity >= least)?;
        shelf.ready.remove(place)
    }

    /// Takes the largest prepared file, if it has so many bytes.
    fn take_largest(&self, need: u64) -> Option<Spare> {
        let mut shelf = self.shelf();
        let (place, _) = shelf.ready.iter().enumerate().max_by_key(|(_, spare)| spare.capacity)?;
        if shelf.ready[place].capacity < need {
            return None;
        }
        shelf.ready.remove(place)
    }

    /// Makes a segment that nobody needs a prepared file.
    pub(crate) fn retire(&self, number: u64) -> Result<(), DiskError> {
        let file = self.new_name();
        let capacity = capacity(&*self.disk, &name(number), self.size)?;
        self.disk.rename(&name(number), &file)?;
        self.shelf().ready.push_back(Spare { file, capacity });
        self.wake.notify_all();
        Ok(())
    }

    /// One step towards as many prepared files as are wanted: makes one or removes one. Says whether there was
    /// something to do.
    pub(crate) fn prepare(&self) -> Result<bool, DiskError> {
        let ready = self.shelf().ready.len();
        if ready > self.wanted {
            if let Some(spare) = self.take_surplus() {
                self.disk.remove(&spare.file)?;
            }
            return Ok(true);
        }
        let target = self.target();
        if self.is_settled(&self.shelf()) || self.disk.free()? < self.reserve.saturating_add(target) {
            return Ok(false);
        }
        // One that is too small for the load of now would never be taken, and is in the place of one that is.
        let too_small = if ready == self.wanted { self.take_smallest() } else { None };
        if let Some(spare) = too_small {
            self.disk.remove(&spare.file)?;
        }
        let spare = self.fill(target)?;
        self.shelf().ready.push_back(spare);
        Ok(true)
    }

    /// Returns the most bytes of frames that a prepared file has.
    pub(crate) fn prepared_bytes(&self) -> u64 {
        self.shelf().ready.iter().map(|spare| spare.capacity).max().unwrap_or(0)
    }

    /// Removes a prepared file from a disk that is full, so that something else can be written; false if the disk has space, or
    /// the last file but `kept` would go.
    pub(crate) fn release(&self, kept: usize) -> Result<bool, DiskError> {
        if self.disk.free()? >= self.size {
            return Ok(false);
        }
        let mut shelf = self.shelf();
        if shelf.ready.len() <= kept {
            return Ok(false);
        }
        let Some(spare) = shelf.ready.pop_back() else { return Ok(false) };
        drop(shelf);
        self.disk.remove(&spare.file)?;
        Ok(true)
    }

    /// Takes one that is too many: the smallest, if it is smaller than new ones, else the largest.
    fn take_surplus(&self) -> Option<Spare> {
        let target = self.target();
        let mut shelf = self.shelf();
        if shelf.ready.len() <= self.wanted {
            return None;
        }
        let capacities = || shelf.ready.iter().map(|spare| spare.capacity).enumerate();
        let smallest = capacities().min_by_key(|(_, capacity)| *capacity);
        let largest = capacities().max_by_key(|(_, capacity)| *capacity);
        let (place, _) = smallest.filter(|(_, capacity)| *capacity < target).or(largest)?;
        shelf.ready.remove(place)
    }

    fn take_smallest(&self) -> Option<Spare> {
        let mut shelf = self.shelf();
        let (place, _) = shelf.ready.iter().enumerate().min_by_key(|(_, spare)| spare.capacity)?;
        shelf.ready.remove(place)
    }

    /// Whether there are as many prepared files as are wanted, and one of them is as large as new ones.
    fn is_settled(&self, shelf: &Shelf) -> bool {
        let target = self.target();
        let is_large = || shelf.ready.iter().any(|spare| spare.capacity >= target);
        shelf.ready.len() == self.wanted && (self.wanted == 0 || is_large())
    }

    fn fill(&self, capacity: u64) -> Result<Spare, DiskError> {
        let file = self.new_name();
        self.disk.create_zeroed(&file, capacity).inspect_err(|_| {
            // Half a file takes space and is of no use.
            let _ = self.disk.remove(&file);
        })?;
        Ok(Spare { file, capacity })
    }

    fn new_name(&self) -> String {
        let mut shelf = self.shelf();
        let number = shelf.next;
        shelf.next += 1;
        format!("{number:012}.spare")
    }

    /// The helper: prepares until closed.
    pub(crate) fn run(&self) {
        let mut pause = PAUSE;
        loop {
            match Activity::Log.measure(|| self.prepare()) {
                Ok(true) => {
                    pause = PAUSE;
                    continue;
                }
                Ok(false) => pause = PAUSE,
                Err(error) => {
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    tracing::warn!(%error, again_in = ?pause, "segment not prepared");
                }
            }
            let shelf = self.shelf();
            let settled = |shelf: &mut Shelf| !shelf.closed && self.is_settled(shelf);
            let shelf = self.wake.wait_while(shelf, settled).unwrap_or_else(PoisonError::into_inner);
            if shelf.closed {
                return;
            }
            if !self.is_settled(&shelf) {
                // Either just taken, or there is no room: do not ask the disk without end.
                let waited = self.wake.wait_timeout(shelf, pause).unwrap_or_else(PoisonError::into_inner);
                if waited.0.closed {
                    return;
                }
            }
        }
    }

    pub(crate) fn close(&self) {
        self.shelf().closed = true;
        self.wake.notify_all();
    }
}
