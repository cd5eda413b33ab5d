//! Block registration, tombstones and data loss records [INV-14, INV-15].

use std::time::Duration;

use athanor_chassis::Timestamp;
use serde::{Deserialize, Serialize};

use crate::block::{BlockEntry, BlockId, ShardLogRange};
use crate::state::{
    CatalogState, CommandError, CommandOutcome, CommandResult, LimitedResource, PhaseTransition, ShardEntry,
    ShardId, ShardPhase,
};

/// Largest distance between now and the time in a block's id at which the block registers [INV-15].
pub const MAX_BLOCK_NAME_SKEW: Duration = Duration::from_secs(24 * 3600);
/// Lifetime of a tombstone: longer than its id could register [INV-15]. Retired shards live as long.
pub const TOMBSTONE_RETENTION: Duration = Duration::from_secs(48 * 3600);
/// Limit of recorded data losses.
pub const MAX_DATA_LOSS_RECORDS: usize = 10_000;

/// Record of a data loss. Every listing reports it until it is cleared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataLossRecord {
    /// Time at which the loss was recorded.
    pub since: Timestamp,
    /// Kind and extent of the loss.
    pub wound: DataLoss,
}

/// Data that damage destroyed or made doubtful.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DataLoss {
    /// Entries after one index and up to another are registered, but no known block holds them.
    Gap {
        /// Id of the shard.
        shard: ShardId,
        /// Index before the first entry.
        from: u64,
        /// Index of the last entry.
        to: u64,
    },
    /// A shard lost the ids of its records up to an index. Duplicates since then may be counted.
    Ids {
        /// Id of the shard.
        shard: ShardId,
        /// Last index up to which ids are lost.
        to: u64,
    },
    /// A range of the node's log is damaged, and its content is unknown.
    Unknown {
        /// First position, in bytes.
        from: u64,
        /// Position after the last byte.
        to: u64,
    },
    /// An operator gave up the entries of a shard after an index.
    Abandoned {
        /// Id of the shard.
        shard: ShardId,
        /// Watermark of the shard at that time.
        after: u64,
    },
}

impl DataLoss {
    fn shard(&self) -> Option<ShardId> {
        match *self {
            Self::Gap { shard, .. } | Self::Ids { shard, .. } | Self::Abandoned { shard, .. } => Some(shard),
            Self::Unknown { .. } => None,
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
        if self.condemned.contains_key(&block.id) {
            return Err(CommandError::Condemned(block.id));
        }
        let no_shard = CommandError::NoShard { shard: block.shard, epoch: block.epoch };
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
            return Ok(CommandOutcome::Known(CommandResult::Registered(shard.watermark)));
        }
        if !is_name_within_skew(id, now) {
            return Err(CommandError::NameTime { block: id, now });
        }
        if block.level > 0 || !block.additional_ranges.is_empty() {
            return Err(CommandError::Made(id));
        }
        if block.to <= block.from {
            return Err(CommandError::Empty { block: id, to: block.to });
        }
        match shard.phase {
            ShardPhase::Open | ShardPhase::Closing => {}
            ShardPhase::Sealed { at } if block.to <= at => {}
            ShardPhase::Sealed { at } => {
                return Err(CommandError::PastSeal { block: id, shard: block.shard, to: block.to, at });
            }
            _ => return Err(shard.wrong_phase(PhaseTransition::Register)),
        }
        if block.from != shard.watermark {
            let (shard, watermark) = (block.shard, shard.watermark);
            return Err(CommandError::Watermark { block: id, shard, from: block.from, watermark });
        }
        shard.watermark = block.to;
        let watermark = shard.watermark;
        self.blocks.insert(id, block);
        Ok(CommandOutcome::Changed(CommandResult::Registered(watermark)))
    }

