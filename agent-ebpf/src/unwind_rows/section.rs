//! Section of call frame information, read through windows.

use std::sync::Arc;

use super::RowError;
use crate::elf::{ByteReader, ReadAt, ReadError};

/// Longest entry of call frame information that is read.
pub(super) const MAX_ENTRY_BYTES: u64 = 256 << 10;
/// Length that announces a 64-bit length.
const LONG_LENGTH: u32 = 0xffff_ffff;
const FIRST_RESERVED_LENGTH: u32 = 0xffff_fff0;

/// Format of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SectionFormat {
    /// `.eh_frame`.
    EhFrame,
    /// `.debug_frame`.
    DebugFrame,
}

/// Bytes with call frame information: a section, or the segment that has it.
#[derive(Clone)]
pub(super) struct CfiSection {
    /// Format.
    pub format: SectionFormat,
    /// Bytes that `offset` counts in.
    pub source: Arc<dyn ReadAt>,
    /// Address of the first byte.
    pub address: u64,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub size: u64,
}

/// Start of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryHeader {
    /// Bytes of the whole entry.
    pub entry_bytes: u64,
    /// Bytes before the id: the length.
    pub length_bytes: u64,
    /// Bytes of the id.
    pub id_bytes: u64,
    /// Position of the common entry. None for a common entry.
    pub common: Option<u64>,
}

impl CfiSection {
    /// Decodes the start of the entry at a position. None at the terminator and for damaged entries.
    pub(super) fn entry_header(&self, window: &mut SectionWindow, position: u64) -> Option<EntryHeader> {
        // The longest start has 20 bytes. Near the end of the section there may be fewer.
        let available = self.size.checked_sub(position)?.min(20);
        let bytes = window.bytes(self, position, available).ok()?;
        let mut reader = ByteReader::new(bytes);
        let short_length = reader.u32()?;
        let is_long = short_length == LONG_LENGTH;
        if !is_long && short_length >= FIRST_RESERVED_LENGTH {
            return None;
        }
        let length = if is_long { reader.u64()? } else { u64::from(short_length) };
        let length_bytes = if is_long { 12 } else { 4 };
        let id_bytes = if is_long && self.format == SectionFormat::DebugFrame { 8 } else { 4 };
        if length < id_bytes {
            return None;
        }
        let id = if id_bytes == 8 { reader.u64()? } else { u64::from(reader.u32()?) };
        let common = match self.format {
            SectionFormat::EhFrame if id == 0 => None,
            SectionFormat::EhFrame => Some(position.checked_add(length_bytes)?.checked_sub(id)?),
            SectionFormat::DebugFrame if id == u64::MAX || (id_bytes == 4 && id == 0xffff_ffff) => None,
            SectionFormat::DebugFrame => Some(id),
        };
        let entry_bytes = length.checked_add(length_bytes)?;
        position.checked_add(entry_bytes).filter(|end| *end <= self.size)?;
        Some(EntryHeader { entry_bytes, length_bytes, id_bytes, common })
    }
}

/// Part of a section that is in memory.
#[derive(Debug)]
pub(super) struct SectionWindow {
    window_bytes: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl SectionWindow {
    /// Starts without bytes. Reads are of `window_bytes`, or of a whole entry if it is longer.
    pub(super) fn new(window_bytes: u64) -> Self {
        Self { window_bytes, start: 0, bytes: Vec::new() }
    }

    /// Returns bytes of the section.
    ///
    /// # Errors
    ///
    /// Fails if the range is outside of the section, too long, or cannot be read.
    pub(super) fn bytes(
        &mut self,
        section: &CfiSection,
        position: u64,
        length: u64,
    ) -> Result<&[u8], RowError> {
        let out_of_range = ReadError::OutOfRange { offset: position, length, size: section.size };
        let Some(available) = section.size.checked_sub(position).filter(|available| *available >= length)
        else {
            return Err(out_of_range.into());
        };
        if length > MAX_ENTRY_BYTES {
            return Err(ReadError::TooLong { length, limit: MAX_ENTRY_BYTES }.into());
        }
        if self.slice(position, length).is_none() {
            let read_bytes = self.window_bytes.max(length).min(available);
            let offset = section.offset.saturating_add(position);
            // A failed read leaves no stale bytes behind.
            self.bytes.clear();
            self.bytes.resize(read_bytes as usize, 0);
            if let Err(error) = section.source.read_at(offset, &mut self.bytes) {
                self.bytes.clear();
                return Err(error.into());
            }
            self.start = position;
        }
        self.slice(position, length).ok_or_else(|| out_of_range.into())
    }

    fn slice(&self, position: u64, length: u64) -> Option<&[u8]> {
        let start = usize::try_from(position.checked_sub(self.start)?).ok()?;
        self.bytes.get(start..start.checked_add(length as usize)?)
    }
}
