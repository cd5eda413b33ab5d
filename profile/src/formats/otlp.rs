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
mod write;

use std::ops::Range;

pub use error::OtlpError;
pub use export_reader::{read, read_converted_json};
pub use json::{OtlpJsonError, from_json};
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
    pub oddities: OtlpViolations,
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

/// Counts of accepted deviations from the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtlpViolations {
    /// Requests with the sample layout from before 1.10.
    pub old_layouts: u64,
    /// Tables without a zero entry at the beginning.
    pub missing_zero_entries: u64,
    /// Profiles without a duration. The reader assumes ten seconds.
    pub without_duration: u64,
    /// Profiles without a time. They get their receive time.
    pub without_time: u64,
    /// Sample timestamps that are not later than the previous one.
    pub unordered_times: u64,
    /// Sample timestamps outside the range of their profile.
    pub times_out_of_range: u64,
    /// References of profiles, locations and mappings to attributes that do not exist.
    pub dangling_attributes: u64,
    /// Attributes of locations and mappings that pprof has no field for.
    pub ignored_attributes: u64,
    /// Duplicate or nameless attributes of resources and scopes.
    pub unusable_attributes: u64,
    /// Links with trace or span ids of the wrong length.
    pub malformed_links: u64,
    /// Samples of a snapshot type with values at several timestamps. Only the last value counts.
    pub snapshots: u64,
    /// Original payloads that were ignored because the profile has samples.
    pub ignored_payloads: u64,
    /// Attributes that senders dropped.
    pub dropped_attributes: u64,
}

impl OtlpViolations {
    /// Returns the counts with the name of each kind.
    pub fn counts(&self) -> [(&'static str, u64); 13] {
        [
            ("old_layouts", self.old_layouts),
            ("missing_zero_entries", self.missing_zero_entries),
            ("without_duration", self.without_duration),
            ("without_time", self.without_time),
            ("unordered_times", self.unordered_times),
            ("times_out_of_range", self.times_out_of_range),
            ("dangling_attributes", self.dangling_attributes),
            ("ignored_attributes", self.ignored_attributes),
            ("unusable_attributes", self.unusable_attributes),
            ("malformed_links", self.malformed_links),
            ("snapshots", self.snapshots),
            ("ignored_payloads", self.ignored_payloads),
            ("dropped_attributes", self.dropped_attributes),
        ]
    }
}

impl std::ops::AddAssign for OtlpViolations {
    fn add_assign(&mut self, other: Self) {
        self.old_layouts += other.old_layouts;
        self.missing_zero_entries += other.missing_zero_entries;
        self.without_duration += other.without_duration;
        self.without_time += other.without_time;
        self.unordered_times += other.unordered_times;
        self.times_out_of_range += other.times_out_of_range;
        self.dangling_attributes += other.dangling_attributes;
        self.ignored_attributes += other.ignored_attributes;
        self.unusable_attributes += other.unusable_attributes;
        self.malformed_links += other.malformed_links;
        self.snapshots += other.snapshots;
        self.ignored_payloads += other.ignored_payloads;
        self.dropped_attributes = self.dropped_attributes.saturating_add(other.dropped_attributes);
    }
}

#[cfg(test)]
mod tests;
