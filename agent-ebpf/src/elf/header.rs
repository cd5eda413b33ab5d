//! Tables of an ELF file: file header, program headers, section headers.

use super::ElfError;
use super::bytes::ByteReader;
use super::read_at::ReadAt;

const FILE_HEADER_BYTES: u64 = 64;
const SEGMENT_BYTES: u64 = 56;
const SECTION_BYTES: u64 = 64;
/// The kernel runs no file whose program headers exceed 64 KiB.
const MAX_SEGMENTS: u64 = 65_536 / SEGMENT_BYTES;
/// Linked files have fewer than 100.
const MAX_SECTIONS: u64 = 4096;
const MAX_SECTION_NAMES_BYTES: u64 = 1 << 20;
const MAX_SECTION_NAME_BYTES: usize = 64;
/// `e_phnum` of files whose count is in the first section header.
const EXTENDED_COUNT: u64 = 0xffff;
const MACHINE_X86_64: u64 = 62;

/// Loaded part of the file.
pub const SEGMENT_LOAD: u32 = 1;
const FLAG_EXECUTE: u32 = 1;
const FLAG_WRITE: u32 = 2;
const SECTION_WITHOUT_BYTES: u32 = 8;
const SECTION_FLAG_COMPRESSED: u64 = 0x800;

/// Program header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// `p_type`.
    pub kind: u32,
    /// `p_flags`.
    pub flags: u32,
    /// Offset in the file.
    pub offset: u64,
    /// Address in the file.
    pub address: u64,
    /// Bytes in the file.
    pub file_size: u64,
    /// Bytes in memory.
    pub memory_size: u64,
}

impl Segment {
    /// Returns whether it is loaded.
    pub fn is_load(&self) -> bool {
        self.kind == SEGMENT_LOAD
    }

    /// Returns whether it is loaded as code.
    pub fn is_code(&self) -> bool {
        self.is_load() && self.flags & FLAG_EXECUTE != 0
    }

    /// Returns whether it is loaded as data that can change.
    pub fn is_writable(&self) -> bool {
        self.is_load() && self.flags & FLAG_WRITE != 0
    }

    /// Returns the offset in the file of an address whose bytes are in the file.
    pub(super) fn offset_of(&self, address: u64) -> Option<u64> {
        let distance = address.checked_sub(self.address).filter(|distance| *distance < self.file_size)?;
        self.offset.checked_add(distance)
    }
}

/// Section header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Name. Empty if it is too long or no text.
    pub name: Box<str>,
    /// `sh_type`.
    pub kind: u32,
    /// `sh_flags`.
    pub flags: u64,
    /// Address in the file. 0 if it is not loaded.
    pub address: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Index of a section it refers to.
    pub link: u32,
    /// Bytes of an entry.
    pub entry_size: u64,
}

impl Section {
    /// Returns whether the bytes are compressed.
    pub fn is_compressed(&self) -> bool {
        self.flags & SECTION_FLAG_COMPRESSED != 0
    }

    /// Returns whether the section has bytes in the file.
    pub fn has_bytes(&self) -> bool {
        self.kind != SECTION_WITHOUT_BYTES
    }
}

/// File header without what has one legal value.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileHeader {
    pub kind: u16,
    pub entry: u64,
    segments_offset: u64,
    segment_count: u64,
    sections_offset: u64,
    section_count: u64,
    names_index: u64,
}

impl FileHeader {
    /// Returns offset and length of a number of program headers.
    pub(super) fn segment_table(&self, count: usize) -> (u64, u64) {
        (self.segments_offset, count as u64 * SEGMENT_BYTES)
    }
}

/// Reads and checks the file header.
pub(super) fn read_file_header(source: &dyn ReadAt) -> Result<FileHeader, ElfError> {
    let bytes = source.read_vec(0, FILE_HEADER_BYTES, FILE_HEADER_BYTES)?;
    let mut reader = ByteReader::new(&bytes);
    let mut next = |width: u32| match width {
        1 => reader.u8().map(u64::from),
        2 => reader.u16().map(u64::from),
        4 => reader.u32().map(u64::from),
        _ => reader.u64(),
    };
    // The buffer has the size of the whole header.
    let mut field = |width| next(width).unwrap_or_default();
    expect("magic", field(4), 0x464c_457f, "0x464c457f")?;
    expect("class", field(1), 2, "2 (64 bits)")?;
    expect("byte order", field(1), 1, "1 (little endian)")?;
    field(2);
    field(8);
    let kind = field(2);
    if kind != 2 && kind != 3 {
        return Err(ElfError::Unsupported {
            what: "type",
            value: kind,
            expected: "2 (executable) or 3 (shared)",
        });
    }
    expect("machine", field(2), MACHINE_X86_64, "62 (x86-64)")?;
    field(4);
    let entry = field(8);
    let segments_offset = field(8);
    let sections_offset = field(8);
    field(4);
    field(2);
    let segment_bytes = field(2);
    let segment_count = field(2);
    let section_bytes = field(2);
    let section_count = field(2);
    let names_index = field(2);
    if segment_count > 0 {
        expect("size of a program header", segment_bytes, SEGMENT_BYTES, "56")?;
    }
    let has_sections = sections_offset != 0 && section_bytes == SECTION_BYTES;
    Ok(FileHeader {
        kind: kind as u16,
        entry,
        segments_offset,
        segment_count,
        sections_offset: if has_sections { sections_offset } else { 0 },
        section_count,
        names_index,
    })
}

