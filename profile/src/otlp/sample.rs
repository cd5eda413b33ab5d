//! One sample, in either layout.

use super::OtlpError;
use super::error::{ATTRIBUTES, BYTES, within};
use super::layout::Layout;
use super::tables::Tables;
use crate::pprof::wire::{Cursor, Value};

/// Attributes of one sample, profile or mapping.
const MOST_ATTRIBUTES: usize = 1000;

/// A sample. Its memory is used again for the next one.
pub(super) struct Sample {
    pub(super) stack: u64,
    pub(super) link: u64,
    pub(super) attributes: Vec<u64>,
    /// How many values it has.
    pub(super) values: usize,
    /// What they come to.
    pub(super) sum: i64,
    /// Unix nanoseconds, eight bytes each.
    pub(super) times: Vec<u8>,
    /// The most bytes of times.
    most: usize,
}

impl Sample {
    pub(super) fn new(most: usize) -> Self {
        Sample { stack: 0, link: 0, attributes: Vec::new(), values: 0, sum: 0, times: Vec::new(), most }
    }

    pub(super) fn read(
        &mut self,
        mut sample: Cursor<'_>,
        layout: Layout,
        tables: &Tables<'_>,
    ) -> Result<(), OtlpError> {
        (self.stack, self.link, self.values, self.sum) = (0, 0, 0, 0);
        self.attributes.clear();
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
        self.sum = self.sum.wrapping_add(value as i64);
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
