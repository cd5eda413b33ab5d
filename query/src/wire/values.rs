//! Values of labels, points, values of single profiles and spans, and sizes, as bytes.

use std::collections::{BTreeMap, BTreeSet};

use athanor_profile::Labels;
use athanor_profile::hash::Hash;
use athanor_profile::packed::{PackedError, Scale, Unpacker, put, put_signed, put_texts};

use super::lists::{Budget, Table, labels, push, put_labels, table, texts_of_labels};
use super::what::{flag, put_flag};
use crate::ask::Values;
use crate::heat::{HeatSeries, Spot, SpotKey, spot_bytes};
use crate::partial::{Cell, Exemplar, LabelCounts, PointSeries, cell_bytes, value_bytes};
use crate::size::{Size, Sizes};

pub(super) fn put_counts(out: &mut Vec<u8>, values: &LabelCounts) {
    put_texts(out, values.counts().keys().map(String::as_str));
    values.counts().values().for_each(|&count| put(out, count));
}

pub(super) fn counts(
    unpacker: &mut Unpacker<'_>,
    asked: &Values,
    claim: usize,
) -> Result<LabelCounts, PackedError> {
    let (mut budget, mut values) = (Budget(claim), Vec::new());
    for value in unpacker.texts()? {
        let value = value?;
        budget.take(value_bytes(value), unpacker)?;
        push(&mut values, value.to_owned(), unpacker)?;
    }
    if asked.most > 0 && values.len() as u64 > asked.most {
        return Err(unpacker.wrong("more values than were asked for"));
    }
    let counted = values.into_iter().map(|value| Ok((value, unpacker.number()?)));
    Ok(LabelCounts::new(asked, counted.collect::<Result<BTreeMap<String, u64>, PackedError>>()?))
}

pub(super) fn put_points(out: &mut Vec<u8>, series: &PointSeries) {
    let cells = || series.values().flat_map(BTreeMap::values);
    let exemplars = || cells().filter_map(|cell| cell.exemplar.as_ref());
    let of_exemplars = exemplars().map(|exemplar| &exemplar.labels);
    let table = Table::of(series.keys().chain(of_exemplars).flat_map(texts_of_labels));
    table.put(out);
    let values = exemplars().map(|exemplar| exemplar.value);
    let scale = Scale::put(out, cells().map(|cell| cell.sum).chain(values));
    put(out, series.len() as u64);
    for (labels, cells) in series {
        put_labels(out, labels, &table);
        put(out, cells.len() as u64);
        let mut before = 0;
        for (&place, cell) in cells {
            put(out, place - before);
            before = place;
            scale.put_number(out, cell.sum);
            put(out, cell.profiles.len() as u64);
            cell.profiles.iter().for_each(|profile| put_profile(out, *profile));
            put_flag(out, cell.exemplar.is_some());
            cell.exemplar.iter().for_each(|exemplar| put_exemplar(out, exemplar, scale, &table));
        }
    }
}

pub(super) fn points(unpacker: &mut Unpacker<'_>, claim: usize) -> Result<PointSeries, PackedError> {
    let mut budget = Budget(claim);
    let table = table(unpacker)?;
    let scale = Scale::read(unpacker)?;
    series(unpacker, &table, &mut budget, |unpacker, budget| cells(unpacker, scale, &table, budget))
}

