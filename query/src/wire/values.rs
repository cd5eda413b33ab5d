//! Wire format of label values, points, heatmap values, numbers of profiles and query costs.

use std::collections::{BTreeMap, BTreeSet};

use athanor_profile::Labels;
use athanor_profile::encoding::codec::{
    CodecError, CodecReader, ColumnScale, put_signed_varint, put_texts, put_varint,
};
use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::store_interface::series::BucketCounts;

use super::lists::{
    DecodeBudget, TextTable, label_texts, push_ascending, put_labels, read_labels, read_table,
};
use super::query_kind::{put_flag, read_flag};
use crate::request::profile_query::LabelValuesQuery;
use crate::result::heatmap::{HeatmapValue, HeatmapValueKey, HeatmapValues, heatmap_value_bytes};
use crate::result::memory_size::{cell_bytes, value_bytes};
use crate::result::partial::{LabelValueCounts, ProfileExemplar, TimeSeriesPoint, TimeSeriesPoints};
use crate::result::profile_count::{ProfileCount, ProfileCounts};
use crate::result::query_cost::{QueryCost, SourceCost};

/// Bits of the byte that states which further fields a point has.
const HAS_EXEMPLAR: u8 = 1;
const HAS_DOWNSAMPLED: u8 = 2;

pub(super) fn put_counts(out: &mut Vec<u8>, values: &LabelValueCounts) {
    put_texts(out, values.counts().keys().map(String::as_str));
    values.counts().values().for_each(|&count| put_varint(out, count));
}

pub(super) fn read_counts(
    reader: &mut CodecReader<'_>,
    query: &LabelValuesQuery,
    declared_bytes: usize,
) -> Result<LabelValueCounts, CodecError> {
    let mut budget = DecodeBudget(declared_bytes);
    let mut values = Vec::new();
    for value in reader.read_texts()? {
        let value = value?;
        budget.take(value_bytes(value), reader)?;
        push_ascending(&mut values, value.to_owned(), reader)?;
    }
    if query.most > 0 && values.len() as u64 > query.most {
        return Err(reader.error_here("more values than the query limits"));
    }
    let counted = values.into_iter().map(|value| Ok((value, reader.read_number()?)));
    Ok(LabelValueCounts::new(query, counted.collect::<Result<BTreeMap<String, u64>, CodecError>>()?))
}

pub(super) fn put_points(out: &mut Vec<u8>, series: &TimeSeriesPoints) {
    let cells = || series.values().flat_map(BTreeMap::values);
    let exemplars = || cells().filter_map(|cell| cell.exemplar.as_ref());
    let of_exemplars = exemplars().map(|exemplar| &exemplar.labels);
    let table = TextTable::from_texts(series.keys().chain(of_exemplars).flat_map(label_texts));
    table.put(out);
    let values = exemplars().map(|exemplar| exemplar.value);
    let scale = ColumnScale::put(out, cells().map(|cell| cell.sum).chain(values));
    put_varint(out, series.len() as u64);
    for (labels, cells) in series {
        put_labels(out, labels, &table);
        put_varint(out, cells.len() as u64);
        let mut before = 0;
        for (&place, cell) in cells {
            put_varint(out, place - before);
            before = place;
            scale.put_number(out, cell.sum);
            put_varint(out, cell.profiles.len() as u64);
            cell.profiles.iter().for_each(|profile| put_profile(out, *profile));
            put_point_fields(out, cell);
            cell.exemplar.iter().for_each(|exemplar| put_exemplar(out, exemplar, scale, &table));
        }
    }
}

pub(super) fn read_points(
    reader: &mut CodecReader<'_>,
    declared_bytes: usize,
) -> Result<TimeSeriesPoints, CodecError> {
    let mut budget = DecodeBudget(declared_bytes);
    let table = read_table(reader)?;
    let scale = ColumnScale::read(reader)?;
    series(reader, &table, &mut budget, |reader, budget| cells(reader, scale, &table, budget))
}

/// Writes which further fields a point has, and the counts of downsampled rows.
fn put_point_fields(out: &mut Vec<u8>, cell: &TimeSeriesPoint) {
    let BucketCounts { records, profiles } = cell.downsampled;
    let has_exemplar = if cell.exemplar.is_some() { HAS_EXEMPLAR } else { 0 };
    if records == 0 && profiles == 0 {
        return out.push(has_exemplar);
    }
    out.push(has_exemplar | HAS_DOWNSAMPLED);
    put_varint(out, records);
    put_varint(out, profiles);
}

