//! Reads of neighboring small values with few system calls.

use crate::elf::ReadAt;

/// Bytes that one read fetches.
const WINDOW_BYTES: u64 = 4096;

/// Reader of a range of a file. It keeps the bytes of its last read.
pub struct WindowReader<'a> {
    source: &'a dyn ReadAt,
    start: u64,
    size: u64,
    window: Vec<u8>,
    window_start: u64,
}

impl<'a> WindowReader<'a> {
    /// Creates a reader of `size` bytes at an offset of the file. What exceeds the file is left out.
    pub fn new(source: &'a dyn ReadAt, start: u64, size: u64) -> Self {
        let size = size.min(source.size().saturating_sub(start));
        Self { source, start, size, window: Vec::new(), window_start: 0 }
    }

    /// Returns the bytes of the range.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns bytes at an offset of the range. None if the range ends before, the file cannot be read, or they are
    /// more than one window.
    pub fn bytes(&mut self, offset: u64, length: usize) -> Option<&[u8]> {
        let end = offset.checked_add(length as u64)?;
        if end > self.size || length as u64 > WINDOW_BYTES {
            return None;
        }
        let window_end = self.window_start + self.window.len() as u64;
        if offset < self.window_start || end > window_end {
            self.fill(offset)?;
        }
        let first = usize::try_from(offset - self.window_start).ok()?;
        self.window.get(first..first + length)
    }

    /// Returns the bytes from an offset to the end of the range, at most `limit` and one window.
    pub fn bytes_up_to(&mut self, offset: u64, limit: usize) -> Option<&[u8]> {
        let rest = self.size.checked_sub(offset)?;
        let length = rest.min(limit as u64).min(WINDOW_BYTES);
        self.bytes(offset, length as usize)
    }

    /// Returns the bytes from an offset to the next zero byte or the end of the range, at most `limit` and one window.
    pub fn text(&mut self, offset: u64, limit: usize) -> Option<&[u8]> {
        let bytes = self.bytes_up_to(offset, limit)?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        bytes.get(..end)
    }

    /// Returns a byte.
    pub fn byte(&mut self, offset: u64) -> Option<u8> {
        self.bytes(offset, 1)?.first().copied()
    }

    /// Returns a little-endian number of four bytes.
    pub fn number32(&mut self, offset: u64) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(offset, 4)?.try_into().ok()?))
    }

    /// Returns a little-endian number of eight bytes.
    pub fn number64(&mut self, offset: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(offset, 8)?.try_into().ok()?))
    }

    fn fill(&mut self, offset: u64) -> Option<()> {
        let length = WINDOW_BYTES.min(self.size.checked_sub(offset)?);
        self.window.clear();
        self.window.resize(length as usize, 0);
        self.window_start = offset;
        if self.source.read_at(self.start.checked_add(offset)?, &mut self.window).is_ok() {
            return Some(());
        }
        self.window.clear();
        None
    }
}
