//! Path of an upload from the distributor to the leader of its shard.
//!
//! ```text
//!  upload ─► slot_resolver ─► write_router ─► rpc::ingester_client ─► shard leader
//!                                 │
//!                            leader_cache
//! ```
//!
//! - `slot_resolver`: selects the slot by tenant, service, labels and time [INV-04].
//! - `write_router`: sends uploads to shard leaders on any node.
//! - `leader_cache`: hints about shard leaders. The called node corrects a wrong hint.

pub(crate) mod leader_cache;
pub(crate) mod slot_resolver;
pub(crate) mod write_router;
