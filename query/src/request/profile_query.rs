//! Profile query: the computation and the selected profiles.

use std::collections::BTreeSet;
use std::sync::Arc;

use athanor_chassis::code::{ErrorCode, ErrorCodeExt};
use athanor_profile::data_model::identity::profile_id_of_record;
use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::{ProfileRow, ProfileType, SourceError, SpanFilter};

use crate::dedup::ExcludedIds;
use crate::request::profile_filter::TimeRange;
use crate::request::profile_position::ProfilePosition;
use crate::request::selector::Selector;
use crate::request::stack_filter::{GoPgoOptions, StackFilter};

/// Query over profiles, independent of their location. Each source returns a
/// [`PartialResult`](crate::PartialResult).
#[derive(Clone, Debug, Default)]
pub struct ProfileQuery {
    /// Profiles to read.
    pub selection: ProfileSelection,
    /// Result to compute.
    pub what: QueryKind,
    /// Maximum size of the result.
    pub bounds: ResultLimits,
}

/// Selection of profiles.
#[derive(Clone, Debug, Default)]
pub struct ProfileSelection {
    /// Selector of series, by the labels of [`series_labels`](crate::series_labels).
    pub selector: Selector,
    /// Profile type of the series. None selects all types.
    pub profile_type: Option<ProfileType>,
    /// Time range of the profiles.
    pub time: TimeRange,
    /// Selected profile ids. Empty selects all. An id whose second half is zero selects all records of a
    /// profile.
    pub profiles: BTreeSet<ContentHash>,
    /// Filter of samples by request (span). None selects all samples.
    pub requests: Option<SpanFilter>,
    /// Excluded ids, which another source counts.
    pub without: ExcludedIds,
    /// Resolution of the data to read, if not the one that the result needs. A cost estimate reads the data of
    /// the estimated query. Remote sources learn whether only single profiles are of use.
    pub resolution: Option<RequiredResolution>,
}

/// Resolution that a query needs from the data that it reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequiredResolution {
    /// True if only single profiles are of use.
    pub single_profiles: bool,
    /// Time grid of the points, if the result has any.
    pub steps: Option<TimeGrid>,
}

impl ProfileSelection {
    /// Returns true if a profile of a selected series is itself selected.
    pub fn matches_profile(&self, profile: &ProfileRow) -> bool {
        let is_named = |id: ContentHash| {
            self.profiles.contains(&id) || self.profiles.contains(&profile_id_of_record(id))
        };
        self.time.contains(profile.time)
            && (self.profiles.is_empty() || is_named(profile.id))
            && (self.without.is_empty() || !self.without.contains(&profile.id))
    }
}

/// Result that a query computes.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum QueryKind {
    /// Profile types of the selected series.
    #[default]
    ProfileTypes,
    /// Names of all labels.
    LabelNames,
    /// Names of all labels that begin with a prefix, with the number of profiles that have each.
    LabelNameCounts {
        /// Required prefix of the names.
        prefix: String,
    },
    /// Values of one label.
    LabelValues(LabelValuesQuery),
    /// Label sets, reduced to these names. An empty list keeps all names.
    Series(Vec<String>),
    /// Stacks merged by function name.
    Tree(StackFilter),
    /// Stacks merged by location with all details, or in the form that Go PGO expects.
    Profile(StackFilter, Option<GoPgoOptions>),
    /// Stacks merged by function name, with the origins of functions.
    OriginTree(StackFilter),
    /// Values over time.
    Points(TimeSeriesQuery),
    /// Values of single profiles or spans over time.
    Heat(HeatmapQuery),
    /// Size of the data that a stack merge would read.
    Sizes,
    /// Stacks merged by function name, for each group of label values.
    Trees(GroupedTreesQuery),
    /// List of single profiles.
    Profiles(ProfileListQuery),
    /// Ids of all selected profiles.
    Ids,
    /// Numbers of profiles, by the values of these labels.
    Counts(Vec<String>),
    /// Samples of the first profiles, in order of time.
    Samples(SamplesQuery),
}

/// Sort order of profiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProfileOrder {
    /// Newest profiles first.
    #[default]
    Newest,
    /// Profiles with the greatest absolute value first.
    Heaviest,
}

/// Query for a list of single profiles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileListQuery {
    /// Sort order of the list.
    pub order: ProfileOrder,
    /// Maximum number of listed profiles.
    pub keep: u64,
    /// Filter of the stacks that count. A profile without any of them is not listed.
    pub stacks: StackFilter,
}

