//! Reader of samples.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, Int64Array, ListArray, MapArray, RecordBatch, StringArray, StructArray,
    TimestampNanosecondArray,
};
use athanor_profile::data_model::symbols::{Function, Line, Mapping, NO_ENTRY};
use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::encoding::hex::parse_hex_id;
use athanor_profile::{Dictionary, Labels, SpanContext};
use parquet::file::reader::ChunkReader;

use super::SampleColumn;
use crate::ArrowStreamError;
use crate::batch_reader::BatchReader;
use crate::metadata::StreamMetadata;
use crate::shared_column::SharedColumn;

/// Maximum memory of the stacks of a stream.
const MAX_DICTIONARY_BYTES: usize = 4 << 30;

/// Row of a stream of samples. Columns that the stream lacks have default values.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SampleRow {
    /// Record id of the profile.
    pub profile: ContentHash,
    /// Timestamp of the profile, Unix nanoseconds.
    pub time: i64,
    /// Labels of the series.
    pub labels: Labels,
    /// Stack in [`SampleReader::dictionary`].
    pub stack: u32,
    /// Sum of the samples.
    pub value: i64,
    /// Span and trace of the samples.
    pub span: SpanContext,
}

/// Reader of samples in an Arrow stream or a Parquet file: an iterator over the rows. The columns `stack` and `value` are
/// required.
pub struct SampleReader<'a> {
    batches: BatchReader<'a>,
    metadata: StreamMetadata,
    dictionary: Dictionary,
    /// Dictionary of stacks of the last batch, and the stack of each entry here.
    known_stacks: Option<(ArrayRef, Vec<u32>)>,
    rows: VecDeque<SampleRow>,
    warnings: Vec<String>,
    cursor: String,
}

impl<'a> SampleReader<'a> {
    /// Creates a reader of an Arrow stream, which has read the schema.
    pub fn new<R: Read + 'a>(stream: R) -> Result<Self, ArrowStreamError> {
        SampleReader::from_batches(BatchReader::from_stream(stream)?)
    }

    /// Creates a reader of a Parquet file, which has read the footer.
    pub fn from_parquet<R: ChunkReader + 'static>(file: R) -> Result<Self, ArrowStreamError> {
        SampleReader::from_batches(BatchReader::from_parquet(file)?)
    }

    fn from_batches(batches: BatchReader<'a>) -> Result<Self, ArrowStreamError> {
        let schema = batches.schema();
        for column in [SampleColumn::Stack, SampleColumn::Value] {
            let name = column.name();
            schema.field_with_name(name).map_err(|_| ArrowStreamError::MissingColumn(name))?;
        }
        let metadata = StreamMetadata::from_entries(schema.metadata());
        let warnings = metadata.warnings.clone();
        Ok(SampleReader {
            batches,
            metadata,
            dictionary: Dictionary::default(),
            known_stacks: None,
            rows: VecDeque::new(),
            warnings,
            cursor: String::new(),
        })
    }

    /// Returns the metadata of the schema.
    pub fn metadata(&self) -> &StreamMetadata {
        &self.metadata
    }

    /// Returns the dictionary of the stacks that were read.
    pub fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    /// Returns the dictionary of all stacks. Stacks of rows stay valid in it.
    pub fn into_dictionary(self) -> Dictionary {
        self.dictionary
    }

    /// Returns the warnings of the schema and of all batches that were read.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the cursor of the last batch that was read, empty if there is none.
    pub fn cursor(&self) -> &str {
        &self.cursor
    }

    fn read_batch(&mut self, batch: &RecordBatch) -> Result<(), ArrowStreamError> {
        let values = required::<Int64Array>(batch, SampleColumn::Value, "int64")?;
        let stacks = shared_column(batch, SampleColumn::Stack);
        let stacks = stacks.ok_or(ArrowStreamError::MissingColumn(SampleColumn::Stack.name()))?;
        let stack_ids = self.read_stacks(stacks.values())?;
        let times = optional::<TimestampNanosecondArray>(batch, SampleColumn::Time, "timestamp[ns, UTC]")?;
        let labels = shared_column(batch, SampleColumn::Labels);
        let sets = labels.map(|labels| read_label_sets(labels.values())).transpose()?;
        let profiles = parsed_ids(batch, SampleColumn::ProfileId, "UUID", parse_uuid)?;
        let spans = parsed_ids(batch, SampleColumn::SpanId, "span id", |text| parse_hex_id(text, 16))?;
        let traces = parsed_ids(batch, SampleColumn::TraceId, "trace id", |text| parse_hex_id(text, 32))?;
        for row in 0..batch.num_rows() {
            let stack = stacks.value_index(row).ok_or_else(|| null_value(SampleColumn::Stack))?;
            let set = labels.zip(sets.as_ref()).and_then(|(labels, sets)| sets.get(labels.value_index(row)?));
            self.rows.push_back(SampleRow {
                profile: profiles.id(row).unwrap_or_default(),
                time: times.map_or(0, |times| times.value(row)),
                labels: set.cloned().unwrap_or_default(),
                stack: stack_ids[stack],
                value: values.value(row),
                span: SpanContext {
                    span: spans.id(row).unwrap_or_default() as u64,
                    trace: traces.id(row).unwrap_or_default(),
                },
            });
        }
        self.read_shared_texts(batch)
    }

    fn read_shared_texts(&mut self, batch: &RecordBatch) -> Result<(), ArrowStreamError> {
        if let Some(cursor) = last_text(batch, SampleColumn::Cursor)? {
            self.cursor = cursor;
        }
        for warning in last_text(batch, SampleColumn::Warnings)?.iter().flat_map(|text| text.lines()) {
            if !self.warnings.iter().any(|known| known == warning) {
                self.warnings.push(warning.to_owned());
            }
        }
        Ok(())
    }

    /// Returns the stack of each entry of a batch's dictionary.
    fn read_stacks(&mut self, values: &ArrayRef) -> Result<Vec<u32>, ArrowStreamError> {
        if let Some((known, ids)) = &self.known_stacks
            && Arc::ptr_eq(known, values)
        {
            return Ok(ids.clone());
        }
        let lists = downcast::<ListArray>(values, SampleColumn::Stack, STACK_TYPE)?;
        let frames = downcast::<StructArray>(lists.values(), SampleColumn::Stack, STACK_TYPE)?;
        let frames = FrameColumns::new(frames)?;
        let offsets = lists.value_offsets();
        let mut ids = Vec::with_capacity(lists.len());
        for range in offsets.windows(2) {
            let frames: Vec<u32> = (range[0] as usize..range[1] as usize)
                .map(|frame| frames.intern(&mut self.dictionary, frame))
                .collect();
            ids.push(self.dictionary.stacks.intern(&self.dictionary.symbols, &frames));
        }
        if self.dictionary.memory() > MAX_DICTIONARY_BYTES {
            return Err(ArrowStreamError::TooManyStacks { limit: MAX_DICTIONARY_BYTES });
        }
        self.known_stacks = Some((Arc::clone(values), ids.clone()));
        Ok(ids)
    }
}

