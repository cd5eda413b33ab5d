//! pprof, read and written.
//!
//! Reading is one walk: top-level fields are visited once in their order, samples are remembered as ranges
//! (their tables come later in the file), then every table entry is hashed once, then every sample. A stack
//! that the file repeats costs a hash of its bytes; one that the dictionary knows a hash and a look-up; only a
//! new one has its names copied.

mod decode;
mod deflate;
mod encode;
mod entries;
mod id_index;
mod inflate;
mod reader;
mod rewrite;
mod samples;
mod stack_accumulator;
mod truncated_go_stacks;
pub(crate) mod wire;

pub use decode::{DecodeDropCounts, DecodedProfile, PprofDecoder};
pub use deflate::{gzip, gzip_fast};
pub use encode::encode;
pub(crate) use entries::ELF_ADDRESSES_FIELD;
pub use inflate::{Inflater, inflate, inflate_bytes};
pub use reader::{PprofReader, SenderInfo};
pub(crate) use rewrite::{any_function, build_ids};
pub use rewrite::{
    assign_function_ids, rename_functions, rename_types, rewrite_strings, sample_types, strip_time,
    time_nanos,
};
pub(crate) use samples::TIMESTAMPS_FIELD;
pub use stack_accumulator::{StackAccumulator, StackAccumulatorError};
pub use truncated_go_stacks::TRUNCATED_ROOT_NAME;

use crate::model::{Dictionary, Profile};

/// Bounds on what is read. Each is named in the error that it causes.
#[derive(Clone, Copy, Debug)]
pub struct DecodeLimits {
    /// Bytes after decompression; also those of all moments of samples, times the sample types.
    pub bytes: usize,
    /// Samples in a profile.
    pub samples: usize,
    /// Labels on one sample.
    pub labels: usize,
    /// Frames in one stack.
    pub depth: usize,
    /// Frames of all stacks, each written out, in formats that write what stacks share once. pprof does not.
    pub frames: usize,
    /// Frames of a stack that are kept: a deeper one loses its leaves.
    pub kept_depth: usize,
    /// Bytes of a text that are kept: a longer one loses its beginning.
    pub kept_text: usize,
    /// Entries in any one table: strings, functions, locations, mappings, lines.
    pub entries: usize,
    /// Bytes of memory that all tables take together: entries of a few bytes take many.
    pub tables: usize,
    /// Sample types, and so values of one sample.
    pub types: usize,
    /// Comments.
    pub comments: usize,
    /// Bytes of all texts in the header: many comments may name one long text.
    pub header: usize,
    /// Whether a sample is dropped if one of its locations refers to a function or a mapping that is not there. Else
    /// it stays, without that line or mapping, as `go tool pprof` has it.
    pub drop_dangling: bool,
}

/// How often a profile's bytes its tables may take in memory. Real ones take up to four times their bytes; entries that say
/// nothing would take forty.
const MAX_TABLE_MEMORY_FACTOR: usize = 4;
/// Entries of real tables have at least so many bytes, with all that they name; and so few there may always be.
const MIN_ENTRY_BYTES: usize = 8;
const MIN_ENTRY_LIMIT: usize = 16 << 10;
/// So much tables may always take.
const MIN_TABLE_MEMORY_BYTES: usize = 1 << 20;

impl DecodeLimits {
    /// For profiles of at most so many bytes: their tables may be as those of real ones are.
    pub fn for_bytes(bytes: usize) -> Self {
        let entries = bytes / MIN_ENTRY_BYTES;
        let tables = bytes.saturating_mul(MAX_TABLE_MEMORY_FACTOR);
        DecodeLimits {
            bytes,
            entries: entries.max(MIN_ENTRY_LIMIT),
            tables: tables.max(MIN_TABLE_MEMORY_BYTES),
            ..DecodeLimits::default()
        }
    }
}

impl Default for DecodeLimits {
    fn default() -> Self {
        DecodeLimits {
            bytes: 1 << 30,
            samples: 50_000_000,
            labels: 1000,
            depth: 100_000,
            frames: 1 << 30,
            kept_depth: usize::MAX,
            kept_text: usize::MAX,
            entries: 50_000_000,
            tables: 8 << 30,
            types: 1000,
            comments: 10_000,
            header: 16 << 20,
            drop_dangling: false,
        }
    }
}

