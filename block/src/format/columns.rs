//! Column-wise reading and writing of Parquet files: schemas and typed vectors.
//!
//! This module uses Parquet's own column readers and writers. No row is ever materialized as an object.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::reader::{ColumnReader, get_typed_column_reader};
use parquet::column::writer::{get_column_writer, get_typed_column_writer};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, FixedLenByteArray, FixedLenByteArrayType, Int32Type,
    Int64Type,
};
use parquet::file::metadata::{KeyValue, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::properties::{EnabledStatistics, ReaderProperties, WriterProperties, WriterPropertiesPtr};
use parquet::file::reader::{Length, RowGroupReader};
use parquet::file::serialized_reader::SerializedRowGroupReader;
use parquet::file::writer::{
    SerializedFileWriter, SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite,
};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnDescPtr, ColumnPath};

use crate::encoding::page_reader::{PagedColumn, PagedNumber};
use crate::encoding::page_writer::{ColumnEncoder, EncodedColumn, NumberColumn};
use crate::format::error::BlockError;
use crate::format::folder::{CachedTailReader, ChecksumReader, ChecksumWriter};
use crate::format::meta::{
    FUNCTIONS_FILE, FileMeta, INDEX_FILE, IdRange, LOCATIONS_FILE, MAPPINGS_FILE, MAX_ROWS_PER_FILE_BYTE,
    MAX_ROWS_PER_PAGE, PARQUET_FILES, PROFILES_FILE, ROLLUP_FILE, SAMPLES_FILE, SERIES_FILE, STACKS_FILE,
};
use crate::format::parquet_reads::catch_parquet_panic;
use crate::format::sample_rows::{OptionalColumns, SpanContextColumns};

/// Approximate bytes of names per row group. They are held in addition to the dictionary.
pub(crate) const GROUP_TEXT_BYTES: usize = 8 << 20;

/// Variant of [`MAX_ROWS_PER_PAGE`] for the roll-up, so that a query for few series reads only their pages.
const MAX_ROWS_PER_ROLLUP_PAGE: usize = 4 * 1024;

/// Upper bound in bytes of the dictionary of roll-up values. Reading one page requires the dictionary too.
const MAX_ROLLUP_DICTIONARY_BYTES: usize = 32 * 1024;

/// Size in bytes up to which a column of a row group is not compressed. Compression would save a few bytes,
/// and its 200 KB context per column would dominate the time for a block of many tenants.
const MAX_PLAIN_BYTES: usize = 256;

/// Rows per decode step, so that memory grows with actual rows and not with announced ones.
const DECODE_STEP_ROWS: usize = 64 * 1024;

/// Column indexes of the numbers of records and of profiles in a row of a downsampled tier.
pub(crate) const COUNT_COLUMNS: [usize; 2] = [8, 9];

/// Key in the footer of the profiles file. Its presence states that no tenant has two profiles with one ID, so
/// readers compare no IDs. A downsampled tier has none. Earlier versions ignore it.
const DISTINCT_IDS_KEY: &str = "athanor.distinct_ids";

/// Returns the schema of a file in Parquet's notation.
fn schema(file: &str, columns: OptionalColumns) -> String {
    match file {
        SAMPLES_FILE => return schema_of_samples(columns),
        SERIES_FILE => {
            "message series { required int32 series; required binary tenant (UTF8);
             required group labels (MAP) { repeated group key_value {
                 required binary key (UTF8); required binary value (UTF8); } }
             required binary sample_type (UTF8); required binary sample_unit (UTF8);
             required binary period_type (UTF8); required binary period_unit (UTF8); }"
        }
        PROFILES_FILE => return schema_of_profiles(columns),
        STACKS_FILE => "message stacks { required int32 stack; required int32 parent; required int32 location; }",
        LOCATIONS_FILE => {
            "message locations { required int32 location; required int32 depth; required int32 mapping;
             required int64 address; required boolean folded; required int32 function; required int64 line;
             required int64 column; }"
        }
        FUNCTIONS_FILE => {
            "message functions { required int32 function; required binary name (UTF8);
             required binary system_name (UTF8); required binary filename (UTF8); required int64 start_line; }"
        }
        MAPPINGS_FILE => {
            "message mappings { required int32 mapping; required int64 start; required int64 size;
             required int64 offset; required binary filename (UTF8); required binary build_id (UTF8);
             required int32 flags; }"
        }
        ROLLUP_FILE => {
            "message rollup { required int32 series; required int32 stack; required int64 value;
             required int32 samples; }"
        }
        INDEX_FILE => "message index { required int32 function; required binary service (UTF8); }",
        other => unreachable!("{other} is not a file of a block"),
    }
    .to_owned()
}

