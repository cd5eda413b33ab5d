//! Location of rows in a file: pages that a query for few rows reads, and pages that it skips.
//!
//! The pages of samples and of the roll-up are indexed next to the footer, those of the roll-up with their
//! series. A file without such an index is read by whole row groups.

use std::ops::Range;

use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::DataType;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::PageLocation;

use crate::format::columns::TableReader;
use crate::format::error::BlockError;
use crate::format::parquet_reads::catch_parquet_panic;

impl TableReader {
    /// Returns the pages of a column, if they are indexed.
    fn page_locations(&self, group: usize, column: usize) -> Option<&[PageLocation]> {
        let index = self.metadata.page_index()?;
        Some(index.offset_index(group, column)?.page_locations().as_slice())
    }

    /// Returns the byte ranges of some rows of a column: whole pages and the dictionary.
    pub(crate) fn bytes_of_rows(
        &self,
        group: usize,
        column: usize,
        rows: &[Range<usize>],
    ) -> Result<Vec<Range<u64>>, BlockError> {
        let all = self.rows(group)?;
        let chunk = self.metadata.row_group(group).column(column);
        let (start, length) = catch_parquet_panic(self.file, || Ok(chunk.byte_range()))?;
        let whole = start..start.saturating_add(length);
        let Some(pages) = self.page_locations(group, column) else { return Ok(vec![whole]) };
        let offset = |page: &PageLocation| u64::try_from(page.offset).unwrap_or(u64::MAX);
        let mut bytes = Vec::new();
        // The bytes before the first page are the dictionary.
        match pages.first().map(offset) {
            Some(first) if first > start && first <= whole.end => bytes.push(start..first),
            _ => {}
        }
        for (page, of_page) in pages.iter().zip(page_row_ranges(pages, all)) {
            if rows.iter().any(|rows| rows.start < of_page.end && of_page.start < rows.end) {
                let from = offset(page);
                let size = u64::try_from(page.compressed_page_size).unwrap_or(0);
                bytes.push(from..from.saturating_add(size));
            }
        }
        Ok(bytes)
    }

    /// Returns the rows of the pages of an `i32` column that may hold a wanted value. If the pages have no
    /// statistics, all rows are returned.
    pub(crate) fn rows_of_matching_pages(
        &self,
        group: usize,
        column: usize,
        wanted: impl Fn(i32, i32) -> bool,
    ) -> Result<Vec<Range<usize>>, BlockError> {
        let all = self.rows(group)?;
        let said = || {
            let pages = self.page_locations(group, column)?;
            match self.metadata.page_index()?.column_index(group, column)? {
                ColumnIndexMetaData::INT32(values) if values.num_pages() == pages.len() as u64 => {
                    Some((pages, values))
                }
                _ => None,
            }
        };
        let Some((pages, values)) = said() else { return Ok(std::iter::once(0..all).collect()) };
        let mut rows: Vec<Range<usize>> = Vec::new();
        for (page, of_page) in page_row_ranges(pages, all).enumerate() {
            let least = values.min_value(page);
            let most = values.max_value(page);
            if least.zip(most).is_some_and(|(&least, &most)| !wanted(least, most)) {
                continue;
            }
            match rows.last_mut() {
                Some(last) if last.end == of_page.start => last.end = of_page.end,
                _ => rows.push(of_page),
            }
        }
        Ok(rows)
    }

    /// Reads some rows of a column without levels.
    pub(crate) fn read_column_rows<T: DataType>(
        &self,
        group: usize,
        column: usize,
        rows: &[Range<usize>],
    ) -> Result<Vec<T::T>, BlockError> {
        let mut reader = get_typed_column_reader::<T>(self.column_reader(group, column)?);
        let early = || BlockError::corrupt(self.file, format!("column {column} ends early"));
        let mut values = Vec::new();
        let mut at = 0;
        for rows in rows {
            let skip = rows.start.checked_sub(at).ok_or_else(early)?;
            if skip > 0 && catch_parquet_panic(self.file, || reader.skip_records(skip))? != skip {
                return Err(early());
            }
            let wanted = values.len() + (rows.end - rows.start);
            while values.len() < wanted {
                let left = wanted - values.len();
                let (records, _, _) =
                    catch_parquet_panic(self.file, || reader.read_records(left, None, None, &mut values))?;
                if records == 0 {
                    return Err(early());
                }
            }
            at = rows.end;
        }
        Ok(values)
    }
}

/// Returns the rows of each page, up to the first row of the next one.
fn page_row_ranges(pages: &[PageLocation], all: usize) -> impl Iterator<Item = Range<usize>> {
    let first = move |page: &PageLocation| usize::try_from(page.first_row_index).unwrap_or(all).min(all);
    let next = pages.iter().skip(1).map(first).chain([all]);
    pages.iter().map(first).zip(next).map(|(from, to)| from..to.max(from))
}
