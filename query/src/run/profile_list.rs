//! Lists of single profiles of one source: the first ones in an order, and their total number.

use athanor_profile::{ProfileRow, ProfileSource};

use super::matched_profiles::{MatchedProfiles, SeriesLabelCache};
use super::points::sum_by_profile;
use crate::request::profile_query::{ProfileListQuery, ProfileOrder, ProfileQueryError, ProfileSelection};
use crate::result::profile_list::{ProfileList, ProfileListEntry};

/// Returns the list of one source.
pub(super) fn list_profiles(
    picked: &MatchedProfiles,
    selection: &ProfileSelection,
    asked: &ProfileListQuery,
    source: &dyn ProfileSource,
) -> Result<ProfileList, ProfileQueryError> {
    let mut list = ProfileList::empty(asked);
    let mut labels = picked.label_cache();
    // Values are computed for all profiles if they decide selection or order, otherwise only for the listed
    // ones.
    let is_part = !asked.stacks.is_empty() || selection.requests.is_some();
    let weighs_all = is_part || asked.order == ProfileOrder::Heaviest;
    if weighs_all {
        let sums = sum_by_profile(picked, selection, &asked.stacks, source)?;
        let weighed = picked.places.iter().copied().zip(sums);
        let is_meant = |(_, total): &(u32, i64)| *total != 0 || !is_part;
        for (place, total) in weighed.filter(is_meant) {
            list.count_profile(picked.profiles[place as usize].period);
            list.insert_entry(row(picked, &mut labels, place, total));
        }
        list.sort_and_truncate();
        return Ok(list);
    }
    picked.rows().for_each(|profile| list.count_profile(profile.period));
    let newest = newest(picked, list.max_entries());
    let sums = sum_by_profile(&newest, selection, &asked.stacks, source)?;
    for (&place, sum) in newest.places.iter().zip(sums) {
        list.insert_entry(row(picked, &mut labels, place, sum));
    }
    list.sort_and_truncate();
    Ok(list)
}

fn row(
    picked: &MatchedProfiles,
    labels: &mut SeriesLabelCache<'_>,
    place: u32,
    total: i64,
) -> ProfileListEntry {
    let ProfileRow { series, time, id, duration, period, .. } = picked.profiles[place as usize];
    let labels = labels.full_labels(series).clone();
    ProfileListEntry { labels, time, duration, period, total, id }
}

/// Returns the newest selected profiles, and all with the same timestamp as the last one.
fn newest(picked: &MatchedProfiles, keep: usize) -> MatchedProfiles {
    let time = |place: &u32| picked.profiles[*place as usize].time;
    let mut times: Vec<i64> = picked.places.iter().map(time).collect();
    let places = match keep.checked_sub(1) {
        None => Vec::new(),
        Some(last) if last >= times.len() => picked.places.clone(),
        Some(last) => {
            let oldest = *times.select_nth_unstable_by_key(last, |&time| std::cmp::Reverse(time)).1;
            picked.places.iter().copied().filter(|place| time(place) >= oldest).collect()
        }
    };
    let series = picked.series.clone();
    let profiles = picked.profiles.clone();
    MatchedProfiles {
        series,
        profiles,
        places,
        has_exemplars: picked.has_exemplars,
        is_downsampled: picked.is_downsampled,
    }
}
