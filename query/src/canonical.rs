//! Canonical form of queries to an immutable source. Queries with the same result have the same form.
//!
//! A dashboard refresh repeats a query with a time range that ends later, and often begins later. The stored
//! data in between did not change, and neither did its result. A canonical query therefore differs in three
//! ways:
//!
//! - The time range extends to all time on each side where the source has no further data.
//! - The grid of points becomes the first grid of its step and phase.
//! - Lists without order are sorted.
//!
//! Heatmap values are individual values, so their grid has all timestamps and is independent of step and
//! phase. Points are sums of many values, which another phase divides differently.

use std::collections::BTreeMap;

use athanor_profile::encoding::hash::{self, ContentHash};

use crate::request::profile_filter::TimeRange;
use crate::request::profile_query::{
    GroupedTreesQuery, HeatmapQuery, ProfileQuery, ProfileQueryError, QueryKind, TimeGrid, TimeSeriesQuery,
};
use crate::result::heatmap;
use crate::result::partial::{PartialResult, TimeSeriesPoint, TimeSeriesPoints};
use crate::wire::WireError;

/// Canonical query to a source with a known time range.
#[derive(Clone, Debug)]
pub struct CanonicalQuery {
    /// Query to run. Its result equals the requested one, except for the indexes of points.
    pub ask: ProfileQuery,
    /// Hash of the query, for use as a cache key.
    pub key: ContentHash,
    /// Grid of the query, and requested grid. None if they are the same.
    moved: Option<GridShift>,
}

/// Conversion from one grid to another.
#[derive(Clone, Copy, Debug)]
struct GridShift {
    from: TimeGrid,
    to: TimeGrid,
}

impl ProfileQuery {
    /// Returns true if the result can be cached for the lifetime of the source.
    pub fn is_cacheable(&self) -> bool {
        // A cost estimate depends on the current state of the source, not only on its contents. Exports of samples are
        // large and seldom repeated, so they would evict the results of dashboards.
        !matches!(self.what, QueryKind::Sizes | QueryKind::Samples(_))
    }

    /// Returns the canonical query for a source with data only from `first` to `last`.
    pub fn to_canonical(&self, first: i64, last: i64) -> Result<CanonicalQuery, WireError> {
        let mut ask = self.clone();
        let asked = ask.selection.time;
        ask.selection.selector.sort_matchers();
        ask.selection.time = widen_time_range(asked, first, last);
        let moved = match &mut ask.what {
            QueryKind::Points(TimeSeriesQuery { steps, group_by, .. }) => {
                sort(group_by);
                shift_grid(steps, asked, earliest_grid(*steps))
            }
            QueryKind::Heat(HeatmapQuery { steps, group_by, .. }) => {
                sort(group_by);
                shift_grid(steps, asked, Some(TIMESTAMP_GRID))
            }
            QueryKind::Trees(GroupedTreesQuery { group_by, .. }) => {
                sort(group_by);
                None
            }
            QueryKind::Series(names) | QueryKind::Counts(names) => {
                sort(names);
                None
            }
            _ => None,
        };
        let key = hash::hash_bytes(&ask.pack()?);
        Ok(CanonicalQuery { ask, key, moved })
    }
}

impl CanonicalQuery {
    /// Returns true if the grids differ, and [`remap_result`](Self::remap_result) then has work to do.
    pub fn is_shifted(&self) -> bool {
        self.moved.is_some()
    }

    /// Converts the result to the one that was requested.
    pub fn remap_result(&self, partial: PartialResult) -> Result<PartialResult, ProfileQueryError> {
        let Some(moved) = self.moved else { return Ok(partial) };
        Ok(match partial {
            PartialResult::Points(series) => PartialResult::Points(shift_points(series, moved)),
            PartialResult::Heat(series) => {
                PartialResult::Heat(heatmap::shift_columns(series, |column| moved.place(column))?)
            }
            other => other,
        })
    }
}

