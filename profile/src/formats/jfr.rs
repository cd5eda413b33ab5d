//! Decoder of Java Flight Recorder files, as the JDK and async-profiler write them. Converts a recording to
//! pprof profiles.
//!
//! ```text
//!  chunk ─► metadata: types ──────────────────────► decode plans of the types
//!    │                                               │
//!    ├────► checkpoints: stacks, methods, names ─► positions of constants
//!    │                                               │
//!    └────► events ─► kind, stack, context, amount ─► rows of each kind ─► one pprof profile for each
//! ```
//!
//! A recording holds several profiles: processor time, wall-clock time, allocations, waiting. Only the names
//! of events and of their fields are built in; the chunk describes their layout. It reads a constant only
//! when an event needs it. The names of a stack are resolved once, however many events share the stack.

mod chunk;
mod decode_plan;
mod input;
mod merged;
mod metadata;
mod pools;
mod profile_kinds;
mod reader;
mod sample_rows;
mod snapshot;
mod stable_names;
mod stacks;

use reader::RecordingReader;

pub use merged::{RecordingError, read_merged};
pub use profile_kinds::JfrProfileKind;
pub use snapshot::LabelsSnapshot;

/// Limits of the decoder. Each error names the limit that was exceeded.
#[derive(Clone, Copy, Debug)]
pub struct JfrLimits {
    /// Bytes of the uncompressed recording.
    pub bytes: usize,
    /// Constants of one chunk that are indexed. Also bounds the code lines of all chunks.
    pub constants: usize,
    /// Frames of all distinct stacks.
    pub frames: usize,
    /// Bytes of the names of all functions.
    pub names: usize,
    /// Rows of one profile: distinct pairs of stack and labels.
    pub samples: usize,
    /// Bytes of one resulting pprof profile.
    pub profile: usize,
}

impl Default for JfrLimits {
    fn default() -> Self {
        JfrLimits::for_bytes(1 << 30)
    }
}

impl JfrLimits {
    /// Returns the limits for recordings of a size. The decoder's own memory is at most about as large as the
    /// recording.
    pub fn for_bytes(bytes: usize) -> Self {
        JfrLimits {
            bytes,
            constants: (bytes / 256).max(1 << 18),
            frames: (bytes / 8).max(1 << 20),
            names: bytes,
            samples: bytes / 64,
            profile: bytes,
        }
    }
}

/// Reason why a recording was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JfrError {
    /// The data does not begin with the magic bytes of a recording.
    #[error("not a flight recording: it does not begin with FLR")]
    OtherFormat,
    /// The recording has an unsupported version.
    #[error(
        "flight recording has version {major}.{minor}; the supported version is 2.x, which JDK 11 and later write"
    )]
    Version {
        /// Major version of the recording.
        major: u16,
        /// Minor version of the recording.
        minor: u16,
    },
    /// The chunk is incomplete: the JVM was still writing it, or crashed.
    #[error(
        "chunk at byte {at} of the flight recording is unfinished; dump the recording with jcmd or stop it"
    )]
    Unfinished {
        /// Offset of the chunk in the recording.
        at: usize,
    },
    /// The recording ends within a chunk or value.
    #[error("flight recording is truncated at byte {at}")]
    Truncated {
        /// Offset in the recording.
        at: usize,
    },
    /// The recording violates the format.
    #[error("flight recording is damaged: {why} at byte {at}")]
    Malformed {
        /// Offset in the recording.
        at: usize,
        /// Violation of the format.
        why: &'static str,
    },
    /// The constants of this type cannot be skipped, because the metadata does not describe its layout.
    #[error("flight recording is damaged: metadata has no layout for constants of type {class} at byte {at}")]
    UnknownType {
        /// Offset in the recording.
        at: usize,
        /// Id of the type.
        class: u64,
    },
    /// The recording exceeds a limit.
    #[error("flight recording has {seen} {what}, the limit is {limit}")]
    OverLimit {
        /// Name of the limited quantity.
        what: &'static str,
        /// Amount seen so far, a lower bound of the total.
        seen: usize,
        /// Limit that was exceeded.
        limit: usize,
    },
    /// One profile of the recording exceeds a limit.
    #[error("profile {kind} of the flight recording has {seen} {what}, the limit is {limit}")]
    Profile {
        /// Name of the profile.
        kind: &'static str,
        /// Name of the limited quantity.
        what: &'static str,
        /// Amount seen so far, a lower bound of the total.
        seen: usize,
        /// Limit that was exceeded.
        limit: usize,
    },
    /// The values of one profile add up to more than 63 bits.
    #[error("values of profile {kind} of the flight recording add up to over 63 bits")]
    Overflow {
        /// Name of the profile.
        kind: &'static str,
    },
    /// The labels exceed a limit.
    #[error("labels of the flight recording: {seen} {what}, the limit is {limit}")]
    LabelsOverLimit {
        /// Name of the limited quantity.
        what: &'static str,
        /// Amount seen so far, a lower bound of the total.
        seen: usize,
        /// Limit that was exceeded.
        limit: usize,
    },
    /// The labels snapshot violates the format.
    #[error("labels of the flight recording are damaged: {why} at byte {at}")]
    Labels {
        /// Offset in the labels.
        at: usize,
        /// Violation of the format.
        why: &'static str,
    },
}

