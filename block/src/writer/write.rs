//! Writing one block by tenant and profile, in bounded memory.
//!
//! For each tenant the caller passes the tables first (ordered series, the dictionary, the row count of each
//! stack), then the profiles in the order of the block. Sample rows are written in row groups as they come.
//! Memory holds one row group and the roll-up of the current series.

use std::collections::BTreeMap;

use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::store_interface::series::{BucketCounts, ProfileRow, ProfileSeries};
use athanor_profile::{Dictionary, SampleTimestamps, SpanContext};
use parquet::data_type::{ByteArray, FixedLenByteArray};

use crate::encoding::page_writer::NumberColumn;
use crate::format::columns::{ColumnValues, TableWriter, file_index};
use crate::format::error::BlockError;
use crate::format::folder::{BlockFolder, ChecksumWriter};
use crate::format::index::{self, StackSet};
use crate::format::meta::{
    BlockMeta, BlockOrigin, INDEX_FILE, IdRange, MAX_ROWS_PER_GROUP, META_FILE, PARQUET_FILES, PROFILES_FILE,
    ROLLUP_FILE, SAMPLES_FILE, TenantMeta,
};
use crate::format::row_order::RowOrder;
use crate::format::sample_rows::{OptionalColumns, ProfileRows, SpanContextColumns};
use crate::reader::timestamps::{MAX_TIMESTAMPS_PER_GROUP, TimestampColumn};
use crate::writer::row_sorter::{RowSorter, StackSums};
use crate::writer::stack_numbering::StackNumbering;

mod names;
mod series;

/// Writer of one block.
pub(crate) struct BlockWriter<'f> {
    folder: &'f dyn BlockFolder,
    tables: Vec<TableWriter>,
    meta: BlockMeta,
    columns: OptionalColumns,
}

/// Writer of one tenant's part.
pub(crate) struct TenantWriter<'w, 'f> {
    block: &'w mut BlockWriter<'f>,
    meta: TenantMeta,
    series: &'w [ProfileSeries],
    numbering: StackNumbering,
    profiles: ProfileColumns,
    samples: SampleColumns,
    rollup: RollupBuilder,
    order: RowSorter,
}

#[derive(Default)]
struct ProfileColumns {
    profile: Vec<i32>,
    series: Vec<i32>,
    time: Vec<i64>,
    id: Vec<FixedLenByteArray>,
    duration: Vec<i64>,
    period: Vec<i64>,
    samples: Vec<i32>,
    value: Vec<i64>,
    /// Counts of the rows of a downsampled tier.
    records: Vec<i64>,
    profiles: Vec<i64>,
}

#[derive(Default)]
struct SampleColumns {
    profile: Vec<i32>,
    stack: Vec<i32>,
    value: Vec<i64>,
    request: Vec<SpanContext>,
    moments: TimestampColumn,
}

/// Totals by stack of the current series and hour, and rows of earlier ones.
#[derive(Default)]
struct RollupBuilder {
    at: u32,
    /// Hour of the sums if rows are ordered by hours.
    hour: i64,
    totals: Vec<(i64, u32)>,
    /// Stacks that have a total.
    touched: Vec<u32>,
    rows: RollupColumns,
    /// Stacks in the profiles of each service, for the index.
    services: BTreeMap<String, StackSet>,
}

#[derive(Default)]
struct RollupColumns {
    series: Vec<i32>,
    stack: Vec<i32>,
    value: Vec<i64>,
    samples: Vec<i32>,
}

impl RollupBuilder {
    /// Adds a row of the current series.
    #[inline(always)]
    fn add(&mut self, stack: u32, value: i64) {
        let total = &mut self.totals[stack as usize];
        if total.1 == 0 {
            self.touched.push(stack);
        }
        *total = (total.0.wrapping_add(value), total.1.saturating_add(1));
    }
}

impl ProfileColumns {
    /// Adds the counts of a row, and the zero in the place of its ID.
    fn add_counts(&mut self, counts: BucketCounts) -> Result<(), BlockError> {
        let limit = i64::MAX as usize;
        let count = |count: u64, what| i64::try_from(count).map_err(|_| BlockError::TooLarge { what, limit });
        self.records.push(count(counts.records, "records per row")?);
        self.profiles.push(count(counts.profiles, "profiles per row")?);
        self.id.push(FixedLenByteArray::from(vec![0; size_of::<ContentHash>()]));
        Ok(())
    }
}

