//! Query source over one tenant's part of an open block.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use athanor_chassis::CancelFlag;
use athanor_chassis::compute::{ComputePool, hold_slice};
use athanor_profile::call_tree::tree::{Tree, TreeShape};
use athanor_profile::store_interface::series::{ProfileRow, ProfileSeries};
use athanor_profile::store_interface::source::{
    ProfileSource, SourceError, SourceNameVisitor, SourceReadSize, SourceRowVisitor, SourceSpanRowVisitor,
};
use athanor_profile::{SpanContext, SpanFilter};
use parking_lot::Mutex;
use parquet::data_type::ByteArray;

use crate::format::error::BlockError;
use crate::format::meta::SERIES_FILE;
use crate::format::sample_rows::SpanContextColumns;
use crate::reader::frames::BlockFrames;
use crate::reader::names::BlockNames;
use crate::reader::read::{Block, ProfileProjection, TenantBlock};
use crate::reader::scan::{self, SideTask};

/// Query source over a part of a block. Tables of series, profiles and names are decoded once on first use,
/// and cached. Samples and the roll-up are read each time. Clones share the cache.
#[derive(Clone)]
pub struct TenantBlockSource {
    inner: Arc<TenantBlockSourceInner>,
    /// Cancellation of this source, not of its clones.
    stop: CancelFlag,
}

struct TenantBlockSourceInner {
    block: Arc<Block>,
    /// Index of the tenant in the block.
    tenant: usize,
    compute: ComputePool,
    series: LazyTable<Arc<[ProfileSeries]>>,
    profiles: LazyTable<Arc<[ProfileRow]>>,
    /// Columns that locate rows, used while `profiles` is not decoded.
    brief: LazyTable<Arc<[ProfileRow]>>,
    profile_totals: LazyTable<Arc<[i64]>>,
    names: LazyTable<BlockNames>,
    frames: LazyTable<BlockFrames>,
    shape: LazyTable<TreeShape>,
}

/// Share of the stacks from which on the tree of all stacks is built and cached. Later trees then only add
/// values. For fewer stacks only the needed part is built.
const PARTIAL_TREE_DIVISOR: usize = 4;

/// Column index of the label names.
const LABEL_NAMES_COLUMN: usize = 2;
/// Memory in bytes of one label. As read: its name and value with their levels. As cached: an entry of a
/// grown vector, plus the overhead of allocating a short text.
const LABEL_MEMORY_BYTES: usize =
    2 * (size_of::<ByteArray>() + 2 * size_of::<i16>() + 2 * size_of::<String>() + 32);
/// Memory in bytes of one series without its labels: as read, and as cached, twice while the list is built.
const SERIES_MEMORY_BYTES: usize = 5 * (size_of::<ByteArray>() + 32) + 64 + 2 * size_of::<ProfileSeries>();
/// Number of copies of a text: as read, and as cached.
const TEXT_COPY_COUNT: u64 = 2;
/// Memory in bytes of one roll-up row as read, in grown vectors.
const ROLLUP_ROW_MEMORY_BYTES: usize = 2 * (2 * size_of::<i32>() + size_of::<i64>());

impl TenantBlockSource {
    /// Creates a source over the part of a tenant. `compute` sums its samples.
    pub fn new(block: Arc<Block>, tenant: &str, compute: ComputePool) -> Result<Self, BlockError> {
        let tenant = block.tenant_index(tenant)?;
        let inner = TenantBlockSourceInner {
            block,
            tenant,
            compute,
            series: LazyTable::default(),
            profiles: LazyTable::default(),
            brief: LazyTable::default(),
            profile_totals: LazyTable::default(),
            names: LazyTable::default(),
            frames: LazyTable::default(),
            shape: LazyTable::default(),
        };
        Ok(TenantBlockSource { inner: Arc::new(inner), stop: CancelFlag::default() })
    }

    /// Returns the same source with a cancellation flag. After cancellation, reads return
    /// [`SourceError::Left`].
    #[must_use]
    pub fn with_cancel(&self, stop: CancelFlag) -> Self {
        TenantBlockSource { inner: Arc::clone(&self.inner), stop }
    }

    /// Returns the approximate memory of the cached tables in bytes. Cheap enough to call after every query.
    pub fn memory_bytes(&self) -> usize {
        let TenantBlockSourceInner { names, frames, shape, .. } = &*self.inner;
        self.index_memory_bytes() + names.bytes() + frames.bytes() + shape.bytes()
    }

