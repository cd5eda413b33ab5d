//! Counts of the parts of a profile that were dropped, by reason.

use crate::data_model::kind_counts::{CountedKind, KindCounts};

/// Reason for dropping a part of a stored profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Sample with a dangling reference.
    DanglingSample,
    /// Sample with a negative value.
    NegativeSample,
    /// Line that refers to a missing function.
    DanglingLine,
    /// Reference to a missing mapping.
    DanglingMapping,
    /// Sample with a too deep stack, which lost its leaves.
    DeepStack,
    /// Too long text, which lost its beginning.
    LongText,
    /// Row of a series or type that relabel rules of the tenant dropped.
    RelabelRule,
    /// Sample with a span or trace id that is not hexadecimal, which lost that id.
    MalformedId,
    /// Sample of a flight recording without a stack.
    MissingStack,
}

/// Counts of dropped parts by reason.
pub type DroppedCounts = KindCounts<DropReason, { DropReason::COUNT }>;

impl DropReason {
    /// Number of reasons.
    pub const COUNT: usize = 9;
}

impl CountedKind<{ DropReason::COUNT }> for DropReason {
    const NAMES: [(Self, &'static str); Self::COUNT] = [
        (Self::DanglingSample, "dangling_samples"),
        (Self::NegativeSample, "negative_samples"),
        (Self::DanglingLine, "dangling_lines"),
        (Self::DanglingMapping, "dangling_mappings"),
        (Self::DeepStack, "deep_stacks"),
        (Self::LongText, "long_texts"),
        (Self::RelabelRule, "dropped_by_relabel_rules"),
        (Self::MalformedId, "malformed_ids"),
        (Self::MissingStack, "samples_without_stack"),
    ];

    fn index(self) -> usize {
        self as usize
    }
}
