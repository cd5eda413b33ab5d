//! Folder of files as an injected dependency: a real one, or one in memory that loses unsynced bytes.
//!
//! Guarantees of every disk, for which both implementations are tested together:
//!
//! * [`Disk::sync`] makes the bytes of a file durable.
//! * [`Disk::sync_dir`] makes names durable: new, renamed and removed ones.
//! * [`Disk::write`] is atomic, and durable when it returns.
//! * Reads see all written bytes, synced or not.
//!
//! After a crash, any subset of the unsynced 512-byte sectors may survive. Of the unsynced name changes, a
//! prefix survives. After a failed sync it is unknown which bytes are durable: the kernel may have dropped
//! the failed writes, and the next sync does not report them.
//!
//! All calls block. Callers run them on their own thread or on [`ComputePool`](crate::ComputePool), never on
//! an I/O thread.

mod local;
mod memory;

use std::fmt;
use std::io;

pub use local::LocalDisk;
pub use memory::{MemoryDisk, SECTOR_BYTES};

use crate::code::{ErrorCode, ErrorCodeExt};
use crate::observability::histogram::HistogramSnapshot;

/// Flat folder of files. Names are checked: no path separators, no leading dot.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// Creates an empty file. Rejects a name that exists.
    fn create_new(&self, name: &str) -> Result<(), DiskError>;

    /// Creates a file of `length` zeros, written and synced, so that later writes inside it change only
    /// bytes. Rejects a name that exists. Slow. After a crash during the call the file may be shorter.
    fn create_zeroed(&self, name: &str, length: u64) -> Result<(), DiskError>;

    /// Writes the parts in sequence from `offset` on. The file grows if needed.
    fn write_at(&self, name: &str, offset: u64, parts: &[&[u8]]) -> Result<(), DiskError>;

    /// Reads from `offset` until the buffer is full or the file ends. Returns the number of bytes read.
    fn read_at(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<usize, DiskError>;

    /// Makes the bytes and the length of a file durable.
    fn sync(&self, name: &str) -> Result<(), DiskError>;

    /// Writes a whole file and replaces any previous one, atomically and durably.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), DiskError>;

    /// Renames a file and replaces any file that has the new name.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Removes a file that exists.
    fn remove(&self, name: &str) -> Result<(), DiskError>;

    /// Lists all file names in order.
    fn list(&self) -> Result<Vec<String>, DiskError>;

    /// Returns the length of a file in bytes.
    fn len(&self, name: &str) -> Result<u64, DiskError>;

    /// Makes all names durable.
    fn sync_dir(&self) -> Result<(), DiskError>;

    /// Returns the free bytes of the disk.
    fn free_bytes(&self) -> Result<u64, DiskError>;

    /// Returns the total bytes of the disk.
    fn capacity_bytes(&self) -> Result<u64, DiskError>;

    /// Returns the durations of all [`sync`](Self::sync) calls in nanoseconds. Empty if the disk does not
    /// measure them.
    fn sync_latencies(&self) -> HistogramSnapshot {
        HistogramSnapshot::default()
    }

    /// Reads a whole file.
    fn read(&self, name: &str) -> Result<Vec<u8>, DiskError> {
        let length = self.len(name)?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        let read = self.read_at(name, 0, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}

/// Failure of a disk operation.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The file does not exist.
    #[error("cannot {op} {name}: no such file")]
    NotFound {
        /// Operation that failed.
        op: &'static str,
        /// Name of the file.
        name: String,
    },
    /// The name exists already.
    #[error("cannot {op} {name}: the file already exists")]
    Exists {
        /// Operation that failed.
        op: &'static str,
        /// Name of the file.
        name: String,
    },
    /// The disk has no space left.
    #[error("cannot {op} {name}: no space left on the disk")]
    Full {
        /// Operation that failed.
        op: &'static str,
        /// Name of the file.
        name: String,
    },
    /// The name is not valid in a flat folder.
    #[error("{name:?} is not a valid file name; use letters, digits, '-', '_' and inner dots only")]
    BadName {
        /// Name that was rejected.
        name: String,
    },
    /// Another process holds the folder.
    #[error("{name} is in use by another process; each process needs a folder of its own")]
    Locked {
        /// Path of the folder.
        name: String,
    },
    /// Any other error of the operating system.
    #[error("cannot {op} {name}")]
    Io {
        /// Operation that failed.
        op: &'static str,
        /// Name of the file.
        name: String,
        /// Error of the operating system.
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
