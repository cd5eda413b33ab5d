//! The profiles themselves: the first of them in an order, and how many there are.

use athanor_profile::{ProfileRow, Source};

use super::{FullLabels, Picked, sums};
use crate::ask::{AskError, Selection};
use crate::profiles::{ListedProfile, ProfileList, ProfileOrder, Profiles};

/// The list of one source.
pub(super) fn profiles(
    picked: &Picked,
    selection: &Selection,
    asked: &Profiles,
    source: &dyn Source,
) -> Result<ProfileList, AskError> {
    let (mut list, mut labels) = (ProfileList::none(asked), picked.labels());
    // What a profile weighs says whether it counts, or where it stands; else only of those that are shown.
    let is_part = !asked.stacks.is_empty() || selection.requests.is_some();
    let weighs_all = is_part || asked.order == ProfileOrder::Heaviest;
    if weighs_all {
        let sums = sums(picked, selection, &asked.stacks, source)?;
        let weighed =
            picked.places.iter().map(|place| (*place, sums.get(place).copied().unwrap_or_default()));
        let is_meant = |(_, total): &(u32, i64)| *total != 0 || !is_part;
        for (place, total) in weighed.filter(is_meant) {
            list.count(picked.profiles[place as usize].period);
            list.offer(row((picked, &mut labels), place, total));
        }
        list.settle();
        return Ok(list);
    }
    picked.rows().for_each(|profile| list.count(profile.period));
    let newest = newest(picked, list.keep());
    let sums = sums(&newest, selection, &asked.stacks, source)?;
    for &place in &newest.places {
        list.offer(row((picked, &mut labels), place, sums.get(&place).copied().unwrap_or_default()));
    }
    list.settle();
    Ok(list)
}

fn row((picked, labels): (&Picked, &mut FullLabels<'_>), place: u32, total: i64) -> ListedProfile {
    let ProfileRow { series, time, id, duration, period, .. } = picked.profiles[place as usize];
    let labels = labels.of(series).clone();
    ListedProfile { labels, time, duration, period, total, id }
}

/// The newest of those that are meant, and all as old as the last of them.
fn newest(picked: &Picked, keep: usize) -> Picked {
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
    let (series, profiles) = (picked.series.clone(), picked.profiles.clone());
    Picked { series, profiles, places, has_exemplars: picked.has_exemplars }
}
