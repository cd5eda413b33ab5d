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
//! * [`CatalogStateMachine`] is the state machine, [`MetastoreVoter`] a voter.
//! * [`MetastoreServer`] answers for a voter; [`MetastoreClient`] asks voters, one after the other until one answers.
//! * [`founding`] says how the group begins on a node, [`VoterMaintenance`] what voters do by themselves.
//! * [`SnapshotStore`]: snapshots in the bucket, from which [`rebuild`] makes a catalogue that lost all its voters again.
//! * [`RoutingWatch`]: tables, shards and voters, which a node keeps in memory, so that it asks nobody where to send profiles.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod catalog_clock;
mod client;
mod compression;
mod group_bootstrap;
mod maintenance;
mod recovery;
mod retry;
mod routing_watch;
mod service;
mod snapshot_store;
mod state_machine;
mod view_stream;
mod voter;

pub use client::{MetastoreClient, MetastoreClientDeps, RemoteNodes};
pub use group_bootstrap::{BootstrapDeps, BootstrapError, VALID_VOTER_COUNTS, decide_bootstrap};
pub use maintenance::VoterMaintenance;
pub use recovery::{
    MetastoreRecoveryError, RecoveredState, RecoveryParams, RecoveryReport, bucket_block_from_meta,
    install_recovered_state, recover_catalog,
};
pub use routing_watch::RoutingWatch;
pub use service::{MetastoreServer, MetastoreServerDeps};
pub use snapshot_store::{SnapshotStore, StoredSnapshot};
pub use state_machine::{CatalogSize, CatalogStateMachine};
pub use voter::{MAX_COMMAND_SIZE, MetastoreVoter, VoterInfo};

/// The number of the catalogue's group in a node's log.
pub const CATALOG_GROUP: u32 = 0;
