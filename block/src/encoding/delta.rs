//! DELTA_BINARY_PACKED pages of 32-bit numbers: the first number, then differences in bits as wide as needed.

use bitpacking::{BitPacker, BitPacker1x};
use bytes::Bytes;

use crate::encoding::varint::{push_signed_varint, push_varint, read_signed_varint, read_varint};

/// Differences per block of a written page.
const BLOCK_VALUES: usize = 128;

/// Differences that are packed at a time, which is the size of a miniblock of a written page.
pub(crate) const PACKED_VALUES: usize = BitPacker1x::BLOCK_LEN;

/// Miniblocks per block of a written page.
const BLOCK_PARTS: usize = BLOCK_VALUES / PACKED_VALUES;

/// Upper bound of miniblocks per block of a read page.
const MAX_BLOCK_PARTS: usize = 64;

/// Upper bound of differences per block of a read page.
const MAX_BLOCK_VALUES: usize = 1 << 16;

/// Appends the page of some numbers.
pub(crate) fn encode_delta(values: &[i32], out: &mut Vec<u8>) {
    push_varint(out, BLOCK_VALUES as u64);
    push_varint(out, BLOCK_PARTS as u64);
    push_varint(out, values.len() as u64);
    push_signed_varint(out, i64::from(values.first().copied().unwrap_or_default()));
    let packer = BitPacker1x::new();
    let mut deltas = [0i32; BLOCK_VALUES];
    let mut packed = [0u32; PACKED_VALUES];
    let blocks = values.chunks(BLOCK_VALUES).zip(values.get(1..).unwrap_or_default().chunks(BLOCK_VALUES));
    for (before, after) in blocks {
        for ((delta, &before), &after) in deltas.iter_mut().zip(before).zip(after) {
            *delta = after.wrapping_sub(before);
        }
        let count = after.len();
        let least = deltas[..count].iter().fold(i32::MAX, |least, &delta| least.min(delta));
        deltas[count..].fill(least);
        push_signed_varint(out, i64::from(least));
        let widths = out.len();
        out.resize(widths + BLOCK_PARTS, 0);
        for (part, deltas) in
            deltas.chunks_exact(PACKED_VALUES).take(count.div_ceil(PACKED_VALUES)).enumerate()
        {
            for (packed, &delta) in packed.iter_mut().zip(deltas) {
                *packed = delta.wrapping_sub(least) as u32;
            }
            let width = packer.num_bits(&packed);
            out[widths + part] = width;
            let start = out.len();
            out.resize(start + BitPacker1x::compressed_block_size(width), 0);
            packer.compress(&packed, &mut out[start..], width);
        }
    }
}

/// Decoder of one page. It reads the differences of a miniblock at a time.
pub(crate) struct DeltaDecoder {
    page: Bytes,
    /// Offset of the next miniblock or block.
    at: usize,
    /// Numbers not yet returned.
    left: usize,
    /// Number before the next one.
    last: i32,
    /// True until the first number is returned.
    is_first: bool,
    /// Differences per miniblock, and miniblocks per block.
    part_values: usize,
    block_parts: usize,
    /// Least difference of the block.
    least: i32,
    /// Widths of the block's miniblocks, and the index of the current one.
    widths: [u8; MAX_BLOCK_PARTS],
    part: usize,
    /// Differences of the current miniblock that are not unpacked.
    left_in_part: usize,
    /// Unpacked differences, and the index of the next one.
    unpacked: [u32; PACKED_VALUES],
    next: usize,
}

impl DeltaDecoder {
    /// Reads the header of a page with `rows` numbers. Returns none if it is damaged.
    pub(crate) fn open(page: Bytes, rows: usize) -> Option<Self> {
        let mut at = 0;
        let block_values = usize::try_from(read_varint(&page, &mut at)?).ok()?;
        let block_parts = usize::try_from(read_varint(&page, &mut at)?).ok()?;
        let values = read_varint(&page, &mut at)?;
        let first = read_signed_varint(&page, &mut at)?;
        let is_known = (1..=MAX_BLOCK_PARTS).contains(&block_parts) && block_values <= MAX_BLOCK_VALUES;
        let part_values = block_values.checked_div(block_parts)?;
        let is_whole = part_values > 0
            && part_values.is_multiple_of(PACKED_VALUES)
            && part_values * block_parts == block_values;
        (is_known && is_whole && values == rows as u64).then_some(DeltaDecoder {
            page,
            at,
            left: rows,
            last: first as i32,
            is_first: true,
            part_values,
            block_parts,
            least: 0,
            widths: [0; MAX_BLOCK_PARTS],
            part: block_parts,
            left_in_part: 0,
            unpacked: [0; PACKED_VALUES],
            next: PACKED_VALUES,
        })
    }

