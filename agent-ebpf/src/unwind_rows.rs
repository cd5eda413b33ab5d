//! Unwind rows of files: for each address of code, the rule that finds the caller's frame.
//!
//! A [`RowSource`] builds the rows of one page of code when a sample needs it, and reads no more of the file than
//! that takes. A [`RowArena`] places blocks of rows into chunks, and a [`RowCache`] decides what leaves them.

mod arena;
mod cache;
mod code_scan;
mod entry_index;
mod entry_loader;
mod expression;
mod page_rows;
mod rule;
mod search_table;
mod section;
mod section_rows;
mod source;

pub use arena::{RowArena, RowBlock};
pub use cache::{CachedPage, RetiredPages, RowCache};
pub use source::RowSource;

use crate::elf::ReadError;

/// Failure to build rows.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The call frame information of a page exceeds a limit.
    #[error("{what} of a page of code: more than {limit}; the file is damaged or built to do harm")]
    TooLarge {
        /// Limited quantity.
        what: &'static str,
        /// Limit.
        limit: u64,
    },
}

#[cfg(test)]
mod tests;
