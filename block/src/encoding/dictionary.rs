//! Pages of 64-bit values: plain ones, and indexes into a dictionary of distinct values.
//!
//! Indexes are in runs: one index many times, or packed into bits.

use bitpacking::{BitPacker, BitPacker1x};
use bytes::Bytes;

use crate::encoding::delta::PACKED_VALUES;
use crate::encoding::varint::{push_varint, read_varint};

/// Upper bound of distinct values. Above it values are plain.
pub(crate) const MAX_DICTIONARY_VALUES: usize = 1 << 17;

/// Values per byte of packed indexes, times their width.
const GROUP_VALUES: usize = 8;

/// Factor of the hash of a value.
const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Distinct values of a column in the order of their first rows.
#[derive(Default)]
pub(crate) struct ValueDictionary {
    values: Vec<i64>,
    /// Open-addressing table of indexes plus one, 0 for a free slot. Its length is a power of two.
    slots: Vec<u32>,
    /// Slots that may still be visited for the values so far. Many values with equal hashes end it.
    probes: usize,
}

/// Slots that may be visited for each value on average.
const MAX_PROBES_PER_VALUE: usize = 16;

impl ValueDictionary {
    /// Removes all values and keeps the allocations.
    pub(crate) fn clear(&mut self) {
        self.values.clear();
        self.slots.fill(0);
    }

    pub(crate) fn values(&self) -> &[i64] {
        &self.values
    }

    /// Replaces `indexes` by those of some values. Returns false if there are too many distinct ones, or too many with
    /// equal hashes.
    pub(crate) fn add_all(&mut self, values: &[i64], indexes: &mut Vec<u32>) -> bool {
        indexes.clear();
        indexes.reserve(values.len());
        if self.slots.is_empty() {
            self.grow();
        }
        self.probes = values.len().saturating_mul(MAX_PROBES_PER_VALUE);
        for &value in values {
            match self.find_or_add(value) {
                Some(index) => indexes.push(index),
                None => return false,
            }
        }
        true
    }

    fn find_or_add(&mut self, value: i64) -> Option<u32> {
        let mut slot = self.first_slot(value);
        loop {
            self.probes = self.probes.checked_sub(1)?;
            match self.slots[slot] {
                0 if self.values.len() == MAX_DICTIONARY_VALUES => return None,
                0 => {
                    self.values.push(value);
                    self.slots[slot] = self.values.len() as u32;
                    let index = self.values.len() as u32 - 1;
                    if 2 * self.values.len() > self.slots.len() {
                        self.grow();
                    }
                    return Some(index);
                }
                entry if self.values[entry as usize - 1] == value => return Some(entry - 1),
                _ => slot = (slot + 1) & (self.slots.len() - 1),
            }
        }
    }

    fn first_slot(&self, value: i64) -> usize {
        let hash = (value as u64).wrapping_mul(HASH_FACTOR);
        (hash >> (u64::BITS - self.slots.len().trailing_zeros())) as usize
    }

    /// Doubles the table.
    fn grow(&mut self) {
        self.slots = vec![0; (2 * self.slots.len()).max(256)];
        for (entry, &value) in (1u32..).zip(&self.values) {
            let mut slot = self.first_slot(value);
            while self.slots[slot] != 0 {
                slot = (slot + 1) & (self.slots.len() - 1);
            }
            self.slots[slot] = entry;
        }
    }

    /// Returns the bits of the largest index.
    pub(crate) fn index_width(&self) -> u8 {
        let largest = self.values.len().saturating_sub(1) as u32;
        (u32::BITS - largest.leading_zeros()) as u8
    }
}

/// Appends the page of some indexes, which have at most `width` bits.
pub(crate) fn encode_indexes(indexes: &[u32], width: u8, out: &mut Vec<u8>) {
    out.push(width);
    let Some((&first, rest)) = indexes.split_first() else { return };
    if rest.iter().all(|&index| index == first) {
        push_varint(out, (indexes.len() as u64) << 1);
        out.extend_from_slice(&first.to_le_bytes()[..usize::from(width.div_ceil(8))]);
        return;
    }
    push_varint(out, (indexes.len().div_ceil(GROUP_VALUES) as u64) << 1 | 1);
    let packer = BitPacker1x::new();
    let length = BitPacker1x::compressed_block_size(width);
    let mut last = [0; PACKED_VALUES];
    for chunk in indexes.chunks(PACKED_VALUES) {
        let start = out.len();
        out.resize(start + length, 0);
        if chunk.len() == PACKED_VALUES {
            packer.compress(chunk, &mut out[start..], width);
            continue;
        }
        last[..chunk.len()].copy_from_slice(chunk);
        packer.compress(&last, &mut out[start..], width);
        out.truncate(start + chunk.len().div_ceil(GROUP_VALUES) * usize::from(width));
    }
}

/// Run of indexes.
enum IndexRun {
    Repeated { index: u32, left: usize },
    Packed { left: usize },
}

/// Decoder of one page of indexes.
pub(crate) struct IndexDecoder {
    page: Bytes,
    at: usize,
    width: u8,
    run: IndexRun,
    /// Unpacked indexes, and the range of those that are not returned.
    unpacked: [u32; PACKED_VALUES],
    next: usize,
    end: usize,
}

impl IndexDecoder {
    /// Opens a page. Returns none if its header is damaged.
    pub(crate) fn open(page: Bytes) -> Option<Self> {
        let width = page.first().copied().filter(|&width| width <= 32)?;
        let run = IndexRun::Packed { left: 0 };
        Some(IndexDecoder { page, at: 1, width, run, unpacked: [0; PACKED_VALUES], next: 0, end: 0 })
    }

