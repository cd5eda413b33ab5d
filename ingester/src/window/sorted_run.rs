//! Sorted run: a file of ids in order, written once and never changed.
//!
//! ```text
//! pages    4096 bytes each: 204 records (id and age), then zeros, then a checksum
//! fences   8 bytes a page: the first bytes of its first id
//! filter   15 bits an id
//! tail     counts, ages, and a checksum over all but the pages
//! ```
//! Fences and filter are in memory, less than two bytes an id. A lookup of an absent id reads a page in about
//! one of a thousand cases.

use std::sync::Arc;

use athanor_chassis::Disk;
use athanor_chassis::disk::DiskError;
use athanor_profile::encoding::hash::{self, ContentHash};

use super::bloom_filter::BloomFilter;

const PAGE_BYTES: usize = 4096;
const RECORD_BYTES: usize = 20;
/// Number of records in a page, which ends with the checksum.
const RECORDS_PER_PAGE: usize = (PAGE_BYTES - 8) / RECORD_BYTES;
const FOOTER_BYTES: usize = 64;
const RUN_FILE_MAGIC: u64 = u64::from_le_bytes(*b"athids\x01\n");
/// Pages that one call writes, or reads in a row.
const PAGES_PER_IO: usize = 64;

/// Record of an id and its age, in bytes that sort as the id does.
pub type IdRecord = [u8; RECORD_BYTES];

/// Name of a run file, as a snapshot contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunName {
    /// Number in the file name.
    pub number: u64,
    /// Checksum at the end of the file.
    pub sum: u64,
}

/// Sorted file of ids, with fences and filter in memory.
#[derive(Debug)]
pub struct SortedRun {
    /// Number and checksum of the file.
    pub name: RunName,
    /// Number of ids in it.
    pub records: u64,
    /// Youngest age in the file.
    pub newest: u32,
    file: String,
    fences: Vec<u64>,
    filter: BloomFilter,
}

/// Reason why a run cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The bytes differ from those that were written.
    #[error("{file} is damaged")]
    Damaged {
        /// Name of the damaged file.
        file: String,
    },
    /// The disk failed to read.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Writer of a run. Records come in order, each id once.
pub struct RunWriter<'d> {
    disk: &'d dyn Disk,
    file: String,
    number: u64,
    records: u64,
    newest: u32,
    fences: Vec<u64>,
    filter: BloomFilter,
    /// Full pages, and the part of the last one so far.
    pending: Vec<u8>,
    written: u64,
}

/// Reader of a run's records, in order.
pub struct RunReader<'d> {
    disk: &'d dyn Disk,
    run: Arc<SortedRun>,
    next: u64,
    /// Records of the last pages read; `place` is the next of them.
    read: Vec<IdRecord>,
    place: usize,
    /// Number of damaged pages that were skipped.
    pub damaged: u64,
}

/// Encodes the record of an id.
pub fn encode_record(id: ContentHash, age: u32) -> IdRecord {
    let mut record = [0; RECORD_BYTES];
    record[..16].copy_from_slice(&id.to_be_bytes());
    record[16..].copy_from_slice(&age.to_be_bytes());
    record
}

/// Returns the id of a record.
pub fn record_id(record: &IdRecord) -> ContentHash {
    record[..16].iter().fold(0, |id, &byte| id << 8 | ContentHash::from(byte))
}

/// Returns the age in a record.
pub fn record_age(record: &IdRecord) -> u32 {
    record[16..].iter().fold(0, |age, &byte| age << 8 | u32::from(byte))
}

fn fence(id: ContentHash) -> u64 {
    (id >> 64) as u64
}

/// Computes the checksum of a page's records. It is valid only for this file and place.
fn checksum(page: &[u8], number: u64, place: u64) -> [u8; 8] {
    (hash::hash_tagged(number.rotate_left(32) ^ place, page) as u64).to_le_bytes()
}

