//! Summing sample rows by stack: the inner loop of every query.
//!
//! Stacks are dense, so totals are an array. Threads of the compute pool take pieces of the rows one at a
//! time, so that a late or slow thread takes fewer.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use athanor_chassis::compute::{ComputeError, ComputePool};
use athanor_profile::SpanContext;
use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{DataType, FixedLenByteArray, FixedLenByteArrayType, Int32Type, Int64Type};

use crate::encoding::page_reader::PagedColumn;
use crate::format::columns::TableReader;
use crate::format::error::BlockError;
use crate::format::meta::{IdRange, MAX_ROWS_PER_PAGE, ROLLUP_FILE, SAMPLES_FILE};
use crate::format::parquet_reads::{catch_parquet_panic, truncated_column};
use crate::format::sample_rows::SpanContextColumns;
use crate::reader::read::{TenantBlock, local_id};

/// Rows decoded per batch, so that their columns fit in the CPU cache.
const SCAN_BATCH_ROWS: usize = 16 * 1024;

/// Minimum of rows that justify another thread.
const MIN_ROWS_PER_THREAD: usize = 64 * 1024;

/// Upper bound of rows per piece: a few pages, because a partly read page is decoded as a whole.
const MAX_ROWS_PER_PIECE: usize = 4 * MAX_ROWS_PER_PAGE;

/// Row group and ranges of its rows.
pub(crate) type ScanJob = (usize, Vec<Range<usize>>);

