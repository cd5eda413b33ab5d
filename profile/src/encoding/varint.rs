//! Varints: unsigned numbers of seven bits per byte, the low bits first, as in Protobuf.
//!
//! Decoding is strict about size: more than 64 bits are refused, and so are more than ten bytes. It is lenient
//! about form, as Protobuf requires: `80 00` is 0.

/// Maximum length of a varint.
const MAX_VARINT_BYTES: usize = 10;

/// Reason that bytes do not begin with a varint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VarintError {
    /// The number has more than 64 bits.
    TooLarge,
    /// The bytes end before the number does.
    Truncated,
}

/// Appends a varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Decodes the varint at the beginning of the bytes. Returns the number and its length.
#[inline]
pub(crate) fn decode_varint(bytes: &[u8]) -> Result<(u64, usize), VarintError> {
    match bytes.first_chunk().and_then(decode_within_eight) {
        Some(found) => Ok(found),
        None => decode_bytewise(bytes),
    }
}

/// Decodes a varint from eight bytes at once, without a loop. Returns the number and its length, or `None` if
/// it is longer.
#[inline]
fn decode_within_eight(bytes: &[u8; 8]) -> Option<(u64, usize)> {
    let bytes = u64::from_le_bytes(*bytes);
    let ends = !bytes & 0x8080_8080_8080_8080;
    let length = ends.trailing_zeros() as usize / 8 + 1;
    if ends == 0 {
        return None;
    }
    let sevens = bytes & (u64::MAX >> (64 - 8 * length)) & 0x7f7f_7f7f_7f7f_7f7f;
    let pairs = (sevens & 0x007f_007f_007f_007f) | (sevens & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = (pairs & 0x0000_ffff_0000_ffff) | (pairs & 0xffff_0000_ffff_0000) >> 2;
    Some(((fours & 0x0000_0000_ffff_ffff) | (fours & 0xffff_ffff_0000_0000) >> 4, length))
}

/// Decodes a varint near the end of the bytes, or one of nine or ten bytes.
#[inline(never)]
fn decode_bytewise(bytes: &[u8]) -> Result<(u64, usize), VarintError> {
    let mut number = 0u64;
    for (count, &byte) in bytes.iter().take(MAX_VARINT_BYTES).enumerate() {
        if count + 1 == MAX_VARINT_BYTES && byte > 1 {
            return Err(VarintError::TooLarge);
        }
        number |= u64::from(byte & 0x7f) << (7 * count);
        if byte < 0x80 {
            return Ok((number, count + 1));
        }
    }
    Err(VarintError::Truncated)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn malformed_varint_is_refused_and_overlong_one_is_read() {
        for (bytes, expected) in [
            (&[][..], Err(VarintError::Truncated)),
            (&[0x80], Err(VarintError::Truncated)),
            (&[0xff; 9], Err(VarintError::Truncated)),
            (&[0xff; 10], Err(VarintError::TooLarge)),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], Err(VarintError::TooLarge)),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], Ok((u64::MAX, 10))),
            (&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0], Ok((0, 10))),
            (&[0x80, 0], Ok((0, 2))),
            (&[0x80, 0, 0, 0, 0, 0, 0, 0, 0], Ok((0, 2))),
        ] {
            assert_eq!(decode_varint(bytes), expected, "{bytes:x?}");
        }
    }

    proptest! {
        #[test]
        fn written_varint_reads_back(number in any::<u64>(), bits in 0u32..64, rest in 0usize..9) {
            let number = number >> bits;
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            let length = bytes.len();
            bytes.resize(length + rest, 0xff);
            prop_assert_eq!(decode_varint(&bytes), Ok((number, length)));
        }
    }
}
