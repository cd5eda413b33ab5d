//! Plan of a merge: the rows that it takes of each input, from one or two passes over the profile headers.
//!
//! Duplicates are found among all rows of a tenant and of the selected time, whatever their series [INV-20].
//! So of several outputs that split the series of one window, exactly one writes each profile ID.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use athanor_chassis::Tier;
use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::store_interface::series::ProfileRow;

use crate::format::duplicates::DuplicateIds;
use crate::format::error::BlockError;
use crate::format::row_order::RowOrder;
use crate::merge::selection::{RowSelection, RowTotals};
use crate::merge::{DuplicateTotals, MergeOutput, MergeSource};
use crate::reader::profile_stream::{ProfileStream, StoredProfile};
use crate::reader::read::TenantBlock;

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

    pub(crate) fn contains(&self, row: usize) -> bool {
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
    rows: Arc<RowSet>,
    /// Hour of the profiles, if others of the set belong to other inputs.
    hour: Option<i64>,
    series: Vec<SeriesRows>,
}

impl PartRows {
    /// Returns whether the merge takes the profile at this index, which has this time.
    pub(crate) fn contains(&self, place: usize, time: i64) -> bool {
        match self {
            PartRows::All => true,
            PartRows::Selected(SelectedRows { rows, hour, .. }) => {
                rows.contains(place) && hour.is_none_or(|hour| hour == RowOrder::Hour.hour(time))
            }
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
                of_part.hour.is_none()
                    && of_part.series.iter().all(|rows| rows.selected == 0 || rows.selected == rows.profiles)
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

/// Rows that a merge takes of one source, or of one hour of it. They are in the order of the output.
pub(crate) struct PlannedInput {
    /// Index of the source.
    pub(crate) source: usize,
    /// Rows by the index of the tenant in the block.
    pub(crate) rows: BTreeMap<usize, PartRows>,
}

/// Plan of a merge.
pub(crate) struct MergePlan {
    /// Inputs in the order of the sources.
    pub(crate) inputs: Vec<PlannedInput>,
    /// Duplicates that are dropped, by tenant.
    pub(crate) duplicates: BTreeMap<String, DuplicateTotals>,
}

impl MergePlan {
    pub(crate) fn read(sources: &[MergeSource], output: &MergeOutput) -> Result<Self, BlockError> {
        check_tiers(sources, output)?;
        let mut inputs: BTreeMap<(usize, i64), PlannedInput> = BTreeMap::new();
        let mut plan = MergePlan { inputs: Vec::new(), duplicates: BTreeMap::new() };
        for (tenant, parts) in parts_by_tenant(sources, output.tenants.as_ref()) {
            let selection = TenantSelection::read(sources, &parts, output)?;
            if selection.dropped != DuplicateTotals::default() {
                plan.duplicates.insert(tenant.to_owned(), selection.dropped);
            }
            for (location, part) in parts.iter().zip(selection.parts) {
                // Downsampled tiers hold the rows of covered parts [INV-23].
                let is_written = output.tier.is_raw() || !part.is_covered;
                for (hour, rows) in if is_written { part.into_rows() } else { Vec::new() } {
                    let source = location.input;
                    let new = || PlannedInput { source, rows: BTreeMap::new() };
                    inputs.entry((source, hour)).or_insert_with(new).rows.insert(location.tenant, rows);
                }
            }
        }
        plan.inputs = inputs.into_values().collect();
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
    if output.tier == Tier::OneDay && output.order == RowOrder::Hour {
        return mismatch("rows of a day cannot be ordered by hours".to_owned());
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
pub(crate) struct TenantSelection<'s> {
    pub(crate) parts: Vec<PartSelection<'s>>,
    /// Duplicates of the selected series that are dropped.
    dropped: DuplicateTotals,
}

/// Selected rows of one part.
pub(crate) struct PartSelection<'s> {
    pub(crate) part: TenantBlock<'s>,
    /// True if downsampled tiers hold the rows.
    is_covered: bool,
    /// Series of the partition, by index. None for all.
    partition: Option<Vec<bool>>,
    rows: RowSet,
    hours: HourlyRows,
}

/// Number of rows by hour and series. There is one hour unless the block has another order than the output.
struct HourlyRows {
    /// Order of the output.
    order: RowOrder,
    /// Number of all profiles of each series.
    profiles: Vec<u32>,
    hours: BTreeMap<i64, Vec<SeriesRows>>,
}

impl HourlyRows {
    fn new(part: &TenantBlock<'_>, order: RowOrder) -> Self {
        HourlyRows { order, profiles: vec![0; part.meta.series.1 as usize], hours: BTreeMap::new() }
    }

    /// Returns the counts of a selected profile's series and hour.
    fn rows_of(&mut self, part: &TenantBlock<'_>, row: &ProfileRow) -> &mut SeriesRows {
        let hour = self.order.common_hour(part.block.meta().order, row.time);
        let count = part.meta.series.1 as usize;
        let series = self.hours.entry(hour).or_insert_with(|| vec![SeriesRows::default(); count]);
        &mut series[row.series as usize]
    }
}

impl<'s> TenantSelection<'s> {
    pub(crate) fn read(
        sources: &'s [MergeSource],
        parts: &[PartLocation],
        output: &MergeOutput,
    ) -> Result<Self, BlockError> {
        let selection = &output.rows;
        let mut prefixes = Vec::new();
        let mut of_tenant = TenantSelection { parts: Vec::new(), dropped: DuplicateTotals::default() };
        for location in parts {
            let MergeSource { block, is_covered, .. } = &sources[location.input];
            let part = block.tenant_block_at(location.tenant);
            of_tenant.parts.push(PartSelection::read(part, *is_covered, output, &mut prefixes)?);
        }
        let tenant = of_tenant.parts.first().map(|part| part.part.meta.tenant.as_str());
        let compared: Vec<TenantBlock<'_>> =
            output.compared.iter().filter_map(|block| block.tenant_block(tenant?).ok()).collect();
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
        output: &MergeOutput,
        prefixes: &mut Vec<u64>,
    ) -> Result<Self, BlockError> {
        let selection = &output.rows;
        let partition = match &selection.series {
            Some(partition) => {
                let series = part.read_series()?;
                Some(series.iter().map(|series| partition.contains(series)).collect())
            }
            None => None,
        };
        let compares_ids = !part.is_downsampled();
        let rows = RowSet::default();
        let hours = HourlyRows::new(&part, output.order);
        let mut of_part = PartSelection { part, is_covered, partition, rows, hours };
        let mut profiles = ProfileStream::open(&of_part.part)?;
        let mut place = 0;
        while let Some(StoredProfile { row, .. }) = profiles.next_profile()? {
            let has_time = selection.has_time(row.time);
            if has_time && compares_ids {
                prefixes.push(DuplicateIds::prefix(row.id));
            }
            let has_series = of_part.partition.as_ref().is_none_or(|series| series[row.series as usize]);
            of_part.rows.push(place, has_time && has_series);
            of_part.hours.profiles[row.series as usize] += 1;
            if has_time && has_series {
                let rows = of_part.hours.rows_of(&of_part.part, &row);
                rows.selected += 1;
                rows.samples += u64::from(row.samples);
            }
            place += 1;
        }
        Ok(of_part)
    }

    /// Returns the number of selected sample rows of each series, none for a series without selected profiles.
    pub(crate) fn samples_by_series(&self) -> Vec<Option<u64>> {
        let mut samples = vec![None; self.part.meta.series.1 as usize];
        for series in self.hours.hours.values() {
            for (sum, rows) in samples.iter_mut().zip(series).filter(|(_, rows)| rows.selected > 0) {
                *sum = Some(sum.unwrap_or(0) + rows.samples);
            }
        }
        samples
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
                let rows = self.hours.rows_of(&self.part, &row);
                rows.selected -= 1;
                rows.samples -= u64::from(row.samples);
                dropped.add_row(&stored);
            }
            place += 1;
        }
        Ok(())
    }

    /// Returns the selected rows by hour. Series without profiles are not selected.
    fn into_rows(self) -> Vec<(i64, PartRows)> {
        let profiles = u64::from(self.part.meta.profiles.1);
        let HourlyRows { profiles: of_series, mut hours, .. } = self.hours;
        let has_hours = hours.len() > 1;
        for series in hours.values_mut() {
            series.iter_mut().zip(&of_series).for_each(|(rows, profiles)| rows.profiles = *profiles);
        }
        let rows = Arc::new(self.rows);
        let mut parts = Vec::new();
        for (hour, series) in hours {
            let selected: u64 = series.iter().map(|rows| u64::from(rows.selected)).sum();
            let has_each_series = series.iter().all(|rows| rows.selected > 0);
            if selected > 0 && has_each_series && selected == profiles {
                parts.push((hour, PartRows::All));
            } else if selected > 0 {
                let rows = Arc::clone(&rows);
                let hour_of_rows = has_hours.then_some(hour);
                parts.push((hour, PartRows::Selected(SelectedRows { rows, hour: hour_of_rows, series })));
            }
        }
        parts
    }
}