/// Query for samples of single profiles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplesQuery {
    /// Filter of the stacks that count.
    pub stacks: StackFilter,
    /// First profile in order of time that may be listed.
    pub first: ProfilePosition,
    /// Number of samples from which the list ends. It has at least one profile.
    pub max_rows: u64,
    /// True if samples state their spans.
    pub spans: bool,
}

/// Query for the values of one label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelValuesQuery {
    /// Name of the label.
    pub name: String,
    /// Required prefix of the values.
    pub prefix: String,
    /// Maximum number of values, in sorted order. 0 returns all.
    pub most: u64,
}

/// Data that a query needs from a source beside series and profiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequiredData {
    /// Sums by stack.
    pub totals: bool,
    /// Single sample rows.
    pub rows: bool,
    /// Names of functions in stacks.
    pub names: bool,
    /// Sums by stack of each of several groups.
    pub groups: bool,
    /// All columns of profiles, including ids, durations and periods.
    pub profiles: bool,
    /// Sum of each profile, if the source stores it: as a result, or to know that no sum passes 63 bits.
    pub profile_totals: bool,
    /// Request (span) of each row.
    pub requests: bool,
}

impl RequiredData {
    /// Returns true if the small index of series and profiles is sufficient.
    pub fn is_index_only(self) -> bool {
        let RequiredData { totals, rows, groups, profiles, profile_totals, names: _, requests: _ } = self;
        !(totals || rows || groups || profiles || profile_totals)
    }
}

impl ProfileQuery {
    /// Returns true if a profile in two sources would count more than once in the result.
    pub fn needs_dedup(&self) -> bool {
        match self.what {
            QueryKind::ProfileTypes
            | QueryKind::LabelNames
            | QueryKind::Series(_)
            | QueryKind::Sizes
            | QueryKind::Ids => false,
            QueryKind::LabelValues(_)
            | QueryKind::LabelNameCounts { .. }
            | QueryKind::Tree(_)
            | QueryKind::Profile(..)
            | QueryKind::OriginTree(_)
            | QueryKind::Points(_)
            | QueryKind::Heat(_)
            | QueryKind::Trees(_)
            | QueryKind::Profiles(_)
            | QueryKind::Samples(_)
            | QueryKind::Counts(_) => true,
        }
    }

    /// Returns the resolution that the query needs.
    pub fn required_resolution(&self) -> RequiredResolution {
        let ProfileSelection { profiles, requests, resolution, .. } = &self.selection;
        if let Some(resolution) = resolution {
            return *resolution;
        }
        let is_single = match &self.what {
            QueryKind::Heat(_) | QueryKind::Profiles(_) | QueryKind::Samples(_) | QueryKind::Ids => true,
            QueryKind::Points(points) => points.exemplars,
            QueryKind::ProfileTypes
            | QueryKind::LabelNames
            | QueryKind::LabelNameCounts { .. }
            | QueryKind::LabelValues(_)
            | QueryKind::Series(_)
            | QueryKind::Tree(_)
            | QueryKind::Profile(..)
            | QueryKind::OriginTree(_)
            | QueryKind::Sizes
            | QueryKind::Counts(_)
            | QueryKind::Trees(_) => false,
        };
        let steps = match &self.what {
            QueryKind::Points(points) => Some(points.steps.floor_to_millis()),
            _ => None,
        };
        RequiredResolution { single_profiles: is_single || !profiles.is_empty() || requests.is_some(), steps }
    }

    /// Returns true if the result counts profiles. A downsampled row then has to state its counts.
    pub fn counts_profiles(&self) -> bool {
        match &self.what {
            QueryKind::LabelValues(_)
            | QueryKind::LabelNameCounts { .. }
            | QueryKind::Profile(..)
            | QueryKind::OriginTree(_)
            | QueryKind::Counts(_) => true,
            QueryKind::Points(points) => points.mean,
            _ => false,
        }
    }

    /// Returns the same query with these ids excluded.
    #[must_use]
    pub fn with_excluded_ids(&self, without: &ExcludedIds) -> Self {
        let mut ask = self.clone();
        ask.selection.without = Arc::clone(without);
        ask
    }

    /// Returns a query for the ids of all selected profiles within a time range.
    pub fn to_ids_query(&self, within: TimeRange) -> Self {
        let mut ask = ProfileQuery { what: QueryKind::Ids, ..self.clone() };
        let time = &mut ask.selection.time;
        *time = TimeRange { from: time.from.max(within.from), to: time.to.min(within.to) };
        ask.selection.requests = None;
        ask
    }

