//! Background work on the bucket, and listings of its objects.
//!
//! - `block_lister`: lists the blocks in the bucket.
//! - `catalog_repair`: registers blocks again that the catalog lost to damage.
//! - `adhoc_store`: profiles that users uploaded by hand.

pub(crate) mod adhoc_store;
pub(crate) mod block_lister;
pub(crate) mod catalog_repair;
