//! Consensus: a write-ahead log per node, and raft groups that replicate state machines on it.
//!
//! ```text
//!   RaftGroup<S>    RaftGroup<S>    …      one raft group each: 0 the catalog, n a shard
//!        └─────┬─────────┘
//!             Log                          one per node: one commit and one sync for all waiting batches
//!              │
//!            Disk                          a folder, or a simulated one
//! ```
//! * [`log`]: the write-ahead log. Group commit, bounded size, and a recovery that distinguishes a torn
//!   commit from loss.
//! * [`replicated`]: a raft group. Proposals, linearizable reads, and snapshots at the index that the state
//!   machine chooses.
//!
//! A group with a single voter works like any other, but sends no messages. A failed write or sync ends the
//! groups of the node with an error that names the cause. A member of a larger group never votes again after
//! its log was damaged.
//!
//! A log does not survive the loss of its folder. The other members protect against that loss.

pub mod log;
pub mod replicated;

pub use log::Log;
pub use replicated::{RaftGroup, StateMachine};
