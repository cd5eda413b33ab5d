//! What is kept on disk: answers and pages of blocks, below what is kept in memory, so that a restart forgets less.
//!
//! ```text
//!  file 000000000000002a-8f…: "athkept1" │ length of key │ key │ sum of key and bytes │ bytes
//! ```
//!
//! A file's name says when it came and, by a hash, what it is; its key says so in full. Sums are looked at whenever a file
//! is read: one that is not what was written is removed and counted, and what it held is found anew. Nothing is synced,
//! since whatever a crash leaves of a file is seen by its sum. Oldest files make room for new ones. A disk that is full or
//! fails keeps nothing, and no question fails for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use athanor_catalog::BlockId;
use athanor_chassis::disk::DiskError;
use athanor_chassis::{ByteSize, Disk, TenantId};
use athanor_profile::hash::{self, Hash};
use bytes::Bytes;

const MAGIC: &[u8; 8] = b"athkept1";
/// Before the key: what it is, and the key's length.
const HEAD: usize = 12;
const SUM: usize = 16;
/// Files at most, whatever they hold: all of them are known in memory.
const MOST: usize = 200_000;

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShelfKey(Vec<u8>);

/// The files.
pub struct Shelf {
    disk: Arc<dyn Disk>,
    limit: u64,
    /// So much of the disk stays free.
    spare: u64,
    /// None until the folder was listed.
    index: Mutex<Option<Index>>,
    counts: Counts,
}

/// Which files there are.
#[derive(Default)]
struct Index {
    by_hash: HashMap<Hash, u64>,
    /// Hash and length, by when they came.
    by_age: BTreeMap<u64, (Hash, u64)>,
    /// What is being written: nobody reads it yet.
    coming: BTreeSet<Hash>,
    /// Bytes of all, what is being written included.
    bytes: u64,
    next: u64,
}

#[derive(Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    evicted: AtomicU64,
    damaged: AtomicU64,
    failed: AtomicU64,
}

