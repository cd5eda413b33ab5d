//! The server: the one place where roles meet.
//!
//! ```text
//!  node ─┬─ http       one port: Connect, gRPC, gRPC-Web, /ingest, /pyroscope/render, pages
//!        ├─ route      from the door to the shards: places and leaders say which and whose, ways how they are asked
//!        ├─ sources    heads and blocks, as one plan; far: heads that other nodes have; blocks, fetch and cache: what of
//!        │             blocks is in memory
//!        ├─ others     the other nodes of a cluster, and the port for them; kept: what it does for them as an ingester
//!        ├─ polls      queries in the background and records of queries that other queriers keep, or ask for
//!        ├─ controller what somebody has to decide in a cluster
//!        ├─ janitor    what is too old goes
//!        ├─ repair     what the catalogue lost to damage, and the bucket still knows
//!        └─ metrics, own_profile   what it says of itself
//! ```
//!
//! [`Node`] is a whole server; [`Roles`] is one without a port, for simulations. What depends on the machine comes in
//! through [`System`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admin;
mod bucket;
mod certificates;
mod config;
mod controller;
mod far;
mod folder;
mod gateway;
mod gateways;
mod health;
mod hedges;
pub mod http;
mod identity;
mod inventory;
mod janitor;
mod kept;
mod kinship;
mod late;
mod leaders;
mod loads;
mod metrics;
mod node;
mod others;
mod overview;
mod own_profile;
mod pieces;
mod places;
mod polls;
mod readiness;
mod repair;
mod room;
mod route;
pub mod secrets;
mod shard_outages;
mod sources;
mod telling;
mod twice;
mod uploads;
mod ways;

pub use admin::{SOCKET, request};
pub use config::{
    BadSetting, ClusterSettings, Config, Joining, LogSettings, OtlpSettings, Target, TlsSettings,
    UploadSettings,
};
pub use metrics::{Routes, Scrape};
pub use node::{Node, Roles, StartError, System, rebuild_catalogue};
pub use others::{Company, JoinError, Others};
