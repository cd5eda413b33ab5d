//! Layouts as keys and values of maps, and records of rings.

use aya::maps::lpm_trie::Key;

use crate::layout::{
    MappingKey, MappingValue, PageKey, PageValue, ProcessValue, RequestRecord, StackCount, StackKey,
    StackRecord,
};

// SAFETY: plain numbers without padding, and valid for every bit pattern.
unsafe impl aya::Pod for PageKey {}
// SAFETY: as above.
unsafe impl aya::Pod for PageValue {}
// SAFETY: as above.
unsafe impl aya::Pod for MappingValue {}
// SAFETY: as above.
unsafe impl aya::Pod for ProcessValue {}
// SAFETY: as above.
unsafe impl aya::Pod for StackKey {}
// SAFETY: as above.
unsafe impl aya::Pod for StackCount {}

/// Key of the trie as aya sees it: process and address as bytes.
pub(super) type TrieKey = Key<[u8; 12]>;

/// Converts a key of mappings.
pub(super) fn trie_key(key: &MappingKey) -> TrieKey {
    let mut data = [0; 12];
    let (pid, address) = data.split_at_mut(4);
    pid.copy_from_slice(&key.pid_be.to_ne_bytes());
    address.copy_from_slice(&key.address_be.to_ne_bytes());
    Key::new(key.prefix_bits, data)
}

/// Reader of numbers in native byte order.
struct NumberReader<'a> {
    bytes: &'a [u8],
}

impl NumberReader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (number, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*number)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }
}

/// Parses a record of the ring `requests`. None if it is too short.
pub(super) fn parse_request(bytes: &[u8]) -> Option<RequestRecord> {
    let mut reader = NumberReader { bytes };
    Some(RequestRecord {
        kind: reader.u32()?,
        pid: reader.u32()?,
        host_pid: reader.u32()?,
        exec_id: reader.u32()?,
        start_nanos: reader.u64()?,
        address: reader.u64()?,
        page: PageKey { file: reader.u32()?, page: reader.u32()? },
    })
}

/// Parses a record of the ring `stacks` and writes its frames to `frames`. None if it is too short.
pub(super) fn parse_stack(bytes: &[u8], frames: &mut Vec<u64>) -> Option<StackRecord> {
    let mut reader = NumberReader { bytes };
    let record = StackRecord {
        window: reader.u64()?,
        kernel_frames: reader.u16()?,
        user_frames: reader.u16()?,
        reserved: reader.u32()?,
        key: StackKey {
            hash: [reader.u64()?, reader.u64()?],
            start_nanos: reader.u64()?,
            cgroup: reader.u64()?,
            pid: reader.u32()?,
            host_pid: reader.u32()?,
            exec_id: reader.u32()?,
            end: reader.u32()?,
            comm: reader.take()?,
        },
    };
    let count = usize::from(record.kernel_frames) + usize::from(record.user_frames);
    frames.clear();
    for _ in 0..count {
        frames.push(reader.u64()?);
    }
    Some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_that_is_cut_short_is_none() {
        let mut bytes = vec![0; size_of::<StackRecord>()];
        bytes[8] = 1;
        bytes[10] = 2;
        bytes.extend([1u64, 2, 3].iter().flat_map(|frame| frame.to_ne_bytes()));
        let mut frames = Vec::new();
        let record = parse_stack(&bytes, &mut frames).unwrap();
        assert_eq!((record.kernel_frames, record.user_frames), (1, 2));
        assert_eq!(frames, [1, 2, 3]);
        for length in 0..bytes.len() {
            assert_eq!(parse_stack(&bytes[..length], &mut frames), None);
        }
        assert_eq!(parse_request(&bytes[..size_of::<RequestRecord>() - 1]), None);
        assert!(parse_request(&bytes[..size_of::<RequestRecord>()]).is_some());
    }

    #[test]
    fn trie_key_keeps_bytes_of_both_halves() {
        let key = MappingKey { prefix_bits: 96, pid_be: 7u32.to_be(), address_be: 0x1234u64.to_be() };
        let data = trie_key(&key).data();
        assert_eq!(data, [0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0x12, 0x34]);
    }
}