fn schema_of_profiles(columns: OptionalColumns) -> String {
    let counts = if columns.counts { "required int64 records; required int64 profiles;" } else { "" };
    format!(
        "message profiles {{ required int32 profile; required int32 series; required int64 time;
         required fixed_len_byte_array(16) id; required int64 duration; required int64 period;
         required int32 samples; required int64 value; {counts} }}"
    )
}

/// Returns the schema of samples. Timestamps are Unix nanoseconds, like the times of profiles.
fn schema_of_samples(columns: OptionalColumns) -> String {
    let SpanContextColumns { span, trace } = columns.requests;
    let optional = [
        (span, "optional int64 span_id (INTEGER(64,false));"),
        (trace, "optional fixed_len_byte_array(16) trace_id;"),
        (
            columns.moments,
            "optional group timestamps (LIST) { repeated group list { required int64 element; } }",
        ),
    ];
    let optional: String = optional.into_iter().filter(|(has, _)| *has).map(|(_, column)| column).collect();
    format!(
        "message samples {{ required int32 profile; required int32 stack; required int64 value; {optional} }}"
    )
}

/// Columns with close neighboring values, which are delta-encoded.
fn delta_columns(file: &str) -> &'static [&'static str] {
    match file {
        SERIES_FILE => &["series"],
        PROFILES_FILE => &["profile", "series", "time"],
        SAMPLES_FILE => &["profile", "stack"],
        STACKS_FILE => &["stack", "parent", "location"],
        LOCATIONS_FILE => &["location", "address", "function"],
        FUNCTIONS_FILE => &["function"],
        MAPPINGS_FILE => &["mapping"],
        ROLLUP_FILE => &["series", "stack"],
        INDEX_FILE => &["function"],
        other => unreachable!("{other} is not a file of a block"),
    }
}

fn writer_properties(file: &str, columns: OptionalColumns, compression: Compression) -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_created_by("athanor".into())
        .set_compression(compression)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(!matches!(file, SAMPLES_FILE | ROLLUP_FILE))
        .set_data_page_row_count_limit(if file == ROLLUP_FILE {
            MAX_ROWS_PER_ROLLUP_PAGE
        } else {
            MAX_ROWS_PER_PAGE
        })
        .set_write_batch_size(if file == ROLLUP_FILE { MAX_ROWS_PER_ROLLUP_PAGE } else { 16 * 1024 })
        .set_max_row_group_row_count(None);
    if matches!(file, SAMPLES_FILE | ROLLUP_FILE) {
        // Sample rows are located by profile row counts, and roll-up rows by their series.
        let (first, statistics) = match file {
            SAMPLES_FILE => ("profile", EnabledStatistics::Chunk),
            _ => ("series", EnabledStatistics::Page),
        };
        builder = builder.set_column_statistics_enabled(ColumnPath::from(first), statistics);
    }
    if file == ROLLUP_FILE {
        builder = builder.set_dictionary_page_size_limit(MAX_ROLLUP_DICTIONARY_BYTES);
    }
    for name in delta_columns(file) {
        let column = ColumnPath::from(*name);
        builder = builder
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
    }
    if file == SAMPLES_FILE {
        // Timestamps ascend within a row.
        let timestamps = ColumnPath::from(["timestamps", "list", "element"].map(str::to_owned).to_vec());
        builder = builder
            .set_column_dictionary_enabled(timestamps.clone(), false)
            .set_column_encoding(timestamps, Encoding::DELTA_BINARY_PACKED);
    }
    if file == PROFILES_FILE {
        let states_distinct_ids = KeyValue::new(DISTINCT_IDS_KEY.to_owned(), "true".to_owned());
        builder = builder.set_key_value_metadata(Some(vec![states_distinct_ids]));
    }
    if file == PROFILES_FILE && !columns.counts {
        // IDs are random, so neither dictionary nor compression helps. In a downsampled tier they are zero.
        let id = ColumnPath::from("id");
        builder = builder
            .set_column_dictionary_enabled(id.clone(), false)
            .set_column_compression(id, Compression::UNCOMPRESSED);
    }
    if matches!(file, FUNCTIONS_FILE) {
        builder = builder.set_column_dictionary_enabled(ColumnPath::from("name"), false);
    }
    builder.build()
}

