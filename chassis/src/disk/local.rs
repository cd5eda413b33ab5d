//! Disk over a folder of the file system.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::OFlags;

use super::{Disk, DiskError, check_file_name};
use crate::observability::histogram::{Histogram, HistogramSnapshot};
use crate::time::clock::Clock;

/// Prefix of files that are being written and not yet renamed. No other name begins with a dot, except
/// [`LOCK_FILE`].
const UNFINISHED_PREFIX: &str = ".unfinished-";
/// File that is locked while a process holds the folder. The kernel unlocks it when the process ends, in
/// whatever way.
const LOCK_FILE: &str = ".lock";
/// Upper bound of open file handles. At the bound all are closed and reopened on demand.
const MAX_OPEN_FILES: usize = 512;
/// Upper bound of buffers per `pwritev` call.
const MAX_PARTS_PER_WRITE: usize = 1024;

/// Folder of the file system, owned by one process at a time. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LocalDisk {
    folder: Arc<LockedDirectory>,
}

#[derive(Debug)]
struct LockedDirectory {
    path: PathBuf,
    _lock: File,
    /// Open files by name. Locked while names change, so that no handle is found under an old name.
    open: Mutex<BTreeMap<String, Arc<File>>>,
    clock: Clock,
    syncs: Histogram,
}

impl LocalDisk {
    /// Opens a folder, creates it if needed, and removes unfinished files of an earlier process. Rejects a
    /// folder that is open already.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, DiskError> {
        let path = path.into();
        let shown = path.to_string_lossy().into_owned();
        let fail = |error| DiskError::from_io("open", &shown, error);
        std::fs::create_dir_all(&path).map_err(fail)?;
        let lock = no_follow_options().write(true).create(true).truncate(false).open(path.join(LOCK_FILE));
        let lock = lock.map_err(fail)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(DiskError::Locked { name: shown }),
            Err(TryLockError::Error(error)) => return Err(fail(error)),
        }
        let clock = Clock::system();
        let syncs = Histogram::for_durations();
        let folder = LockedDirectory { path, _lock: lock, open: Mutex::default(), clock, syncs };
        folder.remove_unfinished_files().map_err(fail)?;
        Ok(Self { folder: Arc::new(folder) })
    }

    /// Runs one operation on the folder itself.
    fn run<R>(
        &self,
        op: &'static str,
        call: impl FnOnce(&LockedDirectory) -> io::Result<R>,
    ) -> Result<R, DiskError> {
        call(&self.folder).map_err(|error| DiskError::from_io(op, &self.folder.path.to_string_lossy(), error))
    }

    fn run_on<R>(
        &self,
        op: &'static str,
        name: &str,
        call: impl FnOnce(&LockedDirectory) -> io::Result<R>,
    ) -> Result<R, DiskError> {
        check_file_name(name)?;
        call(&self.folder).map_err(|error| DiskError::from_io(op, name, error))
    }
}

/// Returns open options that reject a symbolic link.
fn no_follow_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

