//! Server: the crate that assembles all roles into a node.
//!
//! ```text
//!  node ─┬─ http              one port: Connect, gRPC, gRPC-Web, /ingest, /pyroscope/render, pages
//!        ├─ write_router      writes: slot_resolver, leader_cache, ingester_client find and call the leader
//!        ├─ query_planner     plans of queries: local heads, remote_heads and store_gateway_router
//!        ├─ cluster_handle    membership; ingester_service and store_gateway_service serve other nodes
//!        ├─ querier_rpc       async queries and query records that other queriers keep or poll
//!        ├─ controller        loop beside the catalog leader: shard members, successors and leaders
//!        ├─ retention_worker  removal of blocks past their retention
//!        ├─ catalog_repair    blocks that the catalog lost to damage and the bucket still has
//!        └─ metrics, self_profile   metrics and CPU profiles of the process
//! ```
//!
//! [`ServerNode`] is a complete server; [`NodeRoles`] is one without a port, for simulations. Dependencies on
//! the machine come in through [`NodeDeps`].

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
