//! Text start: the address that entries of functions are relative to.
//!
//! The header has it up to Go 1.25. In position-independent files a relocation fills it in. Later versions have it in
//! the moduledata only, whose fields may be filled in by relocations too.

use super::header::TableHeader;
use crate::elf::{ElfFile, Segment};
use crate::symbols::window_reader::WindowReader;

/// Offset of the text start in the header.
const HEADER_FIELD_OFFSET: u64 = 24;
/// Offset of the lowest address of functions in the moduledata.
const MODULE_LOWEST_PC_OFFSET: u64 = 160;
/// Offset of the text start in the moduledata.
const MODULE_TEXT_OFFSET: u64 = 176;
/// Maximum bytes that are searched for the moduledata.
const MAX_SEARCHED_BYTES: u64 = 32 << 20;
/// Maximum number of relocations that are read.
const MAX_RELOCATIONS: u64 = 8 << 20;
/// Maximum bytes between the end of functions and the end of `.text`.
const MAX_TEXT_PADDING_BYTES: u64 = 64;
/// Bytes of a relocation.
const RELOCATION_BYTES: u64 = 24;
/// Type of a relocation that adds the load address.
const RELATIVE_RELOCATION: u64 = 8;
/// Names of sections with the moduledata.
const MODULE_SECTIONS: [&str; 3] = [".go.module", ".noptrdata", ".data"];
/// Names of sections with relocations.
const RELOCATION_SECTIONS: [&str; 3] = [".rela.dyn", ".rela", ".rela.go"];

/// Finds the text start. None if no source has a valid one.
pub(super) fn find_text_start(file: &ElfFile, header: &TableHeader) -> Option<u64> {
    if is_valid(file, header, header.text_start) {
        return Some(header.text_start);
    }
    let sources: [fn(&ElfFile, &TableHeader) -> Option<u64>; 3] =
        [from_moduledata, from_relocations, from_text_section];
    sources.iter().find_map(|source| source(file, header).filter(|&start| is_valid(file, header, start)))
}

/// Returns whether all functions lie in one executable segment.
fn is_valid(file: &ElfFile, header: &TableHeader, start: u64) -> bool {
    let mut reader = WindowReader::new(file.source().as_ref(), header.offset, header.size);
    let end_offset = header.entries + header.function_count * 8;
    let Some(length) = reader.number32(end_offset) else { return false };
    let Some(last) = start.checked_add(u64::from(length).saturating_sub(1)) else { return false };
    let contains = |segment: &Segment, address: u64| {
        address.checked_sub(segment.address).is_some_and(|distance| distance < segment.file_size)
    };
    start != 0 && file.code_segments().any(|segment| contains(segment, start) && contains(segment, last))
}

struct DataRange {
    address: u64,
    offset: u64,
    size: u64,
}

/// Searches writable data for the addresses of header and names, with which the moduledata begins.
fn from_moduledata(file: &ElfFile, header: &TableHeader) -> Option<u64> {
    let named = MODULE_SECTIONS.iter().filter_map(|name| file.section(name));
    let named = named.map(|section| DataRange {
        address: section.address,
        offset: section.offset,
        size: section.size,
    });
    let writable = file.segments().iter().filter(|segment| segment.is_writable()).map(|segment| DataRange {
        address: segment.address,
        offset: segment.offset,
        size: segment.file_size,
    });
    let names = header.address.checked_add(header.names)?;
    let mut budget = MAX_SEARCHED_BYTES;
    for range in named.chain(writable) {
        let mut reader = WindowReader::new(file.source().as_ref(), range.offset, range.size);
        let mut at = range.address.wrapping_neg() % 8;
        while budget > 0 {
            let Some(word) = reader.number64(at) else { break };
            if word == header.address && reader.number64(at + 8) == Some(names) {
                let text = reader.number64(at + MODULE_TEXT_OFFSET)?;
                let lowest = reader.number64(at + MODULE_LOWEST_PC_OFFSET)?;
                return (text != 0 && text <= lowest).then_some(text);
            }
            at += 8;
            budget = budget.saturating_sub(8);
        }
    }
    None
}

/// Reads relocations, which are sorted by address: the one of the header's field, or those of the moduledata.
fn from_relocations(file: &ElfFile, header: &TableHeader) -> Option<u64> {
    let header_field = header.address.checked_add(HEADER_FIELD_OFFSET)?;
    let names = header.address.checked_add(header.names)?;
    let mut budget = MAX_RELOCATIONS;
    for section in RELOCATION_SECTIONS.iter().filter_map(|name| file.section(name)) {
        let mut reader = WindowReader::new(file.source().as_ref(), section.offset, section.size);
        // Address of the word after the last one that refers to the header, and of the moduledata.
        let mut after_header = None;
        let mut module = None;
        for index in 0..section.size / RELOCATION_BYTES {
            budget = budget.checked_sub(1)?;
            let Some(relocation) = read_relocation(&mut reader, index) else { break };
            let Relocation { place, value } = relocation;
            if place == header_field {
                return Some(value);
            }
            if module.is_some_and(|module: u64| module.checked_add(MODULE_TEXT_OFFSET) == Some(place)) {
                return Some(value);
            }
            if after_header == Some(place) && value == names {
                module = place.checked_sub(8);
            }
            after_header = if value == header.address { place.checked_add(8) } else { None };
        }
    }
    None
}

struct Relocation {
    place: u64,
    value: u64,
}

/// Reads a relocation. Other types get a value that refers to nothing.
fn read_relocation(reader: &mut WindowReader<'_>, index: u64) -> Option<Relocation> {
    let offset = index.checked_mul(RELOCATION_BYTES)?;
    let place = reader.number64(offset)?;
    let kind = reader.number64(offset + 8)?;
    let value = reader.number64(offset + 16)?;
    Some(Relocation { place, value: if kind == RELATIVE_RELOCATION { value } else { 0 } })
}

/// Returns the start of `.text`, if the functions end where the section ends. Then Go's linker made the section, and no
/// code in C precedes the functions.
fn from_text_section(file: &ElfFile, header: &TableHeader) -> Option<u64> {
    let section = file.section(".text")?;
    let mut reader = WindowReader::new(file.source().as_ref(), header.offset, header.size);
    let length = u64::from(reader.number32(header.entries + header.function_count * 8)?);
    let rest = section.size.checked_sub(length)?;
    (rest <= MAX_TEXT_PADDING_BYTES).then_some(section.address)
}
