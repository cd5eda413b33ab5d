//! Header of the function table, and where it lies.

use crate::elf::ElfFile;
use crate::symbols::window_reader::WindowReader;

/// Maximum number of functions of a file.
const MAX_FUNCTIONS: u64 = 1 << 22;
/// Maximum bytes that are searched for a header if a file has no sections.
const MAX_SEARCHED_BYTES: u64 = 256 << 20;
/// Maximum number of places that are tried as a header in that search.
const MAX_TRIED_HEADERS: usize = 64;
/// Bytes of one read of that search.
const SEARCH_READ_BYTES: u64 = 64 << 10;
/// Bytes of the longest header.
const MAX_HEADER_BYTES: usize = 72;
/// Names of the section, in executables and in position-independent ones.
const SECTION_NAMES: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

/// Layout of the table, named after the first Go version with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableVersion {
    /// Go 1.2 to 1.15.
    Go2,
    /// Go 1.16 and 1.17.
    Go16,
    /// Go 1.18 and 1.19.
    Go18,
    /// Go 1.20 and later.
    Go20,
}

impl TableVersion {
    fn from_magic(magic: u32) -> Option<Self> {
        match magic {
            0xffff_fffb => Some(Self::Go2),
            0xffff_fffa => Some(Self::Go16),
            0xffff_fff0 => Some(Self::Go18),
            0xffff_fff1 => Some(Self::Go20),
            _ => None,
        }
    }

    /// Returns whether entries of functions are offsets from the text start, not addresses.
    pub(super) fn has_relative_entries(self) -> bool {
        self >= Self::Go18
    }

    /// Returns the bytes of one of the two fields of an entry of the function table.
    pub(super) fn entry_field_bytes(self) -> u64 {
        if self.has_relative_entries() { 4 } else { 8 }
    }

    /// Returns the offset of the function id in a function record.
    pub(super) fn function_id_offset(self) -> u64 {
        let fields = match self {
            Self::Go2 => 28,
            Self::Go16 | Self::Go18 => 32,
            Self::Go20 => 36,
        };
        self.entry_field_bytes() + fields
    }
}

/// Reason why a Go function table cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FunctionTableError {
    /// The header is damaged.
    #[error(
        "header of the go function table is not valid: {field} is {value:#x}; functions of the file get no names"
    )]
    Header {
        /// Field of the header.
        field: &'static str,
        /// Value of the field.
        value: u64,
    },
    /// More functions than supported.
    #[error("go function table has {functions} functions, the limit is {MAX_FUNCTIONS}; they get no names")]
    TooManyFunctions {
        /// Number of functions.
        functions: u64,
    },
    /// Entries are not sorted: damaged, or addresses are filled in by the loader.
    #[error(
        "entries of the go function table are not sorted at entry {entry}; functions of the file get no names"
    )]
    NotSorted {
        /// Index of the entry.
        entry: u64,
    },
    /// The text start is not known.
    #[error(
        "text start of the go function table was not found in header, relocations and moduledata; functions of the file get no names"
    )]
    NoTextStart,
    /// The file ends within the table.
    #[error(
        "file ends within the go function table, at byte {offset} of the table; functions of the file get no names"
    )]
    Truncated {
        /// Offset in the table.
        offset: u64,
    },
}

/// Bytes that a table may take.
struct TableRange {
    address: u64,
    offset: u64,
    size: u64,
}

/// Position of the parts of a table. Offsets count from the start of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableHeader {
    pub version: TableVersion,
    /// ELF virtual address of the table.
    pub address: u64,
    /// Offset of the table in the file.
    pub offset: u64,
    /// Bytes of the table.
    pub size: u64,
    /// Number of functions.
    pub function_count: u64,
    /// Text start in the header. 0 if it is not there.
    pub text_start: u64,
    /// Offset of the names.
    pub names: u64,
    /// Offset of tables of values by pc.
    pub pc_values: u64,
    /// Offset of the function table, and base of the records.
    pub functions: u64,
    /// Offset of the first entry.
    pub entries: u64,
}

impl TableHeader {
    /// Finds the table by the name of its section. A file without sections is searched for a header. None if the file
    /// has no table.
    pub(super) fn find(file: &ElfFile) -> Result<Option<Self>, FunctionTableError> {
        if let Some(section) = SECTION_NAMES.iter().find_map(|name| file.section(name)) {
            let range = TableRange { address: section.address, offset: section.offset, size: section.size };
            return Self::parse(file, range).map(Some);
        }
        if file.sections().is_empty() { Ok(Self::search(file)) } else { Ok(None) }
    }

