//! What is kept on disk: answers and pages of blocks, below what is kept in memory, so that a restart forgets less.
//!
//! ```text
//!  file 000000000000002a-8f…: "athkept1" │ length of key │ key │ sum of key and bytes │ bytes
//! ```
//!
//! A file's name says when it came and, by a hash, what it is; its key says so in full. Sums are looked at whenever a file
//! is read: one that is not what was written is removed and counted, and what it held is found anew. Nothing is synced,
//! since whatever a crash leaves of a file is seen by its sum. Oldest files make room for new ones, and for whatever else
//! needs the disk. A disk that is full or fails keeps nothing, and no question fails for it, nor waits for a write: what is
//! to be kept waits in memory until [`Shelf::tend`] comes by, and what finds no room there is not kept.

mod index;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use athanor_catalog::BlockId;
use athanor_chassis::disk::DiskError;
use athanor_chassis::{Activity, ByteSize, Compute, Disk, TenantId};
use athanor_profile::hash::{self, Hash};
use bytes::Bytes;
use tokio::sync::Notify;

use crate::stats::{CacheStats, Count, Counts};
use index::{Coming, Index, STEP};

const MAGIC: &[u8; 8] = b"athkept1";
/// Before the key: what it is, and the key's length.
const HEAD: usize = 12;
const SUM: usize = 16;

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShelfKey(Vec<u8>);

/// Where something lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    age: u64,
    hash: Hash,
}

/// The files.
pub struct Shelf {
    disk: Arc<dyn Disk>,
    limit: u64,
    /// So much of the disk stays free.
    spare: u64,
    /// None until the folder was listed: nothing is found until then, and nothing kept.
    index: Mutex<Option<Index>>,
    /// Rung when something waits to be written.
    wanted: Notify,
    counts: Counts,
    failed: Count,
    doubted: Count,
    passed: Count,
}

/// How useful it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShelfStats {
    /// Its files.
    pub cache: CacheStats,
    /// Files that the disk did not take or give.
    pub failed: u64,
    /// How often files were removed since what was made of them was damaged.
    pub doubted: u64,
    /// What was not kept since too much waited to be written.
    pub passed: u64,
}

impl ShelfKey {
    /// An answer of a tenant's part of a block.
    pub fn answer(block: BlockId, tenant: &TenantId, ask: Hash) -> Self {
        let (block, ask) = (block.number().to_be_bytes(), ask.to_be_bytes());
        Self([b"a", &block[..], &ask[..], tenant.as_str().as_bytes()].concat())
    }

    /// Bytes of a block's file.
    pub fn range(block: BlockId, file: &str, range: &std::ops::Range<u64>) -> Self {
        let block = block.number().to_be_bytes();
        let range = [range.start, range.end].map(u64::to_be_bytes).concat();
        Self([b"r", &block[..], &range[..], file.as_bytes()].concat())
    }

    fn hash(&self) -> Hash {
        hash::bytes(&self.0)
    }
}

impl Shelf {
    /// On a disk, at most so many bytes, and only while so many others are free. Nothing is read yet.
    pub fn new(disk: Arc<dyn Disk>, limit: ByteSize, spare: ByteSize) -> Self {
        let (failed, doubted, passed) = Default::default();
        Self {
            disk,
            limit: limit.get(),
            spare: spare.get(),
            index: Mutex::new(None),
            wanted: Notify::new(),
            counts: Counts::default(),
            failed,
            doubted,
            passed,
        }
    }

    /// Whether anything is ever kept.
    pub fn is_on(&self) -> bool {
        self.limit > 0
    }

    /// Where something is, if it was kept.
    pub fn find(&self, key: &ShelfKey) -> Option<Place> {
        if !self.is_on() {
            return None;
        }
        let hash = key.hash();
        let age = self.with(|index| index.find(hash)).flatten();
        if age.is_none() {
            self.counts.misses.one();
        }
        age.map(|age| Place { age, hash })
    }

    /// What was kept there under that key. Blocks.
    pub fn read(&self, key: &ShelfKey, place: Place) -> Option<Bytes> {
        let found = self.read_file(key, place);
        let Counts { hits, misses, .. } = &self.counts;
        let count = if found.is_some() { hits } else { misses };
        count.one();
        found
    }

