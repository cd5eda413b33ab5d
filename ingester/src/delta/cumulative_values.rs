//! Values of one cumulative series, and the increase by its next profile.
//!
//! The values of Go's profiles never fall, stack by stack: for each stack and allocation size one counter
//! grows, and its scale is fixed. So a lower or missing value means that another process counts from zero:
//! its profile is stored whole.

use athanor_profile::Dictionary;
use athanor_profile::encoding::codec::{CodecError, CodecReader, put_signed_varint, put_varint};
use athanor_profile::encoding::hash::{ContentHash, hash_list, vec_memory};

use crate::log::entry;

/// Effect of a record on the values of its series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeltaOp {
    /// No effect: the series is not cumulative.
    #[default]
    None,
    /// The record has all values of the series.
    Reset,
    /// The record adds to the values of the series.
    Add,
}

impl DeltaOp {
    /// Returns the encoded number of the operation.
    pub const fn number(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Reset => 1,
            Self::Add => 2,
        }
    }

    /// Decodes an operation from its number.
    pub fn from_number(number: u64, unpacker: &CodecReader<'_>) -> Result<Self, CodecError> {
        let known = [Self::None, Self::Reset, Self::Add].into_iter().find(|known| known.number() == number);
        known.ok_or_else(|| {
            unpacker.error_here("unknown delta operation, which another version may have written")
        })
    }
}

/// Values by stack. Stacks are keyed by content, since their ids end with a generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CumulativeValues {
    /// Stack keys, ascending, each once.
    stacks: Vec<ContentHash>,
    /// Values of these stacks; none is 0.
    values: Vec<i64>,
}

/// Returns the key of a row: its stack and, if it names a request, its span and trace.
pub fn row_key(stack: u32, span: u64, trace: u128, dictionary: &Dictionary) -> ContentHash {
    let stack = dictionary.stacks.hash(stack);
    if span == 0 && trace == 0 { stack } else { hash_list(&[stack, ContentHash::from(span), trace]) }
}

impl CumulativeValues {
    /// Creates the sum of values in any order. Equal stacks add up.
    pub fn from_values(mut values: Vec<(ContentHash, i64)>) -> Self {
        values.sort_unstable_by_key(|(stack, _)| *stack);
        let mut counted =
            Self { stacks: Vec::with_capacity(values.len()), values: Vec::with_capacity(values.len()) };
        values.into_iter().for_each(|(stack, value)| counted.push(stack, value));
        counted
    }

    /// Appends a stack, or adds to the last one if it is equal.
    fn push(&mut self, stack: ContentHash, value: i64) {
        match (self.stacks.last(), self.values.last_mut()) {
            (Some(last), Some(sum)) if *last == stack => *sum = sum.wrapping_add(value),
            _ => {
                self.stacks.push(stack);
                self.values.push(value);
            }
        }
    }

    /// Returns the number of stacks.
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Returns the value of a stack; 0 if absent.
    pub fn value(&self, stack: ContentHash) -> i64 {
        self.stacks.binary_search(&stack).map_or(0, |place| self.values[place])
    }

