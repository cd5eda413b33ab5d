//! Head of a shard: recent rows in memory, queryable, by tenant.
//!
//! A head is one generation of a shard's log. Its dictionaries only grow, and profiles are only added. So a
//! reader remembers the number of profiles and needs no lock in between.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use athanor_block::{MemoryProfiles, MemoryRow, MemoryRowVisitor};
use athanor_chassis::compute::yield_slice;
use athanor_chassis::{ComputePool, TenantId};
use athanor_profile::analysis::origin_table::{LocationWeights, OriginShape, OriginTable};
use athanor_profile::call_tree::tree::{FrameGrouping, Tree, TreeShape};
use athanor_profile::encoding::codec::{CodecError, CodecReader};
use athanor_profile::store_interface::dictionary_delta::{self, DictionaryMark};
use athanor_profile::store_interface::series::{ProfileRow, ProfileSeries};
use athanor_profile::store_interface::source::{
    ProfileSource, SourceError, SourceNameVisitor, SourceReadSize, SourceRowVisitor, SourceSpanRowVisitor,
};
use athanor_profile::{Dictionary, SpanContext};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::{Mutex, RwLock};

use crate::head_store::row_sums::{NextRowSums, RowSums};
use crate::head_store::rows;
use crate::head_store::sum_cache::{SumCache, SumError};
use crate::log::entry::{BatchUpload, ProfileRecord, TenantDictionaryDelta, UploadBatch};

/// Size of the pieces that hold packed rows, so that a head grows without copying.
const ROW_CHUNK_BYTES: usize = 1 << 20;
/// Divisor of the number of stacks. A tree with more stacks than this part uses a shared shape. A smaller
/// tree is built from its own stacks only.
const SHARED_TREE_DIVISOR: usize = 4;
/// Memory for the lookup of a series, bytes.
const SERIES_LOOKUP_BYTES: usize = 8;
/// Memory of a profile beside its rows, with its sum, bytes.
const PROFILE_OVERHEAD_BYTES: usize = size_of::<ProfileRow>() + size_of::<RowRange>() + size_of::<i64>();

/// Head of a shard: the rows of one generation of its log.
#[derive(Debug)]
pub struct Head {
    /// Token of its first batch; 0 before it is known.
    generation: AtomicU64,
    /// Log index before its first entry.
    from: AtomicU64,
    /// Log index of its last applied entry. In a closed head, no entry after this index builds on it.
    to: AtomicU64,
    /// True if the log has ended the generation: no more rows arrive.
    closed: AtomicBool,
    /// Arrival of its first profile by the node's monotonic clock, nanoseconds.
    born: AtomicU64,
    /// Bytes of profiles and their rows.
    bytes: AtomicUsize,
    /// Bytes of names and series.
    names: AtomicUsize,
    tenants: RwLock<BTreeMap<TenantId, Arc<RwLock<TenantRows>>>>,
}

/// Rows of one tenant in a head, with their dictionary and series.
#[derive(Debug, Default)]
pub struct TenantRows {
    /// Dictionary of the tenant's names.
    pub dictionary: Dictionary,
    /// Part of the dictionary that log entries contain.
    said: DictionaryMark,
    series: Vec<ProfileSeries>,
    /// Places in `series`, by content.
    series_ids: HashTable<u32>,
    hasher: RandomState,
    series_bytes: usize,
    /// Bytes of the series that log entries contain.
    series_bytes_said: usize,
    series_said: usize,
    profiles: Vec<ProfileRow>,
    /// First and last timestamp of a profile.
    times: Option<(i64, i64)>,
    places: Vec<RowRange>,
    pieces: Vec<Vec<u8>>,
    /// Shape of a tree of all stacks, for the dictionary as of its last use.
    shape: Mutex<Option<Arc<TreeShape>>>,
    /// Origins of all frames, for the dictionary as of its last use.
    origins: Mutex<Option<Arc<OriginShape>>>,
    /// Cached sums of queries. Shared, so that queries add up without the lock of the rows.
    sums: Arc<SumCache>,
    /// Sums of the first profiles, as of the last query.
    row_sums: Mutex<RowSums>,
}

