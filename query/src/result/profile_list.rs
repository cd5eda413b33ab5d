//! Lists of single profiles. Each profile is in one source, so the first profiles of all sources are among
//! the first ones of each source. Truncated lists can therefore be merged.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;

use athanor_profile::Labels;
use athanor_profile::encoding::hash::ContentHash;

use crate::request::profile_query::{ProfileListQuery, ProfileOrder};
use crate::result::memory_size::labels_bytes;

/// Sorted and truncated list of profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileList {
    order: ProfileOrder,
    keep: u64,
    /// Number of all profiles, listed or not.
    pub profiles: u64,
    /// Minimum and maximum period of all profiles. None if there is no profile.
    pub periods: Option<(i64, i64)>,
    pub(crate) rows: Vec<ProfileListEntry>,
}

/// Listed profile of one series.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileListEntry {
    /// All labels by which the profile can be selected.
    pub labels: Labels,
    /// Timestamp of the profile, Unix nanoseconds.
    pub time: i64,
    /// Duration of the profile, nanoseconds.
    pub duration: i64,
    /// Sampling period of the profile.
    pub period: i64,
    /// Sum of the profile's values.
    pub total: i64,
    /// Record id of the profile.
    pub id: ContentHash,
}

/// Memory of an entry beside its labels.
const LIST_ENTRY_BYTES: usize = size_of::<ProfileListEntry>();

impl ProfileOrder {
    /// Compares entries in a total order: entries that compare as equal are identical.
    fn compare(self, left: &ProfileListEntry, right: &ProfileListEntry) -> Ordering {
        let heaviest = |row: &ProfileListEntry| {
            Reverse(match self {
                ProfileOrder::Newest => 0,
                ProfileOrder::Heaviest => row.total.unsigned_abs(),
            })
        };
        let key = |row: &ProfileListEntry| (heaviest(row), Reverse(row.time), row.id);
        key(left).cmp(&key(right)).then_with(|| left.cmp(right))
    }
}

impl ProfileList {
    /// Returns the list of a query without any source.
    pub(crate) fn empty(asked: &ProfileListQuery) -> Self {
        ProfileList { order: asked.order, keep: asked.keep, ..ProfileList::default() }
    }

    /// Returns the listed profiles, sorted.
    pub fn entries(&self) -> &[ProfileListEntry] {
        &self.rows
    }

    pub(crate) fn max_entries(&self) -> usize {
        usize::try_from(self.keep).unwrap_or(usize::MAX)
    }

    /// Counts a profile with its period.
    pub(crate) fn count_profile(&mut self, period: i64) {
        self.profiles += 1;
        let (least, most) = self.periods.unwrap_or((period, period));
        self.periods = Some((least.min(period), most.max(period)));
    }

    /// Adds an entry. The list is sorted and truncated once it exceeds about two times its limit.
    pub(crate) fn insert_entry(&mut self, row: ProfileListEntry) {
        self.rows.push(row);
        if self.rows.len() / 2 > self.max_entries() {
            self.sort_and_truncate();
        }
    }

    /// Sorts the entries, and drops those beyond the limit.
    pub(crate) fn sort_and_truncate(&mut self) {
        let order = self.order;
        self.rows.sort_unstable_by(|left, right| order.compare(left, right));
        self.rows.truncate(self.max_entries());
    }

    /// Returns true if [`sort_and_truncate`](Self::sort_and_truncate) would change nothing.
    pub(crate) fn is_sorted_and_truncated(&self) -> bool {
        let in_order =
            |pair: &[ProfileListEntry]| self.order.compare(&pair[0], &pair[1]) != Ordering::Greater;
        self.rows.len() <= self.max_entries() && self.rows.windows(2).all(in_order)
    }

    /// Merges the list of other sources.
    pub(crate) fn merge(&mut self, other: ProfileList) {
        self.profiles = self.profiles.saturating_add(other.profiles);
        self.periods = match (self.periods, other.periods) {
            (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
            (one, other) => one.or(other),
        };
        self.rows.extend(other.rows);
        self.sort_and_truncate();
    }

    /// Returns the approximate memory in bytes. Entries of a series share its labels.
    pub(crate) fn bytes(&self) -> usize {
        let sets: BTreeSet<&Labels> = self.rows.iter().map(|row| &row.labels).collect();
        self.rows.len() * LIST_ENTRY_BYTES + sets.into_iter().map(labels_bytes).sum::<usize>()
    }

    /// Returns the part of [`bytes`](Self::bytes) that is known before the labels.
    pub(crate) fn entry_bytes(rows: usize) -> usize {
        rows.saturating_mul(LIST_ENTRY_BYTES)
    }
}
