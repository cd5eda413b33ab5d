//! Result of storing one profile.

use athanor_profile::data_model::dropped_counts::{DropReason, DroppedCounts};

/// Result of storing one accepted profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredProfile {
    /// Stored, duplicate or empty.
    pub outcome: ProfileOutcome,
    /// Size of the uncompressed profile in bytes.
    pub raw_bytes: u64,
    /// Samples in the profile, dropped ones included.
    pub samples: u64,
    /// Parts of the profile that were dropped.
    pub dropped: DroppedCounts,
}

/// Outcome of an accepted profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileOutcome {
    /// The shard stored the profile.
    New,
    /// Duplicate of a stored profile. The shard added nothing.
    Repeat,
    /// The profile had nothing to store: no sample, or only zeros.
    Empty,
}

impl StoredProfile {
    /// Result for an empty body.
    pub(crate) const EMPTY_BODY: Self = StoredProfile {
        outcome: ProfileOutcome::Empty,
        raw_bytes: 0,
        samples: 0,
        dropped: DroppedCounts::ZERO,
    };

    /// Adds samples that conversion dropped before the profile reached the shard, because they have no stack.
    pub(crate) fn with_dropped_samples(mut self, without_stack: u64) -> Self {
        self.samples += without_stack;
        self.dropped.add(DropReason::MissingStack, without_stack);
        self
    }
}
