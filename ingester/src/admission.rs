//! Admission of uploads, by bounds that all shards of a node share.
//!
//! - `backlog`: bounds on unflushed profiles in memory and on disk.
//! - `tenants`: bound on the number of known tenants. An upload of another new tenant is rejected.

use std::time::Duration;

pub(crate) mod backlog;
pub(crate) mod tenants;

/// Retry-after of requests that a shard rejects for lack of budget.
pub(crate) const SHARD_BUSY_RETRY_AFTER: Duration = Duration::from_secs(1);
