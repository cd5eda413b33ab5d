//! Readers of the columns of one row group, page by page.

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageReader};

use crate::encoding::delta::DeltaDecoder;
use crate::encoding::dictionary::IndexDecoder;
use crate::format::error::BlockError;
use crate::format::meta::{MAX_ROWS_PER_GROUP, MAX_ROWS_PER_PAGE};
use crate::format::parquet_reads::{catch_parquet_panic, truncated_column};

/// Rows skipped at a time within a page.
const SKIPPED_ROWS: usize = 4 * 1024;

/// Number type of a column.
pub(crate) trait PagedNumber: Copy {
    /// Opens a page of differences. Returns none if it is damaged or the type has none.
    fn open_deltas(page: Bytes, rows: usize) -> Option<DeltaDecoder>;

    /// Appends the next differences.
    fn read_deltas(decoder: &mut DeltaDecoder, rows: usize, out: &mut Vec<Self>) -> Option<()>;

    /// Appends all numbers of plain bytes. Returns none if the last one is not whole.
    fn read_plain(bytes: &[u8], out: &mut Vec<Self>) -> Option<()>;
}

/// Decoder of one page.
enum PageDecoder {
    Deltas(DeltaDecoder),
    Indexes(IndexDecoder),
    /// Plain numbers, and the offset of the next one.
    Plain(Bytes, usize),
}

impl PageDecoder {
    /// Opens a page. Returns none if it is damaged or of an unsupported encoding.
    fn open<T: PagedNumber>(page: Bytes, encoding: Encoding, rows: usize) -> Option<Self> {
        match encoding {
            Encoding::DELTA_BINARY_PACKED => T::open_deltas(page, rows).map(PageDecoder::Deltas),
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {
                IndexDecoder::open(page).map(PageDecoder::Indexes)
            }
            Encoding::PLAIN => Some(PageDecoder::Plain(page, 0)),
            _ => None,
        }
    }

    /// Appends the next rows. Returns none if the page is damaged or has fewer.
    fn read<T: PagedNumber>(&mut self, dictionary: &[T], rows: usize, out: &mut Vec<T>) -> Option<()> {
        match self {
            PageDecoder::Deltas(deltas) => T::read_deltas(deltas, rows, out),
            PageDecoder::Indexes(indexes) => indexes.read(rows, dictionary, out),
            PageDecoder::Plain(page, at) => {
                let end = *at + rows * size_of::<T>();
                T::read_plain(page.get(*at..end)?, out)?;
                *at = end;
                Some(())
            }
        }
    }
}

/// Reader of one column without levels.
pub(crate) struct PagedColumn<T: PagedNumber> {
    file: &'static str,
    pages: Box<dyn PageReader>,
    dictionary: Vec<T>,
    page: Option<PageDecoder>,
    /// Rows of the page that are not read.
    left: usize,
    skipped: Vec<T>,
}

impl<T: PagedNumber> PagedColumn<T> {
    pub(crate) fn new(file: &'static str, pages: Box<dyn PageReader>) -> Self {
        PagedColumn { file, pages, dictionary: Vec::new(), page: None, left: 0, skipped: Vec::new() }
    }

    /// Appends the next rows.
    pub(crate) fn read(&mut self, mut rows: usize, out: &mut Vec<T>) -> Result<(), BlockError> {
        while rows > 0 {
            if self.left == 0 {
                self.next_page()?;
            }
            let count = rows.min(self.left);
            let PagedColumn { file, page, dictionary, .. } = self;
            page.as_mut()
                .and_then(|page| page.read(dictionary, count, out))
                .ok_or_else(|| damaged_page(file))?;
            self.left -= count;
            rows -= count;
        }
        Ok(())
    }

    /// Skips rows. Pages that lie wholly in them are not decompressed.
    pub(crate) fn skip(&mut self, mut rows: usize) -> Result<(), BlockError> {
        while rows > 0 {
            if self.left == 0 && self.skip_page(&mut rows)? {
                continue;
            }
            let mut count = rows.min(self.left);
            if count == self.left {
                self.page = None;
                self.left = 0;
            } else {
                count = count.min(SKIPPED_ROWS);
                let mut skipped = std::mem::take(&mut self.skipped);
                skipped.clear();
                self.read(count, &mut skipped)?;
                self.skipped = skipped;
            }
            rows -= count;
        }
        Ok(())
    }

    /// Skips the next page if all its rows are skipped, or opens it. Returns whether it was skipped.
    fn skip_page(&mut self, rows: &mut usize) -> Result<bool, BlockError> {
        let PagedColumn { file, pages, .. } = self;
        let next =
            catch_parquet_panic(file, || pages.peek_next_page())?.ok_or_else(|| truncated_column(file))?;
        let count = next.num_rows.or(next.num_levels).unwrap_or_default();
        if !next.is_dict && (1..=*rows).contains(&count) {
            catch_parquet_panic(file, || pages.skip_next_page())?;
            *rows -= count;
            return Ok(true);
        }
        self.next_page()?;
        Ok(false)
    }

