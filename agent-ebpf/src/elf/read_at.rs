//! Bounded reads at an offset.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Largest single read.
const MAX_READ_BYTES: u64 = 64 << 20;

/// Failure of a read at an offset.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The operating system failed.
    #[error("cannot read {length} bytes at offset {offset}: {source}")]
    Io {
        /// Offset of the read.
        offset: u64,
        /// Length of the read.
        length: u64,
        /// Cause.
        source: io::Error,
    },
    /// The range is not part of the file.
    #[error(
        "file has {size} bytes, {length} bytes at offset {offset} are needed; it is truncated or damaged"
    )]
    OutOfRange {
        /// Offset of the read.
        offset: u64,
        /// Length of the read.
        length: u64,
        /// Size of the file.
        size: u64,
    },
    /// The read exceeds its limit.
    #[error("read of {length} bytes exceeds the limit of {limit} bytes; the file is damaged or too large")]
    TooLong {
        /// Length of the read.
        length: u64,
        /// Limit in bytes.
        limit: u64,
    },
    /// The file is not a regular file.
    #[error("not a regular file; only regular files are read")]
    NotRegular,
}

/// Bytes that are read at an offset. A read is either complete or fails.
pub trait ReadAt: Send + Sync {
    /// Returns the number of bytes.
    fn size(&self) -> u64;

    /// Fills the buffer with the bytes from `offset`.
    ///
    /// # Errors
    ///
    /// Fails if the range is not part of the file or the file cannot be read.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError>;

    /// Returns `length` bytes from `offset`, at most `limit`.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::read_at`], or if `length` exceeds `limit`.
    fn read_vec(&self, offset: u64, length: u64, limit: u64) -> Result<Vec<u8>, ReadError> {
        let limit = limit.min(MAX_READ_BYTES);
        if length > limit {
            return Err(ReadError::TooLong { length, limit });
        }
        check_range(offset, length, self.size())?;
        let mut bytes = vec![0; length as usize];
        self.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the bytes from `offset` to the end of the file, at most `length`.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    fn read_up_to(&self, offset: u64, length: u64) -> Result<Vec<u8>, ReadError> {
        let length = length.min(self.size().saturating_sub(offset));
        self.read_vec(offset, length, length)
    }
}

/// Regular file, read by `pread` and never mapped: a mapped file that is truncated ends its reader by a signal.
#[derive(Debug)]
pub struct BoundedFile {
    file: File,
    size: u64,
}

impl BoundedFile {
    /// Takes an open file. Its size is the one of this moment.
    ///
    /// # Errors
    ///
    /// Fails if it is not a regular file.
    pub fn new(file: File) -> Result<Self, ReadError> {
        let metadata = file.metadata().map_err(|source| ReadError::Io { offset: 0, length: 0, source })?;
        if !metadata.is_file() {
            return Err(ReadError::NotRegular);
        }
        Ok(Self { file, size: metadata.len() })
    }
}

impl ReadAt for BoundedFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = buffer.len() as u64;
        check_range(offset, length, self.size)?;
        self.file.read_exact_at(buffer, offset).map_err(|source| ReadError::Io { offset, length, source })
    }
}

/// File in memory, for example the vdso.
#[derive(Clone, Debug)]
pub struct MemoryImage(pub Vec<u8>);

impl ReadAt for MemoryImage {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = buffer.len() as u64;
        check_range(offset, length, self.size())?;
        let start = offset as usize;
        if let Some(bytes) = self.0.get(start..start + buffer.len()) {
            buffer.copy_from_slice(bytes);
        }
        Ok(())
    }
}

fn check_range(offset: u64, length: u64, size: u64) -> Result<(), ReadError> {
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(()),
        _ => Err(ReadError::OutOfRange { offset, length, size }),
    }
}
