//! Admission of uploads, by bounds that all shards of a node share.
//!
//! - `backlog`: bounds on unflushed profiles in memory and on disk.
//! - `tenants`: bound on the number of known tenants. An upload of another new tenant is rejected.

pub(crate) mod backlog;
pub(crate) mod tenants;