impl SortedRun {
    /// Opens the file that a snapshot names.
    pub fn open(disk: &dyn Disk, file: String, name: RunName) -> Result<Self, RunError> {
        let length = disk.len(&file)?;
        let damaged = || RunError::Damaged { file: file.clone() };
        let tail_at = length.checked_sub(FOOTER_BYTES as u64).ok_or_else(damaged)?;
        let tail = bytes(disk, &file, tail_at, FOOTER_BYTES as u64)?;
        let word = |place: usize| word(&tail, place);
        let [magic, number, records, pages, filter, newest] = std::array::from_fn(word);
        let rest = pages.checked_mul(8).and_then(|fences| fences.checked_add(filter.checked_mul(8)?));
        let begin = pages.checked_mul(PAGE_BYTES as u64);
        let fits = rest.zip(begin).is_some_and(|(rest, begin)| begin.checked_add(rest) == Some(tail_at));
        let full = pages == records.div_ceil(RECORDS_PER_PAGE as u64);
        // The smallest filter has a word, too.
        let filtered = filter > 0;
        let sound =
            (magic, number, word(7)) == (RUN_FILE_MAGIC, name.number, name.sum) && fits && full && filtered;
        let Some((rest, begin)) = rest.zip(begin).filter(|_| sound) else { return Err(damaged()) };
        let index = bytes(disk, &file, begin, rest)?;
        if sum(&index, &tail) != name.sum {
            return Err(damaged());
        }
        let (fences, filter) = index.split_at(pages as usize * 8);
        let fences = fences.chunks(8).map(|bytes| self::word(bytes, 0)).collect();
        let filter = BloomFilter::from_bytes(filter);
        let newest = newest as u32;
        Ok(Self { name, records, newest, file, fences, filter })
    }

    /// Returns the age of an id; none if the file lacks it.
    pub fn find(&self, disk: &dyn Disk, wanted: ContentHash) -> Result<Option<u32>, RunError> {
        if !self.filter.may_contain(wanted) {
            return Ok(None);
        }
        let after = self.fences.partition_point(|&begin| begin <= fence(wanted));
        for place in (0..after).rev() {
            let page = bytes(disk, &self.file, (place * PAGE_BYTES) as u64, PAGE_BYTES as u64)?;
            let records = self.check(&page, place as u64)?;
            if let Ok(found) = records.binary_search_by_key(&wanted, record_id) {
                return Ok(Some(record_age(&records[found])));
            }
            // IDs with equal first bytes may begin in the page before.
            if self.fences[place] < fence(wanted) {
                break;
            }
        }
        Ok(None)
    }

    /// Returns the bytes of filter and fences in memory.
    #[cfg(test)]
    pub fn size(&self) -> usize {
        self.filter.size() + self.fences.len() * 8
    }

    /// Verifies a page and returns its records.
    fn check<'p>(&self, page: &'p [u8], place: u64) -> Result<&'p [IdRecord], RunError> {
        if page.len() < PAGE_BYTES
            || checksum(&page[..PAGE_BYTES - 8], self.name.number, place) != page[PAGE_BYTES - 8..PAGE_BYTES]
        {
            return Err(RunError::Damaged { file: self.file.clone() });
        }
        let records = (self.records - place * RECORDS_PER_PAGE as u64).min(RECORDS_PER_PAGE as u64) as usize;
        Ok(page[..records * RECORD_BYTES].as_chunks().0)
    }
}

