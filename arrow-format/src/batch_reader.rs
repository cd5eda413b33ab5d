//! Record batches of streams and files, as errors if the bytes are damaged.

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_schema::{ArrowError, SchemaRef};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::reader::ChunkReader;

use crate::ArrowStreamError;
use crate::checked_messages::CheckedMessages;

/// Maximum number of rows of a batch of a Parquet file. Its stacks are stored for each row.
pub(crate) const MAX_PARQUET_BATCH_ROWS: usize = 1 << 12;

/// Batches as the libraries return them.
type InnerBatches<'a> = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + 'a>;

/// Reader of record batches. It ends after the first error.
pub(crate) struct BatchReader<'a> {
    schema: SchemaRef,
    batches: InnerBatches<'a>,
    is_damaged: bool,
}

impl<'a> BatchReader<'a> {
    /// Creates a reader of an Arrow IPC stream, which has read the schema.
    pub(crate) fn from_stream<R: Read + 'a>(stream: R) -> Result<Self, ArrowStreamError> {
        let batches = catch_damage(|| StreamReader::try_new(CheckedMessages::new(stream), None))?;
        Ok(BatchReader { schema: batches.schema(), batches: Box::new(batches), is_damaged: false })
    }

    /// Creates a reader of a Parquet file, which has read the footer.
    pub(crate) fn from_parquet<R: ChunkReader + 'static>(file: R) -> Result<Self, ArrowStreamError> {
        catch_damage(|| {
            let builder = ParquetRecordBatchReaderBuilder::try_new(file)?;
            let schema = SchemaRef::clone(builder.schema());
            let batches = builder.with_batch_size(MAX_PARQUET_BATCH_ROWS).build()?;
            Ok(BatchReader { schema, batches: Box::new(batches) as InnerBatches<'a>, is_damaged: false })
        })
    }

    /// Returns the schema of all batches.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

impl Iterator for BatchReader<'_> {
    type Item = Result<RecordBatch, ArrowStreamError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_damaged {
            return None;
        }
        let batches = &mut self.batches;
        let read = catch_damage(|| batches.next().transpose()).transpose();
        self.is_damaged = matches!(read, Some(Err(_)));
        read
    }
}

/// Runs a step of a library's reader. The readers panic on some damaged bytes, and are not used after that.
fn catch_damage<T>(step: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, ArrowStreamError> {
    let read = catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|_| {
        let message = "lengths in a batch exceed its bytes".to_owned();
        Err(ArrowError::IpcError(message))
    });
    read.map_err(ArrowStreamError::from)
}
