//! Numbers of the profiles of one source, by group.

use athanor_profile::data_model::identity::profile_id_of_record;
use athanor_profile::encoding::hash::{ContentHash, PrehashedSet};
use athanor_profile::store_interface::series::BucketCounts;

use super::groups::{SeriesGroups, group_entry};
use super::matched_profiles::MatchedProfiles;
use crate::result::profile_count::{ProfileCount, ProfileCounts};

/// Counts the selected profiles of each group. Profiles without any selected stack count too.
pub(super) fn count_profiles(picked: &MatchedProfiles, group_by: &[String]) -> ProfileCounts {
    let mut groups = SeriesGroups::new(picked, group_by);
    let mut gathered: Vec<(ProfileCount, PrehashedSet<ContentHash>)> = Vec::new();
    for row in picked.rows() {
        let (count, seen) = group_entry(&mut gathered, groups.group_of(row.series));
        match picked.is_downsampled {
            true => count.downsampled.add(BucketCounts::from_row_id(row.id)),
            false => count.raw += u64::from(seen.insert(profile_id_of_record(row.id))),
        }
    }
    groups.into_map(gathered).into_iter().map(|(labels, (count, _))| (labels, count)).collect()
}
