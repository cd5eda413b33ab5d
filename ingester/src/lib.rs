//! The ingester: shards, each a replicated log and the head that it fills, cut into blocks.
//!
//! ```text
//!  Upload ─► Shard ─► Batch ─► log ─► Machine ─┬─► Window   repeats are known, on every member
//!                                              └─► Reign    rows are visible, in the heads of the one that leads
//!            Cutter: Head ─► block ─► catalogue ─► log is purged
//! ```
//!
//! Profiles that count since a process began are stored as what each adds to the one before: see `counters.rs`.
//!
//! An upload is acknowledged when its entry is durable on a majority's disks and its rows are visible. From then on a
//! query sees it exactly once: in the head, while the block is built, and then in whichever of both its listing names.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod counted;
mod counters;
mod counting;
mod cut;
mod describe;
mod entry;
mod group;
mod head;
mod heads;
mod in_blocks;
mod ingester;
mod inherit;
mod intake;
mod kin;
mod leads;
mod machine;
mod membership;
mod prepare;
mod propose;
mod reign;
mod rows;
mod rules;
mod shard;
mod split;
mod standing;
mod stats;
mod steward;
mod sums;
mod tenants;
mod unregistered;
mod uploaded;
mod waiting;
mod walking;
mod window;

pub use counters::Tally;
pub use cut::{Asked, CutConfig, spans};
pub use entry::{Entry, Source};
pub use head::View;
pub use heads::Moved;
pub use ingester::{Config, Deps, Described, Ingester, OpenError, SHARDS};
pub use kin::{Kin, MOST_IDS, WindowAsk, WindowPage};
pub use machine::{Applied, Machine, Verdict};
pub use membership::MembershipError;
pub use rules::{BadRules, bad_rules};
pub use shard::Stored;
pub use stats::{Cuts, HeadSize, ShardStats, Written};
pub use waiting::STALE_TABLE;
pub use window::{Shelf, Window};
