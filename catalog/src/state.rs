//! State of the catalog, and the commands that change it.

pub(crate) mod block_lifecycle;
mod command;
mod command_result;
pub(crate) mod compaction;
mod invariants;
mod listing;
pub(crate) mod persistent_map;
pub(crate) mod rebuild;
mod settings;
mod tenant_documents;
pub(crate) mod topology;

use std::collections::BTreeMap;

use athanor_chassis::{TenantId, Timestamp};
use athanor_cluster::NodeId;
use athanor_cluster::placement::SlotTables;
use serde::{Deserialize, Serialize};

use crate::block::{BlockEntry, BlockId, ShardId};
use block_lifecycle::block_set::BlockSet;
use block_lifecycle::retention::Retention;
use block_lifecycle::staging::StagedBlock;
use compaction::CompactionState;
use persistent_map::{PersistentMap, SharedValue};

pub use block_lifecycle::blocks::{DataLoss, DataLossRecord, MAX_BLOCK_NAME_SKEW, MAX_DATA_LOSS_RECORDS};
pub use block_lifecycle::removal::RemovalReport;
pub use block_lifecycle::removed_times::ProfileTimeRange;
pub use block_lifecycle::retention::{
    AgeReport, ExpiredBlock, MAX_EXPIRED_PER_COMMAND, MAX_EXPIRED_PER_REPORT, MAX_PURGED_TENANTS,
};
pub use block_lifecycle::retention_policy::{RetentionPolicy, TierRetention};
pub use block_lifecycle::staging::{MAX_STAGED_TENANTS, MAX_TENANTS_PER_COMMAND};
pub use block_lifecycle::tombstones::{TOMBSTONE_RETENTION, Tombstone};
use command::CatalogCommand as Command;
pub use command::{CatalogCommand, CatalogLogEntry, CommandDecodeError};
pub use command_result::{CommandError, CommandResult, LimitedResource, PhaseTransition};
pub use compaction::claims::JOB_LEASE;
pub use compaction::failures::{MAX_FAILED_PARTS, MAX_PART_FAILURES};
pub use compaction::finish::FINISHED_TOKEN_RETENTION;
pub use compaction::output_mismatch::{ConservedCount, OutputMismatch};
pub use listing::{BlockListing, RoutingView};
pub use rebuild::finished_jobs::{FinishedJob, FinishedJobs, JobInventory};
pub use rebuild::recovery_input::{
    BucketBlock, CatalogRecoveryError, JobSource, RecoveryFindings, RecoveryInput, ShardReport,
};
pub use settings::{
    CatalogSettings, CatalogVoter, DEFAULT_MAX_FUTURE, MAX_SERVICES, MAX_VOTERS, ServiceRates,
};
pub use tenant_documents::{
    MAX_DOCUMENT_BYTES, MAX_DOCUMENT_BYTES_PER_TENANT, MAX_DOCUMENTS_PER_TENANT, MAX_TOTAL_DOCUMENT_BYTES,
    TenantDocument, TenantDocuments,
};
pub use topology::shards::{
    HandoffSource, MAX_REPLICATION_FACTOR, MAX_SHARDS, MAX_SHARDS_PER_NODE, ReplicaPlacement, ShardEntry,
    ShardNode, ShardPhase, decode_shard_id, shard_id,
};
pub use topology::tables::{MAX_CLOCK_SKEW, PendingTable};

/// State of the catalog, equal on every voter that applied the same commands. The number of blocks does not
/// slow down a clone: it shares them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogState {
    revision: u64,
    /// Newest time that came with a command. A command with an older time is applied at this time. Otherwise
    /// a tombstone that a fast clock expired could register under a slower clock [INV-15].
    now: Timestamp,
    shards: BTreeMap<ShardId, ShardEntry>,
    /// Nodes that are members of the shards above.
    nodes: BTreeMap<NodeId, ShardNode>,
    /// Absent before the first slots open.
    tables: Option<SlotTables>,
    pending: Option<PendingTable>,
    /// Highest table version that was ever proposed.
    newest_proposed: u64,
    service_rates: SharedValue<ServiceRates>,
    /// Addresses for operators only. The membership in the group's log alone decides which nodes vote.
    voters: BTreeMap<NodeId, CatalogVoter>,
    settings: CatalogSettings,
    documents: PersistentMap<TenantId, SharedValue<TenantDocuments>>,
    blocks: BlockSet,
    /// Tombstones by id. These ids never register.
    tombstones: PersistentMap<BlockId, Tombstone>,
    data_losses: Vec<DataLossRecord>,
    retention: Retention,
    compaction: CompactionState,
    /// Staged tenants, one block per shard.
    staged: BTreeMap<ShardId, StagedBlock>,
}

/// Outcome of a command that was not refused.
enum CommandOutcome {
    /// The state changed, so the revision grows.
    Changed(CommandResult),
    /// The state was as requested already.
    NoOp(CommandResult),
}

impl CommandOutcome {
    fn from_count(count: usize) -> Self {
        match count {
            0 => Self::NoOp(CommandResult::Changed(0)),
            count => Self::Changed(CommandResult::Changed(count)),
        }
    }
}

impl CatalogState {
    /// Applies a command that was proposed at time `at`. Equal commands produce equal states on every voter.
    /// Errors are part of the result.
    pub fn apply(&mut self, at: Timestamp, command: CatalogCommand) -> CommandResult {
        self.now = self.now.max(at);
        let result = match self.execute(command) {
            Ok(CommandOutcome::Changed(result)) => {
                self.drop_ended_stages();
                self.revision = self.revision.saturating_add(1);
                result
            }
            Ok(CommandOutcome::NoOp(result)) => result,
            Err(refused) => CommandResult::Refused(refused),
        };
        debug_assert_eq!(self.check(), Ok(()));
        result
    }

