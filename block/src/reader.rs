//! Reading of blocks: from byte ranges to results of queries on one tenant's part.
//!
//! ```text
//!   file_ranges ─► read ─► scan, timestamps ─┐
//!                   └────► names, frames ────┴─► source ─► queries
//! ```
//!
//! `read` opens a block and reads its tables. `profile_stream` reads profiles in
//! batches, `row_ids` their IDs or counts, `row_counts` what a row counts. `column_rows` reads plain columns. `scan` sums sample rows by stack. `timestamps` reads and writes
//! the times of rows. `names` and `frames` resolve names. `source` implements the query interface.
//! `verify` checks that the tables of a part agree with each other.

pub(crate) mod column_rows;
pub(crate) mod file_ranges;
pub(crate) mod frames;
pub(crate) mod names;
pub(crate) mod profile_stream;
pub(crate) mod read;
pub(crate) mod row_counts;
pub(crate) mod row_ids;
pub(crate) mod scan;
pub(crate) mod source;
pub(crate) mod timestamps;
pub(crate) mod verify;
