//! One sample, in either layout.

use super::OtlpError;
use super::error::{ATTRIBUTES, BYTES, within};
use super::layout::Layout;
use super::tables::Tables;
use crate::pprof::wire::{Cursor, Value};

/// Attributes of one sample, profile, location or mapping.
const MOST_ATTRIBUTES: usize = 1000;

/// A sample. Its memory is used again for the next one.
pub(super) struct Sample {
    pub(super) stack: u64,
    pub(super) link: u64,
    pub(super) attributes: Vec<u64>,
    /// How many values it has.
    pub(super) values: usize,
    /// What they come to, unless that is over 63 bits.
    pub(super) sum: Option<i64>,
    /// The values, as many as there may be times.
    each: Vec<i64>,
    /// Unix nanoseconds, eight bytes each.
    pub(super) times: Vec<u8>,
    /// The most bytes of times.
    most: usize,
}

impl Sample {
    pub(super) fn new(most: usize) -> Self {
        let (attributes, each, times) = (Vec::new(), Vec::new(), Vec::new());
        Sample { stack: 0, link: 0, attributes, values: 0, sum: Some(0), each, times, most }
    }

    pub(super) fn read(
        &mut self,
        mut sample: Cursor<'_>,
        layout: Layout,
        tables: &Tables<'_>,
    ) -> Result<(), OtlpError> {
        (self.stack, self.link, self.values, self.sum) = (0, 0, 0, Some(0));
        self.attributes.clear();
        self.each.clear();
        self.times.clear();
        while !sample.is_done() {
            let (field, value) = sample.field("a sample")?;
            // Fields of the old layout, by their new numbers.
            let field = match (layout, field) {
                (Layout::Old, 2) => 4,
                (Layout::Old, field @ 3..=4) => field - 1,
                _ => field,
            };
            match (field, value) {
                (1, Value::Varint(index)) => self.stack = index,
                (2, value) => attributes(value, tables, &mut self.attributes)?,
                (3, Value::Varint(index)) => self.link = index,
                (4, Value::Varint(value)) => self.count(value),
                (4, Value::Bytes(start, end)) => {
                    let mut values = tables.cursor(start, end);
                    while !values.is_done() {
                        self.count(values.varint("the values of a sample")?);
                    }
                }
                // A list that ends within a number loses that one.
                (5, Value::Bytes(start, end)) => self.at(tables.bytes(start, end - (end - start) % 8))?,
                (5, Value::Fixed(start, end)) if end - start == 8 => self.at(tables.bytes(start, end))?,
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

    fn at(&mut self, times: &[u8]) -> Result<(), OtlpError> {
        within(BYTES, self.times.len() + times.len(), self.most)?;
        self.times.extend_from_slice(times);
        Ok(())
    }

    /// How many times it has.
    pub(super) fn times(&self) -> usize {
        self.times.len() / 8
    }

    /// Its times, Unix nanoseconds.
    pub(super) fn each_time(&self) -> impl Iterator<Item = u64> + '_ {
        self.times.chunks_exact(8).filter_map(|time| time.first_chunk()).map(|time| u64::from_le_bytes(*time))
    }

    /// The value of the last moment; nothing unless each value has a moment.
    pub(super) fn latest(&self) -> Option<i64> {
        if self.values != self.times() {
            return None;
        }
        let last = self.each_time().zip(&self.each).max_by_key(|(time, _)| *time);
        last.map(|(_, value)| *value)
    }
}

/// Indexes of attributes: packed, or one at a time.
pub(super) fn attributes(value: Value, tables: &Tables<'_>, out: &mut Vec<u64>) -> Result<(), OtlpError> {
    let mut numbers = match value {
        Value::Bytes(start, end) => tables.cursor(start, end),
        Value::Varint(index) => {
            within(ATTRIBUTES, out.len() + 1, MOST_ATTRIBUTES)?;
            out.push(index);
            return Ok(());
        }
        Value::Fixed(..) => return Ok(()),
    };
    while !numbers.is_done() {
        within(ATTRIBUTES, out.len() + 1, MOST_ATTRIBUTES)?;
        out.push(numbers.varint("a list of attributes")?);
    }
    Ok(())
}
