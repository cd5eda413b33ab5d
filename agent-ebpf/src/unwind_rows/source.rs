//! Rows of a file, by page.

use super::RowError;
use super::code_scan::CodeScan;
use super::entry_index::EntryIndex;
use super::page_rows::{CodePage, PAGE_BYTES, PageRows};
use super::search_table::read_search_header;
use super::section::{CfiSection, SectionFormat};
use super::section_rows::{EntryFinder, SectionRows};
use crate::elf::{ElfFile, Segment};
use crate::go_pclntab::GoFunctionTable;
use crate::layout::{ROW_PAGE_SHIFT, ROWS_PER_CHUNK, UnwindRow};

/// Entries of a file that is loaded whole: it has fewer than 64 k rows, as an entry has 7 rows on average.
const MAX_SMALL_FILE_ENTRIES: u64 = 8 << 10;
/// Pages of a file that is loaded whole.
const MAX_SMALL_FILE_PAGES: u64 = 256;

/// Builder of the rows of one file.
pub struct RowSource {
    file: ElfFile,
    go_functions: Option<GoFunctionTable>,
    eh_frame: Option<SectionRows>,
    debug_frame: Option<SectionRows>,
    code_scan: CodeScan,
}

impl RowSource {
    /// Finds the call frame information of a file. Files without any have no rows. A damaged function table of Go is
    /// ignored.
    ///
    /// # Errors
    ///
    /// Fails if a section without a search table cannot be read or has too many entries.
    pub fn open(file: &ElfFile) -> Result<Self, RowError> {
        Self::open_with_limit(file, u64::MAX)
    }

    /// As [`Self::open`], with a bound of the bytes of each index that the file needs.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_with_limit(file: &ElfFile, max_index_bytes: u64) -> Result<Self, RowError> {
        let eh_frame = open_eh_frame(file, max_index_bytes)?;
        let go_functions = GoFunctionTable::find(file).ok().flatten();
        // In Go programs it repeats the function table.
        let debug_frame = match go_functions {
            Some(_) => None,
            None => open_debug_frame(file, max_index_bytes)?,
        };
        let code_scan = CodeScan::new(file);
        Ok(Self { file: file.clone(), go_functions, eh_frame, debug_frame, code_scan })
    }

    /// Creates a source for a file whose call frame information cannot be used. It has the rows of recognized code
    /// only.
    pub fn without_sections(file: &ElfFile) -> Self {
        let code_scan = CodeScan::new(file);
        Self { file: file.clone(), go_functions: None, eh_frame: None, debug_frame: None, code_scan }
    }

    /// Returns the rows of a page of code, sorted by address. The first row is in force at the start of the page.
    /// Empty if no code of the page has a rule.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or the page takes more than its limits.
    pub fn rows_of_page(&self, page_number: u32) -> Result<Vec<UnwindRow>, RowError> {
        let page = CodePage::new(page_number);
        let mut rows = PageRows::new(page);
        if let Some(functions) = &self.go_functions {
            rows = PageRows::from_rows(page, &functions.rows_of_page(&self.file, page_number));
        }
        for section in [&self.eh_frame, &self.debug_frame].into_iter().flatten() {
            rows = rows.with_gaps_from(&section.rows_of_page(page)?);
        }
        let gaps = rows.gaps();
        if !gaps.is_empty() {
            rows = rows.with_gaps_from(&self.code_scan.rows_of_gaps(&self.file, page, &gaps)?);
        }
        let rows = rows.into_rows();
        if rows.len() > ROWS_PER_CHUNK as usize {
            return Err(RowError::TooLarge { what: "rows", limit: ROWS_PER_CHUNK.into() });
        }
        Ok(rows)
    }

    /// Returns whether the file has so few rows that they are loaded at once.
    pub fn is_small(&self) -> bool {
        let sections = [&self.eh_frame, &self.debug_frame].into_iter().flatten();
        let entries: u64 = sections.map(SectionRows::entry_count).sum();
        let functions = self.go_functions.as_ref().map_or(0, GoFunctionTable::function_count);
        let pages: u64 = self.file.code_segments().map(|segment| segment.file_size / PAGE_BYTES + 2).sum();
        entries.saturating_add(functions) <= MAX_SMALL_FILE_ENTRIES && pages <= MAX_SMALL_FILE_PAGES
    }

    /// Returns the numbers of all pages with code of a small file. Empty for other files.
    pub fn all_pages(&self) -> Vec<u32> {
        if !self.is_small() {
            return Vec::new();
        }
        let mut pages: Vec<u32> = self.file.code_segments().flat_map(pages_of_segment).collect();
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    /// Returns the bytes of memory that the source takes beside the tables of its file.
    pub fn memory_bytes(&self) -> u64 {
        let sections = [&self.eh_frame, &self.debug_frame].into_iter().flatten();
        size_of::<Self>() as u64 + sections.map(SectionRows::memory_bytes).sum::<u64>()
    }
}

