//! A disk in memory that can crash, fill up and rot.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::{Disk, DiskError, check};
use crate::random::Random;

/// A simulated disk. Clones are handles of one boot of one machine: after [`MemoryDisk::crash`] the old handles do
/// nothing but fail, as the calls of a dead process do.
#[derive(Clone)]
pub struct MemoryDisk {
    platter: Arc<Mutex<Platter>>,
    boot: u64,
}

#[derive(Default)]
struct Platter {
    boot: u64,
    next_file: u64,
    files: BTreeMap<u64, Contents>,
    /// Names as a running process sees them.
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    /// Changes of names since the last sync of the folder, in order.
    renamings: Vec<Naming>,
    capacity: Option<u64>,
    failing_syncs: u64,
}

#[derive(Default)]
struct Contents {
    durable: Vec<u8>,
    /// Everything, as a running process sees it.
    seen: Vec<u8>,
    /// Where each write since the last sync begins and ends in `seen`.
    unsynced: Vec<(usize, usize)>,
}

enum Naming {
    Link(String, u64),
    Unlink(String),
    Rename(String, String),
}

// === impl MemoryDisk ===

impl MemoryDisk {
    /// An empty disk without faults.
    pub fn new() -> Self {
        Self { platter: Arc::default(), boot: 0 }
    }

    /// Loss of power, and the disk as the next boot finds it. Each unsynced write survives whole, torn or not at
    /// all, for itself; where one is lost and a later one is not, zeros lie between. Of the unsynced changes of
    /// names the first few survive, as in a journal. The seed decides.
    #[must_use = "the old handles are dead"]
    pub fn crash(&self, seed: u64) -> Self {
        let random = Random::seeded(seed);
        let mut platter = self.lock();
        platter.boot += 1;
        let kept = random.below(platter.renamings.len() as u64 + 1) as usize;
        let renamings = std::mem::take(&mut platter.renamings);
        let mut names = platter.durable_names.clone();
        for naming in &renamings[..kept] {
            naming.apply(&mut names);
        }
        platter.names.clone_from(&names);
        platter.durable_names = names;
        for contents in platter.files.values_mut() {
            contents.lose_power(&random);
        }
        platter.forget_nameless();
        Self { platter: Arc::clone(&self.platter), boot: platter.boot }
    }

    /// From now on the disk holds at most so many bytes.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock().capacity = bytes;
    }

    /// Makes the next `count` syncs fail, of files and of the folder.
    pub fn fail_syncs(&self, count: u64) {
        self.lock().failing_syncs = count;
    }

    /// Flips one bit of a file, as rot does; says whether there was such a bit.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) -> bool {
        let mut platter = self.lock();
        let Some(file) = platter.names.get(name).copied() else { return false };
        let Some(contents) = platter.files.get_mut(&file) else { return false };
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        for bytes in [&mut contents.durable, &mut contents.seen] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << (bit % 8);
            }
        }
        at < contents.seen.len()
    }

    fn lock(&self) -> MutexGuard<'_, Platter> {
        self.platter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one call of a process that is alive.
    fn run<R>(
        &self,
        op: &'static str,
        name: &str,
        call: impl FnOnce(&mut Platter) -> io::Result<R>,
    ) -> Result<R, DiskError> {
        let mut platter = self.lock();
        let done = if platter.boot == self.boot {
            call(&mut platter)
        } else {
            Err(io::Error::other("this process has lost power"))
        };
        done.map_err(|error| DiskError::of(op, name, error))
    }

    fn run_on<R>(
        &self,
        op: &'static str,
        name: &str,
        call: impl FnOnce(&mut Platter) -> io::Result<R>,
    ) -> Result<R, DiskError> {
        check(name)?;
        self.run(op, name, call)
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
            .field("names", &self.lock().names.len())
            .finish()
    }
}

// === impl Platter ===

