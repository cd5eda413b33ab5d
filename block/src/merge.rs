//! Streaming merge of blocks: `plan` selects the rows, then `tenant` merges them tenant by tenant.
//!
//! Memory holds the names of one tenant, one bit for each of its profiles, a batch of each input's profiles and
//! samples, the rows of one profile and one row group of the output.
//!
//! * `selection`: windows of time. `series_partition` and `partition`: partitions of series. `summary`: rows by window.
//! * `plan`: rows to take of each input, without duplicates.
//! * `memory`: estimate of the memory. `name_counts`: names that a merge takes of one part.
//! * `tenant`: merge of one tenant's parts. `input`: rows of one of them. `downsample`: sums by bucket.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use athanor_chassis::Tier;

use crate::format::error::BlockError;
use crate::format::folder::{BlockFolder, ScratchFactory};
use crate::format::meta::{BlockMeta, BlockOrigin, SAMPLES_FILE};
use crate::format::row_order::RowOrder;
use crate::format::sample_rows::OptionalColumns;
use crate::merge::input::TenantInput;
use crate::merge::plan::{MergePlan, PartLocation, PartRows, PlannedInput};
use crate::merge::selection::{RowSelection, RowTotals};
use crate::merge::tenant::{TenantOutput, merge_tenant};
use crate::reader::read::Block;
use crate::writer::write::BlockWriter;

pub(crate) mod downsample;
pub(crate) mod input;
pub(crate) mod memory;
pub(crate) mod name_counts;
pub(crate) mod partition;
pub(crate) mod plan;
pub(crate) mod selection;
pub(crate) mod series_partition;
pub(crate) mod summary;
pub(crate) mod tenant;

/// Upper bound of blocks per merge. More blocks are merged in rounds, so memory does not grow with their
/// number.
pub const MERGE_FAN_IN: usize = 32;

/// Returns how often each sample is read if `blocks` blocks are merged.
pub fn merge_round_count(mut blocks: usize) -> u64 {
    let mut rounds = 1;
    while blocks > MERGE_FAN_IN {
        blocks = blocks.div_ceil(MERGE_FAN_IN);
        rounds += 1;
    }
    rounds
}

/// Input of a merge.
#[derive(Clone)]
pub struct MergeSource {
    /// Block with the rows.
    pub block: Block,
    /// Tenants of the block that take part. None for all.
    pub tenants: Option<BTreeSet<String>>,
    /// True if the downsampled tiers hold the rows of a raw block. Its copy of a profile stays in the raw tier, and
    /// is not added to downsampled tiers.
    pub is_covered: bool,
}

impl From<Block> for MergeSource {
    /// Takes all rows of a block. Its `meta.json` states whether they are covered.
    fn from(block: Block) -> Self {
        let is_covered = block.meta().origin.as_ref().is_some_and(|origin| origin.is_covered);
        MergeSource { block, tenants: None, is_covered }
    }
}

/// Description of the block that a merge writes.
#[derive(Clone, Debug, Default)]
pub struct MergeOutput {
    /// ID of the block.
    pub id: String,
    /// Log ranges and job of the block, if it replaces blocks of the catalog. It names the tier, so a block of a
    /// downsampled tier needs it.
    pub origin: Option<BlockOrigin>,
    /// Tenants to merge. None for all.
    pub tenants: Option<BTreeSet<String>>,
    /// Time of the newest arrival of a profile in Unix nanoseconds by tenant. For tenants that are absent it is
    /// the time in the block's ID.
    pub newest_arrival: BTreeMap<String, u64>,
    /// Rows to merge.
    pub rows: RowSelection,
    /// Tier of the block.
    pub tier: Tier,
    /// Order of its rows.
    pub order: RowOrder,
    /// Covered raw blocks that are no inputs. A row of an input that is not covered is a duplicate if one of these
    /// blocks has its ID in the selected time.
    pub compared: Vec<Block>,
}

/// Duplicates of one tenant that a merge dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DuplicateTotals {
    /// Rows of covered inputs.
    pub covered: RowTotals,
    /// Rows of other inputs.
    pub uncovered: RowTotals,
}

impl DuplicateTotals {
    /// Returns the totals over all inputs.
    pub fn total(&self) -> RowTotals {
        let mut total = self.covered;
        total.add(self.uncovered);
        total
    }
}

/// Result of a merge. For each tenant the selected rows of the inputs are the rows of a raw block plus the
/// duplicates. The profiles and sum of selected uncovered rows are those of a block of a downsampled tier plus the
/// uncovered duplicates.
#[derive(Clone, Debug)]
pub struct MergeResult {
    /// Metadata of the block.
    pub meta: BlockMeta,
    /// Duplicates that were dropped, for tenants with any.
    pub duplicates: BTreeMap<String, DuplicateTotals>,
}

/// Input of one round, with the rows to take by the index of the tenant in the block.
struct RoundInput {
    block: Block,
    rows: BTreeMap<usize, PartRows>,
    /// Index of the source. Inputs of one source may have rows of different hours.
    source: usize,
}

