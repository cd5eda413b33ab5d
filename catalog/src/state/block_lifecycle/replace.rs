//! Replacement of blocks by the blocks that were merged from them [INV-20].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use athanor_chassis::TenantId;
use serde::{Deserialize, Serialize};

use crate::block::{BlockEntry, BlockId, TenantSpan};
use crate::state::block_lifecycle::blocks::is_name_within_skew;
use crate::state::{CatalogState, CommandError, CommandOutcome, ShardLogRange};

/// Limit of blocks, ranges and tenants that one replacement names.
pub const MAX_REPLACED: usize = 8_000;

/// Property in which an output differs from its inputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplaceMismatch {
    /// The block's log ranges differ from those of the inputs.
    LogRanges,
    /// The level is not one above the highest input. The field is the required level.
    Level(u8),
    /// The block's id is in use already.
    IdInUse,
    /// The block's id is older than one of its inputs. A rebuild of the catalog could not order the two.
    OlderThanInput(BlockId),
    /// A tenant's rows would be in no block or in two, or the inputs have no such tenant.
    TenantCoverage(TenantId),
    /// The earliest or latest profile of a tenant differs.
    ProfileTimes(TenantId),
    /// The block has more profiles of a tenant than the inputs, or none.
    ProfileCount(TenantId),
    /// The outputs have more samples than the inputs.
    SampleCount,
    /// The numbers of lost entries of inputs and outputs differ.
    LostEntries,
    /// A block that stays may hold the same rows.
    OverlapsBlock(BlockId),
}

/// Sum of the content of several blocks.
#[derive(Debug, Default)]
struct BlockTotals {
    rows: Vec<ShardLogRange>,
    tenants: BTreeMap<TenantId, TenantSpan>,
    samples: u64,
    lost: u64,
    level: u8,
    newest: Option<BlockId>,
}

impl BlockTotals {
    fn from_blocks<'b>(blocks: impl Iterator<Item = &'b BlockEntry>) -> Self {
        let mut sum = Self::default();
        for block in blocks {
            sum.rows.extend(block.log_ranges());
            sum.samples = sum.samples.saturating_add(block.samples);
            sum.lost = sum.lost.saturating_add(block.lost);
            sum.level = sum.level.max(block.level);
            sum.newest = sum.newest.max(Some(block.id));
            for span in &block.tenants {
                let all = sum.tenants.entry(span.tenant.clone());
                let all = all.or_insert_with(|| TenantSpan { profiles: 0, ..span.clone() });
                all.min_time = all.min_time.min(span.min_time);
                all.max_time = all.max_time.max(span.max_time);
                all.profiles = all.profiles.saturating_add(span.profiles);
            }
        }
        sum.rows = ShardLogRange::join_adjacent(sum.rows);
        sum
    }

    /// Checks that a block can hold the rows of its tenants. Merging drops duplicates, so it may hold fewer
    /// profiles.
    fn check_output(&self, output: &BlockEntry) -> Result<(), ReplaceMismatch> {
        if let Some(newest) = self.newest.filter(|newest| *newest >= output.id) {
            return Err(ReplaceMismatch::OlderThanInput(newest));
        }
        let level = self.level.saturating_add(1);
        if output.level != level {
            return Err(ReplaceMismatch::Level(level));
        }
        if !output.log_ranges().eq(self.rows.iter().copied()) {
            return Err(ReplaceMismatch::LogRanges);
        }
        for span in &output.tenants {
            let tenant = || span.tenant.clone();
            let all =
                self.tenants.get(&span.tenant).ok_or_else(|| ReplaceMismatch::TenantCoverage(tenant()))?;
            if (span.min_time, span.max_time) != (all.min_time, all.max_time) {
                return Err(ReplaceMismatch::ProfileTimes(tenant()));
            }
            if span.profiles == 0 || span.profiles > all.profiles {
                return Err(ReplaceMismatch::ProfileCount(tenant()));
            }
        }
        Ok(())
    }

    /// Checks that the outputs hold all rows together, each tenant in exactly one of them.
    fn check_complete(&self, outputs: &[BlockEntry]) -> Result<(), (BlockId, ReplaceMismatch)> {
        let mut missing: BTreeSet<&TenantId> = self.tenants.keys().collect();
        for output in outputs {
            let twice = output.tenants.iter().find(|span| !missing.remove(&span.tenant));
            if let Some(span) = twice {
                return Err((output.id, ReplaceMismatch::TenantCoverage(span.tenant.clone())));
            }
        }
        let first = outputs[0].id;
        if let Some(tenant) = missing.into_iter().next() {
            return Err((first, ReplaceMismatch::TenantCoverage(tenant.clone())));
        }
        let all = Self::from_blocks(outputs.iter());
        if all.samples > self.samples {
            return Err((first, ReplaceMismatch::SampleCount));
        }
        if all.lost != self.lost {
            return Err((first, ReplaceMismatch::LostEntries));
        }
        Ok(())
    }
}

