//! Lists of single profiles. Of each source the first ones in an order are enough: the first ones of all sources are
//! among them, since each profile is in one source. So a list merges, though it is cut.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;

use athanor_profile::Labels;
use athanor_profile::hash::ContentHash;

use crate::partial::labels_bytes;
use crate::stack_filter::StackFilter;

/// Which profiles come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProfileOrder {
    /// Those that were taken last.
    #[default]
    Newest,
    /// Those with the greatest value, whatever its sign.
    Heaviest,
}

/// What of single profiles is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileListQuery {
    /// Which come first.
    pub order: ProfileOrder,
    /// How many are listed.
    pub keep: u64,
    /// Only these stacks count; a profile without any is not listed.
    pub stacks: StackFilter,
}

/// The first profiles in an order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileList {
    order: ProfileOrder,
    keep: u64,
    /// How many profiles there are, listed or not.
    pub profiles: u64,
    /// The least and the greatest period of all of them; none if there is no profile.
    pub periods: Option<(i64, i64)>,
    pub(crate) rows: Vec<ProfileListEntry>,
}

/// A profile of one series.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileListEntry {
    /// All labels by which it can be selected.
    pub labels: Labels,
    /// When it was taken, Unix nanoseconds.
    pub time: i64,
    /// How long it took, nanoseconds.
    pub duration: i64,
    /// What lay between two samples.
    pub period: i64,
    /// The sum of its values, modulo 2^64.
    pub total: i64,
    /// Its record id.
    pub id: ContentHash,
}

/// What a row takes beside its labels.
const LIST_ENTRY_BYTES: usize = size_of::<ProfileListEntry>();

impl ProfileOrder {
    /// Total: rows that are equal in it are equal in everything.
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
    /// The list of no source at all.
    pub(crate) fn empty(asked: &ProfileListQuery) -> Self {
        ProfileList { order: asked.order, keep: asked.keep, ..ProfileList::default() }
    }

    /// The profiles that are listed, in their order.
    pub fn entries(&self) -> &[ProfileListEntry] {
        &self.rows
    }

    pub(crate) fn max_entries(&self) -> usize {
        usize::try_from(self.keep).unwrap_or(usize::MAX)
    }

    /// Counts a profile with such a period.
    pub(crate) fn count_profile(&mut self, period: i64) {
        self.profiles += 1;
        let (least, most) = self.periods.unwrap_or((period, period));
        self.periods = Some((least.min(period), most.max(period)));
    }

    /// Adds a row, wherever it belongs. At most as many again as are kept wait for their place.
    pub(crate) fn insert_entry(&mut self, row: ProfileListEntry) {
        self.rows.push(row);
        if self.rows.len() / 2 > self.max_entries() {
            self.sort_and_truncate();
        }
    }

    /// Puts rows in order, and forgets those that are not kept.
    pub(crate) fn sort_and_truncate(&mut self) {
        let order = self.order;
        self.rows.sort_unstable_by(|left, right| order.compare(left, right));
        self.rows.truncate(self.max_entries());
    }

    /// Whether the rows are what [`sort_and_truncate`](Self::sort_and_truncate) leaves.
    pub(crate) fn is_sorted_and_truncated(&self) -> bool {
        let in_order =
            |pair: &[ProfileListEntry]| self.order.compare(&pair[0], &pair[1]) != Ordering::Greater;
        self.rows.len() <= self.max_entries() && self.rows.windows(2).all(in_order)
    }

    /// Adds the list of other sources.
    pub(crate) fn merge(&mut self, other: ProfileList) {
        self.profiles = self.profiles.saturating_add(other.profiles);
        self.periods = match (self.periods, other.periods) {
            (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
            (one, other) => one.or(other),
        };
        self.rows.extend(other.rows);
        self.sort_and_truncate();
    }

    /// About how many bytes it takes. Rows of a series share its labels.
    pub(crate) fn bytes(&self) -> usize {
        let sets: BTreeSet<&Labels> = self.rows.iter().map(|row| &row.labels).collect();
        self.rows.len() * LIST_ENTRY_BYTES + sets.into_iter().map(labels_bytes).sum::<usize>()
    }

    /// What [`bytes`](Self::bytes) are before labels are known.
    pub(crate) fn entry_bytes(rows: usize) -> usize {
        rows.saturating_mul(LIST_ENTRY_BYTES)
    }
}