fn pages_of_segment(segment: &Segment) -> impl Iterator<Item = u32> + use<> {
    let last = segment.address.saturating_add(segment.file_size.saturating_sub(1));
    let first_page = u32::try_from(segment.address >> ROW_PAGE_SHIFT);
    let last_page = u32::try_from(last >> ROW_PAGE_SHIFT);
    let pages = first_page.ok().zip(last_page.ok());
    pages.into_iter().flat_map(|(first, last)| first..=last)
}

/// Returns the rows of `.eh_frame`: by its search table, else by an index of the section.
fn open_eh_frame(file: &ElfFile, max_index_bytes: u64) -> Result<Option<SectionRows>, RowError> {
    let header = file.eh_frame_header().and_then(|segment| read_search_header(file, segment));
    let start = header.as_ref().map(|header| header.eh_frame_address);
    if let Some(address) = start
        && let Some(section) = segment_section(file, address)
    {
        let from = address - section.address;
        let finder = match header.and_then(|header| header.table) {
            Some(table) => EntryFinder::Table(table),
            None => EntryFinder::Index(EntryIndex::scan(&section, from, max_index_bytes)?),
        };
        return Ok(Some(SectionRows { section, finder }));
    }
    let Some(section) = file.section(".eh_frame").filter(|section| !section.is_compressed()) else {
        return Ok(None);
    };
    let section = CfiSection {
        format: SectionFormat::EhFrame,
        source: file.source().clone(),
        address: section.address,
        offset: section.offset,
        size: section.size,
    };
    let finder = EntryFinder::Index(EntryIndex::scan(&section, 0, max_index_bytes)?);
    Ok(Some(SectionRows { section, finder }))
}

/// Returns the loaded segment with an address, as a section.
fn segment_section(file: &ElfFile, address: u64) -> Option<CfiSection> {
    let segment = file.load_segments().find(|segment| {
        address.checked_sub(segment.address).is_some_and(|distance| distance < segment.file_size)
    })?;
    Some(CfiSection {
        format: SectionFormat::EhFrame,
        source: file.source().clone(),
        address: segment.address,
        offset: segment.offset,
        size: segment.file_size,
    })
}

/// Returns the rows of `.debug_frame`. Compressed sections are not read.
fn open_debug_frame(file: &ElfFile, max_index_bytes: u64) -> Result<Option<SectionRows>, RowError> {
    let Some(section) = file.section(".debug_frame").filter(|section| !section.is_compressed()) else {
        return Ok(None);
    };
    let section = CfiSection {
        format: SectionFormat::DebugFrame,
        source: file.source().clone(),
        address: 0,
        offset: section.offset,
        size: section.size,
    };
    let finder = EntryFinder::Index(EntryIndex::scan(&section, 0, max_index_bytes)?);
    Ok(Some(SectionRows { section, finder }))
}