impl LockedDirectory {
    fn remove_unfinished_files(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED_PREFIX) {
                std::fs::remove_file(entry.path())?;
            }
        }
        self.sync_dir()
    }

    fn file_path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn open_file(&self, name: &str) -> io::Result<Arc<File>> {
        let mut open = self.open.lock();
        if let Some(file) = open.get(name) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(no_follow_options().read(true).write(true).open(self.file_path(name))?);
        if open.len() >= MAX_OPEN_FILES {
            open.clear();
        }
        open.insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn create_zeroed(&self, name: &str, length: u64) -> io::Result<()> {
        let file = File::create_new(self.file_path(name))?;
        let zeros = vec![0; 1 << 20];
        let mut done = 0;
        while done < length {
            let part = (length - done).min(zeros.len() as u64);
            file.write_all_at(&zeros[..part as usize], done)?;
            done += part;
        }
        file.sync_all()
    }

    fn write_at(&self, name: &str, mut offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        let file = self.open_file(name)?;
        let mut slices: Vec<_> =
            parts.iter().filter(|part| !part.is_empty()).map(|part| IoSlice::new(part)).collect();
        let mut rest = slices.as_mut_slice();
        while !rest.is_empty() {
            let window = rest.len().min(MAX_PARTS_PER_WRITE);
            let written = match rustix::io::pwritev(&*file, &rest[..window], offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            offset += written as u64;
            IoSlice::advance_slices(&mut rest, written);
        }
        Ok(())
    }

    fn read_at(&self, name: &str, mut offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let file = self.open_file(name)?;
        let mut done = 0;
        while done < into.len() {
            match file.read_at(&mut into[done..], offset) {
                Ok(0) => break,
                Ok(read) => {
                    done += read;
                    offset += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut open = self.open.lock();
        let unfinished = self.file_path(&format!("{UNFINISHED_PREFIX}{name}"));
        let put = || {
            let mut file = no_follow_options().write(true).create(true).truncate(true).open(&unfinished)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(&unfinished, self.file_path(name))?;
            self.sync_dir()
        };
        open.remove(name);
        put().inspect_err(|_| {
            // If the rename succeeded, the file is gone. Otherwise the next start removes it at the latest.
            let _ = std::fs::remove_file(&unfinished);
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut open = self.open.lock();
        std::fs::rename(self.file_path(from), self.file_path(to))?;
        match open.remove(from) {
            Some(file) => open.insert(to.to_owned(), file),
            None => open.remove(to),
        };
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut open = self.open.lock();
        open.remove(name);
        std::fs::remove_file(self.file_path(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_file() && check_file_name(&name).is_ok() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        crate::observability::process::free_bytes(&self.path)
    }

    fn capacity_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.path)?;
        Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
    }
}

impl Disk for LocalDisk {
    fn create_new(&self, name: &str) -> Result<(), DiskError> {
        self.run_on("create", name, |folder| File::create_new(folder.file_path(name)).map(drop))
    }

    fn create_zeroed(&self, name: &str, length: u64) -> Result<(), DiskError> {
        self.run_on("create", name, |folder| folder.create_zeroed(name, length))
    }

    fn write_at(&self, name: &str, offset: u64, parts: &[&[u8]]) -> Result<(), DiskError> {
        self.run_on("write to", name, |folder| folder.write_at(name, offset, parts))
    }

    fn read_at(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        self.run_on("read", name, |folder| folder.read_at(name, offset, into))
    }

    fn sync(&self, name: &str) -> Result<(), DiskError> {
        self.run_on("sync", name, |folder| {
            let begun = folder.clock.monotonic();
            folder.open_file(name)?.sync_data()?;
            folder.syncs.record_duration(folder.clock.monotonic().saturating_sub(begun));
            Ok(())
        })
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        self.run_on("write", name, |folder| folder.write(name, bytes))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        check_file_name(to)?;
        self.run_on("rename", from, |folder| folder.rename(from, to))
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.run_on("remove", name, |folder| folder.remove(name))
    }

    fn list(&self) -> Result<Vec<String>, DiskError> {
        self.run("list", LockedDirectory::list)
    }

    fn len(&self, name: &str) -> Result<u64, DiskError> {
        self.run_on("measure", name, |folder| {
            std::fs::metadata(folder.file_path(name)).map(|data| data.len())
        })
    }

    fn sync_dir(&self) -> Result<(), DiskError> {
        self.run("sync", LockedDirectory::sync_dir)
    }

    fn free_bytes(&self) -> Result<u64, DiskError> {
        self.run("measure", LockedDirectory::free_bytes)
    }

    fn capacity_bytes(&self) -> Result<u64, DiskError> {
        self.run("measure", LockedDirectory::capacity_bytes)
    }

    fn sync_latencies(&self) -> HistogramSnapshot {
        self.folder.syncs.snapshot()
    }
}
