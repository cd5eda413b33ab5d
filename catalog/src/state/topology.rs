//! Shards and slot tables: where profiles are placed, and which shard serves a slot.
//!
//! * `shards`: entries and phases of shards, and the opening of a slot's first shard.
//! * `succession`: end of a shard, and start of the next one of its slot [INV-12, INV-13].
//! * `tables`: proposal, fences, publication and removal of slot tables [INV-05].

pub(crate) mod shards;
pub(crate) mod succession;
pub(crate) mod tables;