/// Metadata that a client sends with a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingInfo {
    /// Start in Unix nanoseconds; 0 to use the start in the recording.
    pub start: i64,
    /// Duration in nanoseconds; used only with `start`.
    pub duration: i64,
    /// Thread samples per second; 0 makes all sampled times 0.
    pub sample_rate: u32,
}

/// Contents of a decoded recording.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct JfrRecording {
    /// Event by which async-profiler sampled threads: `itimer`, `cpu`, `wall` …; empty if the recording does
    /// not contain it.
    pub event: String,
    /// Profiles for which the recording has at least one sample.
    pub profiles: Vec<JfrProfile>,
}

/// Decoded profile of a recording.
#[derive(Debug, PartialEq, Eq)]
pub struct JfrProfile {
    /// Kind of the profile, with its value types.
    pub kind: &'static JfrProfileKind,
    /// Uncompressed pprof, empty if no sample has a stack; or the reason why this profile was rejected.
    pub pprof: Result<Vec<u8>, JfrError>,
    /// Number of samples that were dropped because they have no stack.
    pub without_stack: u64,
}

/// Returns whether data begins with the magic bytes of a recording.
pub fn is_recording(raw: &[u8]) -> bool {
    chunk::has_magic(raw)
}

/// Decodes an uncompressed recording, with the labels that its events refer to. If one profile exceeds a
/// limit, only that profile is rejected.
pub fn read(
    raw: &[u8],
    about: &RecordingInfo,
    labels: &LabelsSnapshot<'_>,
    limits: &JfrLimits,
) -> Result<JfrRecording, JfrError> {
    check_limit("bytes", raw.len(), limits.bytes)?;
    let mut reader = RecordingReader::new(about, limits);
    let mut rest = raw;
    while !rest.is_empty() || raw.is_empty() {
        let at = raw.len() - rest.len();
        let (chunk, after) = chunk::read(rest, at, limits)?;
        reader.read_chunk(&chunk).map_err(|error| error.offset_by(at))?;
        rest = after;
    }
    Ok(reader.finish(labels))
}

/// Name of the limit on constants in errors. The limit is derived from [`JfrLimits::bytes`].
pub const CONSTANTS_LIMIT_NAME: &str = "constants";
/// Name of the limit on code lines in errors. Derived like that of [`CONSTANTS_LIMIT_NAME`].
pub const LINES_LIMIT_NAME: &str = "lines of code";
/// Name of the limit on frames in errors. Derived like that of [`CONSTANTS_LIMIT_NAME`].
pub const FRAMES_LIMIT_NAME: &str = "frames of different stacks";
/// Name of the limit on bytes of texts in errors. Derived like that of [`CONSTANTS_LIMIT_NAME`]. A text
/// counts once per reference to it.
pub const READ_BYTES_LIMIT_NAME: &str = "bytes of texts that were read";
/// Name of the limit [`JfrLimits::names`] in errors.
pub const NAMES_LIMIT_NAME: &str = "bytes of names";

/// Returns an error if an amount exceeds its limit.
fn check_limit(what: &'static str, seen: usize, limit: usize) -> Result<(), JfrError> {
    if seen > limit { Err(JfrError::OverLimit { what, seen, limit }) } else { Ok(()) }
}

// === impl JfrError ===

impl JfrError {
    /// Returns the reason as a metric label, with the values that Pyroscope uses.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Profile { what: "samples", .. } => "samples_limit",
            Self::OverLimit { .. } | Self::Profile { .. } => "profile_size_limit",
            Self::LabelsOverLimit { .. } => "sample_labels_limit",
            _ => "malformed_profile",
        }
    }

    /// Adds the chunk's offset `by` to the offset of an error.
    fn offset_by(mut self, by: usize) -> Self {
        if let Self::Truncated { at } | Self::Malformed { at, .. } | Self::UnknownType { at, .. } = &mut self
        {
            *at += by;
        }
        self
    }
}

#[cfg(test)]
mod tests;
