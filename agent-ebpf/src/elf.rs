//! Reader of ELF files: x86-64 executables and shared libraries, with bounded reads and without mapping them.
//!
//! Program headers are enough. Section headers are used where a file has them.

mod build_id;
mod bytes;
mod content_digest;
mod facts;
mod file;
mod header;
mod read_at;

pub use build_id::BuildId;
pub use content_digest::ContentDigest;
pub use facts::FileFacts;
pub use file::ElfFile;
pub use header::{Section, Segment};
pub use read_at::{BoundedFile, MemoryImage, ReadAt, ReadError};

pub(crate) use bytes::ByteReader;

/// Failure to read an ELF file.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file is no ELF file of this machine.
    #[error("{what} is {value:#x}, need {expected}; the file is no x86-64 executable or shared library")]
    Unsupported {
        /// Field of the header.
        what: &'static str,
        /// Value of the file.
        value: u64,
        /// Accepted values.
        expected: &'static str,
    },
    /// A count of the file exceeds its limit.
    #[error("file has {count} {what}, the limit is {limit}; the file is damaged or built to do harm")]
    TooMany {
        /// Counted items.
        what: &'static str,
        /// Count of the file.
        count: u64,
        /// Largest accepted count.
        limit: u64,
    },
}

#[cfg(test)]
pub(crate) mod test_image;
#[cfg(test)]
mod tests;
