//! Reading a block: metadata, tables, rows.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use athanor_chassis::CancelFlag;
use athanor_chassis::compute::yield_slice;
use athanor_profile::data_model::symbols::NO_ENTRY;
use athanor_profile::store_interface::source::SourceError;
use athanor_profile::{Labels, ValueType};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};

use crate::format::columns::{TableReader, file_index};
use crate::format::error::BlockError;
use crate::format::folder::{BlockFolder, ChecksumReader};
use crate::format::meta::{
    BlockMeta, IdRange, MAX_META_BYTES, META_FILE, PARQUET_FILES, PROFILES_FILE, ROLLUP_FILE, SAMPLES_FILE,
    SERIES_FILE, TenantMeta,
};
use crate::reader::row_ids::read_row_ids;
use athanor_profile::store_interface::series::{ProfileRow, ProfileSeries};

/// Rows of the roll-up decoded at a time.
const ROLLUP_BATCH_ROWS: usize = 8 * 1024;

/// Open block. Cheap to clone.
#[derive(Clone)]
pub struct Block {
    folder: Arc<dyn BlockFolder>,
    meta: Arc<BlockMeta>,
    /// Parsed footers by index in [`PARQUET_FILES`]. Parsing them once per tenant would take quadratic time.
    tables: Arc<[OnceLock<Arc<TableReader>>; PARQUET_FILES.len()]>,
}

impl fmt::Debug for Block {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Block").field("id", &self.meta.id).finish_non_exhaustive()
    }
}

/// Part of one tenant in an open block.
pub struct TenantBlock<'b> {
    pub(crate) block: &'b Block,
    /// Metadata of the part.
    pub meta: &'b TenantMeta,
    /// Flag that is checked between row groups and batches of rows.
    pub(crate) stop: CancelFlag,
}

/// Totals by series and stack over a whole part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RollupRows {
    /// Index of the series in the part.
    pub series: Vec<u32>,
    /// Index of the stack in the part.
    pub stack: Vec<u32>,
    /// Sum of the values.
    pub value: Vec<i64>,
    /// Number of rows in the sum.
    pub samples: Vec<u32>,
}

/// Columns of profiles that a query needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileProjection {
    /// Series, time and number of rows of each profile, and the counts of a downsampled tier.
    Brief,
    /// Sum of the values of each profile.
    Totals,
    /// All columns except that sum.
    All,
}

impl Block {
    /// Opens a block: reads `meta.json` and compares the lengths of the files with it.
    pub fn open(folder: Arc<dyn BlockFolder>) -> Result<Self, BlockError> {
        let length = folder.length(META_FILE).map_err(BlockError::io(META_FILE))?;
        if length > MAX_META_BYTES {
            return Err(BlockError::Meta {
                why: format!("size is {length} bytes, the limit is {MAX_META_BYTES}"),
            });
        }
        let bytes = folder.read(META_FILE, 0, length as usize).map_err(BlockError::io(META_FILE))?;
        Self::with_meta(folder, BlockMeta::decode(&bytes)?)
    }
    /// Opens a block with a `meta.json` that was read before.
    pub fn with_meta(folder: Arc<dyn BlockFolder>, meta: BlockMeta) -> Result<Self, BlockError> {
        let block = Block { folder, meta: Arc::new(meta), tables: Arc::default() };
        for file in PARQUET_FILES {
            block.checksum_reader(file)?;
        }
        Ok(block)
    }
    /// Metadata of the block.
    pub fn meta(&self) -> &BlockMeta {
        &self.meta
    }
    pub(crate) fn bytes_of_meta(&self) -> Result<u64, BlockError> {
        self.folder.length(META_FILE).map_err(BlockError::io(META_FILE))
    }
    /// Returns the part of one tenant.
    pub fn tenant_block(&self, tenant: &str) -> Result<TenantBlock<'_>, BlockError> {
        Ok(self.tenant_block_at(self.tenant_index(tenant)?))
    }
    pub(crate) fn tenant_index(&self, tenant: &str) -> Result<usize, BlockError> {
        let tenants = &self.meta.tenants;
        tenants.iter().position(|part| part.tenant == tenant).ok_or_else(|| {
            let known: Vec<&str> = tenants.iter().map(|part| part.tenant.as_str()).take(5).collect();
            BlockError::NoTenant { tenant: tenant.into(), known: known.join(", ") }
        })
    }
    pub(crate) fn tenant_block_at(&self, place: usize) -> TenantBlock<'_> {
        TenantBlock { block: self, meta: &self.meta.tenants[place], stop: CancelFlag::default() }
    }
    /// Returns the parts of all tenants.
    pub fn tenant_blocks(&self) -> impl Iterator<Item = TenantBlock<'_>> {
        self.meta.tenants.iter().map(|meta| TenantBlock { block: self, meta, stop: CancelFlag::default() })
    }
    /// Returns the byte range of a tenant's rows in a file and their decompressed size. Only the footer is
    /// read.
    pub fn tenant_range(&self, tenant: &str, file: &'static str) -> Result<(Range<u64>, u64), BlockError> {
        self.open_table(file)?.group_range(self.tenant_block(tenant)?.row_groups(file))
    }
    /// Returns the approximate memory of the parsed footers in bytes.
    pub fn footer_bytes(&self) -> usize {
        self.tables.iter().filter_map(OnceLock::get).map(|table| table.metadata.memory_size()).sum()
    }
    fn checksum_reader(&self, file: &'static str) -> Result<ChecksumReader, BlockError> {
        ChecksumReader::open(&self.folder, file, self.meta.file(file)?)
    }
    pub(crate) fn open_table(&self, file: &'static str) -> Result<Arc<TableReader>, BlockError> {
        let known = &self.tables[file_index(file)];
        if let Some(table) = known.get() {
            return Ok(table.clone());
        }
        let table = Arc::new(TableReader::open(file, self.checksum_reader(file)?)?);
        Ok(known.get_or_init(|| table).clone())
    }
    /// Reads all files to detect any damage, and reports the bytes of each step to `progress`.
    pub fn verify(&self, mut progress: impl FnMut(u64)) -> Result<(), BlockError> {
        const VERIFY_STEP_BYTES: u64 = 8 << 20;
        for file in PARQUET_FILES {
            let content = self.checksum_reader(file)?;
            let length = self.meta.file(file)?.bytes;
            for from in (0..length).step_by(VERIFY_STEP_BYTES as usize) {
                let step = VERIFY_STEP_BYTES.min(length - from);
                content.read(from, step as usize)?;
                progress(step);
            }
            self.open_table(file)?;
        }
        for part in self.tenant_blocks() {
            part.verify()?;
        }
        Ok(())
    }
}

