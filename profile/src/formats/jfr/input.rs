//! Bounds-checked decoding of numbers and texts of a chunk.

use std::borrow::Cow;

use super::{JfrError, check_limit};

/// Encoding of a text, given by its first byte.
const ABSENT_TEXT: u8 = 0;
const EMPTY_TEXT: u8 = 1;
const CONSTANT_TEXT: u8 = 2;
const UTF8_TEXT: u8 = 3;
const CHARACTERS_TEXT: u8 = 4;
const LATIN1_TEXT: u8 = 5;

/// Limit on the length of a text, in bytes or characters. Names in a JVM have at most 65535 bytes.
pub(super) const MAX_TEXT_LENGTH: usize = 1 << 16;

/// Cursor over the bytes of a chunk.
#[derive(Clone, Copy)]
pub(super) struct ChunkCursor<'a> {
    /// Bytes of the chunk, up to the read limit.
    bytes: &'a [u8],
    at: usize,
    /// Set if numbers have a variable length.
    compressed: bool,
}

/// Text as it is encoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EncodedText<'a> {
    Plain(Cow<'a, str>),
    /// Id of a constant in the pool of texts.
    Constant(u64),
}

impl<'a> ChunkCursor<'a> {
    pub(super) fn new(bytes: &'a [u8], compressed: bool) -> Self {
        ChunkCursor { bytes, at: 0, compressed }
    }
    /// Returns a cursor at another position of the same chunk.
    pub(super) fn at_position(self, at: usize) -> Self {
        ChunkCursor { at, ..self }
    }
    /// Returns a cursor at the same position that cannot read beyond `end`.
    pub(super) fn limited_to(self, end: usize) -> Self {
        ChunkCursor { bytes: &self.bytes[..end.min(self.bytes.len())], ..self }
    }
    pub(super) fn position(&self) -> usize {
        self.at
    }
    pub(super) fn remaining_bytes(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    #[inline(always)]
    pub(super) fn read_byte(&mut self) -> Result<u8, JfrError> {
        let byte = *self.bytes.get(self.at).ok_or(JfrError::Truncated { at: self.bytes.len() })?;
        self.at += 1;
        Ok(byte)
    }
    pub(super) fn skip(&mut self, count: usize) -> Result<(), JfrError> {
        self.read_slice(count).map(|_| ())
    }
    fn read_slice(&mut self, count: usize) -> Result<&'a [u8], JfrError> {
        let cut_off = JfrError::Truncated { at: self.bytes.len() };
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..count)).ok_or(cut_off)?;
        self.at += count;
        Ok(taken)
    }

    /// Reads a number. `width` is its length in bytes in an uncompressed chunk.
    #[inline(always)]
    pub(super) fn read_number(&mut self, width: u8) -> Result<u64, JfrError> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 && self.compressed => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.read_long_number(width),
        }
    }

    /// Skips `count` times `each` numbers; each group has `bytes` bytes in an uncompressed chunk. The loop
    /// handles eight bytes at once. A byte without its highest bit ends a number.
    pub(super) fn skip_numbers(&mut self, count: usize, each: usize, bytes: usize) -> Result<(), JfrError> {
        if !self.compressed {
            return self.skip(count * bytes);
        }
        let mut left = count * each;
        while left > 0 {
            let eight = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk);
            let ends = eight.map_or(0, |&eight| !u64::from_le_bytes(eight) & 0x8080_8080_8080_8080);
            let ended = ends.count_ones() as usize;
            // The next number is longer than eight bytes, the list ends within them, or fewer bytes remain.
            if ended == 0 || ended > left {
                self.read_long()?;
                left -= 1;
            } else {
                self.at += 8 - ends.leading_zeros() as usize / 8;
                left -= ended;
            }
        }
        Ok(())
    }

    /// Reads a number of several bytes. Each byte has seven bits, lowest first, except the ninth, which has
    /// eight.
    fn read_long_number(&mut self, width: u8) -> Result<u64, JfrError> {
        if !self.compressed {
            let bytes = self.read_slice(usize::from(width))?;
            return Ok(bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)));
        }
        let mut value = 0;
        for shift in (0..56).step_by(7) {
            let byte = self.read_byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Ok(value | u64::from(self.read_byte()?) << 56)
    }
    pub(super) fn read_int(&mut self) -> Result<usize, JfrError> {
        Ok(self.read_number(4)? as u32 as usize)
    }
    pub(super) fn read_long(&mut self) -> Result<u64, JfrError> {
        self.read_number(8)
    }

    /// Reads a text; a missing text becomes the empty text.
    pub(super) fn read_text(&mut self) -> Result<EncodedText<'a>, JfrError> {
        Ok(self.read_short_text(MAX_TEXT_LENGTH)?.unwrap_or(EncodedText::Plain(Cow::Borrowed(""))))
    }

    /// Reads a text; returns `None` if it has more bytes or characters than `most`.
    pub(super) fn read_short_text(&mut self, most: usize) -> Result<Option<EncodedText<'a>>, JfrError> {
        let start = self.at;
        let encoding = self.read_byte()?;
        let length = match encoding {
            UTF8_TEXT | CHARACTERS_TEXT | LATIN1_TEXT => self.read_length()?,
            _ => 0,
        };
        if length > most {
            return Ok(None);
        }
        Ok(Some(EncodedText::Plain(match encoding {
            ABSENT_TEXT | EMPTY_TEXT => Cow::Borrowed(""),
            CONSTANT_TEXT => return Ok(Some(EncodedText::Constant(self.read_long()?))),
            UTF8_TEXT => String::from_utf8_lossy(self.read_slice(length)?),
            CHARACTERS_TEXT => {
                // A character takes at least one byte, so the remaining bytes bound the capacity.
                let mut units = Vec::with_capacity(length.min(self.remaining_bytes()));
                for _ in 0..length {
                    units.push(self.read_number(2)? as u16);
                }
                Cow::Owned(String::from_utf16_lossy(&units))
            }
            LATIN1_TEXT => {
                Cow::Owned(self.read_slice(length)?.iter().map(|&byte| char::from(byte)).collect())
            }
            _ => return Err(JfrError::Malformed { at: start, why: "a text of unknown encoding" }),
        })))
    }

    fn read_length(&mut self) -> Result<usize, JfrError> {
        let seen = self.read_int()?;
        check_limit("characters in one text", seen, MAX_TEXT_LENGTH).map(|()| seen)
    }

    /// Skips a text without decoding it.
    pub(super) fn skip_text(&mut self) -> Result<(), JfrError> {
        let start = self.at;
        match self.read_byte()? {
            ABSENT_TEXT | EMPTY_TEXT => Ok(()),
            CONSTANT_TEXT => self.read_long().map(|_| ()),
            UTF8_TEXT | LATIN1_TEXT => {
                let length = self.read_int()?;
                self.skip(length)
            }
            CHARACTERS_TEXT => {
                for _ in 0..self.read_int()? {
                    self.read_number(2)?;
                }
                Ok(())
            }
            _ => Err(JfrError::Malformed { at: start, why: "a text of unknown encoding" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Result<EncodedText<'_>, JfrError> {
        Ok(EncodedText::Plain(Cow::Borrowed(text)))
    }

    #[test]
    fn numbers_are_read_in_both_ways_of_writing_them() {
        for (bytes, expected) in [
            (&[0x00][..], 0),
            (&[0x7f], 127),
            (&[0x80, 0x01], 128),
            (&[0xff; 9], u64::MAX),
            (&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80], 1 << 63),
        ] {
            let mut input = ChunkCursor::new(bytes, true);
            assert_eq!((input.read_long(), input.remaining_bytes()), (Ok(expected), 0), "{bytes:?}");
            for cut in 0..bytes.len() {
                assert_eq!(
                    ChunkCursor::new(&bytes[..cut], true).read_long(),
                    Err(JfrError::Truncated { at: cut })
                );
            }
        }
        let mut input = ChunkCursor::new(&[0, 0, 1, 2, 0x80, 0, 0, 0, 0, 0, 0, 1], false);
        assert_eq!((input.read_int(), input.read_long()), (Ok(0x102), Ok(1 << 63 | 1)));
    }

    #[test]
    fn numbers_are_skipped_as_they_are_read() {
        let long = [&[0xff; 8][..], &[0x80]].concat();
        let numbers =
            [&[0x05][..], &[0x80, 0x01], &long, &[0x80; 9], &[0xff, 0xff, 0x7f], &[0x00], &[0x81; 9]];
        for first in 0..numbers.len() {
            let numbers: Vec<&[u8]> = numbers.iter().cycle().skip(first).take(40).copied().collect();
            let bytes = numbers.concat();
            for count in 0..=20 {
                let end = numbers[..2 * count].concat().len();
                let mut input = ChunkCursor::new(&bytes, true);
                assert_eq!(
                    (input.skip_numbers(count, 2, 0), input.position()),
                    (Ok(()), end),
                    "{count} from {first}"
                );
                for cut in end.saturating_sub(10)..end {
                    let mut input = ChunkCursor::new(&bytes[..cut], true);
                    assert_eq!(input.skip_numbers(count, 2, 0), Err(JfrError::Truncated { at: cut }));
                }
            }
        }
        let mut input = ChunkCursor::new(&[0xff; 24], false);
        assert_eq!((input.skip_numbers(3, 2, 6), input.position()), (Ok(()), 18));
        assert_eq!(input.skip_numbers(2, 2, 6), Err(JfrError::Truncated { at: 24 }));
    }

    #[test]
    fn texts_are_read_in_every_encoding_and_skipped_alike() {
        for (bytes, expected) in [
            (&[0][..], plain("")),
            (&[1], plain("")),
            (&[2, 5], Ok(EncodedText::Constant(5))),
            (&[3, 3, b'a', 0xc3, 0xbc], plain("aü")),
            (&[3, 1, 0xff], plain("\u{fffd}")),
            (&[4, 2, b'a', 0xfc, 0x01], plain("aü")),
            (&[5, 2, b'a', 0xfc], plain("aü")),
        ] {
            let mut input = ChunkCursor::new(bytes, true);
            assert_eq!((input.read_text(), input.remaining_bytes()), (expected, 0), "{bytes:?}");
            let mut input = ChunkCursor::new(bytes, true);
            assert_eq!((input.skip_text(), input.remaining_bytes()), (Ok(()), 0), "{bytes:?}");
            for cut in 0..bytes.len() {
                let mut input = ChunkCursor::new(&bytes[..cut], true);
                assert_eq!(
                    (input.read_text(), input.at_position(0).skip_text().is_err()),
                    (Err(JfrError::Truncated { at: cut }), true)
                );
            }
        }
        let unknown = JfrError::Malformed { at: 0, why: "a text of unknown encoding" };
        assert_eq!(ChunkCursor::new(&[6], true).read_text(), Err(unknown.clone()));
        assert_eq!(ChunkCursor::new(&[6], true).skip_text(), Err(unknown));
        let giant = [4, 0xff, 0xff, 0xff, 0xff, 0x0f, 1];
        let (what, seen, limit) = ("characters in one text", u32::MAX as usize, MAX_TEXT_LENGTH);
        assert_eq!(
            ChunkCursor::new(&giant, true).read_text(),
            Err(JfrError::OverLimit { what, seen, limit })
        );
        assert_eq!(ChunkCursor::new(&giant, true).skip_text(), Err(JfrError::Truncated { at: 7 }));
    }
}
