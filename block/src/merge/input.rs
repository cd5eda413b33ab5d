//! Selected profiles of one input and their sample rows, in order. Rows between them are skipped, and pages that
//! lie wholly between them are not read.

use std::ops::Range;
use std::sync::Arc;

use athanor_profile::data_model::symbols::NO_ENTRY;
use athanor_profile::store_interface::series::ProfileRow;

use crate::format::columns::TableReader;
use crate::format::error::BlockError;
use crate::format::meta::{IdRange, PROFILES_FILE, SAMPLES_FILE};
use crate::format::row_order::{RowKey, RowOrder};
use crate::format::sample_rows::{OptionalColumns, ProfileRows, SampleRow};
use crate::merge::plan::PartRows;
use crate::reader::profile_stream::{ProfileStream, StoredProfile};
use crate::reader::read::TenantBlock;
use crate::reader::scan::{SampleBatch, SampleReaders, unknown_stack_error};
use crate::reader::timestamps::TimestampReader;
use crate::writer::row_sorter::StackSums;

/// Sample rows buffered per input.
pub(crate) const READ_AHEAD_ROWS: usize = 8 * 1024;

/// Part of an input with the rows to take.
pub(crate) struct TenantInput<'p> {
    pub(crate) part: TenantBlock<'p>,
    pub(crate) rows: &'p PartRows,
    /// Index of the source. Inputs of one source have rows of different hours of one part.
    pub(crate) source: usize,
}

/// Selected profiles and sample rows of one input, in order.
pub(crate) struct MergeInput<'p> {
    profiles: ProfileStream<'p>,
    rows: &'p PartRows,
    /// Output series of each input series.
    series: Vec<u32>,
    /// Index of the profile that the stream returns next.
    place: usize,
    /// Next selected profile, with the output's series.
    next: Option<ProfileRow>,
    /// Sample rows before those of the next selected profile.
    skipped: u64,
    samples: SampleInput,
    /// Order of the output.
    order: RowOrder,
}

/// Sample rows of one input.
struct SampleInput {
    table: Arc<TableReader>,
    groups: Range<usize>,
    open: Option<OpenGroup>,
    /// Optional columns to read.
    columns: OptionalColumns,
    /// Timestamps of the batch's row group. A row may have many timestamps, so they are read only when
    /// needed.
    moments: Option<TimestampReader>,
    batch: SampleBatch,
    /// Index of the next row in the batch.
    at: usize,
    /// Rows read at once, unless a profile needs more.
    read_ahead: usize,
    /// ID range of the input's stacks.
    run: IdRange,
    /// Output stack of each input stack.
    merged: Arc<[u32]>,
}

/// Row group with rows left to read.
struct OpenGroup {
    readers: SampleReaders,
    left: usize,
}

impl<'p> MergeInput<'p> {
    /// Opens an input. `merged` maps its stacks and `series` its series to those of the output, which has
    /// `columns` and this order.
    pub(crate) fn open(
        input: &'p TenantInput<'_>,
        merged: Arc<[u32]>,
        series: Vec<u32>,
        columns: OptionalColumns,
        order: RowOrder,
    ) -> Result<Self, BlockError> {
        let TenantInput { part, rows, .. } = input;
        let samples = SampleInput {
            table: part.samples_table()?,
            columns,
            groups: part.row_groups(SAMPLES_FILE).range(),
            open: None,
            moments: None,
            batch: SampleBatch::default(),
            at: 0,
            read_ahead: if matches!(rows, PartRows::All) { READ_AHEAD_ROWS } else { 0 },
            run: IdRange(part.meta.nodes.0, part.meta.stacks),
            merged,
        };
        let profiles = ProfileStream::open(part)?;
        let mut opened =
            MergeInput { profiles, rows, series, place: 0, next: None, skipped: 0, samples, order };
        opened.find_next()?;
        Ok(opened)
    }

    /// Returns the order of the next profile.
    pub(crate) fn next_order(&self) -> Option<RowKey> {
        self.next.as_ref().map(|row| self.order.key(row))
    }

    /// Returns the number of rows of the next profile.
    pub(crate) fn next_samples(&self) -> u32 {
        self.next.as_ref().map_or(0, |profile| profile.samples)
    }

    /// Returns the next profile and replaces `of_profile` by its rows.
    pub(crate) fn take_profile(&mut self, of_profile: &mut ProfileRows) -> Result<ProfileRow, BlockError> {
        let profile = self.take_header()?;
        of_profile.clear();
        self.samples.read(profile.samples as usize, of_profile)?;
        self.find_next()?;
        Ok(profile)
    }

    /// Returns the next profile. The caller reads its rows by [`add_rows`](Self::add_rows).
    pub(crate) fn take_header(&mut self) -> Result<ProfileRow, BlockError> {
        let profile = self.next.take().expect("the caller peeked");
        self.samples.skip(std::mem::take(&mut self.skipped))?;
        Ok(profile)
    }

    /// Adds up the rows of the profile that [`take_header`](Self::take_header) returned.
    pub(crate) fn add_rows(&mut self, samples: u32, sums: &mut StackSums) -> Result<(), BlockError> {
        self.samples.add_rows(samples as usize, sums)?;
        self.find_next()
    }

