//! The metastore: the catalogue as a replicated group, and the way to it from any node.
//!
//! ```text
//!  voter:  Replicated<Facts> ◄─ Metastore ◄─ Service ◄═══╗ calls of other nodes
//!                                   ▲                    ║
//!  any node:              local ────┴──── Client ════════╝ a voter that is reached
//!                                           └─ Views       what every node must know, as it changes
//! ```
//! Commands are stamped with the catalog's time, which a majority of voters has reached (`catalog_clock.rs`).
//! Every change is an entry of the group's log, applied to the same [`State`](athanor_catalog::State) on every voter.
//! Listings are read from the state of one voter after one round that says how far the log is committed: so none is
//! older than its question, whichever voter answers.
//!
//! * [`Facts`] is the state machine, [`Metastore`] a voter.
//! * [`Service`] answers for a voter; [`Client`] asks voters, one after the other until one answers.
//! * [`founding`] says how the group begins on a node, [`Upkeep`] what voters do by themselves.
//! * [`Shelf`]: snapshots in the bucket, from which [`rebuild`] makes a catalogue that lost all its voters again.
//! * [`Views`]: tables, shards and voters, which a node keeps in memory, so that it asks nobody where to send profiles.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod catalog_clock;
mod client;
mod facts;
mod founding;
mod packed;
mod rebuild;
mod service;
mod shelf;
mod sightings;
mod tries;
mod upkeep;
mod views;
mod voter;

pub use client::{Client, Others, Reach};
pub use facts::{Facts, Size};
pub use founding::{Deciding, FoundingError, WANTED, founding};
pub use rebuild::{RebuildFailed, Rebuilding, Rebuilt, Report, begin_again, lying_block, rebuild};
pub use service::{Service, ServiceDeps};
pub use shelf::{Shelf, Shelved};
pub use upkeep::Upkeep;
pub use views::Views;
pub use voter::{MAX_COMMAND, Metastore, Seat};

/// The number of the catalogue's group in a node's log.
pub const GROUP: u32 = 0;
