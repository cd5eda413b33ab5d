//! Values over time.

use std::collections::BTreeMap;

use athanor_chassis::Status;
use athanor_profile::Labels;
use athanor_query::{Ask, Cell, Exemplar, Partial, Points, Selection, StackFilter, Steps, What};

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

/// Steps from `start` on, up to `end`: both in milliseconds, the step in nanoseconds.
pub(crate) fn steps(start: i64, end: i64, step: i64) -> Steps {
    let start = start.saturating_mul(MILLI);
    let span = i128::from(end.saturating_mul(MILLI)) - i128::from(start);
    let count = u64::try_from(span / i128::from(step)).unwrap_or_default() + 1;
    Steps { start, step, count }
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
        selection.time = steps.time();
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
