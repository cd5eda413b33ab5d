//! The catalogue of blocks: which exist, and how far each shard's log lies in them.
//!
//! ```text
//!  Command ─► State::apply ─► Answer        pure: no clock, no chance, no disk
//!                │
//!                └─► Listing: blocks and watermarks at one revision
//! ```
//!
//! A block exists only if the catalogue says so. [`Catalog`] is the contract; [`Memory`] keeps it in this process,
//! and a replicated group keeps it by applying the same [`Command`]s to the same [`State`].
//!
//! # What registering means
//! A block holds the range `(from, to]` of one shard's log. It is accepted only if `from` is the shard's watermark,
//! which then becomes `to`: so ranges neither overlap nor leave gaps, whoever led the shard (E14). Doing it again
//! changes nothing. A block that was condemned never registers, nor one whose id is older than a day: so that what was
//! condemned may be forgotten after two (E15).

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod block;
mod contract;
mod state;

pub use athanor_cluster::placement::MAX_SLOTS;
pub use block::{BlockEntry, BlockId, TenantSpan};
pub use contract::{Catalog, CatalogError, Memory};
pub use state::{
    Answer, Bounded, CLOCKS, Choice, Command, Inherits, Listing, Logged, MAX_COPIES, MAX_GROUPS, MAX_SCARS,
    MAX_SERVICES, MAX_SHARDS, MAX_VOTERS, NEWEST, Node, Pending, Phase, REGISTER_WITHIN, REMEMBER, Rates,
    Refused, Scar, Settings, ShardEntry, ShardId, State, Step, Unreadable, View, Voter, Wound, shard_id,
    slot_and_epoch,
};
