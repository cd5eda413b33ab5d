//! In-memory disk with simulated power loss, full capacity, lost writes and bit rot.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Disk, DiskError, check_file_name};
use crate::random::Random;

/// Unit in bytes that survives a power loss as a whole, or not at all.
pub const SECTOR_BYTES: usize = 512;

/// Simulated disk. Clones are handles of one boot of one machine. After [`MemoryDisk::crash`] all calls on
/// the old handles fail, like those of a dead process.
#[derive(Clone)]
pub struct MemoryDisk {
    image: Arc<Mutex<DiskImage>>,
    boot: u64,
}

#[derive(Clone, Default)]
struct DiskImage {
    boot: u64,
    next_file: u64,
    files: BTreeMap<u64, FileContents>,
    /// Names as the running process sees them.
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    /// Name changes since the last sync of the folder, in order.
    renamings: Vec<NameChange>,
    capacity: Option<u64>,
    faults: DiskFaults,
}

/// Injected faults and their progress.
#[derive(Clone, Default)]
struct DiskFaults {
    /// Number of changing calls since the disk was created.
    operations: u64,
    /// Changing calls until the power loss, which happens inside the next call.
    power: Option<u64>,
    dark: bool,
    failing_syncs: u64,
    lost_writes: u64,
}

#[derive(Clone, Default)]
struct FileContents {
    durable: Vec<u8>,
    /// Contents as the running process sees them, synced or not.
    seen: Vec<u8>,
    /// Sectors that may differ from the durable contents and may still become durable.
    dirty: BTreeSet<usize>,
    /// Power was lost while the file was created, so any prefix of it may be durable.
    unfinished: bool,
}

#[derive(Clone)]
enum NameChange {
    Link(String, u64),
    Unlink(String),
    Rename(String, String),
}

// === impl MemoryDisk ===

impl MemoryDisk {
    /// Creates an empty disk without faults.
    pub fn new() -> Self {
        Self { image: Arc::default(), boot: 0 }
    }

    /// Simulates a power loss and returns the disk as the next boot finds it. Any subset of the unsynced
    /// sectors survives, and a prefix of the unsynced name changes, as in a journal. The seed decides.
    /// Pending faults are cleared.
    #[must_use = "the old handles are dead"]
    pub fn crash(&self, seed: u64) -> Self {
        let random = Random::from_seed(seed);
        let mut image = self.image.lock();
        let kept = random.next_below(image.renamings.len() as u64 + 1) as usize;
        let renamings = std::mem::take(&mut image.renamings);
        let mut names = image.durable_names.clone();
        for naming in &renamings[..kept] {
            naming.apply(&mut names);
        }
        image.names.clone_from(&names);
        image.durable_names = names;
        for contents in image.files.values_mut() {
            contents.lose_power(&random);
        }
        image.remove_unlinked_files();
        self.next_boot(&mut image)
    }

    /// Simulates the death of the process without the machine. Nothing is lost, and nothing more becomes
    /// durable.
    #[must_use = "the old handles are dead"]
    pub fn restart(&self) -> Self {
        self.next_boot(&mut self.image.lock())
    }

    /// Returns a copy of this disk as after a power loss. This disk is unaffected.
    #[must_use]
    pub fn fork(&self, seed: u64) -> Self {
        let copy = self.image.lock().clone();
        Self { image: Arc::new(Mutex::new(copy)), boot: self.boot }.crash(seed)
    }

    /// Loses power inside the changing call after the next `operations` calls. A write may be partial, and a
    /// new name may exist or not. All calls fail until [`MemoryDisk::crash`].
    pub fn lose_power_after(&self, operations: u64) {
        self.image.lock().faults.power = Some(operations);
    }

    /// Returns the number of changing calls in all boots.
    pub fn operations(&self) -> u64 {
        self.image.lock().faults.operations
    }