    /// Advances to the next selected profile.
    fn find_next(&mut self) -> Result<(), BlockError> {
        while let Some(StoredProfile { row, .. }) = self.profiles.next_profile()? {
            self.place += 1;
            if self.rows.contains(self.place - 1, row.time) {
                let series = self.series[row.series as usize];
                if series == NO_ENTRY {
                    return Err(BlockError::corrupt(PROFILES_FILE, "rows changed during the merge"));
                }
                self.next = Some(ProfileRow { series, ..row });
                return Ok(());
            }
            self.skipped += u64::from(row.samples);
        }
        Ok(())
    }
}

impl SampleInput {
    /// Reads the next rows of a profile.
    fn read(&mut self, mut missing: usize, of_profile: &mut ProfileRows) -> Result<(), BlockError> {
        let ProfileRows { rows, requests, moments } = of_profile;
        rows.reserve(missing.min(READ_AHEAD_ROWS));
        while missing > 0 {
            if self.at == self.batch.stacks.len() {
                self.fill_batch(missing)?;
            }
            let count = missing.min(self.batch.stacks.len() - self.at);
            let range = self.at..self.at + count;
            let read = self.batch.stacks[range.clone()].iter().zip(&self.batch.values[range.clone()]);
            for (&stack, &value) in read {
                let place = (stack as u32).wrapping_sub(self.run.0) as usize;
                match self.merged.get(place) {
                    Some(&stack) if stack != NO_ENTRY => rows.push(SampleRow { stack, request: 0, value }),
                    _ => return Err(unknown_stack_error(stack)),
                }
            }
            if let Some(named) = self.batch.requests.get(range) {
                let first = rows.len() - count;
                let pairs = rows[first..].iter_mut().zip(named);
                pairs.for_each(|(row, &request)| row.request = requests.intern(request));
            }
            if let Some(reader) = &mut self.moments {
                let mut row = rows.len() - count;
                reader.read(count, |times| {
                    moments.add(row, times.iter().copied());
                    row += 1;
                    Ok(())
                })?;
            }
            self.at += count;
            missing -= count;
        }
        Ok(())
    }

    /// Adds up the next rows, which have no span contexts and no timestamps.
    fn add_rows(&mut self, mut missing: usize, sums: &mut StackSums) -> Result<(), BlockError> {
        while missing > 0 {
            if self.at == self.batch.stacks.len() {
                self.fill_batch(missing)?;
            }
            let count = missing.min(self.batch.stacks.len() - self.at);
            let range = self.at..self.at + count;
            let read = self.batch.stacks[range.clone()].iter().zip(&self.batch.values[range]);
            for (&stack, &value) in read {
                let place = (stack as u32).wrapping_sub(self.run.0) as usize;
                let merged = self.merged.get(place).copied().unwrap_or(NO_ENTRY);
                sums.add(merged, value).ok_or_else(|| unknown_stack_error(stack))?;
            }
            self.at += count;
            missing -= count;
        }
        Ok(())
    }

    /// Skips rows.
    fn skip(&mut self, rows: u64) -> Result<(), BlockError> {
        let buffered = rows.min((self.batch.stacks.len() - self.at) as u64) as usize;
        self.at += buffered;
        self.skip_timestamps(buffered)?;
        let mut rest = rows - buffered as u64;
        while rest > 0 {
            let Some(mut open) = self.open.take() else {
                let group = self.next_group()?;
                match self.table.rows(group)? as u64 {
                    count if count <= rest => rest -= count,
                    _ => self.open = Some(self.open_group(group)?),
                }
                continue;
            };
            let count = rest.min(open.left as u64) as usize;
            rest -= count as u64;
            open.left -= count;
            if open.left > 0 {
                open.readers.skip(count)?;
                self.skip_timestamps(count)?;
                self.open = Some(open);
            }
        }
        Ok(())
    }

    fn skip_timestamps(&mut self, rows: usize) -> Result<(), BlockError> {
        self.moments.as_mut().map_or(Ok(()), |moments| moments.skip(rows))
    }

    fn next_group(&mut self) -> Result<usize, BlockError> {
        self.groups.next().ok_or_else(|| BlockError::corrupt(SAMPLES_FILE, "too few rows"))
    }

    fn open_group(&mut self, group: usize) -> Result<OpenGroup, BlockError> {
        if self.columns.moments {
            self.moments = TimestampReader::open(&self.table, group)?;
        }
        let requests = self.table.columns().requests.intersection(self.columns.requests);
        let readers = SampleReaders::open(&self.table, group, requests)?;
        Ok(OpenGroup { readers, left: self.table.rows(group)? })
    }

    /// Reads the next rows, of which the caller needs `missing`.
    fn fill_batch(&mut self, missing: usize) -> Result<(), BlockError> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => {
                let group = self.next_group()?;
                self.open_group(group)?
            }
        };
        let count = missing.min(READ_AHEAD_ROWS).max(self.read_ahead).min(open.left);
        open.readers.read(count, &mut self.batch)?;
        self.at = 0;
        open.left -= count;
        if open.left > 0 {
            self.open = Some(open);
        }
        Ok(())
    }
}
