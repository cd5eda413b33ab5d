//! Deviations from the format that the reader accepts.

use crate::data_model::kind_counts::{CountedKind, KindCounts};

/// Accepted deviation from the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpViolation {
    /// Request with the sample layout from before 1.10.
    OldLayout,
    /// Table without a zero entry at the beginning.
    MissingZeroEntry,
    /// Profile without a duration. The reader assumes ten seconds.
    MissingDuration,
    /// Profile without a time. It gets its receive time.
    MissingTime,
    /// Sample timestamp that is not later than the previous one.
    UnorderedTime,
    /// Sample timestamp outside the range of its profile.
    TimeOutOfRange,
    /// Reference of a profile, location or mapping to an attribute that does not exist.
    DanglingAttribute,
    /// Attribute of a location or mapping that pprof has no field for.
    IgnoredAttribute,
    /// Duplicate or nameless attribute of a resource or scope.
    UnusableAttribute,
    /// Link with a trace or span id of the wrong length.
    MalformedLink,
    /// Sample of a snapshot type with values at several timestamps. Only the last value counts.
    Snapshot,
    /// Original payload that was ignored because the profile has samples.
    IgnoredPayload,
    /// Attribute that the sender dropped.
    DroppedAttribute,
}

/// Counts of accepted deviations by kind.
pub type OtlpViolations = KindCounts<OtlpViolation, { OtlpViolation::COUNT }>;

impl OtlpViolation {
    /// Number of kinds.
    pub const COUNT: usize = 13;
}

impl CountedKind<{ OtlpViolation::COUNT }> for OtlpViolation {
    const NAMES: [(Self, &'static str); Self::COUNT] = [
        (Self::OldLayout, "old_layouts"),
        (Self::MissingZeroEntry, "missing_zero_entries"),
        (Self::MissingDuration, "without_duration"),
        (Self::MissingTime, "without_time"),
        (Self::UnorderedTime, "unordered_times"),
        (Self::TimeOutOfRange, "times_out_of_range"),
        (Self::DanglingAttribute, "dangling_attributes"),
        (Self::IgnoredAttribute, "ignored_attributes"),
        (Self::UnusableAttribute, "unusable_attributes"),
        (Self::MalformedLink, "malformed_links"),
        (Self::Snapshot, "snapshots"),
        (Self::IgnoredPayload, "ignored_payloads"),
        (Self::DroppedAttribute, "dropped_attributes"),
    ];

    fn index(self) -> usize {
        self as usize
    }
}
