//! Variable-length integers in pages.

/// Appends an unsigned number, seven bits per byte, low bits first.
pub(crate) fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a signed number, small absolute values in few bytes.
pub(crate) fn push_signed_varint(out: &mut Vec<u8>, number: i64) {
    push_varint(out, (number << 1 ^ number >> 63) as u64);
}

/// Reads a number and advances `at` past it. Returns none if the bytes end or the number exceeds 64 bits.
pub(crate) fn read_varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Variant of [`read_varint`] for signed numbers.
pub(crate) fn read_signed_varint(bytes: &[u8], at: &mut usize) -> Option<i64> {
    let number = read_varint(bytes, at)?;
    Some((number >> 1) as i64 ^ -((number & 1) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn written_numbers_are_read_back(unsigned in any::<u64>(), shift in 0u32..64, signed in any::<i64>()) {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, unsigned >> shift);
            push_signed_varint(&mut bytes, signed >> shift);
            let mut at = 0;
            prop_assert_eq!(read_varint(&bytes, &mut at), Some(unsigned >> shift));
            prop_assert_eq!(read_signed_varint(&bytes, &mut at), Some(signed >> shift));
            prop_assert_eq!(at, bytes.len());
            let mut at = 0;
            bytes.pop();
            read_varint(&bytes, &mut at);
            prop_assert_eq!(read_signed_varint(&bytes, &mut at), None);
        }
    }

    #[test]
    fn numbers_above_64_bits_are_refused() {
        assert_eq!(read_varint(&[0xff; 11], &mut 0), None);
        let mut most = [0xff; 10];
        most[9] = 1;
        assert_eq!(read_varint(&most, &mut 0), Some(u64::MAX));
        most[9] = 2;
        assert_eq!(read_varint(&most, &mut 0), None);
    }
}
