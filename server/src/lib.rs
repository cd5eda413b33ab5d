//! Server: the crate that assembles all roles into a node.
//!
//! ```text
//!  node ─┬─ http              one port: Connect, gRPC, gRPC-Web, /ingest, /pyroscope/render, pages
//!        ├─ write_router      writes: slot_resolver, leader_cache, ingester_client find and call the leader
//!        ├─ query_planner     plans of queries: local heads, remote_heads and store_gateway_router
//!        ├─ cluster_handle    membership; ingester_service and store_gateway_service serve other nodes
//!        ├─ querier_rpc       async queries and query records that other queriers keep or poll
//!        ├─ controller        loop beside the catalog leader: shard members, successors and leaders
//!        ├─ catalog_repair    blocks that the catalog lost to damage and the bucket still has
//!        └─ metrics           metrics of the process
//! ```
//!
//! [`ServerNode`] is a complete server; [`NodeRoles`] is one without a port, for simulations. Dependencies on
//! the machine come in through [`NodeDeps`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod config;
mod controller;
pub mod http;
mod lifecycle;
mod maintenance;
mod membership;
mod node;
mod read;
mod rpc;
pub mod secrets;
mod telemetry;
mod write;

pub use athanor_chassis::observability::metric_family::MetricDescription;
pub use config::{
    ClusterConfig, ClusterJoinConfig, ClusterTlsConfig, MetastoreConfig, OtlpListenerConfig, ServerConfig,
    SettingError, TargetRoles, UploadQuotaConfig, find_late_profile_error,
};
pub use http::admin::socket::{ADMIN_SOCKET_FILE, read_admin_resource, send_admin_request};
pub use membership::cluster_handle::{ClusterHandle, MembershipView};
pub use membership::join_error::ClusterJoinError;
pub use node::{NodeDeps, NodeRoles, ServerNode, StartError, rebuild_catalog};
pub use telemetry::metrics::{MetricsRegistry, RouteMetrics, describe_all_metrics};
