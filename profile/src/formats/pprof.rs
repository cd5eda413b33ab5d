//! Reader and writer of pprof.
//!
//! The reader makes one pass. It visits top-level fields once in order and records samples as byte ranges,
//! because their tables come later in the file. Then it hashes every table entry once, and then every sample.
//! A stack that repeats within the file costs a hash of its bytes. A stack that the dictionary has costs a
//! hash and a lookup. Only the names of a new stack are copied.

mod decode;
mod deflate;
mod encode;
mod entries;
mod id_index;
mod inflate;
mod reader;
mod rewrite;
mod stack_accumulator;
mod truncated_go_stacks;
pub(crate) mod wire;

pub use decode::{DecodedProfile, PprofDecoder};
pub use deflate::{gzip, gzip_fast};
pub use encode::encode;
pub use entries::TRUNCATED_ROOT_NAME;
pub(crate) use entries::{ELF_ADDRESSES_FIELD, TIMESTAMPS_FIELD};
pub use inflate::{Inflater, inflate, inflate_bytes};
pub use reader::PprofReader;
pub(crate) use rewrite::{any_function, build_ids};
pub use rewrite::{
    assign_function_ids, rename_functions, rename_types, rewrite_strings, sample_types, strip_time,
    time_nanos,
};
pub use stack_accumulator::{StackAccumulator, StackAccumulatorError};

use crate::data_model::dropped_counts::DroppedCounts;
use crate::data_model::model::{Dictionary, Profile};

/// Properties of a profile's sender that are not in the profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderInfo {
    /// Set if the sender profiles Go programs, `None` if that is not stated.
    pub is_go: Option<bool>,
    /// The sender states that all addresses are ELF file addresses.
    pub has_elf_addresses: bool,
}

/// Limits on reading a profile. Each is named in the error that it causes.
#[derive(Clone, Copy, Debug)]
pub struct DecodeLimits {
    /// Bytes after decompression. Also limits the bytes of all timestamps, times the number of sample types.
    pub bytes: usize,
    /// Samples in a profile.
    pub samples: usize,
    /// Labels on one sample.
    pub labels: usize,
    /// Frames in one stack.
    pub depth: usize,
    /// Frames of all stacks, each counted in full, in formats that share prefixes between stacks. Does not
    /// apply to pprof.
    pub frames: usize,
    /// Frames of a stack that are kept. A deeper stack loses its leaves.
    pub kept_depth: usize,
    /// Bytes of a text that are kept. A longer text loses its beginning.
    pub kept_text: usize,
    /// Entries in any one table: strings, functions, locations, mappings, lines.
    pub entries: usize,
    /// Bytes of memory for all tables together. An entry of a few bytes may take many in memory.
    pub tables: usize,
    /// Sample types, which is also the number of values in a sample.
    pub types: usize,
    /// Comments of the profile.
    pub comments: usize,
    /// Bytes of all texts in the header. Many comments may refer to one long text.
    pub header: usize,
    /// If set, a sample is dropped when one of its locations refers to a missing function or mapping.
    /// Otherwise the sample stays without that line or mapping, as in `go tool pprof`.
    pub drop_dangling: bool,
}

/// Maximum ratio between the memory of tables and the bytes of a profile. Real profiles take up to four times
/// their bytes. Empty entries would take forty times.
const MAX_TABLE_MEMORY_FACTOR: usize = 4;
/// Minimum bytes of a real table entry with all its data; `MIN_ENTRY_LIMIT` is the least limit on entries.
const MIN_ENTRY_BYTES: usize = 8;
const MIN_ENTRY_LIMIT: usize = 16 << 10;
/// Minimum for the limit on table memory.
const MIN_TABLE_MEMORY_BYTES: usize = 1 << 20;

