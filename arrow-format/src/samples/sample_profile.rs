//! Profiles as a writer of samples takes them.

use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::{Labels, SpanContext};

/// Profile with its samples.
#[derive(Clone, Copy, Debug)]
pub struct SampleProfile<'a> {
    /// Record id of the profile.
    pub id: ContentHash,
    /// Timestamp of the profile, Unix nanoseconds.
    pub time: i64,
    /// Labels of the series.
    pub labels: &'a Labels,
    /// Samples. A stack may occur more than once.
    pub samples: &'a [SampleValue],
}

/// Sample of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleValue {
    /// Stack in the dictionary of the profile.
    pub stack: u32,
    /// Value of the sample.
    pub value: i64,
    /// Span and trace of the sample.
    pub span: SpanContext,
}
