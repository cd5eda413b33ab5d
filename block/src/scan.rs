//! Adding up sample rows by stack: the inner loop of every query.
//!
//! Stacks are dense, so a total is an array. The threads of the compute pool take pieces of the rows, one after the other,
//! so that one that began later, or is slower, takes fewer.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use athanor_chassis::compute::{Compute, ComputeError};
use athanor_profile::Request;
use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{DataType, FixedLenByteArray, FixedLenByteArrayType, Int32Type, Int64Type};

use crate::columns::{PAGE_ROWS, TableReader, guarded};
use crate::error::BlockError;
use crate::meta::{ROLLUP, Run, SAMPLES};
use crate::read::{Part, within};
use crate::request::RequestColumns;

/// Rows decoded at a time: their columns stay in the processor's cache.
const BATCH: usize = 16 * 1024;

/// Rows that are worth a thread of their own.
const SHARE: usize = 64 * 1024;

/// Rows of a row group that are read by one thread: a few pages, as what is cut out of a page is decoded with it.
const PIECE: usize = 4 * PAGE_ROWS;

/// A row group and ranges of its rows.
pub(crate) type Job = (usize, Vec<Range<usize>>);

impl Part<'_> {
    /// Totals by stack of the rows in `ranges` (counted within the part; ascending, not overlapping).
    pub fn totals(&self, ranges: &[Range<u64>], compute: &Compute) -> Result<Vec<i64>, BlockError> {
        self.totals_beside(ranges, compute, None)
    }

    /// As [`totals`](Self::totals), and one of the threads begins with something else.
    pub(crate) fn totals_beside(
        &self,
        ranges: &[Range<u64>],
        compute: &Compute,
        beside: Option<&Beside<'_>>,
    ) -> Result<Vec<i64>, BlockError> {
        let stacks = Run(self.meta.nodes.0, self.meta.stacks);
        self.scan(ranges, RequestColumns::default(), (compute, beside), |totals, batch| {
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
        self.scan(ranges, columns, (compute, None), |totals, batch| {
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
        Ok(self.samples()?.columns().requests)
    }

    fn scan(
        &self,
        ranges: &[Range<u64>],
        columns: RequestColumns,
        (compute, beside): (&Compute, Option<&Beside<'_>>),
        each: impl Fn(&mut [i64], &Batch) -> Result<(), BlockError> + Sync,
    ) -> Result<Vec<i64>, BlockError> {
        let table = self.samples()?;
        let pieces = pieces(self.jobs(&table, ranges)?);
        let next = AtomicUsize::new(0);
        let stacks = self.meta.stacks as usize;
        let lane = |beside: Option<&Beside<'_>>| -> Result<Vec<i64>, BlockError> {
            if let Some(beside) = beside {
                beside();
            }
            let mut totals = vec![0i64; stacks];
            let mut batch = Batch::default();
            let mut open: Option<(usize, Columns)> = None;
            while let Some((group, range)) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                if open.as_ref().is_none_or(|(of, _)| of != group) {
                    open = Some((*group, Columns::open(&table, *group, columns)?));
                }
                let Some((_, columns)) = &mut open else { continue };
                let rows = (columns, std::slice::from_ref(range));
                scan(self, rows, &mut batch, |batch| each(&mut totals, batch))?;
            }
            Ok(totals)
        };
        let rows: usize = pieces.iter().map(|(_, range)| range.len()).sum();
        let lanes = rows.div_ceil(SHARE).max(1) + usize::from(beside.is_some());
        let beside = std::iter::once(beside).chain(std::iter::repeat(None));
        let sums = compute.map(beside.take(lanes.min(compute.width())).collect(), lane);
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
        let (mut stacks, mut batch) = (Vec::with_capacity(BATCH), Batch::default());
        for (group, ranges) in self.jobs(&table, ranges)? {
            let mut columns = Columns::open(&table, group, columns)?;
            scan(self, (&mut columns, &ranges), &mut batch, |batch| {
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

/// What is done beside reading rows.
pub(crate) type Beside<'a> = dyn Fn() + Sync + 'a;

/// Reads while another thread does something else.
pub(crate) fn beside<R: Send>(
    compute: &Compute,
    beside: Option<&Beside<'_>>,
    read: impl Fn() -> Result<R, BlockError> + Sync,
) -> Result<R, BlockError> {
    let Some(beside) = beside else { return read() };
    let both = compute.map(vec![false, true], |reads| match reads {
        true => Some(read()),
        false => {
            beside();
            None
        }
    });
    let mut both = both.map_err(|error| worker_failed(error.or_panic()))?.into_iter().flatten();
    both.next().expect("one of the two reads")
}

/// Rows of row groups cut into pieces that lie within a few pages.
fn pieces(jobs: Vec<Job>) -> Vec<(usize, Range<usize>)> {
    let mut pieces = Vec::new();
    for (group, ranges) in jobs {
        for mut range in ranges {
            while !range.is_empty() {
                let end = range.end.min((range.start / PIECE + 1) * PIECE);
                pieces.push((group, range.start..end));
                range.start = end;
            }
        }
    }
    pieces
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

/// Hands out the rows of `ranges` in one row group, which lie behind those that were read of it before.
pub(crate) fn scan(
    part: &Part<'_>,
    (columns, ranges): (&mut Columns, &[Range<usize>]),
    batch: &mut Batch,
    mut each: impl FnMut(&Batch) -> Result<(), BlockError>,
) -> Result<(), BlockError> {
    for range in ranges {
        columns.skip(range.start - columns.at)?;
        while columns.at < range.end {
            part.go_on()?;
            columns.read(BATCH.min(range.end - columns.at), batch)?;
            each(batch)?;
        }
    }
    Ok(())
}

/// The columns of one row group, profiles left out.
pub(crate) struct Columns {
    /// How many rows were read or passed over.
    at: usize,
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
            at: 0,
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
        self.at += rows;
        skip(&mut self.stacks, rows)?;
        skip(&mut self.values, rows)?;
        self.spans.as_mut().map_or(Ok(()), |spans| skip(spans, rows))?;
        self.traces.as_mut().map_or(Ok(()), |traces| skip(traces, rows))
    }
    /// Reads exactly `rows` rows.
    pub(crate) fn read(&mut self, rows: usize, batch: &mut Batch) -> Result<(), BlockError> {
        self.at += rows;
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
        fn pieces_are_all_rows_in_order_each_within_its_pages(
            groups in prop::collection::vec(prop::collection::vec((0usize..9, 0usize..900_000), 0..6), 0..4),
        ) {
            let jobs: Vec<Job> = groups
                .iter()
                .enumerate()
                .map(|(group, lengths)| {
                    let mut at = 0;
                    let range = |(gap, length): &(usize, usize)| {
                        at += gap + length;
                        at - length..at
                    };
                    (group, lengths.iter().map(range).collect())
                })
                .collect();
            let pieces = pieces(jobs.clone());
            prop_assert!(pieces.iter().all(|(_, range)| !range.is_empty() && range.start / PIECE == (range.end - 1) / PIECE));
            let rows = |all: &mut dyn Iterator<Item = (usize, Range<usize>)>| {
                let mut joined: Vec<(usize, Range<usize>)> = Vec::new();
                for (group, range) in all.filter(|(_, range)| !range.is_empty()) {
                    match joined.last_mut() {
                        Some((of, last)) if *of == group && last.end == range.start => last.end = range.end,
                        _ => joined.push((group, range)),
                    }
                }
                joined
            };
            let given = jobs.into_iter().flat_map(|(group, ranges)| ranges.into_iter().map(move |range| (group, range)));
            prop_assert_eq!(rows(&mut pieces.into_iter()), rows(&mut given.into_iter()));
        }
    }
}
