//! Block registration and data loss records [INV-14, INV-15].

use std::time::Duration;

use athanor_chassis::Timestamp;
use serde::{Deserialize, Serialize};

use crate::block::{BlockEntry, BlockId, ShardLogRange};
use crate::compaction::MAX_JOB_OUTPUTS;
use crate::state::{
    CatalogState, CommandError, CommandOutcome, CommandResult, LimitedResource, PhaseTransition, ShardEntry,
    ShardId, ShardPhase,
};

/// Largest distance between now and the time in a block's id at which the block registers [INV-15].
pub const MAX_BLOCK_NAME_SKEW: Duration = Duration::from_secs(24 * 3600);
/// Limit of recorded data losses.
pub const MAX_DATA_LOSS_RECORDS: usize = 10_000;

/// Record of a data loss. Every listing reports it until it is cleared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataLossRecord {
    /// Time at which the loss was recorded.
    pub since: Timestamp,
    /// Kind and extent of the loss.
    pub loss: DataLoss,
}

/// Data that damage destroyed or made doubtful.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DataLoss {
    /// Entries after one index and up to another are registered, but no known block holds them.
    MissingBlocks {
        /// Id of the shard.
        shard: ShardId,
        /// Index before the first entry.
        from: u64,
        /// Index of the last entry.
        to: u64,
    },
    /// A shard lost the ids of its records up to an index. Duplicates since then may be counted.
    ForgottenIds {
        /// Id of the shard.
        shard: ShardId,
        /// Last index up to which ids are lost.
        to: u64,
    },
    /// A range of the node's log is damaged, and its content is unknown.
    UnknownLogRange {
        /// First position, in bytes.
        from: u64,
        /// Position after the last byte.
        to: u64,
    },
    /// An operator gave up the entries of a shard after an index.
    AbandonedShard {
        /// Id of the shard.
        shard: ShardId,
        /// Watermark of the shard at that time.
        after: u64,
    },
}

impl DataLoss {
    /// Returns the shard that the loss belongs to, if any.
    pub(in crate::state) fn shard(&self) -> Option<ShardId> {
        match *self {
            Self::MissingBlocks { shard, .. }
            | Self::ForgottenIds { shard, .. }
            | Self::AbandonedShard { shard, .. } => Some(shard),
            Self::UnknownLogRange { .. } => None,
        }
    }
}

/// Returns whether the time in a block's id is close enough to now that its tombstone would still exist
/// [INV-15].
pub(in crate::state) fn is_name_within_skew(block: BlockId, now: Timestamp) -> bool {
    let named = block.named_at();
    now.since(named).max(named.since(now)) <= MAX_BLOCK_NAME_SKEW
}

impl CatalogState {
    /// Returns the shard of a block, unless the block is tombstoned or names an unknown epoch.
    fn shard_of(&mut self, block: &BlockEntry) -> Result<&mut ShardEntry, CommandError> {
        if self.tombstones.contains_key(&block.id) {
            return Err(CommandError::Tombstoned(block.id));
        }
        let no_shard = CommandError::UnknownShard { shard: block.shard, epoch: block.epoch };
        let shard = self.shards.get_mut(&block.shard).filter(|shard| shard.epoch == block.epoch);
        shard.ok_or(no_shard)
    }

