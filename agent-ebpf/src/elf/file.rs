//! One ELF file.

use std::sync::Arc;

use super::ElfError;
use super::header::{FileHeader, Section, Segment, read_file_header, read_sections, read_segments};
use super::read_at::{ReadAt, ReadError};

const SEGMENT_DYNAMIC: u32 = 2;
const SEGMENT_INTERPRETER: u32 = 3;
const SEGMENT_NOTES: u32 = 4;
const SEGMENT_EH_FRAME_HEADER: u32 = 0x6474_e550;
const KIND_EXECUTABLE: u16 = 2;
const MEMORY_PAGE_BYTES: u64 = 4096;

/// x86-64 executable or shared library.
#[derive(Clone)]
pub struct ElfFile {
    source: Arc<dyn ReadAt>,
    header: FileHeader,
    segments: Arc<[Segment]>,
    sections: Arc<[Section]>,
}

impl ElfFile {
    /// Reads the headers.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, is no x86-64 executable or shared library, or has too many program headers.
    pub fn open(source: Arc<dyn ReadAt>) -> Result<Self, ElfError> {
        let header = read_file_header(source.as_ref())?;
        let segments = read_segments(source.as_ref(), &header)?;
        let sections = read_sections(source.as_ref(), &header);
        Ok(Self { source, header, segments: segments.into(), sections: sections.into() })
    }

    /// Returns the bytes of its tables. Clones share them.
    pub fn memory_bytes(&self) -> u64 {
        let names: usize = self.sections.iter().map(|section| section.name.len()).sum();
        (size_of_val(&*self.segments) + size_of_val(&*self.sections) + names) as u64
    }

    /// Returns the bytes of the file.
    pub fn source(&self) -> &Arc<dyn ReadAt> {
        &self.source
    }

    /// Returns the address of the first instruction. 0 if there is none.
    pub fn entry(&self) -> u64 {
        self.header.entry
    }

    /// Returns whether the file is an executable that is loaded where its addresses say.
    pub fn is_fixed_executable(&self) -> bool {
        self.header.kind == KIND_EXECUTABLE
    }

    /// Returns the program headers.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns the section headers. A file without them has none.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// Returns the first section of a name that has bytes.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| &*section.name == name && section.has_bytes())
    }

    /// Returns the bytes of a section as they are in the file, at most `limit`.
    ///
    /// # Errors
    ///
    /// Fails if the section is larger or cannot be read.
    pub fn read_section(&self, section: &Section, limit: u64) -> Result<Vec<u8>, ReadError> {
        self.source.read_vec(section.offset, section.size, limit)
    }

    /// Returns the offset in the file of an address. None if its byte is not in the file.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        self.load_segments().find_map(|segment| segment.offset_of(address))
    }

    /// Returns up to `length` bytes at an address: fewer where the segment ends in the file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub fn read_address(&self, address: u64, length: u64) -> Result<Vec<u8>, ReadError> {
        let found = self.load_segments().find_map(|segment| Some((segment, segment.offset_of(address)?)));
        let Some((segment, offset)) = found else { return Ok(Vec::new()) };
        let available = segment.file_size.saturating_sub(address.saturating_sub(segment.address));
        self.source.read_up_to(offset, length.min(available))
    }

    /// Returns the bias of a mapping of the file: address in the file = address in the process − bias, wrapping.
    /// None if no segment of the file is mapped there.
    ///
    /// Linkers may put neighboring segments into one page of the file, with different distances of offset and
    /// address. Code segments go before others, then the segment whose first page starts the mapping, then the one
    /// with the longest part in it.
    pub fn bias_of(&self, map_start: u64, file_offset: u64, length: u64) -> Option<u64> {
        let overlap = |segment: &Segment| {
            let start = segment.offset.max(file_offset);
            let end = segment.offset.saturating_add(segment.file_size);
            end.min(file_offset.saturating_add(length)).saturating_sub(start)
        };
        let is_begin = |segment: &Segment| segment.offset & !(MEMORY_PAGE_BYTES - 1) == file_offset;
        let segment = self
            .load_segments()
            .filter(|segment| overlap(segment) > 0)
            .max_by_key(|segment| (segment.is_code(), is_begin(segment), overlap(segment)))?;
        let distance = segment.offset.wrapping_sub(segment.address);
        Some(map_start.wrapping_sub(file_offset).wrapping_add(distance))
    }

    /// Returns offset and length of the program headers.
    pub(super) fn segment_table(&self) -> (u64, u64) {
        self.header.segment_table(self.segments.len())
    }

    /// Returns the place of `.eh_frame_hdr`.
    pub fn eh_frame_header(&self) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.kind == SEGMENT_EH_FRAME_HEADER)
    }

    /// Returns the segments that are loaded.
    pub fn load_segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.is_load())
    }

    /// Returns the segments that are loaded as code.
    pub fn code_segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.is_code())
    }

    /// Returns the segments with notes.
    pub(super) fn note_segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.kind == SEGMENT_NOTES)
    }

    /// Returns the segment with the dynamic section.
    pub(super) fn dynamic_segment(&self) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.kind == SEGMENT_DYNAMIC)
    }

    /// Returns whether the file names a dynamic linker.
    pub(super) fn has_interpreter(&self) -> bool {
        self.segments.iter().any(|segment| segment.kind == SEGMENT_INTERPRETER)
    }
}

impl std::fmt::Debug for ElfFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ElfFile")
            .field("header", &self.header)
            .field("segments", &self.segments.len())
            .field("sections", &self.sections.len())
            .finish_non_exhaustive()
    }
}
