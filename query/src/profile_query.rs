//! What to compute, and over what.

use std::collections::BTreeSet;
use std::sync::Arc;

use athanor_chassis::code::{ErrorCode, ErrorCodeExt};
use athanor_profile::hash::ContentHash;
use athanor_profile::identity::profile_id_of_record;
use athanor_profile::{ProfileRow, ProfileType, SourceError, SpanFilter};

use crate::dedup::ExcludedIds;
use crate::profile_filter::TimeRange;
use crate::profile_list::ProfileListQuery;
use crate::selector::Selector;
use crate::stack_filter::{GoPgoOptions, StackFilter};

/// A question to profiles, wherever they lie. Each source gives a [`PartialResult`](crate::PartialResult).
#[derive(Clone, Debug, Default)]
pub struct ProfileQuery {
    /// Of which profiles.
    pub selection: ProfileSelection,
    /// What of them.
    pub what: QueryKind,
    /// How large an answer may grow.
    pub bounds: ResultLimits,
}

/// Which profiles are meant.
#[derive(Clone, Debug, Default)]
pub struct ProfileSelection {
    /// Of series that match this; the labels are those of [`series_labels`](crate::series_labels).
    pub selector: Selector,
    /// Measuring this; everything if none.
    pub profile_type: Option<ProfileType>,
    /// Taken when.
    pub time: TimeRange,
    /// With one of these ids, all if there is none. An id whose second half is zero means all records of a profile.
    pub profiles: BTreeSet<ContentHash>,
    /// Only what belongs to one of these requests counts; everything if none.
    pub requests: Option<SpanFilter>,
    /// Not those with these ids: they count in another place.
    pub without: ExcludedIds,
}

impl ProfileSelection {
    /// Whether a profile of a series that is meant is meant itself.
    pub fn matches_profile(&self, profile: &ProfileRow) -> bool {
        let is_named = |id: ContentHash| {
            self.profiles.contains(&id) || self.profiles.contains(&profile_id_of_record(id))
        };
        self.time.contains(profile.time)
            && (self.profiles.is_empty() || is_named(profile.id))
            && (self.without.is_empty() || !self.without.contains(&profile.id))
    }
}

/// What is computed.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum QueryKind {
    /// What is measured.
    #[default]
    ProfileTypes,
    /// The names of labels.
    LabelNames,
    /// The values of one label.
    LabelValues(LabelValuesQuery),
    /// Sets of labels, cut down to these names; all names if none.
    Series(Vec<String>),
    /// Stacks merged by function name.
    Tree(StackFilter),
    /// Stacks merged by location, with all that is known of them, or as the Go compiler wants them.
    Profile(StackFilter, Option<GoPgoOptions>),
    /// Values over time.
    Points(TimeSeriesQuery),
    /// The values of single profiles or spans over time.
    Heat(HeatmapQuery),
    /// What merging stacks would read.
    Sizes,
    /// Stacks merged by function name, for each set of values of some labels.
    Trees(GroupedTreesQuery),
    /// The profiles themselves.
    Profiles(ProfileListQuery),
    /// The ids of all profiles.
    Ids,
}

/// Values of one label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelValuesQuery {
    /// The label.
    pub name: String,
    /// What they begin with.
    pub prefix: String,
    /// So many of them, the first in their order; all if it is 0.
    pub most: u64,
}

/// What of a source a question needs beside its series and profiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequiredData {
    /// Sums by stack.
    pub totals: bool,
    /// The rows themselves.
    pub rows: bool,
    /// What stacks are called.
    pub names: bool,
    /// Sums by stack of each of several groups.
    pub groups: bool,
    /// Everything of profiles: their ids, durations and periods as well.
    pub profiles: bool,
    /// The sum of each profile, where it is known.
    pub profile_totals: bool,
    /// To which request each row belongs.
    pub requests: bool,
}

impl RequiredData {
    /// Whether what says which series and profiles there are is enough: that is little.
    pub fn is_index_only(self) -> bool {
        let RequiredData { totals, rows, groups, profiles, profile_totals, names: _, requests: _ } = self;
        !(totals || rows || groups || profiles || profile_totals)
    }
}