    /// Searches segments that are not executable. Tables are aligned to eight bytes.
    fn search(file: &ElfFile) -> Option<Self> {
        let mut budget = MAX_SEARCHED_BYTES;
        let mut tries = MAX_TRIED_HEADERS;
        let mut buffer = vec![0; SEARCH_READ_BYTES as usize];
        for segment in file.load_segments().filter(|segment| !segment.is_code()) {
            let skipped = segment.address.wrapping_neg() % 8;
            let mut at = skipped;
            while at < segment.file_size && budget > 0 {
                let length = SEARCH_READ_BYTES.min(segment.file_size - at);
                let bytes = buffer.get_mut(..length as usize)?;
                if file.source().read_at(segment.offset.checked_add(at)?, bytes).is_err() {
                    break;
                }
                for (index, _) in (0u64..).zip(bytes.chunks_exact(8)).filter(|(_, word)| is_start(word)) {
                    tries = tries.checked_sub(1)?;
                    let found = at + index * 8;
                    let range = TableRange {
                        address: segment.address.checked_add(found)?,
                        offset: segment.offset.checked_add(found)?,
                        size: segment.file_size - found,
                    };
                    if let Ok(header) = Self::parse(file, range) {
                        return Some(header);
                    }
                }
                budget = budget.saturating_sub(length);
                at += length;
            }
        }
        None
    }

    fn parse(file: &ElfFile, range: TableRange) -> Result<Self, FunctionTableError> {
        let mut reader = WindowReader::new(file.source().as_ref(), range.offset, range.size);
        let bytes = reader.bytes_up_to(0, MAX_HEADER_BYTES).unwrap_or_default();
        let start = bytes.get(..8).filter(|word| is_start(word)).ok_or_else(|| {
            FunctionTableError::Header { field: "magic", value: read_word(bytes, 0).unwrap_or_default() }
        })?;
        let magic = u32::from_le_bytes([start[0], start[1], start[2], start[3]]);
        let version = TableVersion::from_magic(magic)
            .ok_or(FunctionTableError::Header { field: "magic", value: u64::from(magic) })?;
        let word = |index: usize| {
            read_word(bytes, index * 8).ok_or(FunctionTableError::Truncated { offset: index as u64 * 8 })
        };
        let mut header = Self {
            version,
            address: range.address,
            offset: range.offset,
            size: range.size,
            function_count: word(1)?,
            text_start: 0,
            names: 0,
            pc_values: 0,
            functions: 0,
            entries: 16,
        };
        match version {
            TableVersion::Go2 => {}
            TableVersion::Go16 => {
                (header.names, header.pc_values) = (word(3)?, word(6)?);
                (header.functions, header.entries) = (word(7)?, word(7)?);
            }
            TableVersion::Go18 | TableVersion::Go20 => {
                header.text_start = word(3)?;
                (header.names, header.pc_values) = (word(4)?, word(7)?);
                (header.functions, header.entries) = (word(8)?, word(8)?);
            }
        }
        header.validate(file)?;
        Ok(header)
    }

    fn validate(&self, file: &ElfFile) -> Result<(), FunctionTableError> {
        if self.function_count == 0 {
            return Err(FunctionTableError::Header { field: "number of functions", value: 0 });
        }
        if self.function_count > MAX_FUNCTIONS {
            return Err(FunctionTableError::TooManyFunctions { functions: self.function_count });
        }
        let parts = [("names", self.names), ("pc tables", self.pc_values), ("functions", self.functions)];
        for (field, value) in parts {
            if value >= self.size {
                return Err(FunctionTableError::Header { field, value });
            }
        }
        let field_bytes = self.version.entry_field_bytes();
        let entry_bytes = self.function_count * 2 * field_bytes + field_bytes;
        let end = self.entries.saturating_add(entry_bytes);
        if end > self.size {
            return Err(FunctionTableError::Truncated { offset: end });
        }
        self.validate_order(file)
    }

    /// Checks that a few entries and the end are in order.
    fn validate_order(&self, file: &ElfFile) -> Result<(), FunctionTableError> {
        let stride = self.version.entry_field_bytes() * 2;
        let mut reader = WindowReader::new(file.source().as_ref(), self.offset, self.size);
        let mut last = None;
        for part in 0..=16 {
            let entry = self.function_count * part / 16;
            let offset = self.entries + entry * stride;
            let value = match self.version.has_relative_entries() {
                true => reader.number32(offset).map(u64::from),
                false => reader.number64(offset),
            };
            let value = value.ok_or(FunctionTableError::Truncated { offset })?;
            let is_new = part == 0 || entry > self.function_count * (part - 1) / 16;
            if is_new && last.is_some_and(|last| value <= last) {
                return Err(FunctionTableError::NotSorted { entry });
            }
            last = Some(value);
        }
        Ok(())
    }
}

/// Returns whether eight bytes begin a table: magic, two zeros, instructions of one byte, pointers of eight.
fn is_start(word: &[u8]) -> bool {
    let [magic @ .., zero, zero_too, quantum, pointer_bytes] = word else { return false };
    let Ok(magic) = magic.try_into() else { return false };
    let is_magic = TableVersion::from_magic(u32::from_le_bytes(magic)).is_some();
    is_magic && [*zero, *zero_too, *quantum, *pointer_bytes] == [0, 0, 1, 8]
}

fn read_word(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(offset..offset.checked_add(8)?)?.try_into().ok()?))
}
