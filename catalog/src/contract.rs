//! Contract of the catalog, and an implementation in memory.

use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::code::{ErrorCode, ErrorCodeExt};
use athanor_chassis::{Clock, Status, TenantId, Timestamp};
use athanor_cluster::NodeId;
use parking_lot::{Mutex, MutexGuard};

use crate::state::{
    AgeReport, BlockListing, CatalogCommand, CatalogState, CommandError, CommandResult, DataLoss,
    TenantDocuments, decode_shard_id,
};
use crate::{BlockEntry, BlockId, MAX_SLOTS, MAX_TENANTS_PER_COMMAND, ShardEntry, ShardId, ShardLogRange};

/// Interface of the catalog: proposals, and reads that are no older than the call.
#[async_trait]
pub trait Catalog: Send + Sync + 'static {
    /// Proposes a command and waits until its effect is durable. The catalog stamps it with its own clock.
    async fn propose(&self, command: CatalogCommand) -> Result<CommandResult, CatalogError>;

    /// Lists a tenant's blocks in a time range, both ends included. The listing is no older than this call.
    async fn list_blocks(&self, tenant: &TenantId, from: i64, to: i64) -> Result<BlockListing, CatalogError>;

    /// Returns all blocks. The result is no older than this call.
    async fn blocks(&self) -> Result<Vec<BlockEntry>, CatalogError>;

    /// Returns the blocks that hold rows of a slot and have ids generated at or after `since`. The entries have
    /// no tenants. The result is no older than this call.
    async fn blocks_of_slot(&self, slot: u32, since: Timestamp) -> Result<Vec<BlockEntry>, CatalogError> {
        let mut blocks = self.blocks().await?;
        let of_slot = |rows: ShardLogRange| decode_shard_id(rows.shard).is_some_and(|(of, _)| of == slot);
        blocks.retain(|block| block.id.named_at() >= since && block.log_ranges().any(of_slot));
        // The names of many tenants would not fit into a response.
        blocks.iter_mut().for_each(|block| block.tenants.clear());
        Ok(blocks)
    }

    /// Returns the tenants with rows in at least one block. The result is no older than this call.
    async fn tenants(&self) -> Result<Vec<TenantId>, CatalogError>;

    /// Returns a tenant's documents. The result is no older than this call.
    async fn tenant_documents(&self, tenant: &TenantId) -> Result<TenantDocuments, CatalogError>;

    /// Returns the tombstones, each with the time of its creation. The result is no older than this call.
    async fn tombstones(&self) -> Result<Vec<(BlockId, Timestamp)>, CatalogError>;

    /// Returns the ages of all blocks at the time that the next command would carry. Only a voter can compute
    /// them.
    async fn block_ages(&self, _retention: Duration) -> Result<AgeReport, CatalogError> {
        let message = "this catalog cannot compute the ages of blocks; send the request to a node with the role metastore";
        Err(CatalogError::Unavailable(Status::new(ErrorCode::Unimplemented, message)))
    }

    /// Returns the shard of a slot that accepts records. If the slot has no shard, opens the first one, with
    /// one member.
    async fn open_shard(&self, slot: u32, node: NodeId) -> Result<ShardEntry, CatalogError> {
        match self.propose(CatalogCommand::OpenShard { slot, members: [node].into() }).await? {
            CommandResult::Shard(shard) => Ok(shard),
            other => Err(CatalogError::from_result(other)),
        }
    }

    /// Opens the first shards of `count` slots, all on one node. Changes nothing if shards exist.
    async fn open_slots(&self, count: u32, node: NodeId) -> Result<(), CatalogError> {
        let members = vec![[node].into(); count.clamp(1, MAX_SLOTS) as usize];
        let count = members.len() as u32;
        let zones = [(node, String::new())].into();
        self.apply_command(CatalogCommand::OpenSlots { count, members, zones }).await
    }

    /// Advances a shard's watermark to an index that its log counts as registered, even if no known block
    /// covers it.
    async fn advance_watermark(&self, shard: ShardId, to: u64) -> Result<(), CatalogError> {
        self.apply_command(CatalogCommand::AdvanceWatermark { shard, to }).await
    }

    /// Records a data loss. A loss that is recorded already changes nothing.
    async fn record_data_loss(&self, loss: DataLoss) -> Result<(), CatalogError> {
        self.apply_command(CatalogCommand::RecordDataLoss { loss }).await
    }

    /// Registers a block and returns its shard's watermark.
    async fn register_block(&self, block: BlockEntry) -> Result<u64, CatalogError> {
        let command = match block.tenants.len() <= MAX_TENANTS_PER_COMMAND {
            true => CatalogCommand::RegisterBlock { block },
            false => {
                let (block, tenants) = self.stage_tenants(block).await?;
                CatalogCommand::RegisterStagedBlock { block, tenants }
            }
        };
        self.propose_block(command).await
    }

    /// Registers a block that fills a recorded gap, and returns its shard's watermark.
    async fn reinstate_block(&self, block: BlockEntry) -> Result<u64, CatalogError> {
        let command = match block.tenants.len() <= MAX_TENANTS_PER_COMMAND {
            true => CatalogCommand::ReinstateBlock { block },
            false => {
                let (block, tenants) = self.stage_tenants(block).await?;
                CatalogCommand::ReinstateStagedBlock { block, tenants }
            }
        };
        self.propose_block(command).await
    }

    /// Proposes a command that registers a block, and returns the watermark.
    async fn propose_block(&self, command: CatalogCommand) -> Result<u64, CatalogError> {
        match self.propose(command).await? {
            CommandResult::Registered(watermark) => Ok(watermark),
            other => Err(CatalogError::from_result(other)),
        }
    }

    /// Stages all tenants of a block. Returns the block without tenants, and their number. A retry continues
    /// at the offset that an earlier call reached.
    async fn stage_tenants(&self, mut block: BlockEntry) -> Result<(BlockEntry, u64), CatalogError> {
        let all = std::mem::take(&mut block.tenants);
        let mut staged = 0;
        while staged < all.len() {
            let part = &all[staged..all.len().min(staged + MAX_TENANTS_PER_COMMAND)];
            let shard = block.shard;
            let offset = staged as u64;
            let tenants = part.to_vec();
            match self
                .propose(CatalogCommand::StageTenants { shard, block: block.id, offset, tenants })
                .await?
            {
                // The catalog stages or refuses each part, so the number grows.
                CommandResult::Staged(now) if now > offset => staged = now as usize,
                CommandResult::Registered(_) => break,
                other => return Err(CatalogError::from_result(other)),
            }
        }
        Ok((block, all.len() as u64))
    }

    /// Replaces input blocks by the blocks that were merged from them.
    async fn replace_blocks(
        &self,
        inputs: Vec<BlockId>,
        outputs: Vec<BlockEntry>,
    ) -> Result<(), CatalogError> {
        self.apply_command(CatalogCommand::ReplaceBlocks { inputs, outputs }).await
    }

    /// Deletes blocks and makes their ids unusable.
    async fn tombstone_blocks(&self, blocks: Vec<BlockId>) -> Result<(), CatalogError> {
        self.apply_command(CatalogCommand::TombstoneBlocks { blocks }).await
    }

    /// Proposes a command and ignores the number of changes that it made.
    async fn apply_command(&self, command: CatalogCommand) -> Result<(), CatalogError> {
        match self.propose(command).await? {
            CommandResult::Changed(_) => Ok(()),
            other => Err(CatalogError::from_result(other)),
        }
    }
}

