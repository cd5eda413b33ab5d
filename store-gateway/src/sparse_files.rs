//! Files of a block, fetched range by range as queries need them.
//!
//! Fetches are aligned to whole pages, since only whole pages have checksums. Adjacent pages are fetched
//! together.
//! Fetched ranges stay for later queries. A query waits for a range that another query is already fetching.
//! That is no `SingleFlight`: ranges overlap and are not equal, and the waiters need no result.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use athanor_block::{
    BlockError, BlockFolder, BlockMeta, FileRanges, MAX_FETCH_GAP_BYTES, MAX_META_BYTES, META_FILE,
    PARQUET_FILES, align_to_pages, footer_range,
};
use athanor_chassis::Status;
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use futures::stream::{self, StreamExt, TryStreamExt};
use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;

use crate::block_fetcher::BlockFetcher;

/// Maximum number of concurrent requests for one part of a block.
const MAX_CONCURRENT_FETCHES: usize = 8;

/// Files of a block, with the ranges fetched so far.
pub struct SparseBlockFiles {
    /// Approximate memory of `meta.json`, in bytes.
    meta_bytes: usize,
    lengths: BTreeMap<&'static str, u64>,
    files: RwLock<BTreeMap<&'static str, FetchedRanges>>,
    /// Ranges that were read before they were fetched.
    missed: Mutex<FileRanges>,
    /// Count of reads of ranges that were not fetched.
    misses: AtomicU64,
    /// Fetched ranges, one entry per fetch.
    fetched: Mutex<FileRanges>,
    /// Ranges that are being fetched.
    pending: Mutex<PendingRanges>,
    /// True after the first query of this part.
    asked: AtomicBool,
}

/// Ranges that are being fetched, by number. Each has a future that resolves when its fetch ends or fails.
#[derive(Default)]
struct PendingRanges {
    ranges: BTreeMap<u64, (&'static str, Range<u64>, PendingFetch)>,
    next: u64,
}

type PendingFetch = Shared<oneshot::Receiver<()>>;

/// Claim on a range that one query is fetching. The query may be cancelled meanwhile.
struct FetchGuard<'f> {
    of: &'f SparseBlockFiles,
    number: u64,
    file: &'static str,
    range: Range<u64>,
    /// Dropping this sender wakes the queries that wait for the range.
    _arrives: oneshot::Sender<()>,
}

/// Fetched bytes of a file, by offset. Ranges do not overlap.
#[derive(Default)]
struct FetchedRanges(BTreeMap<u64, Bytes>);

impl FetchedRanges {
    /// Returns the parts of a range that were not fetched.
    fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let before = self.0.range(..range.start).next_back();
        let pieces = before.into_iter().chain(self.0.range(range.clone()));
        gaps(range, pieces.map(|(&start, bytes)| start..start + bytes.len() as u64))
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
            let from = range.start.max(start);
            let to = range.end.min(start + bytes.len() as u64);
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

impl SparseBlockFiles {
    /// Creates the files from `meta.json`, which is decoded here. No other file is fetched.
    pub fn from_meta(said: &[u8]) -> Result<(Self, BlockMeta), BlockError> {
        let seen = said.len() as u64;
        if seen > MAX_META_BYTES {
            return Err(BlockError::Meta {
                why: format!("size is {seen} bytes, the limit is {MAX_META_BYTES}"),
            });
        }
        let meta = BlockMeta::decode(said)?;
        let length = |file: &'static str| meta.files.get(file).map(|of| (file, of.bytes));
        let begun = Self {
            meta_bytes: said.len(),
            lengths: PARQUET_FILES.into_iter().filter_map(length).collect(),
            files: RwLock::default(),
            missed: Mutex::default(),
            misses: AtomicU64::new(0),
            fetched: Mutex::default(),
            pending: Mutex::default(),
            asked: AtomicBool::new(false),
        };
        Ok((begun, meta))
    }

    /// Marks the part as queried. Returns whether an earlier query had used the part.
    pub fn has_earlier_query(&self) -> bool {
        self.asked.swap(true, Ordering::Relaxed)
    }