impl GridShift {
    /// Returns the index of a point on the other grid, if it is within that grid.
    fn place(self, place: u64) -> Option<u64> {
        let time = i128::from(self.from.start) + i128::from(place) * i128::from(self.from.step);
        self.to.point_index(i64::try_from(time).ok()?)
    }
}

fn shift_points(series: TimeSeriesPoints, moved: GridShift) -> TimeSeriesPoints {
    let of_series = |cells: BTreeMap<u64, TimeSeriesPoint>| -> BTreeMap<u64, TimeSeriesPoint> {
        cells.into_iter().filter_map(|(place, cell)| Some((moved.place(place)?, cell))).collect()
    };
    let all = series.into_iter().map(|(labels, cells)| (labels, of_series(cells)));
    all.filter(|(_, cells)| !cells.is_empty()).collect()
}

/// Returns a range that selects the same data from `first` to `last`.
fn widen_time_range(asked: TimeRange, first: i64, last: i64) -> TimeRange {
    let all = TimeRange::default();
    TimeRange {
        from: if asked.from <= first { all.from } else { asked.from },
        to: if asked.contains(last) || asked.to > last { all.to } else { asked.to },
    }
}

/// Grid of all timestamps.
const TIMESTAMP_GRID: TimeGrid = TimeGrid { start: i64::MIN, step: 1, count: u64::MAX };

/// Returns the first grid of the same step and phase.
fn earliest_grid(steps: TimeGrid) -> Option<TimeGrid> {
    let TimeGrid { start, step, .. } = steps;
    // With a step of one nanosecond there are more timestamps than indexes.
    if step < 2 {
        return None;
    }
    let least = i128::from(i64::MIN);
    let first = least + (i128::from(start) - least).rem_euclid(i128::from(step));
    Some(TimeGrid { start: i64::try_from(first).ok()?, step, count: u64::MAX })
}

/// Moves points to another grid. A time range beyond the points keeps its grid, because the points then also
/// select profiles.
fn shift_grid(steps: &mut TimeGrid, asked: TimeRange, grid: Option<TimeGrid>) -> Option<GridShift> {
    let of_points = steps.time_range();
    let covers = of_points.from <= asked.from && asked.to <= of_points.to;
    let from = grid.filter(|_| covers)?;
    Some(GridShift { from, to: std::mem::replace(steps, from) })
}

fn sort(names: &mut Vec<String>) {
    names.sort_unstable();
    names.dedup();
}

#[cfg(test)]
mod tests {
    use athanor_profile::store_interface::source::MemorySource;
    use athanor_profile::{Labels, Profile, ValueType};
    use proptest::prelude::*;

    use super::*;
    use crate::{ProfileSelection, ResultLimits, StackFilter, run};

    fn source(times: &[i64]) -> MemorySource {
        let mut source = MemorySource::default();
        for (number, &time) in times.iter().enumerate() {
            let mut profile = Profile::default();
            profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
            profile.header.time_nanos = time;
            let stack = profile.dictionary.intern_named_stack(["main", ["a", "b"][number % 2]].into_iter());
            profile.samples.push(stack, 0, &[number as i64 + 1]);
            let pod = ("pod".to_owned(), (number % 3).to_string());
            source.add(&Labels::new([pod]), &profile, number as u128 + 1);
        }
        source
    }

    fn ask(from: i64, to: i64, what: QueryKind) -> ProfileQuery {
        let selection = ProfileSelection { time: TimeRange { from, to }, ..ProfileSelection::default() };
        ProfileQuery { selection, what, bounds: ResultLimits::default() }
    }

    fn whats(start: i64, step: i64, count: u64) -> Vec<QueryKind> {
        let steps = TimeGrid { start, step, count };
        let group_by = vec!["pod".to_owned(), "pod".to_owned()];
        vec![
            QueryKind::Tree(StackFilter::default()),
            QueryKind::Series(vec!["pod".to_owned(), "__type__".to_owned()]),
            QueryKind::Points(TimeSeriesQuery {
                steps,
                group_by: group_by.clone(),
                mean: true,
                ..TimeSeriesQuery::default()
            }),
            QueryKind::Points(TimeSeriesQuery { steps, exemplars: true, ..TimeSeriesQuery::default() }),
            QueryKind::Heat(HeatmapQuery { steps, group_by, ..HeatmapQuery::default() }),
        ]
    }

