//! The column of moments: when each row's samples were taken, a list of Unix nanoseconds, ascending.
//!
//! A block has it only where some row says some. It is the last column, no sum reads it, and whoever does reads a few
//! rows at a time: a row may say many.

use std::ops::Range;

use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::Int64Type;

use crate::columns::{TableReader, guarded};
use crate::error::BlockError;
use crate::meta::{Run, SAMPLES};
use crate::read::{Block, Part, within};
use crate::request::RequestColumns;
use crate::scan::{Batch, Columns, scan};

/// Moments of one row group of a block at most, but for those of its last row: what a writer holds at a time.
pub(crate) const GROUP_MOMENTS: usize = 1 << 20;

/// Rows read at a time.
const ROWS: usize = 256;

/// A row says some: the level of the values that are there.
const PRESENT: i16 = 2;

/// Moments on their way into a row group, with their levels.
#[derive(Default)]
pub(crate) struct MomentColumn {
    pub(crate) times: Vec<i64>,
    pub(crate) repetition: Vec<i16>,
    pub(crate) definition: Vec<i16>,
}

impl MomentColumn {
    /// Adds a row.
    pub(crate) fn push(&mut self, times: &[i64]) {
        let levels = times.len().max(1);
        self.times.extend_from_slice(times);
        self.definition.resize(self.definition.len() + levels, if times.is_empty() { 0 } else { PRESENT });
        self.repetition.push(0);
        self.repetition.resize(self.repetition.len() + levels - 1, 1);
    }
    pub(crate) fn clear(&mut self) {
        self.times.clear();
        self.repetition.clear();
        self.definition.clear();
    }
}

/// Reads the moments of one row group.
pub(crate) struct MomentReader {
    reader: ColumnReaderImpl<Int64Type>,
    read: MomentColumn,
}

impl MomentReader {
    /// None where the block has no such column.
    pub(crate) fn open(table: &TableReader, group: usize) -> Result<Option<Self>, BlockError> {
        let Some(column) = table.columns().moments_at() else { return Ok(None) };
        let reader = get_typed_column_reader(table.reader(group, column)?);
        Ok(Some(MomentReader { reader, read: MomentColumn::default() }))
    }

    /// Passes rows over.
    pub(crate) fn skip(&mut self, rows: usize) -> Result<(), BlockError> {
        let reader = &mut self.reader;
        if rows > 0 && guarded(SAMPLES, || reader.skip_records(rows))? != rows {
            return Err(ends_early());
        }
        Ok(())
    }

    /// Hands out the moments of the next rows, one after the other.
    pub(crate) fn read(
        &mut self,
        rows: usize,
        mut each: impl FnMut(&[i64]) -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let MomentReader { reader, read } = self;
        let mut left = rows;
        while left > 0 {
            read.clear();
            let MomentColumn { times, repetition, definition } = &mut *read;
            let (records, _, _) = guarded(SAMPLES, || {
                reader.read_records(left.min(ROWS), Some(definition), Some(repetition), times)
            })?;
            if records == 0 {
                return Err(ends_early());
            }
            let mut rest = times.as_slice();
            let mut seen = 0;
            let begins = |at: &usize| repetition.get(*at).is_none_or(|&level| level == 0);
            let mut at = 0;
            while at < definition.len() {
                let end = (at + 1..definition.len()).find(begins).unwrap_or(definition.len());
                let count = definition[at..end].iter().filter(|&&level| level == PRESENT).count();
                let (of_row, later) = rest.split_at_checked(count).ok_or_else(ends_early)?;
                each(of_row)?;
                (rest, at, seen) = (later, end, seen + 1);
            }
            if seen != records || records > left || !rest.is_empty() {
                return Err(ends_early());
            }
            left -= records;
        }
        Ok(())
    }
}

fn ends_early() -> BlockError {
    BlockError::corrupt(SAMPLES, "the timestamps end before their row group does")
}

impl Block {
    /// Bytes of the timestamps of samples; none where there are none.
    pub fn timestamp_bytes(&self) -> Result<Option<u64>, BlockError> {
        let table = self.table(SAMPLES)?;
        let Some(column) = table.columns().moments_at() else { return Ok(None) };
        let groups = table.metadata.row_groups().iter();
        let bytes = groups.map(|group| group.column(column).compressed_size().max(0) as u64);
        Ok(Some(bytes.fold(0, u64::saturating_add)))
    }
}

impl Part<'_> {
    /// Hands out the moments of those rows in `ranges` that say some, with their stacks, as places in the part. Ranges
    /// are counted within the part, ascending, and do not overlap.
    pub fn moments(
        &self,
        ranges: &[Range<u64>],
        mut each: impl FnMut(u32, &[i64]),
    ) -> Result<(), BlockError> {
        let table = self.samples()?;
        let run = Run(self.meta.nodes.0, self.meta.stacks);
        let (mut stacks, mut batch) = (Vec::new(), Batch::default());
        for (group, ranges) in self.jobs(&table, ranges)? {
            let Some(mut moments) = MomentReader::open(&table, group)? else { return Ok(()) };
            let mut columns = Columns::open(&table, group, RequestColumns::default())?;
            let mut at = 0;
            for range in ranges {
                self.go_on()?;
                moments.skip(range.start - at)?;
                scan(self, (&mut columns, std::slice::from_ref(&range)), &mut batch, |batch| {
                    stacks.clear();
                    for &stack in &batch.stacks {
                        stacks.push(within(SAMPLES, stack, run)?);
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

    /// Reads all moments: each row's are ascending.
    pub(crate) fn check_moments(&self) -> Result<(), BlockError> {
        let table = self.samples()?;
        for group in self.groups(SAMPLES).range() {
            self.go_on()?;
            let Some(mut moments) = MomentReader::open(&table, group)? else { return Ok(()) };
            moments.read(table.rows(group)?, |times| match times.is_sorted() {
                true => Ok(()),
                false => Err(BlockError::corrupt(SAMPLES, "the timestamps of a row are not in their order")),
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
        let mut column = MomentColumn::default();
        [&[3, 5][..], &[], &[7]].into_iter().for_each(|times| column.push(times));
        assert_eq!(column.times, [3, 5, 7]);
        assert_eq!(column.repetition, [0, 1, 0, 0]);
        assert_eq!(column.definition, [2, 2, 0, 2]);
        column.clear();
        assert!(column.repetition.is_empty() && column.definition.is_empty());
    }
}