    /// Returns the number of fetched bytes.
    pub fn fetched_bytes(&self) -> usize {
        self.meta_bytes + self.files.read().values().map(FetchedRanges::bytes).sum::<usize>()
    }

    /// Returns the range at the end of a file that contains its footer.
    pub fn footer_range(&self, file: &'static str) -> (&'static str, Range<u64>) {
        (file, footer_range(self.file_length(file)))
    }

    /// Returns the ranges that were read before they were fetched, and clears the list.
    pub fn take_missed_ranges(&self) -> FileRanges {
        std::mem::take(&mut *self.missed.lock())
    }

    /// Returns the count of reads of ranges that were not fetched.
    pub fn miss_count(&self) -> u64 {
        self.misses.load(Ordering::SeqCst)
    }

    /// Returns the fetched ranges, one entry per fetch.
    pub fn fetched_ranges(&self) -> FileRanges {
        self.fetched.lock().clone()
    }

    /// Returns the missing parts of some ranges, aligned to whole pages.
    pub fn missing_ranges(&self, extents: &[(&'static str, Range<u64>)]) -> FileRanges {
        let files = self.files.read();
        let none = FetchedRanges::default();
        let near = |(file, range)| {
            let gaps = files.get(file).unwrap_or(&none).gaps(&range);
            let whole = gaps.first().zip(gaps.last()).map(|(first, last)| (file, first.start..last.end));
            whole.filter(|(_, whole)| whole.end - whole.start <= MAX_FETCH_GAP_BYTES).map_or_else(
                || gaps.into_iter().map(|gap| (file, gap)).collect::<Vec<_>>(),
                |whole| vec![whole],
            )
        };
        align_to_pages(extents, |file| self.file_length(file)).into_iter().flat_map(near).collect()
    }

    /// Fetches the ranges that are neither present nor in flight, and waits for the ranges in flight.
    pub async fn fetch_ranges(
        &self,
        origin: &BlockFetcher<'_>,
        extents: &[(&'static str, Range<u64>)],
    ) -> Result<(), Status> {
        loop {
            let (mine, others) = self.claim_ranges(extents);
            if mine.is_empty() && others.is_empty() {
                return Ok(());
            }
            let each: Vec<BoxFuture<'_, Result<(), Status>>> =
                mine.into_iter().map(|claim| self.fetch_range(origin, claim).boxed()).collect();
            stream::iter(each).buffer_unordered(MAX_CONCURRENT_FETCHES).try_collect::<()>().await?;
            for other in others {
                // If the other fetch failed or was cancelled, the next pass fetches the range here.
                let _ = other.await;
            }
        }
    }

    /// Claims the missing ranges that nothing fetches yet. Also returns futures for those in flight.
    fn claim_ranges(
        &self,
        extents: &[(&'static str, Range<u64>)],
    ) -> (Vec<FetchGuard<'_>>, Vec<PendingFetch>) {
        // A fetched range is added before it leaves the pending list, so no range is fetched by two queries.
        let mut pending = self.pending.lock();
        let mut mine = Vec::new();
        let mut others = BTreeMap::new();
        for (file, range) in self.missing_ranges(extents) {
            let mut on_their_way = Vec::new();
            for (number, (of, other, arrival)) in &pending.ranges {
                if *of == file && other.start < range.end && range.start < other.end {
                    on_their_way.push(other.clone());
                    others.insert(*number, arrival.clone());
                }
            }
            on_their_way.sort_unstable_by_key(|other| other.start);
            mine.extend(gaps(&range, on_their_way.into_iter()).into_iter().map(|gap| (file, gap)));
        }
        let claims = mine.into_iter().map(|(file, range)| pending.add(self, file, range)).collect();
        (claims, others.into_values().collect())
    }

    async fn fetch_range(&self, origin: &BlockFetcher<'_>, claim: FetchGuard<'_>) -> Result<(), Status> {
        let file = claim.file;
        let range = claim.range.clone();
        let length = self.file_length(file);
        let bytes = origin.fetch_range(file, range.clone(), length).await?;
        self.fetched.lock().push((file, range.clone()));
        let mut files = self.files.write();
        files.entry(file).or_default().add(range.start, &bytes);
        drop(files);
        drop(claim);
        Ok(())
    }

    fn file_length(&self, file: &str) -> u64 {
        self.lengths.get(file).copied().unwrap_or_default()
    }
}

impl PendingRanges {
    fn add<'f>(&mut self, of: &'f SparseBlockFiles, file: &'static str, range: Range<u64>) -> FetchGuard<'f> {
        let (arrives, arrival) = oneshot::channel();
        let number = self.next;
        self.next += 1;
        self.ranges.insert(number, (file, range.clone(), arrival.shared()));
        FetchGuard { of, number, file, range, _arrives: arrives }
    }
}

impl Drop for FetchGuard<'_> {
    fn drop(&mut self) {
        self.of.pending.lock().ranges.remove(&self.number);
    }
}

/// Returns the parts of a range that the covered ranges leave out. Covered ranges are sorted by start.
fn gaps(range: &Range<u64>, covered: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut gaps = Vec::new();
    let mut at = range.start;
    for Range { start, end } in covered {
        if start > at {
            gaps.push(at..start);
        }
        at = at.max(end);
    }
    if at < range.end {
        gaps.push(at..range.end);
    }
    gaps
}

impl BlockFolder for SparseBlockFiles {
    fn create(&self, name: &str) -> io::Result<Box<dyn io::Write + Send>> {
        Err(io::Error::other(format!("{name}: fetched files are read-only")))
    }
    fn read(&self, name: &str, offset: u64, length: usize) -> io::Result<Bytes> {
        let wanted = offset..offset.saturating_add(length as u64);
        let found = self.files.read().get(name).and_then(|pieces| pieces.read(&wanted));
        found.ok_or_else(|| {
            if let Some(file) = PARQUET_FILES.into_iter().find(|file| *file == name) {
                self.missed.lock().push((file, wanted));
                self.misses.fetch_add(1, Ordering::SeqCst);
            }
            io::Error::other(format!("{length} bytes of {name} at offset {offset} were not fetched"))
        })
    }
    fn length(&self, name: &str) -> io::Result<u64> {
        if name == META_FILE {
            return Ok(self.meta_bytes as u64);
        }
        self.lengths.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[cfg(test)]
mod tests {
    use athanor_block::PAGE_BYTES;

    use super::*;

    #[test]
    fn pieces_are_put_together_and_never_overlap() {
        let all: Bytes = (0..100u8).collect::<Vec<_>>().into();
        let mut pieces = FetchedRanges::default();
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

    #[test]
    fn what_is_on_its_way_is_waited_for_until_whoever_fetches_it_leaves() {
        const FILE: &str = PARQUET_FILES[0];
        let pages = |from: u64, to: u64| from * PAGE_BYTES as u64..to * PAGE_BYTES as u64;
        let fetched = SparseBlockFiles {
            meta_bytes: 0,
            lengths: BTreeMap::from([(FILE, 10 * PAGE_BYTES as u64)]),
            files: RwLock::default(),
            missed: Mutex::default(),
            misses: AtomicU64::new(0),
            fetched: Mutex::default(),
            pending: Mutex::default(),
            asked: AtomicBool::new(false),
        };
        let ranges =
            |claims: &[FetchGuard<'_>]| claims.iter().map(|claim| claim.range.clone()).collect::<Vec<_>>();
        let (first, nobody) = fetched.claim_ranges(&[(FILE, pages(2, 5))]);
        assert_eq!((ranges(&first), nobody.len()), (vec![pages(2, 5)], 0));
        let (second, mut waits) = fetched.claim_ranges(&[(FILE, pages(0, 10))]);
        assert_eq!((ranges(&second), waits.len()), (vec![pages(0, 2), pages(5, 10)], 1));
        assert!((&mut waits[0]).now_or_never().is_none());
        drop(first);
        assert!((&mut waits[0]).now_or_never().is_some());
        let (third, waits) = fetched.claim_ranges(&[(FILE, pages(0, 10))]);
        assert_eq!((ranges(&third), waits.len()), (vec![pages(2, 5)], 2));
        drop((second, third));
        assert!(fetched.pending.lock().ranges.is_empty());
    }
}
