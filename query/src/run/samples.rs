//! Samples of the first profiles of one source.

use std::collections::BTreeMap;

use athanor_profile::analysis::transform::StackRewriter;
use athanor_profile::{ProfileRow, ProfileSource, SpanContext};

use super::matched_profiles::MatchedProfiles;
use super::stack_sums::find_passing_stacks;
use crate::request::profile_position::ProfilePosition;
use crate::request::profile_query::{ProfileQueryError, ProfileSelection, SamplesQuery};
use crate::request::stack_filter::StackFilter;
use crate::result::sample_list::{ListedSample, SampleList, SampledProfile};
use crate::result::sum_check::{PROFILE_VALUES, add_checked};

/// Returns the samples of one source. Profiles without a selected sample are left out.
pub(super) fn list_samples(
    picked: &MatchedProfiles,
    selection: &ProfileSelection,
    query: &SamplesQuery,
    source: &dyn ProfileSource,
) -> Result<SampleList, ProfileQueryError> {
    let mut list = SampleList::empty(query);
    let first_places = first_profiles(picked, query, &mut list);
    let mut places = first_places.clone();
    places.sort_unstable();
    let passing = find_passing_stacks(source, &query.stacks)?;
    let is_passing = |stack: u32| {
        passing.as_ref().is_none_or(|passing| passing.get(stack as usize).copied().unwrap_or(false))
    };
    let mut samples: Vec<Vec<ListedSample>> = vec![Vec::new(); places.len()];
    let mut add = |place: u32, sample: ListedSample| {
        let is_selected = selection.requests.as_ref().is_none_or(|wanted| wanted.contains(sample.span));
        if is_selected
            && is_passing(sample.stack)
            && let Ok(number) = places.binary_search(&place)
        {
            let span = if query.spans { sample.span } else { SpanContext::default() };
            samples[number].push(ListedSample { span, ..sample });
        }
    };
    if query.spans || selection.requests.is_some() {
        source.visit_span_rows(&places, &mut |place, stacks, values, spans| {
            for (row, (&stack, &value)) in stacks.iter().zip(values).enumerate() {
                let span = spans.get(row).copied().unwrap_or_default();
                add(place, ListedSample { stack, value, span });
            }
        })?;
    } else {
        source.visit_rows(&places, &mut |place, stacks, values| {
            for (&stack, &value) in stacks.iter().zip(values) {
                add(place, ListedSample { stack, value, span: SpanContext::default() });
            }
        })?;
    }
    adopt_stacks(&mut samples, &mut list, &query.stacks, source)?;
    if !query.stacks.transforms.is_empty() {
        samples.iter_mut().try_for_each(merge_equal_stacks)?;
    }
    let mut labels = picked.label_cache();
    for place in first_places {
        let Ok(number) = places.binary_search(&place) else { continue };
        let samples = std::mem::take(&mut samples[number]);
        if samples.is_empty() {
            continue;
        }
        let ProfileRow { series, time, id, .. } = picked.profiles[place as usize];
        let labels = labels.full_labels(series).clone();
        let count = samples.len() as u32;
        list.push_profile(SampledProfile { id, time, labels, samples: count }, samples);
    }
    Ok(list)
}

/// Returns the row indexes of the first profiles in order of time, as many as the list has space for. A profile that is
/// larger than the list is returned alone.
fn first_profiles(picked: &MatchedProfiles, query: &SamplesQuery, list: &mut SampleList) -> Vec<u32> {
    let row = |place: u32| &picked.profiles[place as usize];
    let position = |place: u32| ProfilePosition { time: row(place).time, id: row(place).id };
    let mut places: Vec<u32> =
        picked.places.iter().copied().filter(|&place| position(place) >= query.first).collect();
    places.sort_unstable_by_key(|&place| position(place));
    let mut rows = 0u64;
    let mut count = 0;
    for &place in &places {
        rows = rows.saturating_add(u64::from(row(place).samples));
        if count > 0 && rows > query.max_rows {
            list.end = Some(position(place));
            break;
        }
        count += 1;
    }
    places.truncate(count);
    places
}

/// Replaces the stacks of samples by those of the list's dictionary, after transforms.
fn adopt_stacks(
    samples: &mut [Vec<ListedSample>],
    list: &mut SampleList,
    filter: &StackFilter,
    source: &dyn ProfileSource,
) -> Result<(), ProfileQueryError> {
    let mut is_damaged = false;
    source.visit_names(&mut |dictionary, stacks| {
        let mut adopted: Vec<Option<u32>> = vec![None; stacks.len()];
        let mut rewriter = StackRewriter::new(&filter.transforms, dictionary);
        for sample in samples.iter_mut().flatten() {
            let Some(known) = adopted.get_mut(sample.stack as usize) else {
                is_damaged = true;
                continue;
            };
            if known.is_none() {
                // Samples of dropped stacks were left out before.
                *known = rewriter.rewrite(stacks[sample.stack as usize], &mut list.dictionary);
            }
            match known {
                Some(stack) => sample.stack = *stack,
                None => is_damaged = true,
            }
        }
    })?;
    if is_damaged { Err(ProfileQueryError::Damaged("a sample has an unknown stack")) } else { Ok(()) }
}

/// Adds up the samples of one profile that have the same stack and span. Each stays in the place of the first.
fn merge_equal_stacks(samples: &mut Vec<ListedSample>) -> Result<(), ProfileQueryError> {
    let mut place_of: BTreeMap<(u32, SpanContext), usize> = BTreeMap::new();
    let mut merged: Vec<ListedSample> = Vec::with_capacity(samples.len());
    for sample in samples.drain(..) {
        let place = *place_of.entry((sample.stack, sample.span)).or_insert(merged.len());
        match merged.get_mut(place) {
            Some(known) => add_checked(&mut known.value, sample.value, PROFILE_VALUES)?,
            None => merged.push(sample),
        }
    }
    *samples = merged;
    Ok(())
}
