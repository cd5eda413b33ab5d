//! Endpoints for operators and load balancers, and their access control.
//!
//! - `admin_auth`, `token_throttle`: access to administration pages, and delays after failed tokens.
//! - `operator_pages`, `members`, `shards`, `compaction`: pages about the process and the cluster.
//! - `grpc_health`, `startup`: health service, and the router of a node that is still starting.
//! - `socket`: administration over a Unix socket in the data folder.

pub(crate) mod admin_auth;
pub(crate) mod compaction;
pub(crate) mod grpc_health;
pub(crate) mod members;
pub(crate) mod operator_pages;
pub(crate) mod shards;
pub(crate) mod socket;
pub(crate) mod startup;
pub(crate) mod token_throttle;
