//! Writer of the pages of one column of a row group. The row group takes the finished column.

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, OffsetIndexBuilder};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use crate::encoding::delta::encode_delta;
use crate::encoding::dictionary::{ValueDictionary, encode_indexes};
use crate::format::meta::MAX_ROWS_PER_PAGE;

/// Level of compression. Higher ones take half as long again and save 0.5 %.
const ZSTD_LEVEL: i32 = 1;

/// Numbers of one column of a row group, by their encoding.
pub(crate) enum NumberColumn<'a> {
    /// Differences.
    Deltas(&'a [i32]),
    /// Differences of ascending numbers. The footer states their range.
    Ascending(&'a [i32]),
    /// Indexes into a dictionary.
    Values(&'a [i64]),
}

impl NumberColumn<'_> {
    /// Returns the bytes of the numbers in memory.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            NumberColumn::Deltas(values) | NumberColumn::Ascending(values) => size_of_val(*values),
            NumberColumn::Values(values) => size_of_val(*values),
        }
    }
}

/// Column of a row group, ready to be added to a file.
pub(crate) struct EncodedColumn {
    pub(crate) bytes: Bytes,
    pub(crate) closed: ColumnCloseResult,
}

/// Encoder of columns, with buffers that are reused.
pub(crate) struct ColumnEncoder {
    compressor: zstd::bulk::Compressor<'static>,
    /// Bytes of the current page.
    page: Vec<u8>,
    dictionary: ValueDictionary,
    indexes: Vec<u32>,
}

/// Pages of a column so far.
struct ColumnPages<'e> {
    /// None if pages are not compressed.
    compressor: Option<&'e mut zstd::bulk::Compressor<'static>>,
    sink: TrackedWrite<Vec<u8>>,
    offsets: OffsetIndexBuilder,
    uncompressed: usize,
    data_start: Option<u64>,
    has_dictionary: bool,
}

impl ColumnEncoder {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(ColumnEncoder {
            compressor: zstd::bulk::Compressor::new(ZSTD_LEVEL)?,
            page: Vec::new(),
            dictionary: ValueDictionary::default(),
            indexes: Vec::new(),
        })
    }

    /// Encodes a column.
    pub(crate) fn encode(
        &mut self,
        descriptor: &ColumnDescPtr,
        numbers: &NumberColumn<'_>,
        is_compressed: bool,
    ) -> Result<EncodedColumn, ParquetError> {
        match *numbers {
            NumberColumn::Deltas(values) => self.encode_deltas(descriptor, values, is_compressed, None),
            NumberColumn::Ascending(values) => {
                let range = values.first().copied().zip(values.last().copied());
                let statistics = range
                    .map(|(least, most)| Statistics::int32(Some(least), Some(most), None, Some(0), false));
                self.encode_deltas(descriptor, values, is_compressed, statistics)
            }
            NumberColumn::Values(values) => self.encode_values(descriptor, values, is_compressed),
        }
    }

    fn encode_deltas(
        &mut self,
        descriptor: &ColumnDescPtr,
        values: &[i32],
        is_compressed: bool,
        statistics: Option<Statistics>,
    ) -> Result<EncodedColumn, ParquetError> {
        let mut pages = ColumnPages::new(is_compressed.then_some(&mut self.compressor));
        for rows in values.chunks(MAX_ROWS_PER_PAGE) {
            self.page.clear();
            encode_delta(rows, &mut self.page);
            pages.add_page(&self.page, rows.len(), Encoding::DELTA_BINARY_PACKED)?;
        }
        pages.finish(descriptor, values.len(), Encoding::DELTA_BINARY_PACKED, statistics)
    }

    /// Encodes values as indexes into a dictionary, or as they are if there are too many distinct ones.
    fn encode_values(
        &mut self,
        descriptor: &ColumnDescPtr,
        values: &[i64],
        is_compressed: bool,
    ) -> Result<EncodedColumn, ParquetError> {
        let mut pages = ColumnPages::new(is_compressed.then_some(&mut self.compressor));
        self.dictionary.clear();
        self.page.clear();
        if !self.dictionary.add_all(values, &mut self.indexes) {
            for rows in values.chunks(MAX_ROWS_PER_PAGE) {
                self.page.clear();
                self.page.extend(rows.iter().flat_map(|value| value.to_le_bytes()));
                pages.add_page(&self.page, rows.len(), Encoding::PLAIN)?;
            }
            return pages.finish(descriptor, values.len(), Encoding::PLAIN, None);
        }
        let distinct = self.dictionary.values();
        self.page.extend(distinct.iter().flat_map(|value| value.to_le_bytes()));
        pages.add_dictionary(&self.page, distinct.len())?;
        let width = self.dictionary.index_width();
        for rows in self.indexes.chunks(MAX_ROWS_PER_PAGE) {
            self.page.clear();
            encode_indexes(rows, width, &mut self.page);
            pages.add_page(&self.page, rows.len(), Encoding::RLE_DICTIONARY)?;
        }
        pages.finish(descriptor, values.len(), Encoding::RLE_DICTIONARY, None)
    }
}

