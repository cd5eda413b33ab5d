//! Writing one block, tenant after tenant, profile after profile, in bounded memory.
//!
//! For each tenant the caller gives the tables first (series in their order, the dictionary, how often each
//! stack occurs), then the profiles by (series, time, id). Sample rows leave in row groups as they come; what
//! stays in memory is one row group and the roll-up of the series at hand.

use std::collections::BTreeMap;

use athanor_profile::series::{ProfileRow, Series};
use athanor_profile::{Dictionary, Moments, Request};
use parquet::data_type::{ByteArray, FixedLenByteArray};

use crate::columns::{Column, GROUP_ROWS, Table, place};
use crate::error::BlockError;
use crate::folder::{Folder, Summed};
use crate::index::{self, StackSet};
use crate::meta::{
    FILES, FORMAT, INDEX, META, Meta, Origin, PROFILES, ROLLUP, Run, SAMPLES, SERIES, TenantMeta,
    WITHOUT_TIMESTAMPS,
};
use crate::moments::{GROUP_MOMENTS, MomentColumn};
use crate::number::Numbering;
use crate::order::Order;
use crate::request::{OptionalColumns, ProfileRows, RequestColumns};

mod names;

/// A block being written.
pub(crate) struct Writer<'f> {
    folder: &'f dyn Folder,
    tables: Vec<Table>,
    meta: Meta,
    columns: OptionalColumns,
}

/// A tenant's part being written.
pub(crate) struct TenantWriter<'w, 'f> {
    block: &'w mut Writer<'f>,
    meta: TenantMeta,
    series: &'w [Series],
    numbering: Numbering,
    profiles: ProfileColumns,
    samples: SampleColumns,
    rollup: Rollup,
    order: Order,
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
}

#[derive(Default)]
struct SampleColumns {
    profile: Vec<i32>,
    stack: Vec<i32>,
    value: Vec<i64>,
    request: Vec<Request>,
    moments: MomentColumn,
}

/// Totals by stack of the series at hand, and rows of the series before it.
#[derive(Default)]
struct Rollup {
    at: u32,
    totals: Vec<(i64, u32)>,
    /// The stacks that have a total.
    touched: Vec<u32>,
    rows: RollupColumns,
    /// Stacks that each service's profiles hold: for the index.
    services: BTreeMap<String, StackSet>,
}

#[derive(Default)]
struct RollupColumns {
    series: Vec<i32>,
    stack: Vec<i32>,
    value: Vec<i64>,
    samples: Vec<i32>,
}

impl SampleColumns {
    /// Adds the moments of some rows, up to where there are enough for a row group, and says where that is.
    fn add_moments(&mut self, rows: std::ops::Range<usize>, moments: &Moments) -> usize {
        for row in rows.clone() {
            self.moments.push(moments.of(row));
            if self.moments.times.len() >= GROUP_MOMENTS {
                return row + 1;
            }
        }
        rows.end
    }
}

impl<'f> Writer<'f> {
    /// Begins a block in an empty folder. Rows may name requests and say moments where there are columns for them.
    pub(crate) fn create(
        folder: &'f dyn Folder,
        id: &str,
        columns: OptionalColumns,
    ) -> Result<Self, BlockError> {
        let tables = FILES.iter().map(|&file| {
            let out = folder.create(file).map_err(BlockError::io(file))?;
            Table::create(file, columns, Summed::new(out))
        });
        let tables = tables.collect::<Result<_, BlockError>>()?;
        let format = if columns.moments { FORMAT } else { WITHOUT_TIMESTAMPS };
        let meta = Meta { format, id: id.into(), ..Meta::default() };
        Ok(Writer { folder, tables, meta, columns })
    }

    /// Says where the block was cut, or what it was made of.
    pub(crate) fn cut_from(&mut self, origin: Option<Origin>) {
        self.meta.origin = origin;
    }

