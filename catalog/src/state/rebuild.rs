//! Rebuild of the catalog after the loss of all voters [INV-16].
//!
//! * `recovery`: rebuild from a snapshot, the blocks in the bucket, and reports of nodes.
//! * `recovery_input`: input and findings of a rebuild.
//! * `recovered_blocks`: blocks and tombstones of the rebuilt catalog.
//! * `block_chains`: selection of flushed blocks that may have been registered.
//! * `finished_jobs`: selection of merged blocks without a record of the finished jobs.
//! * `expired_times`: times of expired rows without a snapshot.
//! * `log_range_index`: search of blocks by log range.

pub(crate) mod block_chains;
mod expired_times;
pub(crate) mod finished_jobs;
mod log_range_index;
mod recovered_blocks;
pub(crate) mod recovery;
pub(crate) mod recovery_input;
