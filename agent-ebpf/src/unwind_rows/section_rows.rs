//! Rows of a page from one section of call frame information.

use super::RowError;
use super::entry_index::{EntryIndex, EntryPlace};
use super::entry_loader::{CodeRange, EntryLoader, RangeRule};
use super::page_rows::{CodePage, PageRows};
use super::search_table::SearchTable;
use super::section::CfiSection;

/// Entries that start in one page: each has an address of its own in files that are not built to do harm.
const MAX_ENTRIES_PER_PAGE: usize = 65_536;
/// Where an entry ends before the next begins, one of this many entries in front may go on: it surrounds the others.
const MAX_SURROUNDING_ENTRIES: usize = 8;

/// Way to find the entries of a page.
#[derive(Clone)]
pub(super) enum EntryFinder {
    /// Search table of the file.
    Table(SearchTable),
    /// Index in memory.
    Index(EntryIndex),
}

/// Section with a way to find its entries.
#[derive(Clone)]
pub(super) struct SectionRows {
    /// Section.
    pub section: CfiSection,
    /// Finder of its entries.
    pub finder: EntryFinder,
}

/// Entry near a page.
#[derive(Clone, Copy)]
struct NearEntry {
    position: u64,
    /// Empty if the entry is damaged.
    range: CodeRange,
}

impl SectionRows {
    /// Returns the number of entries.
    pub(super) fn entry_count(&self) -> u64 {
        match &self.finder {
            EntryFinder::Table(table) => table.count(),
            EntryFinder::Index(index) => index.count(),
        }
    }

    /// Returns the bytes of memory of the finder.
    pub(super) fn memory_bytes(&self) -> u64 {
        match &self.finder {
            EntryFinder::Table(_) => 0,
            EntryFinder::Index(index) => index.memory_bytes(),
        }
    }

    /// Returns the rows of a page.
    ///
    /// At an address the entry counts that starts last at or before it and covers it.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or the page takes more than its limits.
    pub(super) fn rows_of_page(&self, page: CodePage) -> Result<PageRows, RowError> {
        let mut loader = EntryLoader::new(&self.section);
        let entries = self.near_entries(page, &mut loader)?;
        let mut rows = PageRows::new(page);
        let mut rules = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let next_start = entries.get(index + 1).map_or(page.end(), |next| next.range.start);
            let end = next_start.min(page.end());
            let mut covered = entry.range.start.max(page.start());
            let first = (index + 1).saturating_sub(MAX_SURROUNDING_ENTRIES);
            let candidates = entries.get(first..=index).unwrap_or_default();
            for candidate in candidates.iter().rev() {
                let wanted = CodeRange { start: covered, end: candidate.range.end.min(end) };
                if wanted.start >= wanted.end {
                    continue;
                }
                rules.clear();
                loader.append_rules(candidate.position, wanted, &mut rules)?;
                for RangeRule { range, rule } in &rules {
                    rows.append(range.start, range.end, *rule);
                }
                covered = wanted.end;
            }
        }
        Ok(rows)
    }

    /// Returns the entries that start in the page and those in front of it, sorted by first address.
    fn near_entries(&self, page: CodePage, loader: &mut EntryLoader<'_>) -> Result<Vec<NearEntry>, RowError> {
        let before = MAX_SURROUNDING_ENTRIES;
        let limit = MAX_ENTRIES_PER_PAGE + before;
        let places = match &self.finder {
            EntryFinder::Table(table) => table.entries(page.start(), page.end(), before as u64, limit)?,
            EntryFinder::Index(index) => index.entries(page.start(), page.end(), before, limit)?,
        };
        let mut entries: Vec<NearEntry> =
            places.into_iter().filter_map(|place| self.near_entry(place, loader)).collect();
        // A search table that is not sorted has no right order. Any order that is sorted will do.
        entries.sort_by_key(|entry| entry.range.start);
        Ok(entries)
    }

    fn near_entry(&self, place: EntryPlace, loader: &mut EntryLoader<'_>) -> Option<NearEntry> {
        let position = match self.finder {
            EntryFinder::Table(_) => place.entry.checked_sub(self.section.address)?,
            EntryFinder::Index(_) => place.entry,
        };
        let empty = CodeRange { start: place.start, end: place.start };
        let range = loader.code_range(position).filter(|range| range.start == place.start);
        Some(NearEntry { position, range: range.unwrap_or(empty) })
    }
}
