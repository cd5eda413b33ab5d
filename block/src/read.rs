//! Reading a block: what it holds, its tables, its rows.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use athanor_chassis::Stop;
use athanor_chassis::compute::yield_slice;
use athanor_profile::hash::Hash;
use athanor_profile::source::SourceError;
use athanor_profile::symbols::NONE;
use athanor_profile::{Labels, ValueType};
use parquet::data_type::{ByteArray, ByteArrayType, FixedLenByteArrayType, Int32Type, Int64Type};

use crate::columns::{TableReader, place};
use crate::error::BlockError;
use crate::folder::{Folder, Verified};
use crate::meta::{FILES, MAX_META, META, Meta, PROFILES, ROLLUP, Run, SAMPLES, SERIES, TenantMeta};
use crate::reach::ProfileColumns;
use athanor_profile::series::{ProfileRow, Series};

/// An open block.
#[derive(Clone)]
pub struct Block {
    folder: Arc<dyn Folder>,
    meta: Arc<Meta>,
    /// Footers that were read, by place in [`FILES`]: with many tenants, parsing them for each would be squared.
    tables: Arc<[OnceLock<Arc<TableReader>>; FILES.len()]>,
}

/// One tenant's part of an open block.
pub struct Part<'b> {
    pub(crate) block: &'b Block,
    /// What the block says of it.
    pub meta: &'b TenantMeta,
    /// Looked at between row groups and batches of rows.
    pub(crate) stop: Stop,
}

/// Totals by series and stack over a whole part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rollup {
    /// Place of the series in the part.
    pub series: Vec<u32>,
    /// Place of the stack in the part.
    pub stack: Vec<u32>,
    /// Sum of the values.
    pub value: Vec<i64>,
    /// How many rows were added up.
    pub samples: Vec<u32>,
}

impl Block {
    /// Opens a block: reads `meta.json` and compares the files' lengths with it.
    pub fn open(folder: Arc<dyn Folder>) -> Result<Self, BlockError> {
        let length = folder.length(META).map_err(BlockError::io(META))?;
        if length > MAX_META {
            return Err(BlockError::Meta { why: format!("it has {length} bytes, the limit is {MAX_META}") });
        }
        let bytes = folder.read(META, 0, length as usize).map_err(BlockError::io(META))?;
        Self::with_meta(folder, Meta::decode(&bytes)?)
    }
    /// Opens a block whose `meta.json` was read before.
    pub fn with_meta(folder: Arc<dyn Folder>, meta: Meta) -> Result<Self, BlockError> {
        let block = Block { folder, meta: Arc::new(meta), tables: Arc::default() };
        for file in FILES {
            block.verified(file)?;
        }
        Ok(block)
    }
    /// What the block says of itself.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }
    pub(crate) fn bytes_of_meta(&self) -> Result<u64, BlockError> {
        self.folder.length(META).map_err(BlockError::io(META))
    }
    /// One tenant's part.
    pub fn part(&self, tenant: &str) -> Result<Part<'_>, BlockError> {
        Ok(self.part_at(self.place_of(tenant)?))
    }
    pub(crate) fn place_of(&self, tenant: &str) -> Result<usize, BlockError> {
        let tenants = &self.meta.tenants;
        tenants.iter().position(|part| part.tenant == tenant).ok_or_else(|| {
            let known: Vec<&str> = tenants.iter().map(|part| part.tenant.as_str()).take(5).collect();
            BlockError::NoTenant { tenant: tenant.into(), known: known.join(", ") }
        })
    }
    pub(crate) fn part_at(&self, place: usize) -> Part<'_> {
        Part { block: self, meta: &self.meta.tenants[place], stop: Stop::default() }
    }
    /// All parts.
    pub fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        self.meta.tenants.iter().map(|meta| Part { block: self, meta, stop: Stop::default() })
    }
    /// Where a tenant's rows lie in a file, and how many bytes they are decompressed. Only the footer is read.
    pub fn extent(&self, tenant: &str, file: &'static str) -> Result<(Range<u64>, u64), BlockError> {
        self.table(file)?.extent(self.part(tenant)?.groups(file))
    }
    /// About what the footers take that were read so far.
    pub fn footer_bytes(&self) -> usize {
        self.tables.iter().filter_map(OnceLock::get).map(|table| table.metadata.memory_size()).sum()
    }
    fn verified(&self, file: &'static str) -> Result<Verified, BlockError> {
        Verified::open(&self.folder, file, self.meta.file(file)?)
    }
    pub(crate) fn table(&self, file: &'static str) -> Result<Arc<TableReader>, BlockError> {
        let known = &self.tables[place(file)];
        if let Some(table) = known.get() {
            return Ok(table.clone());
        }
        let table = Arc::new(TableReader::open(file, self.verified(file)?)?);
        Ok(known.get_or_init(|| table).clone())
    }
    /// Reads everything, so that any damage is found, and reports each page group to `progress` in bytes.
    pub fn verify(&self, mut progress: impl FnMut(u64)) -> Result<(), BlockError> {
        const STEP: u64 = 8 << 20;
        for file in FILES {
            let content = self.verified(file)?;
            let length = self.meta.file(file)?.bytes;
            for from in (0..length).step_by(STEP as usize) {
                let step = STEP.min(length - from);
                content.read(from, step as usize)?;
                progress(step);
            }
            self.table(file)?;
        }
        for part in self.parts() {
            part.verify()?;
        }
        Ok(())
    }
}