    fn write(&mut self, file: &'static str, columns: &[Column<'_>]) -> Result<(), BlockError> {
        self.tables[place(file)].write(columns)
    }

    /// Begins a tenant's part. `popularity` counts the rows of each stack of the dictionary; a stack of none is left out.
    pub(crate) fn tenant<'w>(
        &'w mut self,
        tenant: &str,
        series: &'w [Series],
        dictionary: &Dictionary,
        popularity: &[u64],
    ) -> Result<TenantWriter<'w, 'f>, BlockError> {
        let before = self.meta.tenants.last().cloned().unwrap_or_default();
        let after = |run: Run| run.0 + run.1;
        let mut meta = TenantMeta {
            tenant: tenant.into(),
            min_time: i64::MAX,
            max_time: i64::MIN,
            series: Run(after(before.series), count(series.len(), "series")?),
            profiles: Run(after(before.profiles), 0),
            ..TenantMeta::default()
        };
        for (run, table) in meta.groups.iter_mut().zip(&self.tables) {
            run.0 = table.groups();
        }
        let numbering = Numbering::new(dictionary, popularity);
        meta.stacks = count(numbering.stacks, "stacks")?;
        meta.nodes = Run(after(before.nodes), count(numbering.nodes.len(), "stacks")?);
        meta.locations = Run(after(before.locations), count(numbering.locations.len(), "locations")?);
        meta.functions = Run(after(before.functions), count(numbering.functions.len(), "functions")?);
        meta.mappings = Run(after(before.mappings), count(numbering.mappings.len(), "mappings")?);
        write_series(self, &meta, series)?;
        numbering.write(dictionary, &meta, &mut |file, columns| self.write(file, columns))?;
        let rollup = Rollup { totals: vec![(0, 0); numbering.stacks], ..Rollup::default() };
        let (profiles, samples) = (ProfileColumns::default(), SampleColumns::default());
        let order = Order::new(numbering.stacks);
        Ok(TenantWriter { block: self, meta, series, numbering, profiles, samples, rollup, order })
    }

    /// Ends the block: footers, then `meta.json` once all else is durable.
    pub(crate) fn finish(mut self) -> Result<Meta, BlockError> {
        for (file, table) in FILES.iter().zip(self.tables) {
            self.meta.files.insert((*file).into(), table.finish()?);
        }
        let folder = self.folder;
        let meta = self.meta.encode();
        folder
            .sync()
            .and_then(|()| folder.create(META))
            .and_then(|mut out| out.write_all(&meta).and_then(|()| out.flush()))
            .and_then(|()| folder.sync())
            .map_err(BlockError::io(META))?;
        Ok(self.meta)
    }
}

/// Ids are 32 bits with a sign, as Parquet's are.
fn count(length: usize, what: &'static str) -> Result<u32, BlockError> {
    let limit = i32::MAX as usize;
    u32::try_from(length).ok().filter(|_| length <= limit).ok_or(BlockError::TooLarge { what, limit })
}

fn write_series(block: &mut Writer<'_>, meta: &TenantMeta, series: &[Series]) -> Result<(), BlockError> {
    let length = |series: &Series| series.labels().iter().map(|(name, value)| name.len() + value.len()).sum();
    let mut first = meta.series.0 as i32;
    for group in names::of_text(series, length) {
        write_series_group(block, &meta.tenant, first, group)?;
        first += group.len() as i32;
    }
    Ok(())
}

fn write_series_group(
    block: &mut Writer<'_>,
    tenant: &str,
    first: i32,
    series: &[Series],
) -> Result<(), BlockError> {
    let text = |text: &str| ByteArray::from(text);
    let ids: Vec<i32> = (first..).take(series.len()).collect();
    let tenants = vec![text(tenant); series.len()];
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    let (mut repetition, mut definition) = (Vec::new(), Vec::new());
    for series in series {
        if series.labels().is_empty() {
            repetition.push(0);
            definition.push(0);
        }
        for (at, (name, value)) in series.labels().iter().enumerate() {
            repetition.push(i16::from(at > 0));
            definition.push(1);
            keys.push(text(name));
            values.push(text(value));
        }
    }
    let column = |of: fn(&Series) -> &str| series.iter().map(|series| text(of(series))).collect::<Vec<_>>();
    let types = [
        column(|series| &series.value_type.kind),
        column(|series| &series.value_type.unit),
        column(|series| &series.period_type.kind),
        column(|series| &series.period_type.unit),
    ];
    block.write(
        SERIES,
        &[
            Column::I32(&ids),
            Column::Text(&tenants),
            Column::Nested(&keys, &repetition, &definition),
            Column::Nested(&values, &repetition, &definition),
            Column::Text(&types[0]),
            Column::Text(&types[1]),
            Column::Text(&types[2]),
            Column::Text(&types[3]),
        ],
    )
}

impl TenantWriter<'_, '_> {
    /// The number of a stack of the dictionary.
    pub(crate) fn number(&self, stack: u32) -> u32 {
        self.numbering.rank[stack as usize]
    }

    /// Adds the next profile by (series, time, id). Rows name stacks by [`number`](Self::number); those of equal
    /// stack and request are added up.
    pub(crate) fn profile(
        &mut self,
        profile: ProfileRow,
        of_profile: &mut ProfileRows,
    ) -> Result<(), BlockError> {
        self.order.arrange(of_profile);
        let ProfileRows { rows, .. } = &*of_profile;
        if profile.series != self.rollup.at {
            self.end_series()?;
            self.rollup.at = profile.series;
        }
        let id = self.meta.profiles.0 as usize + self.meta.profiles.1 as usize;
        let id = count(id + 1, "profiles")? as i32 - 1;
        self.meta.profiles.1 += 1;
        self.meta.samples += rows.len() as u64;
        self.meta.min_time = self.meta.min_time.min(profile.time);
        self.meta.max_time = self.meta.max_time.max(profile.time);
        for row in rows.iter() {
            let total = &mut self.rollup.totals[row.stack as usize];
            if total.1 == 0 {
                self.rollup.touched.push(row.stack);
            }
            *total = (total.0.wrapping_add(row.value), total.1.saturating_add(1));
        }
        self.add_samples(id, of_profile)?;
        let columns = &mut self.profiles;
        columns.profile.push(id);
        columns.series.push((self.meta.series.0 + profile.series) as i32);
        columns.time.push(profile.time);
        columns.id.push(FixedLenByteArray::from(profile.id.to_be_bytes().to_vec()));
        columns.duration.push(profile.duration);
        columns.period.push(profile.period);
        columns.samples.push(rows.len() as i32);
        columns.value.push(rows.iter().fold(0, |sum: i64, row| sum.wrapping_add(row.value)));
        if columns.profile.len() == GROUP_ROWS {
            self.flush_profiles()?;
        }
        Ok(())
    }