    /// Returns the part of that memory that series and profiles take.
    pub fn index_memory_bytes(&self) -> usize {
        let TenantBlockSourceInner { series, profiles, brief, profile_totals, .. } = &*self.inner;
        series.bytes() + profiles.bytes() + brief.bytes() + profile_totals.bytes()
    }

    /// Returns whether profile IDs are distinct in the part. The footer of the profiles must be present.
    pub fn has_unique_ids(&self) -> Result<bool, BlockError> {
        self.tenant_block().has_distinct_ids()
    }

    /// Returns whether the series are decoded.
    pub fn has_decoded_series(&self) -> bool {
        self.inner.series.get_if_ready().is_some()
    }

    /// Returns the approximate memory for decoding the series. The footer of their file must be present.
    pub fn estimate_series_memory(&self) -> Result<u64, BlockError> {
        let part = self.tenant_block();
        let table = part.block.open_table(SERIES_FILE)?;
        let groups = part.row_groups(SERIES_FILE);
        let (_, plain) = table.group_range(groups)?;
        let labels =
            groups.range().map(|group| table.values(group, LABEL_NAMES_COLUMN)).fold(0, u64::saturating_add);
        let labels = labels.saturating_mul(LABEL_MEMORY_BYTES as u64);
        let rows = u64::from(part.meta.series.1) * SERIES_MEMORY_BYTES as u64;
        Ok(plain.saturating_mul(TEXT_COPY_COUNT).saturating_add(labels).saturating_add(rows))
    }

    /// Returns the memory for summing the roll-up rows of the profiles at some indexes. Footers and profiles
    /// must be present.
    pub fn estimate_rollup_memory(&self, picked: &[u32]) -> Result<u64, BlockError> {
        let whole = self.fully_selected_series(self.brief_profile_rows()?, picked);
        let jobs =
            self.tenant_block().plan_rollup_scan(|series| whole.get(series as usize) == Some(&Some(true)))?;
        let rows = jobs.iter().map(|(_, rows)| rows.iter().map(Range::len).sum::<usize>());
        Ok(rows.max().unwrap_or_default().saturating_mul(ROLLUP_ROW_MEMORY_BYTES) as u64)
    }

