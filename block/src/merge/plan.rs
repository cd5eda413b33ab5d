//! Plan of a merge: the rows that it takes of each input, from one or two passes over the profile headers.
//!
//! Duplicates are found among all rows of a tenant and of the selected time, whatever their series [INV-20].
//! So of several outputs that split the series of one window, exactly one writes each profile ID.

use std::collections::{BTreeMap, BTreeSet};

use athanor_chassis::Tier;
use athanor_profile::encoding::hash::ContentHash;

use crate::format::duplicates::DuplicateIds;
use crate::format::error::BlockError;
use crate::merge::selection::{RowSelection, RowTotals, SeriesKey, SeriesPartition};
use crate::merge::{DuplicateTotals, MergeOutput, MergeSource};
use crate::reader::profile_stream::{ProfileStream, StoredProfile};
use crate::reader::read::{Block, TenantBlock};

/// Set of row indexes, as a bitmap.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowSet {
    words: Vec<u64>,
}

impl RowSet {
    /// Adds the next row index, which follows the one of the previous call.
    fn push(&mut self, row: usize, is_selected: bool) {
        if row.is_multiple_of(64) {
            self.words.push(0);
        }
        self.words[row / 64] |= u64::from(is_selected) << (row % 64);
    }

    fn remove(&mut self, row: usize) {
        self.words[row / 64] &= !(1 << (row % 64));
    }

    fn contains(&self, row: usize) -> bool {
        self.words.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }
}

/// Rows of one series in one part.
#[derive(Clone, Copy, Debug, Default)]
struct SeriesRows {
    profiles: u32,
    selected: u32,
    /// Number of sample rows of the selected profiles.
    samples: u64,
}

/// Rows that a merge takes of one part.
#[derive(Clone, Debug)]
pub(crate) enum PartRows {
    /// All rows.
    All,
    /// Rows of the selected profiles.
    Selected(SelectedRows),
}

/// Selected profiles of one part, and their number by series.
#[derive(Clone, Debug)]
pub(crate) struct SelectedRows {
    rows: RowSet,
    series: Vec<SeriesRows>,
}

impl PartRows {
    /// Returns whether the merge takes the profile at this index.
    pub(crate) fn contains(&self, place: usize) -> bool {
        match self {
            PartRows::All => true,
            PartRows::Selected(of_part) => of_part.rows.contains(place),
        }
    }

    /// Returns whether the merge takes a profile of the series at this index.
    pub(crate) fn has_series(&self, series: usize) -> bool {
        match self {
            PartRows::All => true,
            PartRows::Selected(of_part) => of_part.series.get(series).is_some_and(|rows| rows.selected > 0),
        }
    }

    /// Returns whether the merge takes all or no profiles of each series.
    pub(crate) fn has_whole_series(&self) -> bool {
        match self {
            PartRows::All => true,
            PartRows::Selected(of_part) => {
                of_part.series.iter().all(|rows| rows.selected == 0 || rows.selected == rows.profiles)
            }
        }
    }
}

/// Location of a tenant's part: index of the input, and index of the tenant in its block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartLocation {
    pub(crate) input: usize,
    pub(crate) tenant: usize,
}

/// Returns the parts of each tenant, in the order of the sources. None of `tenants` selects all of them.
pub(crate) fn parts_by_tenant<'s>(
    sources: &'s [MergeSource],
    tenants: Option<&BTreeSet<String>>,
) -> BTreeMap<&'s str, Vec<PartLocation>> {
    let mut parts: BTreeMap<&str, Vec<PartLocation>> = BTreeMap::new();
    for (input, source) in sources.iter().enumerate() {
        for (tenant, meta) in source.block.meta().tenants.iter().enumerate() {
            let is_wanted =
                |wanted: Option<&BTreeSet<String>>| wanted.is_none_or(|wanted| wanted.contains(&meta.tenant));
            if is_wanted(tenants) && is_wanted(source.tenants.as_ref()) {
                parts.entry(&meta.tenant).or_default().push(PartLocation { input, tenant });
            }
        }
    }
    parts
}

/// Plan of a merge.
pub(crate) struct MergePlan {
    /// Rows of each input, by the index of the tenant in its block.
    pub(crate) inputs: Vec<BTreeMap<usize, PartRows>>,
    /// Duplicates that are dropped, by tenant.
    pub(crate) duplicates: BTreeMap<String, DuplicateTotals>,
}

impl MergePlan {
    pub(crate) fn read(sources: &[MergeSource], output: &MergeOutput) -> Result<Self, BlockError> {
        check_tiers(sources, output)?;
        let inputs = sources.iter().map(|_| BTreeMap::new()).collect();
        let mut plan = MergePlan { inputs, duplicates: BTreeMap::new() };
        for (tenant, parts) in parts_by_tenant(sources, output.tenants.as_ref()) {
            let selection = TenantSelection::read(sources, &parts, &output.rows, &output.compared)?;
            if selection.dropped != DuplicateTotals::default() {
                plan.duplicates.insert(tenant.to_owned(), selection.dropped);
            }
            for (location, part) in parts.iter().zip(selection.parts) {
                // Downsampled tiers hold the rows of covered parts [INV-23].
                let is_written = output.tier.is_raw() || !part.is_covered;
                if is_written && let Some(rows) = part.into_rows() {
                    plan.inputs[location.input].insert(location.tenant, rows);
                }
            }
        }
        Ok(plan)
    }
}