impl<'e> ColumnPages<'e> {
    fn new(compressor: Option<&'e mut zstd::bulk::Compressor<'static>>) -> Self {
        ColumnPages {
            compressor,
            sink: TrackedWrite::new(Vec::new()),
            offsets: OffsetIndexBuilder::new(),
            uncompressed: 0,
            data_start: None,
            has_dictionary: false,
        }
    }

    fn compress(&mut self, page: &[u8]) -> Result<Bytes, ParquetError> {
        Ok(match &mut self.compressor {
            Some(compressor) => Bytes::from(compressor.compress(page)?),
            None => Bytes::copy_from_slice(page),
        })
    }

    fn add_dictionary(&mut self, page: &[u8], count: usize) -> Result<(), ParquetError> {
        let buf = self.compress(page)?;
        let num_values = page_count(count)?;
        let dictionary =
            Page::DictionaryPage { buf, num_values, encoding: Encoding::PLAIN, is_sorted: false };
        let written = SerializedPageWriter::new(&mut self.sink)
            .write_page(CompressedPage::new(dictionary, page.len()))?;
        self.uncompressed += written.uncompressed_size;
        self.has_dictionary = true;
        Ok(())
    }

    fn add_page(&mut self, page: &[u8], rows: usize, encoding: Encoding) -> Result<(), ParquetError> {
        let data = Page::DataPage {
            buf: self.compress(page)?,
            num_values: page_count(rows)?,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let written =
            SerializedPageWriter::new(&mut self.sink).write_page(CompressedPage::new(data, page.len()))?;
        self.uncompressed += written.uncompressed_size;
        self.data_start.get_or_insert(written.offset);
        self.offsets.append_row_count(rows as i64);
        self.offsets.append_offset_and_size(written.offset as i64, page_size(written.compressed_size)?);
        Ok(())
    }

    fn finish(
        self,
        descriptor: &ColumnDescPtr,
        rows: usize,
        encoding: Encoding,
        statistics: Option<Statistics>,
    ) -> Result<EncodedColumn, ParquetError> {
        let bytes = Bytes::from(self.sink.into_inner()?);
        let mut encodings = vec![Encoding::RLE, encoding];
        if self.has_dictionary {
            encodings.push(Encoding::PLAIN);
        }
        let compression = match self.compressor {
            Some(_) => Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?),
            None => Compression::UNCOMPRESSED,
        };
        let mut metadata = ColumnChunkMetaData::builder(descriptor.clone())
            .set_encodings(encodings)
            .set_compression(compression)
            .set_num_values(rows as i64)
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(self.uncompressed as i64)
            .set_data_page_offset(self.data_start.unwrap_or_default() as i64)
            .set_dictionary_page_offset(self.has_dictionary.then_some(0));
        if let Some(statistics) = statistics {
            metadata = metadata.set_statistics(statistics);
        }
        let closed = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: rows as u64,
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: None,
            offset_index: Some(self.offsets.build()),
        };
        Ok(EncodedColumn { bytes, closed })
    }
}

fn page_count(count: usize) -> Result<u32, ParquetError> {
    u32::try_from(count).map_err(|_| ParquetError::General(format!("page of {count} values is too large")))
}

fn page_size(bytes: usize) -> Result<i32, ParquetError> {
    i32::try_from(bytes).map_err(|_| ParquetError::General(format!("page of {bytes} bytes is too large")))
}