    /// Adds a profile's rows, over as many row groups as they fill.
    fn add_samples(&mut self, profile: i32, of_profile: &ProfileRows) -> Result<(), BlockError> {
        let ProfileRows { rows, requests, moments } = of_profile;
        let first = self.meta.nodes.0;
        let mut at = 0;
        while at < rows.len() {
            let samples = &mut self.samples;
            let end = rows.len().min(at + GROUP_ROWS - samples.value.len());
            let end = if self.block.columns.moments { samples.add_moments(at..end, moments) } else { end };
            let now = &rows[at..end];
            samples.profile.resize(samples.profile.len() + now.len(), profile);
            samples.stack.extend(now.iter().map(|row| (first + row.stack) as i32));
            samples.value.extend(now.iter().map(|row| row.value));
            if self.block.columns.requests.any() {
                samples.request.extend(now.iter().map(|row| requests.all()[row.request as usize]));
            }
            if samples.value.len() == GROUP_ROWS || samples.moments.times.len() >= GROUP_MOMENTS {
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
        let RequestColumns { span, trace } = self.block.columns.requests;
        let some =
            |has: fn(&Request) -> bool| request.iter().map(|of| i16::from(has(of))).collect::<Vec<_>>();
        let (mut spans, mut traces) = (Vec::new(), Vec::new());
        let (of_span, of_trace);
        let mut columns = vec![Column::I32(profile), Column::I32(stack), Column::I64(value)];
        if span {
            spans.extend(request.iter().map(|of| of.span as i64).filter(|&span| span != 0));
            of_span = some(|of| of.span != 0);
            columns.push(Column::OptionalI64(&spans, &of_span));
        }
        if trace {
            let present = request.iter().filter(|of| of.trace != 0);
            traces.extend(present.map(|of| FixedLenByteArray::from(of.trace.to_be_bytes().to_vec())));
            of_trace = some(|of| of.trace != 0);
            columns.push(Column::OptionalFixed(&traces, &of_trace));
        }
        if self.block.columns.moments {
            columns.push(Column::NestedI64(&moments.times, &moments.repetition, &moments.definition));
        }
        self.block.write(SAMPLES, &columns)?;
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
        self.block.write(
            PROFILES,
            &[
                Column::I32(&columns.profile),
                Column::I32(&columns.series),
                Column::I64(&columns.time),
                Column::Fixed(&columns.id),
                Column::I64(&columns.duration),
                Column::I64(&columns.period),
                Column::I32(&columns.samples),
                Column::I64(&columns.value),
            ],
        )
    }

    /// Turns the totals of the series at hand into rows.
    fn end_series(&mut self) -> Result<(), BlockError> {
        let Rollup { at, totals, touched, rows, services } = &mut self.rollup;
        let Some(service) = self.series.get(*at as usize).map(Series::service) else { return Ok(()) };
        if touched.is_empty() {
            return Ok(());
        }
        // A series has few of all stacks: to look at all of them for each would be squared.
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
        if self.rollup.rows.series.len() >= GROUP_ROWS { self.flush_rollup() } else { Ok(()) }
    }

    fn flush_rollup(&mut self) -> Result<(), BlockError> {
        let RollupColumns { series, stack, value, samples } = std::mem::take(&mut self.rollup.rows);
        for at in (0..series.len()).step_by(GROUP_ROWS) {
            let end = series.len().min(at + GROUP_ROWS);
            self.block.write(
                ROLLUP,
                &[
                    Column::I32(&series[at..end]),
                    Column::I32(&stack[at..end]),
                    Column::I64(&value[at..end]),
                    Column::I32(&samples[at..end]),
                ],
            )?;
        }
        Ok(())
    }

    /// Ends the tenant's part.
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

    /// Which services call which functions: from the stacks that each service has.
    fn write_index(&mut self) -> Result<(), BlockError> {
        let services: Vec<(String, Vec<u32>)> = std::mem::take(&mut self.rollup.services)
            .into_iter()
            .map(|(service, stacks)| (service, stacks.sorted()))
            .collect();
        let names: Vec<ByteArray> =
            services.iter().map(|(service, _)| ByteArray::from(service.as_str())).collect();
        let TenantWriter { block, meta, numbering, .. } = self;
        index::pairs(&*numbering, numbering.functions.len(), &services, |pairs| {
            let functions: Vec<i32> = pairs.iter().map(|pair| (meta.functions.0 + pair.0) as i32).collect();
            let services: Vec<ByteArray> = pairs.iter().map(|pair| names[pair.1 as usize].clone()).collect();
            block.write(INDEX, &[Column::I32(&functions), Column::Text(&services)])
        })
    }
}
