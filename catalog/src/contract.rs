//! Contract of the catalog, and an implementation in memory.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use athanor_chassis::code::{ErrorCode, ErrorCodeExt};
use athanor_chassis::{Clock, Status, TenantId, Timestamp};
use athanor_cluster::NodeId;
use parking_lot::{Mutex, MutexGuard};

use crate::compaction::planner::{compaction_status, plan_jobs};
use crate::state::{
    AgeReport, BlockListing, CatalogCommand, CatalogState, CommandError, CommandResult, DataLoss,
    RemovalReport, RetentionPolicy, TenantDocuments, Tombstone, decode_shard_id,
};
use crate::{
    BlockEntry, BlockId, CompactionJob, CompactionStatus, DroppedRows, JobParts, JobRequest, MAX_SLOTS,
    MAX_TENANTS_PER_COMMAND, PartId, ShardEntry, ShardId,
};

/// Interface of the catalog: proposals, and reads that are no older than the call.
#[async_trait]
pub trait Catalog: Send + Sync + 'static {
    /// Proposes a command and waits until its effect is durable. The catalog stamps it with its own clock.
    async fn propose(&self, command: CatalogCommand) -> Result<CommandResult, CatalogError>;

    /// Lists a tenant's blocks in a time range, both ends included. The listing is no older than this call.
    async fn list_blocks(&self, tenant: &TenantId, from: i64, to: i64) -> Result<BlockListing, CatalogError>;

    /// Returns all blocks. The result is no older than this call.
    async fn blocks(&self) -> Result<Vec<BlockEntry>, CatalogError>;

    /// Returns the flushed blocks of a slot that have ids generated at or after `since`, and tombstoned ones
    /// whose objects are not removed. Merged blocks hold ids of other slots and are left out: their inputs
    /// keep the ids [INV-13]. The entries have no tenants. The result is no older than this call.
    async fn blocks_of_slot(&self, slot: u32, since: Timestamp) -> Result<Vec<BlockEntry>, CatalogError> {
        let listed = self.blocks().await?;
        // Read after the blocks, so a block that is tombstoned meanwhile is in one of the two.
        let tombstones = self.tombstones().await?;
        let tombstoned = tombstones.iter().filter_map(|(block, tombstone)| tombstone.flushed_entry(*block));
        let flushed = listed.into_iter().filter(|block| block.level == 0).chain(tombstoned);
        let is_of_slot = |block: &BlockEntry| decode_shard_id(block.shard).is_some_and(|(of, _)| of == slot);
        let chosen = flushed.filter(|block| block.id.named_at() >= since && is_of_slot(block));
        // The names of many tenants would not fit into a response.
        let by_id: BTreeMap<BlockId, BlockEntry> =
            chosen.map(|block| (block.id, BlockEntry { tenants: Vec::new(), ..block })).collect();
        Ok(by_id.into_values().collect())
    }

    /// Returns the tenants with rows in at least one block. The result is no older than this call.
    async fn tenants(&self) -> Result<Vec<TenantId>, CatalogError>;

    /// Returns a tenant's documents. The result is no older than this call.
    async fn tenant_documents(&self, tenant: &TenantId) -> Result<TenantDocuments, CatalogError>;

    /// Returns the tombstones by id. The result is no older than this call.
    async fn tombstones(&self) -> Result<Vec<(BlockId, Tombstone)>, CatalogError>;

    /// Returns the ages of all blocks at the time that the next command would carry. Only a voter can compute
    /// them. The report is no older than this call.
    async fn block_ages(&self, _retention: &RetentionPolicy) -> Result<AgeReport, CatalogError> {
        let message = "this catalog cannot compute the ages of blocks; send the request to a node with the role metastore";
        Err(CatalogError::Unavailable(Status::new(ErrorCode::Unimplemented, message)))
    }

    /// Returns jobs that a worker can claim, the most urgent first. Only a voter can plan them.
    async fn compaction_jobs(&self, _request: &JobRequest) -> Result<Vec<CompactionJob>, CatalogError> {
        let message =
            "this catalog cannot plan compaction jobs; send the request to a node with the role metastore";
        Err(CatalogError::Unavailable(Status::new(ErrorCode::Unimplemented, message)))
    }

    /// Returns the state of compaction. Only a voter can compute it.
    async fn compaction_status(&self) -> Result<CompactionStatus, CatalogError> {
        let message = "this catalog cannot compute the state of compaction; send the request to a node with the role metastore";
        Err(CatalogError::Unavailable(Status::new(ErrorCode::Unimplemented, message)))
    }

    /// Returns the facts that decide which objects may be removed. Only the leading voter knows them.
    async fn removal_report(&self) -> Result<RemovalReport, CatalogError> {
        let message =
            "this catalog cannot report removals; send the request to a node with the role metastore";
        Err(CatalogError::Unavailable(Status::new(ErrorCode::Unimplemented, message)))
    }

    /// Returns those of the named blocks that are neither listed nor tombstoned. The result is no older than
    /// this call.
    async fn unknown_blocks(&self, blocks: &[BlockId]) -> Result<Vec<BlockId>, CatalogError> {
        let listed: BTreeSet<BlockId> = self.blocks().await?.iter().map(|block| block.id).collect();
        // Read after the blocks, so a block that is tombstoned meanwhile is in one of the two.
        let tombstones: BTreeSet<BlockId> =
            self.tombstones().await?.into_iter().map(|(block, _)| block).collect();
        let is_unknown = |block: &&BlockId| !listed.contains(*block) && !tombstones.contains(*block);
        Ok(blocks.iter().filter(is_unknown).copied().collect())
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

    /// Registers all remaining outputs of a job that fill recorded gaps, or none of them.
    async fn reinstate_job(&self, outputs: Vec<BlockEntry>) -> Result<(), CatalogError> {
        self.apply_command(CatalogCommand::ReinstateJob { outputs }).await
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

    /// Claims parts for a worker and returns the token of the claim.
    async fn claim_parts(&self, worker: NodeId, parts: JobParts) -> Result<u64, CatalogError> {
        match self.propose(CatalogCommand::ClaimParts { worker, parts }).await? {
            CommandResult::Claimed(token) => Ok(token),
            CommandResult::FailureLimit(part) => Err(CommandError::PartFailed(part).into()),
            other => Err(CatalogError::from_result(other)),
        }
    }

    /// Renews the leases of a worker's claims. Returns the number of those that have not ended.
    async fn renew_leases(&self, worker: NodeId, tokens: Vec<u64>) -> Result<u64, CatalogError> {
        match self.propose(CatalogCommand::RenewLeases { worker, tokens }).await? {
            CommandResult::Changed(renewed) => Ok(renewed as u64),
            other => Err(CatalogError::from_result(other)),
        }
    }

    /// Swaps the parts of a claim for the blocks that were merged from them. `compared` names the covered
    /// blocks with whose ids the job compared its rows. A retry changes nothing. The claim ends with
    /// [`CommandError::NotCompared`], without a failure.
    async fn finish_job(
        &self,
        token: u64,
        outputs: Vec<BlockEntry>,
        dropped: Vec<DroppedRows>,
        compared: Vec<BlockId>,
    ) -> Result<(), CatalogError> {
        match self.propose(CatalogCommand::FinishJob { token, outputs, dropped, compared }).await? {
            CommandResult::Changed(_) => Ok(()),
            CommandResult::NotCompared(block) => Err(CommandError::NotCompared { block }.into()),
            other => Err(CatalogError::from_result(other)),
        }
    }

    /// Ends a claim without a result, and counts the failure.
    async fn fail_job(
        &self,
        token: u64,
        reason: String,
        culprit: Option<PartId>,
    ) -> Result<(), CatalogError> {
        self.apply_command(CatalogCommand::FailJob { token, reason, culprit }).await
    }

    /// Deletes blocks and makes their ids unusable. `tenant` owns the folder of those that are not listed.
    async fn tombstone_blocks(
        &self,
        blocks: Vec<BlockId>,
        tenant: Option<TenantId>,
    ) -> Result<(), CatalogError> {
        self.apply_command(CatalogCommand::TombstoneBlocks { blocks, tenant }).await
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

    async fn tombstones(&self) -> Result<Vec<(BlockId, Tombstone)>, CatalogError> {
        Ok(self.state().tombstones().map(|(block, tombstone)| (block, tombstone.clone())).collect())
    }

    async fn block_ages(&self, retention: &RetentionPolicy) -> Result<AgeReport, CatalogError> {
        Ok(self.state().block_ages(self.clock.wall(), retention))
    }

    async fn compaction_jobs(&self, request: &JobRequest) -> Result<Vec<CompactionJob>, CatalogError> {
        let mut workers = self.state().claiming_workers();
        workers.insert(request.worker);
        let input = self.state().plan_input(self.clock.wall(), workers.len() as u32);
        Ok(plan_jobs(&input, request))
    }

    async fn compaction_status(&self) -> Result<CompactionStatus, CatalogError> {
        let workers = self.state().claiming_workers();
        let input = self.state().plan_input(self.clock.wall(), workers.len() as u32);
        Ok(compaction_status(&input))
    }

    /// A catalog in memory is never recovered, so no tombstone waits for a snapshot.
    async fn removal_report(&self) -> Result<RemovalReport, CatalogError> {
        let snapshot_time = Timestamp::from_nanos(i64::MAX);
        Ok(self.state().removal_report(self.clock.wall(), snapshot_time))
    }
}
