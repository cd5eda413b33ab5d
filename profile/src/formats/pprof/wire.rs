//! Protobuf wire format. The reader works on a slice, checks every bound and reports exact offsets. The
//! writer appends.

use super::DecodeError;
use crate::encoding::varint::{VarintError, decode_varint, put_varint};

/// Position in the bytes. Offsets refer to the whole input, even within nested messages.
#[derive(Clone, Copy)]
pub(crate) struct WireCursor<'a> {
    /// Input up to the end of this cursor's range.
    bytes: &'a [u8],
    at: usize,
}

/// Content of a single field.
#[derive(Clone, Copy)]
pub(crate) enum WireValue {
    Varint(u64),
    /// Start and end of four or eight bytes.
    Fixed(usize, usize),
    /// Start and end of the content.
    Bytes(usize, usize),
}

impl<'a> WireCursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        WireCursor { bytes, at: 0 }
    }
    pub(crate) fn range(&self, start: usize, end: usize) -> Self {
        WireCursor { bytes: &self.bytes[..end], at: start }
    }
    /// Returns the bytes between the position and the end.
    pub(crate) fn remaining(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }
    pub(crate) fn position(&self) -> usize {
        self.at
    }
    pub(crate) fn is_done(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Reads a varint. Nearly all keys, lengths and ids of a profile have one byte or two, so these are read
    /// in place, and only longer ones by a call.
    #[inline(always)]
    pub(crate) fn varint(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let Some(&low) = self.bytes.get(self.at) else { return self.long_varint(what) };
        if low < 0x80 {
            self.at += 1;
            return Ok(u64::from(low));
        }
        match self.bytes.get(self.at + 1) {
            Some(&high) if high < 0x80 => {
                self.at += 2;
                Ok(u64::from(low & 0x7f) | u64::from(high) << 7)
            }
            _ => self.long_varint(what),
        }
    }

    /// Reads a length and that many bytes.
    pub(crate) fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let length = self.varint(what)?;
        let rest = self.remaining();
        let taken = usize::try_from(length).ok().and_then(|length| rest.get(..length));
        let taken = taken.ok_or(DecodeError::Truncated { at: self.bytes.len(), what })?;
        self.at += taken.len();
        Ok(taken)
    }

    #[inline(never)]
    fn long_varint(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        match decode_varint(&self.bytes[self.at..]) {
            Ok((value, length)) => {
                self.at += length;
                Ok(value)
            }
            Err(VarintError::TooLarge) => {
                Err(DecodeError::Malformed { at: self.at, why: "a number over 64 bits" })
            }
            Err(VarintError::Truncated) => Err(DecodeError::Truncated { at: self.bytes.len(), what }),
        }
    }

    /// Reads a varint field, if the next field has this number. The one-byte key is compared at once.
    #[inline(always)]
    pub(crate) fn expect(&mut self, number: u8, what: &'static str) -> Result<Option<u64>, DecodeError> {
        if self.bytes.get(self.at) != Some(&(number << 3)) {
            return Ok(None);
        }
        self.at += 1;
        self.varint(what).map(Some)
    }

    /// Reads the next field's number and content.
    #[inline(always)]
    pub(crate) fn field(&mut self, what: &'static str) -> Result<(u64, WireValue), DecodeError> {
        let start = self.at;
        let key = self.varint(what)?;
        let number = key >> 3;
        if number == 0 {
            return Err(DecodeError::Malformed { at: start, why: "field number 0" });
        }
        // pprof has only varints and bytes. The code uses `if`, because a jump table is mispredicted more
        // often.
        let value = if key & 7 == 0 {
            WireValue::Varint(self.varint(what)?)
        } else if key & 7 == 2 {
            let length = self.varint(what)?;
            if length > (self.bytes.len() - self.at) as u64 {
                return Err(DecodeError::Truncated { at: self.bytes.len(), what });
            }
            let from = self.at;
            self.at += length as usize;
            WireValue::Bytes(from, self.at)
        } else {
            self.rare(key, start, what)?
        };
        Ok((number, value))
    }

    #[cold]
    fn rare(&mut self, key: u64, start: usize, what: &'static str) -> Result<WireValue, DecodeError> {
        match key & 7 {
            1 => self.fixed(8, what),
            5 => self.fixed(4, what),
            _ => Err(DecodeError::Malformed { at: start, why: "an unknown wire type" }),
        }
    }

    fn fixed(&mut self, length: usize, what: &'static str) -> Result<WireValue, DecodeError> {
        if self.bytes.len() - self.at < length {
            return Err(DecodeError::Truncated { at: self.bytes.len(), what });
        }
        let from = self.at;
        self.at += length;
        Ok(WireValue::Fixed(from, self.at))
    }
}

/// Writes a varint field. 0 is the default and is not written.
#[inline]
pub(crate) fn write_number(out: &mut Vec<u8>, field: u64, value: u64) {
    if value != 0 {
        write_element(out, field, value);
    }
}

/// Writes an element of a repeated number field, even if it is 0.
#[inline]
pub(crate) fn write_element(out: &mut Vec<u8>, field: u64, value: u64) {
    put_varint(out, field << 3);
    put_varint(out, value);
}

/// Writes a field of bytes, a text or a message.
#[inline]
pub(crate) fn write_message(out: &mut Vec<u8>, field: u64, content: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

/// Writes a nested message in place. Its length usually takes one byte. If it takes more, the content is
/// moved.
#[inline]
pub(crate) fn write_nested(out: &mut Vec<u8>, field: u64, write: impl FnOnce(&mut Vec<u8>)) {
    put_varint(out, field << 3 | 2);
    let at = out.len();
    out.push(0);
    write(out);
    let length = out.len() - at - 1;
    if length < 0x80 {
        out[at] = length as u8;
    } else {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, length as u64);
        out.splice(at..=at, bytes);
    }
}

/// Writes a packed field of numbers. An empty list is not written.
pub(crate) fn write_packed(out: &mut Vec<u8>, field: u64, values: impl Iterator<Item = u64>) {
    let mut content = Vec::new();
    values.for_each(|value| put_varint(&mut content, value));
    if !content.is_empty() {
        write_message(out, field, &content);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_the_same_wherever_it_was_written() {
        for length in [0, 1, 127, 128, 16_383, 16_384, 100_000] {
            let content = vec![7; length];
            let [mut copied, mut there] = [vec![1, 2, 3], vec![1, 2, 3]];
            write_message(&mut copied, 20, &content);
            write_nested(&mut there, 20, |out| out.extend_from_slice(&content));
            assert!(copied == there, "{length}");
        }
    }

    #[test]
    fn numbers_of_any_length_are_read_wherever_they_end() {
        let numbers = (0..64)
            .flat_map(|bit| [1u64 << bit, (1u64 << bit) - 1, u64::MAX >> bit, 0x5555_5555_5555_5555 >> bit]);
        for number in numbers {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            let length = bytes.len();
            for tail in [0, 1, 7, 8, 20] {
                bytes.truncate(length);
                bytes.resize(length + tail, 0xff);
                let mut cursor = WireCursor::new(&bytes);
                assert_eq!(
                    (cursor.varint("it"), cursor.position()),
                    (Ok(number), length),
                    "{number} before {tail} bytes"
                );
            }
            for cut in 0..length {
                assert!(WireCursor::new(&bytes[..cut]).varint("it").is_err(), "{number} cut at {cut}");
            }
        }
        assert!(WireCursor::new(&[0xff; 20]).varint("it").is_err());
        assert!(WireCursor::new(&[&[0xff; 9][..], &[2]].concat()).varint("it").is_err());
    }
}
