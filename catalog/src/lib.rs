//! Catalog: the replicated state of blocks, shards and slot tables.
//!
//! - Blocks: which ones exist, and how far they cover each shard's log.
//! - Shards: which one serves a slot, and which one follows.
//! - Slot tables: where profiles are placed.
//!
//! ```text
//!  time, CatalogCommand ─► CatalogState::apply ─► CommandResult     pure: no clock, no randomness, no disk
//!                                 │
//!                                 ├─► BlockListing: blocks and watermarks at one revision
//!                                 └─► RoutingView: tables, shards and voters for every node
//! ```
//!
//! A command names the state that it expects, so two concurrent proposals do no harm. A refusal names the
//! reason and the remedy. [`CatalogState::check`] lists the invariants that hold after each command.
//!
//! A block exists only if the catalog lists it. [`Catalog`] is the contract. [`InMemoryCatalog`] implements
//! it in this process. A replicated group implements it by applying the same [`CatalogCommand`]s to the same
//! [`CatalogState`].
//!
//! # Registration
//! A block holds the range `(from, to]` of one shard's log. The catalog accepts it only if `from` equals the
//! shard's watermark, which then becomes `to`. So ranges neither overlap nor leave gaps, regardless of which
//! node led the shard [INV-14]. A retry changes nothing. A tombstoned block never registers, nor does a block
//! with a name that is more than a day away from now. So the catalog can drop tombstones after two days
//! [INV-15]. A lost shard registers nothing [INV-13].
//!
//! # Tombstones
//! A tombstone names the folder of its block's objects. It stays until they are recorded as removed, and at
//! least two days. The tombstone of a flushed block keeps its log range: the successor of a lost shard reads
//! the ids in its objects [INV-13].
//!
//! # Expiration
//! A block past its retention expires by the catalog's time, at most a share of all blocks per hour. It
//! leaves the listing and stays restorable until it is purged, which comes before its objects are removed.
//! Raw rows that a longer-lived tier lacks do not expire. Listings name the times of removed profiles.
//!
//! # Staging
//! A command is bounded, but the number of a block's tenants is not. If a block has more than
//! [`MAX_TENANTS_PER_COMMAND`] tenants, several commands name them before the block registers.
//! [`Catalog::register_block`] and [`Catalog::reinstate_block`] send these commands. No listing names the
//! block before all of its tenants are staged.
//!
//! # Compaction
//! A part is one tenant's rows in one block. A worker claims parts and gets a token, the revision of the
//! claim. [`CatalogCommand::FinishJob`] swaps the parts for the blocks that were merged from them, in one
//! step, so no listing has both or neither [INV-20]. It is applied only if
//! - the claim of its token has not ended, so nobody else claimed one of its parts;
//! - inputs equal outputs and dropped rows, in profiles, samples and sums of each tenant;
//! - its inputs are of one tier, and each downsampled tier gets the rows of the uncovered inputs of a final merge;
//! - the outputs inherit times, arrivals and log ranges of their inputs.
//!
//! A multi-tenant block loses parts and stays listed for its other tenants. Without parts it gets a
//! tombstone. Its objects stay for queries that were planned before [INV-18]. After three failures a job is
//! halved, and a single part is quarantined.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod block;
mod compaction;
mod contract;
mod state;

pub use athanor_cluster::placement::MAX_SLOTS;
pub use block::{
    BlockEntry, BlockId, DropReason, DroppedRows, PartId, ShardId, ShardLogRange, TENANT_FOLDER_LEVEL,
    TenantSpan,
};
pub use compaction::planner::{PlanInput, PlannerSettings, compaction_status, plan_jobs};
pub use compaction::{
    CompactionJob, CompactionStatus, JobParts, JobRequest, MAX_COMPARED_BLOCKS, MAX_JOB_OUTPUTS,
    MAX_JOB_PARTS, PartClaim, PartFailures,
};
pub use contract::{Catalog, CatalogError, InMemoryCatalog};
pub use state::{
    AgeReport, BlockListing, BucketBlock, CatalogCommand, CatalogLogEntry, CatalogRecoveryError,
    CatalogSettings, CatalogState, CatalogVoter, CommandDecodeError, CommandError, CommandResult,
    ConservedCount, DEFAULT_MAX_FUTURE, DataLoss, DataLossRecord, ExpiredBlock, FINISHED_TOKEN_RETENTION,
    FinishedJob, FinishedJobs, HandoffSource, JOB_LEASE, JobInventory, JobSource, LimitedResource,
    MAX_BLOCK_NAME_SKEW, MAX_CLOCK_SKEW, MAX_DATA_LOSS_RECORDS, MAX_DOCUMENT_BYTES,
    MAX_DOCUMENT_BYTES_PER_TENANT, MAX_DOCUMENTS_PER_TENANT, MAX_EXPIRED_PER_COMMAND, MAX_EXPIRED_PER_REPORT,
    MAX_FAILED_PARTS, MAX_PART_FAILURES, MAX_PURGED_TENANTS, MAX_REPLICATION_FACTOR, MAX_SERVICES,
    MAX_SHARDS, MAX_SHARDS_PER_NODE, MAX_STAGED_TENANTS, MAX_TENANTS_PER_COMMAND, MAX_TOTAL_DOCUMENT_BYTES,
    MAX_VOTERS, OutputMismatch, PendingTable, PhaseTransition, ProfileTimeRange, RecoveryFindings,
    RecoveryInput, RemovalReport, ReplicaPlacement, RetentionPolicy, RoutingView, ServiceRates, ShardEntry,
    ShardNode, ShardPhase, ShardReport, TOMBSTONE_RETENTION, TenantDocument, TenantDocuments, TierRetention,
    Tombstone, decode_shard_id, shard_id,
};
