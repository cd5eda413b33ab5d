//! Binary encoding of origin tables for peers: texts once, then a row for each entry.

use super::{MAX_WEIGHT, OriginEntry, OriginPlace, OriginTable};
use crate::call_tree::tree::read_sorted_texts;
use crate::encoding::codec::{CodecError, CodecReader, put_signed_varint, put_texts, put_varint};

/// Number of low bits of a weight that are encoded by themselves.
const LOW_BITS: u32 = 63;
const LOW_MASK: i128 = (1 << LOW_BITS) - 1;

impl OriginTable {
    /// Appends the encoded table.
    pub fn pack(&self, out: &mut Vec<u8>) {
        put_texts(out, self.texts.iter().map(|text| &**text));
        put_varint(out, self.entries.len() as u64);
        let mut before = 0;
        for OriginEntry { place, weight } in &self.entries {
            let OriginPlace { name, has_function, file, package, binary, line } = *place;
            // Entries are sorted by name, so differences are not negative.
            put_varint(out, u64::from(name - before) << 1 | u64::from(has_function));
            before = name;
            put_varint(out, u64::from(binary));
            if has_function {
                put_varint(out, u64::from(file));
                put_varint(out, u64::from(package));
                put_signed_varint(out, line);
            }
            // Two parts, of which the first is nearly always 0 or -1.
            put_signed_varint(out, (weight >> LOW_BITS) as i64);
            put_varint(out, (weight & LOW_MASK) as u64);
        }
    }

    /// Decodes the output of [`pack`](Self::pack), if the table takes at most `max_bytes` [`bytes`](Self::bytes). No
    /// memory is allocated beyond that.
    pub fn unpack(reader: &mut CodecReader<'_>, max_bytes: usize) -> Result<OriginTable, CodecError> {
        let texts = read_sorted_texts(reader, max_bytes)?;
        if texts.is_empty() {
            return Err(reader.error_here("origins without the empty text"));
        }
        let count = reader.read_count()?;
        let mut table = OriginTable { texts: texts.into(), entries: Vec::new() };
        let entry_bytes = count.saturating_mul(size_of::<OriginEntry>());
        if entry_bytes.saturating_add(table.bytes()) > max_bytes {
            return Err(reader.error_here("origins larger than the declared memory"));
        }
        table.entries.reserve_exact(count);
        let mut name = 0;
        for _ in 0..count {
            let entry = table.read_entry(reader, name)?;
            name = entry.place.name;
            let is_in_order = table.entries.last().is_none_or(|before| before.place < entry.place);
            if !is_in_order || !(-MAX_WEIGHT..=MAX_WEIGHT).contains(&entry.weight) {
                return Err(reader.error_here("origins out of order or too heavy"));
            }
            table.entries.push(entry);
        }
        let text_count = table.texts.len();
        let table = table.remove_unused_texts();
        if table.texts.len() != text_count {
            return Err(reader.error_here("redundant texts of origins"));
        }
        Ok(table)
    }

    fn read_entry(&self, reader: &mut CodecReader<'_>, name_before: u32) -> Result<OriginEntry, CodecError> {
        let unknown = reader.error_here("an unknown text of an origin");
        let text =
            |id: u64| u32::try_from(id).ok().filter(|&id| (id as usize) < self.texts.len()).ok_or(unknown);
        let step = reader.read_number()?;
        let name = text((step >> 1).saturating_add(u64::from(name_before)))?;
        let mut place = OriginPlace { name, has_function: step & 1 == 1, ..OriginPlace::default() };
        place.binary = text(reader.read_number()?)?;
        if place.has_function {
            place.file = text(reader.read_number()?)?;
            place.package = text(reader.read_number()?)?;
            place.line = reader.read_signed()?;
        }
        let high = i128::from(reader.read_signed()?) << LOW_BITS;
        let low = i128::from(reader.read_number()?);
        if low > LOW_MASK {
            return Err(reader.error_here("a weight with too many low bits"));
        }
        Ok(OriginEntry { place, weight: high + low })
    }
}