/// Merges any number of blocks into an empty folder, and reports the number of read samples to `progress`.
pub fn merge_all(
    folder: &dyn BlockFolder,
    id: &str,
    blocks: Vec<Block>,
    scratch: &mut ScratchFactory<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<BlockMeta, BlockError> {
    let output = MergeOutput { id: id.to_owned(), ..MergeOutput::default() };
    let sources = blocks.into_iter().map(MergeSource::from).collect();
    Ok(merge_into(folder, &output, sources, scratch, progress)?.meta)
}

/// Merges the selected rows of any number of blocks into an empty folder. Sources are in order of arrival.
///
/// A tenant keeps one profile per ID among all rows of the selected time, in whichever series the copies are
/// [INV-20]: the copy of the first source, of several in one source the first in its order. So if several
/// outputs split the series of a window, each ID is in one of them, and the output with the series of a dropped
/// copy counts it. Copies in covered sources come first, whatever their order.
///
/// An output of a downsampled tier adds up the rows of each series and bucket. Sources are either raw blocks, of
/// which the rows that a raw output would keep of uncovered sources are added up, or blocks of downsampled tiers up
/// to the output's. Rows of downsampled tiers are selected by their time, and their IDs are not compared.
pub fn merge_into(
    folder: &dyn BlockFolder,
    output: &MergeOutput,
    sources: Vec<MergeSource>,
    scratch: &mut ScratchFactory<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<MergeResult, BlockError> {
    let MergePlan { inputs: rows, duplicates } = MergePlan::read(&sources, output)?;
    let blocks: Vec<Block> = sources.into_iter().map(|source| source.block).collect();
    let mut inputs = round_inputs(&blocks, rows);
    let between = intermediate_output(output, &inputs);
    while inputs.len() > MERGE_FAN_IN {
        let mut merged = Vec::new();
        for (source, round) in inputs.chunks(MERGE_FAN_IN).enumerate() {
            let folder: Arc<dyn BlockFolder> =
                scratch().map_err(BlockError::io("scratch folder of a run"))?;
            merge_round(folder.as_ref(), &between, round, progress)?;
            let block = Block::open(folder)?;
            let rows = (0..block.meta().tenants.len()).map(|tenant| (tenant, PartRows::All)).collect();
            merged.push(RoundInput { block, rows, source });
        }
        inputs = merged;
    }
    let meta = merge_round(folder, output, &inputs, progress)?;
    Ok(MergeResult { meta, duplicates })
}

/// Merges blocks into an empty folder in one round. Profiles with equal ID are kept once [INV-20].
pub fn merge(folder: &dyn BlockFolder, id: &str, blocks: &[Block]) -> Result<BlockMeta, BlockError> {
    let output = MergeOutput { id: id.to_owned(), ..MergeOutput::default() };
    let sources: Vec<MergeSource> = blocks.iter().cloned().map(MergeSource::from).collect();
    let plan = MergePlan::read(&sources, &output)?;
    merge_round(folder, &output, &round_inputs(blocks, plan.inputs), &mut |_| ())
}

/// Describes the blocks between rounds. Records of raw inputs are counted in the last round only.
fn intermediate_output(output: &MergeOutput, inputs: &[RoundInput]) -> MergeOutput {
    let raw = MergeOutput { id: output.id.clone(), order: output.order, ..MergeOutput::default() };
    match inputs.iter().all(|input| input.block.meta().tier().is_raw()) {
        true => raw,
        false => MergeOutput { origin: output.origin.clone(), tier: output.tier, ..raw },
    }
}

/// Returns the blocks that have selected rows, with these.
fn round_inputs(blocks: &[Block], inputs: Vec<PlannedInput>) -> Vec<RoundInput> {
    let input = |PlannedInput { source, rows }| RoundInput { block: blocks[source].clone(), rows, source };
    inputs.into_iter().map(input).collect()
}

fn merge_round(
    folder: &dyn BlockFolder,
    output: &MergeOutput,
    inputs: &[RoundInput],
    progress: &mut dyn FnMut(u64),
) -> Result<BlockMeta, BlockError> {
    let is_raw = output.tier.is_raw();
    let mut columns = if is_raw { OptionalColumns::default() } else { OptionalColumns::DOWNSAMPLED };
    let mut parts: BTreeMap<&str, Vec<PartLocation>> = BTreeMap::new();
    for (input, of_input) in inputs.iter().enumerate() {
        if is_raw {
            columns = columns.union(of_input.block.open_table(SAMPLES_FILE)?.columns());
        }
        for &tenant in of_input.rows.keys() {
            let name = of_input.block.meta().tenants[tenant].tenant.as_str();
            parts.entry(name).or_default().push(PartLocation { input, tenant });
        }
    }
    let mut writer = BlockWriter::create(folder, &output.id, columns)?;
    writer.set_origin(output.origin.clone());
    writer.set_order(output.order);
    for (tenant, parts) in parts {
        let part = |location: &PartLocation| {
            let RoundInput { block, rows, source } = &inputs[location.input];
            let part = block.tenant_block_at(location.tenant);
            TenantInput { part, rows: &rows[&location.tenant], source: *source }
        };
        let of_tenant: Vec<TenantInput<'_>> = parts.iter().map(part).collect();
        let newest_arrival = output.newest_arrival.get(tenant).copied().unwrap_or_default();
        let of_output = TenantOutput { tenant, newest_arrival, tier: output.tier, order: output.order };
        merge_tenant(&mut writer, &of_output, &of_tenant, progress)?;
    }
    writer.finish()
}