    /// Sets the capacity of the disk from now on. None means unlimited.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.image.lock().capacity = bytes;
    }

    /// Makes the next `count` syncs of files or of the folder fail. Bytes lost by a failed sync of a file
    /// never become durable, even if later syncs succeed.
    pub fn fail_syncs(&self, count: u64) {
        self.image.lock().faults.failing_syncs = count;
    }

    /// Loses the next `count` writes: they can be read and synced, and are gone after a crash.
    pub fn lose_writes(&self, count: u64) {
        self.image.lock().faults.lost_writes = count;
    }

    /// Flips one bit of a file, to simulate bit rot. Returns whether the bit exists.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) -> bool {
        let mut image = self.image.lock();
        let Some(file) = image.names.get(name).copied() else { return false };
        let Some(contents) = image.files.get_mut(&file) else { return false };
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        for bytes in [&mut contents.durable, &mut contents.seen] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << (bit % 8);
            }
        }
        at < contents.seen.len()
    }

    fn next_boot(&self, image: &mut DiskImage) -> Self {
        image.boot += 1;
        image.faults = DiskFaults { operations: image.faults.operations, ..DiskFaults::default() };
        Self { image: Arc::clone(&self.image), boot: image.boot }
    }

    /// Runs one operation, unless the process lost power.
    fn run<R>(
        &self,
        op: &'static str,
        name: &str,
        call: impl FnOnce(&mut DiskImage) -> io::Result<R>,
    ) -> Result<R, DiskError> {
        let mut image = self.image.lock();
        let done =
            if image.boot != self.boot || image.faults.dark { Err(no_power()) } else { call(&mut image) };
        done.map_err(|error| DiskError::from_io(op, name, error))
    }

    /// Runs one changing operation on a file. `call` receives whether power is lost during it.
    fn change<R>(
        &self,
        op: &'static str,
        name: &str,
        call: impl FnOnce(&mut DiskImage, bool) -> io::Result<R>,
    ) -> Result<R, DiskError> {
        check_file_name(name)?;
        self.run(op, name, |image| {
            let dying = image.faults.record_operation();
            let done = call(image, dying)?;
            if dying { Err(no_power()) } else { Ok(done) }
        })
    }
}

impl Default for MemoryDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDisk")
            .field("boot", &self.boot)
            .field("names", &self.image.lock().names.len())
            .finish()
    }
}

fn no_power() -> io::Error {
    io::Error::other("this process has lost power")
}

// === impl DiskFaults ===

impl DiskFaults {
    /// Counts a changing call. Returns whether power is lost inside it.
    fn record_operation(&mut self) -> bool {
        self.operations += 1;
        match &mut self.power {
            Some(0) => self.dark = true,
            Some(left) => *left -= 1,
            None => {}
        }
        self.dark
    }

    fn check_sync(&mut self) -> io::Result<()> {
        if self.failing_syncs > 0 {
            self.failing_syncs -= 1;
            return Err(io::Error::other("the disk failed to sync"));
        }
        Ok(())
    }
}

// === impl DiskImage ===

impl DiskImage {
    fn file(&mut self, name: &str) -> io::Result<&mut FileContents> {
        let id = self.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.files.get_mut(id).expect("every name has its file"))
    }

    fn apply_name_change(&mut self, naming: NameChange) {
        naming.apply(&mut self.names);
        self.renamings.push(naming);
    }

    fn create(&mut self, name: &str, zeros: u64, unfinished: bool) -> io::Result<()> {
        if self.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.reserve(zeros)?;
        let bytes = vec![0; zeros as usize];
        self.put(
            name,
            FileContents { durable: bytes.clone(), seen: bytes, unfinished, ..FileContents::default() },
        );
        Ok(())
    }

    fn put(&mut self, name: &str, contents: FileContents) {
        self.next_file += 1;
        self.files.insert(self.next_file, contents);
        self.apply_name_change(NameChange::Link(name.to_owned(), self.next_file));
    }

    /// Files without a name use no space, though a crash may restore them until the folder is synced.
    fn free_bytes(&self) -> u64 {
        let named = self.names.values().filter_map(|file| self.files.get(file));
        let used: usize = named.map(|contents| contents.seen.len()).sum();
        self.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(used as u64))
    }

    fn reserve(&self, more: u64) -> io::Result<()> {
        if more > self.free_bytes() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn write_at(&mut self, name: &str, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        let begin = offset as usize;
        let end = begin + parts.iter().map(|part| part.len()).sum::<usize>();
        let grown = end.saturating_sub(self.file(name)?.seen.len());
        self.reserve(grown as u64)?;
        let lost = self.faults.lost_writes > 0;
        self.faults.lost_writes = self.faults.lost_writes.saturating_sub(1);
        self.file(name)?.write_at(begin, parts, lost);
        Ok(())
    }

    fn sync_names(&mut self) {
        self.durable_names.clone_from(&self.names);
        self.renamings.clear();
        self.remove_unlinked_files();
    }

    /// Frees the files that no name refers to, now or after a crash.
    fn remove_unlinked_files(&mut self) {
        let mut named: BTreeSet<u64> =
            self.names.values().chain(self.durable_names.values()).copied().collect();
        named.extend(self.renamings.iter().filter_map(|naming| match naming {
            NameChange::Link(_, file) => Some(*file),
            NameChange::Unlink(_) | NameChange::Rename(..) => None,
        }));
        self.files.retain(|file, _| named.contains(file));
    }

    fn write(&mut self, name: &str, bytes: &[u8], dying: bool) -> io::Result<()> {
        self.reserve(bytes.len() as u64)?;
        self.faults.check_sync()?;
        self.put(
            name,
            FileContents { durable: bytes.to_vec(), seen: bytes.to_vec(), ..FileContents::default() },
        );
        if !dying {
            self.sync_names();
        }
        Ok(())
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Link(name, file) => {
                names.insert(name.clone(), *file);
            }
            Self::Unlink(name) => {
                names.remove(name);
            }
            Self::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
        }
    }
}