/// Reads one entry for each label set.
fn series<T>(
    reader: &mut CodecReader<'_>,
    table: &[&str],
    budget: &mut DecodeBudget,
    mut of_labels: impl FnMut(&mut CodecReader<'_>, &mut DecodeBudget) -> Result<T, CodecError>,
) -> Result<BTreeMap<Labels, T>, CodecError> {
    let mut series: Vec<(Labels, T)> = Vec::new();
    for _ in 0..reader.read_count()? {
        let labels = read_labels(reader, table, budget)?;
        if series.last().is_some_and(|(before, _)| *before >= labels) {
            return Err(reader.error_here("entries out of order"));
        }
        series.push((labels, of_labels(reader, budget)?));
    }
    Ok(series.into_iter().collect())
}

fn cells(
    reader: &mut CodecReader<'_>,
    scale: ColumnScale,
    table: &[&str],
    budget: &mut DecodeBudget,
) -> Result<BTreeMap<u64, TimeSeriesPoint>, CodecError> {
    let mut cells: Vec<(u64, TimeSeriesPoint)> = Vec::new();
    for _ in 0..reader.read_count()? {
        let before = cells.last().map(|(place, _)| *place);
        let step = reader.read_number()?;
        let place = before.unwrap_or(0).checked_add(step).filter(|_| before.is_none() || step > 0);
        let place = place.ok_or_else(|| reader.error_here("points out of order"))?;
        let sum = scale.read_number(reader)?;
        let count = reader.read_count()?;
        budget.take(cell_bytes(count, BucketCounts::default()), reader)?;
        let mut profiles = Vec::new();
        for _ in 0..count {
            let next = profile(reader)?;
            push_ascending(&mut profiles, next, reader)?;
        }
        let fields = reader.read_slice(1)?[0];
        if fields & !(HAS_EXEMPLAR | HAS_DOWNSAMPLED) != 0 {
            return Err(reader.error_here("unknown field of a point"));
        }
        let mut downsampled = BucketCounts::default();
        if fields & HAS_DOWNSAMPLED != 0 {
            downsampled = BucketCounts { records: reader.read_number()?, profiles: reader.read_number()? };
            budget.take(cell_bytes(0, downsampled) - cell_bytes(0, BucketCounts::default()), reader)?;
        }
        let exemplar = match fields & HAS_EXEMPLAR != 0 {
            true => Some(exemplar(reader, scale, table, budget)?),
            false => None,
        };
        let profiles = profiles.into_iter().collect();
        cells.push((place, TimeSeriesPoint { sum, profiles, downsampled, exemplar }));
    }
    Ok(cells.into_iter().collect())
}

fn put_exemplar(out: &mut Vec<u8>, exemplar: &ProfileExemplar, scale: ColumnScale, table: &TextTable<'_>) {
    let ProfileExemplar { value, time, id, labels } = exemplar;
    scale.put_number(out, *value);
    put_signed_varint(out, *time);
    out.extend_from_slice(&id.to_le_bytes());
    put_labels(out, labels, table);
}

fn exemplar(
    reader: &mut CodecReader<'_>,
    scale: ColumnScale,
    table: &[&str],
    budget: &mut DecodeBudget,
) -> Result<ProfileExemplar, CodecError> {
    let value = scale.read_number(reader)?;
    let time = reader.read_signed()?;
    Ok(ProfileExemplar { value, time, id: id(reader)?, labels: read_labels(reader, table, budget)? })
}

fn id(reader: &mut CodecReader<'_>) -> Result<ContentHash, CodecError> {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(reader.read_slice(16)?);
    Ok(ContentHash::from_le_bytes(bytes))
}

/// Writes the common id prefix of a profile's records. Only its first half is significant.
fn put_profile(out: &mut Vec<u8>, profile: ContentHash) {
    out.extend_from_slice(&((profile >> 64) as u64).to_le_bytes());
}

fn profile(reader: &mut CodecReader<'_>) -> Result<ContentHash, CodecError> {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(reader.read_slice(8)?);
    Ok(ContentHash::from(u64::from_le_bytes(bytes)) << 64)
}

pub(super) fn put_heatmap(out: &mut Vec<u8>, series: &HeatmapValues) {
    let spots = || series.values().flat_map(BTreeMap::values);
    let of_spots = spots().filter_map(|spot| spot.labels.as_ref());
    let table = TextTable::from_texts(series.keys().chain(of_spots).flat_map(label_texts));
    table.put(out);
    let scale = ColumnScale::put(out, spots().map(|spot| spot.value));
    put_varint(out, series.len() as u64);
    for (labels, spots) in series {
        put_labels(out, labels, &table);
        put_varint(out, spots.len() as u64);
        let mut column = 0;
        let mut time_before = 0i64;
        for (key, HeatmapValue { value, time, trace, labels }) in spots {
            put_varint(out, key.column - column);
            column = key.column;
            put_profile(out, key.profile);
            out.extend_from_slice(&key.span.to_le_bytes());
            scale.put_number(out, *value);
            put_signed_varint(out, time.wrapping_sub(time_before));
            time_before = *time;
            out.extend_from_slice(&trace.to_le_bytes());
            put_flag(out, labels.is_some());
            labels.iter().for_each(|labels| put_labels(out, labels, &table));
        }
    }
}

pub(super) fn read_heatmap(
    reader: &mut CodecReader<'_>,
    declared_bytes: usize,
) -> Result<HeatmapValues, CodecError> {
    let mut budget = DecodeBudget(declared_bytes);
    let table = read_table(reader)?;
    let scale = ColumnScale::read(reader)?;
    series(reader, &table, &mut budget, |reader, budget| spots(reader, scale, &table, budget))
}

fn spots(
    reader: &mut CodecReader<'_>,
    scale: ColumnScale,
    table: &[&str],
    budget: &mut DecodeBudget,
) -> Result<BTreeMap<HeatmapValueKey, HeatmapValue>, CodecError> {
    let mut spots: Vec<(HeatmapValueKey, HeatmapValue)> = Vec::new();
    let mut column = 0u64;
    let mut time = 0i64;
    for _ in 0..reader.read_count()? {
        budget.take(heatmap_value_bytes(None), reader)?;
        let overflow = reader.error_here("column number overflows");
        column = column.checked_add(reader.read_number()?).ok_or(overflow)?;
        let profile = profile(reader)?;
        let mut span = [0; 8];
        span.copy_from_slice(reader.read_slice(8)?);
        let key = HeatmapValueKey { column, profile, span: u64::from_le_bytes(span) };
        if spots.last().is_some_and(|(before, _)| *before >= key) {
            return Err(reader.error_here("values out of order"));
        }
        let value = scale.read_number(reader)?;
        time = time.wrapping_add(reader.read_signed()?);
        let trace = id(reader)?;
        let labels = match read_flag(reader)? {
            true => Some(read_labels(reader, table, budget)?),
            false => None,
        };
        spots.push((key, HeatmapValue { value, time, trace, labels }));
    }
    Ok(spots.into_iter().collect())
}

pub(super) fn put_profile_counts(out: &mut Vec<u8>, counts: &ProfileCounts) {
    let table = TextTable::from_texts(counts.keys().flat_map(label_texts));
    table.put(out);
    put_varint(out, counts.len() as u64);
    for (labels, ProfileCount { raw, downsampled }) in counts {
        put_labels(out, labels, &table);
        [*raw, downsampled.records, downsampled.profiles]
            .into_iter()
            .for_each(|count| put_varint(out, count));
    }
}

pub(super) fn read_profile_counts(
    reader: &mut CodecReader<'_>,
    declared_bytes: usize,
) -> Result<ProfileCounts, CodecError> {
    let mut budget = DecodeBudget(declared_bytes);
    let table = read_table(reader)?;
    series(reader, &table, &mut budget, |reader, budget| {
        budget.take(size_of::<ProfileCount>(), reader)?;
        let raw = reader.read_number()?;
        let downsampled = BucketCounts { records: reader.read_number()?, profiles: reader.read_number()? };
        Ok(ProfileCount { raw, downsampled })
    })
}

pub(super) fn put_query_cost(out: &mut Vec<u8>, QueryCost { heads, blocks }: &QueryCost) {
    for size in [heads, blocks] {
        put_varint(out, size.series.len() as u64);
        size.series.iter().for_each(|series| out.extend_from_slice(&series.to_le_bytes()));
        size.to_numbers().into_iter().for_each(|number| put_varint(out, number));
    }
}

pub(super) fn read_query_cost(
    reader: &mut CodecReader<'_>,
    declared_bytes: usize,
) -> Result<QueryCost, CodecError> {
    let mut budget = DecodeBudget(declared_bytes);
    Ok(QueryCost { heads: size(reader, &mut budget)?, blocks: size(reader, &mut budget)? })
}

fn size(reader: &mut CodecReader<'_>, budget: &mut DecodeBudget) -> Result<SourceCost, CodecError> {
    let mut series: Vec<ContentHash> = Vec::new();
    for _ in 0..reader.read_count()? {
        budget.take(size_of::<ContentHash>(), reader)?;
        let next = id(reader)?;
        push_ascending(&mut series, next, reader)?;
    }
    let mut numbers = [0; 6];
    for number in &mut numbers {
        *number = reader.read_number()?;
    }
    Ok(SourceCost::from_numbers(series.into_iter().collect::<BTreeSet<ContentHash>>(), numbers))
}
