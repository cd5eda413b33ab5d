//! Rebuild of the catalog after the loss of all voters [INV-16].
//!
//! * `recovery`: rebuild from a snapshot, the blocks in the bucket, and reports of nodes.
//! * `recovery_input`: input and findings of a rebuild.
//! * `block_chains`: selection of flushed blocks that may have been registered.
//! * `merged_blocks`: selection of merged blocks without a record of the replacements.

pub(crate) mod block_chains;
pub(crate) mod merged_blocks;
pub(crate) mod recovery;
pub(crate) mod recovery_input;
