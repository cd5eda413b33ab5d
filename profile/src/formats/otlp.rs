//! Reader and writer of OpenTelemetry profiles (`opentelemetry.proto.profiles.v1development`).
//!
//! ```text
//! JSON ─► json ─► protobuf ─► tables ─► layout ─► export_reader ─┬─► profile_header, sample ─► pprof
//!                                                                └─► labels of the series
//! ```
//!
//! A request has one dictionary for all of its profiles. The reader makes one pprof per profile and per
//! service among its samples. Each pprof holds only the entries that its samples refer to, renumbered. The
//! conversion is from bytes to bytes, without hashing any name.
//!
//! Format violations of real senders are accepted if they have only one meaning, and are counted in
//! [`OtlpViolations`]. A profile without a clear meaning is refused, and the others in the request are not.

mod entry_numbers;
mod error;
mod export_reader;
mod json;
mod layout;
mod pprof;
mod profile_header;
mod sample;
mod tables;
mod value;
mod violations;
mod write;

use std::ops::Range;

pub use error::OtlpError;
pub use export_reader::{read, read_converted_json};
pub use json::{OtlpJsonError, from_json};
pub use violations::{OtlpViolation, OtlpViolations};
pub use write::{encode, partial_success};

/// Attributes of a mapping that name its build, the most specific first.
const BUILD_ID_ATTRIBUTES: [&str; 3] = [
    "process.executable.build_id.gnu",
    "process.executable.build_id.go",
    "process.executable.build_id.htlhash",
];

/// Maximum factor between the output and the bytes of a request. Shared entries are written into each
/// profile.
const MAX_EXPANSION_FACTOR: usize = 64;

/// Limits on reading a request. Each is named in the error that it causes.
#[derive(Clone, Copy, Debug)]
pub struct OtlpLimits {
    /// Bytes of one pprof (`limits.max_profile_size_bytes`).
    pub profile: usize,
    /// Bytes of all output of a request, including labels and refused profiles
    /// (`limits.ingestion_body_limit`). For a small request the limit is lower.
    pub total: usize,
    /// Profiles in a request, and services in one profile (`distributor.max_profiles_per_request`). A profile
    /// with several services counts once.
    pub profiles: usize,
}

impl OtlpLimits {
    /// Returns the limits for a request of `bytes` bytes: `total` is at most 64 times the request plus one
    /// profile.
    pub fn for_request(&self, bytes: usize) -> Self {
        let most = bytes.saturating_mul(MAX_EXPANSION_FACTOR).saturating_add(self.profile);
        OtlpLimits { total: self.total.min(most), ..*self }
    }
}

/// Result of reading a request.
#[derive(Debug, Default)]
pub struct OtlpExport {
    /// Result for each profile, in the order sent.
    pub profiles: Vec<Result<Vec<OtlpProfile>, OtlpError>>,
    /// Format violations that were accepted.
    pub violations: OtlpViolations,
}

/// Profile of a single service.
#[derive(Debug, PartialEq, Eq)]
pub struct OtlpProfile {
    /// Names and values of the series' labels, before the label rules. A payload has no `__name__`: its types
    /// give it.
    pub labels: Vec<(String, String)>,
    /// Profile id that the sender gave, in hexadecimal.
    pub id: Option<String>,
    /// Time of the profile, Unix nanoseconds; 0 if it is not given.
    pub time_nanos: i64,
    /// Samples, original payload or nothing.
    pub content: OtlpProfileContent,
}

/// Content of a profile.
#[derive(Debug, PartialEq, Eq)]
pub enum OtlpProfileContent {
    /// Samples as uncompressed pprof.
    Pprof(Vec<u8>),
    /// No samples, but the profile in its original format.
    Payload {
        /// Format as the sender names it: `pprof`, `jfr` …
        format: String,
        /// Range of the payload in the request.
        bytes: Range<usize>,
    },
    /// No samples and no payload.
    Nothing,
}

#[cfg(test)]
mod tests;
