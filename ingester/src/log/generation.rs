//! Generations of the log: ranges whose batches build on each other.

/// Range of a generation in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogGeneration {
    /// Token of its first batch.
    pub token: u64,
    /// Index of its first batch.
    pub first: u64,
    /// Index at which it ended; before that, of its last batch.
    pub last: u64,
    /// True if it has ended: no entry after `last` builds on it.
    pub closed: bool,
}
