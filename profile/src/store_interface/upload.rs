//! Upload as received, before the profile is decoded.

use bytes::Bytes;

use crate::data_model::labels::Labels;
use crate::formats::pprof;

/// Profile as sent, with the labels after relabeling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileUpload {
    /// Labels as the client sent them [INV-01].
    pub sent: Labels,
    /// Labels after all rules, with metric and service.
    pub labels: Labels,
    /// Id that the client gave this profile, if any.
    pub client_id: Option<String>,
    /// Unix nanoseconds, used if the profile itself states no time [INV-03]; 0 if unknown.
    pub time_nanos: i64,
    /// Random id, drawn once by the distributor. It distinguishes uploads that have neither id nor time
    /// [INV-03], on every shard leader that they are sent to and on every retry.
    pub drawn: u128,
    /// Receive time of the request by the distributor's clock, Unix nanoseconds. It is the time of a profile
    /// if neither profile nor request states one. 0 if unknown; then the shard's clock is used.
    pub received_nanos: i64,
    /// Set if the client states that addresses are those of the ELF files. Not part of the identity.
    pub has_elf_addresses: bool,
    /// Profile bytes: plain, gzip or zstd.
    pub pprof: Bytes,
}

/// Counts of parts that were dropped from a stored upload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedCounts {
    /// Samples with a dangling reference.
    pub samples: u64,
    /// Samples with a negative value.
    pub negative: u64,
    /// Lines that refer to a missing function.
    pub lines: u64,
    /// References to a missing mapping.
    pub mappings: u64,
    /// Samples with too deep stacks, which lost their leaves.
    pub deep: u64,
    /// Texts that were too long and lost their beginning.
    pub long: u64,
    /// Rows of series and types that rules of the tenant dropped.
    pub by_rules: u64,
    /// Samples with a span or trace id that is not hexadecimal, which lost it.
    pub ids: u64,
    /// Samples of flight recordings without a stack.
    pub without_stack: u64,
}

impl DroppedCounts {
    /// Returns the counts with the name of each kind.
    pub fn counts(&self) -> [(&'static str, u64); 9] {
        [
            ("dangling_samples", self.samples),
            ("negative_samples", self.negative),
            ("dangling_lines", self.lines),
            ("dangling_mappings", self.mappings),
            ("deep_stacks", self.deep),
            ("long_texts", self.long),
            ("dropped_by_relabel_rules", self.by_rules),
            ("malformed_ids", self.ids),
            ("samples_without_stack", self.without_stack),
        ]
    }
}

impl std::ops::AddAssign for DroppedCounts {
    fn add_assign(&mut self, other: Self) {
        self.samples += other.samples;
        self.negative += other.negative;
        self.lines += other.lines;
        self.mappings += other.mappings;
        self.deep += other.deep;
        self.long += other.long;
        self.by_rules += other.by_rules;
        self.ids += other.ids;
        self.without_stack += other.without_stack;
    }
}

impl From<pprof::DecodeDropCounts> for DroppedCounts {
    fn from(dropped: pprof::DecodeDropCounts) -> Self {
        let pprof::DecodeDropCounts { samples, lines, mappings, deep, long } = dropped;
        let [samples, lines, mappings, deep, long] =
            [samples, lines, mappings, deep, long].map(|count| count as u64);
        DroppedCounts { samples, lines, mappings, deep, long, ..DroppedCounts::default() }
    }
}
