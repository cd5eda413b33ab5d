//! Handoff between the shards of a slot: a successor inherits ids, and a lost shard rejoins
//! [INV-12, INV-13].
//!
//! - `handoff`: runs the handoff of one shard. An interrupted handoff starts over.
//! - `handoff_peer`: requests for ids and records between the shards of a slot.
//! - `handoff_requests`: handles such requests of other shards on this node.
//! - `block_ids`: reads the ids in a slot's blocks when the previous shard is lost.

pub(crate) mod block_ids;
pub(crate) mod handoff;
pub(crate) mod handoff_peer;
mod handoff_requests;
