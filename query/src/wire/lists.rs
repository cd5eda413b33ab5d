//! Types, texts, labels and points as bytes. All of them are sorted, and are read only if they are.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use athanor_profile::packed::{PackedError, Scale, Unpacker, put, put_signed, put_texts};
use athanor_profile::{Labels, ProfileType, ValueType};

use crate::partial::{Cell, cell_bytes, labels_bytes, text_bytes, type_bytes};

type PointSeries = BTreeMap<Labels, BTreeMap<u64, Cell>>;

/// Memory that an answer said it takes, and has not taken yet: a text that is said once may come a million times.
pub(super) struct Budget(pub(super) usize);

impl Budget {
    pub(super) fn take(&mut self, bytes: usize, unpacker: &Unpacker<'_>) -> Result<(), PackedError> {
        let left = self.0.checked_sub(bytes);
        self.0 = left.ok_or_else(|| unpacker.wrong("an answer that takes more memory than was said"))?;
        Ok(())
    }
}

/// Numbers texts in the order in which they come.
#[derive(Default)]
pub(super) struct Table<'t> {
    ids: HashMap<&'t str, u64>,
    texts: Vec<&'t str>,
}

impl<'t> Table<'t> {
    pub(super) fn of(texts: impl Iterator<Item = &'t str>) -> Self {
        let mut table = Table::default();
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
        put(out, self.ids[text]);
    }
}

/// The texts of a table, as they are read.
pub(super) fn table<'a>(unpacker: &mut Unpacker<'a>) -> Result<Vec<&'a str>, PackedError> {
    unpacker.texts()?.collect()
}

fn text<'a>(unpacker: &mut Unpacker<'_>, table: &[&'a str]) -> Result<&'a str, PackedError> {
    let wrong = unpacker.wrong("a text that was not written before");
    usize::try_from(unpacker.number()?).ok().and_then(|id| table.get(id).copied()).ok_or(wrong)
}

/// Adds what must come after all that is there.
pub(super) fn push<T: Ord>(list: &mut Vec<T>, next: T, unpacker: &Unpacker<'_>) -> Result<(), PackedError> {
    if list.last().is_some_and(|before| *before >= next) {
        return Err(unpacker.wrong("entries out of order"));
    }
    list.push(next);
    Ok(())
}

pub(super) fn put_sorted(out: &mut Vec<u8>, texts: &BTreeSet<String>) {
    put_texts(out, texts.iter().map(String::as_str));
}

pub(super) fn sorted(unpacker: &mut Unpacker<'_>, claim: usize) -> Result<BTreeSet<String>, PackedError> {
    let (mut budget, mut sorted) = (Budget(claim), Vec::new());
    for text in unpacker.texts()? {
        let text = text?;
        budget.take(text_bytes(text), unpacker)?;
        push(&mut sorted, text.to_owned(), unpacker)?;
    }
    Ok(sorted.into_iter().collect())
}

fn texts_of(of: &ProfileType) -> [&str; 5] {
    [&of.name, &of.value.kind, &of.value.unit, &of.period.kind, &of.period.unit]
}

pub(super) fn put_types(out: &mut Vec<u8>, types: &BTreeSet<ProfileType>) {
    let table = Table::of(types.iter().flat_map(texts_of));
    table.put(out);
    put(out, types.len() as u64);
    types.iter().flat_map(texts_of).for_each(|text| table.put_id(out, text));
}

pub(super) fn types(unpacker: &mut Unpacker<'_>, claim: usize) -> Result<BTreeSet<ProfileType>, PackedError> {
    let (mut budget, mut types) = (Budget(claim), Vec::new());
    let table = table(unpacker)?;
    for _ in 0..unpacker.count()? {
        let mut next = || text(unpacker, &table);
        let [name, kind, unit, period_kind, period_unit] = [next()?, next()?, next()?, next()?, next()?];
        let value = ValueType::new(kind, unit);
        let next = ProfileType { name: name.into(), value, period: ValueType::new(period_kind, period_unit) };
        budget.take(type_bytes(&next), unpacker)?;
        push(&mut types, next, unpacker)?;
    }
    Ok(types.into_iter().collect())
}

pub(super) fn texts_of_labels(labels: &Labels) -> impl Iterator<Item = &str> {
    labels.iter().flat_map(|(name, value)| [name, value])
}

pub(super) fn put_labels(out: &mut Vec<u8>, labels: &Labels, table: &Table<'_>) {
    put(out, labels.len() as u64);
    texts_of_labels(labels).for_each(|text| table.put_id(out, text));
}

pub(super) fn labels(
    unpacker: &mut Unpacker<'_>,
    table: &[&str],
    budget: &mut Budget,
) -> Result<Labels, PackedError> {
    let count = unpacker.count()?;
    let (mut pairs, mut bytes): (Vec<(&str, &str)>, usize) = (Vec::new(), 0);
    for _ in 0..count {
        let (name, value) = (text(unpacker, table)?, text(unpacker, table)?);
        let is_in_order = pairs.last().is_none_or(|(before, _)| *before < name);
        if !is_in_order || value.is_empty() {
            return Err(unpacker.wrong("labels out of order or without a value"));
        }
        bytes += text_bytes(name) + text_bytes(value);
        pairs.push((name, value));
        if bytes > budget.0 {
            break;
        }
    }
    budget.take(labels_bytes(&Labels::default()) + bytes, unpacker)?;
    Ok(Labels::new(pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()))))
}

