//! The metastore: the catalog as a replicated raft group, and its clients on every node.
//!
//! ```text
//!  voter:     RaftGroup<CatalogStateMachine> ◄─ MetastoreVoter ◄─ MetastoreServer ◄═╗ requests of
//!                                                     ▲                             ║ other nodes
//!  any node:                                    local ┴────── MetastoreClient ══════╝ a reachable voter
//!                                                                    └─ RoutingWatch: tables, shards, voters
//! ```
//!
//! Commands are stamped with the catalog's time, which a majority of voters has reached (`catalog_clock.rs`).
//! Every change is an entry of the group's log, applied to the same
//! [`CatalogState`](athanor_catalog::CatalogState) on every voter. A listing is read from the state of one
//! voter after one read-index round. It is therefore never older than its request, on any voter.
//!
//! * [`CatalogStateMachine`] is the state machine, [`MetastoreVoter`] a voter.
//! * [`MetastoreServer`] serves a voter to other nodes. [`MetastoreClient`] tries voters one after the other
//!   until one responds.
//! * [`decide_bootstrap`] decides how the group begins on a node. [`VoterMaintenance`] runs the background
//!   tasks of voters.
//! * [`SnapshotStore`] keeps snapshots in the bucket. [`recover_catalog`] recovers a catalog that lost all
//!   its voters from them.
//! * [`RoutingWatch`] keeps tables, shards and voters in memory, so that a node routes profiles without a
//!   request.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod catalog_clock;
mod client;
mod compression;
mod group_bootstrap;
mod maintenance;
pub mod metrics;
mod recovery;
mod retry;
mod routing_watch;
mod service;
mod snapshot_store;
mod state_machine;
mod view_stream;
mod voter;

pub use client::{MetastoreClient, MetastoreClientDeps};
pub use group_bootstrap::{BootstrapDeps, BootstrapError, VALID_VOTER_COUNTS, decide_bootstrap};
pub use maintenance::VoterMaintenance;
pub use recovery::{
    MetastoreRecoveryError, RecoveredState, RecoveryParams, RecoveryReport, block_owner,
    bucket_block_from_meta, install_recovered_state, recover_catalog,
};
pub use routing_watch::RoutingWatch;
pub use service::{MetastoreServer, MetastoreServerDeps};
pub use snapshot_store::{SnapshotStore, StoredSnapshot};
pub use state_machine::{CatalogSize, CatalogStateMachine};
pub use voter::{MAX_COMMAND_SIZE, MetastoreVoter, MetastoreVoterDeps, VoterInfo};

/// Number of the catalog's raft group in a node's log.
pub const CATALOG_GROUP: u32 = 0;
