//! Values over time of one source.

use std::collections::BTreeMap;

use athanor_profile::ProfileSource;
use athanor_profile::data_model::identity::profile_id_of_record;
use athanor_profile::store_interface::series::BucketCounts;

use super::exemplars::{self, SeriesPointKey};
use super::groups::{SeriesGroups, group_entry};
use super::matched_profiles::MatchedProfiles;
use super::stack_sums::find_passing_stacks;
use crate::request::profile_query::{ProfileQueryError, ProfileSelection, TimeSeriesQuery};
use crate::request::stack_filter::StackFilter;
use crate::result::partial::{TimeSeriesPoint, TimeSeriesPoints};
use crate::result::sum_check::{POINT_VALUES, PROFILE_VALUES, add_checked};

/// Returns the sum of each profile's selected rows that pass a filter, in the order of `places`. Does not read rows if the
/// source stores the sums. A stored sum below zero may have wrapped, so the rows of such a profile are read.
pub(super) fn sum_by_profile(
    picked: &MatchedProfiles,
    selection: &ProfileSelection,
    filter: &StackFilter,
    source: &dyn ProfileSource,
) -> Result<Vec<i64>, ProfileQueryError> {
    let totals = match filter.is_empty() && selection.requests.is_none() {
        true => source.profile_totals()?,
        false => None,
    };
    let Some(totals) = totals else { return sum_rows(&picked.places, selection, filter, source) };
    let mut sums: Vec<i64> = picked.places.iter().map(|&place| totals[place as usize]).collect();
    let is_unclear = |&place: &u32| totals[place as usize] < 0;
    let unclear: Vec<u32> = picked.places.iter().copied().filter(is_unclear).collect();
    if !unclear.is_empty() {
        let exact = sum_rows(&unclear, selection, filter, source)?;
        sums.iter_mut().filter(|sum| **sum < 0).zip(exact).for_each(|(sum, exact)| *sum = exact);
    }
    Ok(sums)
}

/// Adds up the selected rows of each profile. The places are ascending.
fn sum_rows(
    places: &[u32],
    selection: &ProfileSelection,
    filter: &StackFilter,
    source: &dyn ProfileSource,
) -> Result<Vec<i64>, ProfileQueryError> {
    let passing = find_passing_stacks(source, filter)?;
    let is_passing = |stack: u32| {
        passing.as_ref().is_none_or(|passing| passing.get(stack as usize).copied().unwrap_or(false))
    };
    let mut sums = vec![0i128; places.len()];
    let mut add = |place: u32, sum: i128| {
        if let Ok(number) = places.binary_search(&place) {
            sums[number] += sum;
        }
    };
    match &selection.requests {
        None => source.visit_rows(places, &mut |place, stacks, values| {
            let rows = stacks.iter().zip(values).filter(|(stack, _)| is_passing(**stack));
            add(place, rows.map(|(_, &value)| i128::from(value)).sum());
        })?,
        Some(wanted) => source.visit_span_rows(places, &mut |place, stacks, values, requests| {
            let rows = stacks.iter().zip(values).zip(requests);
            let rows = rows.filter(|((stack, _), request)| is_passing(**stack) && wanted.contains(**request));
            add(place, rows.map(|((_, &value), _)| i128::from(value)).sum());
        })?,
    }
    let sums = sums.into_iter().map(i64::try_from).collect::<Result<_, _>>();
    sums.map_err(|_| ProfileQueryError::SumTooLarge { what: PROFILE_VALUES })
}

pub(super) fn points(
    picked: &MatchedProfiles,
    selection: &ProfileSelection,
    points: &TimeSeriesQuery,
    source: &dyn ProfileSource,
) -> Result<TimeSeriesPoints, ProfileQueryError> {
    let sums = sum_by_profile(picked, selection, &points.stacks, source)?;
    let is_part = !points.stacks.is_empty() || selection.requests.is_some();
    let mut groups = SeriesGroups::new(picked, &points.group_by);
    let mut gathered = Vec::new();
    for (row, &sum) in picked.rows().zip(&sums) {
        let Some(point) = points.steps.point_index(row.time) else { continue };
        // Without a selected row there is no point. A mean, however, covers all profiles.
        if sum == 0 && is_part && !points.mean {
            continue;
        }
        let cells: &mut BTreeMap<u64, TimeSeriesPoint> =
            group_entry(&mut gathered, groups.group_of(row.series));
        let cell = cells.entry(point).or_default();
        add_checked(&mut cell.sum, sum, POINT_VALUES)?;
        match points.mean {
            true if picked.is_downsampled => cell.downsampled.add(BucketCounts::from_row_id(row.id)),
            true => drop(cell.profiles.insert(profile_id_of_record(row.id))),
            false => {}
        }
    }
    if points.exemplars {
        for (SeriesPointKey { group, point }, exemplar) in
            exemplars::largest_exemplars(picked, points, &sums, &mut groups)?
        {
            group_entry(&mut gathered, group).entry(point).or_default().exemplar = Some(exemplar);
        }
    }
    Ok(groups.into_map(gathered))
}
