//! Numbers of profiles, by which sums are divided for averages.

use std::collections::BTreeMap;

use athanor_profile::Labels;
use athanor_profile::store_interface::series::BucketCounts;

/// Numbers of profiles, by the values of the grouping labels.
pub type ProfileCounts = BTreeMap<Labels, ProfileCount>;

/// Number of profiles. Records that sample labels split off one profile count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfileCount {
    /// Number of profiles of the raw tier.
    pub raw: u64,
    /// Counts of the profiles in downsampled rows.
    pub downsampled: BucketCounts,
}

impl ProfileCount {
    /// Returns the number of profiles.
    ///
    /// Downsampled rows count a profile at the first of its records. If none of the first records is selected,
    /// the records are counted.
    pub fn total(&self) -> u64 {
        let downsampled = match self.downsampled {
            BucketCounts { records, profiles: 0 } => records,
            BucketCounts { profiles, .. } => profiles,
        };
        downsampled.saturating_add(self.raw)
    }

    /// Returns true if the number of profiles is known. Sample labels split profiles into several records, and
    /// downsampled rows do not tell which records belong together.
    pub fn is_exact(&self) -> bool {
        self.downsampled.records == self.downsampled.profiles
    }

    /// Adds the count of other sources. A source holds all records of a profile or none.
    pub(crate) fn add(&mut self, other: ProfileCount) {
        self.raw = self.raw.saturating_add(other.raw);
        self.downsampled.add(other.downsampled);
    }
}

/// Merges the counts of other sources.
pub(crate) fn merge_counts(mut left: ProfileCounts, right: ProfileCounts) -> ProfileCounts {
    for (labels, count) in right {
        left.entry(labels).or_default().add(count);
    }
    left
}