    /// Returns the data that the query needs from sources.
    pub fn required_data(&self) -> RequiredData {
        let named = !self.selection.profiles.is_empty() || !self.selection.without.is_empty();
        // Sums by stack carry no request ids.
        let requests = self.selection.requests.is_some();
        let needs = RequiredData { profiles: named, requests, ..RequiredData::default() };
        // Stored sums of profiles are usable only if all samples of a profile count.
        let sums = |stacks: &StackFilter| {
            let each = !stacks.is_empty() || requests;
            RequiredData { rows: each, names: !stacks.is_empty(), profile_totals: !each, ..needs }
        };
        match &self.what {
            QueryKind::ProfileTypes
            | QueryKind::LabelNames
            | QueryKind::LabelNameCounts { .. }
            | QueryKind::LabelValues(_)
            | QueryKind::Series(_)
            | QueryKind::Sizes => RequiredData { requests: false, ..needs },
            QueryKind::Ids | QueryKind::Counts(_) => {
                RequiredData { profiles: true, requests: false, ..needs }
            }
            QueryKind::Tree(_) | QueryKind::Profile(..) | QueryKind::OriginTree(_) => {
                RequiredData { totals: !requests, rows: requests, names: true, profile_totals: true, ..needs }
            }
            QueryKind::Trees(_) => {
                let needs = RequiredData { names: true, profile_totals: true, ..needs };
                RequiredData { totals: !requests, groups: true, rows: requests, ..needs }
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
            QueryKind::Samples(samples) => RequiredData {
                rows: true,
                names: true,
                profiles: true,
                requests: requests || samples.spans,
                ..needs
            },
        }
    }
}

/// Time series query: a point each step, for each set of values of the grouping labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeSeriesQuery {
    /// Time grid of the points.
    pub steps: TimeGrid,
    /// Labels that distinguish series.
    pub group_by: Vec<String>,
    /// Filter of the stacks that count.
    pub stacks: StackFilter,
    /// True if profiles are counted, for a mean.
    pub mean: bool,
    /// True if the largest profile of each point is kept as an exemplar.
    pub exemplars: bool,
}

/// Query for one tree per group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupedTreesQuery {
    /// Labels that distinguish groups. An empty list makes one group.
    pub group_by: Vec<String>,
    /// Filter of the stacks that count.
    pub stacks: StackFilter,
}

/// Heatmap query: values of single profiles, or of the spans in each, by column and by group of label values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeatmapQuery {
    /// Time grid of the column ends.
    pub steps: TimeGrid,
    /// Labels that distinguish groups.
    pub group_by: Vec<String>,
    /// True if the values are those of spans.
    pub spans: bool,
    /// True if labels of profiles are kept as exemplars.
    pub exemplars: bool,
}

/// Grid of points in time.
///
/// Point k lies at `start` + k·`step` and covers the time since the previous point. The first point therefore
/// covers data from before `start`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeGrid {
    /// First point, Unix nanoseconds.
    pub start: i64,
    /// Nanoseconds between two points, at least 1.
    pub step: i64,
    /// Number of points.
    pub count: u64,
}

impl TimeGrid {
    /// Returns the time range that the points cover.
    pub fn time_range(&self) -> TimeRange {
        let last = i128::from(self.start) + i128::from(self.step) * (i128::from(self.count) - 1);
        let to = i64::try_from(last + 1).unwrap_or(i64::MAX);
        TimeRange { from: self.start.saturating_sub(self.step).saturating_add(1), to }
    }

    /// Returns the grid with its points at the start of their milliseconds. Clients state points in milliseconds,
    /// and a point includes its whole millisecond. In tiers, a profile from the rest of that millisecond counts for
    /// the next point. Otherwise no bucket would lie within one point.
    #[must_use]
    pub fn floor_to_millis(&self) -> Self {
        const NANOS_PER_MILLI: i64 = 1_000_000;
        Self { start: self.start.saturating_sub(self.start.rem_euclid(NANOS_PER_MILLI)), ..*self }
    }

    /// Returns the index of the point that covers a timestamp, if there is one.
    pub fn point_index(&self, time: i64) -> Option<u64> {
        let after = i128::from(time) - i128::from(self.start);
        let step = i128::from(self.step.max(1));
        // Rounded up: a point covers the time before it.
        let place = after.div_euclid(step) + i128::from(after.rem_euclid(step) != 0);
        u64::try_from(place).ok().filter(|place| *place < self.count)
    }
}

