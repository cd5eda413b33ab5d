//! Files of tables: Arrow, Parquet and CSV.
//!
//! ```text
//!  IPC stream of each page ─► record batches without cursors ─┬─► Arrow IPC stream
//!                                                              ├─► rows with their stacks and labels ─► Parquet
//!                                                              └─► text of each cell ─► CSV
//! ```

use std::io::{Read, Write};
use std::sync::Arc;

use arrow_array::{Array, RecordBatch, StringArray, TimestampNanosecondArray};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use crate::batch_reader::{BatchReader, MAX_PARQUET_BATCH_ROWS};
use crate::metadata::StreamMetadata;
use crate::samples::SampleColumn;
use crate::shared_column::SharedColumn;
use crate::{ArrowStreamError, write_options};
use csv::CsvWriter;

mod csv;
mod flat_batch;

/// Endings of file names, for messages.
pub const TABLE_FILE_ENDINGS: &str = ".arrow, .parquet or .csv";
/// Maximum bytes of a row group in a Parquet file. The writer holds one.
const MAX_ROW_GROUP_BYTES: usize = 32 << 20;

/// Format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFileFormat {
    /// Arrow IPC stream.
    Arrow,
    /// Parquet file. Rows have their own stacks and labels, since Parquet has no dictionaries of lists.
    Parquet,
    /// Text with a line for each row, stacks as `root;caller;leaf`.
    Csv,
}

impl TableFileFormat {
    /// Returns the format of a file name by its ending.
    pub fn from_file_name(name: &str) -> Option<Self> {
        let (_, ending) = name.rsplit_once('.')?;
        match ending.to_ascii_lowercase().as_str() {
            "arrow" => Some(TableFileFormat::Arrow),
            "parquet" => Some(TableFileFormat::Parquet),
            "csv" => Some(TableFileFormat::Csv),
            _ => None,
        }
    }
}

/// Rows of a stream that was appended to a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppendedRows {
    /// Number of rows.
    pub count: u64,
    /// Timestamp of the last row, Unix nanoseconds, if the table has one.
    pub last_time: Option<i64>,
    /// Cursor of the last row, if the table has one.
    pub cursor: Option<String>,
    /// Warnings of the last row that the metadata lacks.
    pub late_warnings: Vec<String>,
    /// Metadata of the stream.
    pub metadata: StreamMetadata,
}

/// Writer of a file. It holds one batch, or one row group of a Parquet file.
pub struct TableFileWriter<W: Write + Send> {
    format: TableFileFormat,
    output: TableOutput<W>,
}

/// Output before and after its schema is known.
enum TableOutput<W: Write + Send> {
    /// Output without a schema. None after an error.
    Empty(Option<W>),
    Arrow(SchemaRef, Box<StreamWriter<W>>),
    Parquet(SchemaRef, Box<ArrowWriter<W>>),
    Csv(SchemaRef, CsvWriter<W>),
}

impl<W: Write + Send> TableFileWriter<W> {
    /// Creates a writer that has written nothing.
    pub fn new(format: TableFileFormat, out: W) -> Self {
        TableFileWriter { format, output: TableOutput::Empty(Some(out)) }
    }

    /// Appends the rows of an Arrow IPC stream. The first stream sets columns and metadata of the file.
    ///
    /// # Errors
    ///
    /// The stream is damaged or has other columns than the file, or the output fails. The file is then unusable.
    pub fn append_stream(&mut self, stream: impl Read) -> Result<AppendedRows, ArrowStreamError> {
        let mut batches = BatchReader::from_stream(stream)?;
        self.start(batches.schema())?;
        let metadata = StreamMetadata::from_entries(batches.schema().metadata());
        let mut appended = AppendedRows { metadata, ..AppendedRows::default() };
        for batch in &mut batches {
            let batch = batch?;
            note_last_row(&batch, &mut appended);
            self.write_batch(&batch)?;
        }
        Ok(appended)
    }

    /// Ends the file and returns the output.
    pub fn finish(self) -> Result<W, ArrowStreamError> {
        match self.output {
            TableOutput::Empty(out) => out.ok_or_else(|| write_failure("the file has no columns")),
            TableOutput::Arrow(_, mut writer) => {
                writer.finish().map_err(write_failure)?;
                writer.into_inner().map_err(write_failure)
            }
            TableOutput::Parquet(_, writer) => writer.into_inner().map_err(write_failure),
            TableOutput::Csv(_, writer) => Ok(writer.into_inner()),
        }
    }

