//! Errors for a refused request or a refused profile in it.

use crate::formats::pprof::DecodeError;

// Quantities that limits refer to. Metrics of refusals match on them.
pub(super) const ATTRIBUTES_LIMIT_NAME: &str = "attributes of one sample, profile, location or mapping";
pub(super) const PROFILE_BYTES_LIMIT_NAME: &str = "bytes in a profile";
pub(super) const REQUEST_BYTES_LIMIT_NAME: &str =
    "bytes in all profiles of a request, each with its own names";
pub(super) const PROFILES_LIMIT_NAME: &str = "profiles in a request";

/// Reason for refusing bytes as OTLP.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OtlpError {
    /// The bytes end within a field.
    #[error("request is truncated at byte {at}, within {what}")]
    CutOff {
        /// Offset in the request.
        at: usize,
        /// Part that was being read.
        what: &'static str,
    },
    /// The bytes are not a protobuf message.
    #[error("not an OTLP request: {why} at byte {at}")]
    Malformed {
        /// Offset in the request.
        at: usize,
        /// Description of the error.
        why: &'static str,
    },
    /// The request has no dictionary.
    #[error("request has no dictionary, layouts before OTLP 1.8 are not supported: update the sender")]
    NoDictionary,
    /// Fields have types that the current layout does not have.
    #[error("profile has fields of a layout before OTLP 1.8, which is not supported: update the sender")]
    TooOld,
    /// The request has no profiles.
    #[error("request has no resource_profiles")]
    NoResources,
    /// Text that is not valid UTF-8.
    #[error("{what} is not valid UTF-8")]
    NotUtf8 {
        /// Name of the text.
        what: &'static str,
    },
    /// Index that is outside of its table.
    #[error("{what} refers to entry {index} of {table}, which has {length}")]
    OutOfRange {
        /// Entry with the reference.
        what: &'static str,
        /// Index that was out of range.
        index: i64,
        /// Name of the table.
        table: &'static str,
        /// Number of entries in the table.
        length: usize,
    },
    /// Quantity over a limit.
    #[error("{seen} {what}, the limit is {limit}{way_out}")]
    OverLimit {
        /// Quantity that is limited.
        what: &'static str,
        /// Lower bound of the value seen.
        seen: usize,
        /// Maximum value that is allowed.
        limit: usize,
        /// Setting of the limit and advice, if there is one.
        way_out: &'static str,
    },
    /// Sample with no value, or with a number of values that does not match its timestamps.
    #[error(
        "sample {sample} has {values} values and {times} timestamps: send one value, one for each timestamp, or only \
         timestamps"
    )]
    Values {
        /// Number of the sample, from 1.
        sample: usize,
        /// Number of values in the sample.
        values: usize,
        /// Number of timestamps in the sample.
        times: usize,
    },
    /// Product of value and period that does not fit into 63 bits.
    #[error("sample {sample}: {value} samples of {period} nanoseconds are over 63 bits")]
    Overflow {
        /// Number of the sample, from 1.
        sample: usize,
        /// Value of the sample.
        value: i64,
        /// Sampling period in nanoseconds.
        period: i64,
    },
    /// Sum of values that does not fit into 63 bits.
    #[error("values of sample {sample} add up to over 63 bits: send several samples")]
    SumOverflow {
        /// Number of the sample, from 1.
        sample: usize,
    },
    /// Profile without a metric name.
    #[error("profile has no period_type, from which its name is derived; set a type, such as cpu or wall")]
    NoMetric,
}

impl OtlpError {
    /// Returns the reason as a short name, as servers of this protocol use in metrics.
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
            // The cursor returns no other errors.
            _ => OtlpError::Malformed { at: 0, why: "an unreadable field" },
        }
    }
}

/// Refuses a value over a limit that no setting changes.
#[inline(always)]
pub(super) fn check_limit(what: &'static str, seen: usize, limit: usize) -> Result<(), OtlpError> {
    if seen > limit { Err(OtlpError::OverLimit { what, seen, limit, way_out: "" }) } else { Ok(()) }
}
