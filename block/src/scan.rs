//! Adding up sample rows by stack: the inner loop of every query.
//!
//! Stacks are dense, so a total is an array. The threads of the compute pool take equal
//! shares of the rows.

use std::ops::Range;

use athanor_chassis::compute::{Compute, ComputeError};
use athanor_profile::Request;
use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{DataType, FixedLenByteArray, FixedLenByteArrayType, Int32Type, Int64Type};

use crate::columns::{TableReader, guarded};
use crate::error::BlockError;
use crate::meta::{ROLLUP, Run, SAMPLES};
use crate::read::{Part, within};
use crate::request::RequestColumns;

/// Rows decoded at a time: their columns stay in the processor's cache.
const BATCH: usize = 16 * 1024;

/// Rows that are worth a thread of their own.
const SHARE: u64 = 64 * 1024;

/// A row group and ranges of its rows.
pub(crate) type Job = (usize, Vec<Range<usize>>);

impl Part<'_> {
    /// Totals by stack of the rows in `ranges` (counted within the part; ascending, not overlapping).
    pub fn totals(&self, ranges: &[Range<u64>], compute: &Compute) -> Result<Vec<i64>, BlockError> {
        let stacks = Run(self.meta.nodes.0, self.meta.stacks);
        self.scan(ranges, RequestColumns::default(), compute, |totals, batch| {
            batch
                .stacks
                .iter()
                .zip(&batch.values)
                .try_for_each(|(&stack, &value)| add(totals, stacks, stack, value))
        })
    }

    /// As [`totals`](Self::totals), of the rows whose request is `wanted`.
    pub fn totals_of_requests(
        &self,
        ranges: &[Range<u64>],
        compute: &Compute,
        wanted: impl Fn(Request) -> bool + Sync,
    ) -> Result<Vec<i64>, BlockError> {
        let stacks = Run(self.meta.nodes.0, self.meta.stacks);
        let columns = self.request_columns()?;
        self.scan(ranges, columns, compute, |totals, batch| {
            for (row, (&stack, &value)) in batch.stacks.iter().zip(&batch.values).enumerate() {
                if wanted(batch.requests.get(row).copied().unwrap_or_default()) {
                    add(totals, stacks, stack, value)?;
                }
            }
            Ok(())
        })
    }

    /// Which columns say to which requests rows belong.
    pub(crate) fn request_columns(&self) -> Result<RequestColumns, BlockError> {
        Ok(self.samples()?.requests())
    }

    fn scan(
        &self,
        ranges: &[Range<u64>],
        columns: RequestColumns,
        compute: &Compute,
        each: impl Fn(&mut [i64], &Batch) -> Result<(), BlockError> + Sync,
    ) -> Result<Vec<i64>, BlockError> {
        let table = self.samples()?;
        let shares = shares(ranges, compute.width() as u64);
        let of_lane: Vec<Vec<Job>> =
            shares.iter().map(|share| self.jobs(&table, share)).collect::<Result<_, _>>()?;
        let stacks = self.meta.stacks as usize;
        let sums = compute.map(of_lane, |jobs| -> Result<Vec<i64>, BlockError> {
            let mut totals = vec![0i64; stacks];
            for (group, ranges) in jobs {
                let mut columns = Columns::open(&table, group, columns)?;
                scan(self, &mut columns, &ranges, |batch| each(&mut totals, batch))?;
            }
            Ok(totals)
        });
        let mut sums = sums.map_err(|error| worker_failed(error.or_panic()))?.into_iter();
        let mut totals = sums.next().unwrap_or_else(|| Ok(vec![0; stacks]))?;
        for sum in sums {
            totals.iter_mut().zip(sum?).for_each(|(total, value)| *total = total.wrapping_add(value));
        }
        Ok(totals)
    }

    /// Row groups that hold some of the rows in `ranges`, and which of their rows.
    pub(crate) fn jobs(&self, table: &TableReader, ranges: &[Range<u64>]) -> Result<Vec<Job>, BlockError> {
        let mut jobs = Vec::new();
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
        Ok(jobs)
    }

    /// Hands out the rows in `ranges`, in their order: stacks as places in the part, their values and, where
    /// `columns` has some, their requests.
    pub(crate) fn each_row(
        &self,
        ranges: &[Range<u64>],
        columns: RequestColumns,
        mut each: impl FnMut(&[u32], &[i64], &[Request]),
    ) -> Result<(), BlockError> {
        let table = self.samples()?;
        let run = Run(self.meta.nodes.0, self.meta.stacks);
        let mut stacks = Vec::with_capacity(BATCH);
        for (group, ranges) in self.jobs(&table, ranges)? {
            let mut columns = Columns::open(&table, group, columns)?;
            scan(self, &mut columns, &ranges, |batch| {
                stacks.clear();
                for &stack in &batch.stacks {
                    stacks.push(within(SAMPLES, stack, run)?);
                }
                each(&stacks, &batch.values, &batch.requests);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Totals by stack over the whole part, from the roll-up: no sample is read.
    pub fn whole_totals(&self, wanted: impl Fn(u32) -> bool) -> Result<Vec<i64>, BlockError> {
        let mut totals = vec![0i64; self.meta.stacks as usize];
        let stacks = Run(self.meta.nodes.0, self.meta.stacks);
        let table = self.block.table(ROLLUP)?;
        for (group, rows) in self.rollup_rows(&wanted)? {
            self.go_on()?;
            let series = table.column_rows::<Int32Type>(group, 0, &rows)?;
            let of_stacks = table.column_rows::<Int32Type>(group, 1, &rows)?;
            let values = table.column_rows::<Int64Type>(group, 2, &rows)?;
            for ((series, stack), value) in series.into_iter().zip(of_stacks).zip(values) {
                if wanted(within(ROLLUP, series, self.meta.series)?) {
                    let total = &mut totals[within(ROLLUP, stack, stacks)? as usize];
                    *total = total.wrapping_add(value);
                }
            }
        }
        Ok(totals)
    }

    /// Row groups of the roll-up, and which of their rows may be of the series that are wanted.
    pub(crate) fn rollup_rows(&self, wanted: impl Fn(u32) -> bool) -> Result<Vec<Job>, BlockError> {
        let table = self.block.table(ROLLUP)?;
        let Run(first, count) = self.meta.series;
        let place = |id: i32| u32::try_from(id).unwrap_or(0).saturating_sub(first);
        let any = |least: i32, most: i32| (place(least)..=place(most).min(count.max(1) - 1)).any(&wanted);
        let rows_of = |group| Ok((group, table.rows_with(group, 0, any)?));
        let jobs = self.groups(ROLLUP).range().map(rows_of);
        jobs.filter(|job: &Result<Job, BlockError>| !matches!(job, Ok((_, rows)) if rows.is_empty()))
            .collect()
    }
}

/// Ranges cut into shares of equally many rows, one for each lane that has enough to do.
fn shares(ranges: &[Range<u64>], lanes: u64) -> Vec<Vec<Range<u64>>> {
    let rows: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let share = rows.div_ceil(lanes.max(1)).max(SHARE);
    let mut shares = vec![Vec::new()];
    let mut room = share;
    for range in ranges {
        let mut range = range.clone();
        while !range.is_empty() {
            if room == 0 {
                shares.push(Vec::new());
                room = share;
            }
            let end = range.end.min(range.start.saturating_add(room));
            room -= end - range.start;
            if let Some(last) = shares.last_mut() {
                last.push(range.start..end);
            }
            range.start = end;
        }
    }
    shares
}

fn worker_failed(error: ComputeError) -> BlockError {
    BlockError::Io { file: SAMPLES.into(), source: std::io::Error::other(error) }
}

#[inline(always)]
fn add(totals: &mut [i64], stacks: Run, stack: i32, value: i64) -> Result<(), BlockError> {
    match totals.get_mut((stack as u32).wrapping_sub(stacks.0) as usize) {
        Some(total) => {
            *total = total.wrapping_add(value);
            Ok(())
        }
        None => Err(unknown_stack(stack)),
    }
}

#[cold]
pub(crate) fn unknown_stack(stack: i32) -> BlockError {
    BlockError::corrupt(SAMPLES, format!("it names stack {stack}, which is not there"))
}

/// Columns read side by side, with buffers that are used again.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) stacks: Vec<i32>,
    pub(crate) values: Vec<i64>,
    /// One for each row, or none at all where the columns are not there or not asked for.
    pub(crate) requests: Vec<Request>,
    spans: Vec<i64>,
    traces: Vec<FixedLenByteArray>,
    levels: Vec<i16>,
}

/// Hands out the rows of `ranges` in one row group.
fn scan(
    part: &Part<'_>,
    columns: &mut Columns,
    ranges: &[Range<usize>],
    mut each: impl FnMut(&Batch) -> Result<(), BlockError>,
) -> Result<(), BlockError> {
    let mut batch = Batch::default();
    let mut at = 0;
    for range in ranges {
        columns.skip(range.start - at)?;
        at = range.start;
        while at < range.end {
            part.go_on()?;
            let count = BATCH.min(range.end - at);
            columns.read(count, &mut batch)?;
            each(&batch)?;
            at += count;
        }
    }
    Ok(())
}

/// The columns of one row group, profiles left out.
pub(crate) struct Columns {
    stacks: ColumnReaderImpl<Int32Type>,
    values: ColumnReaderImpl<Int64Type>,
    spans: Option<ColumnReaderImpl<Int64Type>>,
    traces: Option<ColumnReaderImpl<FixedLenByteArrayType>>,
}

impl Columns {
    /// Opens them; `requests` says which of the optional ones.
    pub(crate) fn open(
        table: &TableReader,
        group: usize,
        requests: RequestColumns,
    ) -> Result<Self, BlockError> {
        let traces = if requests.span { 4 } else { 3 };
        Ok(Columns {
            stacks: get_typed_column_reader(table.reader(group, 1)?),
            values: get_typed_column_reader(table.reader(group, 2)?),
            spans: match requests.span {
                true => Some(get_typed_column_reader(table.reader(group, 3)?)),
                false => None,
            },
            traces: match requests.trace {
                true => Some(get_typed_column_reader(table.reader(group, traces)?)),
                false => None,
            },
        })
    }
    fn skip(&mut self, rows: usize) -> Result<(), BlockError> {
        fn skip<T: DataType>(reader: &mut ColumnReaderImpl<T>, rows: usize) -> Result<(), BlockError> {
            let skipped = guarded(SAMPLES, || reader.skip_records(rows))?;
            if skipped == rows { Ok(()) } else { Err(ends_early()) }
        }
        if rows == 0 {
            return Ok(());
        }
        skip(&mut self.stacks, rows)?;
        skip(&mut self.values, rows)?;
        self.spans.as_mut().map_or(Ok(()), |spans| skip(spans, rows))?;
        self.traces.as_mut().map_or(Ok(()), |traces| skip(traces, rows))
    }
    /// Reads exactly `rows` rows.
    pub(crate) fn read(&mut self, rows: usize, batch: &mut Batch) -> Result<(), BlockError> {
        let Batch { stacks, values, requests, spans, traces, levels } = batch;
        stacks.clear();
        values.clear();
        requests.clear();
        fill(&mut self.stacks, rows, stacks)?;
        fill(&mut self.values, rows, values)?;
        if self.spans.is_some() || self.traces.is_some() {
            requests.resize(rows, Request::default());
        }
        if let Some(reader) = &mut self.spans {
            spans.clear();
            fill_optional(reader, rows, spans, levels)?;
            let present = requests.iter_mut().zip(&*levels).filter(|(_, level)| **level == 1);
            present.zip(&*spans).for_each(|((request, _), &span)| request.span = span as u64);
        }
        if let Some(reader) = &mut self.traces {
            traces.clear();
            fill_optional(reader, rows, traces, levels)?;
            let present = requests.iter_mut().zip(&*levels).filter(|(_, level)| **level == 1);
            for ((request, _), trace) in present.zip(&*traces) {
                let bytes: [u8; 16] =
                    trace.data().try_into().map_err(|_| BlockError::corrupt(SAMPLES, "a short trace id"))?;
                request.trace = u128::from_be_bytes(bytes);
            }
        }
        Ok(())
    }
}

/// Reads exactly `rows` rows; `levels` says of each whether it has a value.
fn fill_optional<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    out: &mut Vec<T::T>,
    levels: &mut Vec<i16>,
) -> Result<(), BlockError> {
    levels.clear();
    while levels.len() < rows {
        let left = rows - levels.len();
        let (records, _, _) = guarded(SAMPLES, || reader.read_records(left, Some(levels), None, out))?;
        if records == 0 {
            return Err(ends_early());
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_are_all_rows_in_order_and_nearly_equal(
            lengths in prop::collection::vec((0u64..3, 0u64..200_000), 0..20),
            lanes in 1u64..9,
        ) {
            let mut at = 0;
            let ranges: Vec<Range<u64>> = lengths
                .iter()
                .map(|(gap, length)| {
                    at += gap + length;
                    at - length..at
                })
                .collect();
            let shares = shares(&ranges, lanes);
            let rows = |ranges: &[Range<u64>]| ranges.iter().map(|range| range.end - range.start).sum::<u64>();
            prop_assert!(shares.len() as u64 <= lanes);
            let most = rows(&ranges).div_ceil(lanes).max(SHARE);
            prop_assert!(shares[..shares.len() - 1].iter().all(|share| rows(share) == most));
            let mut joined: Vec<Range<u64>> = Vec::new();
            for range in shares.concat().into_iter().chain(ranges.clone()).filter(|range| !range.is_empty()) {
                match joined.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => joined.push(range),
                }
            }
            // Once as shares, once as they were given.
            let (first, second) = joined.split_at(joined.len() / 2);
            prop_assert_eq!(first, second);
        }
    }
}