    /// Opens the next page with rows, and reads a dictionary before it.
    fn next_page(&mut self) -> Result<(), BlockError> {
        let PagedColumn { file, pages, .. } = self;
        self.page = None;
        loop {
            let page =
                catch_parquet_panic(file, || pages.get_next_page())?.ok_or_else(|| truncated_column(file))?;
            let rows = page.num_values() as usize;
            let encoding = page.encoding();
            let most = if page.is_data_page() { MAX_ROWS_PER_PAGE } else { MAX_ROWS_PER_GROUP };
            if rows > most {
                return Err(BlockError::corrupt(file, format!("page of {rows} values, the most are {most}")));
            }
            match page {
                Page::DictionaryPage { buf, .. } if buf.len() != rows * size_of::<T>() => {
                    return Err(damaged_page(file));
                }
                Page::DictionaryPage { buf, .. } => {
                    self.dictionary.clear();
                    T::read_plain(&buf, &mut self.dictionary).ok_or_else(|| damaged_page(file))?;
                }
                Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. }
                    if def_levels_byte_len + rep_levels_byte_len > 0 =>
                {
                    return Err(damaged_page(file));
                }
                Page::DataPage { buf, .. } | Page::DataPageV2 { buf, .. } => {
                    self.page =
                        Some(PageDecoder::open::<T>(buf, encoding, rows).ok_or_else(|| damaged_page(file))?);
                    self.left = rows;
                    if rows > 0 {
                        return Ok(());
                    }
                }
            }
        }
    }
}

impl PagedNumber for i32 {
    fn open_deltas(page: Bytes, rows: usize) -> Option<DeltaDecoder> {
        DeltaDecoder::open(page, rows)
    }

    fn read_deltas(decoder: &mut DeltaDecoder, rows: usize, out: &mut Vec<i32>) -> Option<()> {
        decoder.read(rows, out)
    }

    fn read_plain(bytes: &[u8], out: &mut Vec<i32>) -> Option<()> {
        let (numbers, rest) = bytes.as_chunks();
        out.extend(numbers.iter().map(|&number| i32::from_le_bytes(number)));
        rest.is_empty().then_some(())
    }
}

impl PagedNumber for i64 {
    fn open_deltas(_: Bytes, _: usize) -> Option<DeltaDecoder> {
        None
    }

    fn read_deltas(_: &mut DeltaDecoder, _: usize, _: &mut Vec<i64>) -> Option<()> {
        None
    }

    fn read_plain(bytes: &[u8], out: &mut Vec<i64>) -> Option<()> {
        let (numbers, rest) = bytes.as_chunks();
        out.extend(numbers.iter().map(|&number| i64::from_le_bytes(number)));
        rest.is_empty().then_some(())
    }
}

fn damaged_page(file: &str) -> BlockError {
    BlockError::corrupt(file, "a page is damaged or has an unsupported encoding")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::data_type::Int64Type;
    use parquet::file::properties::WriterProperties;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    /// Parquet's writer compares a dictionary with its limit of 1 MiB after each batch, so it may be larger.
    #[test]
    fn large_dictionaries_of_other_writers_are_read() {
        let repeated = 131_071i64;
        let values: Vec<i64> = (0..repeated).chain([0]).chain(repeated..repeated + 40_000).collect();
        let schema = parse_message_type("message values { required int64 value; }").unwrap();
        let batch = MAX_ROWS_PER_PAGE / 4;
        let properties = WriterProperties::builder()
            .set_data_page_row_count_limit(MAX_ROWS_PER_PAGE)
            .set_write_batch_size(batch)
            .build();
        let mut writer =
            SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties)).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        let file = SerializedFileReader::new(Bytes::from(writer.into_inner().unwrap())).unwrap();
        let open = || {
            PagedColumn::<i64>::new(
                "values",
                file.get_row_group(0).unwrap().get_column_page_reader(0).unwrap(),
            )
        };
        let mut read = Vec::new();
        let mut column = open();
        column.read(values.len(), &mut read).unwrap();
        assert!(column.dictionary.len() > 131_072, "{} values", column.dictionary.len());
        assert_eq!(read, values);
        let mut column = open();
        read.clear();
        column.skip(100_000).unwrap();
        column.read(values.len() - 100_000, &mut read).unwrap();
        assert_eq!(read, values[100_000..]);
        assert!(column.read(1, &mut read).is_err() && open().skip(values.len() + 1).is_err());
    }
}
