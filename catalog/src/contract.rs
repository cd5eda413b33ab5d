//! The contract, whoever keeps it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::code::{ErrorCode, ErrorCodeExt};
use athanor_chassis::{Clock, Status, TenantId, Timestamp};
use athanor_cluster::NodeId;

use crate::state::{
    AgeReport, BlockListing, CatalogCommand, CatalogState, CommandError, CommandResult, DataLoss,
    TenantDocuments, decode_shard_id,
};
use crate::{BlockEntry, BlockId, MAX_SLOTS, MAX_TENANTS_PER_COMMAND, ShardEntry, ShardId, ShardLogRange};

/// A catalogue.
#[async_trait]
pub trait Catalog: Send + Sync + 'static {
    /// Proposes a change and waits until it is durable. The catalogue's clock says when that was.
    async fn propose(&self, command: CatalogCommand) -> Result<CommandResult, CatalogError>;

    /// What a tenant has in a range of time, both ends included; no older than this call.
    async fn list_blocks(&self, tenant: &TenantId, from: i64, to: i64) -> Result<BlockListing, CatalogError>;

    /// All blocks; no older than this call.
    async fn blocks(&self) -> Result<Vec<BlockEntry>, CatalogError>;

    /// The blocks with rows of a slot whose names were drawn since a time, without their tenants; no older than this call.
    async fn blocks_of_slot(&self, slot: u32, since: Timestamp) -> Result<Vec<BlockEntry>, CatalogError> {
        let mut blocks = self.blocks().await?;
        let of_slot = |rows: ShardLogRange| decode_shard_id(rows.shard).is_some_and(|(of, _)| of == slot);
        blocks.retain(|block| block.id.named_at() >= since && block.log_ranges().any(of_slot));
        // Names of many tenants would not fit into an answer.
        blocks.iter_mut().for_each(|block| block.tenants.clear());
        Ok(blocks)
    }

    /// The tenants with rows in some block; no older than this call.
    async fn tenants(&self) -> Result<Vec<TenantId>, CatalogError>;

    /// What a tenant keeps; no older than this call.
    async fn tenant_documents(&self, tenant: &TenantId) -> Result<TenantDocuments, CatalogError>;

    /// Names that never register, and when they were condemned; no older than this call.
    async fn tombstones(&self) -> Result<Vec<(BlockId, Timestamp)>, CatalogError>;

    /// Returns the ages of all blocks, by the time that a command would be stamped with now. Only a voter knows them.
    async fn block_ages(&self, _retention: Duration) -> Result<AgeReport, CatalogError> {
        let message = "this catalog does not know the ages of blocks; ask a node with the role metastore";
        Err(CatalogError::Unavailable(Status::new(ErrorCode::Unimplemented, message)))
    }

    /// The shard of a slot that takes records; opens the first one, of a log that one node has.
    async fn open_shard(&self, slot: u32, node: NodeId) -> Result<ShardEntry, CatalogError> {
        match self.propose(CatalogCommand::OpenShard { slot, members: [node].into() }).await? {
            CommandResult::Shard(shard) => Ok(shard),
            other => Err(CatalogError::from_result(other)),
        }
    }

    /// Opens the first shards of so many slots, all on one node, unless there are some.
    async fn open_slots(&self, count: u32, node: NodeId) -> Result<(), CatalogError> {
        let members = vec![[node].into(); count.clamp(1, MAX_SLOTS) as usize];
        let count = members.len() as u32;
        let zones = [(node, String::new())].into();
        self.apply_command(CatalogCommand::OpenSlots { count, members, zones }).await
    }

    /// What a shard's log calls registered is, known or not.
    async fn advance_watermark(&self, shard: ShardId, to: u64) -> Result<(), CatalogError> {
        self.apply_command(CatalogCommand::Raise { shard, to }).await
    }

    /// Remembers what damage did.
    async fn record_data_loss(&self, wound: DataLoss) -> Result<(), CatalogError> {
        self.apply_command(CatalogCommand::Mark { wound }).await
    }

    /// Registers a block and gives its shard's watermark.
    async fn register_block(&self, block: BlockEntry) -> Result<u64, CatalogError> {
        let command = match block.tenants.len() <= MAX_TENANTS_PER_COMMAND {
            true => CatalogCommand::Register { block },
            false => {
                let (block, tenants) = self.stage_tenants(block).await?;
                CatalogCommand::RegisterStaged { block, tenants }
            }
        };
        self.propose_block(command).await
    }

    /// Registers a block that lies in a gap and gives its shard's watermark.
    async fn reinstate_block(&self, block: BlockEntry) -> Result<u64, CatalogError> {
        let command = match block.tenants.len() <= MAX_TENANTS_PER_COMMAND {
            true => CatalogCommand::Recall { block },
            false => {
                let (block, tenants) = self.stage_tenants(block).await?;
                CatalogCommand::RecallStaged { block, tenants }
            }
        };
        self.propose_block(command).await
    }

    /// Proposes that a block exists.
    async fn propose_block(&self, command: CatalogCommand) -> Result<u64, CatalogError> {
        match self.propose(command).await? {
            CommandResult::Registered(watermark) => Ok(watermark),
            other => Err(CatalogError::from_result(other)),
        }
    }

    /// Stages all tenants of a block; returns the block without them, and their number. Continues where an earlier call
    /// ended.
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
                // Each part is staged or refused, so the number grows.
                CommandResult::Staged(now) if now > offset => staged = now as usize,
                CommandResult::Registered(_) => break,
                other => return Err(CatalogError::from_result(other)),
            }
        }
        Ok((block, all.len() as u64))
    }

    /// Puts blocks in the places of those that they were made of.
    async fn replace_blocks(
        &self,
        inputs: Vec<BlockId>,
        outputs: Vec<BlockEntry>,
    ) -> Result<(), CatalogError> {
        self.apply_command(CatalogCommand::Replace { inputs, outputs }).await
    }

    /// Condemns blocks.
    async fn tombstone_blocks(&self, blocks: Vec<BlockId>) -> Result<(), CatalogError> {
        self.apply_command(CatalogCommand::Condemn { blocks }).await
    }

    /// Proposes a change of which it does not matter how much it changes.
    async fn apply_command(&self, command: CatalogCommand) -> Result<(), CatalogError> {
        match self.propose(command).await? {
            CommandResult::Changed(_) => Ok(()),
            other => Err(CatalogError::from_result(other)),
        }
    }
}

/// Why a catalogue did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// It applied the command, which changed nothing.
    #[error("the catalogue refused: {0}")]
    Refused(#[from] CommandError),
    /// It could not be asked, or did not answer.
    #[error("the catalogue cannot be asked: {0}")]
    Unavailable(Status),
}

impl CatalogError {
    /// What an answer means that was not hoped for.
    fn from_result(answer: CommandResult) -> Self {
        match answer {
            CommandResult::Refused(refused) => Self::Refused(refused),
            other => Self::Unavailable(Status::new(ErrorCode::Internal, format!("it answered {other:?}"))),
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

/// A catalogue in the memory of this process, for tests of those who ask one.
#[derive(Debug)]
pub struct InMemoryCatalog {
    state: Mutex<CatalogState>,
    clock: Clock,
}

impl InMemoryCatalog {
    /// One without facts, whose time is that of a clock.
    pub fn new(clock: Clock) -> Self {
        Self { state: Mutex::default(), clock }
    }

    /// The facts now.
    pub fn state(&self) -> MutexGuard<'_, CatalogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
