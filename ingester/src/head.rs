//! The head: recent rows in memory, queryable, by tenant.
//!
//! A head is one generation of a shard's log. Its dictionaries only grow, its profiles are only added: so whoever
//! looks remembers how many profiles there were and needs no lock in between.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use athanor_block::{EachRow, Held, HeldRow};
use athanor_chassis::compute::yield_slice;
use athanor_chassis::{Compute, TenantId};
use athanor_profile::growth::{self, Mark};
use athanor_profile::packed::{PackedError, Unpacker};
use athanor_profile::series::{ProfileRow, Series};
use athanor_profile::source::{EachRequests, EachRows, Extent, ReadNames, Source, SourceError};
use athanor_profile::tree::{Shape, Tree};
use athanor_profile::{Dictionary, Request};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::entry::{Admitted, Batch, Record, TenantPart};
use crate::rows;
use crate::stats::HeadSize;
use crate::sums::{SumError, Sums};

/// Packed rows lie in pieces of this size, so that a head grows without copying.
const PIECE: usize = 1 << 20;
/// A tree of this part of all stacks is drawn once for all; of fewer, only what they need is drawn.
const MANY: usize = 4;
/// What it takes to find a series.
const SERIES_OVERHEAD: usize = 8;
/// What a profile takes beside its rows.
const OVERHEAD: usize = size_of::<ProfileRow>() + size_of::<Place>();

/// One generation of a shard's log.
#[derive(Debug)]
pub struct Head {
    /// The token of its first batch; 0 before that is known.
    generation: AtomicU64,
    /// The index before its first entry.
    from: AtomicU64,
    /// The index of its last applied entry; where it is over, of the last before which nothing builds on it.
    to: AtomicU64,
    /// Nothing comes to it any more, as the log says.
    closed: AtomicBool,
    /// When its first profile came, by the node's monotonic clock, nanoseconds.
    born: AtomicU64,
    /// Bytes of profiles and their rows.
    bytes: AtomicUsize,
    /// Bytes of names and series.
    names: AtomicUsize,
    tenants: RwLock<BTreeMap<TenantId, Arc<RwLock<Rows>>>>,
}

/// One tenant's rows.
#[derive(Debug, Default)]
pub struct Rows {
    /// The names.
    pub dictionary: Dictionary,
    /// How much of the dictionary the log has said.
    said: Mark,
    series: Vec<Series>,
    /// Places in `series`, by their content.
    series_ids: HashTable<u32>,
    hasher: RandomState,
    series_bytes: usize,
    /// Those of series that the log has said.
    series_bytes_said: usize,
    series_said: usize,
    profiles: Vec<ProfileRow>,
    /// The first and the last time of a profile.
    times: Option<(i64, i64)>,
    places: Vec<Place>,
    pieces: Vec<Vec<u8>>,
    /// What trees of all stacks look like, of the dictionary as it was.
    shape: Mutex<Option<Arc<Shape>>>,
    /// What was added up for queries. Shared, so that queries add up without the lock of the rows.
    sums: Arc<Sums>,
}

/// Where a profile's packed rows lie.
#[derive(Clone, Copy, Debug)]
struct Place {
    piece: u32,
    offset: u32,
    length: u32,
}

/// A tenant's rows in a head, as they were when it was asked for.
#[derive(Clone, Debug)]
pub struct View {
    rows: Arc<RwLock<Rows>>,
    profiles: usize,
    compute: Compute,
    /// Whether nobody waits for what is read. Looked at before each profile.
    has_left: Arc<AtomicBool>,
}

