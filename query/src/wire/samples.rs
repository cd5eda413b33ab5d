//! Wire format of samples.

use std::collections::{BTreeMap, BTreeSet};

use athanor_profile::encoding::codec::{CodecError, CodecReader, ColumnScale, put_signed_varint, put_varint};
use athanor_profile::store_interface::dictionary_delta::{self, DictionaryMark};
use athanor_profile::{Labels, SpanContext};

use super::lists::{
    DecodeBudget, TextTable, label_texts, push_ascending, put_labels, read_labels, read_table,
};
use super::position::{put_position, read_array, read_id, read_position};
use super::query_kind::{put_flag, read_flag};
use crate::request::profile_query::SamplesQuery;
use crate::result::sample_list::{ListedSample, SampleList, SampledProfile};

pub(super) fn put_samples(out: &mut Vec<u8>, list: &SampleList) {
    put_flag(out, list.end.is_some());
    list.end.iter().for_each(|end| put_position(out, *end));
    dictionary_delta::write(&list.dictionary, DictionaryMark::default(), out);
    let sets: BTreeSet<&Labels> = list.profiles.iter().map(|profile| &profile.labels).collect();
    let table = TextTable::from_texts(sets.iter().flat_map(|labels| label_texts(labels)));
    table.put(out);
    put_varint(out, sets.len() as u64);
    sets.iter().for_each(|labels| put_labels(out, labels, &table));
    let places: BTreeMap<&Labels, u64> = sets.into_iter().zip(0..).collect();
    let scale = ColumnScale::put(out, list.values.iter().copied());
    put_flag(out, !list.spans.is_empty());
    put_varint(out, list.profiles.len() as u64);
    let mut time = 0;
    for (profile, samples) in list.profiles() {
        put_varint(out, places[&profile.labels]);
        put_signed_varint(out, profile.time.wrapping_sub(time));
        time = profile.time;
        out.extend_from_slice(&profile.id.to_le_bytes());
        put_varint(out, u64::from(profile.samples));
        for sample in samples {
            put_varint(out, u64::from(sample.stack));
            scale.put_number(out, sample.value);
            if !list.spans.is_empty() {
                out.extend_from_slice(&sample.span.span.to_le_bytes());
                out.extend_from_slice(&sample.span.trace.to_le_bytes());
            }
        }
    }
}

pub(super) fn read_samples(
    reader: &mut CodecReader<'_>,
    query: &SamplesQuery,
    declared_bytes: usize,
) -> Result<SampleList, CodecError> {
    let mut list = SampleList::empty(query);
    if read_flag(reader)? {
        list.end = Some(read_position(reader)?);
    }
    dictionary_delta::read(&mut list.dictionary, reader)?;
    let mut budget = DecodeBudget(declared_bytes);
    let table = read_table(reader)?;
    let mut sets = Vec::new();
    for _ in 0..reader.read_count()? {
        let labels = read_labels(reader, &table, &mut budget)?;
        push_ascending(&mut sets, labels, reader)?;
    }
    let scale = ColumnScale::read(reader)?;
    let has_spans = read_flag(reader)?;
    let row_bytes =
        size_of::<u32>() + size_of::<i64>() + if has_spans { size_of::<SpanContext>() } else { 0 };
    let mut position = None;
    let mut time = 0i64;
    for _ in 0..reader.read_count()? {
        let unknown = reader.error_here("reference to unknown labels");
        let place = usize::try_from(reader.read_number()?).map_err(|_| unknown)?;
        let labels = sets.get(place).ok_or(unknown)?.clone();
        time = time.wrapping_add(reader.read_signed()?);
        let id = read_id(reader)?;
        let samples = reader.read_u32()?;
        let profile = SampledProfile { id, time, labels, samples };
        if position.is_some_and(|position| profile.position() < position) {
            return Err(reader.error_here("profiles out of order"));
        }
        position = Some(profile.position());
        let memory = row_bytes.saturating_mul(samples as usize);
        budget.take(size_of::<SampledProfile>().saturating_add(memory), reader)?;
        let samples: Vec<ListedSample> =
            (0..samples).map(|_| read_sample(reader, &list, scale, has_spans)).collect::<Result<_, _>>()?;
        list.push_profile(profile, samples);
    }
    Ok(list)
}

fn read_sample(
    reader: &mut CodecReader<'_>,
    list: &SampleList,
    scale: ColumnScale,
    has_spans: bool,
) -> Result<ListedSample, CodecError> {
    let stack = reader.read_u32()?;
    if stack as usize >= list.dictionary.stacks.len() {
        return Err(reader.error_here("sample of an unknown stack"));
    }
    let value = scale.read_number(reader)?;
    let span = match has_spans {
        true => SpanContext { span: u64::from_le_bytes(read_array(reader)?), trace: read_id(reader)? },
        false => SpanContext::default(),
    };
    Ok(ListedSample { stack, value, span })
}
