//! What came in, before anybody has looked into the profile.

use bytes::Bytes;

use crate::labels::Labels;
use crate::pprof;

/// One profile as it was sent, with the labels that rules made of those sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileUpload {
    /// Labels as the client sent them [INV-01].
    pub sent: Labels,
    /// Labels after all rules, with metric and service.
    pub labels: Labels,
    /// The client's own id for this profile, if it gave one.
    pub client_id: Option<String>,
    /// Unix nanoseconds, used where the profile itself says no time [INV-03]; 0 if unknown.
    pub time_nanos: i64,
    /// Like no other's, drawn once where the request came in: it is what tells uploads apart that have neither id nor time
    /// [INV-03], to whichever shard's leader they are sent, and how often.
    pub drawn: u128,
    /// When the request came in, by the clock of who took it, Unix nanoseconds: the time of a profile for which nobody says
    /// one. 0 if unknown; then it is the shard's.
    pub received_nanos: i64,
    /// Whether the client states that addresses are those of the ELF files of mappings. No part of the identity.
    pub has_elf_addresses: bool,
    /// The profile: plain, gzip or zstd.
    pub pprof: Bytes,
}

/// What was left out of an upload that was stored otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedCounts {
    /// Samples that refer to something that is not there.
    pub samples: u64,
    /// Samples with a negative value.
    pub negative: u64,
    /// Lines that refer to a function that is not there.
    pub lines: u64,
    /// References to a mapping that is not there.
    pub mappings: u64,
    /// Samples whose stacks were too deep: they lost their leaves.
    pub deep: u64,
    /// Texts that were too long: they lost their beginning.
    pub long: u64,
    /// Rows of series and of types that rules of the tenant dropped.
    pub by_rules: u64,
    /// Samples whose span or trace is not said in hexadecimal digits: they lost it.
    pub ids: u64,
    /// Samples of flight recordings that have no stack.
    pub without_stack: u64,
}

impl DroppedCounts {
    /// Each kind by its name.
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
