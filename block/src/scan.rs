//! Adding up sample rows by stack: the inner loop of every query.
//!
//! Stacks are dense, so a total is an array. Row groups are independent: each is a job of the compute pool.

use std::ops::Range;

use athanor_chassis::compute::{Compute, ComputeError};
use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{DataType, Int32Type, Int64Type};

use crate::columns::{TableReader, guarded};
use crate::error::BlockError;
use crate::meta::{Run, SAMPLES};
use crate::read::Part;

/// Rows decoded at a time: their columns stay in the processor's cache.
const BATCH: usize = 16 * 1024;

impl Part<'_> {
    /// Totals by stack of the rows in `ranges` (counted within the part; ascending, not overlapping).
    pub fn totals(&self, ranges: &[Range<u64>], compute: &Compute) -> Result<Vec<i64>, BlockError> {
        let table = self.samples()?;
        let mut jobs: Vec<(usize, Vec<Range<usize>>)> = Vec::new();
        let mut first = 0u64;
        for group in self.groups(SAMPLES).range() {
            let end = first + table.rows(group)? as u64;
            let within = ranges.iter().filter(|range| range.start < end && range.end > first);
            let cut: Vec<Range<usize>> = within
                .map(|range| (range.start.max(first) - first) as usize..(range.end.min(end) - first) as usize)
                .collect();
            if !cut.is_empty() {
                jobs.push((group, cut));
            }
            first = end;
        }
        let lanes = compute.width().min(jobs.len()).max(1);
        let mut of_lane: Vec<Vec<(usize, Vec<Range<usize>>)>> = vec![Vec::new(); lanes];
        jobs.into_iter().enumerate().for_each(|(at, job)| of_lane[at % lanes].push(job));
        let stacks = Run(self.meta.nodes.0, self.meta.stacks);
        let sums = compute.map(of_lane, |jobs| -> Result<Vec<i64>, BlockError> {
            let mut totals = vec![0i64; stacks.1 as usize];
            let mut scan = Scan::default();
            for (group, ranges) in jobs {
                scan.group(&table, group, &ranges, |rows, values| add(&mut totals, stacks, rows, values))?;
            }
            Ok(totals)
        });
        let mut sums = sums.map_err(worker_failed)?.into_iter();
        let mut totals = sums.next().unwrap_or_else(|| Ok(vec![0; stacks.1 as usize]))?;
        for sum in sums {
            totals.iter_mut().zip(sum?).for_each(|(total, value)| *total = total.wrapping_add(value));
        }
        Ok(totals)
    }

    /// Totals by stack over the whole part, from the roll-up: no sample is read.
    pub fn whole_totals(&self, mut wanted: impl FnMut(u32) -> bool) -> Result<Vec<i64>, BlockError> {
        let rollup = self.rollup()?;
        let mut totals = vec![0i64; self.meta.stacks as usize];
        for ((&series, &stack), &value) in rollup.series.iter().zip(&rollup.stack).zip(&rollup.value) {
            if wanted(series) {
                let total = &mut totals[stack as usize];
                *total = total.wrapping_add(value);
            }
        }
        Ok(totals)
    }
}

fn worker_failed(error: ComputeError) -> BlockError {
    BlockError::Io { file: SAMPLES.into(), source: std::io::Error::other(error) }
}

fn add(totals: &mut [i64], stacks: Run, rows: &[i32], values: &[i64]) -> Result<(), BlockError> {
    for (&stack, &value) in rows.iter().zip(values) {
        match totals.get_mut((stack as u32).wrapping_sub(stacks.0) as usize) {
            Some(total) => *total = total.wrapping_add(value),
            None => {
                return Err(BlockError::corrupt(
                    SAMPLES,
                    format!("it names stack {stack}, which is not there"),
                ));
            }
        }
    }
    Ok(())
}

/// Two columns read side by side, with buffers that are used again.
#[derive(Default)]
struct Scan {
    stacks: Vec<i32>,
    values: Vec<i64>,
}

impl Scan {
    fn group(
        &mut self,
        table: &TableReader,
        group: usize,
        ranges: &[Range<usize>],
        mut each: impl FnMut(&[i32], &[i64]) -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let mut columns = Columns::open(table, group)?;
        let mut at = 0;
        for range in ranges {
            columns.skip(range.start - at)?;
            at = range.start;
            while at < range.end {
                let count = columns.read(BATCH.min(range.end - at), &mut self.stacks, &mut self.values)?;
                each(&self.stacks, &self.values)?;
                at += count;
            }
        }
        Ok(())
    }
}

/// The stack and value columns of one row group.
pub(crate) struct Columns {
    stacks: ColumnReaderImpl<Int32Type>,
    values: ColumnReaderImpl<Int64Type>,
}

impl Columns {
    pub(crate) fn open(table: &TableReader, group: usize) -> Result<Self, BlockError> {
        let stacks = get_typed_column_reader::<Int32Type>(table.reader(group, 1)?);
        let values = get_typed_column_reader::<Int64Type>(table.reader(group, 2)?);
        Ok(Columns { stacks, values })
    }
    fn skip(&mut self, rows: usize) -> Result<(), BlockError> {
        if rows == 0 {
            return Ok(());
        }
        let skipped =
            guarded(SAMPLES, || Ok((self.stacks.skip_records(rows)?, self.values.skip_records(rows)?)))?;
        if skipped == (rows, rows) { Ok(()) } else { Err(ends_early()) }
    }
    /// Reads exactly `rows` rows.
    pub(crate) fn read(
        &mut self,
        rows: usize,
        stacks: &mut Vec<i32>,
        values: &mut Vec<i64>,
    ) -> Result<usize, BlockError> {
        stacks.clear();
        values.clear();
        fill(&mut self.stacks, rows, stacks)?;
        fill(&mut self.values, rows, values)?;
        Ok(rows)
    }
}

fn fill<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    out: &mut Vec<T::T>,
) -> Result<(), BlockError> {
    while out.len() < rows {
        let missing = rows - out.len();
        let (records, _, _) = guarded(SAMPLES, || reader.read_records(missing, None, None, out))?;
        if records == 0 {
            return Err(ends_early());
        }
    }
    Ok(())
}

fn ends_early() -> BlockError {
    BlockError::corrupt(SAMPLES, "a column ends before its row group does")
}
