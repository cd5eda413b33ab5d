//! Files of blocks, fetched as far as a question needs them.
//!
//! What is fetched is whole pages, since those have checksums. Pages that lie near each other are fetched together. What
//! was fetched for one question stays for the next.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use athanor_block::{BlockError, Extents, FILES, Folder, META, Meta, NEAR, in_pages, tail_of};
use athanor_catalog::BlockId;
use athanor_chassis::{Activity, Code, Compute, Status};
use athanor_storage::Store;
use athanor_storage::path::{FileName, Key, Owner};
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::shelf::{Shelf, ShelfKey};

/// Longer ranges are rows that a question scans, and not kept on disk.
const MOST_KEPT: usize = 4 << 20;
/// Requests for one part of a block at once.
const AT_ONCE: usize = 8;

/// The files of a block, as far as they were fetched.
pub struct Fetched {
    meta: Bytes,
    lengths: BTreeMap<&'static str, u64>,
    files: RwLock<BTreeMap<&'static str, Pieces>>,
    /// What was read before it was fetched.
    missed: Mutex<Extents>,
    /// How often that was.
    misses: AtomicU64,
    /// What was fetched, in one piece each.
    fetched: Mutex<Extents>,
}

/// What was fetched of a file, by its place. No two overlap.
#[derive(Default)]
struct Pieces(BTreeMap<u64, Bytes>);

/// Where the files of a block are fetched from.
pub struct Origin<'o> {
    /// The bucket.
    pub store: &'o Store,
    /// The block.
    pub block: BlockId,
    /// What of it may be on disk.
    pub shelf: Option<&'o Arc<Shelf>>,
    /// Threads for that.
    pub compute: &'o Compute,
}

impl Pieces {
    /// What of a range is not there.
    fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let (mut gaps, mut at) = (Vec::new(), range.start);
        let before = self.0.range(..range.start).next_back();
        for (&start, bytes) in before.into_iter().chain(self.0.range(range.clone())) {
            if start > at {
                gaps.push(at..start);
            }
            at = at.max(start + bytes.len() as u64);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    fn add(&mut self, start: u64, bytes: &Bytes) {
        for gap in self.gaps(&(start..start + bytes.len() as u64)) {
            let piece = bytes.slice((gap.start - start) as usize..(gap.end - start) as usize);
            self.0.insert(gap.start, piece);
        }
    }

    fn read(&self, range: &Range<u64>) -> Option<Bytes> {
        if !self.gaps(range).is_empty() {
            return None;
        }
        let part = |start: u64, bytes: &Bytes| {
            let (from, to) = (range.start.max(start), range.end.min(start + bytes.len() as u64));
            bytes.slice((from - start) as usize..(to.max(from) - start) as usize)
        };
        let (&first, bytes) = self.0.range(..=range.start).next_back()?;
        let one = part(first, bytes);
        let length = (range.end - range.start) as usize;
        if one.len() == length {
            return Some(one);
        }
        let mut all = BytesMut::with_capacity(length);
        all.extend_from_slice(&one);
        self.0
            .range(first + 1..range.end)
            .for_each(|(&start, bytes)| all.extend_from_slice(&part(start, bytes)));
        Some(all.freeze())
    }

    fn bytes(&self) -> usize {
        self.0.values().map(Bytes::len).sum()
    }
}

impl Fetched {
    /// With nothing but what the block says of itself, which is read here.
    pub fn new(meta: Bytes) -> Result<Self, BlockError> {
        let files = Meta::decode(&meta)?.files;
        let length = |file: &'static str| files.get(file).map(|of| (file, of.bytes));
        let lengths = FILES.into_iter().filter_map(length).collect();
        Ok(Self {
            meta,
            lengths,
            files: RwLock::default(),
            missed: Mutex::default(),
            misses: AtomicU64::new(0),
            fetched: Mutex::default(),
        })
    }

    /// Bytes that were fetched.
    pub fn bytes(&self) -> usize {
        self.meta.len() + self.files().values().map(Pieces::bytes).sum::<usize>()
    }

    /// The end of a file, where its footer is.
    pub fn tail(&self, file: &'static str) -> (&'static str, Range<u64>) {
        (file, tail_of(self.length_of(file)))
    }

    /// What was read before it was fetched, since this was asked last.
    pub fn missed(&self) -> Extents {
        std::mem::take(&mut *self.lock_missed())
    }

    /// How often something was read before it was fetched.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::SeqCst)
    }

