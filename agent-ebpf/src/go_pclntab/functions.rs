//! Functions of a table, by address.

use super::header::{FunctionTableError, TableHeader, TableVersion};
use super::text_start::find_text_start;
use crate::elf::ElfFile;
use crate::symbols::window_reader::WindowReader;

/// Maximum bytes of a name that are read.
const MAX_NAME_BYTES: usize = 4096;

/// Function of a Go program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoFunction {
    /// Address of its first instruction.
    pub start: u64,
    /// Address of the next function.
    pub end: u64,
    /// Name, such as `net/http.(*conn).serve`.
    pub name: String,
}

/// Function table of a file. It holds positions, no content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoFunctionTable {
    pub(super) header: TableHeader,
    /// Address that relative entries count from. 0 if entries are addresses.
    text_start: u64,
    first_address: u64,
    end_address: u64,
}

/// Position of a function in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct FunctionEntry {
    pub start: u64,
    pub end: u64,
    /// Offset of the record in the table.
    pub record: u64,
}

impl GoFunctionTable {
    /// Finds the table of a file. None if the file has none.
    ///
    /// # Errors
    ///
    /// Fails if the table is damaged or its text start is not known.
    pub fn find(file: &ElfFile) -> Result<Option<Self>, FunctionTableError> {
        let Some(header) = TableHeader::find(file)? else { return Ok(None) };
        let mut text_start = 0;
        if header.version.has_relative_entries() {
            text_start = find_text_start(file, &header).ok_or(FunctionTableError::NoTextStart)?;
        }
        let mut table = Self { header, text_start, first_address: 0, end_address: 0 };
        let mut reader = WindowReader::new(file.source().as_ref(), header.offset, header.size);
        let mut read = |index| {
            let truncated = FunctionTableError::Truncated { offset: table.entry_offset(index) };
            table.entry_address(&mut reader, index).ok_or(truncated)
        };
        let first_address = read(0)?;
        let end_address = read(header.function_count)?;
        (table.first_address, table.end_address) = (first_address, end_address);
        Ok(Some(table))
    }

    /// Returns the layout of the table.
    pub fn version(&self) -> TableVersion {
        self.header.version
    }

    /// Returns the number of functions.
    pub fn function_count(&self) -> u64 {
        self.header.function_count
    }

    /// Returns the addresses of all functions. Code of other languages lies outside of them.
    pub fn address_range(&self) -> std::ops::Range<u64> {
        self.first_address..self.end_address
    }

    /// Returns the function at an address. None if there is none or the table is damaged there.
    pub fn function_at(&self, file: &ElfFile, address: u64) -> Option<GoFunction> {
        let mut reader = self.reader(file);
        let index = self.find_index(&mut reader, address)?;
        let entry = self.entry(&mut reader, index)?;
        let name = self.name(&mut reader, &entry, MAX_NAME_BYTES)?;
        let name = String::from_utf8_lossy(&name).into_owned();
        (!name.is_empty()).then_some(GoFunction { start: entry.start, end: entry.end, name })
    }

    pub(super) fn reader<'a>(&self, file: &'a ElfFile) -> WindowReader<'a> {
        WindowReader::new(file.source().as_ref(), self.header.offset, self.header.size)
    }

    /// Returns the index of the function at an address.
    pub(super) fn find_index(&self, reader: &mut WindowReader<'_>, address: u64) -> Option<u64> {
        if !self.address_range().contains(&address) {
            return None;
        }
        let mut low = 0;
        let mut high = self.header.function_count;
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry_address(reader, middle)? <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1)
    }

    /// Returns a function. None if its end is not after its start.
    pub(super) fn entry(&self, reader: &mut WindowReader<'_>, index: u64) -> Option<FunctionEntry> {
        let field_bytes = self.header.version.entry_field_bytes();
        let start = self.entry_address(reader, index)?;
        let end = self.entry_address(reader, index + 1)?;
        let record = self.number(reader, self.entry_offset(index) + field_bytes)?;
        let record = self.header.functions.checked_add(record)?;
        (start < end).then_some(FunctionEntry { start, end, record })
    }

    /// Returns the name of a function, cut after `limit` bytes.
    pub(super) fn name(
        &self,
        reader: &mut WindowReader<'_>,
        entry: &FunctionEntry,
        limit: usize,
    ) -> Option<Vec<u8>> {
        let field = entry.record.checked_add(self.header.version.entry_field_bytes())?;
        let name_offset = reader.number32(field)?;
        let offset = self.header.names.checked_add(u64::from(name_offset))?;
        reader.text(offset, limit).map(<[u8]>::to_vec)
    }

    fn entry_offset(&self, index: u64) -> u64 {
        self.header.entries + index * self.header.version.entry_field_bytes() * 2
    }

    fn entry_address(&self, reader: &mut WindowReader<'_>, index: u64) -> Option<u64> {
        self.text_start.checked_add(self.number(reader, self.entry_offset(index))?)
    }

    fn number(&self, reader: &mut WindowReader<'_>, offset: u64) -> Option<u64> {
        match self.header.version.has_relative_entries() {
            true => reader.number32(offset).map(u64::from),
            false => reader.number64(offset),
        }
    }
}