impl SampleColumns {
    /// Adds the timestamps of some rows until a row group is full. Returns the end of the added rows.
    fn add_timestamps(&mut self, rows: std::ops::Range<usize>, moments: &SampleTimestamps) -> usize {
        for row in rows.clone() {
            self.moments.push(moments.row_timestamps(row));
            if self.moments.times.len() >= MAX_TIMESTAMPS_PER_GROUP {
                return row + 1;
            }
        }
        rows.end
    }
}

impl<'f> BlockWriter<'f> {
    /// Begins a block in an empty folder. `columns` must include the columns of all span contexts and
    /// timestamps.
    pub(crate) fn create(
        folder: &'f dyn BlockFolder,
        id: &str,
        columns: OptionalColumns,
    ) -> Result<Self, BlockError> {
        let tables = PARQUET_FILES.iter().map(|&file| {
            let out = folder.create(file).map_err(BlockError::io(file))?;
            TableWriter::create(file, columns, ChecksumWriter::new(out))
        });
        let tables = tables.collect::<Result<_, BlockError>>()?;
        let format = BlockMeta::format_of(RowOrder::Series);
        let meta = BlockMeta { format, id: id.into(), ..BlockMeta::default() };
        Ok(BlockWriter { folder, tables, meta, columns })
    }

    /// Sets the log range that the block was flushed from, or the inputs of a merge.
    pub(crate) fn set_origin(&mut self, origin: Option<BlockOrigin>) {
        self.meta.origin = origin;
    }

    /// Sets the order in which profiles will come.
    pub(crate) fn set_order(&mut self, order: RowOrder) {
        self.meta.order = order;
        self.meta.format = BlockMeta::format_of(order);
    }

    fn write_row_group(
        &mut self,
        file: &'static str,
        columns: &[ColumnValues<'_>],
    ) -> Result<(), BlockError> {
        self.tables[file_index(file)].write_row_group(columns)
    }

    /// Begins a tenant's part. `popularity` has the row count of each dictionary stack. Stacks without rows
    /// are left out.
    pub(crate) fn begin_tenant<'w>(
        &'w mut self,
        tenant: &str,
        series: &'w [ProfileSeries],
        dictionary: &Dictionary,
        popularity: &[u64],
    ) -> Result<TenantWriter<'w, 'f>, BlockError> {
        let before = self.meta.tenants.last().cloned().unwrap_or_default();
        let after = |run: IdRange| run.0 + run.1;
        let mut meta = TenantMeta {
            tenant: tenant.into(),
            min_time: i64::MAX,
            max_time: i64::MIN,
            sum: Some(0),
            series: IdRange(after(before.series), checked_count(series.len(), "series")?),
            profiles: IdRange(after(before.profiles), 0),
            ..TenantMeta::default()
        };
        for (run, table) in meta.groups.iter_mut().zip(&self.tables) {
            run.0 = table.groups();
        }
        let numbering = StackNumbering::new(dictionary, popularity);
        meta.stacks = checked_count(numbering.stacks, "stacks")?;
        meta.nodes = IdRange(after(before.nodes), checked_count(numbering.nodes.len(), "stacks")?);
        meta.locations =
            IdRange(after(before.locations), checked_count(numbering.locations.len(), "locations")?);
        meta.functions =
            IdRange(after(before.functions), checked_count(numbering.functions.len(), "functions")?);
        meta.mappings = IdRange(after(before.mappings), checked_count(numbering.mappings.len(), "mappings")?);
        series::write_series(self, &meta, series)?;
        numbering
            .write_tables(dictionary, &meta, &mut |file, columns| self.write_row_group(file, columns))?;
        let rollup = RollupBuilder { totals: vec![(0, 0); numbering.stacks], ..RollupBuilder::default() };
        let profiles = ProfileColumns::default();
        let samples = SampleColumns::default();
        let order = RowSorter::new(numbering.stacks);
        Ok(TenantWriter { block: self, meta, series, numbering, profiles, samples, rollup, order })
    }

