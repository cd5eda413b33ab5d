//! What one series has counted, and what its next profile adds.
//!
//! The values of Go's profiles never fall, stack by stack: for each stack and size of what it allocates one counter
//! grows, and what it is scaled by is fixed. So a value that is less than before, or missing, means that another process
//! counts, from nothing: its profile is stored whole.

use athanor_profile::Dictionary;
use athanor_profile::codec::{CodecError, CodecReader, put_signed_varint, put_varint};
use athanor_profile::hash::{ContentHash, hash_list, vec_memory};

use crate::entry;

/// What a record does to what its series has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeltaOp {
    /// Nothing: its series does not count.
    #[default]
    Nothing,
    /// Its values are all that the series has counted.
    Begins,
    /// Its values come to what the series had counted.
    Adds,
}

impl DeltaOp {
    /// By which it is written.
    pub const fn number(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Begins => 1,
            Self::Adds => 2,
        }
    }

    /// The step of a number.
    pub fn from_number(number: u64, unpacker: &CodecReader<'_>) -> Result<Self, CodecError> {
        let known =
            [Self::Nothing, Self::Begins, Self::Adds].into_iter().find(|step| step.number() == number);
        known.ok_or_else(|| unpacker.error_here("a step of a counter that this version does not know"))
    }
}

/// Values by stack. Stacks go by their content, since their ids end with a generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CumulativeValues {
    /// Ascending, each once.
    stacks: Vec<ContentHash>,
    /// One for each of them; none is 0.
    values: Vec<i64>,
}

/// What a row is counted under: its stack, and its request if it names one.
pub fn row_key((stack, span, trace): (u32, u64, u128), dictionary: &Dictionary) -> ContentHash {
    let stack = dictionary.stacks.hash(stack);
    if span == 0 && trace == 0 { stack } else { hash_list(&[stack, ContentHash::from(span), trace]) }
}

impl CumulativeValues {
    /// Of values in any order. Equal stacks add up.
    pub fn from_values(mut values: Vec<(ContentHash, i64)>) -> Self {
        values.sort_unstable_by_key(|(stack, _)| *stack);
        let mut counted =
            Self { stacks: Vec::with_capacity(values.len()), values: Vec::with_capacity(values.len()) };
        values.into_iter().for_each(|(stack, value)| counted.push(stack, value));
        counted
    }

    /// Puts a stack behind the others, or adds to the last one.
    fn push(&mut self, stack: ContentHash, value: i64) {
        match (self.stacks.last(), self.values.last_mut()) {
            (Some(last), Some(sum)) if *last == stack => *sum = sum.wrapping_add(value),
            _ => {
                self.stacks.push(stack);
                self.values.push(value);
            }
        }
    }

    /// How many stacks there are.
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    /// The value of a stack.
    pub fn value(&self, stack: ContentHash) -> i64 {
        self.stacks.binary_search(&stack).map_or(0, |place| self.values[place])
    }

    fn each(&self) -> impl Iterator<Item = (ContentHash, i64)> + '_ {
        self.stacks.iter().copied().zip(self.values.iter().copied())
    }

    /// Whether a later profile of the same process may say this: no value is less than here.
    pub fn can_precede(&self, later: &Self) -> bool {
        let mut found = later.each().peekable();
        self.each().all(|(stack, value)| {
            while found.next_if(|(other, _)| *other < stack).is_some() {}
            found.next_if(|(other, _)| *other == stack).is_some_and(|(_, now)| now >= value)
        })
    }

    /// With what came since.
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

    /// Bytes that it has taken.
    pub fn memory(&self) -> usize {
        vec_memory(&self.stacks) + vec_memory(&self.values)
    }

    /// Writes the values from a place on, so that they take about so many bytes; says where the next ones begin.
    pub fn write(&self, from: usize, bytes: usize, out: &mut Vec<u8>) -> usize {
        let to = self.len().min(from + (bytes / MAX_VALUE_BYTES).max(1));
        put_varint(out, (to - from) as u64);
        for (stack, value) in self.stacks[from..to].iter().zip(&self.values[from..to]) {
            out.extend_from_slice(&stack.to_le_bytes());
            put_signed_varint(out, *value);
        }
        to
    }

    /// Reads what was written.
    pub fn read(unpacker: &mut CodecReader<'_>) -> Result<Self, CodecError> {
        let values =
            (0..unpacker.read_count()?).map(|_| Ok((entry::read_id(unpacker)?, unpacker.read_signed()?)));
        Ok(Self::from_values(values.collect::<Result<_, CodecError>>()?))
    }
}

/// What a value takes, at most: its stack's hash, and a number.
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