    /// What was fetched, in one piece each.
    pub fn fetched(&self) -> Extents {
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What of some ranges has to be fetched, in whole pages.
    pub fn missing(&self, extents: &[(&'static str, Range<u64>)]) -> Extents {
        let files = self.files();
        let none = Pieces::default();
        let near = |(file, range)| {
            let gaps = files.get(file).unwrap_or(&none).gaps(&range);
            let whole = gaps.first().zip(gaps.last()).map(|(first, last)| (file, first.start..last.end));
            whole.filter(|(_, whole)| whole.end - whole.start <= NEAR).map_or_else(
                || gaps.into_iter().map(|gap| (file, gap)).collect::<Vec<_>>(),
                |whole| vec![whole],
            )
        };
        in_pages(extents, |file| self.length_of(file)).into_iter().flat_map(near).collect()
    }

    /// Fetches what of some ranges is not there.
    pub async fn fetch(
        &self,
        origin: &Origin<'_>,
        extents: &[(&'static str, Range<u64>)],
    ) -> Result<(), Status> {
        let mut each: Vec<BoxFuture<'_, Result<(), Status>>> = Vec::new();
        for (file, range) in self.missing(extents) {
            each.push(self.fetch_range(origin, file, range).boxed());
        }
        stream::iter(each).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn fetch_range(
        &self,
        origin: &Origin<'_>,
        file: &'static str,
        range: Range<u64>,
    ) -> Result<(), Status> {
        let length = self.length_of(file);
        let bytes = origin.bytes(file, range.clone(), length).await?;
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner).push((file, range.clone()));
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        files.entry(file).or_default().add(range.start, &bytes);
        Ok(())
    }

    fn length_of(&self, file: &str) -> u64 {
        self.lengths.get(file).copied().unwrap_or_default()
    }

    fn files(&self) -> RwLockReadGuard<'_, BTreeMap<&'static str, Pieces>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_missed(&self) -> MutexGuard<'_, Extents> {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Origin<'_> {
    /// What the block says of itself.
    pub async fn meta(&self) -> Result<Bytes, Status> {
        let kept = self.meta_key();
        if let Some(bytes) = self.kept(&kept).await {
            return Ok(bytes);
        }
        let bytes = self.store.get(&self.key(META)?).await.map_err(|error| Status::of(&error))?;
        self.keep(kept, &bytes).await;
        Ok(bytes)
    }

    /// Where that is on disk.
    pub fn meta_key(&self) -> ShelfKey {
        ShelfKey::range(self.block, META, &(0..u64::MAX))
    }

    /// Removes from disk what may be damaged.
    pub async fn doubt(&self, keys: Vec<ShelfKey>) {
        let Some(shelf) = self.shelf.map(Arc::clone) else { return };
        let job = move || keys.iter().for_each(|key| shelf.drop_damaged(key));
        let _ = self.compute.run_as(Activity::Query, job).await;
    }

    /// Bytes of a file of that length.
    async fn bytes(&self, file: &str, range: Range<u64>, length: u64) -> Result<Bytes, Status> {
        let kept = ShelfKey::range(self.block, file, &range);
        let expected = range.end - range.start;
        if let Some(bytes) = self.kept(&kept).await.filter(|bytes| bytes.len() as u64 == expected) {
            return Ok(bytes);
        }
        let key = self.key(file)?;
        let bytes = match range == (0..length) {
            true => self.store.get(&key).await,
            false => self.store.get_range(&key, range).await,
        };
        let bytes = bytes.map_err(|error| Status::of(&error))?;
        let seen = bytes.len() as u64;
        if seen != expected {
            return Err(Status::of(&BlockError::Length { file: file.into(), seen, expected }));
        }
        self.keep(kept, &bytes).await;
        Ok(bytes)
    }

    async fn kept(&self, key: &ShelfKey) -> Option<Bytes> {
        let (shelf, key) = (Arc::clone(self.shelf?), key.clone());
        self.compute.run_as(Activity::Query, move || shelf.get(&key)).await.ok().flatten()
    }

    /// Whether that succeeds or not.
    async fn keep(&self, key: ShelfKey, bytes: &Bytes) {
        let Some(shelf) = self.shelf.filter(|_| bytes.len() <= MOST_KEPT) else { return };
        let (shelf, bytes) = (Arc::clone(shelf), bytes.clone());
        let _ = self.compute.run_as(Activity::Query, move || shelf.put(&key, &bytes)).await;
    }

    fn key(&self, file: &str) -> Result<Key, Status> {
        let file = FileName::new(file).map_err(|error| Status::new(Code::Internal, error.to_string()))?;
        Ok(Key::Block { owner: Owner::Shared, block: self.block.number(), file })
    }
}

impl Folder for Fetched {
    fn create(&self, name: &str) -> io::Result<Box<dyn io::Write + Send>> {
        Err(io::Error::other(format!("{name}: what was fetched is only read")))
    }
    fn read(&self, name: &str, offset: u64, length: usize) -> io::Result<Bytes> {
        if name == META {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let end = start.saturating_add(length);
            let within = end <= self.meta.len();
            return if within {
                Ok(self.meta.slice(start..end))
            } else {
                Err(io::ErrorKind::UnexpectedEof.into())
            };
        }
        let wanted = offset..offset.saturating_add(length as u64);
        let found = self.files().get(name).and_then(|pieces| pieces.read(&wanted));
        found.ok_or_else(|| {
            if let Some(file) = FILES.into_iter().find(|file| *file == name) {
                self.lock_missed().push((file, wanted));
                self.misses.fetch_add(1, Ordering::SeqCst);
            }
            io::Error::other(format!("{length} bytes from byte {offset} on of {name} were not fetched"))
        })
    }
    fn length(&self, name: &str) -> io::Result<u64> {
        if name == META {
            return Ok(self.meta.len() as u64);
        }
        self.lengths.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_put_together_and_never_overlap() {
        let all: Bytes = (0..100u8).collect::<Vec<_>>().into();
        let mut pieces = Pieces::default();
        let whole = |from: u64, to: u64| all.slice(from as usize..to as usize);
        for (from, to) in [(40, 50), (20, 30), (60, 80), (45, 65), (0, 1)] {
            pieces.add(from, &whole(from, to));
        }
        assert_eq!(pieces.gaps(&(0..100)), [1..20, 30..40, 80..100]);
        assert_eq!(pieces.bytes(), 51);
        for from in 0..100 {
            for to in from + 1..=100 {
                let is_there =
                    [0..1, 20..30, 40..80].iter().any(|piece| piece.start <= from && to <= piece.end);
                assert_eq!(pieces.read(&(from..to)), is_there.then(|| whole(from, to)), "{from}..{to}");
            }
        }
        assert_eq!(pieces.gaps(&(41..79)), []);
        assert_eq!(pieces.gaps(&(30..41)), vec![Range { start: 30, end: 40 }]);
    }
}
