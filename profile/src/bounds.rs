//! What is over a limit, and how much of it may be.

use crate::pprof::Limits;

/// Too much of something.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{seen} {what}, the limit is {limit}")]
pub struct OverLimit {
    /// What there is too much of.
    pub what: &'static str,
    /// How much was seen, at least.
    pub seen: usize,
    /// How much may be.
    pub limit: usize,
}

/// Refuses what is over a limit.
pub(crate) fn within(what: &'static str, seen: usize, limit: usize) -> Result<(), OverLimit> {
    if seen > limit { Err(OverLimit { what, seen, limit }) } else { Ok(()) }
}

/// Counts the frames of stacks that a format writes once where they are shared: written out they may be as many as
/// the square of what was sent.
#[derive(Debug, Default)]
pub(crate) struct WrittenOut(usize);

impl WrittenOut {
    /// Counts a stack of so many frames.
    pub(crate) fn add(&mut self, depth: usize, limits: &Limits) -> Result<(), OverLimit> {
        self.0 = self.0.saturating_add(depth);
        within("frames of all stacks, each written out", self.0, limits.frames)
    }
}
