//! What is agreed, and kept.
//!
//! ```text
//!   Replicated<S>   Replicated<S>   …      one raft group each: 0 the catalogue, n a shard
//!        └─────┬─────────┘
//!             Log                          one per node: one commit, one sync, for all that wait
//!              │
//!            Disk                          a folder, or a simulated one
//! ```
//! * [`log`]: the write-ahead log. Group commit, recovery that tells a commit cut short from loss, bounded size.
//!
//! What is not promised: that a log survives the loss of its folder. That is what the other members are for.

pub mod log;

pub use log::Log;
