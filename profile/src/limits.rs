//! What is over a limit, and how much of it may be.

use crate::pprof::DecodeLimits;

/// Too much of something.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{seen} {what}, the limit is {limit}")]
pub struct OverLimitError {
    /// What there is too much of.
    pub what: &'static str,
    /// How much was seen, at least.
    pub seen: usize,
    /// How much may be.
    pub limit: usize,
}

/// Refuses what is over a limit.
pub(crate) fn check_limit(what: &'static str, seen: usize, limit: usize) -> Result<(), OverLimitError> {
    if seen > limit { Err(OverLimitError { what, seen, limit }) } else { Ok(()) }
}

/// Counts the frames of stacks that a format writes once where they are shared: written out they may be as many as
/// the square of what was sent.
#[derive(Debug, Default)]
pub(crate) struct ExpandedFrameCounter(usize);

impl ExpandedFrameCounter {
    /// Counts a stack of so many frames.
    pub(crate) fn add_stack(&mut self, depth: usize, limits: &DecodeLimits) -> Result<(), OverLimitError> {
        self.0 = self.0.saturating_add(depth);
        check_limit("frames of all stacks, each written out", self.0, limits.frames)
    }
}
