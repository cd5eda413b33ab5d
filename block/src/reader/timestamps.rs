//! Timestamp column: sample times of each row, a list of ascending Unix nanoseconds.
//!
//! A block has the column only if some row has timestamps. It is the last column, and no sum reads it. Its
//! readers read a few rows at a time, because a row may have many timestamps.

use std::ops::Range;

use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::Int64Type;

use crate::format::columns::TableReader;
use crate::format::error::BlockError;
use crate::format::meta::{IdRange, SAMPLES_FILE};
use crate::format::parquet_reads::catch_parquet_panic;
use crate::format::sample_rows::SpanContextColumns;
use crate::reader::read::{Block, TenantBlock, local_id};
use crate::reader::scan::{SampleBatch, SampleReaders, scan};

/// Upper bound of timestamps per row group, except those of its last row. A writer buffers that many.
pub(crate) const MAX_TIMESTAMPS_PER_GROUP: usize = 1 << 20;

/// Rows per read.
const READ_BATCH_ROWS: usize = 256;

/// Definition level of a present value.
const PRESENT_LEVEL: i16 = 2;

/// Timestamps on their way into a row group, with their levels.
#[derive(Default)]
pub(crate) struct TimestampColumn {
    pub(crate) times: Vec<i64>,
    pub(crate) repetition: Vec<i16>,
    pub(crate) definition: Vec<i16>,
}

impl TimestampColumn {
    /// Adds the timestamps of one row.
    pub(crate) fn push(&mut self, times: &[i64]) {
        let levels = times.len().max(1);
        self.times.extend_from_slice(times);
        self.definition
            .resize(self.definition.len() + levels, if times.is_empty() { 0 } else { PRESENT_LEVEL });
        self.repetition.push(0);
        self.repetition.resize(self.repetition.len() + levels - 1, 1);
    }
    pub(crate) fn clear(&mut self) {
        self.times.clear();
        self.repetition.clear();
        self.definition.clear();
    }
}

/// Reader of the timestamps of one row group.
pub(crate) struct TimestampReader {
    reader: ColumnReaderImpl<Int64Type>,
    read: TimestampColumn,
}

impl TimestampReader {
    /// Opens the column. Returns none if the block has no such column.
    pub(crate) fn open(table: &TableReader, group: usize) -> Result<Option<Self>, BlockError> {
        let Some(column) = table.columns().timestamps_index() else { return Ok(None) };
        let reader = get_typed_column_reader(table.column_reader(group, column)?);
        Ok(Some(TimestampReader { reader, read: TimestampColumn::default() }))
    }

    /// Skips the next rows.
    pub(crate) fn skip(&mut self, rows: usize) -> Result<(), BlockError> {
        let reader = &mut self.reader;
        if rows > 0 && catch_parquet_panic(SAMPLES_FILE, || reader.skip_records(rows))? != rows {
            return Err(truncated_column());
        }
        Ok(())
    }

    /// Visits the timestamps of the next rows in order.
    pub(crate) fn read(
        &mut self,
        rows: usize,
        mut each: impl FnMut(&[i64]) -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let TimestampReader { reader, read } = self;
        let mut left = rows;
        while left > 0 {
            read.clear();
            let TimestampColumn { times, repetition, definition } = &mut *read;
            let (records, _, _) = catch_parquet_panic(SAMPLES_FILE, || {
                reader.read_records(left.min(READ_BATCH_ROWS), Some(definition), Some(repetition), times)
            })?;
            if records == 0 {
                return Err(truncated_column());
            }
            let mut rest = times.as_slice();
            let mut seen = 0;
            let begins = |at: &usize| repetition.get(*at).is_none_or(|&level| level == 0);
            let mut at = 0;
            while at < definition.len() {
                let end = (at + 1..definition.len()).find(begins).unwrap_or(definition.len());
                let count = definition[at..end].iter().filter(|&&level| level == PRESENT_LEVEL).count();
                let (of_row, later) = rest.split_at_checked(count).ok_or_else(truncated_column)?;
                each(of_row)?;
                (rest, at, seen) = (later, end, seen + 1);
            }
            if seen != records || records > left || !rest.is_empty() {
                return Err(truncated_column());
            }
            left -= records;
        }
        Ok(())
    }
}

fn truncated_column() -> BlockError {
    BlockError::corrupt(SAMPLES_FILE, "timestamps end before the end of their row group")
}

impl Block {
    /// Returns the compressed bytes of the timestamp column, none if the block has none.
    pub fn timestamp_bytes(&self) -> Result<Option<u64>, BlockError> {
        let table = self.open_table(SAMPLES_FILE)?;
        let Some(column) = table.columns().timestamps_index() else { return Ok(None) };
        let groups = table.metadata.row_groups().iter();
        let bytes = groups.map(|group| group.column(column).compressed_size().max(0) as u64);
        Ok(Some(bytes.fold(0, u64::saturating_add)))
    }
}

impl TenantBlock<'_> {
    /// Visits the timestamps of the rows in `ranges` that have some, with their stacks as indexes in the
    /// part. Ranges are relative to the part, ascending, and do not overlap.
    pub fn read_timestamps(
        &self,
        ranges: &[Range<u64>],
        mut each: impl FnMut(u32, &[i64]),
    ) -> Result<(), BlockError> {
        let table = self.samples_table()?;
        let run = IdRange(self.meta.nodes.0, self.meta.stacks);
        let mut stacks = Vec::new();
        let mut batch = SampleBatch::default();
        for (group, ranges) in self.plan_scan(&table, ranges)? {
            let Some(mut moments) = TimestampReader::open(&table, group)? else { return Ok(()) };
            let mut columns = SampleReaders::open(&table, group, SpanContextColumns::default())?;
            let mut at = 0;
            for range in ranges {
                self.check_cancelled()?;
                moments.skip(range.start - at)?;
                scan(self, &mut columns, std::slice::from_ref(&range), &mut batch, |batch| {
                    stacks.clear();
                    for &stack in &batch.stacks {
                        stacks.push(local_id(SAMPLES_FILE, stack, run)?);
                    }
                    let mut of_rows = stacks.iter();
                    moments.read(stacks.len(), |times| {
                        if let Some(&stack) = of_rows.next().filter(|_| !times.is_empty()) {
                            each(stack, times);
                        }
                        Ok(())
                    })
                })?;
                at = range.end;
            }
        }
        Ok(())
    }

    /// Reads all timestamps and checks that they ascend in each row.
    pub(crate) fn check_timestamps(&self) -> Result<(), BlockError> {
        let table = self.samples_table()?;
        for group in self.row_groups(SAMPLES_FILE).range() {
            self.check_cancelled()?;
            let Some(mut moments) = TimestampReader::open(&table, group)? else { return Ok(()) };
            moments.read(table.rows(group)?, |times| match times.is_sorted() {
                true => Ok(()),
                false => Err(BlockError::corrupt(SAMPLES_FILE, "timestamps of a row are not ascending")),
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_without_moments_have_one_level() {
        let mut column = TimestampColumn::default();
        [&[3, 5][..], &[], &[7]].into_iter().for_each(|times| column.push(times));
        assert_eq!(column.times, [3, 5, 7]);
        assert_eq!(column.repetition, [0, 1, 0, 0]);
        assert_eq!(column.definition, [2, 2, 0, 2]);
        column.clear();
        assert!(column.repetition.is_empty() && column.definition.is_empty());
    }
}
