//! Edits of a profile's bytes without decoding its samples. The entries of one table are read or replaced,
//! and all other bytes are copied.
//!
//! Only the parts that an edit needs are validated. The decoder of the result rejects other errors. Many
//! entries may refer to one text, so there is a limit on the bytes read and on the bytes added.

use std::cell::Cell;

use super::entries::{RawFunction, read_function, read_mapping, read_value_type};
use super::wire::{WireCursor, WireValue, write_message, write_number};
use super::{DecodeError, DecodeLimits, check_limit};

const SAMPLE_TYPE_FIELD: u64 = 1;
const MAPPING_FIELD: u64 = 3;
const LOCATION_FIELD: u64 = 4;
const FUNCTION_FIELD: u64 = 5;
const STRING_TABLE_FIELD: u64 = 6;
const TIME_NANOS_FIELD: u64 = 9;

/// Returns the names of the sample types of an uncompressed profile.
pub fn sample_types<'a>(raw: &'a [u8], limits: &DecodeLimits) -> Result<Vec<&'a str>, DecodeError> {
    let strings = RawStringTable::read(raw, limits)?;
    let mut types = Vec::new();
    fields(raw, |field, content| {
        if field == SAMPLE_TYPE_FIELD {
            check_limit("sample types", types.len() + 1, limits.types)?;
            types.push(strings.text(read_value_type(content)?.0, "a sample type")?);
        }
        Ok(())
    })?;
    if types.is_empty() { Err(DecodeError::NoSampleType) } else { Ok(types) }
}

/// Returns the build ids of an uncompressed profile's mappings.
pub fn build_ids<'a>(raw: &'a [u8], limits: &DecodeLimits) -> Result<Vec<&'a str>, DecodeError> {
    let strings = RawStringTable::read(raw, limits)?;
    let mut build_ids = Vec::new();
    fields(raw, |field, content| {
        if field == MAPPING_FIELD {
            check_limit("mappings", build_ids.len() + 1, limits.entries)?;
            build_ids.push(strings.text(read_mapping(content)?.build_id, "a mapping's build id")?);
        }
        Ok(())
    })?;
    Ok(build_ids)
}

