//! A folder of files, as something that is handed in: a real one, or one in memory that loses what was not synced.
//!
//! What a caller may rely on, whatever the disk, is what both implementations are tested for together:
//!
//! * bytes are durable after [`Disk::sync`] of their file, a name (new, renamed, removed) after [`Disk::sync_dir`];
//! * [`Disk::write`] is all or nothing, and durable when it returns;
//! * reads see what was written, synced or not.
//!
//! Unsynced bytes may survive a crash whole, in part or not at all, each write for itself.

mod local;
mod memory;

use std::fmt;
use std::io;

use async_trait::async_trait;

pub use local::LocalDisk;
pub use memory::MemoryDisk;

use crate::code::{Code, Coded};

/// One flat folder of files. Names are checked: no path separators, no leading dot.
#[async_trait]
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// Makes an empty file; refuses a name that exists.
    async fn create_new(&self, name: &str) -> Result<(), DiskError>;

    /// Adds bytes at the end of a file that exists, and says at which offset they begin. Appends do not mix.
    async fn append(&self, name: &str, bytes: Vec<u8>) -> Result<u64, DiskError>;

    /// Reads at most `length` bytes from `offset`; fewer where the file ends.
    async fn read_at(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>, DiskError>;

    /// Puts a whole file there, in place of any that was, atomically and durably.
    async fn write(&self, name: &str, bytes: Vec<u8>) -> Result<(), DiskError>;

    /// Gives a file another name, in place of any file that had it.
    async fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Removes a file that exists.
    async fn remove(&self, name: &str) -> Result<(), DiskError>;

    /// All names, in order.
    async fn list(&self) -> Result<Vec<String>, DiskError>;

    /// The length of a file in bytes.
    async fn len(&self, name: &str) -> Result<u64, DiskError>;

    /// Makes the bytes of a file durable.
    async fn sync(&self, name: &str) -> Result<(), DiskError>;

    /// Makes all names durable.
    async fn sync_dir(&self) -> Result<(), DiskError>;
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
    fn of(op: &'static str, name: &str, source: io::Error) -> Self {
        let name = name.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { op, name },
            io::ErrorKind::AlreadyExists => Self::Exists { op, name },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { op, name },
            _ => Self::Io { op, name, source },
        }
    }
}

impl Coded for DiskError {
    fn code(&self) -> Code {
        match self {
            Self::NotFound { .. } => Code::NotFound,
            Self::Exists { .. } => Code::Conflict,
            Self::Full { .. } => Code::Exhausted,
            Self::BadName { .. } => Code::Invalid,
            Self::Io { .. } => Code::Internal,
        }
    }
}

fn check(name: &str) -> Result<(), DiskError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 200 || name.starts_with('.') || !name.chars().all(allowed) {
        return Err(DiskError::BadName { name: name.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