    fn shown(partial: &PartialResult) -> String {
        match partial {
            PartialResult::Tree(tree) => format!("{:?}", tree.nodes()),
            other => format!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn the_answer_is_the_one_that_was_asked_for(
            times in prop::collection::vec(1i64..200, 1..12),
            (from, to) in (0i64..210, 0i64..210),
            (start, step, count) in (0i64..60, 1i64..70, 1u64..40),
            points_say_when in any::<bool>(),
        ) {
            let (first, last) = (*times.iter().min().unwrap(), *times.iter().max().unwrap());
            let source = source(&times);
            for what in whats(start, step, count) {
                let mut ask = ask(from, to, what);
                if points_say_when {
                    ask.selection.time = TimeGrid { start, step, count }.time_range();
                }
                let asked = run(&ask, &source).unwrap();
                let canonical = ask.to_canonical(first, last).unwrap();
                let seen = canonical.remap_result(run(&canonical.ask, &source).unwrap()).unwrap();
                prop_assert_eq!(shown(&seen), shown(&asked));
                // As it is kept.
                let kept = run(&canonical.ask, &source).unwrap().pack().unwrap();
                let bytes: Vec<u8> = kept.flatten().collect();
                let read = PartialResult::unpack(&bytes, &canonical.ask).unwrap();
                prop_assert_eq!(shown(&canonical.remap_result(read).unwrap()), shown(&asked));
            }
        }
    }

    #[test]
    fn a_later_end_is_the_same_question_and_an_earlier_one_is_not() {
        let key = |from, to, what: &QueryKind| ask(from, to, what.clone()).to_canonical(10, 20).unwrap().key;
        let tree = QueryKind::Tree(StackFilter::default());
        let all = key(10, 21, &tree);
        assert_eq!([key(0, 21, &tree), key(10, 99, &tree), key(i64::MIN, i64::MAX, &tree)], [all; 3]);
        assert_ne!(key(11, 21, &tree), all);
        assert_ne!(key(10, 20, &tree), all);
        assert_eq!(key(11, 21, &tree), key(11, 50, &tree));
        assert_ne!(key(10, 21, &QueryKind::LabelNames), all);
        let points = |start| {
            let steps = TimeGrid { start, step: 5, count: 100 };
            let what = QueryKind::Points(TimeSeriesQuery { steps, ..TimeSeriesQuery::default() });
            let time = steps.time_range();
            ask(time.from, time.to, what).to_canonical(10, 20).unwrap().key
        };
        assert_eq!(points(0), points(5));
        assert_ne!(points(0), points(6), "points lie elsewhere");
        let heat = |start, step| {
            let steps = TimeGrid { start, step, count: 100 };
            let what = QueryKind::Heat(HeatmapQuery { steps, ..HeatmapQuery::default() });
            let time = steps.time_range();
            ask(time.from, time.to, what).to_canonical(10, 20).unwrap().key
        };
        assert_eq!([heat(5, 5), heat(6, 5), heat(3, 7)], [heat(0, 5); 3], "values are kept one by one");
    }

    #[test]
    fn the_order_of_conditions_says_nothing() {
        let key = |selector: &str| {
            let selection =
                ProfileSelection { selector: selector.parse().unwrap(), ..ProfileSelection::default() };
            ProfileQuery { selection, ..ProfileQuery::default() }.to_canonical(0, 1).unwrap().key
        };
        assert_eq!(key(r#"{a="b",c=~"d"}"#), key(r#"{c=~"d", a="b", a="b"}"#));
        assert_ne!(key(r#"{a="b"}"#), key(r#"{a!="b"}"#));
    }
}
