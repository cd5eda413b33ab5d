//! Times of a tenant's profiles that retention removed, by tier.

use std::collections::BTreeMap;

use athanor_chassis::Tier;
use serde::{Deserialize, Serialize};

use crate::block::{BlockEntry, TenantSpan};

/// Range of profile times, Unix nanoseconds, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileTimeRange {
    /// Time of the earliest profile.
    pub first: i64,
    /// Time of the latest profile.
    pub last: i64,
}

/// Times of removed rows of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "EncodedTimes")]
pub(super) struct RemovedTimes {
    /// Times of raw rows that no tier held.
    uncovered: Option<ProfileTimeRange>,
    /// Times of covered raw rows and of downsampled rows, by tier.
    by_tier: BTreeMap<Tier, ProfileTimeRange>,
}

/// Times as snapshots state them.
#[derive(Deserialize)]
#[serde(untagged)]
enum EncodedTimes {
    Table(TimeTable),
    /// Times of raw rows only, as older versions wrote them.
    Uncovered(Option<ProfileTimeRange>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeTable {
    uncovered: Option<ProfileTimeRange>,
    by_tier: BTreeMap<Tier, ProfileTimeRange>,
}

impl ProfileTimeRange {
    /// Returns the smallest range that contains both.
    pub(super) fn union(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    /// Returns whether a range of times overlaps, both ends included.
    pub(super) fn overlaps(self, from: i64, to: i64) -> bool {
        self.last >= from && self.first <= to
    }

    pub(super) fn from_span(span: &TenantSpan) -> Self {
        Self { first: span.min_time, last: span.max_time }
    }
}

impl From<EncodedTimes> for RemovedTimes {
    fn from(encoded: EncodedTimes) -> Self {
        match encoded {
            EncodedTimes::Table(TimeTable { uncovered, by_tier }) => Self { uncovered, by_tier },
            EncodedTimes::Uncovered(uncovered) => Self { uncovered, by_tier: BTreeMap::new() },
        }
    }
}

impl RemovedTimes {
    /// Adds a tenant's rows of a removed block.
    pub(super) fn add(&mut self, block: &BlockEntry, times: ProfileTimeRange) {
        if block.is_uncovered() {
            self.add_uncovered(times);
        } else {
            self.add_tier(block.tier, times);
        }
    }

    /// Adds times of raw rows that no tier held.
    pub(super) fn add_uncovered(&mut self, times: ProfileTimeRange) {
        self.uncovered = Some(self.uncovered.map_or(times, |known| known.union(times)));
    }

    /// Adds times of rows of a tier.
    pub(super) fn add_tier(&mut self, tier: Tier, times: ProfileTimeRange) {
        self.by_tier.entry(tier).and_modify(|known| *known = known.union(times)).or_insert(times);
    }

    /// Adds other removed times.
    pub(super) fn add_all(&mut self, other: &Self) {
        if let Some(times) = other.uncovered {
            self.add_uncovered(times);
        }
        for (tier, times) in &other.by_tier {
            self.add_tier(*tier, *times);
        }
    }

    /// Returns the latest removed time of each tier with removed rows.
    pub(super) fn latest_by_tier(&self) -> BTreeMap<Tier, i64> {
        let mut latest: BTreeMap<Tier, i64> =
            self.by_tier.iter().map(|(tier, times)| (*tier, times.last)).collect();
        if let Some(times) = self.uncovered {
            let raw = latest.entry(Tier::Raw).or_insert(times.last);
            *raw = times.last.max(*raw);
        }
        latest
    }

    /// Returns times of raw rows that no tier held, if they overlap a range.
    pub(super) fn uncovered_in(&self, from: i64, to: i64) -> Option<ProfileTimeRange> {
        self.uncovered.filter(|times| times.overlaps(from, to))
    }

    /// Returns the times at which all tiers lost the rows that they held.
    pub(super) fn lost_in_all_tiers(&self) -> Option<ProfileTimeRange> {
        let has_all = Tier::ALL.iter().all(|tier| self.by_tier.contains_key(tier));
        let first = self.by_tier.values().map(|times| times.first).min()?;
        let last = self.by_tier.values().map(|times| times.last).min()?;
        (has_all && first <= last).then_some(ProfileTimeRange { first, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_older_versions_are_of_raw_rows() {
        let range = ProfileTimeRange { first: 3, last: 7 };
        let old: RemovedTimes = serde_json::from_str(r#"{"first":3,"last":7}"#).unwrap();
        assert_eq!(old, RemovedTimes { uncovered: Some(range), ..RemovedTimes::default() });
        assert_eq!(serde_json::from_str::<RemovedTimes>("null").unwrap(), RemovedTimes::default());
        let new = RemovedTimes { uncovered: None, by_tier: [(Tier::OneDay, range)].into() };
        let encoded = serde_json::to_string(&new).unwrap();
        assert_eq!(serde_json::from_str::<RemovedTimes>(&encoded).unwrap(), new);
    }

    #[test]
    fn rows_are_lost_once_every_tier_removed_them() {
        let mut times = RemovedTimes::default();
        for (tier, last) in [(Tier::Raw, 90), (Tier::FiveMinutes, 80), (Tier::OneHour, 70)] {
            times.add_tier(tier, ProfileTimeRange { first: 10, last });
            assert_eq!(times.lost_in_all_tiers(), None);
        }
        times.add_tier(Tier::OneDay, ProfileTimeRange { first: 20, last: 60 });
        assert_eq!(times.lost_in_all_tiers(), Some(ProfileTimeRange { first: 10, last: 60 }));
        assert_eq!(times.latest_by_tier()[&Tier::Raw], 90);
        times.add_uncovered(ProfileTimeRange { first: 95, last: 95 });
        assert_eq!(times.latest_by_tier()[&Tier::Raw], 95);
    }
}