pub(crate) fn utf8_value<'a>(file: &str, value: &'a ByteArray) -> Result<&'a str, BlockError> {
    std::str::from_utf8(value.data()).map_err(|_| BlockError::corrupt(file, "text that is not UTF-8"))
}

/// Converts an ID of the block to an index in the part.
pub(crate) fn local_id(file: &str, id: i32, run: IdRange) -> Result<u32, BlockError> {
    let place = u32::try_from(id).ok().and_then(|id| id.checked_sub(run.0)).filter(|&place| place < run.1);
    place.ok_or_else(|| BlockError::corrupt(file, format!("id {id} is outside {}..{}", run.0, run.0 + run.1)))
}

/// Variant of [`local_id`] with −1 for none.
pub(crate) fn local_id_or_none(file: &str, id: i32, run: IdRange) -> Result<u32, BlockError> {
    if id == -1 { Ok(NO_ENTRY) } else { local_id(file, id, run) }
}

impl ProfileProjection {
    /// Returns the columns to read. Rows of a downsampled tier have counts in the place of IDs, and a query needs
    /// them with the times.
    pub(crate) fn column_indexes(self, is_downsampled: bool) -> &'static [usize] {
        match (self, is_downsampled) {
            (ProfileProjection::Brief, false) => &[0, 1, 2, 6],
            (ProfileProjection::Brief, true) => &[0, 1, 2, 6, 8, 9],
            (ProfileProjection::Totals, _) => &[7],
            (ProfileProjection::All, false) => &[0, 1, 2, 3, 4, 5, 6],
            (ProfileProjection::All, true) => &[0, 1, 2, 4, 5, 6, 8, 9],
        }
    }
}