impl ProfileQuery {
    /// Whether a profile that lies in two places would count twice.
    pub fn needs_dedup(&self) -> bool {
        match self.what {
            QueryKind::ProfileTypes
            | QueryKind::LabelNames
            | QueryKind::Series(_)
            | QueryKind::Sizes
            | QueryKind::Ids => false,
            QueryKind::LabelValues(_)
            | QueryKind::Tree(_)
            | QueryKind::Profile(..)
            | QueryKind::Points(_)
            | QueryKind::Heat(_)
            | QueryKind::Trees(_)
            | QueryKind::Profiles(_) => true,
        }
    }

    /// The same question where some profiles do not count.
    #[must_use]
    pub fn with_excluded_ids(&self, without: &ExcludedIds) -> Self {
        let mut ask = self.clone();
        ask.selection.without = Arc::clone(without);
        ask
    }

    /// Which profiles of such a time it is about, all of them.
    pub fn to_ids_query(&self, within: TimeRange) -> Self {
        let mut ask = ProfileQuery { what: QueryKind::Ids, ..self.clone() };
        let time = &mut ask.selection.time;
        *time = TimeRange { from: time.from.max(within.from), to: time.to.min(within.to) };
        ask.selection.requests = None;
        ask
    }

    /// What it needs.
    pub fn required_data(&self) -> RequiredData {
        let named = !self.selection.profiles.is_empty() || !self.selection.without.is_empty();
        // Sums say nothing of requests.
        let requests = self.selection.requests.is_some();
        let needs = RequiredData { profiles: named, requests, ..RequiredData::default() };
        // Sums of profiles, which are known where all of a profile counts.
        let sums = |stacks: &StackFilter| {
            let each = !stacks.is_empty() || requests;
            RequiredData { rows: each, names: !stacks.is_empty(), profile_totals: !each, ..needs }
        };
        match &self.what {
            QueryKind::ProfileTypes
            | QueryKind::LabelNames
            | QueryKind::LabelValues(_)
            | QueryKind::Series(_)
            | QueryKind::Sizes => RequiredData { requests: false, ..needs },
            QueryKind::Ids => RequiredData { profiles: true, requests: false, ..needs },
            QueryKind::Tree(_) | QueryKind::Profile(..) => {
                RequiredData { totals: !requests, rows: requests, names: true, ..needs }
            }
            QueryKind::Trees(_) => {
                RequiredData { totals: !requests, groups: true, rows: requests, names: true, ..needs }
            }
            QueryKind::Points(points) => {
                let of_points = sums(&points.stacks);
                RequiredData { profiles: named || points.mean || points.exemplars, ..of_points }
            }
            QueryKind::Heat(heat) if heat.spans => {
                RequiredData { rows: true, requests: true, profiles: true, ..needs }
            }
            QueryKind::Heat(_) => RequiredData { profiles: true, ..sums(&StackFilter::default()) },
            QueryKind::Profiles(profiles) => RequiredData { profiles: true, ..sums(&profiles.stacks) },
        }
    }
}

/// Values over time: a point each step, for each set of values of some labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeSeriesQuery {
    /// Where they lie.
    pub steps: TimeGrid,
    /// The labels by which series are told apart.
    pub group_by: Vec<String>,
    /// Only these stacks count.
    pub stacks: StackFilter,
    /// Whether profiles are remembered, for a mean.
    pub mean: bool,
    /// Whether the largest profile of each point is remembered.
    pub exemplars: bool,
}

/// Trees by group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupedTreesQuery {
    /// The labels by which series are told apart; none makes one group.
    pub group_by: Vec<String>,
    /// Only these stacks count.
    pub stacks: StackFilter,
}

/// The values of single profiles, or of the spans in each, over time: by column, for each set of values of some labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeatmapQuery {
    /// Where the columns end.
    pub steps: TimeGrid,
    /// The labels by which series are told apart.
    pub group_by: Vec<String>,
    /// Whether values are those of spans.
    pub spans: bool,
    /// Whether labels of profiles are remembered.
    pub exemplars: bool,
}

/// Points in time.
///
/// Point k lies at `start` + k·`step` and stands for the time since the point before it, so the first one holds
/// data from before `start`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeGrid {
    /// The first point, Unix nanoseconds.
    pub start: i64,
    /// Nanoseconds between two points, at least 1.
    pub step: i64,
    /// How many points there are.
    pub count: u64,
}