impl DecodeLimits {
    /// Returns limits for profiles of at most `bytes` bytes. The table limits fit real profiles of that size.
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

/// Limit name for timestamps: each sample type is stored with all of them.
pub const TIMESTAMP_BYTES_LIMIT_NAME: &str = "bytes of timestamps, times its sample types";

/// Returns an error if `seen` is over the limit.
#[inline(always)]
pub(crate) fn check_limit(what: &'static str, seen: usize, limit: usize) -> Result<(), DecodeError> {
    if seen > limit { Err(DecodeError::OverLimit { what, seen, limit }) } else { Ok(()) }
}

/// Reason for refusing bytes as pprof.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end within a field.
    #[error("profile is truncated at byte {at}, within {what}")]
    Truncated {
        /// Offset in the decompressed bytes.
        at: usize,
        /// Part that was being read.
        what: &'static str,
    },
    /// The bytes are not a protobuf message.
    #[error("not a pprof profile: {why} at byte {at}")]
    Malformed {
        /// Offset in the decompressed bytes.
        at: usize,
        /// Description of the error.
        why: &'static str,
    },
    /// The compressed stream is damaged.
    #[error("{format} stream is damaged: {why}")]
    Compression {
        /// Compression format, gzip or zstd.
        format: &'static str,
        /// Description of the error.
        why: String,
    },
    /// Quantity over a limit.
    #[error("profile has {seen} {what}, the limit is {limit}")]
    OverLimit {
        /// Quantity that is limited.
        what: &'static str,
        /// Lower bound of the value seen.
        seen: usize,
        /// Maximum value that is allowed.
        limit: usize,
    },
    /// Index that is outside of its table.
    #[error("{what} refers to entry {index} of a table of {length} ({table})")]
    OutOfRange {
        /// Entry with the reference.
        what: &'static str,
        /// Name of the table.
        table: &'static str,
        /// Index that was out of range.
        index: i64,
        /// Number of entries in the table.
        length: usize,
    },
    /// Table entry with id 0.
    #[error("{what} number {at} has id 0; ids start at 1")]
    IdZero {
        /// Kind of the entry.
        what: &'static str,
        /// Index of the entry in its table.
        at: usize,
    },
    /// Two entries with the same id.
    #[error("two {what}s have the id {id}")]
    IdTwice {
        /// Kind of the entries.
        what: &'static str,
        /// Id of both entries.
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
    /// The profile has no sample type.
    #[error("profile has no sample type")]
    NoSampleType,
    /// Sample with too many labels.
    #[error("sample {sample} has {seen} labels, the limit is {limit}")]
    SampleLabels {
        /// Index of the sample in the profile.
        sample: usize,
        /// Lower bound of its label count.
        seen: usize,
        /// Maximum number of labels.
        limit: usize,
    },
    /// Sample with too few or too many values.
    #[error("sample {sample} has {seen} values, the profile has {expected} sample types")]
    ValueCount {
        /// Index of the sample in the profile.
        sample: usize,
        /// Number of values in the sample.
        seen: usize,
        /// Number of sample types in the profile.
        expected: usize,
    },
}

impl DecodeError {
    /// Returns the reason as a short name, as servers of this protocol use in metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::OverLimit { what: "bytes" | TIMESTAMP_BYTES_LIMIT_NAME, .. } => "profile_size_limit",
            Self::OverLimit { what: "samples", .. } => "samples_limit",
            Self::SampleLabels { .. } => "sample_labels_limit",
            _ => "malformed_profile",
        }
    }
}

/// Decodes a profile into its own dictionary. The input is plain or compressed with gzip or zstd.
pub fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<(Profile, DroppedCounts), DecodeError> {
    let mut inflater = Inflater::default();
    let raw = inflater.inflate(bytes, limits.bytes)?;
    let mut dictionary = Dictionary::default();
    let mut decoded = DecodedProfile::default();
    PprofDecoder::default().decode(raw, limits, &mut dictionary, &mut decoded)?;
    Ok((Profile { header: decoded.header, samples: decoded.samples, dictionary }, decoded.dropped))
}

#[cfg(test)]
mod tests;