impl Head {
    /// An empty one, after an index of the log.
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
    /// The index before its first entry.
    pub fn from(&self) -> u64 {
        self.from.load(Ordering::Acquire)
    }
    /// The index of its last applied entry.
    pub fn to(&self) -> u64 {
        self.to.load(Ordering::Acquire)
    }
    /// When its first profile came.
    pub fn born(&self) -> Duration {
        Duration::from_nanos(self.born.load(Ordering::Relaxed))
    }
    /// Says when its first profile comes.
    pub(crate) fn bear(&self, now: Duration) {
        self.born.store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
    /// About how much memory it takes, names included.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) + self.names.load(Ordering::Relaxed)
    }
    /// Counts names that a tenant's rows have learnt since they took so much memory.
    pub(crate) fn learnt(&self, rows: &Rows, before: usize) {
        self.names.fetch_add(rows.memory().saturating_sub(before), Ordering::Relaxed);
    }
    /// Which generation it holds.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
    /// Says which generation it holds.
    pub(crate) fn holds(&self, generation: u64) {
        self.generation.store(generation, Ordering::Release);
    }
    /// Says where the head before it ended.
    pub(crate) fn begin_after(&self, index: u64) {
        self.from.store(index, Ordering::Release);
        self.to.fetch_max(index, Ordering::AcqRel);
    }
    /// Nothing comes to it any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
    /// Whether nothing comes to it any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
    /// Whether it holds no profile.
    pub fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) == 0
    }
    /// A tenant's rows, made if there are none.
    pub fn rows(&self, tenant: &TenantId) -> Arc<RwLock<Rows>> {
        if let Some(rows) = read(&self.tenants).get(tenant) {
            return Arc::clone(rows);
        }
        let make = || {
            let rows = Rows::default();
            self.learnt(&rows, 0);
            Arc::new(RwLock::new(rows))
        };
        Arc::clone(write(&self.tenants).entry(tenant.clone()).or_insert_with(make))
    }
    /// What there is of a tenant now.
    pub fn view(&self, tenant: &TenantId) -> Option<View> {
        let rows = read(&self.tenants).get(tenant).map(Arc::clone)?;
        let profiles = read(&rows).profiles.len();
        (profiles > 0).then_some(View {
            rows,
            profiles,
            compute: Compute::inline(),
            has_left: Arc::default(),
        })
    }
    /// What there is of every tenant now.
    pub fn views(&self) -> Vec<(TenantId, View)> {
        let tenants: Vec<TenantId> = read(&self.tenants).keys().cloned().collect();
        tenants.into_iter().filter_map(|tenant| self.view(&tenant).map(|view| (tenant, view))).collect()
    }
    /// The tenants that it holds profiles of.
    pub(crate) fn tenants(&self) -> Vec<TenantId> {
        let tenants = read(&self.tenants);
        let has_profiles = |rows: &Arc<RwLock<Rows>>| !read(rows).profiles.is_empty();
        tenants.iter().filter(|(_, rows)| has_profiles(rows)).map(|(tenant, _)| tenant.clone()).collect()
    }
    /// How many tenants it has names of.
    pub(crate) fn tenant_count(&self) -> usize {
        read(&self.tenants).len()
    }
    /// How much it holds.
    pub(crate) fn size(&self) -> HeadSize {
        let mut size = HeadSize { bytes: self.bytes() as u64, ..HeadSize::default() };
        for rows in read(&self.tenants).values() {
            let rows = read(rows);
            size.profiles += rows.profiles.len() as u64;
            size.series += rows.series.len() as u64;
        }
        size
    }
    /// Marks an entry as applied.
    pub(crate) fn reached(&self, index: u64) {
        self.to.fetch_max(index, Ordering::AcqRel);
    }
    /// Learns what a batch says, from its bytes: for whoever did not propose it.
    pub(crate) fn learn(&self, part: &TenantPart, tenant: &TenantId) -> Result<(), PackedError> {
        let rows = self.rows(tenant);
        let mut rows = write(&rows);
        let before = rows.memory();
        growth::read(&mut rows.dictionary, &mut Unpacker::new(&part.names))?;
        if rows.series.len() != part.known_series as usize {
            return Err(PackedError { at: 0, why: "series that come after others, which are not here" });
        }
        part.series.iter().for_each(|series| {
            rows.series_id(series.clone());
        });
        rows.mark_said();
        self.learnt(&rows, before);
        Ok(())
    }
    /// Shows the records of an upload that are no repeats.
    pub(crate) fn show(&self, tenant: &TenantId, batch: &Batch, upload: &Admitted, new: &[bool]) {
        let rows = self.rows(tenant);
        let mut rows = write(&rows);
        let mut bytes = 0;
        // One without samples says only that its process began anew.
        let shown = |(record, new): &(&Record, &bool)| **new && record.samples > 0;
        for (record, _) in upload.records.iter().zip(new).filter(shown) {
            let packed = &batch.rows[record.rows.clone()];
            let place = rows.keep(packed);
            rows.places.push(place);
            let (first, last) = rows.times.unwrap_or((record.time, record.time));
            rows.times = Some((first.min(record.time), last.max(record.time)));
            let (series, time, id, duration) = (record.series, record.time, record.id, record.duration);
            let (period, samples) = (record.period, record.samples);
            rows.profiles.push(ProfileRow { series, time, id, duration, period, samples });
            bytes += packed.len() + OVERHEAD;
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Rows {
    /// The id of a series, made if it is new.
    pub fn series_id(&mut self, series: Series) -> u32 {
        let Self { series_ids, hasher, series: all, .. } = self;
        let hash = hasher.hash_one(&series);
        let is_it = |&id: &u32| all[id as usize] == series;
        match series_ids.entry(hash, is_it, |&id| hasher.hash_one(&all[id as usize])) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                let id = all.len() as u32;
                place.insert(id);
                self.series_bytes += series.memory() + SERIES_OVERHEAD;
                all.push(series);
                id
            }
        }
    }
    /// How many series there are.
    pub(crate) fn series_count(&self) -> usize {
        self.series.len()
    }
    /// Whether a series is there.
    pub(crate) fn knows(&self, series: &Series) -> bool {
        let is_it = |&id: &u32| self.series[id as usize] == *series;
        self.series_ids.find(self.hasher.hash_one(series), is_it).is_some()
    }
    /// About how much memory names and series take.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Rows>() + self.dictionary.memory() + self.series_bytes
    }
    /// What the log has not said yet of a tenant.
    pub(crate) fn unsaid(&self, tenant: String) -> TenantPart {
        let mut names = Vec::new();
        growth::write(&self.dictionary, self.said, &mut names);
        let series = self.series[self.series_said..].to_vec();
        TenantPart { tenant, names, known_series: self.series_said as u32, series }
    }
    /// The most bytes that the log has not said yet.
    pub(crate) fn unsaid_bytes(&self) -> usize {
        growth::bound(&self.dictionary, self.said) + self.series_bytes - self.series_bytes_said
    }
    /// The log says all of it now.
    pub(crate) fn mark_said(&mut self) {
        self.said = Mark::of(&self.dictionary);
        self.series_said = self.series.len();
        self.series_bytes_said = self.series_bytes;
    }
    fn keep(&mut self, packed: &[u8]) -> Place {
        if self.pieces.last().is_none_or(|piece| piece.len() + packed.len() > piece.capacity()) {
            // Small heads stay small.
            let wanted = self.pieces.last().map_or(4096, |piece| piece.capacity() * 2).min(PIECE);
            self.pieces.push(Vec::with_capacity(wanted.max(packed.len())));
        }
        let number = self.pieces.len() - 1;
        let piece = &mut self.pieces[number];
        let offset = piece.len() as u32;
        piece.extend_from_slice(packed);
        Place { piece: number as u32, offset, length: packed.len() as u32 }
    }
    /// What trees look like, drawn anew only where there are new stacks.
    fn shape(&self) -> Arc<Shape> {
        let mut kept = self.shape.lock().unwrap_or_else(PoisonError::into_inner);
        let current = kept.as_ref().filter(|shape| shape.stacks() == self.dictionary.stacks.len());
        match current {
            Some(shape) => Arc::clone(shape),
            None => Arc::clone(kept.insert(Arc::new(Shape::of(&self.dictionary)))),
        }
    }
    fn packed(&self, profile: u32) -> &[u8] {
        let Place { piece, offset, length } = self.places[profile as usize];
        &self.pieces[piece as usize][offset as usize..][..length as usize]
    }
}