    fn read_file(&self, key: &ShelfKey, place: Place) -> Option<Bytes> {
        let name = place.name();
        let bytes = match self.disk.read(&name) {
            Ok(bytes) => bytes,
            Err(error) => {
                // Another one may have removed it meanwhile.
                tracing::debug!(%error, "a kept file cannot be read");
                if !matches!(error, DiskError::NotFound { .. }) {
                    self.failed.one();
                }
                self.remove(place);
                return None;
            }
        };
        match opened(&bytes) {
            Some((of, start)) if of == key.0 => Some(Bytes::from(bytes).slice(start..)),
            // Another key has that hash.
            Some(_) => None,
            None => {
                tracing::warn!(name, "a kept file is damaged and is removed, what it held is found anew");
                self.counts.damaged.one();
                self.remove(place);
                None
            }
        }
    }

    /// Has bytes kept under a key, later: only so much waits.
    pub fn offer(&self, key: ShelfKey, bytes: Bytes) {
        if length(&key, &bytes) > self.limit / 4 {
            return;
        }
        let hash = key.hash();
        match self.with(|index| index.wait(hash, key, bytes)) {
            Some(true) => self.wanted.notify_one(),
            Some(false) => self.passed.one(),
            None => {}
        }
    }

    /// Removes what was kept, or is about to be, under some keys: what was made of it is damaged. Blocks.
    pub fn doubt(&self, keys: &[ShelfKey]) {
        self.doubted.one();
        for hash in keys.iter().map(ShelfKey::hash) {
            if let Some(age) = self.with(|index| index.doubt(hash)).flatten() {
                self.discard(Place { age, hash });
            }
        }
    }

    /// How useful it is so far.
    pub fn stats(&self) -> ShelfStats {
        let (files, bytes) = self.with(|index| index.size()).unwrap_or_default();
        ShelfStats {
            cache: self.counts.stats(files, bytes, self.limit),
            failed: self.failed.now(),
            doubted: self.doubted.now(),
            passed: self.passed.now(),
        }
    }

    fn remove(&self, place: Place) {
        self.with(|index| index.forget(place.age, place.hash));
        self.discard(place);
    }

    /// What stays is found by the next start.
    fn discard(&self, place: Place) {
        drop(self.disk.remove(&place.name()));
    }

