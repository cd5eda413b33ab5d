//! What nodes must agree on without asking each other.
//!
//! * [`placement`]: which slot takes a profile, which nodes serve a slot, and which of them should lead.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod placement;

/// The number of a node, drawn with its folder and never used again.
pub type NodeId = u64;
