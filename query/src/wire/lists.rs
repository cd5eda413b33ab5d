//! Wire format of types, texts and labels. All lists are sorted, and the decoder rejects unsorted ones.

use std::collections::{BTreeSet, HashMap};

use athanor_profile::encoding::codec::{CodecError, CodecReader, put_texts, put_varint};
use athanor_profile::{Labels, ProfileType, ValueType};

use crate::result::memory_size::{labels_bytes, text_bytes, type_bytes};

/// Rest of the memory that a result declared. A text that is encoded once may occur a million times.
pub(super) struct DecodeBudget(pub(super) usize);

impl DecodeBudget {
    pub(super) fn take(&mut self, bytes: usize, reader: &CodecReader<'_>) -> Result<(), CodecError> {
        let left = self.0.checked_sub(bytes);
        self.0 = left.ok_or_else(|| reader.error_here("result exceeds its declared size"))?;
        Ok(())
    }
}

/// Table of texts, numbered in order of insertion.
#[derive(Default)]
pub(super) struct TextTable<'t> {
    ids: HashMap<&'t str, u64>,
    texts: Vec<&'t str>,
}

impl<'t> TextTable<'t> {
    pub(super) fn from_texts(texts: impl Iterator<Item = &'t str>) -> Self {
        let mut table = TextTable::default();
        for text in texts {
            let next = table.texts.len() as u64;
            if *table.ids.entry(text).or_insert(next) == next {
                table.texts.push(text);
            }
        }
        table
    }
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_texts(out, self.texts.iter().copied());
    }
    fn put_id(&self, out: &mut Vec<u8>, text: &str) {
        put_varint(out, self.ids[text]);
    }
}

/// Reads the texts of a table.
pub(super) fn read_table<'a>(reader: &mut CodecReader<'a>) -> Result<Vec<&'a str>, CodecError> {
    reader.read_texts()?.collect()
}

fn text<'a>(reader: &mut CodecReader<'_>, table: &[&'a str]) -> Result<&'a str, CodecError> {
    let unknown = reader.error_here("reference to an unknown text");
    usize::try_from(reader.read_number()?).ok().and_then(|id| table.get(id).copied()).ok_or(unknown)
}

/// Appends an entry that must be greater than the last one.
pub(super) fn push_ascending<T: Ord>(
    list: &mut Vec<T>,
    next: T,
    reader: &CodecReader<'_>,
) -> Result<(), CodecError> {
    if list.last().is_some_and(|before| *before >= next) {
        return Err(reader.error_here("entries out of order"));
    }
    list.push(next);
    Ok(())
}

pub(super) fn put_sorted(out: &mut Vec<u8>, texts: &BTreeSet<String>) {
    put_texts(out, texts.iter().map(String::as_str));
}

pub(super) fn read_sorted(
    reader: &mut CodecReader<'_>,
    declared_bytes: usize,
) -> Result<BTreeSet<String>, CodecError> {
    let mut budget = DecodeBudget(declared_bytes);
    let mut sorted = Vec::new();
    for text in reader.read_texts()? {
        let text = text?;
        budget.take(text_bytes(text), reader)?;
        push_ascending(&mut sorted, text.to_owned(), reader)?;
    }
    Ok(sorted.into_iter().collect())
}

fn texts_of(of: &ProfileType) -> [&str; 5] {
    [&of.name, &of.value.kind, &of.value.unit, &of.period.kind, &of.period.unit]
}

pub(super) fn put_types(out: &mut Vec<u8>, types: &BTreeSet<ProfileType>) {
    let table = TextTable::from_texts(types.iter().flat_map(texts_of));
    table.put(out);
    put_varint(out, types.len() as u64);
    types.iter().flat_map(texts_of).for_each(|text| table.put_id(out, text));
}

pub(super) fn read_types(
    reader: &mut CodecReader<'_>,
    declared_bytes: usize,
) -> Result<BTreeSet<ProfileType>, CodecError> {
    let mut budget = DecodeBudget(declared_bytes);
    let mut types = Vec::new();
    let table = read_table(reader)?;
    for _ in 0..reader.read_count()? {
        let mut next = || text(reader, &table);
        let [name, kind, unit, period_kind, period_unit] = [next()?, next()?, next()?, next()?, next()?];
        let value = ValueType::new(kind, unit);
        let next = ProfileType { name: name.into(), value, period: ValueType::new(period_kind, period_unit) };
        budget.take(type_bytes(&next), reader)?;
        push_ascending(&mut types, next, reader)?;
    }
    Ok(types.into_iter().collect())
}

pub(super) fn label_texts(labels: &Labels) -> impl Iterator<Item = &str> {
    labels.iter().flat_map(|(name, value)| [name, value])
}

pub(super) fn put_labels(out: &mut Vec<u8>, labels: &Labels, table: &TextTable<'_>) {
    put_varint(out, labels.len() as u64);
    label_texts(labels).for_each(|text| table.put_id(out, text));
}

pub(super) fn read_labels(
    reader: &mut CodecReader<'_>,
    table: &[&str],
    budget: &mut DecodeBudget,
) -> Result<Labels, CodecError> {
    let count = reader.read_count()?;
    let (mut pairs, mut bytes): (Vec<(&str, &str)>, usize) = (Vec::new(), 0);
    for _ in 0..count {
        let name = text(reader, table)?;
        let value = text(reader, table)?;
        let is_in_order = pairs.last().is_none_or(|(before, _)| *before < name);
        if !is_in_order || value.is_empty() {
            return Err(reader.error_here("labels out of order or without a value"));
        }
        bytes += text_bytes(name) + text_bytes(value);
        pairs.push((name, value));
        if bytes > budget.0 {
            break;
        }
    }
    budget.take(labels_bytes(&Labels::default()) + bytes, reader)?;
    Ok(Labels::new(pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()))))
}

pub(super) fn put_series(out: &mut Vec<u8>, series: &BTreeSet<Labels>) {
    let table = TextTable::from_texts(series.iter().flat_map(label_texts));
    table.put(out);
    put_varint(out, series.len() as u64);
    series.iter().for_each(|labels| put_labels(out, labels, &table));
}

pub(super) fn read_series(
    reader: &mut CodecReader<'_>,
    declared_bytes: usize,
) -> Result<BTreeSet<Labels>, CodecError> {
    let mut budget = DecodeBudget(declared_bytes);
    let mut series = Vec::new();
    let table = read_table(reader)?;
    for _ in 0..reader.read_count()? {
        let labels = read_labels(reader, &table, &mut budget)?;
        push_ascending(&mut series, labels, reader)?;
    }
    Ok(series.into_iter().collect())
}
