//! Parts of the merged tree: around a function, and below a node.

mod wire;

/// Maximum number of frames that a search for callers visits.
pub(crate) const MAX_CALLER_FRAMES: usize = 8_000_000;
/// Memory of a frame while callers are collected.
const CALLER_FRAME_BYTES: usize = 48;
