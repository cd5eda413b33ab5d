//! Parts of the merged tree: around a function, and below a node.

mod wire;

/// Most frames that are looked at to find the callers of a function.
pub(crate) const MAX_CALLER_FRAMES: usize = 8_000_000;
/// What a frame takes while callers are put together.
const CALLER_FRAME_BYTES: usize = 48;