    fn execute(&mut self, command: Command) -> Result<CommandOutcome, CommandError> {
        match command {
            Command::OpenSlots { count, members, zones } => self.open_slots(count, &members, &zones),
            Command::OpenShard { slot, members } => self.open_shard(slot, members),
            Command::AddSlot { slot, placement } => self.add_slot(slot, &placement),
            Command::Opened { shard, inherited, fenced } => self.complete_opening(shard, inherited, fenced),
            Command::RequestSeal { shard } => self.request_seal(shard),
            Command::CreateSuccessor { shard, placement } => self.create_successor(shard, &placement),
            Command::Sealed { shard, last_index, latest } => self.complete_seal(shard, last_index, latest),
            Command::MarkLost { shard, placement } => self.mark_lost(shard, &placement),
            Command::Reconciled { shard, last_index, with } => {
                self.complete_reconciliation(shard, last_index, with)
            }
            Command::AbandonShard { shard } => self.abandon_shard(shard),
            Command::RetireShard { shard, rest_is_empty } => self.retire_shard(shard, rest_is_empty),
            Command::ProposeTable { table } => self.propose_table(table),
            Command::Fenced { shard, version } => self.record_fence(shard, version),
            Command::FenceRejected { shard, version, latest } => self.reject_fence(shard, version, latest),
            Command::WithdrawTable { version } => self.withdraw_table(version),
            Command::PublishTable { version } => self.publish_table(version),
            Command::ExpireTables { before } => self.expire_tables(before),
            Command::SetServiceRates { changed } => self.set_service_rates(changed),
            Command::UpdateSettings { expected, settings } => self.update_settings(&expected, settings),
            Command::PutTenantDocument { tenant, name, expected, text } => {
                self.put_tenant_document(tenant, name, expected.as_deref(), text)
            }
            Command::AddVoter { node, address } => self.add_voter(node, address),
            Command::RemoveVoter { node } => Ok(self.remove_voter(node)),
            Command::RegisterBlock { block } => self.register_block(block),
            Command::StageTenants { shard, block, offset, tenants } => {
                self.stage_tenants(shard, block, offset, tenants)
            }
            Command::RegisterStagedBlock { block, tenants } => self.register_staged_block(block, tenants),
            Command::AdvanceWatermark { shard, to } => self.advance_watermark(shard, to),
            Command::ReinstateBlock { block } => self.reinstate_block(block),
            Command::ReinstateJob { outputs } => self.reinstate_job(outputs),
            Command::ReinstateStagedBlock { block, tenants } => self.reinstate_staged_block(block, tenants),
            Command::CloseGap { shard, from, to } => self.close_gap(shard, from, to),
            Command::RecordDataLoss { loss } => self.record_data_loss(loss),
            Command::ClearDataLoss { before } => Ok(self.clear_data_loss(before)),
            Command::ClaimParts { worker, parts } => self.claim_parts(worker, parts),
            Command::RenewLeases { worker, tokens } => Ok(self.renew_leases(worker, &tokens)),
            Command::FinishJob { token, outputs, dropped, compared } => {
                self.finish_job(token, outputs, &dropped, &compared)
            }
            Command::FailJob { token, reason, culprit } => self.fail_job(token, &reason, culprit),
            Command::RetryParts { parts } => Ok(self.retry_parts(&parts)),
            Command::PauseCompaction { paused } => Ok(self.pause_compaction(paused)),
            Command::RecordRemovedObjects { blocks } => Ok(self.record_removed_objects(&blocks)),
            Command::TombstoneBlocks { blocks, tenant } => {
                Ok(self.tombstone_blocks(&blocks, tenant.as_ref()))
            }
            Command::ExpireTombstones => Ok(self.expire_tombstones()),
            Command::ExpireBlocks { retention, max_percent } => {
                Ok(self.expire_blocks(&retention, max_percent))
            }
            Command::RestoreBlocks { blocks } => self.restore_blocks(blocks),
            Command::PurgeBlocks { blocks, expired_before } => Ok(self.purge_blocks(blocks, expired_before)),
        }
    }

    /// Creates an empty state at a revision. After a loss of the state, its successor must not reuse
    /// revisions that were reported before.
    pub fn empty_at_revision(revision: u64) -> Self {
        Self { revision, ..Self::default() }
    }

    /// Returns the revision, which grows with every change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns all blocks, ordered by id.
    pub fn blocks(&self) -> impl Iterator<Item = &BlockEntry> {
        self.blocks.values()
    }

    /// Returns the number of blocks.
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the sum of the blocks' sizes in bytes.
    pub fn block_bytes(&self) -> u64 {
        self.blocks.total_bytes()
    }

    /// Returns the number of tombstones.
    pub fn tombstone_count(&self) -> usize {
        self.tombstones.len()
    }

    /// Returns the tenants with rows in some block, ascending.
    pub fn tenants(&self) -> impl Iterator<Item = &TenantId> {
        self.blocks.tenants()
    }

    /// Returns the bytes per second of each service.
    pub fn service_rates(&self) -> &ServiceRates {
        &self.service_rates
    }

    /// Encodes the state for a snapshot.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("all keys are texts")
    }

    /// Decodes the state from the bytes of a snapshot.
    pub fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        let mut state: Self = serde_json::from_slice(bytes)?;
        state.adopt_restorations();
        Ok(state)
    }
}

#[cfg(test)]
mod tests;
