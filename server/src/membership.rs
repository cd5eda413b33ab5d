//! Membership of this node in its cluster.
//!
//! - `cluster_handle`: joins the cluster, serves the internal port, and publishes the view of the members.
//! - `cluster_overview`: sources of the cluster pages: members, shards and their leaders.
//! - `join_error`: error that keeps a node from joining.
//! - `tls_files`: certificates for connections between nodes, reloaded while the server runs.

pub(crate) mod cluster_handle;
pub(crate) mod cluster_overview;
pub(crate) mod join_error;
pub(crate) mod tls_files;
