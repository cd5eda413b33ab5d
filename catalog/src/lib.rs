//! The catalogue: which blocks exist and how far each shard's log lies in them, which shard serves a slot and which
//! follows, and by which tables profiles are placed.
//!
//! ```text
//!  time, Command ─► State::apply ─► Answer        pure: no clock, no chance, no disk
//!                      │
//!                      ├─► Listing: blocks and watermarks at one revision
//!                      └─► View: what every node must know
//! ```
//!
//! A command names what it expects, so that two who propose at once do no harm; what is refused says why and what to do.
//! What holds after each is in [`CatalogState::check`].
//!
//! A block exists only if the catalogue says so. [`Catalog`] is the contract; [`InMemoryCatalog`] keeps it in this process,
//! and a replicated group keeps it by applying the same [`CatalogCommand`]s to the same [`CatalogState`].
//!
//! # What registering means
//! A block holds the range `(from, to]` of one shard's log. It is accepted only if `from` is the shard's watermark,
//! which then becomes `to`: so ranges neither overlap nor leave gaps, whoever led the shard [INV-14]. Doing it again
//! changes nothing. A block that was condemned never registers, nor one whose name is more than a day from now: so that
//! what was condemned may be forgotten after two days [INV-15]. A shard that is lost registers nothing [INV-13].
//!
//! # What expiring means
//! A block past its retention expires by the catalog's time, at most a share of all blocks per hour. It leaves the
//! listing and stays restorable until it is purged, which comes before its objects are removed. Listings of a range
//! that overlaps removed profiles of the tenant name their times.
//!
//! # What staging means
//! A command is bounded, a block's tenants are not: those of a block with more than [`MAX_TENANTS_PER_COMMAND`] are named in
//! parts before it registers. [`Catalog::register_block`] and [`Catalog::reinstate_block`] do so. No listing names the block before it has all.
//!
//! # What replacing means
//! Blocks are made of others and take their places in one command, so that no listing has both or neither [INV-20].
//! What they hold of logs, whose rows and of which time must be what their inputs hold, so that each row is in one
//! listed block until it is too old to be kept. Inputs are condemned by it: their objects stay for those who planned
//! before [INV-18].

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod block;
mod contract;
mod state;

pub use athanor_cluster::placement::MAX_SLOTS;
pub use block::{BlockEntry, BlockId, ShardLogRange, TenantSpan};
pub use contract::{Catalog, CatalogError, InMemoryCatalog};
pub use state::{
    AgeReport, BlockListing, BucketBlock, CatalogCommand, CatalogLogEntry, CatalogRecoveryError,
    CatalogSettings, CatalogState, CatalogVoter, CommandDecodeError, CommandError, CommandResult,
    DEFAULT_MAX_FUTURE, DataLoss, DataLossRecord, HandoffSource, LimitedResource, MAX_BLOCK_NAME_SKEW,
    MAX_CLOCK_SKEW, MAX_COPIES, MAX_DATA_LOSS_RECORDS, MAX_DOCUMENT_BYTES, MAX_DOCUMENT_BYTES_PER_TENANT,
    MAX_DOCUMENTS_PER_TENANT, MAX_EXPIRED_PER_COMMAND, MAX_GROUPS, MAX_PURGED_TENANTS, MAX_REPLACED,
    MAX_SERVICES, MAX_SHARDS, MAX_STAGED_TENANTS, MAX_TENANTS_PER_COMMAND, MAX_TOTAL_DOCUMENT_BYTES,
    MAX_VOTERS, PendingTable, PhaseTransition, ProfileTimeRange, RecoveryFindings, RecoveryInput,
    ReplaceMismatch, ReplicaPlacement, RoutingView, ServiceRates, ShardEntry, ShardId, ShardNode, ShardPhase,
    ShardReport, TOMBSTONE_RETENTION, TenantDocument, TenantDocuments, decode_shard_id, find_merged_blocks,
    shard_id,
};
