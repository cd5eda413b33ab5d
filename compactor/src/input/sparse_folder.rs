//! Files of an input block of which only some byte ranges are fetched.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use athanor_block::{BlockFolder, BlockMeta, FileRanges, PAGE_BYTES, PARQUET_FILES, align_to_pages};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

/// Folder with the fetched ranges of a block's files. Each range is a file of its own in scratch space. A read
/// outside of them fails.
pub(crate) struct SparseFolder {
    fetched: Arc<dyn BlockFolder>,
    lengths: BTreeMap<&'static str, u64>,
    /// End of each fetched range, by file and start.
    ranges: Mutex<BTreeMap<&'static str, BTreeMap<u64, u64>>>,
}

impl SparseFolder {
    /// Creates a folder without fetched ranges.
    pub(crate) fn new(fetched: Arc<dyn BlockFolder>, meta: &BlockMeta) -> Self {
        let length = |file: &'static str| meta.files.get(file).map(|of_file| (file, of_file.bytes));
        Self {
            fetched,
            lengths: PARQUET_FILES.into_iter().filter_map(length).collect(),
            ranges: Mutex::default(),
        }
    }

    fn file_length(&self, file: &str) -> u64 {
        self.lengths.get(file).copied().unwrap_or_default()
    }

    /// Returns the whole pages of some ranges that are not fetched yet.
    pub(crate) fn missing_ranges(&self, wanted: &[(&'static str, Range<u64>)]) -> FileRanges {
        let fetched = self.ranges.lock();
        let none = BTreeMap::new();
        let mut missing = FileRanges::new();
        for (file, range) in align_to_pages(wanted, |file| self.file_length(file)) {
            let mut start = range.start;
            for (&from, &to) in fetched.get(file).unwrap_or(&none).range(..range.end) {
                if from > start {
                    missing.push((file, start..from));
                }
                start = start.max(to);
            }
            if start < range.end {
                missing.push((file, start..range.end));
            }
        }
        missing
    }

    /// Adds a fetched range.
    pub(crate) fn add(&self, file: &'static str, start: u64, bytes: &[u8]) -> io::Result<()> {
        let mut written = self.fetched.create(&range_name(file, start))?;
        written.write_all(bytes)?;
        written.flush()?;
        self.ranges.lock().entry(file).or_default().insert(start, start + bytes.len() as u64);
        Ok(())
    }

    /// Returns the fetched range that contains an offset.
    fn fetched_range(&self, file: &str, offset: u64) -> Option<Range<u64>> {
        let ranges = self.ranges.lock();
        let (&from, &to) = ranges.get(file)?.range(..=offset).next_back()?;
        (offset < to).then_some(from..to)
    }
}

/// Returns the number of the page that starts at an offset.
pub(crate) fn page_number(offset: u64) -> usize {
    (offset / PAGE_BYTES as u64) as usize
}

fn range_name(file: &str, start: u64) -> String {
    format!("{file}.{start:016x}")
}

impl BlockFolder for SparseFolder {
    fn create(&self, _name: &str) -> io::Result<Box<dyn Write + Send>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn read(&self, name: &str, offset: u64, length: usize) -> io::Result<Bytes> {
        let file = PARQUET_FILES.into_iter().find(|file| *file == name).ok_or(io::ErrorKind::NotFound)?;
        let end = offset.checked_add(length as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut content = BytesMut::new();
        let mut start = offset;
        while start < end {
            let Some(fetched) = self.fetched_range(file, start) else {
                return Err(io::Error::other(format!("bytes {start}..{end} are not fetched")));
            };
            let count = fetched.end.min(end) - start;
            let part =
                self.fetched.read(&range_name(file, fetched.start), start - fetched.start, count as usize)?;
            if part.len() == length {
                return Ok(part);
            }
            content.extend_from_slice(&part);
            start += count;
        }
        Ok(content.freeze())
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        self.lengths.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[cfg(test)]
mod tests {
    use athanor_block::{FileMeta, MemoryFolder, SAMPLES_FILE};

    use super::*;

    #[test]
    fn only_fetched_ranges_are_read() {
        let page = PAGE_BYTES as u64;
        let bytes = 4 * page + 10;
        let mut meta = BlockMeta::default();
        meta.files.insert(SAMPLES_FILE.to_owned(), FileMeta { bytes, ..FileMeta::default() });
        let folder = SparseFolder::new(Arc::new(MemoryFolder::default()), &meta);
        let content: Vec<u8> = (0..bytes).map(|at| (at / 7) as u8).collect();
        let slice = |range: Range<u64>| &content[range.start as usize..range.end as usize];
        folder.add(SAMPLES_FILE, page, slice(page..2 * page)).unwrap();
        folder.add(SAMPLES_FILE, 2 * page, slice(2 * page..3 * page)).unwrap();
        assert_eq!(
            folder.read(SAMPLES_FILE, page + 5, 2 * PAGE_BYTES - 5).unwrap(),
            slice(page + 5..3 * page)
        );
        assert!(folder.read(SAMPLES_FILE, 3 * page - 1, 2).is_err());
        assert_eq!(
            folder.missing_ranges(&[(SAMPLES_FILE, 10..bytes)]),
            [(SAMPLES_FILE, 0..page), (SAMPLES_FILE, 3 * page..bytes)]
        );
        assert_eq!(folder.length(SAMPLES_FILE).unwrap(), bytes);
        assert!(folder.length("other").is_err());
    }
}