/// Place of a profile's packed rows.
#[derive(Clone, Copy, Debug)]
struct RowRange {
    piece: u32,
    offset: u32,
    length: u32,
}

/// Snapshot of a tenant's rows in a head at the time of the request.
#[derive(Clone, Debug)]
pub struct HeadSnapshot {
    rows: Arc<RwLock<TenantRows>>,
    profiles: usize,
    compute: ComputePool,
    /// True if no client waits for the result. Checked before each profile.
    has_left: Arc<AtomicBool>,
}

/// Size of the heads of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadSize {
    /// Approximate memory of the profiles, bytes.
    pub bytes: u64,
    /// Records, each one value type of a profile.
    pub profiles: u64,
    /// Series, counted in each head.
    pub series: u64,
}

impl Head {
    /// Creates an empty head after an index of the log.
    pub fn new(from: u64) -> Self {
        Self {
            generation: AtomicU64::new(0),
            from: AtomicU64::new(from),
            to: AtomicU64::new(from),
            closed: AtomicBool::new(false),
            born: AtomicU64::new(0),
            bytes: AtomicUsize::new(0),
            names: AtomicUsize::new(0),
            tenants: RwLock::default(),
        }
    }
    /// Returns the log index before its first entry.
    pub fn start_index(&self) -> u64 {
        self.from.load(Ordering::Acquire)
    }
    /// Returns the log index of its last applied entry.
    pub fn last_index(&self) -> u64 {
        self.to.load(Ordering::Acquire)
    }
    /// Returns the arrival of its first profile, by the node's monotonic clock.
    pub fn first_profile_at(&self) -> Duration {
        Duration::from_nanos(self.born.load(Ordering::Relaxed))
    }
    /// Sets the arrival of its first profile.
    pub(crate) fn set_first_profile_at(&self, now: Duration) {
        self.born.store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
    /// Returns its approximate memory, names included, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) + self.names.load(Ordering::Relaxed)
    }
    /// Adds the memory of names that a tenant's rows gained since it was `before`.
    pub(crate) fn add_name_bytes(&self, rows: &TenantRows, before: usize) {
        self.names.fetch_add(rows.memory().saturating_sub(before), Ordering::Relaxed);
    }
    /// Returns the generation that it holds.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
    /// Sets the generation that it holds.
    pub(crate) fn set_generation(&self, generation: u64) {
        self.generation.store(generation, Ordering::Release);
    }
    /// Sets the index at which the head before it ended.
    pub(crate) fn set_start_index(&self, index: u64) {
        self.from.store(index, Ordering::Release);
        self.to.fetch_max(index, Ordering::AcqRel);
    }
    /// Closes the head: no more rows arrive.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
    /// Returns whether no more rows arrive.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
    /// Returns whether the head holds no profile.
    pub fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) == 0
    }
    /// Returns a tenant's rows, and creates them if there are none.
    pub fn rows(&self, tenant: &TenantId) -> Arc<RwLock<TenantRows>> {
        if let Some(rows) = self.tenants.read().get(tenant) {
            return Arc::clone(rows);
        }
        let make = || {
            let rows = TenantRows::default();
            self.add_name_bytes(&rows, 0);
            Arc::new(RwLock::new(rows))
        };
        Arc::clone(self.tenants.write().entry(tenant.clone()).or_insert_with(make))
    }
    /// Returns a snapshot of a tenant's rows; none without profiles.
    pub fn view(&self, tenant: &TenantId) -> Option<HeadSnapshot> {
        let rows = self.tenants.read().get(tenant).map(Arc::clone)?;
        let profiles = rows.read().profiles.len();
        (profiles > 0).then_some(HeadSnapshot {
            rows,
            profiles,
            compute: ComputePool::inline(),
            has_left: Arc::default(),
        })
    }
    /// Returns a snapshot of each tenant with profiles.
    pub fn views(&self) -> Vec<(TenantId, HeadSnapshot)> {
        let tenants: Vec<TenantId> = self.tenants.read().keys().cloned().collect();
        tenants.into_iter().filter_map(|tenant| self.view(&tenant).map(|view| (tenant, view))).collect()
    }
    /// Returns the tenants with profiles in the head.
    pub(crate) fn tenants(&self) -> Vec<TenantId> {
        let tenants = self.tenants.read();
        let has_profiles = |rows: &Arc<RwLock<TenantRows>>| !rows.read().profiles.is_empty();
        tenants.iter().filter(|(_, rows)| has_profiles(rows)).map(|(tenant, _)| tenant.clone()).collect()
    }
    /// Returns the number of tenants with names in the head.
    pub(crate) fn tenant_count(&self) -> usize {
        self.tenants.read().len()
    }
    /// Returns the size of the head.
    pub(crate) fn size(&self) -> HeadSize {
        let mut size = HeadSize { bytes: self.bytes() as u64, ..HeadSize::default() };
        for rows in self.tenants.read().values() {
            let rows = rows.read();
            size.profiles += rows.profiles.len() as u64;
            size.series += rows.series.len() as u64;
        }
        size
    }
    /// Marks an entry as applied.
    pub(crate) fn mark_applied(&self, index: u64) {
        self.to.fetch_max(index, Ordering::AcqRel);
    }
    /// Adds the names and series of a batch from its bytes. Used for batches that this process did not
    /// propose.
    pub(crate) fn apply_dictionary_delta(
        &self,
        part: &TenantDictionaryDelta,
        tenant: &TenantId,
    ) -> Result<(), CodecError> {
        let rows = self.rows(tenant);
        let mut rows = rows.write();
        let before = rows.memory();
        dictionary_delta::read(&mut rows.dictionary, &mut CodecReader::new(&part.names))?;
        if rows.series.len() != part.known_series as usize {
            return Err(CodecError { at: 0, why: "preceding series are missing" });
        }
        part.series.iter().for_each(|series| {
            rows.series_id(series.clone());
        });
        rows.mark_logged();
        self.add_name_bytes(&rows, before);
        Ok(())
    }
    /// Publishes the records of an upload that are no duplicates.
    pub(crate) fn publish_upload(
        &self,
        tenant: &TenantId,
        batch: &UploadBatch,
        upload: &BatchUpload,
        new: &[bool],
    ) {
        let rows = self.rows(tenant);
        let mut rows = rows.write();
        let mut bytes = 0;
        // A record without samples only marks a restart of its process.
        let shown = |(record, new): &(&ProfileRecord, &bool)| **new && record.samples > 0;
        for (record, _) in upload.records.iter().zip(new).filter(shown) {
            let packed = &batch.rows[record.rows.clone()];
            let place = rows.keep(packed);
            rows.places.push(place);
            let (first, last) = rows.times.unwrap_or((record.time, record.time));
            rows.times = Some((first.min(record.time), last.max(record.time)));
            let series = record.series;
            let time = record.time;
            let id = record.id;
            let duration = record.duration;
            let period = record.period;
            let samples = record.samples;
            rows.profiles.push(ProfileRow { series, time, id, duration, period, samples });
            bytes += packed.len() + PROFILE_OVERHEAD_BYTES;
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl TenantRows {
    /// Returns the id of a series, and assigns one if it is new.
    pub fn series_id(&mut self, series: ProfileSeries) -> u32 {
        let Self { series_ids, hasher, series: all, .. } = self;
        let hash = hasher.hash_one(&series);
        let is_it = |&id: &u32| all[id as usize] == series;
        match series_ids.entry(hash, is_it, |&id| hasher.hash_one(&all[id as usize])) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                let id = all.len() as u32;
                place.insert(id);
                self.series_bytes += series.memory() + SERIES_LOOKUP_BYTES;
                all.push(series);
                id
            }
        }
    }
    /// Returns the number of series.
    pub(crate) fn series_count(&self) -> usize {
        self.series.len()
    }
    /// Returns whether a series is present.
    pub(crate) fn has_series(&self, series: &ProfileSeries) -> bool {
        let is_it = |&id: &u32| self.series[id as usize] == *series;
        self.series_ids.find(self.hasher.hash_one(series), is_it).is_some()
    }
    /// Returns the approximate memory of names and series, bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of::<TenantRows>() + self.dictionary.memory() + self.series_bytes
    }
    /// Returns the names and series that no log entry contains yet.
    pub(crate) fn unlogged_delta(&self, tenant: String) -> TenantDictionaryDelta {
        let mut names = Vec::new();
        dictionary_delta::write(&self.dictionary, self.said, &mut names);
        let series = self.series[self.series_said..].to_vec();
        TenantDictionaryDelta { tenant, names, known_series: self.series_said as u32, series }
    }
    /// Returns an upper bound of the bytes that no log entry contains yet.
    pub(crate) fn unlogged_bytes(&self) -> usize {
        dictionary_delta::max_written_bytes(&self.dictionary, self.said) + self.series_bytes
            - self.series_bytes_said
    }
    /// Marks all names and series as logged.
    pub(crate) fn mark_logged(&mut self) {
        self.said = DictionaryMark::end_of(&self.dictionary);
        self.series_said = self.series.len();
        self.series_bytes_said = self.series_bytes;
    }
    fn keep(&mut self, packed: &[u8]) -> RowRange {
        if self.pieces.last().is_none_or(|piece| piece.len() + packed.len() > piece.capacity()) {
            // Small heads stay small.
            let wanted = self.pieces.last().map_or(4096, |piece| piece.capacity() * 2).min(ROW_CHUNK_BYTES);
            self.pieces.push(Vec::with_capacity(wanted.max(packed.len())));
        }
        let number = self.pieces.len() - 1;
        let piece = &mut self.pieces[number];
        let offset = piece.len() as u32;
        piece.extend_from_slice(packed);
        RowRange { piece: number as u32, offset, length: packed.len() as u32 }
    }
    /// Returns the shape of a tree of all stacks, rebuilt only if there are new stacks.
    fn shape(&self) -> Arc<TreeShape> {
        let mut kept = self.shape.lock();
        let current = kept.as_ref().filter(|shape| shape.stacks() == self.dictionary.stacks.len());
        match current {
            Some(shape) => Arc::clone(shape),
            None => Arc::clone(kept.insert(Arc::new(TreeShape::from_dictionary(&self.dictionary)))),
        }
    }
    /// Returns the origins of all frames without weights, rebuilt only if there are new locations.
    fn origin_shape(&self) -> Arc<OriginShape> {
        let mut last = self.origins.lock();
        let locations = self.dictionary.symbols.locations().len();
        match last.as_ref().filter(|shape| shape.location_count() == locations) {
            Some(shape) => Arc::clone(shape),
            None => {
                let shape = OriginShape::from_dictionary(&self.dictionary, FrameGrouping::Function);
                Arc::clone(last.insert(Arc::new(shape)))
            }
        }
    }
    fn packed(&self, profile: u32) -> &[u8] {
        let RowRange { piece, offset, length } = self.places[profile as usize];
        &self.pieces[piece as usize][offset as usize..][..length as usize]
    }
}

