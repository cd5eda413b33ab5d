//! Values over time of one source.

use std::collections::{BTreeMap, HashMap};

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

/// Returns the sum of each profile's selected rows that pass a filter. Does not read rows if the source
/// stores the sums. A stored sum below zero may have wrapped, so the rows of such a profile are read.
pub(super) fn sum_by_profile(
    picked: &MatchedProfiles,
    selection: &ProfileSelection,
    filter: &StackFilter,
    source: &dyn ProfileSource,
) -> Result<HashMap<u32, i64>, ProfileQueryError> {
    if filter.is_empty()
        && selection.requests.is_none()
        && let Some(totals) = source.profile_totals()?
    {
        let (stored, unclear): (Vec<u32>, Vec<u32>) =
            picked.places.iter().partition(|&&place| totals[place as usize] >= 0);
        let mut sums = match unclear.is_empty() {
            true => HashMap::with_capacity(stored.len()),
            false => sum_rows(&unclear, selection, filter, source)?,
        };
        sums.extend(stored.into_iter().map(|place| (place, totals[place as usize])));
        return Ok(sums);
    }
    sum_rows(&picked.places, selection, filter, source)
}

/// Adds up the selected rows of each profile.
fn sum_rows(
    places: &[u32],
    selection: &ProfileSelection,
    filter: &StackFilter,
    source: &dyn ProfileSource,
) -> Result<HashMap<u32, i64>, ProfileQueryError> {
    let passing = find_passing_stacks(source, filter)?;
    let is_passing = |stack: u32| {
        passing.as_ref().is_none_or(|passing| passing.get(stack as usize).copied().unwrap_or(false))
    };
    let mut sums: HashMap<u32, i128> = HashMap::new();
    match &selection.requests {
        None => source.visit_rows(places, &mut |place, stacks, values| {
            let rows = stacks.iter().zip(values).filter(|(stack, _)| is_passing(**stack));
            *sums.entry(place).or_default() += rows.map(|(_, &value)| i128::from(value)).sum::<i128>();
        })?,
        Some(wanted) => source.visit_span_rows(places, &mut |place, stacks, values, requests| {
            let rows = stacks.iter().zip(values).zip(requests);
            let rows = rows.filter(|((stack, _), request)| is_passing(**stack) && wanted.contains(**request));
            *sums.entry(place).or_default() += rows.map(|((_, &value), _)| i128::from(value)).sum::<i128>();
        })?,
    }
    let fitting = |(place, sum): (u32, i128)| Some((place, i64::try_from(sum).ok()?));
    let sums = sums.into_iter().map(fitting).collect::<Option<_>>();
    sums.ok_or(ProfileQueryError::SumTooLarge { what: PROFILE_VALUES })
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
    for &place in &picked.places {
        let row = &picked.profiles[place as usize];
        let Some(point) = points.steps.point_index(row.time) else { continue };
        let sum = sums.get(&place).copied().unwrap_or_default();
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
