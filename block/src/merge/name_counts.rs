//! Counts of the names that a merge takes of one part, for the estimate of its memory.

use athanor_profile::data_model::symbols::NO_ENTRY;
use parquet::data_type::Int32Type;

use crate::format::columns::GROUP_TEXT_BYTES;
use crate::format::error::BlockError;
use crate::format::meta::{FUNCTIONS_FILE, LOCATIONS_FILE, MAPPINGS_FILE, SERIES_FILE, TenantMeta};
use crate::merge::series_partition::SeriesPartition;
use crate::reader::names::mark_used_nodes;
use crate::reader::read::{TenantBlock, local_id, local_id_or_none};

/// Assumed ratio of decompressed to compressed bytes of a file with an unknown footer.
const TEXT_EXPANSION: u64 = 8;
/// Memory of one series without its texts: in the plan, as read, and as written.
const SERIES_BYTES: u64 = 600;
/// Memory of one stack: in the dictionary, its numbers, its sums, and the row of a bucket.
const STACK_BYTES: u64 = 150;
/// Memory of one node of the stack tree: in the dictionary, as read, and as written.
const NODE_BYTES: u64 = 70;
/// Memory of one location: in the dictionary, as read, and as written.
const LOCATION_BYTES: u64 = 180;
/// Memory of one function without its texts: in the dictionary, as read, and as written.
const FUNCTION_BYTES: u64 = 280;
/// Memory of one mapping without its texts.
const MAPPING_BYTES: u64 = 200;
/// Memory of one stack, node, location or function while the names of its part are read.
const READ_ENTRY_BYTES: u64 = 64;

/// Names of one part. Those that are read and not taken need memory only while their part is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameCounts {
    series: u64,
    stacks: u64,
    nodes: u64,
    locations: u64,
    functions: u64,
    mappings: u64,
    /// Bytes of their texts in all copies.
    texts: u64,
    /// Series, stacks, nodes, locations and functions that are not taken.
    unused: u64,
}

impl NameCounts {
    /// Returns the counts of all names of a part, from metadata alone.
    pub(crate) fn of_part(part: &TenantBlock<'_>) -> Result<Self, BlockError> {
        let TenantMeta { series, nodes, stacks, locations, functions, mappings, .. } = *part.meta;
        let mut counts = NameCounts {
            series: series.1.into(),
            stacks: stacks.into(),
            nodes: nodes.1.into(),
            locations: locations.1.into(),
            functions: functions.1.into(),
            mappings: mappings.1.into(),
            ..NameCounts::default()
        };
        for file in [SERIES_FILE, FUNCTIONS_FILE, MAPPINGS_FILE] {
            counts.texts += text_memory(estimate_text(part, file)?);
        }
        Ok(counts)
    }

    /// Returns the counts of the names that the series of a partition have. Texts of functions and
    /// series count by their mean length.
    pub(crate) fn of_series(part: &TenantBlock<'_>, partition: &SeriesPartition) -> Result<Self, BlockError> {
        let all = NameCounts::of_part(part)?;
        let wanted: Vec<bool> = part.read_series()?.iter().map(|series| partition.contains(series)).collect();
        let mut is_used = vec![false; part.meta.stacks as usize];
        part.for_each_rollup_count(|series, stack, _| is_used[stack as usize] |= wanted[series as usize])?;
        let (parents, of_nodes) = part.read_nodes()?;
        let used_nodes = mark_used_nodes(&parents, (0..is_used.len()).filter(|&stack| is_used[stack]));
        let mut used_locations = vec![false; part.meta.locations.1 as usize];
        for (&location, _) in of_nodes.iter().zip(&used_nodes).filter(|(_, is_used)| **is_used) {
            used_locations.get_mut(location as usize).into_iter().for_each(|is_used| *is_used = true);
        }
        drop((parents, of_nodes));
        let used_functions = mark_used_functions(part, &used_locations)?;
        let count = |used: &[bool]| used.iter().filter(|used| **used).count() as u64;
        let mut counts = NameCounts {
            series: count(&wanted),
            stacks: count(&is_used),
            nodes: count(&used_nodes),
            locations: count(&used_locations),
            functions: count(&used_functions),
            texts: 0,
            ..all
        };
        let entries = |of: &NameCounts| of.series + of.stacks + of.nodes + of.locations + of.functions;
        counts.unused = entries(&all) - entries(&counts);
        counts.texts += text_memory(estimate_text(part, MAPPINGS_FILE)?);
        let shares =
            [(FUNCTIONS_FILE, counts.functions, all.functions), (SERIES_FILE, counts.series, all.series)];
        for (file, taken, all) in shares {
            let text = u128::from(estimate_text(part, file)?) * u128::from(taken);
            counts.texts += text_memory((text / u128::from(all.max(1))) as u64);
        }
        Ok(counts)
    }

    /// Returns the memory of the taken names until the end of the merge.
    pub(crate) fn memory(&self) -> u64 {
        self.texts
            + self.series * SERIES_BYTES
            + self.stacks * STACK_BYTES
            + self.nodes * NODE_BYTES
            + self.locations * LOCATION_BYTES
            + self.functions * FUNCTION_BYTES
            + self.mappings * MAPPING_BYTES
    }

    /// Returns the additional memory while the part is read.
    pub(crate) fn read_memory(&self) -> u64 {
        self.unused * READ_ENTRY_BYTES
    }
}

fn mark_used_functions(part: &TenantBlock<'_>, used_locations: &[bool]) -> Result<Vec<bool>, BlockError> {
    let table = part.block.open_table(LOCATIONS_FILE)?;
    let mut is_used = vec![false; part.meta.functions.1 as usize];
    for group in part.row_groups(LOCATIONS_FILE).range() {
        let ids = table.read_column::<Int32Type>(group, 0)?;
        let functions = table.read_column::<Int32Type>(group, 5)?;
        for (id, function) in ids.into_iter().zip(functions) {
            let location = local_id(LOCATIONS_FILE, id, part.meta.locations)?;
            let function = local_id_or_none(LOCATIONS_FILE, function, part.meta.functions)?;
            if used_locations[location as usize] && function != NO_ENTRY {
                is_used[function as usize] = true;
            }
        }
    }
    Ok(is_used)
}

/// Returns the memory of texts: in the dictionary and as grown, and in the row group that is read or written.
fn text_memory(bytes: u64) -> u64 {
    2 * bytes + 3 * bytes.min(GROUP_TEXT_BYTES as u64)
}

/// Returns the decompressed bytes of a part's rows in a file of texts.
fn estimate_text(part: &TenantBlock<'_>, file: &'static str) -> Result<u64, BlockError> {
    if part.block.meta().file(file)?.tail.is_empty() {
        return Ok(part.block.meta().file(file)?.bytes.saturating_mul(TEXT_EXPANSION));
    }
    Ok(part.block.open_table(file)?.group_range(part.row_groups(file))?.1)
}
