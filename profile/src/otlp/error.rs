//! Why a request, or one profile in it, is refused.

use crate::pprof::DecodeError;

// What limits are about, for those who count refusals.
pub(super) const ATTRIBUTES_LIMIT_NAME: &str = "attributes of one sample, profile, location or mapping";
pub(super) const PROFILE_BYTES_LIMIT_NAME: &str = "bytes in a profile";
pub(super) const REQUEST_BYTES_LIMIT_NAME: &str =
    "bytes in all profiles of a request, each with its own names";
pub(super) const PROFILES_LIMIT_NAME: &str = "profiles in a request";

/// Why bytes were refused as OTLP.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OtlpError {
    /// The bytes end in the middle.
    #[error("request is cut off at byte {at}, within {what}")]
    CutOff {
        /// Offset.
        at: usize,
        /// What was being read.
        what: &'static str,
    },
    /// Not a protobuf message.
    #[error("not an OTLP request: {why} at byte {at}")]
    Malformed {
        /// Offset.
        at: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// No names.
    #[error("request has no dictionary, and layouts before OTLP 1.8 are not read: update the sender")]
    NoDictionary,
    /// Fields that mean something else today.
    #[error("profile has fields as they were before OTLP 1.8, which are not read: update the sender")]
    TooOld,
    /// No profiles.
    #[error("request has no resource_profiles")]
    NoResources,
    /// A text that is none.
    #[error("{what} is not valid UTF-8")]
    NotUtf8 {
        /// Which text.
        what: &'static str,
    },
    /// An index that points outside its table.
    #[error("{what} refers to entry {index} of {table}, which has {length}")]
    OutOfRange {
        /// Who refers.
        what: &'static str,
        /// The index.
        index: i64,
        /// The table.
        table: &'static str,
        /// The table's length.
        length: usize,
    },
    /// Over a limit.
    #[error("{seen} {what}, the limit is {limit}{way_out}")]
    OverLimit {
        /// What there is too much of.
        what: &'static str,
        /// How much was seen, at least.
        seen: usize,
        /// How much may be.
        limit: usize,
        /// The setting and what to do, if there is one.
        way_out: &'static str,
    },
    /// A sample that counts nothing, or too much.
    #[error(
        "sample {sample} has {values} values and {times} timestamps: send one value, one for each timestamp, or only \
         timestamps"
    )]
    Values {
        /// Which sample, from 1.
        sample: usize,
        /// Its values.
        values: usize,
        /// Its timestamps.
        times: usize,
    },
    /// Too large a product.
    #[error("sample {sample}: {value} samples of {period} nanoseconds are over 63 bits")]
    Overflow {
        /// Which sample, from 1.
        sample: usize,
        /// Its value.
        value: i64,
        /// The period.
        period: i64,
    },
    /// Too large a sum.
    #[error("the values of sample {sample} come to over 63 bits: send them as several samples")]
    SumOverflow {
        /// Which sample, from 1.
        sample: usize,
    },
    /// Nothing says what it is.
    #[error(
        "profile has no period_type, so nothing says what it is called; set its type, such as cpu or wall"
    )]
    NoMetric,
}

impl OtlpError {
    /// What is wrong in a word, as metrics of servers of this wire name it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::OverLimit { what: PROFILE_BYTES_LIMIT_NAME, .. } => "profile_size_limit",
            Self::OverLimit { what: REQUEST_BYTES_LIMIT_NAME, .. } => "body_size_limit_exceeded",
            Self::OverLimit { what: PROFILES_LIMIT_NAME, .. } => "too_many_profiles",
            Self::OverLimit { what: ATTRIBUTES_LIMIT_NAME, .. } => "sample_labels_limit",
            Self::NoMetric => "missing_labels",
            _ => "malformed_profile",
        }
    }
}

impl From<DecodeError> for OtlpError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Truncated { at, what } => OtlpError::CutOff { at, what },
            DecodeError::Malformed { at, why } => OtlpError::Malformed { at, why },
            // The cursor says no more than these.
            _ => OtlpError::Malformed { at: 0, why: "an unreadable field" },
        }
    }
}

/// Refuses what is over a limit that no setting changes.
#[inline(always)]
pub(super) fn check_limit(what: &'static str, seen: usize, limit: usize) -> Result<(), OtlpError> {
    if seen > limit { Err(OtlpError::OverLimit { what, seen, limit, way_out: "" }) } else { Ok(()) }
}
