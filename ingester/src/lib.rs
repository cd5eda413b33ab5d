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

mod admission;
mod decode;
mod delta;
mod flush;
mod head_store;
mod ingester;
mod leadership;
mod log;
mod replication;
mod shard_handoff;
mod shard_report;
mod stats;
mod window;
mod write;

pub use decode::relabel_rules::{RelabelRulesError, find_relabel_errors};
pub use delta::cumulative_tracker::DeltaStats;
pub use flush::flusher::FlushRequests;
pub use flush::uploaded_blocks::tenant_spans;
pub use head_store::generations::ShardReadError;
pub use head_store::head::{HeadSize, HeadSnapshot};
pub use ingester::Ingester;
pub use ingester::config::{DedupConfig, DeltaConfig, FlushConfig, IngesterConfig, SHARD_COUNT_RANGE};
pub use ingester::deps::IngesterDeps;
pub use ingester::local_report::LocalShardReport;
pub use ingester::open_error::IngesterOpenError;
pub use log::entry::{InheritSource, ShardLogEntry};
pub use log::state_machine::{ShardApplyResult, ShardStateMachine, UploadOutcome};
pub use replication::membership::MembershipError;
pub use shard_handoff::handoff_peer::{HandoffPeer, HandoffWindowRequest, MAX_IDS_PER_PAGE, WindowPage};
pub use stats::metrics;
pub use stats::{FlushStats, FlushSummary, ShardStats};
pub use window::{DedupWindow, RunFiles};
pub use write::batcher::longest_id_retention;
pub use write::pending_append::STALE_TABLE_REASON;
pub use write::shard::StoredUpload;