/// Returns whether `is_it` holds for a function of an uncompressed profile, given its name and file.
pub fn any_function(
    raw: &[u8],
    limits: &DecodeLimits,
    is_it: impl Fn(&str, &str) -> bool,
) -> Result<bool, DecodeError> {
    let strings = RawStringTable::read(raw, limits)?;
    let mut found = false;
    fields(raw, |field, content| {
        if field == FUNCTION_FIELD && !found {
            let entry = read_function(content)?;
            let name = strings.text(entry.name, "a function's name")?;
            found = is_it(name, strings.text(entry.filename, "a function's file")?);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Returns the stated time of an uncompressed profile, Unix nanoseconds; 0 if it has none.
pub fn time_nanos(raw: &[u8]) -> Result<i64, DecodeError> {
    let mut time = 0;
    let mut cursor = WireCursor::new(raw);
    while !cursor.is_done() {
        if let (TIME_NANOS_FIELD, WireValue::Varint(nanos)) = cursor.field("the profile")? {
            time = nanos as i64;
        }
    }
    Ok(time)
}

/// Returns the uncompressed profile without its time. In protobuf, the last value of a repeated scalar field
/// wins.
pub fn strip_time(raw: &[u8]) -> Vec<u8> {
    const WIRE_TYPE_VARINT: u8 = 0;
    [raw, &[(TIME_NANOS_FIELD as u8) << 3 | WIRE_TYPE_VARINT, 0]].concat()
}

/// Renames sample types. `rename` receives each name and may return a new one.
pub fn rename_types(
    raw: &[u8],
    limits: &DecodeLimits,
    rename: impl Fn(&str) -> Option<String>,
) -> Result<Option<Vec<u8>>, DecodeError> {
    let strings = RawStringTable::read(raw, limits)?;
    let mut added = AppendedStrings::after(&strings, limits);
    let changed = rewrite(raw, SAMPLE_TYPE_FIELD, |content| {
        let (kind, unit) = read_value_type(content)?;
        let Some(new) = rename(strings.text(kind, "a sample type")?) else { return Ok(None) };
        let mut entry = Vec::new();
        write_number(&mut entry, 1, added.index(new)?);
        write_number(&mut entry, 2, unit as u64);
        Ok(Some(entry))
    })?;
    Ok(added.appended_to(changed))
}

/// Renames functions. `rename` receives each name and file and may return a new name.
pub fn rename_functions(
    raw: &[u8],
    limits: &DecodeLimits,
    rename: impl Fn(&str, &str) -> Option<String>,
) -> Result<Option<Vec<u8>>, DecodeError> {
    let strings = RawStringTable::read(raw, limits)?;
    let mut added = AppendedStrings::after(&strings, limits);
    let changed = rewrite(raw, FUNCTION_FIELD, |content| {
        let entry = read_function(content)?;
        let name = strings.text(entry.name, "a function's name")?;
        let file = strings.text(entry.filename, "a function's file")?;
        let Some(new) = rename(name, file) else { return Ok(None) };
        Ok(Some(function_entry(&RawFunction { name: added.index(new)? as i64, ..entry })))
    })?;
    Ok(added.appended_to(changed))
}

/// Assigns function ids in profiles of writers that give every function the id 0, and one function per
/// location in the same order. Each function gets the id of its location. Returns `None` for other profiles.
pub fn assign_function_ids(raw: &[u8]) -> Result<Option<Vec<u8>>, DecodeError> {
    let mut locations = Vec::new();
    let mut functions = 0;
    fields(raw, |field, content| {
        match field {
            LOCATION_FIELD => locations.push(location_id(content)?),
            FUNCTION_FIELD if read_function(content)?.id == 0 => functions += 1,
            // Makes the count unequal to any number of locations.
            FUNCTION_FIELD => functions = usize::MAX / 2,
            _ => {}
        }
        Ok(())
    })?;
    if functions != locations.len() || locations.is_empty() {
        return Ok(None);
    }
    let mut ids = locations.into_iter();
    let numbered = rewrite(raw, FUNCTION_FIELD, |content| {
        let id = ids.next().unwrap_or_default();
        Ok(Some(function_entry(&RawFunction { id, ..read_function(content)? })))
    })?;
    Ok(Some(numbered))
}

/// Replaces texts in the profile's string table.
pub fn rewrite_strings(
    raw: &[u8],
    replace: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Result<Vec<u8>, DecodeError> {
    rewrite(raw, STRING_TABLE_FIELD, |content| Ok(replace(content.remaining())))
}

/// Maximum ratio between the bytes of texts that are read and the size limit of a profile. Usual profiles
/// stay below it.
const MAX_READ_FACTOR: usize = 16;

/// String table by index.
struct RawStringTable<'a> {
    texts: Vec<&'a [u8]>,
    looked: Cell<usize>,
    limit: usize,
}

impl<'a> RawStringTable<'a> {
    fn read(raw: &'a [u8], limits: &DecodeLimits) -> Result<Self, DecodeError> {
        let mut strings = Vec::new();
        let most = limits.entries.min(DecodeLimits::for_bytes(limits.bytes).entries);
        fields(raw, |field, content| {
            if field == STRING_TABLE_FIELD {
                check_limit("strings", strings.len() + 1, most)?;
                strings.push(content.remaining());
            }
            Ok(())
        })?;
        Ok(RawStringTable {
            texts: strings,
            looked: Cell::new(0),
            limit: limits.bytes.saturating_mul(MAX_READ_FACTOR),
        })
    }
    fn text(&self, index: i64, what: &'static str) -> Result<&'a str, DecodeError> {
        let place = usize::try_from(index).ok().filter(|&place| place < self.texts.len());
        let table = "strings";
        let length = self.texts.len();
        let place = place.ok_or(DecodeError::OutOfRange { what, table, index, length })?;
        let text = self.texts[place];
        self.looked.set(self.looked.get() + text.len());
        check_limit("bytes of names, counted once per use", self.looked.get(), self.limit)?;
        std::str::from_utf8(text).map_err(|_| DecodeError::NotUtf8 { index: place })
    }
}

/// Texts appended to the existing string table.
struct AppendedStrings {
    first: usize,
    bytes: usize,
    limit: usize,
    texts: Vec<String>,
    indexes: std::collections::BTreeMap<String, u64>,
}

impl AppendedStrings {
    fn after(strings: &RawStringTable<'_>, limits: &DecodeLimits) -> Self {
        let first = strings.texts.len();
        let limit = limits.bytes;
        AppendedStrings { first, bytes: 0, limit, texts: Vec::new(), indexes: Default::default() }
    }
    fn index(&mut self, text: String) -> Result<u64, DecodeError> {
        if let Some(&index) = self.indexes.get(&text) {
            return Ok(index);
        }
        self.bytes += text.len();
        check_limit("bytes", self.bytes, self.limit)?;
        let index = (self.first + self.texts.len()) as u64;
        self.texts.push(text.clone());
        self.indexes.insert(text, index);
        Ok(index)
    }
    /// Appends the texts to the profile. Returns `None` if there are none, because then nothing has changed.
    fn appended_to(self, mut raw: Vec<u8>) -> Option<Vec<u8>> {
        for text in &self.texts {
            write_message(&mut raw, STRING_TABLE_FIELD, text.as_bytes());
        }
        (!self.texts.is_empty()).then_some(raw)
    }
}

/// Visits the table entries of a profile.
fn fields<'a>(
    raw: &'a [u8],
    mut visit: impl FnMut(u64, WireCursor<'a>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut cursor = WireCursor::new(raw);
    while !cursor.is_done() {
        if let (field, WireValue::Bytes(start, end)) = cursor.field("the profile")? {
            visit(field, cursor.range(start, end))?;
        }
    }
    Ok(())
}

/// Copies a profile. Entries of one table are replaced if `replace` returns a new one.
fn rewrite<'a>(
    raw: &'a [u8],
    table: u64,
    mut replace: impl FnMut(WireCursor<'a>) -> Result<Option<Vec<u8>>, DecodeError>,
) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::with_capacity(raw.len() + raw.len() / 8);
    let mut cursor = WireCursor::new(raw);
    while !cursor.is_done() {
        let from = cursor.position();
        let (field, value) = cursor.field("the profile")?;
        let new = match value {
            WireValue::Bytes(start, end) if field == table => replace(cursor.range(start, end))?,
            _ => None,
        };
        match new {
            Some(content) => write_message(&mut out, field, &content),
            None => out.extend_from_slice(&raw[from..cursor.position()]),
        }
    }
    Ok(out)
}

fn function_entry(entry: &RawFunction) -> Vec<u8> {
    let mut out = Vec::new();
    let fields = [entry.id, entry.name as u64, entry.system_name as u64, entry.filename as u64];
    for (field, value) in (1..).zip(fields) {
        write_number(&mut out, field, value);
    }
    write_number(&mut out, 5, entry.start_line as u64);
    out
}

fn location_id(mut cursor: WireCursor<'_>) -> Result<u64, DecodeError> {
    let mut id = 0;
    while !cursor.is_done() {
        if let (1, WireValue::Varint(number)) = cursor.field("a location")? {
            id = number;
        }
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::formats::pprof::{DecodeLimits, decode, encode};
    use crate::generate::arbitrary_profile;

    #[test]
    fn types_are_read_and_renamed() {
        let mut profile = arbitrary_profile(1);
        profile.header.types[0].kind = "alloc-size".into();
        let raw = encode(&profile);
        assert_eq!(sample_types(&raw, &DecodeLimits::default()).unwrap()[0], "alloc-size");
        let renamed = rename_types(&raw, &DecodeLimits::default(), |name| {
            name.contains('-').then(|| name.replace('-', "_"))
        })
        .unwrap()
        .unwrap();
        assert_eq!(sample_types(&renamed, &DecodeLimits::default()).unwrap()[0], "alloc_size");
        let (read, _) = decode(&renamed, &DecodeLimits::default()).unwrap();
        profile.header.types[0].kind = "alloc_size".into();
        assert_eq!(read.header, profile.header);
        assert_eq!(rename_types(&raw, &DecodeLimits::default(), |_| None).unwrap(), None);
        assert_eq!(sample_types(b"", &DecodeLimits::default()), Err(DecodeError::NoSampleType));
    }

    #[test]
    fn the_time_is_that_of_the_whole_profile() {
        for seed in 0..20 {
            let profile = arbitrary_profile(seed);
            assert_eq!(time_nanos(&encode(&profile)), Ok(profile.header.time_nanos));
        }
        let mut raw = Vec::new();
        [7, u64::MAX].iter().for_each(|&time| write_number(&mut raw, TIME_NANOS_FIELD, time));
        write_message(&mut raw, TIME_NANOS_FIELD, b"no number");
        assert_eq!((time_nanos(&raw), time_nanos(b"")), (Ok(-1), Ok(0)));
    }

    #[test]
    fn functions_without_ids_take_those_of_their_locations() {
        let mut profile = crate::Profile::default();
        profile.header.types = vec![crate::ValueType::new("cpu", "nanoseconds")];
        let stack = profile.dictionary.intern_named_stack(["main", "run"].into_iter());
        profile.samples.push(stack, 0, &[3]);
        let raw = encode(&profile);
        assert_eq!(assign_function_ids(&raw).unwrap(), None);
        let broken = rewrite(&raw, FUNCTION_FIELD, |content| {
            Ok(Some(function_entry(&RawFunction { id: 0, ..read_function(content)? })))
        })
        .unwrap();
        assert!(matches!(decode(&broken, &DecodeLimits::default()), Err(DecodeError::IdZero { .. })));
        let repaired = assign_function_ids(&broken).unwrap().unwrap();
        assert_eq!(encode(&decode(&repaired, &DecodeLimits::default()).unwrap().0), raw);
    }

    #[test]
    fn a_long_text_in_many_entries_is_refused() {
        let mut profile = crate::Profile::default();
        profile.header.types = vec![crate::ValueType::new("cpu-time", "nanoseconds")];
        let symbols = &mut profile.dictionary.symbols;
        let filename = symbols.strings.intern(&"f".repeat(10_000));
        for name in 0..100 {
            let name = symbols.strings.intern(&name.to_string());
            let function =
                crate::data_model::symbols::Function { name, system_name: 0, filename, start_line: 0 };
            let function = symbols.intern_function(function);
            let line = crate::data_model::symbols::Line { function, line: 0, column: 0 };
            symbols.intern_location(crate::data_model::symbols::NO_ENTRY, 0, false, &[line]);
        }
        let all: Vec<u32> = (0..100).collect();
        let stack = profile.dictionary.stacks.intern(&profile.dictionary.symbols, &all);
        profile.samples.push(stack, 0, &[3]);
        let raw = encode(&profile);
        let refused = |bytes, renames: bool| {
            let limits = DecodeLimits { bytes, ..DecodeLimits::default() };
            let rename = |name: &str, file: &str| renames.then(|| format!("{file} {name}"));
            rename_functions(&raw, &limits, rename).err()
        };
        let looked_at = refused(50_000, false);
        assert!(matches!(looked_at, Some(DecodeError::OverLimit { limit: 800_000, .. })), "{looked_at:?}");
        let added = refused(900_000, true);
        assert!(matches!(added, Some(DecodeError::OverLimit { limit: 900_000, .. })), "{added:?}");
        assert_eq!(refused(1_100_000, true), None);
        let types = [&encode(&profile)[..], &[0x0a, 2, 8, 1].repeat(1000)].concat();
        assert!(matches!(sample_types(&types, &DecodeLimits::default()), Err(DecodeError::OverLimit { .. })));
    }

    proptest! {
        #[test]
        fn renaming_changes_nothing_else(seed: u64) {
            let profile = arbitrary_profile(seed);
            let raw = encode(&profile);
            let (before, _) = decode(&raw, &DecodeLimits::default()).unwrap();
            let renamed = rename_functions(&raw, &DecodeLimits::default(), |name, file| Some(format!("{file} {name}"))).unwrap();
            let (after, _) = decode(renamed.as_ref().unwrap_or(&raw), &DecodeLimits::default()).unwrap();
            prop_assert_eq!(&before.header, &after.header);
            prop_assert_eq!(before.samples.values, after.samples.values);
            let (old, new) = (&before.dictionary.symbols, &after.dictionary.symbols);
            for (old_function, new_function) in old.functions().iter().zip(new.functions()) {
                let expected =
                    format!("{} {}", old.strings.get(old_function.filename), old.strings.get(old_function.name));
                prop_assert_eq!(new.strings.get(new_function.name), expected);
            }
        }

        #[test]
        fn any_bytes_are_rewritten_or_refused(raw in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = sample_types(&raw, &DecodeLimits::default());
            let _ = time_nanos(&raw);
            let _ = assign_function_ids(&raw);
            let _ = rename_functions(&raw, &DecodeLimits::default(), |name, _| Some(format!("{name}x")));
            if let Ok(copy) = rewrite_strings(&raw, |_| None) {
                prop_assert_eq!(copy, raw);
            }
        }
    }
}