    /// Appends the values of the next `count` indexes. Returns none if the page is damaged or has fewer.
    pub(crate) fn read<T: Copy>(
        &mut self,
        mut count: usize,
        dictionary: &[T],
        out: &mut Vec<T>,
    ) -> Option<()> {
        out.reserve(count);
        while count > 0 {
            if self.next < self.end {
                let indexes = &self.unpacked[self.next..self.end.min(self.next + count)];
                for &index in indexes {
                    out.push(*dictionary.get(index as usize)?);
                }
                self.next += indexes.len();
                count -= indexes.len();
                continue;
            }
            match &mut self.run {
                IndexRun::Repeated { index, left } if *left > 0 => {
                    let step = count.min(*left);
                    out.resize(out.len() + step, *dictionary.get(*index as usize)?);
                    *left -= step;
                    count -= step;
                }
                IndexRun::Packed { left } if *left > 0 => self.unpack()?,
                _ => self.read_run()?,
            }
        }
        Some(())
    }

    fn read_run(&mut self) -> Option<()> {
        let header = read_varint(&self.page, &mut self.at)?;
        let length = usize::try_from(header >> 1).ok().filter(|&length| length > 0)?;
        self.run = match header & 1 {
            1 => IndexRun::Packed { left: length.checked_mul(GROUP_VALUES)? },
            _ => {
                let bytes = usize::from(self.width.div_ceil(8));
                let mut index = [0; 4];
                index[..bytes].copy_from_slice(self.page.get(self.at..self.at + bytes)?);
                self.at += bytes;
                IndexRun::Repeated { index: u32::from_le_bytes(index), left: length }
            }
        };
        Some(())
    }

    /// Unpacks the next indexes of a packed run.
    fn unpack(&mut self) -> Option<()> {
        let IndexRun::Packed { left } = &mut self.run else { return None };
        let count = (*left).min(PACKED_VALUES);
        let length = count / GROUP_VALUES * usize::from(self.width);
        let packed = self.page.get(self.at..self.at + length)?;
        let packer = BitPacker1x::new();
        if count == PACKED_VALUES {
            packer.decompress(packed, &mut self.unpacked, self.width);
        } else {
            let mut padded = [0; size_of::<u32>() * PACKED_VALUES];
            padded[..length].copy_from_slice(packed);
            packer.decompress(
                &padded[..BitPacker1x::compressed_block_size(self.width)],
                &mut self.unpacked,
                self.width,
            );
        }
        self.at += length;
        *left -= count;
        self.next = 0;
        self.end = count;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(page: &[u8], dictionary: &[i64], rows: usize, step: usize) -> Option<Vec<i64>> {
        let mut decoder = IndexDecoder::open(Bytes::copy_from_slice(page))?;
        let mut values = Vec::new();
        while values.len() < rows {
            decoder.read(step.min(rows - values.len()), dictionary, &mut values)?;
        }
        Some(values)
    }

    fn values() -> impl Strategy<Value = Vec<i64>> {
        prop_oneof![
            prop::collection::vec(any::<i64>(), 1..600),
            prop::collection::vec(0i64..7, 1..600),
            (any::<i64>(), 1usize..600).prop_map(|(value, count)| vec![value; count]),
        ]
    }

    proptest! {
        #[test]
        fn pages_have_their_values(values in values(), others in values(), step in 1usize..100) {
            let mut dictionary = ValueDictionary::default();
            let (mut page, mut indexes) = (Vec::new(), Vec::new());
            prop_assert!(dictionary.add_all(&others, &mut indexes));
            prop_assert!(dictionary.add_all(&values, &mut indexes));
            encode_indexes(&indexes, dictionary.index_width(), &mut page);
            prop_assert_eq!(decode(&page, dictionary.values(), values.len(), step), Some(values.clone()));
            dictionary.clear();
            prop_assert!(dictionary.add_all(&values, &mut indexes));
            prop_assert_eq!(indexes[0], 0);
        }

        #[test]
        fn damaged_pages_are_refused_without_a_panic(
            values in values(), byte in any::<prop::sample::Index>(), with in any::<u8>(), rows in 0usize..700,
        ) {
            let mut dictionary = ValueDictionary::default();
            let (mut page, mut indexes) = (Vec::new(), Vec::new());
            prop_assert!(dictionary.add_all(&values, &mut indexes));
            encode_indexes(&indexes, dictionary.index_width(), &mut page);
            let at = byte.index(page.len());
            page[at] = with;
            decode(&page, dictionary.values(), rows, 40);
            page.truncate(at);
            decode(&page, dictionary.values(), rows, 40);
        }
    }

    #[test]
    fn values_with_equal_hashes_are_refused_soon() {
        let is_first = |value: &i64| (*value as u64).wrapping_mul(HASH_FACTOR) >> 48 == 0;
        let values: Vec<i64> = (0i64..).filter(is_first).take(400).collect();
        let mut dictionary = ValueDictionary::default();
        assert!(!dictionary.add_all(&values, &mut Vec::new()));
        assert!(dictionary.probes == 0 && dictionary.values().len() < values.len());
    }

    #[test]
    fn too_many_distinct_values_are_refused() {
        let values: Vec<i64> = (0..MAX_DICTIONARY_VALUES as i64 + 1).collect();
        let mut dictionary = ValueDictionary::default();
        let mut indexes = Vec::new();
        assert!(dictionary.add_all(&values[1..], &mut indexes));
        assert!(dictionary.add_all(&values[1..], &mut indexes));
        assert!(!dictionary.add_all(&values, &mut indexes));
    }
}
