//! The server: the one place where roles meet.
//!
//! ```text
//!  node ─┬─ http       one port: Connect, gRPC, gRPC-Web, /ingest, /pyroscope/render, pages
//!        ├─ shards     from the door to the shards
//!        ├─ sources    heads and blocks, as one plan; blocks, fetch and cache: what of them is in memory
//!        ├─ others     the other nodes of a cluster, and the port for them
//!        ├─ janitor    what is too old goes
//!        ├─ repair     what the catalogue lost to damage, and the bucket still knows
//!        └─ metrics, myself   what it says of itself
//! ```
//!
//! [`Node`] is a whole server; [`Roles`] is one without a port, for simulations. What depends on the machine comes in
//! through [`System`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admin;
mod blocks;
mod cache;
mod config;
mod fetch;
mod folder;
mod health;
pub mod http;
mod identity;
mod inventory;
mod janitor;
mod metrics;
mod myself;
mod node;
mod others;
mod readiness;
mod repair;
mod shards;
mod sources;

pub use admin::{SOCKET, request};
pub use config::{BadSetting, ClusterSettings, Config, Joining, LogSettings};
pub use metrics::{Routes, Scrape};
pub use node::{Node, Roles, StartError, System};
pub use others::{Company, JoinError, Others};