    /// Finishes the block: footers first, then `meta.json` after everything else is durable.
    pub(crate) fn finish(mut self) -> Result<BlockMeta, BlockError> {
        for (file, table) in PARQUET_FILES.iter().zip(self.tables) {
            self.meta.files.insert((*file).into(), table.finish()?);
        }
        let folder = self.folder;
        let meta = self.meta.encode();
        folder
            .sync()
            .and_then(|()| folder.create(META_FILE))
            .and_then(|mut out| out.write_all(&meta).and_then(|()| out.flush()))
            .and_then(|()| folder.sync())
            .map_err(BlockError::io(META_FILE))?;
        Ok(self.meta)
    }
}

/// Checks a count against the signed 32-bit IDs of Parquet.
fn checked_count(length: usize, what: &'static str) -> Result<u32, BlockError> {
    let limit = i32::MAX as usize;
    u32::try_from(length).ok().filter(|_| length <= limit).ok_or(BlockError::TooLarge { what, limit })
}

impl TenantWriter<'_, '_> {
    /// Returns the number of a dictionary stack.
    pub(crate) fn stack_number(&self, stack: u32) -> u32 {
        self.numbering.rank[stack as usize]
    }

    /// Sets the time of the newest arrival of a profile in Unix nanoseconds, 0 for the time in the block's ID.
    pub(crate) fn set_newest_arrival(&mut self, newest_arrival: u64) {
        self.meta.newest_arrival = newest_arrival;
    }

    /// Optional columns of the block.
    pub(crate) fn columns(&self) -> OptionalColumns {
        self.block.columns
    }

    /// Returns the number of stacks.
    pub(crate) fn stack_count(&self) -> usize {
        self.numbering.stacks
    }

    /// Adds the next profile in the order of the block, in a downsampled tier whatever its ID. Rows refer to stacks by
    /// [`stack_number`](Self::stack_number). Rows with equal stack and span context are summed.
    pub(crate) fn add_profile(
        &mut self,
        profile: ProfileRow,
        of_profile: &mut ProfileRows,
    ) -> Result<(), BlockError> {
        self.order.sort_rows(of_profile);
        let id = self.begin_profile(&profile)?;
        let rows = &of_profile.rows;
        let sum = rows.iter().fold(0, |sum: i64, row| sum.wrapping_add(row.value));
        rows.iter().for_each(|row| self.rollup.add(row.stack, row.value));
        self.add_samples(id, of_profile)?;
        self.end_profile(id, profile, of_profile.rows.len(), sum)
    }

    /// Returns whether [`add_sums`](Self::add_sums) takes a profile with this many rows. It does not if rows have
    /// span contexts or timestamps, if they are few of very many stacks, or if a row group would be too large.
    pub(crate) fn takes_sums(&mut self, samples: u32) -> bool {
        let columns = self.block.columns;
        let rows = self.samples.value.len() + samples as usize;
        !columns.requests.is_any()
            && !columns.moments
            && rows <= MAX_ROWS_PER_GROUP
            && self.order.sums_for(samples as usize).is_some()
    }

    /// Variant of [`add_profile`](Self::add_profile) for rows in any order, which `fill` adds up by stack.
    pub(crate) fn add_sums(
        &mut self,
        profile: ProfileRow,
        fill: impl FnOnce(&mut StackSums) -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let id = self.begin_profile(&profile)?;
        let first = self.meta.nodes.0;
        let sums = self.order.sums_for(profile.samples as usize).expect("the caller asked before");
        fill(sums)?;
        let columns = &mut self.samples;
        let start = columns.value.len();
        let mut sum = 0i64;
        sums.drain(|stack, value| {
            columns.stack.push((first + stack) as i32);
            columns.value.push(value);
            sum = sum.wrapping_add(value);
            self.rollup.add(stack, value);
        });
        let count = columns.value.len() - start;
        columns.profile.resize(start + count, id);
        if columns.value.len() == MAX_ROWS_PER_GROUP {
            self.flush_samples()?;
        }
        self.end_profile(id, profile, count, sum)
    }

    /// Begins a profile, and its series and hour if it is the first of them. Returns the profile's ID in the block.
    fn begin_profile(&mut self, profile: &ProfileRow) -> Result<i32, BlockError> {
        let hour = self.block.meta.order.hour(profile.time);
        if (hour, profile.series) != (self.rollup.hour, self.rollup.at) {
            self.end_series()?;
            self.rollup.hour = hour;
            self.rollup.at = profile.series;
        }
        let id = self.meta.profiles.0 as usize + self.meta.profiles.1 as usize;
        Ok(checked_count(id + 1, "profiles")? as i32 - 1)
    }