pub(crate) fn text<'a>(file: &str, value: &'a ByteArray) -> Result<&'a str, BlockError> {
    std::str::from_utf8(value.data()).map_err(|_| BlockError::corrupt(file, "text that is not UTF-8"))
}

/// An id of the block as a place in the part.
pub(crate) fn within(file: &str, id: i32, run: Run) -> Result<u32, BlockError> {
    let place = u32::try_from(id).ok().and_then(|id| id.checked_sub(run.0)).filter(|&place| place < run.1);
    place.ok_or_else(|| {
        BlockError::corrupt(file, format!("id {id} is not among {}..{}", run.0, run.0 + run.1))
    })
}

/// As [`within`], with −1 for none.
pub(crate) fn within_or_none(file: &str, id: i32, run: Run) -> Result<u32, BlockError> {
    if id == -1 { Ok(NONE) } else { within(file, id, run) }
}

impl Part<'_> {
    /// An error once nobody waits for what is read. Other jobs may run here: no lock is held, or the slice is.
    pub(crate) fn go_on(&self) -> Result<(), BlockError> {
        yield_slice();
        if self.stop.is_set() { Err(BlockError::Held(SourceError::Left)) } else { Ok(()) }
    }

    pub(crate) fn groups(&self, file: &str) -> Run {
        self.meta.groups[place(file)]
    }

    /// Ids in a column must be exactly the part's, in their order.
    pub(crate) fn ids(&self, file: &'static str, table: &TableReader, run: Run) -> Result<(), BlockError> {
        let ids = table.run::<Int32Type>(self.groups(file), 0)?;
        if ids.len() == run.1 as usize && run.range().zip(&ids).all(|(expected, &id)| expected as i32 == id) {
            return Ok(());
        }
        Err(BlockError::corrupt(
            file,
            "its ids are not those that meta.json names: it belongs to another block",
        ))
    }

    /// The series, in their order.
    pub fn series(&self) -> Result<Vec<Series>, BlockError> {
        let table = self.block.table(SERIES)?;
        self.ids(SERIES, &table, self.meta.series)?;
        let mut all = Vec::with_capacity(self.meta.series.1 as usize);
        for group in self.groups(SERIES).range() {
            self.go_on()?;
            let tenants = table.column::<ByteArrayType>(group, 1)?;
            if tenants.iter().any(|tenant| tenant.data() != self.meta.tenant.as_bytes()) {
                return Err(BlockError::corrupt(SERIES, "rows of another tenant"));
            }
            let labels = read_labels(&table, group)?;
            let mut types = Vec::new();
            for column in 4..8 {
                types.push(table.column::<ByteArrayType>(group, column)?);
            }
            for (row, labels) in labels.into_iter().enumerate() {
                let of_row = |column: usize| text(SERIES, &types[column][row]).map(str::to_owned);
                let value_type = ValueType { kind: of_row(0)?, unit: of_row(1)? };
                let period_type = ValueType { kind: of_row(2)?, unit: of_row(3)? };
                all.push(Series::new(labels, value_type, period_type));
            }
        }
        Ok(all)
    }

    /// The profiles, by (series, time, id).
    pub fn profiles(&self) -> Result<Vec<ProfileRow>, BlockError> {
        self.read_profiles(ProfileColumns::All)
    }

    /// As [`profiles`](Self::profiles), and those columns that are not asked for are zero.
    pub(crate) fn read_profiles(&self, columns: ProfileColumns) -> Result<Vec<ProfileRow>, BlockError> {
        let all_columns = columns == ProfileColumns::All;
        let table = self.block.table(PROFILES)?;
        self.ids(PROFILES, &table, self.meta.profiles)?;
        let mut all = Vec::with_capacity(self.meta.profiles.1 as usize);
        let mut samples_seen = 0u64;
        for group in self.groups(PROFILES).range() {
            self.go_on()?;
            let series = table.column::<Int32Type>(group, 1)?;
            let times = table.column::<Int64Type>(group, 2)?;
            let number = |column: usize| match all_columns {
                true => table.column::<Int64Type>(group, column),
                false => Ok(Vec::new()),
            };
            let ids = match all_columns {
                true => table.column::<FixedLenByteArrayType>(group, 3)?,
                false => Vec::new(),
            };
            let (durations, periods) = (number(4)?, number(5)?);
            let samples = table.column::<Int32Type>(group, 6)?;
            for row in 0..series.len() {
                let id = ids.get(row).map_or(Ok([0; 16]), |id| id.data().try_into());
                let id: [u8; 16] = id.map_err(|_| BlockError::corrupt(PROFILES, "a short id"))?;
                let count = u32::try_from(samples[row])
                    .map_err(|_| BlockError::corrupt(PROFILES, "negative samples"))?;
                samples_seen += u64::from(count);
                all.push(ProfileRow {
                    series: within(PROFILES, series[row], self.meta.series)?,
                    time: times[row],
                    id: Hash::from_be_bytes(id),
                    duration: durations.get(row).copied().unwrap_or_default(),
                    period: periods.get(row).copied().unwrap_or_default(),
                    samples: count,
                });
            }
        }
        if samples_seen != self.meta.samples {
            let expected = self.meta.samples;
            return Err(BlockError::corrupt(
                PROFILES,
                format!("{samples_seen} samples, meta.json says {expected}"),
            ));
        }
        Ok(all)
    }

    /// Returns whether the block was written by a version that keeps each profile id of a tenant once. Earlier versions
    /// kept it once in each series.
    pub fn has_distinct_ids(&self) -> Result<bool, BlockError> {
        Ok(self.block.table(PROFILES)?.has_distinct_ids())
    }

    /// The sum of each profile's values, modulo 2^64, in their order.
    pub fn profile_totals(&self) -> Result<Vec<i64>, BlockError> {
        let totals = self.block.table(PROFILES)?.run::<Int64Type>(self.groups(PROFILES), 7)?;
        if totals.len() == self.meta.profiles.1 as usize {
            return Ok(totals);
        }
        Err(BlockError::corrupt(PROFILES, "it has not as many rows as meta.json says"))
    }

    /// The roll-up.
    pub fn rollup(&self) -> Result<Rollup, BlockError> {
        let mut all = Rollup::default();
        self.each_rollup(|mut rows| {
            all.series.append(&mut rows.series);
            all.stack.append(&mut rows.stack);
            all.value.append(&mut rows.value);
            all.samples.append(&mut rows.samples);
        })?;
        Ok(all)
    }

    /// The roll-up, a row group at a time.
    pub(crate) fn each_rollup(&self, mut take: impl FnMut(Rollup)) -> Result<(), BlockError> {
        let table = self.block.table(ROLLUP)?;
        for group in self.groups(ROLLUP).range() {
            self.go_on()?;
            let ids = |column: usize, run: Run| -> Result<Vec<u32>, BlockError> {
                let ids = table.column::<Int32Type>(group, column)?;
                ids.into_iter().map(|id| within(ROLLUP, id, run)).collect()
            };
            let samples = table.column::<Int32Type>(group, 3)?;
            take(Rollup {
                series: ids(0, self.meta.series)?,
                stack: ids(1, Run(self.meta.nodes.0, self.meta.stacks))?,
                value: table.column::<Int64Type>(group, 2)?,
                samples: samples.into_iter().map(|count| count.max(0) as u32).collect(),
            });
        }
        Ok(())
    }

    /// Rows of `samples.parquet`, counted within the part, of the profiles that `wanted` picks.
    pub fn rows_of(profiles: &[ProfileRow], mut wanted: impl FnMut(&ProfileRow) -> bool) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut start = 0;
        for profile in profiles {
            let end = start + u64::from(profile.samples);
            if wanted(profile) {
                match ranges.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => ranges.push(start..end),
                }
            }
            start = end;
        }
        ranges
    }

    pub(crate) fn samples(&self) -> Result<Arc<TableReader>, BlockError> {
        self.block.table(SAMPLES)
    }
}

fn read_labels(table: &TableReader, group: usize) -> Result<Vec<Labels>, BlockError> {
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    let (mut repetition, mut definition) = (Vec::new(), Vec::new());
    table.nested::<ByteArrayType>(group, 2, (&mut keys, &mut repetition, &mut definition))?;
    let (mut repeated, mut defined) = (Vec::new(), Vec::new());
    table.nested::<ByteArrayType>(group, 3, (&mut values, &mut repeated, &mut defined))?;
    if repetition != repeated || definition != defined {
        return Err(BlockError::corrupt(SERIES, "label names and values do not pair"));
    }
    let mut pairs = keys.iter().zip(&values);
    let mut all: Vec<Labels> = Vec::new();
    for (repetition, definition) in repetition.into_iter().zip(definition) {
        if repetition == 0 {
            all.push(Labels::default());
        }
        let last =
            all.last_mut().ok_or_else(|| BlockError::corrupt(SERIES, "a label before the first row"))?;
        if definition == 1 {
            let (name, value) =
                pairs.next().ok_or_else(|| BlockError::corrupt(SERIES, "a label is missing"))?;
            last.set(text(SERIES, name)?, text(SERIES, value)?);
        }
    }
    Ok(all)
}
