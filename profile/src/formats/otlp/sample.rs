//! Sample of a profile, in either layout.

use super::OtlpError;
use super::error::{ATTRIBUTES_LIMIT_NAME, PROFILE_BYTES_LIMIT_NAME, check_limit};
use super::layout::SampleLayout;
use super::tables::OtlpDictionary;
use crate::formats::pprof::wire::{WireCursor, WireValue};

/// Maximum number of attributes of one sample, profile, location or mapping.
const MAX_ATTRIBUTES_PER_ENTRY: usize = 1000;

/// Sample as read. The next sample reuses its memory.
pub(super) struct OtlpSample {
    pub(super) stack: u64,
    pub(super) link: u64,
    pub(super) attributes: Vec<u64>,
    /// Number of values in the sample.
    pub(super) values: usize,
    /// Sum of the values, or `None` if it is over 63 bits.
    pub(super) sum: Option<i64>,
    /// Values, as many as there may be timestamps.
    each: Vec<i64>,
    /// Timestamps in Unix nanoseconds, eight bytes each.
    pub(super) times: Vec<u8>,
    /// Maximum bytes of timestamps.
    most: usize,
}

impl OtlpSample {
    pub(super) fn new(most: usize) -> Self {
        let attributes = Vec::new();
        let each = Vec::new();
        let times = Vec::new();
        OtlpSample { stack: 0, link: 0, attributes, values: 0, sum: Some(0), each, times, most }
    }

    pub(super) fn read(
        &mut self,
        mut sample: WireCursor<'_>,
        layout: SampleLayout,
        tables: &OtlpDictionary<'_>,
    ) -> Result<(), OtlpError> {
        (self.stack, self.link, self.values, self.sum) = (0, 0, 0, Some(0));
        self.attributes.clear();
        self.each.clear();
        self.times.clear();
        while !sample.is_done() {
            let (field, value) = sample.field("a sample")?;
            // Fields of the old layout, mapped to their new numbers.
            let field = match (layout, field) {
                (SampleLayout::Old, 2) => 4,
                (SampleLayout::Old, field @ 3..=4) => field - 1,
                _ => field,
            };
            match (field, value) {
                (1, WireValue::Varint(index)) => self.stack = index,
                (2, value) => attributes(value, tables, &mut self.attributes)?,
                (3, WireValue::Varint(index)) => self.link = index,
                (4, WireValue::Varint(value)) => self.count(value),
                (4, WireValue::Bytes(start, end)) => {
                    let mut values = tables.cursor(start, end);
                    while !values.is_done() {
                        self.count(values.varint("the values of a sample")?);
                    }
                }
                // A list that ends within a number loses that number.
                (5, WireValue::Bytes(start, end)) => {
                    self.add_times(tables.bytes(start, end - (end - start) % 8))?
                }
                (5, WireValue::Fixed(start, end)) if end - start == 8 => {
                    self.add_times(tables.bytes(start, end))?
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn count(&mut self, value: u64) {
        self.values += 1;
        if self.each.len() < self.most / 8 {
            self.each.push(value as i64);
        }
        self.sum = self.sum.and_then(|sum| sum.checked_add(value as i64));
    }

    fn add_times(&mut self, times: &[u8]) -> Result<(), OtlpError> {
        check_limit(PROFILE_BYTES_LIMIT_NAME, self.times.len() + times.len(), self.most)?;
        self.times.extend_from_slice(times);
        Ok(())
    }

    /// Returns the number of timestamps.
    pub(super) fn times(&self) -> usize {
        self.times.len() / 8
    }

    /// Returns the timestamps in Unix nanoseconds.
    pub(super) fn each_time(&self) -> impl Iterator<Item = u64> + '_ {
        self.times.chunks_exact(8).filter_map(|time| time.first_chunk()).map(|time| u64::from_le_bytes(*time))
    }

    /// Returns the value with the latest timestamp, or `None` unless each value has a timestamp.
    pub(super) fn latest(&self) -> Option<i64> {
        if self.values != self.times() {
            return None;
        }
        let last = self.each_time().zip(&self.each).max_by_key(|(time, _)| *time);
        last.map(|(_, value)| *value)
    }
}

/// Reads indexes of attributes, packed or one at a time.
pub(super) fn attributes(
    value: WireValue,
    tables: &OtlpDictionary<'_>,
    out: &mut Vec<u64>,
) -> Result<(), OtlpError> {
    let mut numbers = match value {
        WireValue::Bytes(start, end) => tables.cursor(start, end),
        WireValue::Varint(index) => {
            check_limit(ATTRIBUTES_LIMIT_NAME, out.len() + 1, MAX_ATTRIBUTES_PER_ENTRY)?;
            out.push(index);
            return Ok(());
        }
        WireValue::Fixed(..) => return Ok(()),
    };
    while !numbers.is_done() {
        check_limit(ATTRIBUTES_LIMIT_NAME, out.len() + 1, MAX_ATTRIBUTES_PER_ENTRY)?;
        out.push(numbers.varint("a list of attributes")?);
    }
    Ok(())
}
