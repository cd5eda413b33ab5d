//! Index of a section of call frame information that has no search table.

use super::RowError;
use super::entry_loader::EntryLoader;
use super::section::CfiSection;

/// Entries of an index. More than any file without a search table has.
const MAX_INDEX_ENTRIES: u64 = 512 << 10;
/// Entries of all kinds that a scan reads.
const MAX_SCANNED_ENTRIES: usize = 1 << 20;

/// First address of code of an entry, and the place of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryPlace {
    /// First address of code.
    pub start: u64,
    /// Address of the entry in a search table, position in the section in an index.
    pub entry: u64,
}

/// All entries of a section, sorted by address.
#[derive(Clone, Debug, Default)]
pub(super) struct EntryIndex {
    places: Vec<EntryPlace>,
}

impl EntryIndex {
    /// Reads a section from a position on, to its end or to the first damaged entry. The index takes at most
    /// `max_bytes`.
    ///
    /// # Errors
    ///
    /// Fails if the section has too many entries.
    pub(super) fn scan(section: &CfiSection, from: u64, max_bytes: u64) -> Result<Self, RowError> {
        let max_entries = (max_bytes / size_of::<EntryPlace>() as u64).min(MAX_INDEX_ENTRIES);
        let mut loader = EntryLoader::new(section);
        let mut places = Vec::new();
        let mut position = from;
        for _ in 0..MAX_SCANNED_ENTRIES {
            let Some(header) = loader.entry_header(position) else { break };
            if header.common.is_some()
                && let Some(range) = loader.code_range(position)
            {
                if places.len() as u64 >= max_entries {
                    return Err(RowError::TooLarge { what: "indexed entries", limit: max_entries });
                }
                places.push(EntryPlace { start: range.start, entry: position });
            }
            position = position.saturating_add(header.entry_bytes);
        }
        places.sort_unstable();
        places.shrink_to_fit();
        Ok(Self { places })
    }

    /// Returns the number of entries.
    pub(super) fn count(&self) -> u64 {
        self.places.len() as u64
    }

    /// Returns the bytes of memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        (self.places.capacity() * size_of::<EntryPlace>()) as u64
    }

    /// Returns the entries that start in a range and up to `before` entries in front of them, at most `limit`.
    ///
    /// # Errors
    ///
    /// Fails if there are more than `limit` entries.
    pub(super) fn entries(
        &self,
        start: u64,
        end: u64,
        before: usize,
        limit: usize,
    ) -> Result<Vec<EntryPlace>, RowError> {
        let first = self.places.partition_point(|place| place.start < start);
        let last = self.places.partition_point(|place| place.start < end);
        let places = self.places.get(first.saturating_sub(before)..last).unwrap_or_default();
        if places.len() > limit {
            return Err(RowError::TooLarge { what: "entries", limit: limit as u64 });
        }
        Ok(places.to_vec())
    }
}
