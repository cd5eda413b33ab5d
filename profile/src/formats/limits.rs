//! Errors of exceeded limits and counters for them.

use crate::formats::pprof::DecodeLimits;

/// Error of an exceeded limit.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{seen} {what}, the limit is {limit}")]
pub struct OverLimitError {
    /// Name of the limited quantity.
    pub what: &'static str,
    /// Amount seen so far, a lower bound of the total.
    pub seen: usize,
    /// Limit that was exceeded.
    pub limit: usize,
}

/// Returns an error if an amount exceeds its limit.
pub(crate) fn check_limit(what: &'static str, seen: usize, limit: usize) -> Result<(), OverLimitError> {
    if seen > limit { Err(OverLimitError { what, seen, limit }) } else { Ok(()) }
}

/// Counter of frames for formats that share common parts of stacks. Expanded, the frames may number the
/// square of the input's size.
#[derive(Debug, Default)]
pub(crate) struct ExpandedFrameCounter(usize);

impl ExpandedFrameCounter {
    /// Adds the frames of one stack. Returns an error if the sum exceeds the limit.
    pub(crate) fn add_stack(&mut self, depth: usize, limits: &DecodeLimits) -> Result<(), OverLimitError> {
        self.0 = self.0.saturating_add(depth);
        check_limit("frames of all expanded stacks", self.0, limits.frames)
    }
}
