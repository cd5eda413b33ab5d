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
//! * [`replicated`]: a raft group. Proposals, linearizable reads, snapshots where the machine is willing to be cut.
//!
//! A single voter is a group like any other, with nobody to ask. A failed write or sync ends the groups of the node
//! with an error that says so; a member of a larger group whose log was damaged never votes again.
//!
//! What is not promised: that a log survives the loss of its folder. That is what the other members are for.

pub mod log;
pub mod replicated;

pub use log::Log;
pub use replicated::{RaftGroup, StateMachine};
