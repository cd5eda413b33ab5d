//! Dependencies of the ingester role.

use std::sync::Arc;

use athanor_catalog::Catalog;
use athanor_chassis::{Clock, ComputePool, LimitOverrides, Random, TaskGroup};
use athanor_consensus::replicated::RaftGroupDeps as Consensus;
use athanor_storage::Store;

use crate::shard_handoff::handoff_peer::HandoffPeer;

/// Dependencies of the ingester role.
#[derive(Clone)]
pub struct IngesterDeps {
    /// Catalog in which blocks are registered.
    pub catalog: Arc<dyn Catalog>,
    /// Bucket to which block files are uploaded.
    pub store: Store,
    /// Log and raft groups of the node.
    pub consensus: Consensus,
    /// Limits of all tenants: default and exceptions.
    pub overrides: LimitOverrides,
    /// Wall and monotonic clock of the node.
    pub clock: Clock,
    /// Source of random numbers.
    pub random: Random,
    /// Thread pool for CPU-bound work.
    pub compute: ComputePool,
    /// Task group in which background tasks run.
    pub tasks: TaskGroup,
    /// ID of the cluster, which each block records.
    pub cluster: u128,
    /// True if no other node has shards: the first start opens the slots. Otherwise [`Ingester::apply_view`](crate::Ingester::apply_view)
    /// opens shards.
    pub alone: bool,
    /// Client to shards on other nodes; none in a standalone node.
    pub kin: Option<Arc<dyn HandoffPeer>>,
}