impl CatalogState {
    pub(in crate::state) fn replace_blocks(
        &mut self,
        inputs: Vec<BlockId>,
        outputs: Vec<BlockEntry>,
    ) -> Result<CommandOutcome, CommandError> {
        let inputs: BTreeSet<BlockId> = inputs.into_iter().collect();
        let named = outputs.iter().map(|output| 2 + output.additional_ranges.len() + output.tenants.len());
        let seen = named.sum::<usize>() + inputs.len();
        if inputs.is_empty() || outputs.is_empty() || seen > MAX_REPLACED {
            return Err(CommandError::ReplacementSize { inputs: inputs.len(), outputs: outputs.len(), seen });
        }
        // If the response was lost, another command may have replaced the outputs before the retry.
        let is_taken = |output: &BlockEntry| {
            self.blocks.get(&output.id) == Some(output) || self.tombstones.contains_key(&output.id)
        };
        let is_done = inputs.iter().all(|input| self.tombstones.contains_key(input))
            && outputs.iter().all(|output| output.level > 0 && is_taken(output));
        if is_done {
            return Ok(CommandOutcome::from_count(0));
        }
        if let Some(gone) = inputs.iter().find(|input| !self.blocks.contains_key(input)) {
            return Err(CommandError::NotListed(*gone));
        }
        self.check_replacement(&inputs, &outputs)?;
        for input in &inputs {
            self.blocks.remove(input);
            self.tombstones.entry(*input).or_insert(self.now);
        }
        let count = inputs.len() + outputs.len();
        self.blocks.extend(outputs.into_iter().map(|output| (output.id, output)));
        Ok(CommandOutcome::from_count(count))
    }

    fn check_replacement(
        &self,
        inputs: &BTreeSet<BlockId>,
        outputs: &[BlockEntry],
    ) -> Result<(), CommandError> {
        let mismatch_error = |(block, mismatch)| CommandError::ReplacementMismatch { block, mismatch };
        let sum = BlockTotals::from_blocks(inputs.iter().filter_map(|input| self.blocks.get(input)));
        let mut names = BTreeSet::new();
        for output in outputs {
            let id = output.id;
            if self.tombstones.contains_key(&id) {
                return Err(CommandError::Tombstoned(id));
            }
            if self.blocks.contains_key(&id) || !names.insert(id) {
                return Err(mismatch_error((id, ReplaceMismatch::IdInUse)));
            }
            if !is_name_within_skew(id, self.now) {
                return Err(CommandError::BlockNameSkew { block: id, now: self.now });
            }
            sum.check_output(output).map_err(|mismatch| mismatch_error((id, mismatch)))?;
        }
        sum.check_complete(outputs).map_err(mismatch_error)?;
        // Other blocks may hold other tenants' rows of the same range. They must not share a tenant with the
        // outputs.
        let meets = |other: &&BlockEntry| other.log_ranges().any(|rows| overlaps_any(&sum.rows, &rows));
        for other in self.blocks.values().filter(|other| !inputs.contains(&other.id)).filter(meets) {
            if let Some(output) = outputs.iter().find(|output| output.conflicts_with(other)) {
                return Err(mismatch_error((output.id, ReplaceMismatch::OverlapsBlock(other.id))));
            }
        }
        Ok(())
    }
}

/// Returns whether a range has an entry in one of the joined ranges, which are in order and disjoint.
fn overlaps_any(joined: &[ShardLogRange], rows: &ShardLogRange) -> bool {
    let place = joined.partition_point(|one| (one.shard, one.to) <= (rows.shard, rows.from));
    joined.get(place).is_some_and(|one| one.overlaps(rows))
}

impl fmt::Display for ReplaceMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LogRanges => {
                f.write_str("its log ranges differ; list the ranges of all inputs, joined and in order")
            }
            Self::Level(level) => {
                write!(f, "its level is not {level}, one above the highest level of its inputs")
            }
            Self::IdInUse => f.write_str("another block has its id; write it under a new id"),
            Self::OlderThanInput(input) => {
                write!(f, "its id is older than that of its input {input}; write it under a new id")
            }
            Self::TenantCoverage(tenant) => write!(
                f,
                "tenant {tenant} is not in exactly one output, or not in the inputs; write each tenant's rows to one output"
            ),
            Self::ProfileTimes(tenant) => write!(
                f,
                "the earliest or latest profile of tenant {tenant} differs; merge all rows of the inputs"
            ),
            Self::ProfileCount(tenant) => write!(
                f,
                "its number of profiles of tenant {tenant} is 0 or above that of its inputs; merge only rows of the inputs"
            ),
            Self::SampleCount => {
                f.write_str("the outputs have more samples than the inputs; merge only rows of the inputs")
            }
            Self::LostEntries => f.write_str(
                "the lost entries of the outputs differ from those of the inputs; record their sum in one output",
            ),
            Self::OverlapsBlock(other) => write!(
                f,
                "block {other} is not an input but holds rows of the same ranges and tenants; merge block {other} as well"
            ),
        }
    }
}