// === impl FileContents ===

impl FileContents {
    fn write_at(&mut self, begin: usize, parts: &[&[u8]], lost: bool) {
        let mut at = begin;
        for part in parts {
            let end = at + part.len();
            if self.seen.len() < end {
                self.seen.resize(end, 0);
            }
            self.seen[at..end].copy_from_slice(part);
            at = end;
        }
        if at > begin {
            let sectors = begin / SECTOR_BYTES..=(at - 1) / SECTOR_BYTES;
            if lost {
                self.dirty.retain(|sector| !sectors.contains(sector));
            } else {
                self.dirty.extend(sectors);
            }
        }
    }

    fn clear_sector(&mut self, sector: usize) {
        let begin = sector * SECTOR_BYTES;
        let end = ((sector + 1) * SECTOR_BYTES).min(self.seen.len());
        if self.durable.len() < end {
            self.durable.resize(end, 0);
        }
        self.durable[begin..end].copy_from_slice(&self.seen[begin..end]);
    }

    fn sync(&mut self) {
        self.unfinished = false;
        for sector in std::mem::take(&mut self.dirty) {
            self.clear_sector(sector);
        }
    }

    fn lose_power(&mut self, random: &Random) {
        if std::mem::take(&mut self.unfinished) {
            let length = random.next_below(self.durable.len() as u64 + 1) as usize;
            self.durable.truncate(length);
            self.dirty.clear();
        }
        let dirty = std::mem::take(&mut self.dirty);
        if !dirty.is_empty() {
            // Total loss and total survival are as likely as torn writes, because each is a different trap.
            let way = random.next_below(4);
            let first = random.next_below(dirty.len() as u64 + 1) as usize;
            for (number, sector) in dirty.into_iter().enumerate() {
                let kept = match way {
                    0 => false,
                    1 => true,
                    2 => number < first,
                    _ => random.next_below(2) == 0,
                };
                if kept {
                    self.clear_sector(sector);
                }
            }
        }
        self.seen.clone_from(&self.durable);
    }
}

impl Disk for MemoryDisk {
    fn create_new(&self, name: &str) -> Result<(), DiskError> {
        self.change("create", name, |image, _| image.create(name, 0, false))
    }

    fn create_zeroed(&self, name: &str, length: u64) -> Result<(), DiskError> {
        self.change("create", name, |image, dying| image.create(name, length, dying))
    }

    fn write_at(&self, name: &str, offset: u64, parts: &[&[u8]]) -> Result<(), DiskError> {
        self.change("write to", name, |image, _| image.write_at(name, offset, parts))
    }

    fn read_at(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        check_file_name(name)?;
        self.run("read", name, |image| {
            let seen = &image.file(name)?.seen;
            let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(seen.len());
            let read = into.len().min(seen.len() - begin);
            into[..read].copy_from_slice(&seen[begin..begin + read]);
            Ok(read)
        })
    }

    fn sync(&self, name: &str) -> Result<(), DiskError> {
        self.change("sync", name, |image, dying| {
            let failed = image.faults.check_sync();
            let contents = image.file(name)?;
            if failed.is_err() {
                contents.dirty.clear();
            } else if !dying {
                contents.sync();
            }
            failed
        })
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        self.change("write", name, |image, dying| image.write(name, bytes, dying))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        check_file_name(to)?;
        self.change("rename", from, |image, _| {
            image.file(from)?;
            if from != to {
                image.apply_name_change(NameChange::Rename(from.to_owned(), to.to_owned()));
            }
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.change("remove", name, |image, _| {
            image.file(name)?;
            image.apply_name_change(NameChange::Unlink(name.to_owned()));
            Ok(())
        })
    }

    fn list(&self) -> Result<Vec<String>, DiskError> {
        self.run("list", "the disk", |image| Ok(image.names.keys().cloned().collect()))
    }

    fn len(&self, name: &str) -> Result<u64, DiskError> {
        check_file_name(name)?;
        self.run("measure", name, |image| Ok(image.file(name)?.seen.len() as u64))
    }

    fn sync_dir(&self) -> Result<(), DiskError> {
        self.change("sync", "folder", |image, dying| {
            image.faults.check_sync()?;
            if !dying {
                image.sync_names();
            }
            Ok(())
        })
    }

    fn free_bytes(&self) -> Result<u64, DiskError> {
        self.run("measure", "the disk", |image| Ok(image.free_bytes()))
    }

    fn capacity_bytes(&self) -> Result<u64, DiskError> {
        self.run("measure", "the disk", |image| Ok(image.capacity.unwrap_or(u64::MAX)))
    }
}
