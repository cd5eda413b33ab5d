//! Start, readiness and health of a node.
//!
//! - `readiness`: state that load balancers poll: starting, serving or stopping, with the reason.
//! - `node_health`: failures of a role while the node runs, and their consequences at shutdown.
//! - `bucket_check`: check of the bucket at start. A node that can never flush does not become ready.

pub(crate) mod bucket_check;
pub(crate) mod node_health;
pub(crate) mod readiness;
