//! Detector of the two sample layouts, which differ only in the wire types of their fields.
//!
//! Since 1.10, attributes are field 2, the link 3 and values 4. Before, values were 2, attributes 3 and the
//! link 4. Lists are bytes on the wire and the link is a number, so fields 3 and 4 identify the layout. If no
//! sample of a request has either field, the detector reads field 2: as attributes, it must refer to entries,
//! and the sample must have timestamps.

use super::OtlpError;
use super::tables::{OtlpDictionary, OtlpTable};
use crate::formats::pprof::wire::{WireCursor, WireValue};

/// Assignment of field numbers in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SampleLayout {
    /// Layout of 1.10 and later.
    New,
    /// Layout of 1.8 and 1.9.
    Old,
}

/// Detector of a request's layout.
pub(super) struct SampleLayoutDetector<'t, 'a> {
    tables: &'t OtlpDictionary<'a>,
    /// In at least one sample, field 2 cannot be attributes.
    are_values: bool,
}

impl<'t, 'a> SampleLayoutDetector<'t, 'a> {
    pub(super) fn new(tables: &'t OtlpDictionary<'a>) -> Self {
        SampleLayoutDetector { tables, are_values: false }
    }

    /// Returns the layout if this sample alone identifies it.
    pub(super) fn inspect_sample(
        &mut self,
        mut sample: WireCursor<'a>,
    ) -> Result<Option<SampleLayout>, OtlpError> {
        let mut second = None;
        let mut has_times = false;
        while !sample.is_done() {
            match sample.field("a sample")? {
                (3, WireValue::Bytes(..)) | (4, WireValue::Varint(_)) => return Ok(Some(SampleLayout::Old)),
                (3, WireValue::Varint(_)) | (4, WireValue::Bytes(..)) => return Ok(Some(SampleLayout::New)),
                (2, WireValue::Bytes(start, end)) => second = Some((start, end)),
                (5, _) => has_times = true,
                _ => {}
            }
        }
        let Some((start, end)) = second.filter(|_| !self.are_values) else { return Ok(None) };
        let mut numbers = self.tables.cursor(start, end);
        let attributes = self.tables.len(OtlpTable::Attributes) as u64;
        self.are_values = !has_times;
        while !self.are_values && !numbers.is_done() {
            self.are_values = numbers.varint("a sample")? >= attributes;
        }
        Ok(None)
    }

    /// Returns the layout after all samples, if no single one identified it.
    pub(super) fn conclude(self) -> SampleLayout {
        if self.are_values { SampleLayout::Old } else { SampleLayout::New }
    }
}