/// Reads `length` bytes of a file, or fewer at its end.
fn bytes(disk: &dyn Disk, file: &str, at: u64, length: u64) -> Result<Vec<u8>, DiskError> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    let read = disk.read_at(file, at, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

fn word(bytes: &[u8], place: usize) -> u64 {
    let bytes = bytes.get(place * 8..place * 8 + 8).unwrap_or_default();
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

fn sum(index: &[u8], tail: &[u8]) -> u64 {
    hash::hash_tagged(hash::hash_bytes(index) as u64, &tail[..FOOTER_BYTES - 8]) as u64
}

impl<'d> RunWriter<'d> {
    /// Creates a file for at most `most` ids.
    pub fn begin(disk: &'d dyn Disk, file: String, number: u64, most: u64) -> Result<Self, DiskError> {
        disk.create_new(&file)?;
        let fences = Vec::with_capacity(most.div_ceil(RECORDS_PER_PAGE as u64) as usize);
        let filter = BloomFilter::new(most);
        let pending = Vec::with_capacity(PAGES_PER_IO * PAGE_BYTES);
        let written = 0;
        Ok(Self { disk, file, number, records: 0, newest: 0, fences, filter, pending, written })
    }

    /// Appends the next record.
    pub fn push(&mut self, record: &IdRecord) -> Result<(), DiskError> {
        if self.records.is_multiple_of(RECORDS_PER_PAGE as u64) {
            self.end_page();
            if self.pending.len() == PAGES_PER_IO * PAGE_BYTES {
                self.flush()?;
            }
            self.fences.push(fence(record_id(record)));
        }
        self.pending.extend_from_slice(record);
        self.filter.put(record_id(record));
        self.records += 1;
        self.newest = self.newest.max(record_age(record));
        Ok(())
    }

    fn end_page(&mut self) {
        if self.pending.len().is_multiple_of(PAGE_BYTES) {
            return;
        }
        let begin = self.pending.len() / PAGE_BYTES * PAGE_BYTES;
        self.pending.resize(begin + PAGE_BYTES - 8, 0);
        let place = self.fences.len() as u64 - 1;
        let sum = checksum(&self.pending[begin..], self.number, place);
        self.pending.extend_from_slice(&sum);
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        self.disk.write_at(&self.file, self.written, &[&self.pending])?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Completes the file and makes it durable.
    pub fn finish(mut self) -> Result<SortedRun, DiskError> {
        self.end_page();
        self.flush()?;
        let index: Vec<u8> =
            self.fences.iter().flat_map(|fence| fence.to_le_bytes()).chain(self.filter.bytes()).collect();
        let pages = self.fences.len() as u64;
        let filter = self.filter.size() as u64 / 8;
        let words = [RUN_FILE_MAGIC, self.number, self.records, pages, filter, u64::from(self.newest), 0, 0];
        let mut tail: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let sum = sum(&index, &tail);
        tail[FOOTER_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        self.disk.write_at(&self.file, self.written, &[&index, &tail])?;
        self.disk.sync(&self.file)?;
        self.disk.sync_dir()?;
        let Self { file, number, records, newest, fences, filter, .. } = self;
        Ok(SortedRun { name: RunName { number, sum }, records, newest, file, fences, filter })
    }
}

impl<'d> RunReader<'d> {
    /// Creates a reader of all records.
    pub fn new(disk: &'d dyn Disk, run: Arc<SortedRun>) -> Self {
        Self { disk, run, next: 0, read: Vec::new(), place: 0, damaged: 0 }
    }

    /// Creates a reader that leaves out pages with only ids before `after`.
    pub fn after_id(disk: &'d dyn Disk, run: Arc<SortedRun>, after: Option<ContentHash>) -> Self {
        // IDs with equal first bytes may begin in the page before.
        let first = after.map_or(0, |after| run.fences.partition_point(|&begin| begin < fence(after)));
        Self { next: first.saturating_sub(1) as u64, ..Self::new(disk, run) }
    }

    /// Returns an error if damaged pages were skipped.
    pub fn sound(&self) -> Result<(), RunError> {
        let file = || self.run.file.clone();
        if self.damaged == 0 { Ok(()) } else { Err(RunError::Damaged { file: file() }) }
    }

    /// Returns the next record; none at the end. Damaged pages are skipped.
    pub fn next(&mut self) -> Result<Option<IdRecord>, DiskError> {
        loop {
            if let Some(record) = self.read.get(self.place) {
                self.place += 1;
                return Ok(Some(*record));
            }
            let left = self.run.fences.len() as u64 - self.next;
            if left == 0 {
                return Ok(None);
            }
            let count = left.min(PAGES_PER_IO as u64);
            let pages =
                bytes(self.disk, &self.run.file, self.next * PAGE_BYTES as u64, count * PAGE_BYTES as u64)?;
            self.read.clear();
            self.place = 0;
            for (offset, place) in (self.next..self.next + count).enumerate() {
                let page = pages.get(offset * PAGE_BYTES..(offset + 1) * PAGE_BYTES).unwrap_or_default();
                match self.run.check(page, place) {
                    Ok(records) => self.read.extend_from_slice(records),
                    Err(_) => self.damaged += 1,
                }
            }
            self.next += count;
        }
    }
}