    /// Adds the row of a profile whose sample rows were added, with their sum.
    fn end_profile(
        &mut self,
        id: i32,
        profile: ProfileRow,
        samples: usize,
        sum: i64,
    ) -> Result<(), BlockError> {
        self.meta.profiles.1 += 1;
        self.meta.samples += samples as u64;
        self.meta.min_time = self.meta.min_time.min(profile.time);
        self.meta.max_time = self.meta.max_time.max(profile.time);
        self.meta.sum = self.meta.sum.map(|of_part| of_part.wrapping_add(sum as u64));
        let columns = &mut self.profiles;
        columns.profile.push(id);
        columns.series.push((self.meta.series.0 + profile.series) as i32);
        columns.time.push(profile.time);
        if self.block.columns.counts {
            let counts = BucketCounts::from_row_id(profile.id);
            self.meta.records = self.meta.records.saturating_add(counts.records);
            columns.add_counts(counts)?;
        } else {
            columns.id.push(FixedLenByteArray::from(profile.id.to_be_bytes().to_vec()));
        }
        columns.duration.push(profile.duration);
        columns.period.push(profile.period);
        columns.samples.push(samples as i32);
        columns.value.push(sum);
        if columns.profile.len() == MAX_ROWS_PER_GROUP {
            self.flush_profiles()?;
        }
        Ok(())
    }

    /// Adds a profile's rows, over as many row groups as needed.
    fn add_samples(&mut self, profile: i32, of_profile: &ProfileRows) -> Result<(), BlockError> {
        let ProfileRows { rows, requests, moments } = of_profile;
        let first = self.meta.nodes.0;
        let mut at = 0;
        while at < rows.len() {
            let samples = &mut self.samples;
            let end = rows.len().min(at + MAX_ROWS_PER_GROUP - samples.value.len());
            let end = if self.block.columns.moments { samples.add_timestamps(at..end, moments) } else { end };
            let now = &rows[at..end];
            samples.profile.resize(samples.profile.len() + now.len(), profile);
            samples.stack.extend(now.iter().map(|row| (first + row.stack) as i32));
            samples.value.extend(now.iter().map(|row| row.value));
            if self.block.columns.requests.is_any() {
                samples.request.extend(now.iter().map(|row| requests.all()[row.request as usize]));
            }
            if samples.value.len() == MAX_ROWS_PER_GROUP
                || samples.moments.times.len() >= MAX_TIMESTAMPS_PER_GROUP
            {
                self.flush_samples()?;
            }
            at = end;
        }
        Ok(())
    }

    fn flush_samples(&mut self) -> Result<(), BlockError> {
        let SampleColumns { profile, stack, value, request, moments } = &mut self.samples;
        if profile.is_empty() {
            return Ok(());
        }
        let SpanContextColumns { span, trace } = self.block.columns.requests;
        let some =
            |has: fn(&SpanContext) -> bool| request.iter().map(|of| i16::from(has(of))).collect::<Vec<_>>();
        let mut spans = Vec::new();
        let mut traces = Vec::new();
        let (of_span, of_trace);
        let mut columns = vec![
            ColumnValues::Numbers(NumberColumn::Ascending(profile)),
            ColumnValues::Numbers(NumberColumn::Deltas(stack)),
            ColumnValues::Numbers(NumberColumn::Values(value)),
        ];
        if span {
            spans.extend(request.iter().map(|of| of.span as i64).filter(|&span| span != 0));
            of_span = some(|of| of.span != 0);
            columns.push(ColumnValues::OptionalI64(&spans, &of_span));
        }
        if trace {
            let present = request.iter().filter(|of| of.trace != 0);
            traces.extend(present.map(|of| FixedLenByteArray::from(of.trace.to_be_bytes().to_vec())));
            of_trace = some(|of| of.trace != 0);
            columns.push(ColumnValues::OptionalFixed(&traces, &of_trace));
        }
        if self.block.columns.moments {
            columns.push(ColumnValues::NestedI64(&moments.times, &moments.repetition, &moments.definition));
        }
        self.block.write_row_group(SAMPLES_FILE, &columns)?;
        profile.clear();
        stack.clear();
        value.clear();
        request.clear();
        moments.clear();
        Ok(())
    }