impl TenantBlock<'_> {
    /// Returns an error after cancellation. The slice may yield here, so the caller holds no lock or holds
    /// the slice.
    pub(crate) fn check_cancelled(&self) -> Result<(), BlockError> {
        yield_slice();
        if self.stop.is_cancelled() { Err(BlockError::Held(SourceError::Left)) } else { Ok(()) }
    }

    pub(crate) fn row_groups(&self, file: &str) -> IdRange {
        self.meta.groups[file_index(file)]
    }

    /// Checks that the IDs in the first column are exactly the part's, in order.
    pub(crate) fn check_ids(
        &self,
        file: &'static str,
        table: &TableReader,
        run: IdRange,
    ) -> Result<(), BlockError> {
        let ids = table.read_numbers::<i32>(self.row_groups(file), 0)?;
        if ids.len() == run.1 as usize && run.range().zip(&ids).all(|(expected, &id)| expected as i32 == id) {
            return Ok(());
        }
        Err(BlockError::corrupt(
            file,
            "ids differ from those in meta.json; the file belongs to another block",
        ))
    }

    /// Reads the series in order.
    pub fn read_series(&self) -> Result<Vec<ProfileSeries>, BlockError> {
        let table = self.block.open_table(SERIES_FILE)?;
        self.check_ids(SERIES_FILE, &table, self.meta.series)?;
        let mut all = Vec::with_capacity(self.meta.series.1 as usize);
        for group in self.row_groups(SERIES_FILE).range() {
            self.check_cancelled()?;
            let tenants = table.read_column::<ByteArrayType>(group, 1)?;
            if tenants.iter().any(|tenant| tenant.data() != self.meta.tenant.as_bytes()) {
                return Err(BlockError::corrupt(SERIES_FILE, "rows of another tenant"));
            }
            let labels = read_labels(&table, group)?;
            let mut types = Vec::new();
            for column in 4..8 {
                types.push(table.read_column::<ByteArrayType>(group, column)?);
            }
            for (row, labels) in labels.into_iter().enumerate() {
                let of_row = |column: usize| utf8_value(SERIES_FILE, &types[column][row]).map(str::to_owned);
                let value_type = ValueType { kind: of_row(0)?, unit: of_row(1)? };
                let period_type = ValueType { kind: of_row(2)?, unit: of_row(3)? };
                all.push(ProfileSeries::new(labels, value_type, period_type));
            }
        }
        Ok(all)
    }

    /// Reads the profiles in the order of the block.
    pub fn read_all_profiles(&self) -> Result<Vec<ProfileRow>, BlockError> {
        self.read_profiles(ProfileProjection::All)
    }

    /// Variant of [`read_all_profiles`](Self::read_all_profiles) in which columns that are not requested are
    /// zero. The counts of a downsampled tier are always read.
    pub(crate) fn read_profiles(&self, columns: ProfileProjection) -> Result<Vec<ProfileRow>, BlockError> {
        let all_columns = columns == ProfileProjection::All;
        let table = self.profiles_table()?;
        self.check_ids(PROFILES_FILE, &table, self.meta.profiles)?;
        let mut all = Vec::with_capacity(self.meta.profiles.1 as usize);
        let mut samples_seen = 0u64;
        let mut records_seen = 0u64;
        for group in self.row_groups(PROFILES_FILE).range() {
            self.check_cancelled()?;
            let series = table.read_column::<Int32Type>(group, 1)?;
            let times = table.read_column::<Int64Type>(group, 2)?;
            let number = |column: usize| match all_columns {
                true => table.read_column::<Int64Type>(group, column),
                false => Ok(Vec::new()),
            };
            let ids = match all_columns || self.is_downsampled() {
                true => read_row_ids(&table, group)?,
                false => Vec::new(),
            };
            let durations = number(4)?;
            let periods = number(5)?;
            let samples = table.read_column::<Int32Type>(group, 6)?;
            for row in 0..series.len() {
                let id = ids.get(row).copied().unwrap_or_default();
                records_seen = records_seen.saturating_add(self.record_count(id));
                let count = u32::try_from(samples[row])
                    .map_err(|_| BlockError::corrupt(PROFILES_FILE, "negative number of samples"))?;
                samples_seen += u64::from(count);
                all.push(ProfileRow {
                    series: local_id(PROFILES_FILE, series[row], self.meta.series)?,
                    time: times[row],
                    id,
                    duration: durations.get(row).copied().unwrap_or_default(),
                    period: periods.get(row).copied().unwrap_or_default(),
                    samples: count,
                });
            }
        }
        if samples_seen != self.meta.samples {
            let expected = self.meta.samples;
            return Err(BlockError::corrupt(
                PROFILES_FILE,
                format!("{samples_seen} samples, meta.json lists {expected}"),
            ));
        }
        self.check_record_count(records_seen)?;
        Ok(all)
    }

    /// Returns whether the block was written by a version that keeps each profile ID of a tenant once.
    /// Earlier versions kept it once per series. Rows of a downsampled tier have no IDs, so none are equal.
    pub fn has_distinct_ids(&self) -> Result<bool, BlockError> {
        Ok(self.is_downsampled() || self.block.open_table(PROFILES_FILE)?.has_distinct_ids())
    }

    /// Reads the sum of each profile's values, modulo 2^64, in order.
    pub fn read_profile_totals(&self) -> Result<Vec<i64>, BlockError> {
        let totals = self
            .block
            .open_table(PROFILES_FILE)?
            .read_column_groups::<Int64Type>(self.row_groups(PROFILES_FILE), 7)?;
        if totals.len() == self.meta.profiles.1 as usize {
            return Ok(totals);
        }
        Err(BlockError::corrupt(PROFILES_FILE, "row count differs from meta.json"))
    }

    /// Reads the whole roll-up.
    pub fn read_rollup(&self) -> Result<RollupRows, BlockError> {
        let mut all = RollupRows::default();
        let table = self.block.open_table(ROLLUP_FILE)?;
        for group in self.row_groups(ROLLUP_FILE).range() {
            self.check_cancelled()?;
            let ids = |column: usize, run: IdRange, all: &mut Vec<u32>| -> Result<(), BlockError> {
                for id in table.read_column::<Int32Type>(group, column)? {
                    all.push(local_id(ROLLUP_FILE, id, run)?);
                }
                Ok(())
            };
            ids(0, self.meta.series, &mut all.series)?;
            ids(1, IdRange(self.meta.nodes.0, self.meta.stacks), &mut all.stack)?;
            all.value.append(&mut table.read_column::<Int64Type>(group, 2)?);
            let samples = table.read_column::<Int32Type>(group, 3)?;
            all.samples.extend(samples.into_iter().map(|count| count.max(0) as u32));
        }
        Ok(all)
    }

    /// Visits the series, stack and number of samples of each row of the roll-up, without its values.
    pub(crate) fn for_each_rollup_count(
        &self,
        mut visit: impl FnMut(u32, u32, u32),
    ) -> Result<(), BlockError> {
        let table = self.block.open_table(ROLLUP_FILE)?;
        let stacks = IdRange(self.meta.nodes.0, self.meta.stacks);
        let mut series = Vec::new();
        let mut of_stacks = Vec::new();
        let mut samples = Vec::new();
        for group in self.row_groups(ROLLUP_FILE).range() {
            self.check_cancelled()?;
            let open = |column| table.paged_column::<i32>(group, column);
            let mut columns = [open(0)?, open(1)?, open(3)?];
            let mut left = table.rows(group)?;
            while left > 0 {
                let count = left.min(ROLLUP_BATCH_ROWS);
                for (column, numbers) in columns.iter_mut().zip([&mut series, &mut of_stacks, &mut samples]) {
                    numbers.clear();
                    column.read(count, numbers)?;
                }
                left -= count;
                for ((&series, &stack), &samples) in series.iter().zip(&of_stacks).zip(&samples) {
                    let series = local_id(ROLLUP_FILE, series, self.meta.series)?;
                    let stack = local_id(ROLLUP_FILE, stack, stacks)?;
                    visit(series, stack, samples.max(0) as u32);
                }
            }
        }
        Ok(())
    }

    /// Returns the rows of `samples.parquet`, relative to the part, of the profiles that `wanted` selects.
    pub fn sample_ranges(
        profiles: &[ProfileRow],
        mut wanted: impl FnMut(&ProfileRow) -> bool,
    ) -> Vec<Range<u64>> {
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

    pub(crate) fn samples_table(&self) -> Result<Arc<TableReader>, BlockError> {
        self.block.open_table(SAMPLES_FILE)
    }
}