    /// Appends the next `count` numbers. Returns none if the page is damaged or has fewer.
    pub(crate) fn read(&mut self, mut count: usize, out: &mut Vec<i32>) -> Option<()> {
        self.left = self.left.checked_sub(count)?;
        if count > 0 && std::mem::take(&mut self.is_first) {
            out.push(self.last);
            count -= 1;
        }
        out.reserve(count);
        while count > 0 {
            if self.next == PACKED_VALUES {
                self.unpack()?;
            }
            let deltas = &self.unpacked[self.next..PACKED_VALUES.min(self.next + count)];
            let (mut last, least) = (self.last, self.least);
            out.extend(deltas.iter().map(|&delta| {
                last = last.wrapping_add(least.wrapping_add(delta as i32));
                last
            }));
            self.last = last;
            self.next += deltas.len();
            count -= deltas.len();
        }
        Some(())
    }

    /// Unpacks the next differences.
    fn unpack(&mut self) -> Option<()> {
        if self.left_in_part == 0 {
            self.part += 1;
            if self.part >= self.block_parts {
                self.least = read_signed_varint(&self.page, &mut self.at)? as i32;
                let widths = self.page.get(self.at..self.at + self.block_parts)?;
                self.widths[..self.block_parts].copy_from_slice(widths);
                self.at += self.block_parts;
                self.part = 0;
            }
            self.left_in_part = self.part_values;
        }
        let width = self.widths[self.part];
        if width > 32 {
            return None;
        }
        let length = BitPacker1x::compressed_block_size(width);
        let packed = self.page.get(self.at..self.at + length)?;
        BitPacker1x::new().decompress(packed, &mut self.unpacked, width);
        self.at += length;
        self.left_in_part -= PACKED_VALUES;
        self.next = 0;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(page: &[u8], rows: usize, steps: &[usize]) -> Option<Vec<i32>> {
        let mut decoder = DeltaDecoder::open(Bytes::copy_from_slice(page), rows)?;
        let mut values = Vec::new();
        let mut steps = steps.iter().cycle();
        while values.len() < rows {
            let step = (*steps.next()?).min(rows - values.len());
            decoder.read(step, &mut values)?;
        }
        Some(values)
    }

    fn numbers() -> impl Strategy<Value = Vec<i32>> {
        let number = prop_oneof![0i32..300, -5i32..5, any::<i32>()];
        prop_oneof![
            prop::collection::vec(any::<i32>(), 0..600),
            prop::collection::vec(0i32..9, 0..600),
            (number, 0usize..600).prop_map(|(number, count)| vec![number; count]),
            prop::collection::vec(0i32..500, 0..600).prop_map(|mut sorted| {
                sorted.sort_unstable();
                sorted
            }),
        ]
    }

    proptest! {
        #[test]
        fn pages_have_their_numbers(values in numbers(), steps in prop::collection::vec(1usize..200, 1..4)) {
            let mut page = Vec::new();
            encode_delta(&values, &mut page);
            prop_assert_eq!(decode(&page, values.len(), &steps), Some(values.clone()));
            prop_assert_eq!(decode(&page, values.len() + 1, &steps), None);
        }

        #[test]
        fn damaged_pages_are_refused_without_a_panic(
            values in numbers(), byte in any::<prop::sample::Index>(), with in any::<u8>(), rows in 0usize..700,
        ) {
            let mut page = Vec::new();
            encode_delta(&values, &mut page);
            let at = byte.index(page.len());
            page[at] = with;
            decode(&page, rows, &[7, 64]);
            page.truncate(at);
            if values.len() > 1 {
                prop_assert_eq!(decode(&page, values.len(), &[64]), None);
            }
        }
    }
}
