//! Fields of protobuf messages, as slices of the message. Rewriting copies all fields that it does not change.

use athanor_profile::encoding::varint::put_varint;

/// Bits of a number on the wire.
const MAX_VARINT_BITS: u32 = 64;

/// Field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WireField<'a> {
    pub(super) number: u64,
    /// All bytes of the field, with its key.
    pub(super) whole: &'a [u8],
    pub(super) content: WireContent<'a>,
}

/// Content of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireContent<'a> {
    Varint(u64),
    /// Four or eight bytes.
    Fixed(&'a [u8]),
    /// Text or message.
    Bytes(&'a [u8]),
}

/// Reason that bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WireError {
    #[error("a field ends after the message")]
    Truncated,
    #[error("a number has over 64 bits")]
    LargeNumber,
    #[error("field {number} has wire type {wire_type}")]
    WireType { number: u64, wire_type: u64 },
}

/// Iterator over the fields of a message. It ends after the first error.
pub(super) struct WireFields<'a> {
    rest: &'a [u8],
}

impl<'a> WireFields<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn read(&mut self) -> Result<WireField<'a>, WireError> {
        let start = self.rest;
        let key = self.varint()?;
        let number = key >> 3;
        let content = match key & 7 {
            0 => WireContent::Varint(self.varint()?),
            1 => WireContent::Fixed(self.take(8)?),
            2 => {
                let length = self.varint()?;
                WireContent::Bytes(self.take(length)?)
            }
            5 => WireContent::Fixed(self.take(4)?),
            wire_type => return Err(WireError::WireType { number, wire_type }),
        };
        Ok(WireField { number, whole: &start[..start.len() - self.rest.len()], content })
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0;
        for bits in (0..MAX_VARINT_BITS).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or(WireError::Truncated)?;
            self.rest = rest;
            let part = u64::from(byte & 0x7f);
            if part << bits >> bits != part {
                return Err(WireError::LargeNumber);
            }
            value |= part << bits;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::LargeNumber)
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], WireError> {
        let length = usize::try_from(length).map_err(|_| WireError::Truncated)?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for WireFields<'a> {
    type Item = Result<WireField<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// Appends a field with text or a message.
pub(super) fn put_bytes(out: &mut Vec<u8>, number: u64, content: &[u8]) {
    put_varint(out, number << 3 | 2);
    put_varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

/// Appends a field of eight bytes.
pub(super) fn put_fixed64(out: &mut Vec<u8>, number: u64, value: u64) {
    put_varint(out, number << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(message: &[u8]) -> Result<Vec<(u64, usize)>, WireError> {
        WireFields::new(message).map(|field| field.map(|field| (field.number, field.whole.len()))).collect()
    }

    #[test]
    fn fields_are_read_with_their_bytes() {
        let mut message = vec![0x08, 0x96, 0x01, 0x1d, 1, 2, 3, 4];
        put_bytes(&mut message, 2, b"abc");
        put_fixed64(&mut message, 300, 7);
        assert_eq!(read(&message), Ok(vec![(1, 3), (3, 5), (2, 5), (300, 10)]));
        let last = WireFields::new(&message).last().unwrap().unwrap();
        assert_eq!(last.content, WireContent::Fixed(&7u64.to_le_bytes()));
    }

    #[test]
    fn damaged_messages_are_refused() {
        assert_eq!(read(&[0x0a, 5, 1]), Err(WireError::Truncated));
        assert_eq!(read(&[0x08]), Err(WireError::Truncated));
        assert_eq!(
            read(&[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2]),
            Err(WireError::LargeNumber)
        );
        assert_eq!(read(&[0x0b]), Err(WireError::WireType { number: 1, wire_type: 3 }));
    }

    proptest! {
        #[test]
        fn fields_of_any_bytes_are_their_beginning(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let fields: Vec<_> = WireFields::new(&bytes).map_while(Result::ok).collect();
            let whole: Vec<u8> = fields.iter().flat_map(|field| field.whole.to_vec()).collect();
            prop_assert!(bytes.starts_with(&whole));
        }
    }
}