impl Iterator for SampleReader<'_> {
    type Item = Result<SampleRow, ArrowStreamError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.rows.pop_front() {
                return Some(Ok(row));
            }
            let read = self.batches.next()?;
            if let Err(error) = read.and_then(|batch| self.read_batch(&batch)) {
                return Some(Err(error));
            }
        }
    }
}

/// Type of the column of stacks, for errors.
const STACK_TYPE: &str = "list<struct<function, file, line, binary>>, also as dictionary<int32>";
/// Type of the column of labels, for errors.
const LABELS_TYPE: &str = "map<utf8, utf8>, also as dictionary<int32>";
/// Type of columns of texts, for errors.
const TEXT_TYPE: &str = "utf8, also as dictionary<int32>";

/// Columns of the frames in a dictionary of stacks.
struct FrameColumns<'a> {
    function: &'a StringArray,
    file: &'a StringArray,
    line: &'a Int64Array,
    binary: &'a StringArray,
}

impl<'a> FrameColumns<'a> {
    fn new(frames: &'a StructArray) -> Result<Self, ArrowStreamError> {
        let text = |name: &'static str| {
            let column = frames.column_by_name(name).ok_or(ArrowStreamError::MissingColumn(name))?;
            downcast::<StringArray>(column, SampleColumn::Stack, STACK_TYPE)
        };
        let line = frames.column_by_name("line").ok_or(ArrowStreamError::MissingColumn("line"))?;
        Ok(FrameColumns {
            function: text("function")?,
            file: text("file")?,
            line: downcast(line, SampleColumn::Stack, STACK_TYPE)?,
            binary: text("binary")?,
        })
    }

    /// Returns the location of a frame.
    fn intern(&self, dictionary: &mut Dictionary, frame: usize) -> u32 {
        let symbols = &mut dictionary.symbols;
        let text = |column: &'a StringArray| if column.is_null(frame) { "" } else { column.value(frame) };
        let name = symbols.strings.intern(text(self.function));
        let filename = symbols.strings.intern(text(self.file));
        let function = symbols.intern_function(Function { name, system_name: 0, filename, start_line: 0 });
        let mapping = match text(self.binary) {
            "" => NO_ENTRY,
            binary => {
                let filename = symbols.strings.intern(binary);
                symbols.intern_mapping(Mapping {
                    start: 0,
                    size: 0,
                    offset: 0,
                    filename,
                    build_id: 0,
                    flags: 0,
                })
            }
        };
        let line = if self.line.is_null(frame) { 0 } else { self.line.value(frame) };
        symbols.intern_location(mapping, 0, false, &[Line { function, line, column: 0 }])
    }
}

