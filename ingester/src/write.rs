//! Write path of a shard on its leader: batching, proposing, and the state of the leader term.
//!
//! ```text
//!  shard ─► decode pool ─► batcher ─► proposer ─► log ─► leader_term: heads
//!                             │                    │
//!                             └─► pending_append ◄─┘ results
//! ```
//! - `shard`: accepts appends and returns their results.
//! - `batcher`: encodes queued requests as batches, one generation after the other.
//! - `proposer`: proposes one entry at a time.
//! - `pending_append`: requests that wait for a batch, with the outcome of each upload.
//! - `leader_term`: state that exists only while this replica leads the shard.
//! - `term_replay`: replay of the log at the start of a leader term.

pub(crate) mod batcher;
pub(crate) mod leader_term;
pub(crate) mod pending_append;
pub(crate) mod proposer;
pub(crate) mod shard;
mod term_replay;
