//! Two layouts of samples, which nothing but the kinds of their fields tells apart.
//!
//! Since 1.10 attributes are field 2, the link 3 and values 4; before, values were 2, attributes 3 and the link 4. Lists
//! are bytes on the wire and the link is a number, so fields 3 and 4 say which it is. Where no sample of a request has
//! either, field 2 is looked at: as attributes it must name entries, and there must be timestamps to count.

use super::OtlpError;
use super::tables::{OtlpDictionary, OtlpTable};
use crate::pprof::wire::{WireCursor, WireValue};

/// Where a sample has what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SampleLayout {
    /// 1.10 and later.
    New,
    /// 1.8 and 1.9.
    Old,
}

/// Looks for what tells the layouts apart.
pub(super) struct SampleLayoutDetector<'t, 'a> {
    tables: &'t OtlpDictionary<'a>,
    /// Field 2 cannot be attributes.
    are_values: bool,
}

impl<'t, 'a> SampleLayoutDetector<'t, 'a> {
    pub(super) fn new(tables: &'t OtlpDictionary<'a>) -> Self {
        SampleLayoutDetector { tables, are_values: false }
    }

    /// What one sample says.
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

    /// What all samples together say, if no single one did.
    pub(super) fn conclude(self) -> SampleLayout {
        if self.are_values { SampleLayout::Old } else { SampleLayout::New }
    }
}