/// What belongs to each set of labels.
fn series<T>(
    unpacker: &mut Unpacker<'_>,
    table: &[&str],
    budget: &mut Budget,
    mut of_labels: impl FnMut(&mut Unpacker<'_>, &mut Budget) -> Result<T, PackedError>,
) -> Result<BTreeMap<Labels, T>, PackedError> {
    let mut series: Vec<(Labels, T)> = Vec::new();
    for _ in 0..unpacker.count()? {
        let labels = labels(unpacker, table, budget)?;
        if series.last().is_some_and(|(before, _)| *before >= labels) {
            return Err(unpacker.wrong("entries out of order"));
        }
        series.push((labels, of_labels(unpacker, budget)?));
    }
    Ok(series.into_iter().collect())
}

fn cells(
    unpacker: &mut Unpacker<'_>,
    scale: Scale,
    table: &[&str],
    budget: &mut Budget,
) -> Result<BTreeMap<u64, Cell>, PackedError> {
    let mut cells: Vec<(u64, Cell)> = Vec::new();
    for _ in 0..unpacker.count()? {
        let before = cells.last().map(|(place, _)| *place);
        let step = unpacker.number()?;
        let place = before.unwrap_or(0).checked_add(step).filter(|_| before.is_none() || step > 0);
        let place = place.ok_or_else(|| unpacker.wrong("points out of order"))?;
        let sum = scale.number(unpacker)?;
        let count = unpacker.count()?;
        budget.take(cell_bytes(count), unpacker)?;
        let mut profiles = Vec::new();
        for _ in 0..count {
            let next = profile(unpacker)?;
            push(&mut profiles, next, unpacker)?;
        }
        let exemplar = match flag(unpacker)? {
            true => Some(exemplar(unpacker, scale, table, budget)?),
            false => None,
        };
        cells.push((place, Cell { sum, profiles: profiles.into_iter().collect(), exemplar }));
    }
    Ok(cells.into_iter().collect())
}

fn put_exemplar(out: &mut Vec<u8>, exemplar: &Exemplar, scale: Scale, table: &Table<'_>) {
    let Exemplar { value, time, id, labels } = exemplar;
    scale.put_number(out, *value);
    put_signed(out, *time);
    out.extend_from_slice(&id.to_le_bytes());
    put_labels(out, labels, table);
}

fn exemplar(
    unpacker: &mut Unpacker<'_>,
    scale: Scale,
    table: &[&str],
    budget: &mut Budget,
) -> Result<Exemplar, PackedError> {
    let (value, time) = (scale.number(unpacker)?, unpacker.signed()?);
    Ok(Exemplar { value, time, id: id(unpacker)?, labels: labels(unpacker, table, budget)? })
}

fn id(unpacker: &mut Unpacker<'_>) -> Result<Hash, PackedError> {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(unpacker.take(16)?);
    Ok(Hash::from_le_bytes(bytes))
}

/// Of what is common to the ids of a profile's records only the first half says something.
fn put_profile(out: &mut Vec<u8>, profile: Hash) {
    out.extend_from_slice(&((profile >> 64) as u64).to_le_bytes());
}

fn profile(unpacker: &mut Unpacker<'_>) -> Result<Hash, PackedError> {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(unpacker.take(8)?);
    Ok(Hash::from(u64::from_le_bytes(bytes)) << 64)
}

pub(super) fn put_heat(out: &mut Vec<u8>, series: &HeatSeries) {
    let spots = || series.values().flat_map(BTreeMap::values);
    let of_spots = spots().filter_map(|spot| spot.labels.as_ref());
    let table = Table::of(series.keys().chain(of_spots).flat_map(texts_of_labels));
    table.put(out);
    let scale = Scale::put(out, spots().map(|spot| spot.value));
    put(out, series.len() as u64);
    for (labels, spots) in series {
        put_labels(out, labels, &table);
        put(out, spots.len() as u64);
        let (mut column, mut moment) = (0, 0i64);
        for (key, Spot { value, time, trace, labels }) in spots {
            put(out, key.column - column);
            column = key.column;
            put_profile(out, key.profile);
            out.extend_from_slice(&key.span.to_le_bytes());
            scale.put_number(out, *value);
            put_signed(out, time.wrapping_sub(moment));
            moment = *time;
            out.extend_from_slice(&trace.to_le_bytes());
            put_flag(out, labels.is_some());
            labels.iter().for_each(|labels| put_labels(out, labels, &table));
        }
    }
}

pub(super) fn heat(unpacker: &mut Unpacker<'_>, claim: usize) -> Result<HeatSeries, PackedError> {
    let mut budget = Budget(claim);
    let table = table(unpacker)?;
    let scale = Scale::read(unpacker)?;
    series(unpacker, &table, &mut budget, |unpacker, budget| spots(unpacker, scale, &table, budget))
}

fn spots(
    unpacker: &mut Unpacker<'_>,
    scale: Scale,
    table: &[&str],
    budget: &mut Budget,
) -> Result<BTreeMap<SpotKey, Spot>, PackedError> {
    let mut spots: Vec<(SpotKey, Spot)> = Vec::new();
    let (mut column, mut time) = (0u64, 0i64);
    for _ in 0..unpacker.count()? {
        budget.take(spot_bytes(None), unpacker)?;
        let beyond = unpacker.wrong("columns beyond all numbers");
        column = column.checked_add(unpacker.number()?).ok_or(beyond)?;
        let profile = profile(unpacker)?;
        let mut span = [0; 8];
        span.copy_from_slice(unpacker.take(8)?);
        let key = SpotKey { column, profile, span: u64::from_le_bytes(span) };
        if spots.last().is_some_and(|(before, _)| *before >= key) {
            return Err(unpacker.wrong("values out of order"));
        }
        let value = scale.number(unpacker)?;
        time = time.wrapping_add(unpacker.signed()?);
        let trace = id(unpacker)?;
        let labels = match flag(unpacker)? {
            true => Some(labels(unpacker, table, budget)?),
            false => None,
        };
        spots.push((key, Spot { value, time, trace, labels }));
    }
    Ok(spots.into_iter().collect())
}

pub(super) fn put_sizes(out: &mut Vec<u8>, Sizes { heads, blocks }: &Sizes) {
    for size in [heads, blocks] {
        put(out, size.series.len() as u64);
        size.series.iter().for_each(|series| out.extend_from_slice(&series.to_le_bytes()));
        size.numbers().into_iter().for_each(|number| put(out, number));
    }
}

pub(super) fn sizes(unpacker: &mut Unpacker<'_>, claim: usize) -> Result<Sizes, PackedError> {
    let mut budget = Budget(claim);
    Ok(Sizes { heads: size(unpacker, &mut budget)?, blocks: size(unpacker, &mut budget)? })
}

fn size(unpacker: &mut Unpacker<'_>, budget: &mut Budget) -> Result<Size, PackedError> {
    let mut series: Vec<Hash> = Vec::new();
    for _ in 0..unpacker.count()? {
        budget.take(size_of::<Hash>(), unpacker)?;
        let next = id(unpacker)?;
        push(&mut series, next, unpacker)?;
    }
    let mut numbers = [0; 6];
    for number in &mut numbers {
        *number = unpacker.number()?;
    }
    Ok(Size::of(series.into_iter().collect::<BTreeSet<Hash>>(), numbers))
}