/// Parsed ids of a column.
#[derive(Default)]
struct IdColumn<'a> {
    rows: Option<SharedColumn<'a>>,
    ids: Vec<u128>,
}

impl IdColumn<'_> {
    fn id(&self, row: usize) -> Option<u128> {
        self.ids.get(self.rows?.value_index(row)?).copied()
    }
}

fn parsed_ids<'a>(
    batch: &'a RecordBatch,
    column: SampleColumn,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<u128>,
) -> Result<IdColumn<'a>, ArrowStreamError> {
    let Some(rows) = shared_column(batch, column) else { return Ok(IdColumn::default()) };
    let texts = downcast::<StringArray>(rows.values(), column, TEXT_TYPE)?;
    let parse = |text: Option<&str>| {
        // Parquet readers fill dictionaries of columns without any value with an empty text.
        let text = text.unwrap_or_default();
        if text.is_empty() {
            return Ok(0);
        }
        parse(text).ok_or_else(|| ArrowStreamError::Value {
            name: column.name(),
            found: text.to_owned(),
            expected,
        })
    };
    Ok(IdColumn { rows: Some(rows), ids: texts.iter().map(parse).collect::<Result<_, _>>()? })
}

fn read_label_sets(values: &ArrayRef) -> Result<Vec<Labels>, ArrowStreamError> {
    let maps = downcast::<MapArray>(values, SampleColumn::Labels, LABELS_TYPE)?;
    let names = downcast::<StringArray>(maps.keys(), SampleColumn::Labels, LABELS_TYPE)?;
    let texts = downcast::<StringArray>(maps.values(), SampleColumn::Labels, LABELS_TYPE)?;
    let pair = |entry: usize| (names.value(entry).to_owned(), texts.value(entry).to_owned());
    let sets = maps.value_offsets().windows(2);
    Ok(sets.map(|range| Labels::new((range[0] as usize..range[1] as usize).map(pair))).collect())
}

/// Returns the text of the last row of a column.
fn last_text(batch: &RecordBatch, column: SampleColumn) -> Result<Option<String>, ArrowStreamError> {
    let rows = shared_column(batch, column);
    let Some((rows, last)) = rows.zip(batch.num_rows().checked_sub(1)) else { return Ok(None) };
    let texts = downcast::<StringArray>(rows.values(), column, TEXT_TYPE)?;
    Ok(rows.value_index(last).map(|index| texts.value(index).to_owned()))
}

fn shared_column(batch: &RecordBatch, column: SampleColumn) -> Option<SharedColumn<'_>> {
    batch.column_by_name(column.name()).map(SharedColumn::new)
}

fn null_value(column: SampleColumn) -> ArrowStreamError {
    ArrowStreamError::Value { name: column.name(), found: "null".to_owned(), expected: "value" }
}

fn required<'a, A: Array + 'static>(
    batch: &'a RecordBatch,
    column: SampleColumn,
    expected: &'static str,
) -> Result<&'a A, ArrowStreamError> {
    optional(batch, column, expected)?.ok_or(ArrowStreamError::MissingColumn(column.name()))
}

fn optional<'a, A: Array + 'static>(
    batch: &'a RecordBatch,
    column: SampleColumn,
    expected: &'static str,
) -> Result<Option<&'a A>, ArrowStreamError> {
    let found = batch.column_by_name(column.name());
    found.map(|array| downcast(array, column, expected)).transpose()
}

fn downcast<'a, A: Array + 'static>(
    array: &'a ArrayRef,
    column: SampleColumn,
    expected: &'static str,
) -> Result<&'a A, ArrowStreamError> {
    array.as_any().downcast_ref::<A>().ok_or_else(|| ArrowStreamError::ColumnType {
        name: column.name(),
        found: array.data_type().to_string(),
        expected,
    })
}

fn parse_uuid(text: &str) -> Option<u128> {
    parse_hex_id(&text.replace('-', ""), 32)
}