impl Platter {
    fn file(&mut self, name: &str) -> io::Result<&mut Contents> {
        let id = self.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.files.get_mut(id).expect("every name has its file"))
    }

    fn name(&mut self, naming: Naming) {
        naming.apply(&mut self.names);
        self.renamings.push(naming);
    }

    fn make_file(&mut self) -> u64 {
        self.next_file += 1;
        self.files.insert(self.next_file, Contents::default());
        self.next_file
    }

    fn reserve(&self, more: usize) -> io::Result<()> {
        let used: usize = self.files.values().map(|contents| contents.seen.len()).sum();
        match self.capacity {
            Some(capacity) if (used + more) as u64 > capacity => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    fn may_sync(&mut self) -> io::Result<()> {
        if self.failing_syncs > 0 {
            self.failing_syncs -= 1;
            return Err(io::Error::other("the disk failed to sync"));
        }
        Ok(())
    }

    fn sync_names(&mut self) {
        self.durable_names.clone_from(&self.names);
        self.renamings.clear();
        self.forget_nameless();
    }

    /// Frees the files that no name leads to, now or after a crash.
    fn forget_nameless(&mut self) {
        let mut named: Vec<u64> = self.names.values().chain(self.durable_names.values()).copied().collect();
        named.extend(self.renamings.iter().filter_map(|naming| match naming {
            Naming::Link(_, file) => Some(*file),
            Naming::Unlink(_) | Naming::Rename(..) => None,
        }));
        self.files.retain(|file, _| named.contains(file));
    }

    fn write(&mut self, name: &str, bytes: Vec<u8>) -> io::Result<()> {
        self.reserve(bytes.len())?;
        self.may_sync()?;
        let file = self.make_file();
        let contents = self.files.get_mut(&file).expect("just made");
        contents.durable.clone_from(&bytes);
        contents.seen = bytes;
        self.name(Naming::Link(name.to_owned(), file));
        self.sync_names();
        Ok(())
    }
}

impl Naming {
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

impl Contents {
    fn lose_power(&mut self, random: &Random) {
        for (begin, end) in std::mem::take(&mut self.unsynced) {
            let end = match random.below(3) {
                0 => continue,
                1 => begin + random.below((end - begin) as u64 + 1) as usize,
                _ => end,
            };
            if self.durable.len() < end {
                self.durable.resize(end, 0);
            }
            self.durable[begin..end].copy_from_slice(&self.seen[begin..end]);
        }
        self.seen.clone_from(&self.durable);
    }
}

#[async_trait]
impl Disk for MemoryDisk {
    async fn create_new(&self, name: &str) -> Result<(), DiskError> {
        self.run_on("create", name, |platter| {
            if platter.names.contains_key(name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let file = platter.make_file();
            platter.name(Naming::Link(name.to_owned(), file));
            Ok(())
        })
    }

    async fn append(&self, name: &str, bytes: Vec<u8>) -> Result<u64, DiskError> {
        self.run_on("append to", name, |platter| {
            platter.file(name)?;
            platter.reserve(bytes.len())?;
            let contents = platter.file(name)?;
            let begin = contents.seen.len();
            contents.seen.extend_from_slice(&bytes);
            contents.unsynced.push((begin, contents.seen.len()));
            Ok(begin as u64)
        })
    }

    async fn read_at(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>, DiskError> {
        self.run_on("read", name, |platter| {
            let seen = &platter.file(name)?.seen;
            let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(seen.len());
            let end = begin.saturating_add(length).min(seen.len());
            Ok(seen[begin..end].to_vec())
        })
    }

    async fn write(&self, name: &str, bytes: Vec<u8>) -> Result<(), DiskError> {
        self.run_on("write", name, |platter| platter.write(name, bytes))
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        check(to)?;
        self.run_on("rename", from, |platter| {
            platter.file(from)?;
            if from != to {
                platter.name(Naming::Rename(from.to_owned(), to.to_owned()));
            }
            Ok(())
        })
    }

    async fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.run_on("remove", name, |platter| {
            platter.file(name)?;
            platter.name(Naming::Unlink(name.to_owned()));
            Ok(())
        })
    }

    async fn list(&self) -> Result<Vec<String>, DiskError> {
        self.run("list", "the disk", |platter| Ok(platter.names.keys().cloned().collect()))
    }

    async fn len(&self, name: &str) -> Result<u64, DiskError> {
        self.run_on("measure", name, |platter| Ok(platter.file(name)?.seen.len() as u64))
    }

    async fn sync(&self, name: &str) -> Result<(), DiskError> {
        self.run_on("sync", name, |platter| {
            platter.file(name)?;
            platter.may_sync()?;
            let contents = platter.file(name)?;
            contents.durable.clone_from(&contents.seen);
            contents.unsynced.clear();
            Ok(())
        })
    }

    async fn sync_dir(&self) -> Result<(), DiskError> {
        self.run("sync", "the disk", |platter| {
            platter.may_sync()?;
            platter.sync_names();
            Ok(())
        })
    }
}