/// Values of one column within a row group.
pub(crate) enum ColumnValues<'a> {
    I32(&'a [i32]),
    I64(&'a [i64]),
    /// Numbers that the block's own encoder writes.
    Numbers(NumberColumn<'a>),
    Bool(&'a [bool]),
    Text(&'a [ByteArray]),
    Fixed(&'a [FixedLenByteArray]),
    /// Present values, and a definition level per row.
    OptionalI64(&'a [i64], &'a [i16]),
    OptionalFixed(&'a [FixedLenByteArray], &'a [i16]),
    /// Texts of map keys or values with their repetition and definition levels.
    Nested(&'a [ByteArray], &'a [i16], &'a [i16]),
    /// Numbers of a list, with repetition and definition levels.
    NestedI64(&'a [i64], &'a [i16], &'a [i16]),
}

impl ColumnValues<'_> {
    /// Returns whether the values take at most `max_bytes`.
    fn fits(&self, max_bytes: usize) -> bool {
        let texts = |values: &[ByteArray]| {
            values.len() <= max_bytes && values.iter().map(ByteArray::len).sum::<usize>() <= max_bytes
        };
        let fixed = |values: &[FixedLenByteArray]| {
            values.len() <= max_bytes && values.iter().map(|value| value.len()).sum::<usize>() <= max_bytes
        };
        match self {
            ColumnValues::Numbers(numbers) => numbers.bytes() <= max_bytes,
            ColumnValues::I32(values) => size_of_val(*values) <= max_bytes,
            ColumnValues::I64(values)
            | ColumnValues::OptionalI64(values, _)
            | ColumnValues::NestedI64(values, ..) => size_of_val(*values) <= max_bytes,
            ColumnValues::Bool(values) => values.len() <= max_bytes,
            ColumnValues::Text(values) | ColumnValues::Nested(values, ..) => texts(values),
            ColumnValues::Fixed(values) | ColumnValues::OptionalFixed(values, _) => fixed(values),
        }
    }
}

/// Writer of one Parquet file.
pub(crate) struct TableWriter {
    file: &'static str,
    writer: SerializedFileWriter<ChecksumWriter>,
    descriptors: Vec<ColumnDescPtr>,
    /// Writer properties of uncompressed columns.
    plain: WriterPropertiesPtr,
    /// Encoder of some columns, created for the first of them.
    encoder: Option<ColumnEncoder>,
    groups: u32,
}

impl TableWriter {
    pub(crate) fn create(
        file: &'static str,
        columns: OptionalColumns,
        out: ChecksumWriter,
    ) -> Result<Self, BlockError> {
        let schema = parse_message_type(&schema(file, columns)).expect("the schemas of a block parse");
        let level = ZstdLevel::try_new(3).expect("zstd has a level 3");
        let compressed = Arc::new(writer_properties(file, columns, Compression::ZSTD(level)));
        let plain = Arc::new(writer_properties(file, columns, Compression::UNCOMPRESSED));
        let writer = SerializedFileWriter::new(out, Arc::new(schema), compressed)
            .map_err(BlockError::parquet(file))?;
        let descriptors = writer.schema_descr().columns().to_vec();
        Ok(TableWriter { file, writer, descriptors, plain, encoder: None, groups: 0 })
    }
    /// Number of row groups so far.
    pub(crate) fn groups(&self) -> u32 {
        self.groups
    }
    /// Adds one row group.
    pub(crate) fn write_row_group(&mut self, columns: &[ColumnValues<'_>]) -> Result<(), BlockError> {
        let failed = BlockError::parquet(self.file);
        let mut group = self.writer.next_row_group().map_err(&failed)?;
        for (column, descriptor) in columns.iter().zip(&self.descriptors) {
            let plain =
                column.fits(MAX_PLAIN_BYTES).then(|| (Arc::clone(descriptor), Arc::clone(&self.plain)));
            let group = &mut group;
            match column {
                ColumnValues::Numbers(numbers) => {
                    let encoder = match &mut self.encoder {
                        Some(encoder) => encoder,
                        None => self.encoder.insert(ColumnEncoder::new().map_err(BlockError::io(self.file))?),
                    };
                    let encoded = encoder.encode(descriptor, numbers, plain.is_none());
                    encoded.and_then(|EncodedColumn { bytes, closed }| group.append_column(&bytes, closed))
                }
                ColumnValues::I32(values) => put::<Int32Type>(group, plain, values, None, None),
                ColumnValues::I64(values) => put::<Int64Type>(group, plain, values, None, None),
                ColumnValues::Bool(values) => put::<BoolType>(group, plain, values, None, None),
                ColumnValues::Text(values) => put::<ByteArrayType>(group, plain, values, None, None),
                ColumnValues::Fixed(values) => put::<FixedLenByteArrayType>(group, plain, values, None, None),
                ColumnValues::OptionalI64(values, has) => {
                    put::<Int64Type>(group, plain, values, Some(has), None)
                }
                ColumnValues::OptionalFixed(values, has) => {
                    put::<FixedLenByteArrayType>(group, plain, values, Some(has), None)
                }
                ColumnValues::Nested(values, repetition, definition) => {
                    put::<ByteArrayType>(group, plain, values, Some(definition), Some(repetition))
                }
                ColumnValues::NestedI64(values, repetition, definition) => {
                    put::<Int64Type>(group, plain, values, Some(definition), Some(repetition))
                }
            }
            .map_err(&failed)?;
        }
        group.close().map_err(&failed)?;
        self.groups += 1;
        Ok(())
    }
    /// Writes the footer and finishes the file.
    pub(crate) fn finish(mut self) -> Result<FileMeta, BlockError> {
        self.writer.flush().map_err(BlockError::io(self.file))?;
        self.writer.inner_mut().begin_tail();
        let out = self.writer.into_inner().map_err(BlockError::parquet(self.file))?;
        out.finish().map_err(BlockError::io(self.file))
    }
}

/// Writes the next column of a row group, either with the given properties or compressed with those of the
/// file.
fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, ChecksumWriter>,
    plain: Option<(ColumnDescPtr, WriterPropertiesPtr)>,
    values: &[T::T],
    definition: Option<&[i16]>,
    repetition: Option<&[i16]>,
) -> parquet::errors::Result<()> {
    if let Some((descriptor, properties)) = plain {
        let mut sink = TrackedWrite::new(Vec::new());
        let pages = Box::new(SerializedPageWriter::new(&mut sink));
        let mut column = get_typed_column_writer::<T>(get_column_writer(descriptor, properties, pages));
        column.write_batch(values, definition, repetition)?;
        let closed = column.close()?;
        return group.append_column(&Bytes::from(sink.into_inner()?), closed);
    }
    let mut column = group.next_column()?.expect("as many columns are given as the schema has");
    column.typed::<T>().write_batch(values, definition, repetition)?;
    column.close()
}

/// Reader of one Parquet file.
pub(crate) struct TableReader {
    pub(crate) file: &'static str,
    content: Arc<ChecksumReader>,
    pub(crate) metadata: ParquetMetaData,
    properties: Arc<ReaderProperties>,
    columns: OptionalColumns,
}

impl TableReader {
    pub(crate) fn open(file: &'static str, content: ChecksumReader) -> Result<Self, BlockError> {
        let bytes = content.len();
        let metadata = catch_parquet_panic(file, || {
            let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Optional);
            match content.tail() {
                Some((from, tail)) => {
                    reader.parse_and_finish(&CachedTailReader { content: &content, from, tail })
                }
                None => reader.parse_and_finish(&content),
            }
        })?;
        let seen = metadata.file_metadata().schema();
        let has_in =
            |of: &str, name| file == of && seen.get_fields().iter().any(|field| field.name() == name);
        let has = |name| has_in(SAMPLES_FILE, name);
        let requests = SpanContextColumns { span: has("span_id"), trace: has("trace_id") };
        let counts = has_in(PROFILES_FILE, "records");
        let columns = OptionalColumns { requests, moments: has("timestamps"), counts };
        let expected = parse_message_type(&schema(file, columns)).expect("the schemas of a block parse");
        if seen != &expected {
            return Err(BlockError::corrupt(file, "columns do not match the schema of the file"));
        }
        let announced = metadata.row_groups().iter().map(|group| group.num_rows().max(0) as u64);
        if announced.fold(0, u64::saturating_add) > bytes.saturating_mul(MAX_ROWS_PER_FILE_BYTE) {
            return Err(BlockError::corrupt(file, format!("more rows than {bytes} bytes can hold")));
        }
        let properties = Arc::new(ReaderProperties::builder().build());
        Ok(TableReader { file, content: Arc::new(content), metadata, properties, columns })
    }
    /// Optional columns that the file has.
    pub(crate) fn columns(&self) -> OptionalColumns {
        self.columns
    }
    /// Returns whether the footer states that profile IDs are distinct.
    pub(crate) fn has_distinct_ids(&self) -> bool {
        let entries = self.metadata.file_metadata().key_value_metadata();
        entries.is_some_and(|entries| entries.iter().any(|entry| entry.key == DISTINCT_IDS_KEY))
    }
    pub(crate) fn groups(&self) -> usize {
        self.metadata.num_row_groups()
    }
    /// Returns the number of rows in one row group.
    pub(crate) fn rows(&self, group: usize) -> Result<usize, BlockError> {
        if group >= self.groups() {
            return Err(BlockError::corrupt(self.file, format!("row group {group} does not exist")));
        }
        let rows = self.metadata.row_group(group).num_rows();
        usize::try_from(rows).map_err(|_| BlockError::corrupt(self.file, "a negative number of rows"))
    }
    /// Returns the number of values in one column of a row group by its footer, 0 without such a group.
    pub(crate) fn values(&self, group: usize, column: usize) -> u64 {
        let columns = self.metadata.row_groups().get(group).map(|group| group.columns());
        columns.and_then(|columns| columns.get(column)).map_or(0, |column| column.num_values().max(0) as u64)
    }
    /// Returns the byte range of consecutive row groups and their decompressed size.
    pub(crate) fn group_range(&self, groups: IdRange) -> Result<(Range<u64>, u64), BlockError> {
        let mut all = 0..0;
        let mut plain = 0u64;
        for group in groups.range() {
            self.rows(group)?;
            let group = self.metadata.row_group(group);
            for column in group.columns() {
                let (start, length) = catch_parquet_panic(self.file, || Ok(column.byte_range()))?;
                let end = start.saturating_add(length);
                all = if all.is_empty() { start..end } else { all.start.min(start)..all.end.max(end) };
                plain = plain.saturating_add(column.uncompressed_size().max(0) as u64);
            }
        }
        Ok((all, plain))
    }
    /// Opens a reader of one column of one row group.
    pub(crate) fn column_reader(&self, group: usize, column: usize) -> Result<ColumnReader, BlockError> {
        self.read_group(group, |reader| reader.get_column_reader(column))
    }
    /// Opens a reader of the pages of one column of one row group, for the block's own decoders.
    pub(crate) fn paged_column<T: PagedNumber>(
        &self,
        group: usize,
        column: usize,
    ) -> Result<PagedColumn<T>, BlockError> {
        let pages = self.read_group(group, |reader| reader.get_column_page_reader(column))?;
        Ok(PagedColumn::new(self.file, pages))
    }
    /// Reads one column of numbers over consecutive row groups, by the block's own decoders.
    pub(crate) fn read_numbers<T: PagedNumber>(
        &self,
        groups: IdRange,
        column: usize,
    ) -> Result<Vec<T>, BlockError> {
        let mut values = Vec::new();
        for group in groups.range() {
            let mut left = self.rows(group)?;
            let mut pages = self.paged_column(group, column)?;
            while left > 0 {
                let count = left.min(DECODE_STEP_ROWS);
                pages.read(count, &mut values)?;
                left -= count;
            }
        }
        Ok(values)
    }
    fn read_group<R>(
        &self,
        group: usize,
        open: impl FnOnce(&dyn RowGroupReader) -> parquet::errors::Result<R>,
    ) -> Result<R, BlockError> {
        self.rows(group)?;
        catch_parquet_panic(self.file, || {
            let content = Arc::clone(&self.content);
            let properties = Arc::clone(&self.properties);
            let pages = self.metadata.page_index_for_row_group(group);
            let group = self.metadata.row_group(group);
            open(&SerializedRowGroupReader::new(content, group, pages, properties)?)
        })
    }
    /// Reads one column of one row group.
    pub(crate) fn read_column<T: DataType>(
        &self,
        group: usize,
        column: usize,
    ) -> Result<Vec<T::T>, BlockError>
    where
        T::T: Default + Clone,
    {
        let rows = self.rows(group)?;
        let mut values = Vec::new();
        let mut repetition = Vec::new();
        let mut definition = Vec::new();
        self.read_nested_column::<T>(group, column, &mut values, &mut repetition, &mut definition)?;
        if values.len() != rows {
            return Err(BlockError::corrupt(
                self.file,
                format!("column {column} does not have {rows} values"),
            ));
        }
        Ok(values)
    }
    /// Reads one column of one row group with its levels.
    pub(crate) fn read_nested_column<T: DataType>(
        &self,
        group: usize,
        column: usize,
        values: &mut Vec<T::T>,
        repetition: &mut Vec<i16>,
        definition: &mut Vec<i16>,
    ) -> Result<(), BlockError> {
        let rows = self.rows(group)?;
        let mut reader = get_typed_column_reader::<T>(self.column_reader(group, column)?);
        let mut left = rows;
        while left > 0 {
            let (records, _, _) = catch_parquet_panic(self.file, || {
                reader.read_records(left.min(DECODE_STEP_ROWS), Some(definition), Some(repetition), values)
            })?;
            if records == 0 {
                return Err(BlockError::corrupt(
                    self.file,
                    format!("column {column} ends {left} rows early"),
                ));
            }
            left -= records;
        }
        Ok(())
    }
    /// Reads one column over consecutive row groups.
    pub(crate) fn read_column_groups<T: DataType>(
        &self,
        groups: IdRange,
        column: usize,
    ) -> Result<Vec<T::T>, BlockError>
    where
        T::T: Default + Clone,
    {
        let mut values = Vec::new();
        for group in groups.range() {
            values.append(&mut self.read_column::<T>(group, column)?);
        }
        Ok(values)
    }
}

/// Index of a file in [`PARQUET_FILES`].
pub(crate) fn file_index(file: &str) -> usize {
    PARQUET_FILES.iter().position(|name| *name == file).expect("only files of a block are requested")
}