/// What there may be as much of as bytes: each sample type is stored with all moments.
pub const TIMESTAMP_BYTES_LIMIT_NAME: &str = "bytes of moments, times its sample types";

/// Refuses what is over a limit.
#[inline(always)]
pub(crate) fn check_limit(what: &'static str, seen: usize, limit: usize) -> Result<(), DecodeError> {
    if seen > limit { Err(DecodeError::OverLimit { what, seen, limit }) } else { Ok(()) }
}

/// Why bytes were refused as pprof.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end in the middle.
    #[error("profile is cut off at byte {at}, within {what}")]
    Truncated {
        /// Offset in the decompressed bytes.
        at: usize,
        /// What was being read.
        what: &'static str,
    },
    /// Not a protobuf message.
    #[error("not a pprof profile: {why} at byte {at}")]
    Malformed {
        /// Offset in the decompressed bytes.
        at: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// Compressed bytes that do not decompress.
    #[error("{format} stream is damaged: {why}")]
    Compression {
        /// gzip or zstd.
        format: &'static str,
        /// What is wrong.
        why: String,
    },
    /// Over a limit.
    #[error("profile has {seen} {what}, the limit is {limit}")]
    OverLimit {
        /// What there is too much of.
        what: &'static str,
        /// How much was seen, at least.
        seen: usize,
        /// How much may be.
        limit: usize,
    },
    /// An index that points outside its table.
    #[error("{what} refers to entry {index} of a table of {length} ({table})")]
    OutOfRange {
        /// Who refers.
        what: &'static str,
        /// The table.
        table: &'static str,
        /// The index.
        index: i64,
        /// The table's length.
        length: usize,
    },
    /// An entry with id 0.
    #[error("{what} number {at} has id 0; ids start at 1")]
    IdZero {
        /// Which table.
        what: &'static str,
        /// Which entry.
        at: usize,
    },
    /// Two entries with one id.
    #[error("two {what}s have the id {id}")]
    IdTwice {
        /// Which table.
        what: &'static str,
        /// The id.
        id: u64,
    },
    /// Text that is not UTF-8.
    #[error("string {index} is not valid UTF-8")]
    NotUtf8 {
        /// Index in the string table.
        index: usize,
    },
    /// The string table does not start with the empty string.
    #[error("string table does not begin with the empty string")]
    NoEmptyString,
    /// No sample type.
    #[error("profile has no sample type")]
    NoSampleType,
    /// A sample with too many labels.
    #[error("sample {sample} has {seen} labels, the limit is {limit}")]
    SampleLabels {
        /// Which sample.
        sample: usize,
        /// Its labels, at least.
        seen: usize,
        /// How many it may have.
        limit: usize,
    },
    /// A sample with too few or too many values.
    #[error("sample {sample} has {seen} values, the profile has {expected} sample types")]
    ValueCount {
        /// Which sample.
        sample: usize,
        /// Its values.
        seen: usize,
        /// The sample types.
        expected: usize,
    },
}

impl DecodeError {
    /// What is wrong in a word, as metrics of servers of this wire name it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::OverLimit { what: "bytes" | TIMESTAMP_BYTES_LIMIT_NAME, .. } => "profile_size_limit",
            Self::OverLimit { what: "samples", .. } => "samples_limit",
            Self::SampleLabels { .. } => "sample_labels_limit",
            _ => "malformed_profile",
        }
    }
}

/// Reads one whole profile with a dictionary of its own; gzip, zstd or plain.
pub fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<(Profile, DecodeDropCounts), DecodeError> {
    let mut inflater = Inflater::default();
    let raw = inflater.inflate(bytes, limits.bytes)?;
    let mut dictionary = Dictionary::default();
    let mut decoded = DecodedProfile::default();
    PprofDecoder::default().decode(raw, limits, &mut dictionary, &mut decoded)?;
    Ok((Profile { header: decoded.header, samples: decoded.samples, dictionary }, decoded.dropped))
}

#[cfg(test)]
mod tests;