    pub(in crate::state) fn register_block(
        &mut self,
        block: BlockEntry,
    ) -> Result<CommandOutcome, CommandError> {
        let id = block.id;
        let now = self.now;
        let known = self.blocks.contains_key(&id);
        let shard = self.shard_of(&block)?;
        if known {
            return Ok(CommandOutcome::NoOp(CommandResult::Registered(shard.watermark)));
        }
        if !is_name_within_skew(id, now) {
            return Err(CommandError::BlockNameSkew { block: id, now });
        }
        if block.level > 0 || !block.additional_ranges.is_empty() {
            return Err(CommandError::MergedBlock(id));
        }
        if !block.has_valid_tier() {
            return Err(CommandError::InvalidTier(id));
        }
        if block.to <= block.from {
            return Err(CommandError::EmptyRange { block: id, to: block.to });
        }
        match shard.phase {
            ShardPhase::Open | ShardPhase::Sealing => {}
            ShardPhase::Sealed { last_index } if block.to <= last_index => {}
            ShardPhase::Sealed { last_index } => {
                let (shard, to) = (block.shard, block.to);
                return Err(CommandError::PastSeal { block: id, shard, to, last_index });
            }
            _ => return Err(shard.wrong_phase(PhaseTransition::RegisterBlock)),
        }
        if block.from != shard.watermark {
            let (shard, watermark) = (block.shard, shard.watermark);
            return Err(CommandError::WatermarkMismatch { block: id, shard, from: block.from, watermark });
        }
        shard.watermark = block.to;
        let watermark = shard.watermark;
        self.blocks.insert(id, block);
        Ok(CommandOutcome::Changed(CommandResult::Registered(watermark)))
    }

    /// Advances the watermark to an index that the shard's log counts as registered. Records the difference as
    /// a gap, so no new block claims it.
    pub(in crate::state) fn advance_watermark(
        &mut self,
        id: ShardId,
        to: u64,
    ) -> Result<CommandOutcome, CommandError> {
        let shard = self.shard(id)?;
        let from = shard.watermark;
        if to <= from {
            return Ok(CommandOutcome::from_count(0));
        }
        match shard.phase {
            ShardPhase::Open | ShardPhase::Sealing => {}
            ShardPhase::Sealed { last_index } if to <= last_index => {}
            _ => return Err(shard.wrong_phase(PhaseTransition::AdvanceWatermark)),
        }
        self.check_data_loss_capacity(1)?;
        self.shard_mut(id)?.watermark = to;
        self.push_data_loss(DataLoss::MissingBlocks { shard: id, from, to });
        Ok(CommandOutcome::from_count(1))
    }

    pub(in crate::state) fn reinstate_block(
        &mut self,
        block: BlockEntry,
    ) -> Result<CommandOutcome, CommandError> {
        let id = block.id;
        let known = self.blocks.contains_key(&id);
        let watermark = self.shard_of(&block)?.watermark;
        if known {
            return Ok(CommandOutcome::NoOp(CommandResult::Registered(watermark)));
        }
        if let Some(ShardLogRange { to, .. }) = block.log_ranges().find(|rows| rows.to <= rows.from) {
            return Err(CommandError::EmptyRange { block: id, to });
        }
        if !block.has_valid_tier() {
            return Err(CommandError::InvalidTier(id));
        }
        // Several merged blocks can hold rows of one gap, each of its own tenants, times or tier. The first of
        // them closes the gap.
        let is_in_merged_block = |rows: &ShardLogRange| {
            let mut merged = self.blocks.values().filter(|other| other.level > 0 && block.level > 0);
            merged.any(|other| other.log_ranges().any(|others| others.contains(rows)))
        };
        let is_free = |rows: ShardLogRange| self.gap_position(&rows).is_some() || is_in_merged_block(&rows);
        let shares_rows = |other: &BlockEntry| other.may_share_rows_with(&block);
        if !block.log_ranges().all(is_free) || self.blocks.values().any(shares_rows) {
            return Err(CommandError::NotInGap(id));
        }
        self.check_data_loss_capacity(1 + block.additional_ranges.len())?;
        for ShardLogRange { shard, from, to, .. } in block.log_ranges() {
            self.take_from_gap(shard, from, to)?;
        }
        self.blocks.insert(id, block);
        Ok(CommandOutcome::Changed(CommandResult::Registered(watermark)))
    }

    /// Registers the outputs of one job, all or none. Otherwise a tier could hold rows twice or lack them.
    pub(in crate::state) fn reinstate_job(
        &mut self,
        outputs: Vec<BlockEntry>,
    ) -> Result<CommandOutcome, CommandError> {
        if outputs.len() > MAX_JOB_OUTPUTS {
            return Err(CommandError::TooManyOutputs { seen: outputs.len() });
        }
        let token = outputs.first().and_then(|output| output.job);
        if let Some(output) = outputs.iter().find(|output| output.job.is_none() || output.job != token) {
            return Err(CommandError::NotOfJob(output.id));
        }
        // The blocks are shared with the copy.
        let mut reinstated = self.clone();
        let mut count = 0;
        for output in outputs {
            let outcome = reinstated.reinstate_block(output)?;
            count += usize::from(matches!(outcome, CommandOutcome::Changed(_)));
        }
        *self = reinstated;
        Ok(CommandOutcome::from_count(count))
    }

