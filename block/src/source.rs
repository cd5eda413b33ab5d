//! One tenant's part of an open block as a source of queries.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use athanor_chassis::Stop;
use athanor_chassis::compute::{Compute, hold_slice};
use athanor_profile::series::{ProfileRow, Series};
use athanor_profile::source::{EachRequests, EachRows, Extent, ReadNames, Source, SourceError};
use athanor_profile::tree::{Shape, Tree};
use athanor_profile::{Request, RequestFilter};
use parquet::data_type::ByteArray;

use crate::error::BlockError;
use crate::frames::Frames;
use crate::meta::SERIES;
use crate::names::Names;
use crate::reach::ProfileColumns;
use crate::read::{Block, Part};
use crate::request::RequestColumns;
use crate::scan::{self, Beside};

/// Answers from a part of a block. Tables of series, profiles and names are decoded when first asked for, once, and
/// kept; samples and the roll-up are read each time. Clones share what is kept.
#[derive(Clone)]
pub struct PartSource {
    inner: Arc<Inner>,
    /// Of this one, not of its clones.
    stop: Stop,
}

struct Inner {
    block: Arc<Block>,
    /// Place of the tenant in the block.
    tenant: usize,
    compute: Compute,
    series: Lazy<Arc<[Series]>>,
    profiles: Lazy<Arc<[ProfileRow]>>,
    /// Where that is not known.
    brief: Lazy<Arc<[ProfileRow]>>,
    profile_totals: Lazy<Arc<[i64]>>,
    names: Lazy<Names>,
    frames: Lazy<Frames>,
    shape: Lazy<Shape>,
}

/// A tree of this part of all stacks is drawn once for all: later ones take additions only. Of fewer, only what they
/// need is drawn.
const MANY: usize = 4;

/// The column of the names of labels.
const LABELS: usize = 2;
/// What a label takes: as it is read, its name and its value with their levels, and as it is kept, in a list that has grown,
/// with what an allocation of a short text takes.
const LABEL: usize = 2 * (size_of::<ByteArray>() + 2 * size_of::<i16>() + 2 * size_of::<String>() + 32);
/// What a series takes beside its labels: as it is read, and as it is kept, twice while the list of all is made.
const SERIES_ROW: usize = 5 * (size_of::<ByteArray>() + 32) + 64 + 2 * size_of::<Series>();
/// How often a text is there: as it is read, and as it is kept.
const TEXTS: u64 = 2;
/// What a row of the roll-up takes as it is read, in lists that have grown.
const ROLLUP_ROW: usize = 2 * (2 * size_of::<i32>() + size_of::<i64>());

impl PartSource {
    /// The part of a tenant, whose samples are added up on `compute`.
    pub fn new(block: Arc<Block>, tenant: &str, compute: Compute) -> Result<Self, BlockError> {
        let tenant = block.place_of(tenant)?;
        let inner = Inner {
            block,
            tenant,
            compute,
            series: Lazy::default(),
            profiles: Lazy::default(),
            brief: Lazy::default(),
            profile_totals: Lazy::default(),
            names: Lazy::default(),
            frames: Lazy::default(),
            shape: Lazy::default(),
        };
        Ok(PartSource { inner: Arc::new(inner), stop: Stop::default() })
    }

    /// The same part for one who may leave: then reading ends with [`SourceError::Left`].
    #[must_use]
    pub fn until(&self, stop: Stop) -> Self {
        PartSource { inner: Arc::clone(&self.inner), stop }
    }

    /// About how much memory the tables that were decoded so far take. Cheap: it may be asked after every question.
    pub fn bytes(&self) -> usize {
        let Inner { names, frames, shape, .. } = &*self.inner;
        self.index_bytes() + names.bytes() + frames.bytes() + shape.bytes()
    }

    /// Of those, series and profiles.
    pub fn index_bytes(&self) -> usize {
        let Inner { series, profiles, brief, profile_totals, .. } = &*self.inner;
        series.bytes() + profiles.bytes() + brief.bytes() + profile_totals.bytes()
    }

    /// Returns whether each profile id is in the part once. The footer of the profiles must be there.
    pub fn is_free_of_duplicates(&self) -> Result<bool, BlockError> {
        self.part().has_distinct_ids()
    }

    /// Whether its series were decoded.
    pub fn has_series(&self) -> bool {
        self.inner.series.known().is_some()
    }

    /// What it takes to decode its series, about: the footer of their file must be there.
    pub fn memory_of_series(&self) -> Result<u64, BlockError> {
        let part = self.part();
        let (table, groups) = (part.block.table(SERIES)?, part.groups(SERIES));
        let (_, plain) = table.extent(groups)?;
        let labels = groups.range().map(|group| table.values(group, LABELS)).fold(0, u64::saturating_add);
        let labels = labels.saturating_mul(LABEL as u64);
        let rows = u64::from(part.meta.series.1) * SERIES_ROW as u64;
        Ok(plain.saturating_mul(TEXTS).saturating_add(labels).saturating_add(rows))
    }

