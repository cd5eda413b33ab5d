//! Reader of a profile in two steps: the first needs no dictionary, the second does.
//!
//! The first step is nearly all of the work, and many profiles may run it in parallel. The second step looks
//! up the stacks and needs the dictionary. It only copies names that are new.

use std::borrow::Cow;

use bytes::Bytes;

use super::decode::{DecodedProfile, PprofDecoder};
use super::inflate::{Inflater, is_compressed};
use super::{DecodeError, DecodeLimits, SenderInfo};
use crate::data_model::model::Dictionary;
use crate::encoding::hash::vec_memory;
use crate::labeling::normalize::{has_go_shapes, is_built_by_go, strip_go_shapes};

/// Decoded profile with its buffers, which the next profile reuses.
#[derive(Default)]
pub struct PprofReader {
    inflater: Inflater,
    decoder: PprofDecoder,
    decoded: DecodedProfile,
    labels: Dictionary,
    sent: Bytes,
    length: usize,
    /// Plain bytes with changed names, if names had to be changed.
    changed: Option<Vec<u8>>,
    limits: DecodeLimits,
}

impl PprofReader {
    /// Reads like [`read_from`](Self::read_from), for a sender with no known properties.
    pub fn read(&mut self, sent: &Bytes, limits: &DecodeLimits) -> Result<usize, DecodeError> {
        self.read_from(SenderInfo::default(), sent, limits)
    }
    /// Decompresses and decodes a profile, and returns its plain length. In a Go profile, names lose the
    /// shapes of generic functions. Rows hold stack numbers of the file.
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
    /// Restores the roots that Go truncated, as far as other stacks show them. Returns the number of restored
    /// stacks. The content hash stays that of the profile as sent.
    pub fn repair_roots(&mut self) -> Result<usize, DecodeError> {
        let raw = plain(&self.inflater, &self.sent, self.length, self.changed.as_deref());
        self.decoder.repair_roots(raw, &self.limits)
    }
    /// Replaces the stack numbers in the rows with ids of the dictionary, and adds new stacks to it.
    pub fn resolve_stacks(&mut self, dictionary: &mut Dictionary) -> Result<(), DecodeError> {
        let raw = plain(&self.inflater, &self.sent, self.length, self.changed.as_deref());
        self.decoder.resolve_stacks(raw, &self.limits, dictionary, &mut self.decoded)
    }
    /// Returns the decoded profile.
    pub fn decoded(&self) -> &DecodedProfile {
        &self.decoded
    }
    /// Returns the dictionary of the rows' label sets.
    pub fn labels(&self) -> &Dictionary {
        &self.labels
    }
    /// Returns the allocated bytes, including those of the profile as sent.
    pub fn memory(&self) -> usize {
        let plain = self.inflater.memory() + self.changed.as_ref().map_or(0, vec_memory);
        let read = self.decoder.memory() + self.decoded.samples.memory() + self.labels.memory();
        self.sent.len() + plain + read
    }
    /// Drops the profile and keeps memory for the next one. If that memory is more than `most`, it is freed
    /// too.
    pub fn release(&mut self, most: usize) {
        self.sent = Bytes::new();
        self.changed = None;
        if self.memory() > most {
            *self = PprofReader::default();
        }
    }
}

/// Returns the bytes that were decoded.
fn plain<'a>(inflater: &'a Inflater, sent: &'a Bytes, length: usize, changed: Option<&'a [u8]>) -> &'a [u8] {
    match changed {
        Some(changed) => changed,
        None if is_compressed(sent) => inflater.inflated(length),
        None => sent,
    }
}