    pub(in crate::state) fn close_gap(
        &mut self,
        shard: ShardId,
        from: u64,
        to: u64,
    ) -> Result<CommandOutcome, CommandError> {
        Ok(CommandOutcome::from_count(usize::from(self.take_from_gap(shard, from, to)?)))
    }

    /// Returns the position of the gap record that contains a range.
    fn gap_position(&self, rows: &ShardLogRange) -> Option<usize> {
        let &ShardLogRange { shard: of, from, to, .. } = rows;
        let contains_range = |record: &DataLossRecord| matches!(record.loss, DataLoss::MissingBlocks { shard, from: begin, to: end } if shard == of && begin <= from && from < to && to <= end);
        self.data_losses.iter().position(contains_range)
    }

    /// Removes a range from the gap that contains it. Returns false if no gap contains it.
    fn take_from_gap(&mut self, of: ShardId, from: u64, to: u64) -> Result<bool, CommandError> {
        let Some(position) = self.gap_position(&ShardLogRange { shard: of, epoch: 0, from, to }) else {
            return Ok(false);
        };
        let DataLoss::MissingBlocks { shard, from: begin, to: end } = self.data_losses[position].loss else {
            return Ok(false);
        };
        let remainders = [(begin, from), (to, end)].into_iter().filter(|(from, to)| from < to);
        let remainders: Vec<DataLoss> =
            remainders.map(|(from, to)| DataLoss::MissingBlocks { shard, from, to }).collect();
        self.check_data_loss_capacity(remainders.len().saturating_sub(1))?;
        let DataLossRecord { since, .. } = self.data_losses.remove(position);
        self.data_losses.extend(remainders.into_iter().map(|loss| DataLossRecord { since, loss }));
        Ok(true)
    }

    pub(in crate::state) fn record_data_loss(
        &mut self,
        loss: DataLoss,
    ) -> Result<CommandOutcome, CommandError> {
        let covers = |known: &DataLoss| match (known, &loss) {
            (DataLoss::ForgottenIds { shard, to }, DataLoss::ForgottenIds { shard: of, to: upto }) => {
                shard == of && to >= upto
            }
            (known, loss) => known == loss,
        };
        if self.data_losses.iter().any(|record| covers(&record.loss)) {
            return Ok(CommandOutcome::from_count(0));
        }
        // One record per shard: otherwise growing damage would add a record with every entry.
        if let DataLoss::ForgottenIds { shard: of, .. } = loss {
            self.data_losses
                .retain(|record| !matches!(record.loss, DataLoss::ForgottenIds { shard, .. } if shard == of));
        }
        self.check_data_loss_capacity(1)?;
        self.push_data_loss(loss);
        Ok(CommandOutcome::from_count(1))
    }

    pub(in crate::state) fn check_data_loss_capacity(&self, more: usize) -> Result<(), CommandError> {
        match self.data_losses.len() + more <= MAX_DATA_LOSS_RECORDS {
            true => Ok(()),
            false => Err(CommandError::LimitReached {
                resource: LimitedResource::DataLossRecords,
                limit: MAX_DATA_LOSS_RECORDS,
            }),
        }
    }

    pub(in crate::state) fn push_data_loss(&mut self, loss: DataLoss) {
        self.data_losses.push(DataLossRecord { since: self.now, loss });
    }

    pub(in crate::state) fn clear_data_loss(&mut self, before: Timestamp) -> CommandOutcome {
        let count = self.data_losses.len();
        self.data_losses.retain(|record| record.since >= before);
        CommandOutcome::from_count(count - self.data_losses.len())
    }
}
