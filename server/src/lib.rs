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
//! [`ServerNode`] is a whole server; [`NodeRoles`] is one without a port, for simulations. What depends on the machine comes in
//! through [`NodeDeps`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod adhoc_store;
mod admin;
mod block_lister;
mod bucket_check;
mod catalog_repair;
mod cluster_handle;
mod cluster_overview;
mod config;
mod controller;
mod data_dir;
mod dedup_ranges;
mod deferred_service;
mod disk_pressure;
mod handoff_client;
mod head_query_service;
mod hedging;
pub mod http;
mod ingester_client;
mod ingester_service;
mod leader_cache;
mod metrics;
mod node;
mod node_health;
mod node_identity;
mod querier_rpc;
mod query_planner;
mod readiness;
mod remote_heads;
mod result_stream;
mod retention_worker;
pub mod secrets;
mod self_profile;
mod service_load;
mod shard_outages;
mod slot_resolver;
mod store_gateway_router;
mod store_gateway_service;
mod tls_files;
mod write_router;

pub use admin::{ADMIN_SOCKET_FILE, send_admin_request};
pub use cluster_handle::{ClusterHandle, ClusterJoinError, MembershipView};
pub use config::{
    ClusterConfig, ClusterJoinConfig, ClusterTlsConfig, NodeLogConfig, OtlpListenerConfig, ServerConfig,
    SettingError, TargetRoles, UploadQuotaConfig,
};
pub use metrics::{MetricsCollector, RouteMetrics};
pub use node::{NodeDeps, NodeRoles, ServerNode, StartError, rebuild_catalog};
