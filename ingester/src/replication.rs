//! Replication of shards: this node as a member of their raft groups.
//!
//! - `replica`: runs one member and, while this node leads, the leader's workers.
//! - `phase_reconciler`: logs fences and the seal, and ends the shard, as the catalog requires [INV-12].
//! - `membership`: records on disk in which shards this node is a member [INV-08, INV-16].

pub(crate) mod membership;
pub(crate) mod phase_reconciler;
pub(crate) mod replica;