impl View {
    /// Adds up on so many threads.
    pub(crate) fn on(self, compute: &Compute) -> Self {
        Self { compute: compute.clone(), ..self }
    }
    /// About how much memory all rows of the tenant take, names included.
    pub fn bytes(&self) -> usize {
        let rows = read(&self.rows);
        let packed: usize = rows.pieces.iter().map(Vec::len).sum();
        rows.memory() + packed + rows.profiles.len() * OVERHEAD
    }
    /// The same for one who may leave, which is then said here.
    #[must_use]
    pub fn until(&self, has_left: &Arc<AtomicBool>) -> Self {
        Self { has_left: Arc::clone(has_left), ..self.clone() }
    }
    /// The first and the last time of a profile.
    pub fn times(&self) -> Option<(i64, i64)> {
        read(&self.rows).times
    }
    /// Called between profiles, without the lock of the rows: other jobs may run here.
    fn go_on(&self) -> Result<(), SourceError> {
        yield_slice();
        if self.has_left.load(Ordering::Relaxed) { Err(SourceError::Left) } else { Ok(()) }
    }
}

impl Held for View {
    fn each_row(&self, picked: &[u32], each: &mut EachRow<'_>) -> Result<(), SourceError> {
        for &profile in picked {
            self.go_on()?;
            let rows = read(&self.rows);
            let walked = rows::each_with_moments(rows.packed(profile), |row, moments| {
                let rows::Row { stack, span, trace, value } = row;
                each(profile, HeldRow { stack, span, trace, value, moments });
            });
            walked.map_err(|error| damaged(&error))?;
        }
        Ok(())
    }
}

