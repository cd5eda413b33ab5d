//! What Parquet alone takes: every column of a block decoded, or encoded again, and nothing else done.

use std::hint::black_box;
use std::sync::Arc;

use athanor_block::{BlockFolder, MemoryFolder, PARQUET_FILES};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::DataType;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;

use crate::cpu;

/// Rows decoded at a time, as the merge does.
const BATCH: usize = 8 * 1024;

/// One column of one row group with its levels.
pub enum Values {
    Bool(Levelled<bool>),
    I32(Levelled<i32>),
    I64(Levelled<i64>),
    Text(Levelled<parquet::data_type::ByteArray>),
    Fixed(Levelled<parquet::data_type::FixedLenByteArray>),
}

pub struct Levelled<T> {
    values: Vec<T>,
    definition: Vec<i16>,
    repetition: Vec<i16>,
}

fn open(folder: &MemoryFolder, file: &str) -> SerializedFileReader<Bytes> {
    let length = folder.length(file).unwrap() as usize;
    SerializedFileReader::new(folder.read(file, 0, length).unwrap()).unwrap()
}

fn drain<T: DataType>(mut reader: ColumnReaderImpl<T>, keep: bool) -> Levelled<T::T> {
    let mut all = Levelled { values: Vec::new(), definition: Vec::new(), repetition: Vec::new() };
    loop {
        if !keep {
            all.values.clear();
            all.definition.clear();
            all.repetition.clear();
        }
        let Levelled { values, definition, repetition } = &mut all;
        let read = reader.read_records(BATCH, Some(definition), Some(repetition), values).unwrap();
        if read.0 == 0 {
            return all;
        }
        black_box(values);
    }
}

fn read(reader: ColumnReader, keep: bool) -> Values {
    match reader {
        ColumnReader::BoolColumnReader(reader) => Values::Bool(drain(reader, keep)),
        ColumnReader::Int32ColumnReader(reader) => Values::I32(drain(reader, keep)),
        ColumnReader::Int64ColumnReader(reader) => Values::I64(drain(reader, keep)),
        ColumnReader::ByteArrayColumnReader(reader) => Values::Text(drain(reader, keep)),
        ColumnReader::FixedLenByteArrayColumnReader(reader) => Values::Fixed(drain(reader, keep)),
        _ => unreachable!("a block has no other types"),
    }
}

/// Processor time of decoding every column of a block.
pub fn decode(folder: &MemoryFolder) -> std::time::Duration {
    let start = cpu();
    for file in PARQUET_FILES {
        let reader = open(folder, file);
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group).unwrap();
            for column in 0..group.num_columns() {
                black_box(read(group.get_column_reader(column).unwrap(), false));
            }
        }
    }
    cpu() - start
}

/// Properties that give the columns the encodings that they have.
fn like(columns: &[ColumnChunkMetaData]) -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_statistics_enabled(EnabledStatistics::None)
        .set_data_page_row_count_limit(64 * 1024)
        .set_write_batch_size(16 * 1024)
        .set_max_row_group_row_count(None);
    for column in columns {
        let path = column.column_path().clone();
        let dictionary = column.dictionary_page_offset().is_some();
        builder = builder
            .set_column_dictionary_enabled(path.clone(), dictionary)
            .set_column_compression(path.clone(), column.compression());
        if column.encodings().any(|encoding| encoding == Encoding::DELTA_BINARY_PACKED) {
            builder = builder.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    builder.set_compression(Compression::UNCOMPRESSED).build()
}

/// Processor time of encoding every column of a block again.
pub fn encode(folder: &MemoryFolder) -> std::time::Duration {
    let mut taken = std::time::Duration::ZERO;
    for file in PARQUET_FILES {
        let reader = open(folder, file);
        if reader.num_row_groups() == 0 {
            continue;
        }
        let schema = reader.metadata().file_metadata().schema_descr().root_schema_ptr();
        let properties = like(reader.metadata().row_group(0).columns());
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group).unwrap();
            let columns = (0..group.num_columns())
                .map(|column| read(group.get_column_reader(column).unwrap(), true))
                .collect::<Vec<_>>();
            let start = cpu();
            let mut out = writer.next_row_group().unwrap();
            for column in &columns {
                let mut writer = out.next_column().unwrap().unwrap();
                write(writer.untyped(), column);
                writer.close().unwrap();
            }
            out.close().unwrap();
            taken += cpu() - start;
        }
        black_box(writer.into_inner().unwrap());
    }
    taken
}

fn write(writer: &mut ColumnWriter<'_>, column: &Values) {
    macro_rules! put {
        ($writer:expr, $column:expr) => {
            $writer
                .write_batch(&$column.values, levels(&$column.definition), levels(&$column.repetition))
                .unwrap()
        };
    }
    match (writer, column) {
        (ColumnWriter::BoolColumnWriter(writer), Values::Bool(column)) => put!(writer, column),
        (ColumnWriter::Int32ColumnWriter(writer), Values::I32(column)) => put!(writer, column),
        (ColumnWriter::Int64ColumnWriter(writer), Values::I64(column)) => put!(writer, column),
        (ColumnWriter::ByteArrayColumnWriter(writer), Values::Text(column)) => put!(writer, column),
        (ColumnWriter::FixedLenByteArrayColumnWriter(writer), Values::Fixed(column)) => put!(writer, column),
        _ => unreachable!("the writer has the reader's schema"),
    };
}

/// A column that is required has no levels.
fn levels(levels: &[i16]) -> Option<&[i16]> {
    (!levels.is_empty()).then_some(levels)
}
