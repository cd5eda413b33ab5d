//! Files of blocks, fetched as far as a question needs them.
//!
//! A block is many tenants': of a large file only its footer and a tenant's row groups are fetched, in whole pages, since
//! those have checksums. What was fetched for one question stays for the next.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use athanor_block::{Block, BlockError, Folder, META, Meta, PAGE};
use athanor_catalog::BlockId;
use athanor_chassis::{Activity, Code, Compute, Status};
use athanor_storage::Store;
use athanor_storage::path::{FileName, Key, Owner};
use bytes::Bytes;

/// A file that is no longer is fetched whole.
const SMALL: u64 = 256 << 10;
/// A footer is rarely longer.
const TAIL: u64 = PAGE as u64;
/// What a file ends in: the footer's length and four letters.
const END: u64 = 8;

/// The files of a block, as far as they were fetched.
pub struct Fetched {
    meta: Bytes,
    lengths: BTreeMap<String, u64>,
    files: RwLock<BTreeMap<&'static str, File>>,
}

/// What was fetched of a file.
#[derive(Default)]
struct File {
    pieces: Vec<Piece>,
    /// All that there is of the tenant.
    complete: bool,
}

/// Where bytes lie in their file.
type Piece = (u64, Bytes);

/// Where the files of a block are fetched from.
pub struct Origin<'o> {
    /// The bucket.
    pub store: &'o Store,
    /// The block.
    pub block: BlockId,
    /// Threads for reading footers.
    pub compute: &'o Compute,
}

/// Whose rows are fetched, of a block that is read from the same folder.
#[derive(Clone, Copy)]
pub struct TenantIn<'o> {
    /// The block.
    pub block: &'o Arc<Block>,
    /// The tenant.
    pub tenant: &'o str,
}

impl Fetched {
    /// With nothing but what the block says of itself, which is read here.
    pub fn new(meta: Bytes) -> Result<Self, BlockError> {
        let files = Meta::decode(&meta)?.files;
        let lengths = files.into_iter().map(|(name, file)| (name, file.bytes)).collect();
        Ok(Self { meta, lengths, files: RwLock::default() })
    }

    /// Bytes that were fetched.
    pub fn bytes(&self) -> usize {
        let of_file = |file: &File| file.pieces.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        self.meta.len() + self.files().values().map(of_file).sum::<usize>()
    }

    /// Fetches a tenant's rows of a file.
    pub async fn fetch(
        &self,
        origin: &Origin<'_>,
        of: TenantIn<'_>,
        file: &'static str,
    ) -> Result<(), Status> {
        if self.files().get(file).is_some_and(|file| file.complete) {
            return Ok(());
        }
        self.fetch_rows(origin, of, file).await?;
        self.files.write().unwrap_or_else(PoisonError::into_inner).entry(file).or_default().complete = true;
        Ok(())
    }

    async fn fetch_rows(
        &self,
        origin: &Origin<'_>,
        TenantIn { block, tenant }: TenantIn<'_>,
        file: &'static str,
    ) -> Result<(), Status> {
        let length = self.length(file).map_err(|error| unreadable(file, &error))?;
        if length <= SMALL || block.meta().tenants.len() == 1 {
            return self.fetch_range(origin, file, 0..length).await;
        }
        let tail = tail(length);
        self.fetch_range(origin, file, tail.clone()).await?;
        let end = self.read(file, length - END, 4).map_err(|error| unreadable(file, &error))?;
        let footer = u64::from(u32::from_le_bytes([end[0], end[1], end[2], end[3]]));
        let footer = length.saturating_sub(footer + END);
        if footer < tail.start {
            self.fetch_range(origin, file, page(footer)..length).await?;
        }
        let (block, tenant) = (Arc::clone(block), tenant.to_owned());
        let footer = origin.compute.run_as(Activity::Query, move || block.extent(&tenant, file));
        let extent = footer.await.map_err(|error| Status::of(&error))?.map_err(|error| Status::of(&error))?;
        let rows = extent.0;
        if rows.is_empty() {
            return Ok(());
        }
        self.fetch_range(origin, file, pages(&rows, length)).await
    }

    async fn fetch_range(
        &self,
        origin: &Origin<'_>,
        file: &'static str,
        range: Range<u64>,
    ) -> Result<(), Status> {
        if self.piece(file, range.start, range.end - range.start).is_some() {
            return Ok(());
        }
        let key = origin.key(file)?;
        let whole = range.start == 0 && range.end == self.lengths.get(file).copied().unwrap_or_default();
        let bytes = match whole {
            true => origin.store.get(&key).await,
            false => origin.store.get_range(&key, range.clone()).await,
        };
        let bytes = bytes.map_err(|error| Status::of(&error))?;
        let (seen, expected) = (bytes.len() as u64, range.end - range.start);
        if seen != expected {
            return Err(Status::of(&BlockError::Length { file: file.into(), seen, expected }));
        }
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let pieces = &mut files.entry(file).or_default().pieces;
        // What lies within the new piece is not kept twice.
        pieces.retain(|(start, old)| *start < range.start || start + old.len() as u64 > range.end);
        pieces.push((range.start, bytes));
        Ok(())
    }

    fn piece(&self, file: &str, offset: u64, length: u64) -> Option<Bytes> {
        self.files().get(file)?.pieces.iter().find_map(|(start, bytes)| {
            let from = offset.checked_sub(*start)?;
            let to = from.checked_add(length).filter(|&to| to <= bytes.len() as u64)?;
            Some(bytes.slice(from as usize..to as usize))
        })
    }

    fn files(&self) -> RwLockReadGuard<'_, BTreeMap<&'static str, File>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the page begins that holds a byte.
fn page(at: u64) -> u64 {
    at / PAGE as u64 * PAGE as u64
}

/// Where a footer lies, as a rule.
fn tail(length: u64) -> Range<u64> {
    page(length.saturating_sub(TAIL))..length
}

/// The pages that hold these bytes.
fn pages(bytes: &Range<u64>, length: u64) -> Range<u64> {
    page(bytes.start)..bytes.end.div_ceil(PAGE as u64).saturating_mul(PAGE as u64).min(length)
}

impl Origin<'_> {
    /// What the block says of itself.
    pub async fn meta(&self) -> Result<Bytes, Status> {
        self.store.get(&self.key(META)?).await.map_err(|error| Status::of(&error))
    }

    fn key(&self, file: &str) -> Result<Key, Status> {
        let file = FileName::new(file).map_err(|error| Status::new(Code::Internal, error.to_string()))?;
        Ok(Key::Block { owner: Owner::Shared, block: self.block.number(), file })
    }
}

fn unreadable(file: &str, error: &io::Error) -> Status {
    Status::new(Code::DataLoss, format!("{file}: {error}"))
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
        self.piece(name, offset, length as u64).ok_or_else(|| {
            io::Error::other(format!("{length} bytes from byte {offset} on of {name} were not fetched"))
        })
    }
    /// As [`Fetched::fetch`] fetches them.
    fn cost(&self, name: &str, bytes: Range<u64>) -> u64 {
        let length = self.lengths.get(name).copied().unwrap_or_default();
        if length <= SMALL {
            return length;
        }
        let (tail, rows) = (tail(length), pages(&bytes, length));
        let of_tail = tail.end - tail.start;
        let is_fetched = bytes.is_empty() || rows.start >= tail.start;
        if is_fetched { of_tail } else { of_tail + rows.end.saturating_sub(rows.start) }
    }
    fn length(&self, name: &str) -> io::Result<u64> {
        if name == META {
            return Ok(self.meta.len() as u64);
        }
        self.lengths.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
