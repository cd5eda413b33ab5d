//! Values over time.

use std::collections::BTreeMap;

use athanor_chassis::Status;
use athanor_profile::Labels;
use athanor_query::{Ask, Cell, Exemplar, Partial, Points, Selection, StackFilter, Steps, TimeRange, What};

use crate::check::{self, MILLI};
use crate::{Querier, Reader, mixed_up};

mod wire;

pub(crate) use wire::{group_labels, other_labels};

/// What is asked for over time.
pub(crate) struct PointsAsked {
    /// Its time is that of the points.
    pub(crate) selection: Selection,
    /// Milliseconds, both ends in it.
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Nanoseconds.
    pub(crate) step: i64,
    pub(crate) group_by: Vec<String>,
    pub(crate) stacks: StackFilter,
    pub(crate) mean: bool,
    /// Whether each point shows the largest of its profiles.
    pub(crate) exemplars: bool,
}

/// Points that have the same values of the labels asked for.
pub(crate) struct PointsOf {
    pub(crate) labels: Labels,
    /// Times in milliseconds and values.
    pub(crate) points: Vec<(i64, f64)>,
    /// One for each point, if they were asked for.
    pub(crate) exemplars: Vec<Option<Exemplar>>,
}

/// Returns the grid of points from `start` to `end`, both in milliseconds; `step` is in nanoseconds.
///
/// The time of a profile is cut to milliseconds before its point is chosen, so each point ends with the last nanosecond of
/// its millisecond.
pub(crate) fn steps(start: i64, end: i64, step: i64) -> Steps {
    let start = start.saturating_mul(MILLI);
    let span = i128::from(end.saturating_mul(MILLI)) - i128::from(start);
    let count = u64::try_from(span / i128::from(step)).unwrap_or_default() + 1;
    Steps { start: start.saturating_add(MILLI - 1), step, count }
}

/// Returns the time range that a grid reads. The range ends with `end`, in milliseconds, to the nanosecond, as every other
/// range does.
pub(crate) fn grid_range(steps: Steps, end: i64) -> TimeRange {
    let TimeRange { from, to } = steps.time();
    TimeRange { from, to: to.min(end.saturating_mul(MILLI).saturating_add(1)) }
}

/// When a step ends, in milliseconds.
pub(crate) fn time_of(steps: Steps, place: u64) -> i64 {
    let nanos = i128::from(steps.start) + i128::from(place) * i128::from(steps.step);
    (nanos as i64).div_euclid(MILLI)
}

impl Querier {
    /// Points at start + k·step up to the end: one that would lie later is left out with all that it stands for.
    pub(crate) async fn points(&self, reader: &Reader, asked: PointsAsked) -> Result<Vec<PointsOf>, Status> {
        let PointsAsked { mut selection, start, end, step, group_by, stacks, mean, exemplars } = asked;
        let steps = steps(start, end, step);
        selection.time = grid_range(steps, end);
        let points = Points { steps, group_by, stacks, mean, exemplars };
        let ask = Ask { selection, what: What::Points(points), bounds: check::bounds() };
        let Partial::Points(series) = self.ask(reader, ask).await? else { return Err(mixed_up()) };
        let value = move |cell: &Cell| if mean { cell.mean() } else { cell.sum as f64 };
        let shown = move |(labels, cells): (Labels, BTreeMap<u64, Cell>)| {
            let points = cells.iter().map(|(&place, cell)| (time_of(steps, place), value(cell))).collect();
            let exemplars = cells.into_values().filter(|_| exemplars).map(|cell| cell.exemplar).collect();
            PointsOf { labels, points, exemplars }
        };
        self.shape(reader, move || series.into_iter().map(shown).collect()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn point_of_profile_follows_from_its_millisecond() {
        // A chart of ten seconds by steps of fifteen: one point, at its start.
        let (start, end, step) = (1_000_000, 1_010_000, 15_000 * MILLI);
        let steps = steps(start, end, step);
        let place = |millis: i64, nanos: i64| steps.place(millis * MILLI + nanos);
        assert_eq!([place(start, 0), place(start, 300_000), place(start, MILLI - 1)], [Some(0); 3]);
        assert_eq!([place(start + 1, 0), place(start - 15_000, MILLI - 1)], [None; 2]);
        assert_eq!(place(start - 14_999, 0), Some(0));
        assert_eq!(time_of(steps, 0), start);
        let range = grid_range(steps, end);
        assert_eq!((range.from, range.to), ((start - 14_999) * MILLI, (start + 1) * MILLI));
        // The last millisecond ends as that of a flame graph does.
        assert_eq!(grid_range(super::steps(start, start, step), start).to, start * MILLI + 1);
    }
}
