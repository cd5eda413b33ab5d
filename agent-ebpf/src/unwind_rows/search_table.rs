//! Binary search table of `.eh_frame_hdr`.

use super::RowError;
use super::entry_index::EntryPlace;
use super::section::{CfiSection, SectionFormat, SectionWindow};
use crate::elf::{ByteReader, ElfFile, Segment};

/// Bytes of the table that are read at once.
const TABLE_WINDOW_BYTES: u64 = 4 << 10;
const HEADER_BYTES: u64 = 20;
const ENCODING_OMITTED: u8 = 0xff;
const ENCODING_FORMAT_MASK: u8 = 0x0f;
const ENCODING_BASE_MASK: u8 = 0x70;
const ENCODING_INDIRECT: u8 = 0x80;
const BASE_ABSOLUTE: u8 = 0;
const BASE_POSITION: u8 = 0x10;
const BASE_HEADER: u8 = 0x30;

/// Start of `.eh_frame_hdr`.
pub(super) struct SearchHeader {
    /// Address of `.eh_frame`.
    pub eh_frame_address: u64,
    /// Search table, if there is a usable one.
    pub table: Option<SearchTable>,
}

/// Table of first addresses and entries, sorted by address. Read where it is searched.
#[derive(Clone)]
pub(super) struct SearchTable {
    /// Bytes of the table.
    bytes: CfiSection,
    encoding: u8,
    header_address: u64,
    count: u64,
}

/// Reads the header. None if it is damaged.
pub(super) fn read_search_header(file: &ElfFile, segment: &Segment) -> Option<SearchHeader> {
    let bytes = file.source().read_up_to(segment.offset, HEADER_BYTES.min(segment.file_size)).ok()?;
    let mut reader = ByteReader::new(&bytes);
    if reader.u8()? != 1 {
        return None;
    }
    let pointer_encoding = reader.u8()?;
    let count_encoding = reader.u8()?;
    let table_encoding = reader.u8()?;
    let pointer_value = read_value(&mut reader, pointer_encoding)?;
    let position = PointerPosition { address: segment.address.wrapping_add(4), header: segment.address };
    let eh_frame_address = position.resolve(pointer_encoding, pointer_value)?;
    let count = read_value(&mut reader, count_encoding).filter(|_| count_encoding & ENCODING_BASE_MASK == 0);
    let header_bytes = bytes.len().checked_sub(reader.rest().len())? as u64;
    let table = count.and_then(|count| SearchTable::new(file, segment, header_bytes, count, table_encoding));
    Some(SearchHeader { eh_frame_address, table })
}

impl SearchTable {
    fn new(file: &ElfFile, header: &Segment, header_bytes: u64, count: u64, encoding: u8) -> Option<Self> {
        let size = header.file_size.checked_sub(header_bytes)?;
        let bytes = CfiSection {
            format: SectionFormat::EhFrame,
            source: file.source().clone(),
            address: header.address.wrapping_add(header_bytes),
            offset: header.offset.checked_add(header_bytes)?,
            size,
        };
        let table = Self { bytes, encoding, header_address: header.address, count };
        let needed = count.checked_mul(table.entry_bytes()?)?;
        (count > 0 && needed <= size).then_some(table)
    }

    /// Returns the number of entries.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the bytes of an entry. None if the encoding has no fixed size or needs other memory.
    fn entry_bytes(&self) -> Option<u64> {
        if self.encoding == ENCODING_OMITTED || self.encoding & ENCODING_INDIRECT != 0 {
            return None;
        }
        match self.encoding & ENCODING_FORMAT_MASK {
            0x03 | 0x0b => Some(8),
            0x00 | 0x04 | 0x0c => Some(16),
            _ => None,
        }
    }

    fn entry(&self, window: &mut SectionWindow, index: u64) -> Result<Option<EntryPlace>, RowError> {
        let Some(entry_bytes) = self.entry_bytes() else { return Ok(None) };
        let position = index.saturating_mul(entry_bytes);
        let bytes = window.bytes(&self.bytes, position, entry_bytes)?;
        let mut reader = ByteReader::new(bytes);
        let address = self.bytes.address.wrapping_add(position);
        let mut next = |address| {
            let value = read_value(&mut reader, self.encoding)?;
            PointerPosition { address, header: self.header_address }.resolve(self.encoding, value)
        };
        let start = next(address);
        let entry_address = next(address.wrapping_add(entry_bytes / 2));
        Ok(start.zip(entry_address).map(|(start, entry)| EntryPlace { start, entry }))
    }

    /// Returns the entries that start in a range and up to `before` entries in front of them, at most `limit`.
    /// Their places are addresses.
    ///
    /// # Errors
    ///
    /// Fails if the table cannot be read or there are more than `limit` entries.
    pub(super) fn entries(
        &self,
        start: u64,
        end: u64,
        before: u64,
        limit: usize,
    ) -> Result<Vec<EntryPlace>, RowError> {
        let mut window = SectionWindow::new(TABLE_WINDOW_BYTES);
        let mut low = 0;
        let mut high = self.count;
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(&mut window, middle)?.is_some_and(|place| place.start < start) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let mut places = Vec::new();
        for index in low.saturating_sub(before)..self.count {
            let Some(place) = self.entry(&mut window, index)? else { continue };
            if index >= low && place.start >= end {
                break;
            }
            if places.len() >= limit {
                return Err(RowError::TooLarge { what: "entries", limit: limit as u64 });
            }
            places.push(place);
        }
        Ok(places)
    }
}

/// Address of an encoded pointer.
struct PointerPosition {
    address: u64,
    header: u64,
}

impl PointerPosition {
    fn resolve(&self, encoding: u8, value: u64) -> Option<u64> {
        if encoding & ENCODING_INDIRECT != 0 {
            return None;
        }
        match encoding & ENCODING_BASE_MASK {
            BASE_ABSOLUTE => Some(value),
            BASE_POSITION => Some(value.wrapping_add(self.address)),
            BASE_HEADER => Some(value.wrapping_add(self.header)),
            _ => None,
        }
    }
}

/// Reads a number in the format of an encoding. None if there is none.
fn read_value(reader: &mut ByteReader<'_>, encoding: u8) -> Option<u64> {
    if encoding == ENCODING_OMITTED {
        return None;
    }
    match encoding & ENCODING_FORMAT_MASK {
        0x00 | 0x04 | 0x0c => reader.u64(),
        0x01 => reader.uleb128(),
        0x02 => reader.u16().map(u64::from),
        0x03 => reader.u32().map(u64::from),
        0x09 => reader.sleb128().map(|value| value as u64),
        0x0a => reader.u16().map(|value| i64::from(value as i16) as u64),
        0x0b => reader.u32().map(|value| i64::from(value as i32) as u64),
        _ => None,
    }
}