impl TenantBlock<'_> {
    /// Returns the totals by stack of the rows in `ranges` (relative to the part, ascending, not
    /// overlapping).
    pub fn sum_by_stack(&self, ranges: &[Range<u64>], compute: &ComputePool) -> Result<Vec<i64>, BlockError> {
        self.sum_with_side_task(ranges, compute, None)
    }

    /// Variant of [`sum_by_stack`](Self::sum_by_stack) in which one thread runs a side task first.
    pub(crate) fn sum_with_side_task(
        &self,
        ranges: &[Range<u64>],
        compute: &ComputePool,
        beside: Option<&SideTask<'_>>,
    ) -> Result<Vec<i64>, BlockError> {
        let stacks = IdRange(self.meta.nodes.0, self.meta.stacks);
        self.scan(ranges, SpanContextColumns::default(), compute, beside, |totals, batch| {
            batch
                .stacks
                .iter()
                .zip(&batch.values)
                .try_for_each(|(&stack, &value)| add_to_total(totals, stacks, stack, value))
        })
    }

    /// Variant of [`sum_by_stack`](Self::sum_by_stack) for the rows with a `wanted` span context.
    pub fn sum_by_stack_of_requests(
        &self,
        ranges: &[Range<u64>],
        compute: &ComputePool,
        wanted: impl Fn(SpanContext) -> bool + Sync,
    ) -> Result<Vec<i64>, BlockError> {
        let stacks = IdRange(self.meta.nodes.0, self.meta.stacks);
        let columns = self.span_context_columns()?;
        self.scan(ranges, columns, compute, None, |totals, batch| {
            for (row, (&stack, &value)) in batch.stacks.iter().zip(&batch.values).enumerate() {
                if wanted(batch.requests.get(row).copied().unwrap_or_default()) {
                    add_to_total(totals, stacks, stack, value)?;
                }
            }
            Ok(())
        })
    }

    /// Columns with the span contexts of rows.
    pub(crate) fn span_context_columns(&self) -> Result<SpanContextColumns, BlockError> {
        Ok(self.samples_table()?.columns().requests)
    }

    fn scan(
        &self,
        ranges: &[Range<u64>],
        columns: SpanContextColumns,
        compute: &ComputePool,
        beside: Option<&SideTask<'_>>,
        each: impl Fn(&mut [i64], &SampleBatch) -> Result<(), BlockError> + Sync,
    ) -> Result<Vec<i64>, BlockError> {
        let table = self.samples_table()?;
        let pieces = split_into_pieces(self.plan_scan(&table, ranges)?);
        let next = AtomicUsize::new(0);
        let stacks = self.meta.stacks as usize;
        let lane = |beside: Option<&SideTask<'_>>| -> Result<Vec<i64>, BlockError> {
            if let Some(beside) = beside {
                beside();
            }
            let mut totals = vec![0i64; stacks];
            let mut batch = SampleBatch::default();
            let mut open: Option<(usize, SampleReaders)> = None;
            while let Some((group, range)) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                if open.as_ref().is_none_or(|(of, _)| of != group) {
                    open = Some((*group, SampleReaders::open(&table, *group, columns)?));
                }
                let Some((_, columns)) = &mut open else { continue };
                let ranges = std::slice::from_ref(range);
                scan(self, columns, ranges, &mut batch, |batch| each(&mut totals, batch))?;
            }
            Ok(totals)
        };
        let rows: usize = pieces.iter().map(|(_, range)| range.len()).sum();
        let lanes = rows.div_ceil(MIN_ROWS_PER_THREAD).max(1) + usize::from(beside.is_some());
        let beside = std::iter::once(beside).chain(std::iter::repeat(None));
        let sums = compute.map(beside.take(lanes.min(compute.parallelism())).collect(), lane);
        let mut sums = sums.map_err(|error| worker_error(error.resume_panic()))?.into_iter();
        let mut totals = sums.next().unwrap_or_else(|| Ok(vec![0; stacks]))?;
        for sum in sums {
            totals.iter_mut().zip(sum?).for_each(|(total, value)| *total = total.wrapping_add(value));
        }
        Ok(totals)
    }

    /// Returns the row groups that contain rows in `ranges`, and those rows.
    pub(crate) fn plan_scan(
        &self,
        table: &TableReader,
        ranges: &[Range<u64>],
    ) -> Result<Vec<ScanJob>, BlockError> {
        let mut jobs = Vec::new();
        let mut first = 0u64;
        for group in self.row_groups(SAMPLES_FILE).range() {
            let end = first + table.rows(group)? as u64;
            let ahead = &ranges[ranges.partition_point(|range| range.end <= first)..];
            let within = ahead.iter().take_while(|range| range.start < end);
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

    /// Visits the rows in `ranges` in order: stacks as indexes in the part, their values, and their span
    /// contexts if `columns` has any.
    pub(crate) fn for_each_row(
        &self,
        ranges: &[Range<u64>],
        columns: SpanContextColumns,
        mut each: impl FnMut(&[u32], &[i64], &[SpanContext]),
    ) -> Result<(), BlockError> {
        let table = self.samples_table()?;
        let run = IdRange(self.meta.nodes.0, self.meta.stacks);
        let mut stacks = Vec::with_capacity(SCAN_BATCH_ROWS);
        let mut batch = SampleBatch::default();
        for (group, ranges) in self.plan_scan(&table, ranges)? {
            let mut columns = SampleReaders::open(&table, group, columns)?;
            scan(self, &mut columns, &ranges, &mut batch, |batch| {
                stacks.clear();
                for &stack in &batch.stacks {
                    stacks.push(local_id(SAMPLES_FILE, stack, run)?);
                }
                each(&stacks, &batch.values, &batch.requests);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Returns the totals by stack over the whole part from the roll-up, without reading samples.
    pub fn sum_rollup(&self, wanted: impl Fn(u32) -> bool) -> Result<Vec<i64>, BlockError> {
        let mut totals = vec![0i64; self.meta.stacks as usize];
        let stacks = IdRange(self.meta.nodes.0, self.meta.stacks);
        let table = self.block.open_table(ROLLUP_FILE)?;
        for (group, rows) in self.plan_rollup_scan(&wanted)? {
            self.check_cancelled()?;
            let series = table.read_column_rows::<Int32Type>(group, 0, &rows)?;
            let of_stacks = table.read_column_rows::<Int32Type>(group, 1, &rows)?;
            let values = table.read_column_rows::<Int64Type>(group, 2, &rows)?;
            for ((series, stack), value) in series.into_iter().zip(of_stacks).zip(values) {
                if wanted(local_id(ROLLUP_FILE, series, self.meta.series)?) {
                    let total = &mut totals[local_id(ROLLUP_FILE, stack, stacks)? as usize];
                    *total = total.wrapping_add(value);
                }
            }
        }
        Ok(totals)
    }

    /// Returns the row groups of the roll-up, and the rows in them that may belong to wanted series.
    pub(crate) fn plan_rollup_scan(&self, wanted: impl Fn(u32) -> bool) -> Result<Vec<ScanJob>, BlockError> {
        let table = self.block.open_table(ROLLUP_FILE)?;
        let IdRange(first, count) = self.meta.series;
        let place = |id: i32| u32::try_from(id).unwrap_or(0).saturating_sub(first);
        let any = |least: i32, most: i32| (place(least)..=place(most).min(count.max(1) - 1)).any(&wanted);
        let rows_of = |group| Ok((group, table.rows_of_matching_pages(group, 0, any)?));
        let jobs = self.row_groups(ROLLUP_FILE).range().map(rows_of);
        jobs.filter(|job: &Result<ScanJob, BlockError>| !matches!(job, Ok((_, rows)) if rows.is_empty()))
            .collect()
    }
}

/// Task that runs beside the reading of rows.
pub(crate) type SideTask<'a> = dyn Fn() + Sync + 'a;

/// Runs `read` while another thread runs the side task.
pub(crate) fn run_with_side_task<R: Send>(
    compute: &ComputePool,
    beside: Option<&SideTask<'_>>,
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
    let mut both = both.map_err(|error| worker_error(error.resume_panic()))?.into_iter().flatten();
    both.next().expect("one of the two reads")
}

/// Splits rows of row groups into pieces within a few pages.
fn split_into_pieces(jobs: Vec<ScanJob>) -> Vec<(usize, Range<usize>)> {
    let mut pieces = Vec::new();
    for (group, ranges) in jobs {
        for mut range in ranges {
            while !range.is_empty() {
                let end = range.end.min((range.start / MAX_ROWS_PER_PIECE + 1) * MAX_ROWS_PER_PIECE);
                pieces.push((group, range.start..end));
                range.start = end;
            }
        }
    }
    pieces
}

fn worker_error(error: ComputeError) -> BlockError {
    BlockError::Io { file: SAMPLES_FILE.into(), source: std::io::Error::other(error) }
}

#[inline(always)]
fn add_to_total(totals: &mut [i64], stacks: IdRange, stack: i32, value: i64) -> Result<(), BlockError> {
    match totals.get_mut((stack as u32).wrapping_sub(stacks.0) as usize) {
        Some(total) => {
            *total = total.wrapping_add(value);
            Ok(())
        }
        None => Err(unknown_stack_error(stack)),
    }
}

#[cold]
pub(crate) fn unknown_stack_error(stack: i32) -> BlockError {
    BlockError::corrupt(SAMPLES_FILE, format!("unknown stack {stack}"))
}

/// Parallel columns in reusable buffers.
#[derive(Default)]
pub(crate) struct SampleBatch {
    pub(crate) stacks: Vec<i32>,
    pub(crate) values: Vec<i64>,
    /// Span context of each row. Empty if the columns are absent or not requested.
    pub(crate) requests: Vec<SpanContext>,
    spans: Vec<i64>,
    traces: Vec<FixedLenByteArray>,
    levels: Vec<i16>,
}

/// Visits the rows of `ranges` in one row group, which lie behind the rows that were read before.
pub(crate) fn scan(
    part: &TenantBlock<'_>,
    columns: &mut SampleReaders,
    ranges: &[Range<usize>],
    batch: &mut SampleBatch,
    mut each: impl FnMut(&SampleBatch) -> Result<(), BlockError>,
) -> Result<(), BlockError> {
    for range in ranges {
        columns.skip(range.start - columns.at)?;
        while columns.at < range.end {
            part.check_cancelled()?;
            columns.read(SCAN_BATCH_ROWS.min(range.end - columns.at), batch)?;
            each(batch)?;
        }
    }
    Ok(())
}

/// Readers of the columns of one row group, without the profile column.
pub(crate) struct SampleReaders {
    /// Number of rows that were read or skipped.
    at: usize,
    stacks: PagedColumn<i32>,
    values: PagedColumn<i64>,
    spans: Option<ColumnReaderImpl<Int64Type>>,
    traces: Option<ColumnReaderImpl<FixedLenByteArrayType>>,
}

impl SampleReaders {
    /// Opens the readers. `requests` selects the optional columns.
    pub(crate) fn open(
        table: &TableReader,
        group: usize,
        requests: SpanContextColumns,
    ) -> Result<Self, BlockError> {
        let traces = if requests.span { 4 } else { 3 };
        Ok(SampleReaders {
            at: 0,
            stacks: table.paged_column(group, 1)?,
            values: table.paged_column(group, 2)?,
            spans: match requests.span {
                true => Some(get_typed_column_reader(table.column_reader(group, 3)?)),
                false => None,
            },
            traces: match requests.trace {
                true => Some(get_typed_column_reader(table.column_reader(group, traces)?)),
                false => None,
            },
        })
    }
    /// Skips exactly `rows` rows. Pages that lie wholly in them are not decoded.
    pub(crate) fn skip(&mut self, rows: usize) -> Result<(), BlockError> {
        fn skip<T: DataType>(reader: &mut ColumnReaderImpl<T>, rows: usize) -> Result<(), BlockError> {
            let skipped = catch_parquet_panic(SAMPLES_FILE, || reader.skip_records(rows))?;
            if skipped == rows { Ok(()) } else { Err(truncated_column(SAMPLES_FILE)) }
        }
        if rows == 0 {
            return Ok(());
        }
        self.at += rows;
        self.stacks.skip(rows)?;
        self.values.skip(rows)?;
        self.spans.as_mut().map_or(Ok(()), |spans| skip(spans, rows))?;
        self.traces.as_mut().map_or(Ok(()), |traces| skip(traces, rows))
    }
    /// Reads exactly `rows` rows.
    pub(crate) fn read(&mut self, rows: usize, batch: &mut SampleBatch) -> Result<(), BlockError> {
        self.at += rows;
        let SampleBatch { stacks, values, requests, spans, traces, levels } = batch;
        stacks.clear();
        values.clear();
        requests.clear();
        self.stacks.read(rows, stacks)?;
        self.values.read(rows, values)?;
        if self.spans.is_some() || self.traces.is_some() {
            requests.resize(rows, SpanContext::default());
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
                let bytes: [u8; 16] = trace
                    .data()
                    .try_into()
                    .map_err(|_| BlockError::corrupt(SAMPLES_FILE, "trace id is not 16 bytes long"))?;
                request.trace = u128::from_be_bytes(bytes);
            }
        }
        Ok(())
    }
}

/// Reads exactly `rows` rows. `levels` receives for each row whether it has a value.
fn fill_optional<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    out: &mut Vec<T::T>,
    levels: &mut Vec<i16>,
) -> Result<(), BlockError> {
    levels.clear();
    while levels.len() < rows {
        let left = rows - levels.len();
        let (records, _, _) =
            catch_parquet_panic(SAMPLES_FILE, || reader.read_records(left, Some(levels), None, out))?;
        if records == 0 {
            return Err(truncated_column(SAMPLES_FILE));
        }
    }
    Ok(())
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
            let jobs: Vec<ScanJob> = groups
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
            let pieces = split_into_pieces(jobs.clone());
            prop_assert!(pieces.iter().all(|(_, range)| !range.is_empty() && range.start / MAX_ROWS_PER_PIECE == (range.end - 1) / MAX_ROWS_PER_PIECE));
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