    /// What rows of the roll-up take as they are added up, of the profiles at some places. Footers and profiles must be
    /// there.
    pub fn memory_of_rollup(&self, picked: &[u32]) -> Result<u64, BlockError> {
        let whole = self.whole_series(self.brief()?, picked);
        let jobs = self.part().rollup_rows(|series| whole.get(series as usize) == Some(&Some(true)))?;
        let rows = jobs.iter().map(|(_, rows)| rows.iter().map(Range::len).sum::<usize>());
        Ok(rows.max().unwrap_or_default().saturating_mul(ROLLUP_ROW) as u64)
    }

    pub(crate) fn part(&self) -> Part<'_> {
        Part { stop: self.stop.clone(), ..self.inner.block.part_at(self.inner.tenant) }
    }

    fn known_profiles(&self) -> Result<&Arc<[ProfileRow]>, SourceError> {
        self.inner.profiles.get(|| Ok(self.part().profiles()?.into()), |all| size_of_val(&**all))
    }

    /// Profiles with what there is need of to find their rows, and when they were taken.
    pub(crate) fn brief(&self) -> Result<&Arc<[ProfileRow]>, SourceError> {
        if let Some(known) = self.inner.profiles.known() {
            return Ok(known);
        }
        let read = || Ok(self.part().read_profiles(ProfileColumns::Brief)?.into());
        self.inner.brief.get(read, |all| size_of_val(&**all))
    }

    /// Of each series whether all of its profiles are picked; none if none is.
    pub(crate) fn whole_series(&self, profiles: &[ProfileRow], picked: &[u32]) -> Vec<Option<bool>> {
        let mut missing = vec![0u32; self.part().meta.series.1 as usize];
        profiles.iter().for_each(|profile| missing[profile.series as usize] += 1);
        let mut seen = vec![false; missing.len()];
        for &place in picked {
            let series = profiles[place as usize].series as usize;
            missing[series] = missing[series].saturating_sub(1);
            seen[series] = true;
        }
        seen.into_iter().zip(missing).map(|(seen, missing)| seen.then_some(missing == 0)).collect()
    }

    /// What trees of this part look like.
    fn shape(&self) -> Result<&Shape, SourceError> {
        let drawn = || {
            let part = self.part();
            let frames = part.frames()?;
            Ok(frames.shape(frames.len().min(part.meta.stacks as usize)))
        };
        self.inner.shape.get(drawn, Shape::bytes)
    }

    /// Totals by stack of some profiles, while a thread does something else.
    fn add_up(&self, picked: &[u32], beside: Option<&Beside<'_>>) -> Result<Vec<i64>, SourceError> {
        let (profiles, compute) = (self.brief()?, &self.inner.compute);
        let ranges = ranges(profiles, picked)?;
        let whole = self.whole_series(profiles, picked);
        let totals = match whole.iter().all(|whole| *whole != Some(false)) {
            true => {
                let is_whole = |series: u32| whole.get(series as usize) == Some(&Some(true));
                scan::beside(compute, beside, || self.part().whole_totals(is_whole))
            }
            false => self.part().totals_beside(&ranges, compute, beside),
        };
        Ok(totals?)
    }

    /// Hands out the rows of some profiles, cut where a profile ends.
    fn by_profile(
        &self,
        picked: &[u32],
        columns: RequestColumns,
        mut each: impl FnMut(u32, &[u32], &[i64], &[Request]),
    ) -> Result<(), SourceError> {
        let profiles = self.brief()?;
        let ranges = ranges(profiles, picked)?;
        let lengths = picked.iter().map(|&place| (place, profiles[place as usize].samples as usize));
        let mut lengths = lengths.filter(|(_, length)| *length > 0);
        let mut at = (0, 0);
        self.part().each_row(&ranges, columns, |mut stacks, mut values, mut requests| {
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

impl Source for PartSource {
    fn series(&self) -> Result<Arc<[Series]>, SourceError> {
        let bytes = |all: &Arc<[Series]>| all.iter().map(Series::memory).sum();
        self.inner.series.get(|| Ok(self.part().series()?.into()), bytes).cloned()
    }
    fn profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        self.known_profiles().cloned()
    }
    fn brief_profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        self.brief().cloned()
    }
    fn has_distinct_ids(&self) -> Result<bool, SourceError> {
        Ok(self.is_free_of_duplicates()?)
    }
    fn profile_totals(&self) -> Result<Option<Arc<[i64]>>, SourceError> {
        let totals = || Ok(self.part().profile_totals()?.into());
        match self.inner.profile_totals.get(totals, |all| size_of_val(&**all)) {
            Ok(all) => Ok(Some(Arc::clone(all))),
            Err(SourceError::Damaged(why)) => Err(SourceError::Damaged(why)),
            // They are not at hand: rows tell as well.
            Err(_) => Ok(None),
        }
    }
    fn totals(&self, picked: &[u32]) -> Result<Vec<i64>, SourceError> {
        self.add_up(picked, None)
    }
    fn totals_of_tree(&self, picked: &[u32]) -> Result<Vec<i64>, SourceError> {
        let profiles = self.brief()?;
        let meant = picked.iter().filter_map(|&place| profiles.get(place as usize));
        let rows: u64 = meant.map(|profile| u64::from(profile.samples)).sum();
        // So many rows are likely to be of most stacks. What comes of reading the names is told whoever asks for the tree.
        let is_wanted = self.inner.shape.known().is_none() && rows > u64::from(self.part().meta.stacks);
        let draw = || drop(self.shape());
        let draw: &Beside<'_> = &draw;
        self.add_up(picked, is_wanted.then_some(draw))
    }
    fn rows(&self, picked: &[u32], each: &mut EachRows<'_>) -> Result<(), SourceError> {
        let each = |place, stacks: &[u32], values: &[i64], _: &[Request]| each(place, stacks, values);
        self.by_profile(picked, RequestColumns::default(), each)
    }
    fn totals_of_requests(&self, picked: &[u32], wanted: &RequestFilter) -> Result<Vec<i64>, SourceError> {
        let ranges = ranges(self.brief()?, picked)?;
        Ok(self
            .part()
            .totals_of_requests(&ranges, &self.inner.compute, |request| wanted.contains(request))?)
    }
    fn rows_of_requests(&self, picked: &[u32], each: &mut EachRequests<'_>) -> Result<(), SourceError> {
        self.by_profile(picked, self.part().request_columns()?, each)
    }
    fn extent(&self, picked: &[u32], whole: bool) -> Result<Extent, SourceError> {
        Ok(self.bytes_of_merge(picked, whole)?)
    }
    fn names(&self, read: &mut ReadNames<'_>) -> Result<(), SourceError> {
        let bytes = |names: &Names| names.dictionary.memory() + names.stacks.len() * size_of::<u32>();
        let names = self.inner.names.get(|| self.part().names(), bytes)?;
        read(&names.dictionary, &names.stacks);
        Ok(())
    }
    fn tree(&self, totals: &[i64]) -> Result<Tree, SourceError> {
        let other = || SourceError::Damaged("totals are of other stacks than names".into());
        let stacks = totals.iter().filter(|total| **total != 0).count();
        if self.inner.shape.known().is_some() || stacks > totals.len() / MANY {
            let shape = self.shape()?;
            return if totals.len() > shape.stacks() { Err(other()) } else { Ok(shape.tree(totals)) };
        }
        let frames = self.inner.frames.get(|| self.part().frames(), Frames::bytes)?;
        if totals.len() > frames.len() { Err(other()) } else { Ok(frames.tree(totals)) }
    }
}

/// Rows of `samples.parquet`, counted within the part, of profiles given by their places, ascending.
pub(crate) fn ranges(profiles: &[ProfileRow], picked: &[u32]) -> Result<Vec<Range<u64>>, SourceError> {
    let in_order = picked.is_sorted_by(|left, right| left < right);
    if !in_order || picked.last().is_some_and(|&last| last as usize >= profiles.len()) {
        let why =
            format!("some of the profiles asked for are not among its {}, or out of order", profiles.len());
        return Err(SourceError::Damaged(why));
    }
    let mut picked = picked.iter().peekable();
    let mut place = 0u32;
    Ok(Part::rows_of(profiles, |_| {
        place += 1;
        picked.next_if(|&&wanted| wanted == place - 1).is_some()
    }))
}

/// Made when first asked for, with the number of its bytes. What failed is tried again.
struct Lazy<T> {
    value: OnceLock<(T, usize)>,
    making: Mutex<()>,
}

impl<T> Default for Lazy<T> {
    fn default() -> Self {
        Lazy { value: OnceLock::new(), making: Mutex::new(()) }
    }
}

impl<T> Lazy<T> {
    fn known(&self) -> Option<&T> {
        self.value.get().map(|(value, _)| value)
    }
    fn bytes(&self) -> usize {
        self.value.get().map_or(0, |(_, bytes)| *bytes)
    }
    fn get(
        &self,
        make: impl FnOnce() -> Result<T, BlockError>,
        bytes: impl FnOnce(&T) -> usize,
    ) -> Result<&T, SourceError> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        // One makes it, the others wait for that.
        hold_slice(|| {
            let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
            match self.known() {
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