    /// Starts the file with the columns of the first stream.
    fn start(&mut self, stream: &SchemaRef) -> Result<(), ArrowStreamError> {
        let schema = schema_without_cursor(stream);
        let TableOutput::Empty(out) = &mut self.output else { return Ok(()) };
        let out = out.take().ok_or_else(|| write_failure("an earlier write failed"))?;
        self.output = match self.format {
            TableFileFormat::Arrow => {
                let writer = StreamWriter::try_new_with_options(out, &schema, write_options()?);
                TableOutput::Arrow(schema, Box::new(writer.map_err(write_failure)?))
            }
            TableFileFormat::Parquet => {
                let flat = flat_batch::flat_schema(&schema);
                let writer = ArrowWriter::try_new(out, flat, Some(parquet_properties()));
                TableOutput::Parquet(schema, Box::new(writer.map_err(write_failure)?))
            }
            TableFileFormat::Csv => TableOutput::Csv(Arc::clone(&schema), CsvWriter::new(out, &schema)?),
        };
        Ok(())
    }

    fn write_batch(&mut self, batch: &RecordBatch) -> Result<(), ArrowStreamError> {
        match &mut self.output {
            TableOutput::Empty(_) => Err(write_failure("an earlier write failed")),
            TableOutput::Arrow(schema, writer) => {
                writer.write(&project_batch(batch, schema)?).map_err(write_failure)
            }
            TableOutput::Parquet(schema, writer) => {
                let batch = project_batch(batch, schema)?;
                for first in (0..batch.num_rows()).step_by(MAX_PARQUET_BATCH_ROWS) {
                    let rows = batch.slice(first, MAX_PARQUET_BATCH_ROWS.min(batch.num_rows() - first));
                    writer.write(&flat_batch::flatten(&rows)?).map_err(write_failure)?;
                }
                Ok(())
            }
            TableOutput::Csv(schema, writer) => writer.write(&project_batch(batch, schema)?),
        }
    }
}

fn parquet_properties() -> WriterProperties {
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_bytes(Some(MAX_ROW_GROUP_BYTES))
        .build()
}

/// Returns the schema of a file. A complete file needs no cursors.
fn schema_without_cursor(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().filter(|field| field.name() != SampleColumn::Cursor.name());
    let fields: Vec<_> = fields.map(Arc::clone).collect();
    Arc::new(Schema::new(fields).with_metadata(schema.metadata().clone()))
}

/// Returns a batch with the columns and the metadata of a file.
fn project_batch(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowStreamError> {
    let found = schema_without_cursor(batch.schema_ref());
    let is_equal = |(left, right): (&Arc<_>, &Arc<_>)| is_same_column(left, right);
    let (fields, expected) = (found.fields(), schema.fields());
    if fields.len() != expected.len() || !fields.iter().zip(expected).all(is_equal) {
        return Err(ArrowStreamError::OtherColumns {
            found: column_names(&found),
            expected: column_names(schema),
        });
    }
    let columns = fields.iter().filter_map(|field| batch.column_by_name(field.name()).cloned());
    Ok(RecordBatch::try_new(Arc::clone(schema), columns.collect())?)
}

fn is_same_column(left: &arrow_schema::Field, right: &arrow_schema::Field) -> bool {
    left.name() == right.name() && left.data_type() == right.data_type()
}

fn column_names(schema: &Schema) -> String {
    let names = schema.fields().iter().map(|field| format!("{} ({})", field.name(), field.data_type()));
    names.collect::<Vec<_>>().join(", ")
}

fn note_last_row(batch: &RecordBatch, appended: &mut AppendedRows) {
    let Some(last) = batch.num_rows().checked_sub(1) else { return };
    appended.count += batch.num_rows() as u64;
    let time = batch.column_by_name(SampleColumn::Time.name());
    let times = time.and_then(|time| time.as_any().downcast_ref::<TimestampNanosecondArray>());
    appended.last_time = times.map(|times| times.value(last)).or(appended.last_time);
    let text = |column: SampleColumn| {
        let rows = SharedColumn::new(batch.column_by_name(column.name())?);
        let texts = rows.values().as_any().downcast_ref::<StringArray>()?;
        rows.value_index(last).map(|index| texts.value(index).to_owned())
    };
    appended.cursor = text(SampleColumn::Cursor).or(appended.cursor.take());
    let warnings = text(SampleColumn::Warnings).unwrap_or_default();
    let known = &appended.metadata.warnings;
    let late = warnings.lines().filter(|line| !known.iter().any(|warning| warning == line));
    appended.late_warnings = late.map(str::to_owned).collect();
}

fn write_failure(error: impl std::fmt::Display) -> ArrowStreamError {
    ArrowStreamError::Write(error.to_string())
}
