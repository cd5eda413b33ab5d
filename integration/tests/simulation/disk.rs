//! A disk of the machine: each call is told, and the machine may die in it.

use std::io;

use athanor_chassis::disk::{DiskError, MemoryDisk};
use athanor_chassis::{Disk, Random};
use athanor_profile::encoding::hash;

use super::world::{Death, World};

/// One of the disks of a machine, as one process sees it.
#[derive(Debug)]
pub struct Platter {
    pub world: World,
    pub boot: u64,
    /// In what is told.
    pub name: &'static str,
    pub disk: MemoryDisk,
}

impl Platter {
    fn call<R>(
        &self,
        op: &'static str,
        name: &str,
        bytes: &[&[u8]],
        call: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError> {
        let gone = || {
            let source = io::Error::other("this process is dead");
            DiskError::Io { op, name: name.to_owned(), source }
        };
        let death = self.world.enter(self.boot, true).map_err(|_| gone())?;
        if death == Some(Death::Kill) {
            self.world.die(Death::Kill);
            self.world.count("killed in a disk call");
            return Err(gone());
        }
        if death == Some(Death::Power) {
            self.disk.lose_power_after(0);
        }
        let done = call();
        if death == Some(Death::Power) {
            self.world.count(match (self.name, op) {
                ("log", "write to") => "power lost in the write of a commit",
                ("log", "sync") => "power lost in the sync of a commit",
                _ => "power lost in another disk call",
            });
            self.world.die(Death::Power);
        }
        let sum = hash::hash_list(&bytes.iter().map(|part| hash::hash_bytes(part)).collect::<Vec<_>>());
        let failed = done.as_ref().err().map(ToString::to_string);
        self.world.tell(format_args!("{} {op} {name} {sum:032x} {failed:?}", self.name));
        if failed.is_some() && death.is_none() {
            self.world.count(if op == "sync" { "failed syncs" } else { "failed disk calls" });
        }
        done
    }

    /// What the process may still do is undone: another one begins, after this death.
    pub fn survives(&self, death: Option<Death>, seed: u64) -> MemoryDisk {
        match death {
            Some(Death::Power) => self.disk.crash(seed),
            Some(Death::Kill) | None => self.disk.restart(),
        }
    }

    /// Bits of files that were synced have flipped, though nobody wrote to them. Not those that say whose the folder is:
    /// without them a node does not start, and says so.
    ///
    /// Of the log it is one bit. Damage to a commit and to what attests it cannot be told from a commit cut short.
    pub fn rot(disk: &MemoryDisk, bits: u64, world: &World, random: &Random) {
        let rots =
            |name: &String| name.ends_with(".log") || name.starts_with("group-") || name.starts_with("ids-");
        let names: Vec<String> = disk.list().unwrap().into_iter().filter(rots).collect();
        for _ in 0..bits.min(names.len() as u64) {
            let name = &names[random.next_below(names.len() as u64) as usize];
            let bytes = disk.read(name).unwrap();
            let written: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != 0).collect();
            if written.is_empty() {
                continue;
            }
            let at = written[random.next_below(written.len() as u64) as usize];
            disk.flip_bit(name, at as u64, random.next_below(8) as u8);
            world.tell(format_args!("a bit of {name} has flipped, at {at}"));
            world.count(match name.split_once('-') {
                None => "rotten logs",
                Some(("ids", _)) => "rotten ids",
                Some(_) => "rotten snapshots",
            });
        }
    }

    /// Leaves so many bytes free; none takes the limit away.
    pub fn leave(&self, free: Option<u64>) {
        let used = |name: String| self.disk.len(&name).unwrap_or_default();
        let used: u64 = self.disk.list().unwrap_or_default().into_iter().map(used).sum();
        self.disk.set_capacity(free.map(|free| used + free));
    }
}

impl Disk for Platter {
    fn create_new(&self, name: &str) -> Result<(), DiskError> {
        self.call("create", name, &[], || self.disk.create_new(name))
    }
    fn create_zeroed(&self, name: &str, length: u64) -> Result<(), DiskError> {
        self.call("fill", name, &[&length.to_le_bytes()], || self.disk.create_zeroed(name, length))
    }
    fn write_at(&self, name: &str, offset: u64, parts: &[&[u8]]) -> Result<(), DiskError> {
        self.call("write to", name, &[&offset.to_le_bytes(), &parts.concat()], || {
            self.disk.write_at(name, offset, parts)
        })
    }
    fn read_at(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        self.disk.read_at(name, offset, into)
    }
    fn sync(&self, name: &str) -> Result<(), DiskError> {
        self.call("sync", name, &[], || self.disk.sync(name))
    }
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        self.call("put", name, &[bytes], || self.disk.write(name, bytes))
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.call("rename", from, &[to.as_bytes()], || self.disk.rename(from, to))
    }
    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.call("remove", name, &[], || self.disk.remove(name))
    }
    fn list(&self) -> Result<Vec<String>, DiskError> {
        self.disk.list()
    }
    fn len(&self, name: &str) -> Result<u64, DiskError> {
        self.disk.len(name)
    }
    fn sync_dir(&self) -> Result<(), DiskError> {
        self.call("sync", "folder", &[], || self.disk.sync_dir())
    }
    fn free_bytes(&self) -> Result<u64, DiskError> {
        self.disk.free_bytes()
    }
    fn capacity_bytes(&self) -> Result<u64, DiskError> {
        self.disk.capacity_bytes()
    }
}