fn read_labels(table: &TableReader, group: usize) -> Result<Vec<Labels>, BlockError> {
    let mut keys = Vec::new();
    let mut values = Vec::new();
    let mut repetition = Vec::new();
    let mut definition = Vec::new();
    table.read_nested_column::<ByteArrayType>(group, 2, &mut keys, &mut repetition, &mut definition)?;
    let mut repeated = Vec::new();
    let mut defined = Vec::new();
    table.read_nested_column::<ByteArrayType>(group, 3, &mut values, &mut repeated, &mut defined)?;
    if repetition != repeated || definition != defined {
        return Err(BlockError::corrupt(SERIES_FILE, "label names and values do not pair"));
    }
    let mut pairs = keys.iter().zip(&values);
    let mut all: Vec<Labels> = Vec::new();
    for (repetition, definition) in repetition.into_iter().zip(definition) {
        if repetition == 0 {
            all.push(Labels::default());
        }
        let last =
            all.last_mut().ok_or_else(|| BlockError::corrupt(SERIES_FILE, "a label before the first row"))?;
        if definition == 1 {
            let (name, value) =
                pairs.next().ok_or_else(|| BlockError::corrupt(SERIES_FILE, "a label is missing"))?;
            last.set(utf8_value(SERIES_FILE, name)?, utf8_value(SERIES_FILE, value)?);
        }
    }
    Ok(all)
}