impl TimeGrid {
    /// The time that the points stand for.
    pub fn time_range(&self) -> TimeRange {
        let last = i128::from(self.start) + i128::from(self.step) * (i128::from(self.count) - 1);
        let to = i64::try_from(last + 1).unwrap_or(i64::MAX);
        TimeRange { from: self.start.saturating_sub(self.step).saturating_add(1), to }
    }

    /// The point that stands for a moment, if there is one.
    pub fn point_index(&self, time: i64) -> Option<u64> {
        let after = i128::from(time) - i128::from(self.start);
        let step = i128::from(self.step.max(1));
        // Rounded up: a point stands for what lies before it.
        let place = after.div_euclid(step) + i128::from(after.rem_euclid(step) != 0);
        u64::try_from(place).ok().filter(|place| *place < self.count)
    }
}

/// How large an answer may grow. What would be larger is refused, never cut short silently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultLimits {
    /// Label names, values, sets of labels, types.
    pub entries: usize,
    /// Functions in their context.
    pub nodes: usize,
    /// Different stacks.
    pub stacks: usize,
    /// Points of all series together, the profiles behind means, and the values of single profiles and spans.
    pub points: usize,
}

impl Default for ResultLimits {
    fn default() -> Self {
        ResultLimits { entries: 1_000_000, nodes: 16_000_000, stacks: 4_000_000, points: 1_000_000 }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileQueryError {
    /// The source gave none.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// It would be too large.
    #[error("answer has more than {limit} {what}; select fewer series or a shorter time")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much there may be.
        limit: usize,
    },
    /// The source contradicts itself.
    #[error("stored profiles are damaged: {0}")]
    Damaged(&'static str),
}

impl ErrorCodeExt for ProfileQueryError {
    fn code(&self) -> ErrorCode {
        match self {
            ProfileQueryError::Source(SourceError::Damaged(_)) | ProfileQueryError::Damaged(_) => {
                ErrorCode::DataLoss
            }
            ProfileQueryError::Source(SourceError::Unavailable(_) | SourceError::Moved(_)) => {
                ErrorCode::Unavailable
            }
            ProfileQueryError::Source(SourceError::Left) => ErrorCode::Cancelled,
            ProfileQueryError::TooLarge { .. } => ErrorCode::Invalid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_estimates_read_no_rows() {
        let is_index_only =
            |what| ProfileQuery { what, ..ProfileQuery::default() }.required_data().is_index_only();
        let values = QueryKind::LabelValues(LabelValuesQuery::default());
        let lists = [
            QueryKind::ProfileTypes,
            QueryKind::LabelNames,
            values,
            QueryKind::Series(Vec::new()),
            QueryKind::Sizes,
        ];
        assert!(lists.into_iter().all(is_index_only));
        let (stacks, spans) = (StackFilter::default, HeatmapQuery { spans: true, ..HeatmapQuery::default() });
        let rows = [
            QueryKind::Tree(stacks()),
            QueryKind::Profile(stacks(), None),
            QueryKind::Trees(GroupedTreesQuery::default()),
            QueryKind::Points(TimeSeriesQuery::default()),
            QueryKind::Heat(HeatmapQuery::default()),
            QueryKind::Heat(spans),
            QueryKind::Profiles(ProfileListQuery::default()),
        ];
        assert!(!rows.into_iter().any(is_index_only));
    }

    #[test]
    fn a_point_stands_for_what_lies_before_it() {
        let points = TimeGrid { start: 100, step: 10, count: 3 };
        let places: Vec<Option<u64>> =
            [89, 90, 91, 100, 101, 110, 111, 120, 121].map(|time| points.point_index(time)).to_vec();
        assert_eq!(places[..1], [None]);
        // 90 belongs to a point at 90, which is before the first.
        assert_eq!(places[1..], [None, Some(0), Some(0), Some(1), Some(1), Some(2), Some(2), None]);
        assert_eq!(points.time_range(), TimeRange { from: 91, to: 121 });
        let extreme = TimeGrid { start: i64::MIN, step: i64::MAX, count: u64::MAX };
        assert_eq!(extreme.point_index(i64::MAX), Some(3));
        assert_eq!(extreme.time_range().to, i64::MAX);
    }
}