/// Maximum size of a result. A larger result is rejected, never truncated silently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultLimits {
    /// Number of label names, values, label sets or types.
    pub entries: usize,
    /// Number of tree nodes (functions by call path).
    pub nodes: usize,
    /// Number of distinct stacks.
    pub stacks: usize,
    /// Number of points of all series together, of profiles behind means, and of values of single profiles
    /// and spans.
    pub points: usize,
}

impl Default for ResultLimits {
    fn default() -> Self {
        ResultLimits { entries: 1_000_000, nodes: 16_000_000, stacks: 4_000_000, points: 1_000_000 }
    }
}

/// Reasons why a query fails on a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileQueryError {
    /// The source returned an error.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The result would exceed a limit.
    #[error("result has more than {limit} {what}; select fewer series or a shorter time range")]
    TooLarge {
        /// Kind of the limited items.
        what: &'static str,
        /// Maximum number of the items.
        limit: usize,
    },
    /// A sum does not fit in 63 bits.
    #[error(
        "sum of {what} does not fit in 63 bits, the limit is {}; select fewer series or a shorter time range, charts also take a shorter step",
        i64::MAX
    )]
    SumTooLarge {
        /// Kind of the summed values.
        what: &'static str,
    },
    /// The data of the source is inconsistent.
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
            ProfileQueryError::TooLarge { .. } | ProfileQueryError::SumTooLarge { .. } => ErrorCode::Invalid,
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
            QueryKind::LabelNameCounts { prefix: String::new() },
            values,
            QueryKind::Series(Vec::new()),
            QueryKind::Sizes,
        ];
        assert!(lists.into_iter().all(is_index_only));
        let (stacks, spans) = (StackFilter::default, HeatmapQuery { spans: true, ..HeatmapQuery::default() });
        let rows = [
            QueryKind::Tree(stacks()),
            QueryKind::Profile(stacks(), None),
            QueryKind::OriginTree(stacks()),
            QueryKind::Trees(GroupedTreesQuery::default()),
            QueryKind::Points(TimeSeriesQuery::default()),
            QueryKind::Heat(HeatmapQuery::default()),
            QueryKind::Heat(spans),
            QueryKind::Profiles(ProfileListQuery::default()),
        ];
        assert!(!rows.into_iter().any(is_index_only));
    }

    #[test]
    fn charts_of_whole_hours_may_read_buckets_of_an_hour() {
        const HOUR: i64 = 3_600_000_000_000;
        let steps = TimeGrid { start: 7 * HOUR + 999_999, step: HOUR, count: 9 };
        let what = QueryKind::Points(TimeSeriesQuery { steps, ..TimeSeriesQuery::default() });
        let ask = ProfileQuery { what, ..ProfileQuery::default() };
        let required = ask.required_resolution().steps.unwrap();
        assert_eq!((required.start, required.step, required.count), (7 * HOUR, HOUR, 9));
        let before_epoch = TimeGrid { start: -1, ..steps }.floor_to_millis();
        assert_eq!(before_epoch.start, -1_000_000);
        assert_eq!(TimeGrid { start: i64::MIN, ..steps }.floor_to_millis().start, i64::MIN);
    }

    #[test]
    fn queries_of_single_profiles_need_the_raw_tier() {
        let is_single = |ask: ProfileQuery| ask.required_resolution().single_profiles;
        let of = |what| ProfileQuery { what, ..ProfileQuery::default() };
        let points =
            |exemplars| QueryKind::Points(TimeSeriesQuery { exemplars, ..TimeSeriesQuery::default() });
        let merges = [
            QueryKind::Tree(StackFilter::default()),
            QueryKind::Profile(StackFilter::default(), None),
            QueryKind::LabelNames,
            points(false),
        ];
        assert!(!merges.iter().cloned().map(of).any(is_single));
        let singles = [
            QueryKind::Heat(HeatmapQuery::default()),
            QueryKind::Profiles(ProfileListQuery::default()),
            QueryKind::Ids,
            points(true),
        ];
        assert!(singles.into_iter().map(of).all(is_single));
        for what in merges {
            let mut named = of(what.clone());
            named.selection.profiles.insert(1);
            let mut of_span = of(what);
            of_span.selection.requests = Some(SpanFilter::spans([1]));
            assert!(is_single(named) && is_single(of_span));
        }
        let mut estimate = of(QueryKind::Sizes);
        assert!(!is_single(estimate.clone()));
        estimate.selection.resolution = Some(of(QueryKind::Ids).required_resolution());
        assert!(is_single(estimate), "the estimated query reads single profiles");
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