    pub(crate) fn tenant_block(&self) -> TenantBlock<'_> {
        TenantBlock { stop: self.stop.clone(), ..self.inner.block.tenant_block_at(self.inner.tenant) }
    }

    fn decoded_profiles(&self) -> Result<&Arc<[ProfileRow]>, SourceError> {
        self.inner
            .profiles
            .get_or_make(|| Ok(self.tenant_block().read_all_profiles()?.into()), |all| size_of_val(&**all))
    }

    /// Returns the profiles with the columns that locate their rows, and their times.
    pub(crate) fn brief_profile_rows(&self) -> Result<&Arc<[ProfileRow]>, SourceError> {
        if let Some(known) = self.inner.profiles.get_if_ready() {
            return Ok(known);
        }
        let read = || Ok(self.tenant_block().read_profiles(ProfileProjection::Brief)?.into());
        self.inner.brief.get_or_make(read, |all| size_of_val(&**all))
    }

    /// Returns for each series whether all of its profiles are picked, none if no profile is.
    pub(crate) fn fully_selected_series(&self, profiles: &[ProfileRow], picked: &[u32]) -> Vec<Option<bool>> {
        let mut missing = vec![0u32; self.tenant_block().meta.series.1 as usize];
        profiles.iter().for_each(|profile| missing[profile.series as usize] += 1);
        let mut seen = vec![false; missing.len()];
        for &place in picked {
            let series = profiles[place as usize].series as usize;
            missing[series] = missing[series].saturating_sub(1);
            seen[series] = true;
        }
        seen.into_iter().zip(missing).map(|(seen, missing)| seen.then_some(missing == 0)).collect()
    }

    /// Returns the shape that all trees of this part share.
    fn tree_shape(&self) -> Result<&TreeShape, SourceError> {
        let drawn = || {
            let part = self.tenant_block();
            let frames = part.read_frames()?;
            Ok(frames.shape(frames.len().min(part.meta.stacks as usize)))
        };
        self.inner.shape.get_or_make(drawn, TreeShape::bytes)
    }

    /// Returns the totals by stack of some profiles, while another thread runs the side task.
    fn sum_profiles(&self, picked: &[u32], beside: Option<&SideTask<'_>>) -> Result<Vec<i64>, SourceError> {
        let profiles = self.brief_profile_rows()?;
        let compute = &self.inner.compute;
        let ranges = sample_ranges(profiles, picked)?;
        let whole = self.fully_selected_series(profiles, picked);
        let totals = match whole.iter().all(|whole| *whole != Some(false)) {
            true => {
                let is_whole = |series: u32| whole.get(series as usize) == Some(&Some(true));
                scan::run_with_side_task(compute, beside, || self.tenant_block().sum_rollup(is_whole))
            }
            false => self.tenant_block().sum_with_side_task(&ranges, compute, beside),
        };
        Ok(totals?)
    }

    /// Visits the rows of some profiles, split at profile boundaries.
    fn for_each_profile_rows(
        &self,
        picked: &[u32],
        columns: SpanContextColumns,
        mut each: impl FnMut(u32, &[u32], &[i64], &[SpanContext]),
    ) -> Result<(), SourceError> {
        let profiles = self.brief_profile_rows()?;
        let ranges = sample_ranges(profiles, picked)?;
        let lengths = picked.iter().map(|&place| (place, profiles[place as usize].samples as usize));
        let mut lengths = lengths.filter(|(_, length)| *length > 0);
        let mut at = (0, 0);
        self.tenant_block().for_each_row(&ranges, columns, |mut stacks, mut values, mut requests| {
            while !stacks.is_empty() {
                if at.1 == 0 {
                    at = lengths.next().unwrap_or((0, stacks.len()));
                }
                let count = at.1.min(stacks.len());
                let (here, later) = requests.split_at(count.min(requests.len()));
                each(at.0, &stacks[..count], &values[..count], here);
                (stacks, values, requests) = (&stacks[count..], &values[count..], later);
                at.1 -= count;
            }
        })?;
        Ok(())
    }
}

impl ProfileSource for TenantBlockSource {
    fn series(&self) -> Result<Arc<[ProfileSeries]>, SourceError> {
        let bytes = |all: &Arc<[ProfileSeries]>| all.iter().map(ProfileSeries::memory).sum();
        self.inner.series.get_or_make(|| Ok(self.tenant_block().read_series()?.into()), bytes).cloned()
    }
    fn profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        self.decoded_profiles().cloned()
    }
    fn brief_profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        self.brief_profile_rows().cloned()
    }
    fn has_distinct_ids(&self) -> Result<bool, SourceError> {
        Ok(self.has_unique_ids()?)
    }
    fn is_downsampled(&self) -> bool {
        self.tenant_block().is_downsampled()
    }
    fn profile_totals(&self) -> Result<Option<Arc<[i64]>>, SourceError> {
        let totals = || Ok(self.tenant_block().read_profile_totals()?.into());
        match self.inner.profile_totals.get_or_make(totals, |all| size_of_val(&**all)) {
            Ok(all) => Ok(Some(Arc::clone(all))),
            Err(SourceError::Damaged(why)) => Err(SourceError::Damaged(why)),
            // The totals are unavailable. The caller computes them from the rows.
            Err(_) => Ok(None),
        }
    }
    fn totals(&self, picked: &[u32]) -> Result<Vec<i64>, SourceError> {
        self.sum_profiles(picked, None)
    }
    fn totals_for_tree(&self, picked: &[u32]) -> Result<Vec<i64>, SourceError> {
        let profiles = self.brief_profile_rows()?;
        let meant = picked.iter().filter_map(|&place| profiles.get(place as usize));
        let rows: u64 = meant.map(|profile| u64::from(profile.samples)).sum();
        // That many rows probably have most of the stacks. An error of reading the names is returned by a
        // later tree call.
        let is_wanted =
            self.inner.shape.get_if_ready().is_none() && rows > u64::from(self.tenant_block().meta.stacks);
        let draw = || drop(self.tree_shape());
        let draw: &SideTask<'_> = &draw;
        self.sum_profiles(picked, is_wanted.then_some(draw))
    }
    fn visit_rows(&self, picked: &[u32], each: &mut SourceRowVisitor<'_>) -> Result<(), SourceError> {
        let each = |place, stacks: &[u32], values: &[i64], _: &[SpanContext]| each(place, stacks, values);
        self.for_each_profile_rows(picked, SpanContextColumns::default(), each)
    }
    fn totals_of_spans(&self, picked: &[u32], wanted: &SpanFilter) -> Result<Vec<i64>, SourceError> {
        let ranges = sample_ranges(self.brief_profile_rows()?, picked)?;
        Ok(self
            .tenant_block()
            .sum_by_stack_of_requests(&ranges, &self.inner.compute, |request| wanted.contains(request))?)
    }
    fn visit_span_rows(
        &self,
        picked: &[u32],
        each: &mut SourceSpanRowVisitor<'_>,
    ) -> Result<(), SourceError> {
        self.for_each_profile_rows(picked, self.tenant_block().span_context_columns()?, each)
    }
    fn read_size(&self, picked: &[u32], whole: bool) -> Result<SourceReadSize, SourceError> {
        Ok(self.bytes_of_merge(picked, whole)?)
    }
    fn visit_names(&self, read: &mut SourceNameVisitor<'_>) -> Result<(), SourceError> {
        let bytes = |names: &BlockNames| names.dictionary.memory() + names.stacks.len() * size_of::<u32>();
        let names = self.inner.names.get_or_make(|| self.tenant_block().read_names(), bytes)?;
        read(&names.dictionary, &names.stacks);
        Ok(())
    }
    fn tree(&self, totals: &[i64]) -> Result<Tree, SourceError> {
        let other = || SourceError::Damaged("totals and names have different stacks".into());
        let stacks = totals.iter().filter(|total| **total != 0).count();
        if self.inner.shape.get_if_ready().is_some() || stacks > totals.len() / PARTIAL_TREE_DIVISOR {
            let shape = self.tree_shape()?;
            return if totals.len() > shape.stacks() {
                Err(other())
            } else {
                Ok(shape.tree_from_totals(totals))
            };
        }
        let frames =
            self.inner.frames.get_or_make(|| self.tenant_block().read_frames(), BlockFrames::bytes)?;
        if totals.len() > frames.len() { Err(other()) } else { Ok(frames.tree(totals)) }
    }
}

