//! Columns of texts and of numbers.

use std::cmp::Ordering;

use super::{CodecError, CodecReader, put_signed_varint, put_varint};

/// Appends texts: their number, the length of each, then all bytes.
pub fn put_texts<'t>(out: &mut Vec<u8>, texts: impl ExactSizeIterator<Item = &'t str> + Clone) {
    put_varint(out, texts.len() as u64);
    texts.clone().for_each(|text| put_varint(out, text.len() as u64));
    texts.for_each(|text| out.extend_from_slice(text.as_bytes()));
}

/// Iterator over texts that [`put_texts`] wrote.
#[derive(Clone, Debug)]
pub struct TextColumnIter<'a> {
    lengths: CodecReader<'a>,
    left: usize,
    rest: &'a str,
}

impl<'a> TextColumnIter<'a> {
    /// Locates the lengths and the bytes of the texts, without an allocation.
    pub(super) fn locate(unpacker: &mut CodecReader<'a>) -> Result<Self, CodecError> {
        let left = unpacker.read_count()?;
        let lengths = *unpacker;
        let wrong = unpacker.error_here("texts longer than the remaining bytes");
        let mut bytes = 0usize;
        for _ in 0..left {
            let length = usize::try_from(unpacker.read_number()?).map_err(|_| wrong)?;
            bytes = bytes.checked_add(length).ok_or(wrong)?;
        }
        let wrong = unpacker.error_here("a text that is not UTF-8");
        let rest = std::str::from_utf8(unpacker.read_slice(bytes)?).map_err(|_| wrong)?;
        Ok(TextColumnIter { lengths, left, rest })
    }

    /// Returns the number of remaining texts.
    pub fn len(&self) -> usize {
        self.left
    }

    /// Returns whether no texts remain.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl<'a> Iterator for TextColumnIter<'a> {
    type Item = Result<&'a str, CodecError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let length = match self.lengths.read_number() {
            Ok(length) => length as usize,
            Err(error) => return Some(Err(error)),
        };
        let Some((text, rest)) = self.rest.split_at_checked(length) else {
            return Some(Err(self.lengths.error_here("a text that ends within a character")));
        };
        self.rest = rest;
        Some(Ok(text))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// Greatest common divisor of a column's numbers. Sums of samples are multiples of one sample's value.
/// Divided by it, a number takes a byte or two instead of five.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnScale(i64);

impl ColumnScale {
    /// Computes the divisor of the numbers and appends it.
    pub fn put(out: &mut Vec<u8>, numbers: impl Iterator<Item = i64>) -> Self {
        let mut common = 0;
        for number in numbers {
            common = greatest_common(common, number.unsigned_abs());
            if common == 1 {
                break;
            }
        }
        // The divisor of only zeros is 0. A divisor of 2^63 does not fit in a signed number.
        let scale = i64::try_from(common).unwrap_or(1).max(1);
        put_varint(out, scale as u64);
        ColumnScale(scale)
    }

    /// Reads the divisor of a column.
    pub fn read(unpacker: &mut CodecReader<'_>) -> Result<Self, CodecError> {
        let wrong = unpacker.error_here("a scale that is not positive");
        match i64::try_from(unpacker.read_number()?).map(|scale| (scale.cmp(&0), scale)) {
            Ok((Ordering::Greater, scale)) => Ok(ColumnScale(scale)),
            _ => Err(wrong),
        }
    }

    /// Appends one number of the column.
    #[inline]
    pub fn put_number(self, out: &mut Vec<u8>, number: i64) {
        put_signed_varint(out, if self.0 == 1 || number == 0 { number } else { number / self.0 });
    }

    /// Reads the next number of the column.
    #[inline]
    pub fn read_number(self, unpacker: &mut CodecReader<'_>) -> Result<i64, CodecError> {
        Ok(unpacker.read_signed()?.wrapping_mul(self.0))
    }
}

fn greatest_common(mut one: u64, mut other: u64) -> u64 {
    while one != 0 {
        (one, other) = (other % one, one);
    }
    other
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(bytes: &[u8]) -> Result<Vec<&str>, CodecError> {
        CodecReader::new(bytes).read_texts()?.collect()
    }

    #[test]
    fn texts_that_do_not_fit_are_refused() {
        // Longer than the bytes, more than the bytes, not UTF-8, and two halves of one character.
        for bad in [&[1u8, 2, b'a'][..], &[3, 0, 0], &[1, 1, 0xff], &[2, 1, 1, 0xc3, 0xa4], &[]] {
            assert!(texts(bad).is_err(), "{bad:?}");
        }
        let endless = [2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 9];
        assert!(texts(&endless).is_err());
    }

    #[test]
    fn what_has_a_period_is_short() {
        let mut out = Vec::new();
        let numbers = [10_000_000, -30_000_000, 0, 40_000_000];
        let scale = ColumnScale::put(&mut out, numbers.into_iter());
        assert_eq!(scale, ColumnScale(10_000_000));
        numbers.into_iter().for_each(|number| scale.put_number(&mut out, number));
        assert_eq!(out.len(), 8);
        assert!(ColumnScale::read(&mut CodecReader::new(&[0])).is_err());
    }

    proptest! {
        #[test]
        fn columns_come_back(
            words in prop::collection::vec("\\PC{0,6}", 0..20),
            numbers in prop::collection::vec(prop_oneof![any::<i64>(), Just(i64::MIN), Just(0)], 0..20),
            period in 1..1_000i64,
        ) {
            let periodic: Vec<i64> = numbers.iter().map(|number| number / 1_000 * period).collect();
            let mut out = Vec::new();
            put_texts(&mut out, words.iter().map(String::as_str));
            for column in [&numbers, &periodic] {
                let scale = ColumnScale::put(&mut out, column.iter().copied());
                column.iter().for_each(|&number| scale.put_number(&mut out, number));
            }
            let mut unpacker = CodecReader::new(&out);
            let read: Result<Vec<&str>, CodecError> = unpacker.read_texts().unwrap().collect();
            prop_assert_eq!(read.unwrap(), words);
            for column in [&numbers, &periodic] {
                let scale = ColumnScale::read(&mut unpacker).unwrap();
                let read: Vec<i64> = column.iter().map(|_| scale.read_number(&mut unpacker).unwrap()).collect();
                prop_assert_eq!(&read, column);
            }
            prop_assert!(unpacker.is_done());
        }
    }
}
