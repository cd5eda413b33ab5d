//! Life of a block in the catalog, from registration to tombstone.
//!
//! * `blocks`: registration, tombstones and data loss records [INV-14, INV-15].
//! * `block_set`: registered blocks, and the number of blocks per tenant.
//! * `staging`: registration of blocks with more tenants than fit into one command.
//! * `replace`: replacement of blocks by the blocks that were merged from them [INV-20].
//! * `retention`: removal of blocks by age.

pub(crate) mod block_set;
pub(crate) mod blocks;
pub(crate) mod replace;
pub(crate) mod retention;
pub(crate) mod staging;
