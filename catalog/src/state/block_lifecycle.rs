//! Life of a block in the catalog, from registration to tombstone.
//!
//! * `blocks`: registration and data loss records [INV-14].
//! * `tombstones`: ids that never register, and removal of their objects [INV-15].
//! * `removal`: facts that decide which objects may be removed.
//! * `block_set`: registered blocks, and the number of parts per tenant and tier.
//! * `staging`: registration of blocks with more tenants than fit into one command.
//! * `retention`: removal of rows by age.
//! * `expiration_budget`: limit of rows that expire per hour.
//! * `retention_policy`: retention by tenant and tier.
//! * `removed_times`: times of removed profiles, by tier.

pub(crate) mod block_set;
pub(crate) mod blocks;
mod expiration_budget;
pub(crate) mod removal;
pub(crate) mod removed_times;
pub(crate) mod retention;
pub(crate) mod retention_policy;
pub(crate) mod staging;
pub(crate) mod tombstones;