/// Checks that the inputs can be merged into the tier of the output: into raw rows only raw ones, into buckets raw
/// rows or rows of buckets that are not longer.
fn check_tiers(sources: &[MergeSource], output: &MergeOutput) -> Result<(), BlockError> {
    let mismatch = |why: String| Err(BlockError::TierMismatch { output: output.tier.name(), why });
    let of_origin = output.origin.as_ref().map_or(Tier::Raw, |origin| origin.tier);
    if of_origin != output.tier {
        return mismatch(format!("the origin of the output has tier {}", of_origin.name()));
    }
    let tiers: BTreeSet<Tier> = sources.iter().map(|source| source.block.meta().tier()).collect();
    if let Some(coarser) = tiers.last().filter(|tier| **tier > output.tier) {
        return mismatch(format!("an input has tier {}", coarser.name()));
    }
    if tiers.len() > 1 && tiers.contains(&Tier::Raw) {
        return mismatch("some inputs have tier raw and others a downsampled tier".to_owned());
    }
    if let Some(block) = output.compared.iter().find(|block| !block.meta().tier().is_raw()) {
        let tier = block.meta().tier().name();
        return mismatch(format!("block {} to compare ids with has tier {tier}", block.meta().id));
    }
    Ok(())
}

/// Selected rows of one tenant.
struct TenantSelection<'s> {
    parts: Vec<PartSelection<'s>>,
    /// Duplicates of the selected series that are dropped.
    dropped: DuplicateTotals,
}

/// Selected rows of one part.
struct PartSelection<'s> {
    part: TenantBlock<'s>,
    /// True if downsampled tiers hold the rows.
    is_covered: bool,
    /// Series of the partition, by index. None for all.
    partition: Option<Vec<bool>>,
    rows: RowSet,
    series: Vec<SeriesRows>,
}

impl<'s> TenantSelection<'s> {
    fn read(
        sources: &'s [MergeSource],
        parts: &[PartLocation],
        selection: &RowSelection,
        compared: &[Block],
    ) -> Result<Self, BlockError> {
        let mut prefixes = Vec::new();
        let mut of_tenant = TenantSelection { parts: Vec::new(), dropped: DuplicateTotals::default() };
        for location in parts {
            let MergeSource { block, is_covered, .. } = &sources[location.input];
            let part = block.tenant_block_at(location.tenant);
            of_tenant.parts.push(PartSelection::read(part, *is_covered, selection, &mut prefixes)?);
        }
        let tenant = of_tenant.parts.first().map(|part| part.part.meta.tenant.as_str());
        let compared: Vec<TenantBlock<'_>> =
            compared.iter().filter_map(|block| block.tenant_block(tenant?).ok()).collect();
        // Only IDs that an input has as well are held, so memory does not grow with the compared blocks.
        prefixes.sort_unstable();
        let mut shared = Vec::new();
        for part in &compared {
            for_each_selected_id(part, selection, |id| {
                let prefix = DuplicateIds::prefix(id);
                shared.extend(prefixes.binary_search(&prefix).is_ok().then_some(prefix));
            })?;
        }
        prefixes.extend(shared);
        let mut duplicates = DuplicateIds::from_prefixes(prefixes);
        if duplicates.is_empty() {
            return Ok(of_tenant);
        }
        // The copy in a covered part stays, because downsampled tiers hold it.
        let DuplicateTotals { covered, uncovered } = &mut of_tenant.dropped;
        for part in of_tenant.parts.iter_mut().filter(|part| part.is_covered) {
            part.drop_duplicates(selection, &mut duplicates, covered)?;
        }
        for part in &compared {
            for_each_selected_id(part, selection, |id| {
                duplicates.take_first(id);
            })?;
        }
        for part in of_tenant.parts.iter_mut().filter(|part| !part.is_covered) {
            part.drop_duplicates(selection, &mut duplicates, uncovered)?;
        }
        Ok(of_tenant)
    }
}

/// Visits the IDs of the rows of the selected time.
fn for_each_selected_id(
    part: &TenantBlock<'_>,
    selection: &RowSelection,
    mut visit: impl FnMut(ContentHash),
) -> Result<(), BlockError> {
    let mut profiles = ProfileStream::open(part)?;
    while let Some(StoredProfile { row, .. }) = profiles.next_profile()? {
        if selection.has_time(row.time) {
            visit(row.id);
        }
    }
    Ok(())
}