/// Returns the rows of `samples.parquet`, relative to the part, of profiles at ascending indexes.
pub(crate) fn sample_ranges(profiles: &[ProfileRow], picked: &[u32]) -> Result<Vec<Range<u64>>, SourceError> {
    let in_order = picked.is_sorted_by(|left, right| left < right);
    if !in_order || picked.last().is_some_and(|&last| last as usize >= profiles.len()) {
        let why = format!(
            "requested profiles are not among the {} profiles of the block, or out of order",
            profiles.len()
        );
        return Err(SourceError::Damaged(why));
    }
    let mut picked = picked.iter().peekable();
    let mut place = 0u32;
    Ok(TenantBlock::sample_ranges(profiles, |_| {
        place += 1;
        picked.next_if(|&&wanted| wanted == place - 1).is_some()
    }))
}

/// Value that is computed on first use, with its size in bytes. After a failure the next use retries.
struct LazyTable<T> {
    value: OnceLock<(T, usize)>,
    making: Mutex<()>,
}

impl<T> Default for LazyTable<T> {
    fn default() -> Self {
        LazyTable { value: OnceLock::new(), making: Mutex::new(()) }
    }
}

impl<T> LazyTable<T> {
    fn get_if_ready(&self) -> Option<&T> {
        self.value.get().map(|(value, _)| value)
    }
    fn bytes(&self) -> usize {
        self.value.get().map_or(0, |(_, bytes)| *bytes)
    }
    fn get_or_make(
        &self,
        make: impl FnOnce() -> Result<T, BlockError>,
        bytes: impl FnOnce(&T) -> usize,
    ) -> Result<&T, SourceError> {
        if let Some(known) = self.get_if_ready() {
            return Ok(known);
        }
        // One thread computes the value, the others wait for it.
        hold_slice(|| {
            let _making = self.making.lock();
            match self.get_if_ready() {
                Some(known) => Ok(known),
                None => {
                    let made = make()?;
                    let bytes = bytes(&made);
                    Ok(&self.value.get_or_init(|| (made, bytes)).0)
                }
            }
        })
    }
}
