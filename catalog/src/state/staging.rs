//! Staging: the tenants of a block whose entry does not fit into one command.
//!
//! ```text
//!  StageTenants 0.. ─► StageTenants n.. ─► … ─► RegisterStaged    the block exists with all of them, or not at all
//! ```
//!
//! Each part names its offset, so a part that comes twice changes nothing. Each answer says how many tenants are staged, so a
//! caller that lost an answer continues where the last one ended. Staged tenants are in no listing.

use athanor_chassis::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    CatalogState, CommandError, CommandOutcome, CommandResult, LimitedResource, MAX_BLOCK_NAME_SKEW, ShardId,
};
use crate::block::{BlockEntry, BlockId, TenantSpan};

/// The most tenants that one command names of a block: with the longest names about half of what a command may have in bytes.
pub const MAX_TENANTS_PER_COMMAND: usize = 2_000;
/// The most tenants that are staged for all blocks together.
pub const MAX_STAGED_TENANTS: usize = 1 << 21;

/// The tenants of one block that does not exist yet, as far as they were named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StagedBlock {
    /// The block.
    pub(super) block: BlockId,
    /// Time of the first part.
    pub(super) since: Timestamp,
    /// The first tenants of the block, in its order.
    pub(super) tenants: Vec<TenantSpan>,
}

impl CatalogState {
    /// Appends a part of a block's tenants. A shard stages one block at a time: the first part of another one discards what was
    /// staged before.
    pub(super) fn stage_tenants(
        &mut self,
        shard: ShardId,
        block: BlockId,
        offset: u64,
        tenants: Vec<TenantSpan>,
    ) -> Result<CommandOutcome, CommandError> {
        let watermark = self.shard(shard)?.watermark;
        if self.condemned.contains_key(&block) {
            return Err(CommandError::Condemned(block));
        }
        if self.blocks.contains_key(&block) {
            return Ok(CommandOutcome::Known(CommandResult::Registered(watermark)));
        }
        let held = self.staged_count(shard, block);
        if offset > held as u64 {
            return Err(CommandError::StagedOtherwise { block, staged: held as u64, named: offset });
        }
        let part = tenants.into_iter().skip(held - offset as usize);
        let others = self.staged.iter().filter(|(other, _)| **other != shard);
        let others: usize = others.map(|(_, staged)| staged.tenants.len()).sum();
        if others + held + part.len() > MAX_STAGED_TENANTS {
            return Err(CommandError::TooMany {
                what: LimitedResource::StagedTenants,
                limit: MAX_STAGED_TENANTS,
            });
        }
        if part.len() == 0 {
            return Ok(CommandOutcome::Known(CommandResult::Staged(held as u64)));
        }
        let fresh = StagedBlock { block, since: self.now, tenants: Vec::new() };
        let staged = self.staged.entry(shard).or_insert_with(|| fresh.clone());
        if staged.block != block {
            *staged = fresh;
        }
        staged.tenants.extend(part);
        Ok(CommandOutcome::Changed(CommandResult::Staged(staged.tenants.len() as u64)))
    }

    /// Registers a block with the tenants that were staged for it, of which there must be `tenants`.
    pub(super) fn register_staged(
        &mut self,
        block: BlockEntry,
        tenants: u64,
    ) -> Result<CommandOutcome, CommandError> {
        let block = self.with_staged(block, tenants)?;
        self.register_block(block)
    }

    /// Recalls a block with the tenants that were staged for it, of which there must be `tenants`.
    pub(super) fn recall_staged(
        &mut self,
        block: BlockEntry,
        tenants: u64,
    ) -> Result<CommandOutcome, CommandError> {
        let block = self.with_staged(block, tenants)?;
        self.reinstate_block(block)
    }

    fn with_staged(&self, block: BlockEntry, tenants: u64) -> Result<BlockEntry, CommandError> {
        if self.blocks.contains_key(&block.id) {
            return Ok(block);
        }
        match self.staged.get(&block.shard).filter(|staged| staged.block == block.id) {
            Some(staged) if staged.tenants.len() as u64 == tenants => {
                Ok(BlockEntry { tenants: staged.tenants.clone(), ..block })
            }
            _ => {
                let staged = self.staged_count(block.shard, block.id) as u64;
                Err(CommandError::StagedOtherwise { block: block.id, staged, named: tenants })
            }
        }
    }

    fn staged_count(&self, shard: ShardId, block: BlockId) -> usize {
        self.staged
            .get(&shard)
            .filter(|staged| staged.block == block)
            .map_or(0, |staged| staged.tenants.len())
    }

    /// Drops the staged tenants of blocks that exist by now, or never will.
    pub(super) fn drop_ended_stages(&mut self) {
        let Self { staged, blocks, condemned, .. } = self;
        staged.retain(|_, staged| {
            !blocks.contains_key(&staged.block) && !condemned.contains_key(&staged.block)
        });
    }

    /// Drops the staged tenants that nobody registered in the time in which a block may register; returns of how many blocks.
    pub(super) fn drop_abandoned_stages(&mut self) -> usize {
        let before = self.staged.len();
        let now = self.now;
        let shards = &self.shards;
        self.staged.retain(|shard, staged| {
            shards.contains_key(shard) && now.since(staged.since) <= MAX_BLOCK_NAME_SKEW
        });
        before - self.staged.len()
    }

    /// Whether staged tenants are of blocks that may still exist, and few enough.
    pub(super) fn check_staged(&self) -> Result<(), String> {
        let ended = self.staged.values().find(|staged| {
            self.blocks.contains_key(&staged.block) || self.condemned.contains_key(&staged.block)
        });
        if let Some(StagedBlock { block, .. }) = ended {
            return Err(format!("block {block} is registered or condemned, and tenants are staged for it"));
        }
        let count: usize = self.staged.values().map(|staged| staged.tenants.len()).sum();
        match count <= MAX_STAGED_TENANTS {
            true => Ok(()),
            false => Err(format!("there are {count} staged tenants, the limit is {MAX_STAGED_TENANTS}")),
        }
    }
}