    fn flush_profiles(&mut self) -> Result<(), BlockError> {
        let columns = std::mem::take(&mut self.profiles);
        if columns.profile.is_empty() {
            return Ok(());
        }
        let mut values = vec![
            ColumnValues::I32(&columns.profile),
            ColumnValues::I32(&columns.series),
            ColumnValues::I64(&columns.time),
            ColumnValues::Fixed(&columns.id),
            ColumnValues::I64(&columns.duration),
            ColumnValues::I64(&columns.period),
            ColumnValues::I32(&columns.samples),
            ColumnValues::I64(&columns.value),
        ];
        if self.block.columns.counts {
            values.push(ColumnValues::I64(&columns.records));
            values.push(ColumnValues::I64(&columns.profiles));
        }
        self.block.write_row_group(PROFILES_FILE, &values)
    }

    /// Converts the totals of the current series to roll-up rows.
    fn end_series(&mut self) -> Result<(), BlockError> {
        let RollupBuilder { at, totals, touched, rows, services, .. } = &mut self.rollup;
        let Some(service) = self.series.get(*at as usize).map(ProfileSeries::service) else { return Ok(()) };
        if touched.is_empty() {
            return Ok(());
        }
        // A series has few of all stacks. Scanning all stacks for each series would take quadratic time.
        touched.sort_unstable();
        for &node in &*touched {
            let (value, count) = std::mem::take(&mut totals[node as usize]);
            rows.series.push((self.meta.series.0 + *at) as i32);
            rows.stack.push((self.meta.nodes.0 + node) as i32);
            rows.value.push(value);
            rows.samples.push(i32::try_from(count).unwrap_or(i32::MAX));
        }
        match services.get_mut(service) {
            Some(stacks) => stacks.add(touched),
            None => services.entry(service.to_owned()).or_default().add(touched),
        }
        touched.clear();
        if self.rollup.rows.series.len() >= MAX_ROWS_PER_GROUP { self.flush_rollup() } else { Ok(()) }
    }

    fn flush_rollup(&mut self) -> Result<(), BlockError> {
        let RollupColumns { series, stack, value, samples } = std::mem::take(&mut self.rollup.rows);
        for at in (0..series.len()).step_by(MAX_ROWS_PER_GROUP) {
            let end = series.len().min(at + MAX_ROWS_PER_GROUP);
            self.block.write_row_group(
                ROLLUP_FILE,
                &[
                    ColumnValues::I32(&series[at..end]),
                    ColumnValues::I32(&stack[at..end]),
                    ColumnValues::I64(&value[at..end]),
                    ColumnValues::I32(&samples[at..end]),
                ],
            )?;
        }
        Ok(())
    }

    /// Finishes the tenant's part.
    pub(crate) fn finish(mut self) -> Result<(), BlockError> {
        self.flush_samples()?;
        self.flush_profiles()?;
        self.end_series()?;
        self.flush_rollup()?;
        self.write_index()?;
        for (run, table) in self.meta.groups.iter_mut().zip(&self.block.tables) {
            run.1 = table.groups() - run.0;
        }
        if self.meta.profiles.1 == 0 {
            (self.meta.min_time, self.meta.max_time) = (0, 0);
        }
        self.block.meta.tenants.push(self.meta);
        Ok(())
    }

    /// Writes the index of services by function, from the stacks of each service.
    fn write_index(&mut self) -> Result<(), BlockError> {
        let services: Vec<(String, Vec<u32>)> = std::mem::take(&mut self.rollup.services)
            .into_iter()
            .map(|(service, stacks)| (service, stacks.into_sorted()))
            .collect();
        let names: Vec<ByteArray> =
            services.iter().map(|(service, _)| ByteArray::from(service.as_str())).collect();
        let TenantWriter { block, meta, numbering, .. } = self;
        index::for_each_function_service(&*numbering, numbering.functions.len(), &services, |pairs| {
            let functions: Vec<i32> = pairs.iter().map(|pair| (meta.functions.0 + pair.0) as i32).collect();
            let services: Vec<ByteArray> = pairs.iter().map(|pair| names[pair.1 as usize].clone()).collect();
            block.write_row_group(INDEX_FILE, &[ColumnValues::I32(&functions), ColumnValues::Text(&services)])
        })
    }
}
