//! One profile in two steps: what needs no dictionary, and what does.
//!
//! Nearly all of the work is the first step, and many profiles may do it at once. The second looks the stacks up, so it
//! holds the dictionary; only names that are new to it are copied.

use std::borrow::Cow;

use bytes::Bytes;

use super::decode::{DecodedProfile, PprofDecoder};
use super::inflate::{Inflater, is_compressed};
use super::{DecodeError, DecodeLimits};
use crate::hash::vec_memory;
use crate::model::Dictionary;
use crate::normalize::{has_go_shapes, is_built_by_go, strip_go_shapes};

/// What is known of the sender of a profile, beside the profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderInfo {
    /// Whether the sender profiles programs written in Go, if that is stated.
    pub is_go: Option<bool>,
    /// The sender states that all addresses are those of the ELF files of their mappings.
    pub has_elf_addresses: bool,
}

/// A profile that was walked. Its memory is used again for the next one.
#[derive(Default)]
pub struct PprofReader {
    inflater: Inflater,
    decoder: PprofDecoder,
    decoded: DecodedProfile,
    labels: Dictionary,
    sent: Bytes,
    length: usize,
    /// The plain bytes where names had to be changed in them.
    changed: Option<Vec<u8>>,
    limits: DecodeLimits,
}

impl PprofReader {
    /// As [`read_from`](Self::read_from), of a sender of which nothing is known.
    pub fn read(&mut self, sent: &Bytes, limits: &DecodeLimits) -> Result<usize, DecodeError> {
        self.read_from(SenderInfo::default(), sent, limits)
    }
    /// Decompresses and walks a profile, and returns its plain length. If it is one of Go, names lose the shapes of generic
    /// functions. Its rows name stacks by their number in the file.
    pub fn read_from(
        &mut self,
        sender: SenderInfo,
        sent: &Bytes,
        limits: &DecodeLimits,
    ) -> Result<usize, DecodeError> {
        let raw = self.inflater.inflate(sent, limits.bytes)?;
        self.length = raw.len();
        let is_generic = has_go_shapes(raw);
        let is_go = match sender.is_go {
            Some(is_go) => is_generic && is_go,
            None => is_generic && is_built_by_go(raw, limits)?,
        };
        let named = if is_go { strip_go_shapes(raw)? } else { Cow::Borrowed(raw) };
        (self.decoder.keeps_shapes, self.decoder.sender) = (is_generic && !is_go, sender);
        self.sent = sent.clone();
        self.limits = *limits;
        self.labels.label_sets = Default::default();
        self.labels.symbols = Default::default();
        self.decoder.walk(&named, limits, &mut self.labels, &mut self.decoded)?;
        self.changed = match named {
            Cow::Borrowed(_) => None,
            Cow::Owned(changed) => Some(changed),
        };
        Ok(self.length)
    }
    /// Puts above stacks the roots that Go has cut off, as far as others tell them; says how many stacks these are. What the
    /// profile's content is stays what was sent.
    pub fn repair_roots(&mut self) -> Result<usize, DecodeError> {
        let raw = plain(&self.inflater, &self.sent, self.length, self.changed.as_deref());
        self.decoder.repair_roots(raw, &self.limits)
    }
    /// Has the rows name stacks of a dictionary, which learns those that it does not know.
    pub fn resolve_stacks(&mut self, dictionary: &mut Dictionary) -> Result<(), DecodeError> {
        let raw = plain(&self.inflater, &self.sent, self.length, self.changed.as_deref());
        self.decoder.resolve_stacks(raw, &self.limits, dictionary, &mut self.decoded)
    }
    /// What the walk gave.
    pub fn decoded(&self) -> &DecodedProfile {
        &self.decoded
    }
    /// What the label sets of its rows mean.
    pub fn labels(&self) -> &Dictionary {
        &self.labels
    }
    /// Bytes that it has taken, those of the profile as it was sent among them.
    pub fn memory(&self) -> usize {
        let plain = self.inflater.memory() + self.changed.as_ref().map_or(0, vec_memory);
        let read = self.decoder.memory() + self.decoded.samples.memory() + self.labels.memory();
        self.sent.len() + plain + read
    }
    /// Lets go of the profile, so that only memory for the next one is held; of that, too, if it is more than `most`.
    pub fn release(&mut self, most: usize) {
        self.sent = Bytes::new();
        self.changed = None;
        if self.memory() > most {
            *self = PprofReader::default();
        }
    }
}

/// The bytes that were walked.
fn plain<'a>(inflater: &'a Inflater, sent: &'a Bytes, length: usize, changed: Option<&'a [u8]>) -> &'a [u8] {
    match changed {
        Some(changed) => changed,
        None if is_compressed(sent) => inflater.inflated(length),
        None => sent,
    }
}