impl HeadSnapshot {
    /// Sets the threads on which sums are computed.
    pub(crate) fn with_compute(self, compute: &ComputePool) -> Self {
        Self { compute: compute.clone(), ..self }
    }
    /// Returns the approximate memory of all rows of the tenant, names included.
    pub fn bytes(&self) -> usize {
        let rows = self.rows.read();
        let packed: usize = rows.pieces.iter().map(Vec::len).sum();
        rows.memory() + packed + rows.profiles.len() * PROFILE_OVERHEAD_BYTES
    }
    /// Returns the same snapshot with a flag by which its client cancels.
    #[must_use]
    pub fn with_cancel(&self, has_left: &Arc<AtomicBool>) -> Self {
        Self { has_left: Arc::clone(has_left), ..self.clone() }
    }
    /// Returns the first and the last timestamp of a profile.
    pub fn times(&self) -> Option<(i64, i64)> {
        self.rows.read().times
    }
    /// Yields between profiles, without the lock of the rows: other jobs may run here.
    fn go_on(&self) -> Result<(), SourceError> {
        yield_slice();
        if self.has_left.load(Ordering::Relaxed) { Err(SourceError::Left) } else { Ok(()) }
    }
    /// Adds up the profiles that no query has read before, then reads the sums. Sums of a query that is cancelled stay.
    fn read_sums<T>(&self, read: impl FnOnce(&RowSums) -> T) -> Result<T, SourceError> {
        let mut next = self.rows.read().row_sums.lock().begin_next();
        let added = self.add_sums(&mut next);
        let rows = self.rows.read();
        let mut sums = rows.row_sums.lock();
        sums.extend(next);
        added.map(|()| read(&sums))
    }
    fn add_sums(&self, next: &mut NextRowSums) -> Result<(), SourceError> {
        while next.end() < self.profiles {
            self.go_on()?;
            let pushed = next.push(self.rows.read().packed(next.end() as u32));
            pushed.map_err(|error| damaged(&error))?;
        }
        Ok(())
    }
}

