//! Java Flight Recorder's files, as the JDK and async-profiler write them, read into pprof.
//!
//! ```text
//!  chunk ─► metadata: which types there are ─────► plans: how to go through their bytes
//!    │                                               │
//!    ├────► checkpoints: stacks, methods, names ─► places of constants
//!    │                                               │
//!    └────► events ─► kind, stack, context, amount ─► rows of each kind ─► one pprof for each
//! ```
//!
//! A recording holds several profiles: processor time, wall-clock time, allocations, waiting. Nothing is known of how an
//! event is laid out but the names of its fields; all else says the chunk itself. Constants are not read before an event
//! needs them, and a stack is made of names once, whatever many events have it.

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

/// Bounds on what is read. Each is named in the error that it causes.
#[derive(Clone, Copy, Debug)]
pub struct JfrLimits {
    /// Bytes of the recording, not compressed.
    pub bytes: usize,
    /// Constants of a chunk that are kept, and lines of code of all.
    pub constants: usize,
    /// Frames of all different stacks.
    pub frames: usize,
    /// Bytes of the names of all functions.
    pub names: usize,
    /// Different stacks of one profile, those with different labels counted apart.
    pub samples: usize,
    /// Bytes of one profile that is made.
    pub profile: usize,
}

impl Default for JfrLimits {
    fn default() -> Self {
        JfrLimits::for_bytes(1 << 30)
    }
}

impl JfrLimits {
    /// For recordings of so many bytes: what is kept beside them takes about as much again at most.
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

/// Why bytes were refused as a recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JfrError {
    /// It begins with something else.
    #[error("not a flight recording: it does not begin with FLR")]
    OtherFormat,
    /// Of another version.
    #[error("flight recording of version {major}.{minor}; 2.x is read, which JDK 11 and later write")]
    Version {
        /// Before the point.
        major: u16,
        /// After it.
        minor: u16,
    },
    /// The JVM was still writing, or died.
    #[error(
        "chunk at byte {at} of the flight recording was never finished; dump it with jcmd or stop the recording"
    )]
    Unfinished {
        /// Where the chunk begins.
        at: usize,
    },
    /// The bytes end in the middle.
    #[error("flight recording is cut off at byte {at}")]
    Truncated {
        /// Offset in the recording.
        at: usize,
    },
    /// Not as the format has it.
    #[error("flight recording is damaged: {why} at byte {at}")]
    Malformed {
        /// Offset in the recording.
        at: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// Constants of a type that cannot be passed.
    #[error(
        "flight recording is damaged: its metadata does not say how constants of type {class} at byte {at} are written"
    )]
    UnknownType {
        /// Offset in the recording.
        at: usize,
        /// The type's id.
        class: u64,
    },
    /// Over a limit.
    #[error("flight recording has {seen} {what}, the limit is {limit}")]
    OverLimit {
        /// What there is too much of.
        what: &'static str,
        /// How much was seen, at least.
        seen: usize,
        /// How much may be.
        limit: usize,
    },
    /// One of its profiles is over a limit.
    #[error("profile {kind} of the flight recording has {seen} {what}, the limit is {limit}")]
    Profile {
        /// Which profile.
        kind: &'static str,
        /// What there is too much of.
        what: &'static str,
        /// How much was seen, at least.
        seen: usize,
        /// How much may be.
        limit: usize,
    },
    /// One of its profiles has values that do not fit.
    #[error("values of profile {kind} of the flight recording add up to over 63 bits")]
    Overflow {
        /// Which profile.
        kind: &'static str,
    },
    /// Labels over a limit.
    #[error("labels of the flight recording: {seen} {what}, the limit is {limit}")]
    LabelsOverLimit {
        /// What there is too much of.
        what: &'static str,
        /// How much was seen, at least.
        seen: usize,
        /// How much may be.
        limit: usize,
    },
    /// Labels that cannot be read.
    #[error("labels of the flight recording are damaged: {why} at byte {at}")]
    Labels {
        /// Offset in the labels.
        at: usize,
        /// What is wrong.
        why: &'static str,
    },
}

/// What a client says of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingInfo {
    /// When it began, Unix nanoseconds; 0 if only the recording says so.
    pub start: i64,
    /// How long it took.
    pub duration: i64,
    /// How often in a second threads were looked at; 0 makes all their time 0.
    pub sample_rate: u32,
}

/// What a recording holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct JfrRecording {
    /// By which event async-profiler sampled threads: `itimer`, `cpu`, `wall` …; empty if the recording does not say.
    pub event: String,
    /// Its profiles, those of which it has a sample.
    pub profiles: Vec<JfrProfile>,
}

/// One profile of a recording.
#[derive(Debug, PartialEq, Eq)]
pub struct JfrProfile {
    /// What it measures.
    pub kind: &'static JfrProfileKind,
    /// pprof, not compressed, and nothing if no sample has a stack; or why this one is refused.
    pub pprof: Result<Vec<u8>, JfrError>,
    /// Samples that were left out since they have no stack.
    pub without_stack: u64,
}

/// Whether these bytes begin as a recording does.
pub fn is_recording(raw: &[u8]) -> bool {
    chunk::has_magic(raw)
}

/// Reads a recording that is not compressed, with the labels that its events name. A profile that is over a limit is
/// refused alone.
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

/// What follows [`JfrLimits::bytes`], as errors name it.
pub const CONSTANTS_LIMIT_NAME: &str = "constants";
/// As [`CONSTANTS_LIMIT_NAME`].
pub const LINES_LIMIT_NAME: &str = "lines of code";
/// As [`CONSTANTS_LIMIT_NAME`].
pub const FRAMES_LIMIT_NAME: &str = "frames of different stacks";
/// As [`CONSTANTS_LIMIT_NAME`]: of texts, those counted again that several refer to.
pub const READ_BYTES_LIMIT_NAME: &str = "bytes of texts that were read";
/// What [`JfrLimits::stable_names`] bounds.
pub const NAMES_LIMIT_NAME: &str = "bytes of names";

/// Refuses what is over a limit.
fn check_limit(what: &'static str, seen: usize, limit: usize) -> Result<(), JfrError> {
    if seen > limit { Err(JfrError::OverLimit { what, seen, limit }) } else { Ok(()) }
}

// === impl JfrError ===

impl JfrError {
    /// What is wrong in a word, as metrics of servers of this wire name it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Profile { what: "samples", .. } => "samples_limit",
            Self::OverLimit { .. } | Self::Profile { .. } => "profile_size_limit",
            Self::LabelsOverLimit { .. } => "sample_labels_limit",
            _ => "malformed_profile",
        }
    }

    /// The same, of a chunk that begins at byte `by`.
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