/// How useful it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShelfStats {
    /// Files that were there.
    pub hits: u64,
    /// Files that were not.
    pub misses: u64,
    /// Files that made room for others.
    pub evicted: u64,
    /// Files that were not what had been written.
    pub damaged: u64,
    /// Files that the disk did not take or give.
    pub failed: u64,
    /// Files that are there.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many bytes there may be.
    pub limit: u64,
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
        let (limit, spare) = (limit.get(), spare.get());
        Self { disk, limit, spare, index: Mutex::new(None), counts: Counts::default() }
    }

    /// What was kept under a key. Blocks.
    pub fn get(&self, key: &ShelfKey) -> Option<Bytes> {
        let hash = key.hash();
        let found = self.with(|index| index.by_hash.get(&hash).copied()).flatten();
        let read = found.and_then(|age| {
            let name = name(age, hash);
            match self.disk.read(&name) {
                Ok(bytes) => Some((age, name, bytes)),
                Err(error) => {
                    // Another one may have removed it meanwhile.
                    tracing::debug!(%error, "a kept file cannot be read");
                    if !matches!(error, DiskError::NotFound { .. }) {
                        self.counts.failed.fetch_add(1, Ordering::Relaxed);
                    }
                    self.remove(age, hash);
                    None
                }
            }
        });
        let Some((age, name, bytes)) = read else {
            self.counts.misses.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        match opened(&bytes) {
            Some((of, _)) if of != key.0 => {
                self.counts.misses.fetch_add(1, Ordering::Relaxed);
                None
            }
            Some((_, start)) => {
                self.counts.hits.fetch_add(1, Ordering::Relaxed);
                Some(Bytes::from(bytes).slice(start..))
            }
            None => {
                tracing::warn!(name, "a kept file is damaged and is removed, what it held is found anew");
                self.counts.damaged.fetch_add(1, Ordering::Relaxed);
                self.counts.misses.fetch_add(1, Ordering::Relaxed);
                self.remove(age, hash);
                None
            }
        }
    }

    /// Removes what was kept under a key: it is not what it should be. Blocks.
    pub fn drop_damaged(&self, key: &ShelfKey) {
        let hash = key.hash();
        if let Some(age) = self.with(|index| index.by_hash.get(&hash).copied()).flatten() {
            self.counts.damaged.fetch_add(1, Ordering::Relaxed);
            self.remove(age, hash);
        }
    }

    /// Keeps bytes under a key, if there is room. Blocks.
    pub fn put(&self, key: &ShelfKey, bytes: &[u8]) {
        let (hash, length) = (key.hash(), (HEAD + key.0.len() + SUM + bytes.len()) as u64);
        if length > self.limit / 4 {
            return;
        }
        let is_free = self.disk.free().is_ok_and(|free| free >= self.spare.saturating_add(length));
        let placed = self.with(|index| {
            if index.by_hash.contains_key(&hash) || index.coming.contains(&hash) {
                return None;
            }
            // Where the disk has no room for more, older files go, so that it has some later.
            let limit = if is_free { self.limit } else { index.bytes.saturating_sub(length) };
            let evicted = index.make_room(limit.saturating_sub(if is_free { length } else { 0 }));
            Some((is_free.then(|| index.begin(hash, length)), evicted))
        });
        let Some((age, evicted)) = placed.flatten() else { return };
        self.counts.evicted.fetch_add(evicted.len() as u64, Ordering::Relaxed);
        evicted.iter().for_each(|(age, hash)| drop(self.disk.remove(&name(*age, *hash))));
        let Some(age) = age else {
            if !evicted.is_empty() {
                drop(self.disk.sync_dir());
            }
            return;
        };
        let name = name(age, hash);
        let head = [&MAGIC[..], &(key.0.len() as u32).to_be_bytes()].concat();
        let sum = sum(&key.0, bytes).to_be_bytes();
        let written = self.disk.create_new(&name).and_then(|()| {
            let parts: [&[u8]; 4] = [&head, &key.0, &sum, bytes];
            self.disk.write_at(&name, 0, &parts)
        });
        self.with(|index| index.end((age, hash, length), written.is_ok()));
        if let Err(error) = written {
            tracing::debug!(%error, "the disk keeps nothing");
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
            drop(self.disk.remove(&name));
        }
    }

    /// How useful it is so far.
    pub fn stats(&self) -> ShelfStats {
        let Counts { hits, misses, evicted, damaged, failed } = &self.counts;
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (files, bytes) =
            self.lock().as_ref().map_or((0, 0), |index| (index.by_age.len() as u64, index.bytes));
        ShelfStats {
            hits: now(hits),
            misses: now(misses),
            evicted: now(evicted),
            damaged: now(damaged),
            failed: now(failed),
            files,
            bytes,
            limit: self.limit,
        }
    }

    fn remove(&self, age: u64, hash: Hash) {
        self.forget(age, hash);
        // What stays is found by the next start.
        drop(self.disk.remove(&name(age, hash)));
    }

    fn forget(&self, age: u64, hash: Hash) {
        self.with(|index| index.forget(age, hash));
    }

    /// The index; the folder is listed first where that was not done. None where it cannot be.
    fn with<R>(&self, with: impl FnOnce(&mut Index) -> R) -> Option<R> {
        let mut index = self.lock();
        if index.is_none() {
            let mut found = match self.list() {
                Ok(found) => found,
                Err(error) => {
                    tracing::debug!(%error, "the folder of kept files cannot be listed");
                    self.counts.failed.fetch_add(1, Ordering::Relaxed);
                    return None;
                }
            };
            let evicted = found.make_room(self.limit);
            evicted.iter().for_each(|(age, hash)| drop(self.disk.remove(&name(*age, *hash))));
            *index = Some(found);
        }
        index.as_mut().map(with)
    }

    fn list(&self) -> Result<Index, DiskError> {
        let mut index = Index::default();
        for name in self.disk.list()? {
            let is_new = |(age, hash): &(u64, Hash)| {
                !index.by_hash.contains_key(hash) && !index.by_age.contains_key(age)
            };
            let known = parsed(&name).filter(is_new);
            match (known, self.disk.len(&name)) {
                (Some((age, hash)), Ok(length)) => index.insert(age, hash, length),
                // Nobody else's files are here.
                _ => drop(self.disk.remove(&name)),
            }
        }
        Ok(index)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Index>> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    fn insert(&mut self, age: u64, hash: Hash, length: u64) {
        self.by_hash.insert(hash, age);
        self.by_age.insert(age, (hash, length));
        self.bytes += length;
        self.next = self.next.max(age.saturating_add(1));
    }

    /// Takes room for what is about to be written.
    fn begin(&mut self, hash: Hash, length: u64) -> u64 {
        self.coming.insert(hash);
        self.bytes += length;
        self.next += 1;
        self.next - 1
    }

    /// It is written, or could not be.
    fn end(&mut self, (age, hash, length): (u64, Hash, u64), is_written: bool) {
        self.coming.remove(&hash);
        self.bytes -= length;
        if is_written {
            self.insert(age, hash, length);
        }
    }

    fn forget(&mut self, age: u64, hash: Hash) {
        if let Some((_, length)) = self.by_age.remove(&age) {
            self.bytes -= length;
            if self.by_hash.get(&hash) == Some(&age) {
                self.by_hash.remove(&hash);
            }
        }
    }

    /// Takes out the oldest until there are no more bytes than that, nor too many files.
    fn make_room(&mut self, bytes: u64) -> Vec<(u64, Hash)> {
        let mut out = Vec::new();
        while self.bytes > bytes || self.by_age.len() >= MOST {
            let Some((&age, &(hash, _))) = self.by_age.first_key_value() else { break };
            self.forget(age, hash);
            out.push((age, hash));
        }
        out
    }
}

fn name(age: u64, hash: Hash) -> String {
    format!("{age:016x}-{hash:032x}")
}

fn parsed(name: &str) -> Option<(u64, Hash)> {
    let (age, hash) = name.split_once('-').filter(|(age, hash)| age.len() == 16 && hash.len() == 32)?;
    Some((u64::from_str_radix(age, 16).ok()?, Hash::from_str_radix(hash, 16).ok()?))
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
