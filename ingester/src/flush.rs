//! Flush of heads to blocks in the bucket and in the catalog.
//!
//! - `flusher`: builds and registers a block, logs the flush marker, writes a snapshot and purges the log.
//! - `uploaded_blocks`: finds a block that an earlier leader uploaded and did not register.
//!
//! Each step may fail and be retried. An unregistered block does not exist for queries [INV-14].

pub(crate) mod flusher;
pub(crate) mod uploaded_blocks;