fn expect(what: &'static str, value: u64, wanted: u64, expected: &'static str) -> Result<(), ElfError> {
    if value == wanted { Ok(()) } else { Err(ElfError::Unsupported { what, value, expected }) }
}

/// Reads the program headers.
pub(super) fn read_segments(source: &dyn ReadAt, header: &FileHeader) -> Result<Vec<Segment>, ElfError> {
    let mut count = header.segment_count;
    if count == EXTENDED_COUNT
        && let Some(first) = read_first_section(source, header)
    {
        count = first.info.into();
    }
    if count > MAX_SEGMENTS {
        return Err(ElfError::TooMany { what: "program headers", count, limit: MAX_SEGMENTS });
    }
    let length = count * SEGMENT_BYTES;
    let bytes = source.read_vec(header.segments_offset, length, length)?;
    Ok(bytes.chunks_exact(SEGMENT_BYTES as usize).filter_map(parse_segment).collect())
}

fn parse_segment(bytes: &[u8]) -> Option<Segment> {
    let mut reader = ByteReader::new(bytes);
    let kind = reader.u32()?;
    let flags = reader.u32()?;
    let offset = reader.u64()?;
    let address = reader.u64()?;
    reader.u64()?;
    let file_size = reader.u64()?;
    let memory_size = reader.u64()?;
    Some(Segment { kind, flags, offset, address, file_size, memory_size })
}

fn read_first_section(source: &dyn ReadAt, header: &FileHeader) -> Option<RawSection> {
    if header.sections_offset == 0 {
        return None;
    }
    let bytes = source.read_vec(header.sections_offset, SECTION_BYTES, SECTION_BYTES).ok()?;
    parse_section(&bytes)
}

/// Section header with the position of its name.
struct RawSection {
    name_offset: u32,
    info: u32,
    section: Section,
}

fn parse_section(bytes: &[u8]) -> Option<RawSection> {
    let mut reader = ByteReader::new(bytes);
    let name_offset = reader.u32()?;
    let kind = reader.u32()?;
    let flags = reader.u64()?;
    let address = reader.u64()?;
    let offset = reader.u64()?;
    let size = reader.u64()?;
    let link = reader.u32()?;
    let info = reader.u32()?;
    reader.u64()?;
    let entry_size = reader.u64()?;
    let name = Box::default();
    let section = Section { name, kind, flags, address, offset, size, link, entry_size };
    Some(RawSection { name_offset, info, section })
}

/// Reads the section headers. A file whose section headers are missing or damaged has none.
pub(super) fn read_sections(source: &dyn ReadAt, header: &FileHeader) -> Vec<Section> {
    read_raw_sections(source, header).unwrap_or_default()
}

fn read_raw_sections(source: &dyn ReadAt, header: &FileHeader) -> Option<Vec<Section>> {
    let first = read_first_section(source, header)?;
    let count = if header.section_count == 0 { first.section.size } else { header.section_count };
    let names_index =
        if header.names_index == EXTENDED_COUNT { u64::from(first.section.link) } else { header.names_index };
    if count > MAX_SECTIONS {
        return None;
    }
    let length = count * SECTION_BYTES;
    let bytes = source.read_vec(header.sections_offset, length, length).ok()?;
    let raw: Vec<RawSection> = bytes.chunks_exact(SECTION_BYTES as usize).filter_map(parse_section).collect();
    let table = &raw.get(usize::try_from(names_index).ok()?)?.section;
    let names = source.read_vec(table.offset, table.size, MAX_SECTION_NAMES_BYTES).ok()?;
    let named = raw.into_iter().map(|raw| Section { name: name_at(&names, raw.name_offset), ..raw.section });
    Some(named.collect())
}

/// Returns the name at a position. A name that is too long or no text is empty.
fn name_at(names: &[u8], offset: u32) -> Box<str> {
    let tail = names.get(offset as usize..).unwrap_or_default();
    let head = tail.get(..MAX_SECTION_NAME_BYTES).unwrap_or(tail);
    let name = head.split(|byte| *byte == 0).next().unwrap_or_default();
    if name.len() == MAX_SECTION_NAME_BYTES {
        return Box::default();
    }
    std::str::from_utf8(name).unwrap_or_default().into()
}