impl<'s> PartSelection<'s> {
    /// Selects the rows of a part, and collects the ID prefixes of all rows of the selected time. Rows of a
    /// downsampled tier have no IDs.
    fn read(
        part: TenantBlock<'s>,
        is_covered: bool,
        selection: &RowSelection,
        prefixes: &mut Vec<u64>,
    ) -> Result<Self, BlockError> {
        let partition = match &selection.series {
            Some(partition) => {
                let series = part.read_series()?;
                Some(series.iter().map(|series| partition.contains(SeriesKey::from_series(series))).collect())
            }
            None => None,
        };
        let series = vec![SeriesRows::default(); part.meta.series.1 as usize];
        let compares_ids = !part.is_downsampled();
        let mut of_part = PartSelection { part, is_covered, partition, rows: RowSet::default(), series };
        let mut profiles = ProfileStream::open(&of_part.part)?;
        let mut place = 0;
        while let Some(StoredProfile { row, .. }) = profiles.next_profile()? {
            let has_time = selection.has_time(row.time);
            if has_time && compares_ids {
                prefixes.push(DuplicateIds::prefix(row.id));
            }
            let has_series = of_part.partition.as_ref().is_none_or(|series| series[row.series as usize]);
            of_part.rows.push(place, has_time && has_series);
            let rows = &mut of_part.series[row.series as usize];
            rows.profiles += 1;
            if has_time && has_series {
                rows.selected += 1;
                rows.samples += u64::from(row.samples);
            }
            place += 1;
        }
        Ok(of_part)
    }

    /// Removes the rows of which an earlier copy was taken. Copies in other series are taken too.
    fn drop_duplicates(
        &mut self,
        selection: &RowSelection,
        duplicates: &mut DuplicateIds,
        dropped: &mut RowTotals,
    ) -> Result<(), BlockError> {
        let mut profiles = ProfileStream::open(&self.part)?;
        let mut place = 0;
        while let Some(stored) = profiles.next_profile()? {
            let row = stored.row;
            let is_dropped = selection.has_time(row.time) && !duplicates.take_first(row.id);
            if is_dropped && self.rows.contains(place) {
                self.rows.remove(place);
                let rows = &mut self.series[row.series as usize];
                rows.selected -= 1;
                rows.samples -= u64::from(row.samples);
                dropped.add_row(&stored);
            }
            place += 1;
        }
        Ok(())
    }

    /// Returns the selected rows, none if there are none. Series without profiles are not selected.
    fn into_rows(self) -> Option<PartRows> {
        let selected: u64 = self.series.iter().map(|rows| u64::from(rows.selected)).sum();
        let has_each_series = self.series.iter().all(|rows| rows.selected > 0);
        if selected == 0 {
            None
        } else if has_each_series && selected == u64::from(self.part.meta.profiles.1) {
            Some(PartRows::All)
        } else {
            Some(PartRows::Selected(SelectedRows { rows: self.rows, series: self.series }))
        }
    }
}

/// Splits the series of a tenant's selected rows into at most `pieces` partitions with about equal numbers of
/// sample rows. The result depends on the rows only. A partition is empty only if the tenant has no rows.
pub fn partition_series(
    sources: &[MergeSource],
    tenant: &str,
    rows: &RowSelection,
    pieces: usize,
) -> Result<Vec<SeriesPartition>, BlockError> {
    let tenants = BTreeSet::from([tenant.to_owned()]);
    let mut samples: BTreeMap<SeriesKey, u64> = BTreeMap::new();
    for parts in parts_by_tenant(sources, Some(&tenants)).values() {
        for selected in TenantSelection::read(sources, parts, rows, &[])?.parts {
            let series = selected.part.read_series()?;
            for (series, rows) in series.iter().zip(&selected.series).filter(|(_, rows)| rows.selected > 0) {
                *samples.entry(SeriesKey::from_series(series)).or_default() += rows.samples.max(1);
            }
        }
    }
    let whole = rows.series.unwrap_or_default();
    Ok(split_by_samples(whole, &samples, pieces))
}

/// Splits a partition at the keys where each piece has its share of the samples.
fn split_by_samples(
    whole: SeriesPartition,
    samples: &BTreeMap<SeriesKey, u64>,
    pieces: usize,
) -> Vec<SeriesPartition> {
    let pieces = pieces.min(samples.len()).max(1);
    let total: u128 = samples.values().map(|&count| u128::from(count)).sum();
    let mut partitions = Vec::with_capacity(pieces);
    let mut after = whole.after;
    let mut seen = 0u128;
    for (place, (&key, &count)) in samples.iter().enumerate() {
        seen += u128::from(count);
        let left = pieces - partitions.len() - 1;
        let is_full = seen * pieces as u128 >= total * (partitions.len() as u128 + 1);
        // Each later piece needs a series.
        let is_last_chance = samples.len() - place - 1 == left;
        if left > 0 && (is_full || is_last_chance) {
            partitions.push(SeriesPartition { after, until: Some(key) });
            after = Some(key);
        }
    }
    partitions.push(SeriesPartition { after, until: whole.until });
    partitions
}