/// Error of a request to the catalog.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The catalog applied the command, which changed nothing.
    #[error("the catalog refused the command: {0}")]
    Refused(#[from] CommandError),
    /// The catalog was unreachable or sent no usable response.
    #[error("the catalog is unavailable: {0}")]
    Unavailable(Status),
}

impl CatalogError {
    /// Converts a result that the caller did not expect into an error.
    fn from_result(result: CommandResult) -> Self {
        match result {
            CommandResult::Refused(refused) => Self::Refused(refused),
            other => {
                Self::Unavailable(Status::new(ErrorCode::Internal, format!("unexpected result: {other:?}")))
            }
        }
    }
}

impl ErrorCodeExt for CatalogError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Refused(_) => ErrorCode::Conflict,
            Self::Unavailable(status) => status.code,
        }
    }
}

/// Catalog in the memory of this process, for tests of its clients.
#[derive(Debug)]
pub struct InMemoryCatalog {
    state: Mutex<CatalogState>,
    clock: Clock,
}

impl InMemoryCatalog {
    /// Creates an empty catalog that takes its time from a clock.
    pub fn new(clock: Clock) -> Self {
        Self { state: Mutex::default(), clock }
    }

    /// Locks the current state for reading or changing.
    pub fn state(&self) -> MutexGuard<'_, CatalogState> {
        self.state.lock()
    }
}

#[async_trait]
impl Catalog for InMemoryCatalog {
    async fn propose(&self, command: CatalogCommand) -> Result<CommandResult, CatalogError> {
        let at = self.clock.wall();
        Ok(self.state().apply(at, command))
    }

    async fn list_blocks(&self, tenant: &TenantId, from: i64, to: i64) -> Result<BlockListing, CatalogError> {
        Ok(self.state().list_blocks(tenant, from, to))
    }

    async fn blocks(&self) -> Result<Vec<BlockEntry>, CatalogError> {
        Ok(self.state().blocks().cloned().collect())
    }

    async fn tenants(&self) -> Result<Vec<TenantId>, CatalogError> {
        Ok(self.state().tenants().cloned().collect())
    }

    async fn tenant_documents(&self, tenant: &TenantId) -> Result<TenantDocuments, CatalogError> {
        Ok(self.state().tenant_documents(tenant))
    }

    async fn tombstones(&self) -> Result<Vec<(BlockId, Timestamp)>, CatalogError> {
        Ok(self.state().tombstones().collect())
    }

    async fn block_ages(&self, retention: Duration) -> Result<AgeReport, CatalogError> {
        Ok(self.state().block_ages(self.clock.wall(), retention))
    }
}
