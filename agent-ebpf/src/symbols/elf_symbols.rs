//! Compact table of the symbols of a file: eight bytes per symbol. Sizes and names stay in the file.

use super::window_reader::WindowReader;
use crate::elf::ElfFile;

/// Bytes of a symbol in the file.
const SYMBOL_BYTES: u64 = 24;
/// Bits of [`SymbolEntry::index`] below the number of the symbol table.
const INDEX_BITS: u32 = 22;
/// Maximum number of symbols of a section that are read.
const MAX_SYMBOLS_READ: u64 = 1 << INDEX_BITS;
/// Maximum number of symbols that a lookup reads.
const MAX_CANDIDATES: usize = 32;
/// Maximum bytes of a symbol's name that are read.
const MAX_SYMBOL_NAME_BYTES: usize = 4096;
/// Types of symbols of code: none, function, indirect function.
const CODE_SYMBOL_TYPES: [u8; 3] = [0, 2, 10];

/// Symbol found at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSymbol {
    /// Address of the function.
    pub start: u64,
    /// Name as in the file, without version.
    pub name: String,
}

/// Object file, and the file with the symbols that were stripped from it.
#[derive(Clone, Copy)]
pub struct SymbolFiles<'a> {
    /// File that runs.
    pub object: &'a ElfFile,
    /// Separate debug file.
    pub debug: Option<&'a ElfFile>,
}

/// Symbol: address and place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SymbolEntry {
    /// Address, counted from the start of code.
    address: u32,
    /// Index in its section, and above it the number of the section in [`SymbolTable::sections`].
    index: u32,
}

/// Place of a symbol table and its names.
#[derive(Clone, Copy, Debug)]
struct SymbolSection {
    in_debug_file: bool,
    symbols_offset: u64,
    symbols_size: u64,
    names_offset: u64,
    names_size: u64,
}

/// Functions of a file, sorted by address.
#[derive(Clone, Debug, Default)]
pub struct SymbolTable {
    base: u64,
    sections: Vec<SymbolSection>,
    entries: Vec<SymbolEntry>,
    dropped: u64,
}

/// Symbol as it is in the file.
#[derive(Clone, Copy)]
struct RawSymbol {
    name: u32,
    info: u8,
    section: u16,
    address: u64,
    size: u64,
}

impl SymbolTable {
    /// Reads the symbol tables of a file: `.symtab` of the file or of its debug file, and `.dynsym`. At most
    /// `max_symbols` are held, the others are counted.
    pub fn read(files: SymbolFiles<'_>, max_symbols: usize) -> Self {
        let base = files.object.code_segments().map(|segment| segment.address).min().unwrap_or(0);
        let own = find_section(files.object, ".symtab", false);
        let debug = || find_section(files.debug?, ".symtab", true);
        let dynamic = find_section(files.object, ".dynsym", false);
        let sections = own.or_else(debug).into_iter().chain(dynamic).collect();
        let mut table = Self { base, sections, ..Self::default() };
        for number in 0..table.sections.len() {
            table.add_section(files, number, max_symbols);
        }
        table.entries.sort_unstable();
        table.entries.shrink_to_fit();
        table
    }

    /// Returns the number of symbols.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no symbols.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of symbols that exceeded the bound.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the bytes of memory.
    pub fn memory(&self) -> usize {
        let sections = self.sections.capacity() * size_of::<SymbolSection>();
        size_of::<Self>() + sections + self.entries.capacity() * size_of::<SymbolEntry>()
    }

    fn add_section(&mut self, files: SymbolFiles<'_>, number: usize, max_symbols: usize) {
        let Some(section) = self.sections.get(number).copied() else { return };
        let Some(file) = files.file_of(&section) else { return };
        let mut reader = section.symbols(file);
        let count = reader.size() / SYMBOL_BYTES;
        self.dropped += count.saturating_sub(MAX_SYMBOLS_READ);
        for index in 0..count.min(MAX_SYMBOLS_READ) {
            let Some(symbol) = read_symbol(&mut reader, index) else { return };
            if !symbol.is_code_of(files.object) {
                continue;
            }
            let address =
                symbol.address.checked_sub(self.base).and_then(|address| u32::try_from(address).ok());
            match address {
                Some(address) if self.entries.len() < max_symbols => {
                    let index = index as u32 | (number as u32) << INDEX_BITS;
                    self.entries.push(SymbolEntry { address, index });
                }
                _ => self.dropped += 1,
            }
        }
    }