    /// The index; none before there is one.
    fn with<R>(&self, with: impl FnOnce(&mut Index) -> R) -> Option<R> {
        self.lock().as_mut().map(with)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Index>> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is done on the disk while nobody waits for it: a little at a time, so that questions get their turns between.
impl Shelf {
    /// Does what there is to do: the first time it looks what is there. Then files make room where they take too much, or
    /// where others need the disk, and what waits is written.
    pub async fn tend(self: &Arc<Self>, compute: &Compute) {
        if self.lock().is_none() {
            let Some(index) = self.look(compute).await else { return };
            *self.lock() = Some(index);
        }
        while self.run(compute, |shelf| shelf.step()).await == Some(true) {}
    }

    /// Until something waits to be written.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    async fn run<R: Send + 'static>(
        self: &Arc<Self>,
        compute: &Compute,
        job: impl FnOnce(&Self) -> R + Send + 'static,
    ) -> Option<R> {
        let shelf = Arc::clone(self);
        compute.run_as(Activity::Query, move || job(&shelf)).await.ok()
    }

    /// What is there from before. None where that cannot be seen.
    async fn look(self: &Arc<Self>, compute: &Compute) -> Option<Index> {
        let mut names = match self.run(compute, |shelf| shelf.disk.list()).await? {
            Ok(names) => names,
            Err(error) => {
                tracing::debug!(%error, "the folder of kept files cannot be listed");
                self.failed.one();
                return None;
            }
        };
        let mut index = Index::default();
        while !names.is_empty() {
            let some = names.split_off(names.len().saturating_sub(STEP));
            let known = move |shelf: &Self| {
                some.iter().for_each(|name| shelf.know(&mut index, name));
                index
            };
            index = self.run(compute, known).await?;
        }
        Some(index)
    }

    fn know(&self, index: &mut Index, name: &str) {
        let is_known = match (parsed(name), self.disk.len(name)) {
            (Some(Place { age, hash }), Ok(length)) => index.found(age, hash, length),
            _ => false,
        };
        if !is_known {
            // Nobody else's files are here.
            drop(self.disk.remove(name));
        }
    }

    /// One thing that there is to do; whether there may be more. Blocks.
    fn step(&self) -> bool {
        let (left, is_enough) = self.make_room(0);
        if left > 0 && !is_enough {
            return true;
        }
        let Some(coming) = self.with(Index::next).flatten() else { return false };
        self.write(&coming);
        true
    }

    /// Has the oldest leave until so many more bytes have room, here and on the disk: how many left, and whether there is.
    fn make_room(&self, more: u64) -> (usize, bool) {
        let wanted = self.spare.saturating_add(more);
        // Of a disk that does not say so nobody knows what it needs.
        let Ok(free) = self.disk.free().inspect_err(|_| self.failed.one()) else { return (0, false) };
        let room = |index: &mut Index| {
            let (_, bytes) = index.size();
            let of_others = bytes.saturating_sub(wanted.saturating_sub(free));
            let limit = self.limit.saturating_sub(more).min(of_others);
            let leaving = index.make_room(limit);
            (leaving, index.size().1 <= limit)
        };
        let Some((leaving, fits)) = self.with(room) else { return (0, false) };
        leaving.iter().for_each(|&(age, hash)| self.discard(Place { age, hash }));
        self.counts.evicted.some(leaving.len() as u64);
        let is_free = free >= wanted || self.disk.free().is_ok_and(|free| free >= wanted);
        (leaving.len(), fits && is_free)
    }

    fn write(&self, coming: &Coming) {
        let Coming { age, hash, key, bytes } = coming;
        let (place, length) = (Place { age: *age, hash: *hash }, length(key, bytes));
        if !self.make_room(length).1 {
            self.with(|index| index.pass(coming));
            return;
        }
        self.with(|index| index.begin(length));
        let name = place.name();
        let head = [&MAGIC[..], &(key.0.len() as u32).to_be_bytes()].concat();
        let sum = sum(&key.0, bytes).to_be_bytes();
        let written = self.disk.create_new(&name).and_then(|()| {
            let parts: [&[u8]; 4] = [&head, &key.0, &sum, bytes];
            self.disk.write_at(&name, 0, &parts)
        });
        let stays = self.with(|index| index.end(coming, length, written.is_ok()));
        if let Err(error) = written {
            tracing::debug!(%error, "the disk keeps nothing");
            self.failed.one();
        }
        if stays != Some(true) {
            self.discard(place);
        }
    }
}

impl Place {
    fn name(self) -> String {
        format!("{:016x}-{:032x}", self.age, self.hash)
    }
}

/// Ages grow by one with each file: one that is near the end of all numbers was written by nobody.
const LAST_AGE: u64 = u64::MAX >> 1;

fn parsed(name: &str) -> Option<Place> {
    let (age, hash) = name.split_once('-').filter(|(age, hash)| age.len() == 16 && hash.len() == 32)?;
    let (age, hash) = (u64::from_str_radix(age, 16).ok()?, Hash::from_str_radix(hash, 16).ok()?);
    Some(Place { age, hash }).filter(|place| place.age <= LAST_AGE && place.name() == name)
}

/// Of the file that holds it.
fn length(key: &ShelfKey, bytes: &Bytes) -> u64 {
    (HEAD + key.0.len() + SUM + bytes.len()) as u64
}

fn sum(key: &[u8], bytes: &[u8]) -> Hash {
    hash::list(&[hash::bytes(key), hash::bytes(bytes)])
}

/// The key of a file that is what was written, and where its bytes begin.
fn opened(file: &[u8]) -> Option<(&[u8], usize)> {
    let (head, rest) = file.split_at_checked(HEAD)?;
    let length = u32::from_be_bytes(head.strip_prefix(MAGIC)?.try_into().ok()?) as usize;
    let (key, rest) = rest.split_at_checked(length)?;
    let (said, bytes) = rest.split_at_checked(SUM)?;
    let is_whole = said == sum(key, bytes).to_be_bytes();
    is_whole.then_some((key, HEAD + length + SUM))
}

#[cfg(test)]
mod tests;
