//! Codec for numbers and texts: varints of seven bits per byte. Only for data that Athanor itself writes;
//! foreign data has its own decoders.

mod columns;

pub use super::varint::put_varint;
pub use columns::{ColumnScale, TextColumnIter, put_texts};

use super::varint::decode_varint;

/// Error of data that violates the encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why} at byte {at}")]
pub struct CodecError {
    /// Offset of the error in bytes.
    pub at: usize,
    /// Reason of the error.
    pub why: &'static str,
}

/// Appends a signed varint in zigzag encoding, so that numbers near zero are short.
#[inline]
pub fn put_signed_varint(out: &mut Vec<u8>, number: i64) {
    put_varint(out, (number << 1 ^ number >> 63) as u64);
}

/// Appends the length of a byte string and its bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reader of encoded data.
#[derive(Clone, Copy, Debug)]
pub struct CodecReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> CodecReader<'a> {
    /// Creates a reader at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        CodecReader { bytes, at: 0 }
    }
    /// Returns whether all bytes were read.
    pub fn is_done(&self) -> bool {
        self.at == self.bytes.len()
    }
    /// Returns an error for the current position.
    pub fn error_here(&self, why: &'static str) -> CodecError {
        CodecError { at: self.at, why }
    }
    /// Reads an unsigned varint.
    #[inline]
    pub fn read_number(&mut self) -> Result<u64, CodecError> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long(),
        }
    }
    #[inline]
    fn long(&mut self) -> Result<u64, CodecError> {
        match decode_varint(&self.bytes[self.at..]) {
            Ok((number, length)) => {
                self.at += length;
                Ok(number)
            }
            Err(_) => Err(self.error_here("an unterminated varint")),
        }
    }
    /// Reads an unsigned varint and checks that it fits in 32 bits.
    #[inline]
    pub fn read_u32(&mut self) -> Result<u32, CodecError> {
        let wrong = self.error_here("a number over 32 bits");
        u32::try_from(self.read_number()?).map_err(|_| wrong)
    }
    /// Reads a signed varint.
    #[inline]
    pub fn read_signed(&mut self) -> Result<i64, CodecError> {
        let number = self.read_number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }
    /// Reads a count of items that take at least one byte each. A count above the remaining bytes is an
    /// error.
    pub fn read_count(&mut self) -> Result<usize, CodecError> {
        let wrong = self.error_here("a count larger than the remaining bytes");
        let count = self.read_number()?;
        if count > (self.bytes.len() - self.at) as u64 { Err(wrong) } else { Ok(count as usize) }
    }
    /// Reads the given number of bytes.
    pub fn read_slice(&mut self, count: usize) -> Result<&'a [u8], CodecError> {
        let taken =
            self.bytes[self.at..].get(..count).ok_or_else(|| self.error_here("unexpected end of data"))?;
        self.at += count;
        Ok(taken)
    }
    /// Reads a byte string with its length.
    pub fn read_bytes(&mut self) -> Result<&'a [u8], CodecError> {
        let count = self.read_count()?;
        self.read_slice(count)
    }
    /// Reads a text with its length.
    pub fn read_text(&mut self) -> Result<&'a str, CodecError> {
        let wrong = self.error_here("a text that is not UTF-8");
        std::str::from_utf8(self.read_bytes()?).map_err(|_| wrong)
    }
    /// Reads a list of texts that [`put_texts`] wrote.
    pub fn read_texts(&mut self) -> Result<TextColumnIter<'a>, CodecError> {
        TextColumnIter::locate(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_comes_back() {
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX];
        let signed = [0, -1, 1, i64::MIN, i64::MAX, -64, 63];
        let mut out = Vec::new();
        numbers.iter().for_each(|&number| put_varint(&mut out, number));
        signed.iter().for_each(|&number| put_signed_varint(&mut out, number));
        put_bytes(&mut out, "größe".as_bytes());
        let mut unpacker = CodecReader::new(&out);
        numbers.iter().for_each(|&number| assert_eq!(unpacker.read_number(), Ok(number)));
        signed.iter().for_each(|&number| assert_eq!(unpacker.read_signed(), Ok(number)));
        assert_eq!((unpacker.read_text(), unpacker.is_done()), (Ok("größe"), true));
    }

    #[test]
    fn what_is_cut_off_or_too_large_is_refused() {
        assert!(CodecReader::new(&[]).read_number().is_err());
        assert!(CodecReader::new(&[0x80]).read_number().is_err());
        assert!(CodecReader::new(&[0xff; 11]).read_number().is_err());
        assert!(CodecReader::new(&[5, 1, 2]).read_bytes().is_err());
        assert!(CodecReader::new(&[0xff, 0xff, 0xff, 0xff, 0x1f]).read_u32().is_err());
        assert!(CodecReader::new(&[1, 0xff]).read_text().is_err());
    }
}