    /// Raises the watermark to an index that the shard's log counts as registered. Records the difference as
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
            ShardPhase::Open | ShardPhase::Closing => {}
            ShardPhase::Sealed { at } if to <= at => {}
            _ => return Err(shard.wrong_phase(PhaseTransition::Raise)),
        }
        self.check_data_loss_capacity(1)?;
        self.shard_mut(id)?.watermark = to;
        self.push_data_loss(DataLoss::Gap { shard: id, from, to });
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
            return Ok(CommandOutcome::Known(CommandResult::Registered(watermark)));
        }
        if let Some(ShardLogRange { to, .. }) = block.log_ranges().find(|rows| rows.to <= rows.from) {
            return Err(CommandError::Empty { block: id, to });
        }
        // Several merged blocks can hold rows of one gap, each of its own tenants. The first of them closes
        // the gap.
        let is_made = |rows: &ShardLogRange| {
            let mut made = self.blocks.values().filter(|other| other.level > 0 && block.level > 0);
            made.any(|other| other.log_ranges().any(|others| others.contains(rows)))
        };
        let has_room = |rows: ShardLogRange| self.gap_position(&rows).is_some() || is_made(&rows);
        if !block.log_ranges().all(has_room) || self.blocks.values().any(|other| other.conflicts_with(&block))
        {
            return Err(CommandError::NoGap(id));
        }
        self.check_data_loss_capacity(1 + block.additional_ranges.len())?;
        for ShardLogRange { shard, from, to, .. } in block.log_ranges() {
            self.take_from_gap(shard, from, to)?;
        }
        self.blocks.insert(id, block);
        Ok(CommandOutcome::Changed(CommandResult::Registered(watermark)))
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
        let has = |scar: &DataLossRecord| matches!(scar.wound, DataLoss::Gap { shard, from: begin, to: end } if shard == of && begin <= from && from < to && to <= end);
        self.scars.iter().position(has)
    }

    /// Removes a range from the gap that contains it. Returns false if no gap contains it.
    fn take_from_gap(&mut self, of: ShardId, from: u64, to: u64) -> Result<bool, CommandError> {
        let Some(place) = self.gap_position(&ShardLogRange { shard: of, epoch: 0, from, to }) else {
            return Ok(false);
        };
        let DataLoss::Gap { shard, from: begin, to: end } = self.scars[place].wound else { return Ok(false) };
        let rests = [(begin, from), (to, end)].into_iter().filter(|(from, to)| from < to);
        let rests: Vec<DataLoss> = rests.map(|(from, to)| DataLoss::Gap { shard, from, to }).collect();
        self.check_data_loss_capacity(rests.len().saturating_sub(1))?;
        let DataLossRecord { since, .. } = self.scars.remove(place);
        self.scars.extend(rests.into_iter().map(|wound| DataLossRecord { since, wound }));
        Ok(true)
    }

    pub(in crate::state) fn record_data_loss(
        &mut self,
        wound: DataLoss,
    ) -> Result<CommandOutcome, CommandError> {
        let covers = |known: &DataLoss| match (known, &wound) {
            (DataLoss::Ids { shard, to }, DataLoss::Ids { shard: of, to: upto }) => shard == of && to >= upto,
            (known, wound) => known == wound,
        };
        if self.scars.iter().any(|scar| covers(&scar.wound)) {
            return Ok(CommandOutcome::from_count(0));
        }
        // One record per shard: otherwise growing damage would add a record with every entry.
        if let DataLoss::Ids { shard: of, .. } = wound {
            self.scars.retain(|scar| !matches!(scar.wound, DataLoss::Ids { shard, .. } if shard == of));
        }
        self.check_data_loss_capacity(1)?;
        self.push_data_loss(wound);
        Ok(CommandOutcome::from_count(1))
    }

    pub(in crate::state) fn check_data_loss_capacity(&self, more: usize) -> Result<(), CommandError> {
        match self.scars.len() + more <= MAX_DATA_LOSS_RECORDS {
            true => Ok(()),
            false => {
                Err(CommandError::TooMany { what: LimitedResource::Scars, limit: MAX_DATA_LOSS_RECORDS })
            }
        }
    }

    pub(in crate::state) fn push_data_loss(&mut self, wound: DataLoss) {
        self.scars.push(DataLossRecord { since: self.now, wound });
    }

    pub(in crate::state) fn clear_data_loss(&mut self, before: Timestamp) -> CommandOutcome {
        let scars = self.scars.len();
        self.scars.retain(|scar| scar.since >= before);
        CommandOutcome::from_count(scars - self.scars.len())
    }

    pub(in crate::state) fn tombstone_blocks(&mut self, blocks: Vec<BlockId>) -> CommandOutcome {
        let before = self.condemned.len();
        for block in blocks {
            self.blocks.remove(&block);
            self.condemned.entry(block).or_insert(self.now);
        }
        CommandOutcome::from_count(self.condemned.len() - before)
    }

    /// Drops expired tombstones, retired shards past their retention, abandoned staged tenants, and nodes
    /// without shards.
    pub(in crate::state) fn expire_tombstones(&mut self) -> CommandOutcome {
        let now = self.now;
        let before = self.condemned.len() + self.shards.len();
        let retention = &self.retention;
        self.condemned.retain(|block, condemned| {
            now.since(*condemned) < TOMBSTONE_RETENTION || retention.is_expired(block)
        });
        let scars = &self.scars;
        self.shards.retain(|id, shard| {
            let is_named = || scars.iter().any(|scar| scar.wound.shard() == Some(*id));
            !shard.is_retired() || now.since(shard.since) < TOMBSTONE_RETENTION || is_named()
        });
        let shards = &self.shards;
        self.nodes.retain(|node, _| shards.values().any(|shard| shard.members.contains(node)));
        let stages = self.drop_abandoned_stages();
        CommandOutcome::from_count(before - self.condemned.len() - self.shards.len() + stages)
    }
}