    fn each(&self) -> impl Iterator<Item = (ContentHash, i64)> + '_ {
        self.stacks.iter().copied().zip(self.values.iter().copied())
    }

    /// Returns whether `later` may be of the same process: it has each stack of this one, with no lower
    /// value.
    pub fn can_precede(&self, later: &Self) -> bool {
        let mut found = later.each().peekable();
        self.each().all(|(stack, value)| {
            while found.next_if(|(other, _)| *other < stack).is_some() {}
            found.next_if(|(other, _)| *other == stack).is_some_and(|(_, now)| now >= value)
        })
    }

    /// Returns the sum with values that came since.
    pub fn sum_with(&self, more: &Self) -> Self {
        let most = self.len() + more.len();
        let mut sum = Self { stacks: Vec::with_capacity(most), values: Vec::with_capacity(most) };
        let mut ours = self.each().peekable();
        for (stack, value) in more.each() {
            while let Some((before, value)) = ours.next_if(|(other, _)| *other <= stack) {
                sum.push(before, value);
            }
            sum.push(stack, value);
        }
        ours.for_each(|(stack, value)| sum.push(stack, value));
        sum.stacks.shrink_to_fit();
        sum.values.shrink_to_fit();
        sum
    }

    /// Returns the bytes of memory that it has allocated.
    pub fn memory(&self) -> usize {
        vec_memory(&self.stacks) + vec_memory(&self.values)
    }

    /// Encodes the values from a place on, in about `bytes` bytes. Returns the place of the next ones.
    pub fn write(&self, from: usize, bytes: usize, out: &mut Vec<u8>) -> usize {
        let to = self.len().min(from + (bytes / MAX_VALUE_BYTES).max(1));
        put_varint(out, (to - from) as u64);
        for (stack, value) in self.stacks[from..to].iter().zip(&self.values[from..to]) {
            out.extend_from_slice(&stack.to_le_bytes());
            put_signed_varint(out, *value);
        }
        to
    }

    /// Decodes the bytes of [`CumulativeValues::write`].
    pub fn read(unpacker: &mut CodecReader<'_>) -> Result<Self, CodecError> {
        let values =
            (0..unpacker.read_count()?).map(|_| Ok((entry::read_id(unpacker)?, unpacker.read_signed()?)));
        Ok(Self::from_values(values.collect::<Result<_, CodecError>>()?))
    }
}

/// Maximum bytes of an encoded value: its stack's hash, and a number.
const MAX_VALUE_BYTES: usize = 16 + 10;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn counted(values: &[(u8, i64)]) -> CumulativeValues {
        CumulativeValues::from_values(
            values.iter().map(|&(stack, value)| (ContentHash::from(stack), value)).collect(),
        )
    }

    fn map(counted: &CumulativeValues) -> BTreeMap<ContentHash, i64> {
        counted.each().collect()
    }

    #[test]
    fn a_value_that_falls_or_is_gone_is_of_another_process() {
        let before = counted(&[(1, 5), (3, 7)]);
        for (later, may) in [
            (&[(1, 5), (3, 7)][..], true),
            (&[(1, 6), (2, 1), (3, 7), (4, 1)], true),
            (&[(1, 5), (3, 6)], false),
            (&[(1, 5)], false),
            (&[(2, 100), (3, 7)], false),
            (&[], false),
        ] {
            assert_eq!(before.can_precede(&counted(later)), may, "{later:?}");
        }
        assert!(CumulativeValues::default().can_precede(&before));
    }

    proptest! {
        #[test]
        fn sums_are_those_of_each_stack(
            one in prop::collection::vec((0u8..20, 1i64..100), 0..20),
            other in prop::collection::vec((0u8..20, 1i64..100), 0..20),
        ) {
            let sum = counted(&one).sum_with(&counted(&other));
            let mut expected = BTreeMap::new();
            for (stack, value) in one.iter().chain(&other) {
                *expected.entry(ContentHash::from(*stack)).or_default() += *value;
            }
            prop_assert_eq!(map(&sum), expected);
            prop_assert!(counted(&one).can_precede(&sum));
            prop_assert!(other.is_empty() || !sum.can_precede(&counted(&one)));
        }

        #[test]
        fn what_was_written_in_pieces_reads_back(
            values in prop::collection::vec((0u8..50, any::<i64>()), 0..50),
            bytes in 0usize..200,
        ) {
            let counted = counted(&values);
            let (mut from, mut read) = (0, CumulativeValues::default());
            loop {
                let mut out = Vec::new();
                from = counted.write(from, bytes, &mut out);
                read = read.sum_with(&CumulativeValues::read(&mut CodecReader::new(&out)).unwrap());
                if from == counted.len() {
                    break;
                }
            }
            prop_assert_eq!(read, counted);
        }

        #[test]
        fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = CumulativeValues::read(&mut CodecReader::new(&bytes));
        }
    }
}
