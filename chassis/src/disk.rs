//! A folder of files, as something that is handed in: a real one, or one in memory that loses what was not synced.
//!
//! What a caller may rely on, whatever the disk, is what both implementations are tested for together:
//!
//! * bytes are durable after [`Disk::sync`] of their file, a name (new, renamed, removed) after [`Disk::sync_dir`];
//! * [`Disk::write`] is all or nothing, and durable when it returns;
//! * reads see what was written, synced or not.
//!
//! Of unsynced bytes any sectors of 512 bytes may survive a crash and any others not; of unsynced names the first
//! few. After a sync that failed nobody knows what is durable: the kernel may have dropped what it could not write,
//! and the next sync will not say so.
//!
//! All calls block. Callers run them on a thread of their own or on [`ComputePool`](crate::ComputePool), never on an I/O
//! thread.

mod local;
mod memory;

use std::fmt;
use std::io;

pub use local::LocalDisk;
pub use memory::{MemoryDisk, SECTOR_BYTES};

use crate::code::{ErrorCode, ErrorCodeExt};
use crate::histogram::HistogramSnapshot;

/// One flat folder of files. Names are checked: no path separators, no leading dot.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// Makes an empty file; refuses a name that exists.
    fn create_new(&self, name: &str) -> Result<(), DiskError>;

    /// Makes a file of so many zeros, written out and synced, so that later writes inside it change nothing but
    /// bytes; refuses a name that exists. Slow. After a crash inside it the file may be shorter.
    fn create_zeroed(&self, name: &str, length: u64) -> Result<(), DiskError>;

    /// Writes the parts one after the other from `offset` on, growing the file if need be.
    fn write_at(&self, name: &str, offset: u64, parts: &[&[u8]]) -> Result<(), DiskError>;

    /// Reads from `offset` until the buffer is full or the file ends, and says how much was read.
    fn read_at(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<usize, DiskError>;

    /// Makes the bytes and the length of a file durable.
    fn sync(&self, name: &str) -> Result<(), DiskError>;

    /// Puts a whole file there, in place of any that was, atomically and durably.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), DiskError>;

    /// Gives a file another name, in place of any file that had it.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Removes a file that exists.
    fn remove(&self, name: &str) -> Result<(), DiskError>;

    /// All names, in order.
    fn list(&self) -> Result<Vec<String>, DiskError>;

    /// The length of a file in bytes.
    fn len(&self, name: &str) -> Result<u64, DiskError>;

    /// Makes all names durable.
    fn sync_dir(&self) -> Result<(), DiskError>;

    /// How many more bytes the disk holds.
    fn free_bytes(&self) -> Result<u64, DiskError>;

    /// How many bytes the disk holds in all.
    fn capacity_bytes(&self) -> Result<u64, DiskError>;

    /// How long each [`sync`](Self::sync) took so far, nanoseconds; nothing where that is not measured.
    fn sync_latencies(&self) -> HistogramSnapshot {
        HistogramSnapshot::default()
    }

    /// A whole file.
    fn read(&self, name: &str) -> Result<Vec<u8>, DiskError> {
        let length = self.len(name)?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        let read = self.read_at(name, 0, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}

/// Why a disk did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// There is no such file.
    #[error("cannot {op} {name}: no such file")]
    NotFound {
        /// What was asked.
        op: &'static str,
        /// The file.
        name: String,
    },
    /// The name is taken.
    #[error("cannot {op} {name}: it exists already")]
    Exists {
        /// What was asked.
        op: &'static str,
        /// The file.
        name: String,
    },
    /// No space is left.
    #[error("cannot {op} {name}: no space left on the disk")]
    Full {
        /// What was asked.
        op: &'static str,
        /// The file.
        name: String,
    },
    /// The name is not one of a file in a flat folder.
    #[error("{name:?} cannot name a file here: letters, digits, '-', '_' and inner dots only")]
    BadName {
        /// The name.
        name: String,
    },
    /// Another process has the folder.
    #[error("{name} is in use by another process; each process needs a folder of its own")]
    Locked {
        /// The folder.
        name: String,
    },
    /// Anything else the disk said.
    #[error("cannot {op} {name}")]
    Io {
        /// What was asked.
        op: &'static str,
        /// The file.
        name: String,
        /// What the disk said.
        source: io::Error,
    },
}

impl DiskError {
    fn from_io(op: &'static str, name: &str, source: io::Error) -> Self {
        let name = name.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { op, name },
            io::ErrorKind::AlreadyExists => Self::Exists { op, name },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { op, name },
            _ => Self::Io { op, name, source },
        }
    }
}

impl ErrorCodeExt for DiskError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NotFound { .. } => ErrorCode::NotFound,
            Self::Exists { .. } | Self::Locked { .. } => ErrorCode::Conflict,
            Self::Full { .. } => ErrorCode::Exhausted,
            Self::BadName { .. } => ErrorCode::Invalid,
            Self::Io { .. } => ErrorCode::Internal,
        }
    }
}

fn check_file_name(name: &str) -> Result<(), DiskError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 200 || name.starts_with('.') || !name.chars().all(allowed) {
        return Err(DiskError::BadName { name: name.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