    /// Returns the symbol at an address. A symbol with a size must contain it. One without a size reaches to the next
    /// symbol or the end of its section.
    pub fn find(&self, files: SymbolFiles<'_>, address: u64) -> Option<FoundSymbol> {
        let relative = u32::try_from(address.checked_sub(self.base)?).ok()?;
        let end = self.entries.partition_point(|entry| entry.address <= relative);
        let mut sized = None::<Candidate>;
        let mut open = None::<Candidate>;
        let mut nearest = None;
        for entry in self.entries.get(..end)?.iter().rev().take(MAX_CANDIDATES) {
            if sized.as_ref().is_some_and(|best| best.start != entry.address) {
                break;
            }
            let Some(symbol) = self.read_entry(files, *entry) else { continue };
            let is_nearest = *nearest.get_or_insert(entry.address) == entry.address;
            let best = if symbol.size > 0 && address.wrapping_sub(symbol.address) < symbol.size {
                &mut sized
            } else if symbol.size == 0 && is_nearest && symbol.section_contains(files.object, address) {
                &mut open
            } else {
                continue;
            };
            if let Some(candidate) = self.candidate(files, *entry, &symbol) {
                let is_better = best.as_ref().is_none_or(|best| candidate < *best);
                if is_better {
                    *best = Some(candidate);
                }
            }
        }
        let best = sized.or(open)?;
        Some(FoundSymbol { start: self.base + u64::from(best.start), name: best.name })
    }

    fn section_of(&self, entry: SymbolEntry) -> Option<&SymbolSection> {
        self.sections.get((entry.index >> INDEX_BITS) as usize)
    }

    fn read_entry(&self, files: SymbolFiles<'_>, entry: SymbolEntry) -> Option<RawSymbol> {
        let section = self.section_of(entry)?;
        let file = files.file_of(section)?;
        let index = u64::from(entry.index) & (MAX_SYMBOLS_READ - 1);
        let offset = section.symbols_offset.checked_add(index * SYMBOL_BYTES)?;
        read_symbol(&mut WindowReader::new(file.source().as_ref(), offset, SYMBOL_BYTES), 0)
    }

    fn candidate(&self, files: SymbolFiles<'_>, entry: SymbolEntry, symbol: &RawSymbol) -> Option<Candidate> {
        let section = self.section_of(entry)?;
        let mut reader = section.names(files.file_of(section)?);
        let name = reader.text(u64::from(symbol.name), MAX_SYMBOL_NAME_BYTES)?;
        let name = String::from_utf8_lossy(name);
        let name = strip_version(&name);
        (!name.is_empty()).then(|| Candidate {
            is_label: symbol.kind() == 0,
            is_local: symbol.info >> 4 == 0,
            leading_underscores: name.len() - name.trim_start_matches('_').len(),
            length: name.len(),
            name: name.to_owned(),
            start: entry.address,
        })
    }
}

impl<'a> SymbolFiles<'a> {
    fn file_of(self, section: &SymbolSection) -> Option<&'a ElfFile> {
        if section.in_debug_file { self.debug } else { Some(self.object) }
    }
}

impl SymbolSection {
    fn symbols<'a>(&self, file: &'a ElfFile) -> WindowReader<'a> {
        WindowReader::new(file.source().as_ref(), self.symbols_offset, self.symbols_size)
    }

    fn names<'a>(&self, file: &'a ElfFile) -> WindowReader<'a> {
        WindowReader::new(file.source().as_ref(), self.names_offset, self.names_size)
    }
}

fn find_section(file: &ElfFile, name: &str, in_debug_file: bool) -> Option<SymbolSection> {
    let symbols = file.section(name)?;
    let names = file.sections().get(symbols.link as usize)?;
    Some(SymbolSection {
        in_debug_file,
        symbols_offset: symbols.offset,
        symbols_size: symbols.size,
        names_offset: names.offset,
        names_size: names.size,
    })
}

impl RawSymbol {
    fn kind(&self) -> u8 {
        self.info & 15
    }

    /// Returns whether the symbol is defined and lies in code.
    fn is_code_of(&self, file: &ElfFile) -> bool {
        let is_named = self.section != 0 && self.name != 0 && CODE_SYMBOL_TYPES.contains(&self.kind());
        let contains = |start: u64, size: u64| self.address.wrapping_sub(start) < size;
        is_named && file.code_segments().any(|segment| contains(segment.address, segment.file_size))
    }

    /// Returns whether an address lies in the section of the symbol.
    fn section_contains(&self, file: &ElfFile, address: u64) -> bool {
        let section = file.sections().get(usize::from(self.section));
        section.is_some_and(|section| address.wrapping_sub(section.address) < section.size)
    }
}

fn read_symbol(reader: &mut WindowReader<'_>, index: u64) -> Option<RawSymbol> {
    let bytes = reader.bytes(index.checked_mul(SYMBOL_BYTES)?, SYMBOL_BYTES as usize)?;
    Some(RawSymbol {
        name: u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?),
        info: *bytes.get(4)?,
        section: u16::from_le_bytes(bytes.get(6..8)?.try_into().ok()?),
        address: u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?),
        size: u64::from_le_bytes(bytes.get(16..24)?.try_into().ok()?),
    })
}

/// Symbol that contains an address. The smallest one names it: functions before labels, global before local, plain
/// names before those with leading underscores, short before long.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    is_label: bool,
    is_local: bool,
    leading_underscores: usize,
    length: usize,
    name: String,
    start: u32,
}

/// Removes the version of a symbol: `memcpy@@GLIBC_2.14`. `@plt` stays.
fn strip_version(name: &str) -> &str {
    match name.find('@') {
        Some(at) if at > 0 && name.get(at..) != Some("@plt") => name.get(..at).unwrap_or(name),
        _ => name,
    }
}
