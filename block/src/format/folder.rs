//! Folders with the files of a block, and the checksums that protect them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::format::error::BlockError;
use crate::format::meta::{FileMeta, PAGE_BYTES};

/// Factory of empty folders for runs.
pub type ScratchFactory<'s> = dyn FnMut() -> std::io::Result<Arc<dyn BlockFolder>> + 's;

/// Files of one block. A name is never written twice.
pub trait BlockFolder: Send + Sync {
    /// Creates a new file. Fails if the name exists.
    fn create(&self, name: &str) -> io::Result<Box<dyn Write + Send>>;
    /// Reads exactly `length` bytes of a file.
    fn read(&self, name: &str, offset: u64, length: usize) -> io::Result<Bytes>;
    /// Returns the length of a file in bytes.
    fn length(&self, name: &str) -> io::Result<u64>;
    /// Makes all file names durable. The bytes of a file are durable after its flush.
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Folder of the local file system.
pub struct LocalFolder {
    path: PathBuf,
    durable: bool,
}

impl LocalFolder {
    /// Opens an existing folder.
    pub fn open(path: impl Into<PathBuf>) -> Self {
        LocalFolder { path: path.into(), durable: true }
    }
    /// Creates a folder and its parents.
    pub fn create(path: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = Self::open(path);
        fs::create_dir_all(&folder.path)?;
        Ok(folder)
    }
    /// Creates a folder like [`create`](Self::create) for data that need not survive the process. No write
    /// waits for the disk.
    pub fn scratch(path: impl Into<PathBuf>) -> io::Result<Self> {
        Ok(LocalFolder { durable: false, ..Self::create(path)? })
    }
}

/// File with a durable flush if the flag is set. The block writer flushes once, at the end of a file.
struct LocalFile(fs::File, bool);

impl Write for LocalFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        if self.1 { self.0.sync_data() } else { Ok(()) }
    }
}

impl BlockFolder for LocalFolder {
    fn create(&self, name: &str) -> io::Result<Box<dyn Write + Send>> {
        Ok(Box::new(LocalFile(fs::File::create_new(self.path.join(name))?, self.durable)))
    }
    fn sync(&self) -> io::Result<()> {
        if self.durable { fs::File::open(&self.path)?.sync_all() } else { Ok(()) }
    }
    fn read(&self, name: &str, offset: u64, length: usize) -> io::Result<Bytes> {
        let mut content = vec![0; length];
        fs::File::open(self.path.join(name))?.read_exact_at(&mut content, offset)?;
        Ok(content.into())
    }
    fn length(&self, name: &str) -> io::Result<u64> {
        Ok(fs::metadata(self.path.join(name))?.len())
    }
}

/// Folder in memory.
#[derive(Clone, Default)]
pub struct MemoryFolder(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

impl MemoryFolder {
    /// Modifies the bytes of a file, to simulate a faulty disk.
    pub fn tamper(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        change(self.0.lock().entry(name.to_owned()).or_default());
    }
    /// Returns the names of all files.
    pub fn names(&self) -> Vec<String> {
        self.0.lock().keys().cloned().collect()
    }
}

struct MemoryFile(MemoryFolder, String);

impl Write for MemoryFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.0.lock().entry(self.1.clone()).or_default().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl BlockFolder for MemoryFolder {
    fn create(&self, name: &str) -> io::Result<Box<dyn Write + Send>> {
        if self.0.lock().contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.0.lock().insert(name.to_owned(), Vec::new());
        Ok(Box::new(MemoryFile(self.clone(), name.to_owned())))
    }
    fn read(&self, name: &str, offset: u64, length: usize) -> io::Result<Bytes> {
        let files = self.0.lock();
        let content = files.get(name).ok_or(io::ErrorKind::NotFound)?;
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let part = start.checked_add(length).and_then(|end| content.get(start..end));
        Ok(Bytes::copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?))
    }
    fn length(&self, name: &str) -> io::Result<u64> {
        Ok(self.0.lock().get(name).ok_or(io::ErrorKind::NotFound)?.len() as u64)
    }
}

/// Writer of a file that counts and checksums its bytes.
pub(crate) struct ChecksumWriter {
    inner: Box<dyn Write + Send>,
    page: crc32fast::Hasher,
    filled: usize,
    meta: FileMeta,
    /// Bytes since the file's tail began.
    tail: Option<Vec<u8>>,
}

impl ChecksumWriter {
    pub(crate) fn new(inner: Box<dyn Write + Send>) -> Self {
        ChecksumWriter {
            inner,
            page: crc32fast::Hasher::new(),
            filled: 0,
            meta: FileMeta::default(),
            tail: None,
        }
    }
    /// Begins the tail of the file.
    pub(crate) fn begin_tail(&mut self) {
        self.tail = Some(Vec::new());
    }
    /// Flushes the file and returns its metadata.
    pub(crate) fn finish(mut self) -> io::Result<FileMeta> {
        self.inner.flush()?;
        if self.filled > 0 {
            self.close_page();
        }
        self.meta.set_tail(&self.tail.unwrap_or_default());
        Ok(self.meta)
    }
    fn close_page(&mut self) {
        let page = std::mem::replace(&mut self.page, crc32fast::Hasher::new());
        self.meta.checksums.push(page.finalize());
        self.filled = 0;
    }
}

