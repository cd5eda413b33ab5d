//! Query results as Arrow IPC streams: schemas, writers and readers.
//!
//! ```text
//!  profiles with stacks and values ─► SampleWriter ─► IPC stream ─► SampleReader ─► rows and a Dictionary
//!  response that is a table ─► ResponseTable ─────► IPC stream
//!  IPC streams of equal columns ─► TableFileWriter ─► .arrow, .parquet or .csv file ─► SampleReader
//! ```
//!
//! Servers and clients use the same schemas. Streams follow three rules, so that pyarrow, Polars and DuckDB read all of
//! them:
//!
//! - A dictionary is replaced if a batch needs more entries. Polars rejects deltas.
//! - No dictionary is inside of another one. DuckDB reads the indexes of such a dictionary as values.
//! - Buffers are compressed with Zstandard.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod batch_reader;
mod checked_messages;
mod metadata;
pub mod samples;
mod shared_column;
mod table;
mod table_file;
mod tables;
mod text_column;

pub use metadata::{PROFILE_TYPE_KEY, QUERY_KEY, RESOLUTION_KEY, StreamMetadata, UNIT_KEY, WARNINGS_KEY};
pub use samples::reader::{SampleReader, SampleRow};
pub use samples::sample_profile::{SampleProfile, SampleValue};
pub use samples::writer::SampleWriter;
pub use samples::{SampleColumn, SampleColumns, SamplePosition, UnknownColumnError};
pub use table::ResponseTable;
pub use table_file::{AppendedRows, TABLE_FILE_ENDINGS, TableFileFormat, TableFileWriter};
pub use tables::TableResponse;

use arrow_ipc::CompressionType;
use arrow_ipc::writer::IpcWriteOptions;
use arrow_schema::ArrowError;

/// Media type of an Arrow IPC stream.
pub const ARROW_STREAM_TYPE: &str = "application/vnd.apache.arrow.stream";
/// Maximum number of rows of a record batch.
pub const MAX_BATCH_ROWS: usize = 1 << 16;

/// Reason that a stream cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ArrowStreamError {
    /// Bytes that are no Arrow IPC stream, or a stream that ends early.
    #[error("arrow stream is invalid: {0}")]
    Arrow(#[from] ArrowError),
    /// Failed write of a file.
    #[error("failed to write the table: {0}")]
    Write(String),
    /// Stream that cannot follow the streams before it in a file.
    #[error("stream has the columns {found}, the file has {expected}; write it to another file")]
    OtherColumns {
        /// Columns of the stream.
        found: String,
        /// Columns of the file.
        expected: String,
    },
    /// Column of a type that CSV does not represent.
    #[error("column {name} has type {found}, which CSV cannot hold; write an .arrow or .parquet file")]
    CsvType {
        /// Name of the column.
        name: String,
        /// Type of the column.
        found: String,
    },
    /// Stacks that need too much memory.
    #[error("stacks need more than {limit} bytes of memory, which is the limit; export a shorter time range")]
    TooManyStacks {
        /// Maximum memory in bytes.
        limit: usize,
    },
    /// Stack whose names need too much memory.
    #[error(
        "a stack has {bytes} bytes of names, the limit is {limit}; exclude the stack by a filter of frames"
    )]
    StackTooLarge {
        /// Size of the stack in bytes.
        bytes: usize,
        /// Maximum size in bytes.
        limit: usize,
    },
    /// Sum beyond the range of a value.
    #[error("the values of a stack add up to more than 64 bits; export a profile type with smaller values")]
    SumTooLarge,
    /// Missing column.
    #[error("table has no column {0}; export samples with it")]
    MissingColumn(&'static str),
    /// Column of another type than the schema of Samples has.
    #[error("column {name} has type {found}, samples have {expected} there")]
    ColumnType {
        /// Name of the column.
        name: &'static str,
        /// Type that the column has.
        found: String,
        /// Type that the reader accepts.
        expected: &'static str,
    },
    /// Value that does not follow the schema.
    #[error("column {name} has {found:?}, which is no {expected}")]
    Value {
        /// Name of the column.
        name: &'static str,
        /// Text of the value.
        found: String,
        /// Kind of value that the reader accepts.
        expected: &'static str,
    },
}

/// Returns the options of all streams.
fn write_options() -> Result<IpcWriteOptions, ArrowError> {
    IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD))
}