impl MemoryProfiles for HeadSnapshot {
    fn for_each_row(&self, picked: &[u32], each: &mut MemoryRowVisitor<'_>) -> Result<(), SourceError> {
        for &profile in picked {
            self.go_on()?;
            let rows = self.rows.read();
            let walked = rows::for_each_timed_row(rows.packed(profile), |row, moments| {
                let rows::HeadRow { stack, span, trace, value } = row;
                each(profile, MemoryRow { stack, span, trace, value, moments });
            });
            walked.map_err(|error| damaged(&error))?;
        }
        Ok(())
    }
}

/// Returns whether a tree of these totals uses a shape of all stacks.
fn is_shape_worth_it(totals: &[i64], dictionary: &Dictionary) -> Result<bool, SourceError> {
    if totals.len() > dictionary.stacks.len() {
        return Err(SourceError::Damaged("totals and names are of different stacks".into()));
    }
    let stacks = totals.iter().filter(|total| **total != 0).count();
    Ok(stacks > totals.len() / SHARED_TREE_DIVISOR)
}

fn damaged(error: &CodecError) -> SourceError {
    SourceError::Damaged(format!("rows in memory: {error}"))
}

impl ProfileSource for HeadSnapshot {
    fn series(&self) -> Result<Arc<[ProfileSeries]>, SourceError> {
        Ok(self.rows.read().series.as_slice().into())
    }
    fn profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        Ok(self.rows.read().profiles[..self.profiles].into())
    }
    fn profile_totals(&self) -> Result<Option<Arc<[i64]>>, SourceError> {
        self.read_sums(|sums| sums.totals(self.profiles).map(Arc::from))
    }
    /// Returns the bound of all profiles.
    fn max_sum(&self, _picked: &[u32]) -> Result<Option<u64>, SourceError> {
        self.read_sums(|sums| Some(sums.magnitude()))
    }
    fn totals(&self, picked: &[u32]) -> Result<Vec<i64>, SourceError> {
        let (stacks, sums) = {
            let rows = self.rows.read();
            (rows.dictionary.stacks.len(), Arc::clone(&rows.sums))
        };
        // New rows may be added between two profiles.
        let totals = sums.totals(picked, stacks, &self.compute, |profile, factor, totals| {
            self.go_on().map_err(|_| SumError::Left)?;
            let rows = self.rows.read();
            let walked = rows::for_each_row(rows.packed(profile), |row| {
                if let Some(total) = totals.get_mut(row.stack as usize) {
                    *total = total.wrapping_add(row.value.wrapping_mul(factor));
                }
            });
            Ok(walked?)
        });
        totals.map_err(|error| match error {
            SumError::Left => SourceError::Left,
            error => SourceError::Damaged(format!("rows in memory: {error}")),
        })
    }
    fn visit_rows(&self, picked: &[u32], each: &mut SourceRowVisitor<'_>) -> Result<(), SourceError> {
        let mut stacks = Vec::new();
        let mut values = Vec::new();
        for &profile in picked {
            self.go_on()?;
            stacks.clear();
            values.clear();
            let walked = rows::for_each_row(self.rows.read().packed(profile), |row| {
                stacks.push(row.stack);
                values.push(row.value);
            });
            walked.map_err(|error| damaged(&error))?;
            each(profile, &stacks, &values);
        }
        Ok(())
    }
    fn visit_span_rows(
        &self,
        picked: &[u32],
        each: &mut SourceSpanRowVisitor<'_>,
    ) -> Result<(), SourceError> {
        let mut stacks = Vec::new();
        let mut values = Vec::new();
        let mut requests = Vec::new();
        for &profile in picked {
            self.go_on()?;
            stacks.clear();
            values.clear();
            requests.clear();
            let rows = self.rows.read();
            let walked =
                rows::for_each_row(rows.packed(profile), |rows::HeadRow { stack, span, trace, value }| {
                    stacks.push(stack);
                    values.push(value);
                    requests.push(SpanContext { span, trace });
                });
            drop(rows);
            walked.map_err(|error| damaged(&error))?;
            each(profile, &stacks, &values, &requests);
        }
        Ok(())
    }
    fn read_size(&self, picked: &[u32], _whole: bool) -> Result<SourceReadSize, SourceError> {
        let rows = self.rows.read();
        let packed: usize = picked.iter().map(|&profile| rows.packed(profile).len()).sum();
        Ok(SourceReadSize {
            is_block: false,
            index: (rows.series_bytes + self.profiles * size_of::<ProfileRow>()) as u64,
            rows: packed as u64,
            names: rows.dictionary.memory() as u64,
        })
    }
    fn with_cancellation(&self, has_left: &Arc<AtomicBool>) -> Option<Arc<dyn ProfileSource>> {
        Some(Arc::new(self.with_cancel(has_left)))
    }
    fn tree_with_origins(&self, totals: &[i64]) -> Result<(Tree, OriginTable), SourceError> {
        let tree = self.tree(totals)?;
        let rows = self.rows.read();
        if !is_shape_worth_it(totals, &rows.dictionary)? {
            let origins = OriginTable::from_totals(&rows.dictionary, totals, FrameGrouping::Function);
            return Ok((tree, origins));
        }
        let shape = rows.origin_shape();
        let weights = LocationWeights::from_totals(&rows.dictionary, totals);
        drop(rows);
        Ok((tree, shape.table(&weights)))
    }
    fn tree(&self, totals: &[i64]) -> Result<Tree, SourceError> {
        let rows = self.rows.read();
        Ok(match is_shape_worth_it(totals, &rows.dictionary)? {
            true => {
                let shape = rows.shape();
                drop(rows);
                shape.tree_from_totals(totals)
            }
            false => Tree::from_totals(&rows.dictionary, totals),
        })
    }
    fn visit_names(&self, names: &mut SourceNameVisitor<'_>) -> Result<(), SourceError> {
        let rows = self.rows.read();
        let same: Vec<u32> = (0..rows.dictionary.stacks.len() as u32).collect();
        names(&rows.dictionary, &same);
        Ok(())
    }
}
