//! Staging: registration of blocks with more tenants than fit into one command.
//!
//! ```text
//!  StageTenants 0.. ─► StageTenants n.. ─► … ─► RegisterStaged: all of them or no block
//! ```
//!
//! Each part names its offset, so a duplicate part changes nothing. Each response names the number of staged
//! tenants, so a caller that lost a response continues at that offset. Staged tenants are in no listing.

use athanor_chassis::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::block::{BlockEntry, BlockId, TenantSpan};
use crate::state::persistent_map::PersistentMap;
use crate::state::{
    CatalogState, CommandError, CommandOutcome, CommandResult, LimitedResource, MAX_BLOCK_NAME_SKEW, ShardId,
};

/// Limit of tenants per command. With the longest names they take about half of a command's size limit.
pub const MAX_TENANTS_PER_COMMAND: usize = 2_000;
/// Limit of staged tenants of all blocks together.
pub const MAX_STAGED_TENANTS: usize = 1 << 21;

/// Staged tenants of one block that is not registered yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::state) struct StagedBlock {
    /// Id of the block.
    pub(in crate::state) block: BlockId,
    /// Time of the first part.
    pub(in crate::state) since: Timestamp,
    /// First tenants of the block, in the block's order.
    pub(in crate::state) tenants: StagedTenants,
}

/// Tenants in the order of their staging. A clone takes constant time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::state) struct StagedTenants {
    by_position: PersistentMap<usize, TenantSpan>,
}

impl StagedTenants {
    /// Returns the number of tenants.
    pub(in crate::state) fn len(&self) -> usize {
        self.by_position.len()
    }

    fn to_vec(&self) -> Vec<TenantSpan> {
        self.by_position.values().cloned().collect()
    }

    fn push(&mut self, span: TenantSpan) {
        self.by_position.insert(self.len(), span);
    }
}

impl Serialize for StagedTenants {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.by_position.values())
    }
}

impl<'de> Deserialize<'de> for StagedTenants {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let tenants: Vec<TenantSpan> = Vec::deserialize(deserializer)?;
        Ok(Self { by_position: tenants.into_iter().enumerate().collect() })
    }
}

impl CatalogState {
    /// Appends a part of a block's tenants. A shard stages one block at a time: the first part of another
    /// block discards the earlier one.
    pub(in crate::state) fn stage_tenants(
        &mut self,
        shard: ShardId,
        block: BlockId,
        offset: u64,
        tenants: Vec<TenantSpan>,
    ) -> Result<CommandOutcome, CommandError> {
        let watermark = self.shard(shard)?.watermark;
        if self.tombstones.contains_key(&block) {
            return Err(CommandError::Tombstoned(block));
        }
        if self.blocks.contains_key(&block) {
            return Ok(CommandOutcome::NoOp(CommandResult::Registered(watermark)));
        }
        let staged_before = self.staged_count(shard, block);
        if offset > staged_before as u64 {
            return Err(CommandError::StagedTenantsMismatch {
                block,
                staged: staged_before as u64,
                named: offset,
            });
        }
        let part = tenants.into_iter().skip(staged_before - offset as usize);
        let others = self.staged.iter().filter(|(other, _)| **other != shard);
        let others: usize = others.map(|(_, staged)| staged.tenants.len()).sum();
        if others + staged_before + part.len() > MAX_STAGED_TENANTS {
            return Err(CommandError::LimitReached {
                resource: LimitedResource::StagedTenants,
                limit: MAX_STAGED_TENANTS,
            });
        }
        if part.len() == 0 {
            return Ok(CommandOutcome::NoOp(CommandResult::Staged(staged_before as u64)));
        }
        let fresh = StagedBlock { block, since: self.now, tenants: StagedTenants::default() };
        let staged = self.staged.entry(shard).or_insert_with(|| fresh.clone());
        if staged.block != block {
            *staged = fresh;
        }
        part.for_each(|span| staged.tenants.push(span));
        Ok(CommandOutcome::Changed(CommandResult::Staged(staged.tenants.len() as u64)))
    }

    /// Registers a block with its staged tenants. Their number must be `tenants`.
    pub(in crate::state) fn register_staged_block(
        &mut self,
        block: BlockEntry,
        tenants: u64,
    ) -> Result<CommandOutcome, CommandError> {
        let block = self.with_staged(block, tenants)?;
        self.register_block(block)
    }

    /// Reinstates a block with its staged tenants. Their number must be `tenants`.
    pub(in crate::state) fn reinstate_staged_block(
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
                Ok(BlockEntry { tenants: staged.tenants.to_vec(), ..block })
            }
            _ => {
                let staged = self.staged_count(block.shard, block.id) as u64;
                Err(CommandError::StagedTenantsMismatch { block: block.id, staged, named: tenants })
            }
        }
    }

    fn staged_count(&self, shard: ShardId, block: BlockId) -> usize {
        self.staged
            .get(&shard)
            .filter(|staged| staged.block == block)
            .map_or(0, |staged| staged.tenants.len())
    }

    /// Drops the staged tenants of blocks that are registered or tombstoned.
    pub(in crate::state) fn drop_ended_stages(&mut self) {
        let Self { staged, blocks, tombstones, .. } = self;
        staged.retain(|_, staged| {
            !blocks.contains_key(&staged.block) && !tombstones.contains_key(&staged.block)
        });
    }

    /// Drops staged tenants that are older than a block may be at registration. Returns the number of their
    /// blocks.
    pub(in crate::state) fn drop_abandoned_stages(&mut self) -> usize {
        let before = self.staged.len();
        let now = self.now;
        let shards = &self.shards;
        self.staged.retain(|shard, staged| {
            shards.contains_key(shard) && now.since(staged.since) <= MAX_BLOCK_NAME_SKEW
        });
        before - self.staged.len()
    }

    /// Returns an error if staged tenants belong to a registered or tombstoned block, or exceed the limit.
    pub(in crate::state) fn check_staged(&self) -> Result<(), String> {
        let ended = self.staged.values().find(|staged| {
            self.blocks.contains_key(&staged.block) || self.tombstones.contains_key(&staged.block)
        });
        if let Some(StagedBlock { block, .. }) = ended {
            return Err(format!(
                "block {block} is registered or has a tombstone, and tenants are staged for it"
            ));
        }
        let count: usize = self.staged.values().map(|staged| staged.tenants.len()).sum();
        match count <= MAX_STAGED_TENANTS {
            true => Ok(()),
            false => Err(format!("there are {count} staged tenants, the limit is {MAX_STAGED_TENANTS}")),
        }
    }
}
