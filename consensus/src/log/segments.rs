//! The files: segments in use, and prepared ones that wait.
//!
//! A file is filled with zeros and synced before it is written to, so that a commit changes bytes only; it is
//! recycled by renaming. Preparing is for a helper: on the commit path it would take a fifth of a second.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use athanor_chassis::disk::DiskError;
use athanor_chassis::{Activity, Disk};

/// Until the disk is asked again whether it has room for another file.
const PAUSE: Duration = Duration::from_millis(100);
/// And at most, where it fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Segments {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) size: u64,
    /// How many prepared files to keep.
    wanted: usize,
    /// Free bytes below which nothing is prepared.
    reserve: u64,
    shelf: Mutex<Shelf>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Shelf {
    ready: VecDeque<String>,
    next: u64,
    closed: bool,
}

pub(crate) fn name(number: u64) -> String {
    format!("{number:012}.log")
}

/// The number in a name with this ending. What a log would not have named like this is somebody else's.
fn number(name: &str, ending: &str, limit: u64) -> Option<u64> {
    let number = name.strip_suffix(ending)?.parse().ok()?;
    (number < limit && name == format!("{number:012}{ending}")).then_some(number)
}

impl Segments {
    /// Looks through the folder: the segments in it, in order, and the prepared files that are whole.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        size: u64,
        wanted: usize,
        reserve: u64,
    ) -> Result<(Self, Vec<u64>), DiskError> {
        let (mut numbers, mut shelf) = (Vec::new(), Shelf::default());
        // Positions beyond this come from nobody's log, and would not fit into a word with what is added to them.
        let limit = (1 << 62) / size;
        for file in disk.list()? {
            if let Some(number) = number(&file, ".log", limit) {
                numbers.push(number);
            } else if let Some(spare) = number(&file, ".spare", limit) {
                shelf.next = shelf.next.max(spare + 1);
                // A crash while it was being filled leaves it short.
                if disk.len(&file)? == size {
                    shelf.ready.push_back(file);
                } else {
                    disk.remove(&file)?;
                }
            }
        }
        numbers.sort_unstable();
        let shelf = Mutex::new(shelf);
        Ok((Self { disk, size, wanted, reserve, shelf, wake: Condvar::new() }, numbers))
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a prepared file the segment of this number, durably; prepares one if there is none.
    pub(crate) fn begin(&self, number: u64) -> Result<(), DiskError> {
        let ready = self.shelf().ready.pop_front();
        let file = match ready {
            Some(file) => file,
            None => self.fill()?,
        };
        self.disk.rename(&file, &name(number))?;
        // Before the first write: else the bytes could survive under the file's old name and be met again.
        self.disk.sync_dir()?;
        self.wake.notify_all();
        Ok(())
    }

    /// Makes a segment that nobody needs a prepared file.
    pub(crate) fn retire(&self, number: u64) -> Result<(), DiskError> {
        let file = self.new_name();
        self.disk.rename(&name(number), &file)?;
        self.shelf().ready.push_back(file);
        self.wake.notify_all();
        Ok(())
    }

    /// One step towards as many prepared files as are wanted: makes one or removes one. Says whether there was
    /// something to do.
    pub(crate) fn prepare(&self) -> Result<bool, DiskError> {
        let ready = self.shelf().ready.len();
        if ready > self.wanted {
            if let Some(file) = self.take_surplus() {
                self.disk.remove(&file)?;
            }
            return Ok(true);
        }
        if ready == self.wanted || self.disk.free()? < self.reserve.saturating_add(self.size) {
            return Ok(false);
        }
        let file = self.fill()?;
        self.shelf().ready.push_back(file);
        Ok(true)
    }

    fn take_surplus(&self) -> Option<String> {
        let mut shelf = self.shelf();
        if shelf.ready.len() > self.wanted { shelf.ready.pop_back() } else { None }
    }

    fn fill(&self) -> Result<String, DiskError> {
        let file = self.new_name();
        self.disk.create_zeroed(&file, self.size).inspect_err(|_| {
            // Half a file takes space and is of no use; if it cannot be removed now, the next start does it.
            let _ = self.disk.remove(&file);
        })?;
        Ok(file)
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
            let settled = |shelf: &mut Shelf| !shelf.closed && shelf.ready.len() == self.wanted;
            let shelf = self.wake.wait_while(shelf, settled).unwrap_or_else(PoisonError::into_inner);
            if shelf.closed {
                return;
            }
            if shelf.ready.len() < self.wanted {
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
