//! Dictionary of a request: byte ranges of the entries of each table.

use std::cell::Cell;

use super::{OtlpError, OtlpViolation, OtlpViolations};
use crate::formats::pprof::wire::{WireCursor, WireValue};

/// Maximum number of entries in all tables. The largest requests of whole hosts have a hundredth of this.
const MAX_DICTIONARY_ENTRIES: usize = 4_000_000;

/// Table, by its field number in the dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtlpTable {
    Mappings = 1,
    Locations = 2,
    Functions = 3,
    Links = 4,
    Strings = 5,
    Attributes = 6,
    Stacks = 7,
}

impl OtlpTable {
    const fn name(self) -> &'static str {
        match self {
            OtlpTable::Mappings => "mapping_table",
            OtlpTable::Locations => "location_table",
            OtlpTable::Functions => "function_table",
            OtlpTable::Links => "link_table",
            OtlpTable::Strings => "string_table",
            OtlpTable::Attributes => "attribute_table",
            OtlpTable::Stacks => "stack_table",
        }
    }
}

/// Index of all tables.
pub(super) struct OtlpDictionary<'a> {
    raw: &'a [u8],
    /// Start and end of each entry, by the number of the table. Element 0 is unused.
    entries: [Vec<(u32, u32)>; 8],
    /// Total bytes of entries read. An entry counts each time that it is read.
    looked: Cell<usize>,
}

impl<'a> OtlpDictionary<'a> {
    pub(super) fn new(raw: &'a [u8]) -> Self {
        OtlpDictionary { raw, entries: Default::default(), looked: Cell::new(0) }
    }

    /// Indexes the entries of a dictionary. Entries of a second dictionary follow those of the first, as
    /// protobuf merges messages.
    pub(super) fn index_dictionary(&mut self, mut dictionary: WireCursor<'_>) -> Result<(), OtlpError> {
        let mut count: usize = self.entries.iter().map(Vec::len).sum();
        while !dictionary.is_done() {
            let (field @ 1..=7, WireValue::Bytes(start, end)) = dictionary.field("the dictionary")? else {
                continue;
            };
            count += 1;
            if count > MAX_DICTIONARY_ENTRIES {
                let what = "entries of the dictionary";
                let way_out = ": send smaller batches";
                return Err(OtlpError::OverLimit {
                    what,
                    seen: count,
                    limit: MAX_DICTIONARY_ENTRIES,
                    way_out,
                });
            }
            self.entries[field as usize].push((start as u32, end as u32));
        }
        Ok(())
    }

    /// Returns the size of the whole request in bytes.
    pub(super) fn bytes_of_request(&self) -> usize {
        self.raw.len()
    }

    /// Returns whether no table has an entry.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.iter().all(Vec::is_empty)
    }

    /// Returns the total bytes of entries read, as a measure of work. Small profiles may refer to large
    /// entries repeatedly.
    pub(super) fn visited_bytes(&self) -> usize {
        self.looked.get()
    }

    /// Returns whether an entry exists, or `None` for index 0 of an empty table, which stands for none.
    pub(super) fn contains(&self, table: OtlpTable, index: u64) -> Option<bool> {
        let is_there = index < self.len(table) as u64;
        (is_there || index != 0).then_some(is_there)
    }

    pub(super) fn len(&self, table: OtlpTable) -> usize {
        self.entries[table as usize].len()
    }

    /// Returns an entry, or `None` for entry 0 of an empty table, which senders may leave out.
    pub(super) fn entry(
        &self,
        table: OtlpTable,
        index: u64,
        what: &'static str,
    ) -> Result<Option<WireCursor<'a>>, OtlpError> {
        let found = self.place(table, index, what)?;
        Ok(found.map(|(start, end)| {
            self.looked.set(self.looked.get().saturating_add(end - start));
            self.cursor(start, end)
        }))
    }

    /// Returns the byte range of an entry.
    fn place(
        &self,
        table: OtlpTable,
        index: u64,
        what: &'static str,
    ) -> Result<Option<(usize, usize)>, OtlpError> {
        let entries = &self.entries[table as usize];
        match entries.get(usize::try_from(index).unwrap_or(usize::MAX)) {
            Some(&(start, end)) => Ok(Some((start as usize, end as usize))),
            None if index == 0 => Ok(None),
            None => {
                let table = table.name();
                let length = entries.len();
                Err(OtlpError::OutOfRange { what, index: index as i64, table, length })
            }
        }
    }

    /// Returns a text of the table. The lookup does not count as work, whatever the text's length.
    pub(super) fn text(&self, index: u64, what: &'static str) -> Result<&'a [u8], OtlpError> {
        let place = self.place(OtlpTable::Strings, index, what)?;
        Ok(place.map_or(&[][..], |(start, end)| self.bytes(start, end)))
    }

    /// Returns a cursor over a range of the request.
    pub(super) fn cursor(&self, start: usize, end: usize) -> WireCursor<'a> {
        WireCursor::new(self.raw).range(start, end)
    }

    /// Returns a range of the request's bytes.
    pub(super) fn bytes(&self, start: usize, end: usize) -> &'a [u8] {
        &self.raw[start..end]
    }

    /// Reads a number of eight bytes; `None` if the range is shorter.
    pub(super) fn fixed(&self, start: usize, end: usize) -> Option<u64> {
        self.bytes(start, end).first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// Counts tables with a first entry that is not empty. In such a table, 0 refers to that entry, and no
    /// index means "none".
    pub(super) fn check_zero_entries(&self, violations: &mut OtlpViolations) {
        for table in [
            OtlpTable::Mappings,
            OtlpTable::Locations,
            OtlpTable::Functions,
            OtlpTable::Links,
            OtlpTable::Strings,
            OtlpTable::Stacks,
        ] {
            let begins = self.entries[table as usize].first();
            let means_nothing = begins.is_some_and(|(start, end)| start == end);
            violations.add(OtlpViolation::MissingZeroEntry, u64::from(!means_nothing));
        }
        // Senders encode the empty value of attributes, so only a name counts here, or an unreadable entry.
        let is_nameless =
            self.entries[OtlpTable::Attributes as usize].first().is_some_and(|&(start, end)| {
                match self.cursor(start as usize, end as usize).expect(1, "an attribute") {
                    Ok(Some(key)) => self.text(key, "an attribute").is_ok_and(<[u8]>::is_empty),
                    Ok(None) => true,
                    Err(_) => false,
                }
            });
        violations.add(OtlpViolation::MissingZeroEntry, u64::from(!is_nameless));
    }
}
