//! Log of a shard: its entries and the replicated state machine that applies them.
//!
//! - `entry`: entries and their encoding; its children hold batches and inherited ids.
//! - `generation`: range of the log whose batches build on each other.
//! - `state_machine`: applies entries on each member and writes snapshots.
//! - `shard_log_status`: fences, seal and inherited ids as of each index, for snapshots that end at the
//!   flushed range [INV-09].
//!
//! All state follows from the log, so it is equal on each member.

pub(crate) mod entry;
pub(crate) mod generation;
pub(crate) mod shard_log_status;
pub(crate) mod state_machine;
