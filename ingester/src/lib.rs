//! Ingester role: shards, each a replicated log and the heads that it fills, which are flushed to blocks.
//!
//! ```text
//!  upload ─► LeaderShard ─► UploadBatch ─► log ─► ShardStateMachine ─┬─► DedupWindow   ids, on each member
//!                                                                    └─► LeaderTerm    heads, on the leader
//!  HeadFlusher: Head ─► block ─► catalog ─► log is purged
//! ```
//!
//! Cumulative profiles are stored as their increase over the profile before: see `cumulative_tracker.rs`.
//!
//! An upload is acknowledged when its entry is durable on a majority's disks and its rows are visible. From
//! then on a query reads each row once. The row is in the head while the block is built, and then in the
//! source that the query's listing names.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod backlog;
mod batcher;
mod block_ids;
mod cumulative_tracker;
mod cumulative_values;
mod decode_pool;
mod decoded_upload;
mod delta_converter;
mod entry;
mod flusher;
mod generations;
mod handoff;
mod handoff_peer;
mod head;
mod ingester;
mod label_split;
mod leader_term;
mod leadership;
mod membership;
mod pending_append;
mod phase_reconciler;
mod proposer;
mod relabel_rules;
mod replica;
mod rows;
mod shard;
mod shard_log_status;
mod shard_report;
mod state_machine;
mod stats;
mod sum_cache;
mod tenants;
mod uploaded_blocks;
mod window;

pub use cumulative_tracker::DeltaStats;
pub use entry::{InheritSource, ShardLogEntry};
pub use flusher::{FlushConfig, FlushRequests, tenant_spans};
pub use generations::ShardReadError;
pub use handoff_peer::{HandoffPeer, HandoffWindowRequest, MAX_IDS_PER_PAGE, WindowPage};
pub use head::HeadSnapshot;
pub use ingester::{
    Ingester, IngesterConfig, IngesterDeps, IngesterOpenError, LocalShardReport, SHARD_COUNT_RANGE,
};
pub use membership::MembershipError;
pub use pending_append::STALE_TABLE_REASON;
pub use relabel_rules::{RelabelRulesError, find_relabel_errors};
pub use shard::StoredUpload;
pub use state_machine::{ShardApplyResult, ShardStateMachine, UploadOutcome};
pub use stats::{FlushStats, FlushSummary, HeadSize, ShardStats};
pub use window::{DedupWindow, RunFiles};
