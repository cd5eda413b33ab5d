//! Replication of shards: this node as a member of their raft groups.
//!
//! - `replica`: runs one member and, while this node leads, the leader's workers.
//!   Its `phase_reconciler` logs fences and the seal, and ends the shard, as the catalog requires [INV-12].
//! - `lost_ids`: reports ids that a shard lost to damage.
//! - `membership`: records on disk in which shards this node is a member [INV-08, INV-16].

pub(crate) mod lost_ids;
pub(crate) mod membership;
pub(crate) mod replica;