fn damaged(error: &PackedError) -> SourceError {
    SourceError::Damaged(format!("rows in memory: {error}"))
}

impl Source for View {
    fn series(&self) -> Result<Arc<[Series]>, SourceError> {
        Ok(read(&self.rows).series.as_slice().into())
    }
    fn profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        Ok(read(&self.rows).profiles[..self.profiles].into())
    }
    fn totals(&self, picked: &[u32]) -> Result<Vec<i64>, SourceError> {
        let (stacks, sums) = {
            let rows = read(&self.rows);
            (rows.dictionary.stacks.len(), Arc::clone(&rows.sums))
        };
        // New rows are added between two profiles.
        let totals = sums.totals(picked, stacks, &self.compute, |profile, factor, totals| {
            self.go_on().map_err(|_| SumError::Left)?;
            let rows = read(&self.rows);
            let walked = rows::each(rows.packed(profile), |row| {
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
    fn rows(&self, picked: &[u32], each: &mut EachRows<'_>) -> Result<(), SourceError> {
        let (mut stacks, mut values) = (Vec::new(), Vec::new());
        for &profile in picked {
            self.go_on()?;
            stacks.clear();
            values.clear();
            let walked = rows::each(read(&self.rows).packed(profile), |row| {
                stacks.push(row.stack);
                values.push(row.value);
            });
            walked.map_err(|error| damaged(&error))?;
            each(profile, &stacks, &values);
        }
        Ok(())
    }
    fn rows_of_requests(&self, picked: &[u32], each: &mut EachRequests<'_>) -> Result<(), SourceError> {
        let (mut stacks, mut values, mut requests) = (Vec::new(), Vec::new(), Vec::new());
        for &profile in picked {
            self.go_on()?;
            stacks.clear();
            values.clear();
            requests.clear();
            let rows = read(&self.rows);
            let walked = rows::each(rows.packed(profile), |rows::Row { stack, span, trace, value }| {
                stacks.push(stack);
                values.push(value);
                requests.push(Request { span, trace });
            });
            drop(rows);
            walked.map_err(|error| damaged(&error))?;
            each(profile, &stacks, &values, &requests);
        }
        Ok(())
    }
    fn extent(&self, picked: &[u32], _whole: bool) -> Result<Extent, SourceError> {
        let rows = read(&self.rows);
        let packed: usize = picked.iter().map(|&profile| rows.packed(profile).len()).sum();
        Ok(Extent {
            is_block: false,
            index: (rows.series_bytes + self.profiles * size_of::<ProfileRow>()) as u64,
            rows: packed as u64,
            names: rows.dictionary.memory() as u64,
        })
    }
    fn until_left(&self, has_left: &Arc<AtomicBool>) -> Option<Arc<dyn Source>> {
        Some(Arc::new(self.until(has_left)))
    }
    fn tree(&self, totals: &[i64]) -> Result<Tree, SourceError> {
        let rows = read(&self.rows);
        let stacks = totals.iter().filter(|total| **total != 0).count();
        if totals.len() > rows.dictionary.stacks.len() {
            return Err(SourceError::Damaged("totals are of other stacks than names".into()));
        }
        Ok(match stacks > totals.len() / MANY {
            true => {
                let shape = rows.shape();
                drop(rows);
                shape.tree(totals)
            }
            false => Tree::from_totals(&rows.dictionary, totals),
        })
    }
    fn names(&self, names: &mut ReadNames<'_>) -> Result<(), SourceError> {
        let rows = read(&self.rows);
        let same: Vec<u32> = (0..rows.dictionary.stacks.len() as u32).collect();
        names(&rows.dictionary, &same);
        Ok(())
    }
}

/// A lock for reading. A panic elsewhere leaves whole rows behind: they are added one by one.
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// A lock for writing.
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
