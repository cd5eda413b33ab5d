//! OpenTelemetry's profiles (`opentelemetry.proto.profiles.v1development`), read and written.
//!
//! ```text
//!  JSON ─► json ─► protobuf ─► tables (where each entry lies) ─► layout ─► walk ─┬─► head, sample ─► pprof ─► bytes
//!                                                                               └─► labels of the series
//! ```
//!
//! A request has one dictionary for all of its profiles. Reading makes one pprof of each profile, and of each service
//! among its samples, with only what its samples refer to, numbered anew: bytes from bytes, without a hash of any name.
//!
//! What real senders get wrong and what still has one meaning is taken, and counted: [`OtlpViolations`]. A profile without a
//! meaning is refused, and those beside it are not.

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

/// Attributes of a mapping that name its build, the best first.
const BUILD_ID_ATTRIBUTES: [&str; 3] = [
    "process.executable.build_id.gnu",
    "process.executable.build_id.go",
    "process.executable.build_id.htlhash",
];

/// So many times its own bytes may come of a request: what profiles share is written in each.
const MAX_EXPANSION_FACTOR: usize = 64;

/// Bounds on what is read. Each is named in the error that it causes.
#[derive(Clone, Copy, Debug)]
pub struct OtlpLimits {
    /// Bytes of one pprof (`limits.max_profile_size_bytes`).
    pub profile: usize,
    /// Bytes of all that comes of a request, labels and what was refused included (`limits.ingestion_body_limit`). Of a small
    /// request it is less.
    pub total: usize,
    /// Profiles in a request, services apart (`distributor.max_profiles_per_request`).
    pub profiles: usize,
}

impl OtlpLimits {
    /// Those of a request of so many bytes: what is small does not become large, beside one profile.
    pub fn for_request(&self, bytes: usize) -> Self {
        let most = bytes.saturating_mul(MAX_EXPANSION_FACTOR).saturating_add(self.profile);
        OtlpLimits { total: self.total.min(most), ..*self }
    }
}

/// What came of a request.
#[derive(Debug, Default)]
pub struct OtlpExport {
    /// What came of each of its profiles, in their order.
    pub profiles: Vec<Result<Vec<OtlpProfile>, OtlpError>>,
    /// What was odd about it.
    pub oddities: OtlpViolations,
}

/// One profile of one service.
#[derive(Debug, PartialEq, Eq)]
pub struct OtlpProfile {
    /// Names and values of the series, before any rule. A payload has no `__name__`: its types say it.
    pub labels: Vec<(String, String)>,
    /// The sender's id of it, in hexadecimal.
    pub id: Option<String>,
    /// Its time, Unix nanoseconds; 0 if it says none.
    pub time_nanos: i64,
    /// What is in it.
    pub content: OtlpProfileContent,
}

/// What is in a profile.
#[derive(Debug, PartialEq, Eq)]
pub enum OtlpProfileContent {
    /// Samples, as uncompressed pprof.
    Pprof(Vec<u8>),
    /// No samples, but the profile as it was first recorded.
    Payload {
        /// What the sender calls it: `pprof`, `jfr` …
        format: String,
        /// Where it lies in the request.
        bytes: Range<usize>,
    },
    /// Nothing at all.
    Nothing,
}

/// What is not as the format says and was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtlpViolations {
    /// Requests in the layout of samples that came before 1.10.
    pub old_layouts: u64,
    /// Tables that do not begin with an entry that stands for nothing.
    pub missing_zero_entries: u64,
    /// Profiles that last no time: they are taken to last ten seconds.
    pub without_duration: u64,
    /// Profiles that say no time: theirs is when they came.
    pub without_time: u64,
    /// Times of samples that are equal to the one before, or earlier.
    pub unordered_times: u64,
    /// Times of samples before or after their profile.
    pub times_out_of_range: u64,
    /// Attributes of profiles, locations and mappings that are not there.
    pub dangling_attributes: u64,
    /// Attributes of locations and mappings for which pprof has no place.
    pub ignored_attributes: u64,
    /// Attributes of resources and scopes without a name, or that are there twice.
    pub unusable_attributes: u64,
    /// Links whose ids have another length than ids have.
    pub malformed_links: u64,
    /// Samples with what there was at several moments, of which the last counts.
    pub snapshots: u64,
    /// Profiles whose original bytes were not looked at, since there are samples.
    pub ignored_payloads: u64,
    /// Attributes that their senders left out.
    pub dropped_attributes: u64,
}

impl OtlpViolations {
    /// Each kind by its name.
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