impl Write for ChecksumWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write_all(bytes)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(PAGE_BYTES - self.filled));
            self.page.update(now);
            self.filled += now.len();
            if self.filled == PAGE_BYTES {
                self.close_page();
            }
            rest = later;
        }
        self.tail.iter_mut().for_each(|tail| tail.extend_from_slice(bytes));
        self.meta.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }
    /// Does nothing: [`finish`](Self::finish) flushes once, however often the Parquet writer flushes.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reader of a file that returns bytes only after their page checksum is verified.
#[derive(Clone)]
pub(crate) struct ChecksumReader {
    folder: Arc<dyn BlockFolder>,
    name: &'static str,
    meta: Arc<FileMeta>,
}

impl ChecksumReader {
    pub(crate) fn open(
        folder: &Arc<dyn BlockFolder>,
        name: &'static str,
        meta: &FileMeta,
    ) -> Result<Self, BlockError> {
        let seen = folder.length(name).map_err(BlockError::io(name))?;
        if seen != meta.bytes {
            return Err(BlockError::Length { file: name.into(), seen, expected: meta.bytes });
        }
        Ok(ChecksumReader { folder: folder.clone(), name, meta: Arc::new(meta.clone()) })
    }

    /// Returns the tail of the file if `meta.json` holds it.
    pub(crate) fn tail(&self) -> Option<(u64, Bytes)> {
        self.meta.tail().map(|(from, tail)| (from, tail.into()))
    }

    /// Reads bytes of the file. Whole pages are read and verified.
    pub(crate) fn read(&self, offset: u64, length: usize) -> Result<Bytes, BlockError> {
        let wanted = offset.checked_add(length as u64).filter(|&end| end <= self.meta.bytes);
        let end =
            wanted.ok_or_else(|| BlockError::corrupt(self.name, "footer points past the end of the file"))?;
        let page = PAGE_BYTES as u64;
        let from = offset / page * page;
        let to = end.div_ceil(page).saturating_mul(page).min(self.meta.bytes).max(from);
        let content =
            self.folder.read(self.name, from, (to - from) as usize).map_err(BlockError::io(self.name))?;
        for (number, part) in (from / page..).zip(content.chunks(PAGE_BYTES)) {
            let seen = crc32fast::hash(part);
            let expected = self.meta.checksums[number as usize];
            if seen != expected {
                let from = number * page;
                let file = self.name.into();
                let to = from + part.len() as u64;
                return Err(BlockError::Damaged { file, from, to, seen, expected });
            }
        }
        let start = (offset - from) as usize;
        Ok(content.slice(start..start + length))
    }
}

impl Length for ChecksumReader {
    fn len(&self) -> u64 {
        self.meta.bytes
    }
}

impl ChunkReader for ChecksumReader {
    type T = ChecksumCursor;
    fn get_read(&self, start: u64) -> parquet::errors::Result<ChecksumCursor> {
        Ok(ChecksumCursor { file: self.clone(), at: start, page: Bytes::new() })
    }
    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        self.read(start, length).map_err(|error| ParquetError::External(Box::new(error)))
    }
}

/// Reader that takes the tail of the file from `meta.json`, which has its own checksum.
pub(crate) struct CachedTailReader<'v> {
    pub(crate) content: &'v ChecksumReader,
    pub(crate) from: u64,
    pub(crate) tail: Bytes,
}

impl Length for CachedTailReader<'_> {
    fn len(&self) -> u64 {
        self.content.len()
    }
}

impl ChunkReader for CachedTailReader<'_> {
    type T = bytes::buf::Reader<Bytes>;
    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        let length = usize::try_from(self.len().saturating_sub(start)).unwrap_or(usize::MAX);
        Ok(self.get_bytes(start, length)?.reader())
    }
    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        let within = |start: u64| {
            let start = usize::try_from(start.checked_sub(self.from)?).ok()?;
            let end = start.checked_add(length).filter(|&end| end <= self.tail.len())?;
            Some(self.tail.slice(start..end))
        };
        within(start).map_or_else(|| self.content.get_bytes(start, length), Ok)
    }
}

/// Cursor that reads on from an offset.
pub(crate) struct ChecksumCursor {
    file: ChecksumReader,
    at: u64,
    page: Bytes,
}

impl io::Read for ChecksumCursor {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.page.is_empty() {
            let to_page_end = PAGE_BYTES as u64 - self.at % PAGE_BYTES as u64;
            let length = to_page_end.min(self.file.meta.bytes.saturating_sub(self.at));
            self.page = self.file.read(self.at, length as usize).map_err(io::Error::other)?;
            self.at += length;
        }
        let length = out.len().min(self.page.len());
        out[..length].copy_from_slice(&self.page.split_to(length));
        Ok(length)
    }
}