pub(super) fn put_series(out: &mut Vec<u8>, series: &BTreeSet<Labels>) {
    let table = Table::of(series.iter().flat_map(texts_of_labels));
    table.put(out);
    put(out, series.len() as u64);
    series.iter().for_each(|labels| put_labels(out, labels, &table));
}

pub(super) fn series(unpacker: &mut Unpacker<'_>, claim: usize) -> Result<BTreeSet<Labels>, PackedError> {
    let (mut budget, mut series) = (Budget(claim), Vec::new());
    let table = table(unpacker)?;
    for _ in 0..unpacker.count()? {
        let labels = labels(unpacker, &table, &mut budget)?;
        push(&mut series, labels, unpacker)?;
    }
    Ok(series.into_iter().collect())
}

pub(super) fn put_points(out: &mut Vec<u8>, series: &PointSeries) {
    let table = Table::of(series.keys().flat_map(texts_of_labels));
    table.put(out);
    let cells = || series.values().flat_map(BTreeMap::values);
    let scale = Scale::put(out, cells().map(|cell| cell.sum));
    put(out, series.len() as u64);
    for (labels, cells) in series {
        put_labels(out, labels, &table);
        put(out, cells.len() as u64);
        // Moments are near those before them, and last as long.
        let (mut before, mut moment) = (0, (0i64, 0i64, 0i64));
        for (&place, cell) in cells {
            put(out, place - before);
            before = place;
            scale.put_number(out, cell.sum);
            put(out, cell.moments.len() as u64);
            for &next in &cell.moments {
                put_signed(out, next.0.wrapping_sub(moment.0));
                put_signed(out, next.1.wrapping_sub(moment.1));
                put_signed(out, next.2.wrapping_sub(moment.2));
                moment = next;
            }
        }
    }
}

pub(super) fn points(unpacker: &mut Unpacker<'_>, claim: usize) -> Result<PointSeries, PackedError> {
    let mut budget = Budget(claim);
    let table = table(unpacker)?;
    let scale = Scale::read(unpacker)?;
    let mut series: Vec<(Labels, BTreeMap<u64, Cell>)> = Vec::new();
    for _ in 0..unpacker.count()? {
        let labels = labels(unpacker, &table, &mut budget)?;
        if series.last().is_some_and(|(before, _)| *before >= labels) {
            return Err(unpacker.wrong("entries out of order"));
        }
        series.push((labels, cells(unpacker, scale, &mut budget)?));
    }
    Ok(series.into_iter().collect())
}

fn cells(
    unpacker: &mut Unpacker<'_>,
    scale: Scale,
    budget: &mut Budget,
) -> Result<BTreeMap<u64, Cell>, PackedError> {
    let mut cells: Vec<(u64, Cell)> = Vec::new();
    let mut moment = (0i64, 0i64, 0i64);
    for _ in 0..unpacker.count()? {
        let before = cells.last().map(|(place, _)| *place);
        let step = unpacker.number()?;
        let place = before.unwrap_or(0).checked_add(step).filter(|_| before.is_none() || step > 0);
        let place = place.ok_or_else(|| unpacker.wrong("points out of order"))?;
        let sum = scale.number(unpacker)?;
        let count = unpacker.count()?;
        budget.take(cell_bytes(count), unpacker)?;
        let mut moments = Vec::new();
        for _ in 0..count {
            moment.0 = moment.0.wrapping_add(unpacker.signed()?);
            moment.1 = moment.1.wrapping_add(unpacker.signed()?);
            moment.2 = moment.2.wrapping_add(unpacker.signed()?);
            push(&mut moments, moment, unpacker)?;
        }
        cells.push((place, Cell { sum, moments: moments.into_iter().collect() }));
    }
    Ok(cells.into_iter().collect())
}
