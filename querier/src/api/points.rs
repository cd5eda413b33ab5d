//! Time series of values.

use std::collections::BTreeMap;

use athanor_chassis::Status;
use athanor_profile::Labels;
use athanor_query::{
    PartialResult, ProfileExemplar, ProfileQuery, ProfileSelection, QueryKind, StackFilter, TimeGrid,
    TimeRange, TimeSeriesPoint, TimeSeriesPoints, TimeSeriesQuery,
};

use crate::QueryContext;
use crate::execute::executor::QueryExecutor;
use crate::execute::fan_out::unexpected_result_type;
use crate::execute::run_query::run_query;
use crate::validate::{self, NANOS_PER_MILLI};

mod wire;

pub(crate) use wire::{group_labels, other_labels, select_series};

/// Parameters of a time series query.
pub(crate) struct SelectSeriesParams {
    /// Selected profiles. The time range is replaced by that of the points.
    pub(crate) selection: ProfileSelection,
    /// Start of the range in milliseconds. Start and end are inclusive.
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Distance of points in nanoseconds.
    pub(crate) step: i64,
    pub(crate) group_by: Vec<String>,
    pub(crate) stacks: StackFilter,
    pub(crate) mean: bool,
    /// True if each point shows the largest of its profiles.
    pub(crate) exemplars: bool,
}

/// Points with the same values of the grouping labels.
pub(crate) struct SeriesResult {
    pub(crate) labels: Labels,
    /// Timestamps in milliseconds, with values.
    pub(crate) points: Vec<(i64, f64)>,
    /// Exemplar of each point, if the query requests them.
    pub(crate) exemplars: Vec<Option<ProfileExemplar>>,
}

/// Returns the grid of points from `start` to `end`, both in milliseconds. `step` is in nanoseconds.
///
/// The timestamp of a profile is truncated to milliseconds before its point is selected. Each point therefore
/// ends with the last nanosecond of its millisecond.
pub(crate) fn time_grid(start: i64, end: i64, step: i64) -> TimeGrid {
    let start = start.saturating_mul(NANOS_PER_MILLI);
    let span = i128::from(end.saturating_mul(NANOS_PER_MILLI)) - i128::from(start);
    let count = u64::try_from(span / i128::from(step)).unwrap_or_default() + 1;
    TimeGrid { start: start.saturating_add(NANOS_PER_MILLI - 1), step, count }
}

/// Returns the time range that a grid reads. Like every other range, it ends exactly at `end`, in
/// milliseconds.
pub(crate) fn grid_range(steps: TimeGrid, end: i64) -> TimeRange {
    let TimeRange { from, to } = steps.time_range();
    TimeRange { from, to: to.min(end.saturating_mul(NANOS_PER_MILLI).saturating_add(1)) }
}

/// Returns the end of a step, in milliseconds.
pub(crate) fn point_millis(steps: TimeGrid, place: u64) -> i64 {
    let nanos = i128::from(steps.start) + i128::from(place) * i128::from(steps.step);
    (nanos as i64).div_euclid(NANOS_PER_MILLI)
}

/// Returns points at start + k·step up to the end. A point after the end is omitted, with all its data.
pub(crate) async fn select_points(
    executor: &QueryExecutor,
    reader: &QueryContext,
    asked: SelectSeriesParams,
) -> Result<Vec<SeriesResult>, Status> {
    let SelectSeriesParams { mut selection, start, end, step, group_by, stacks, mean, exemplars } = asked;
    let steps = time_grid(start, end, step);
    selection.time = grid_range(steps, end);
    let points = TimeSeriesQuery { steps, group_by, stacks, mean, exemplars: false };
    let series = match exemplars {
        false => load_points(executor, reader, selection, points).await?,
        true => {
            // Sums may come from downsampled tiers. Exemplars are single profiles, which are raw.
            let largest = TimeSeriesQuery { mean: false, exemplars: true, ..points.clone() };
            let (mut series, largest) = futures::try_join!(
                load_points(executor, reader, selection.clone(), points),
                load_points(executor, reader, selection, largest),
            )?;
            add_exemplars(&mut series, largest);
            series
        }
    };
    let value = move |cell: &TimeSeriesPoint| if mean { cell.mean() } else { cell.sum as f64 };
    let shown = move |(labels, cells): (Labels, BTreeMap<u64, TimeSeriesPoint>)| {
        let points = cells.iter().map(|(&place, cell)| (point_millis(steps, place), value(cell))).collect();
        let exemplars = cells.into_values().filter(|_| exemplars).map(|cell| cell.exemplar).collect();
        SeriesResult { labels, points, exemplars }
    };
    executor.render_on_pool(reader, move || series.into_iter().map(shown).collect()).await
}

async fn load_points(
    executor: &QueryExecutor,
    reader: &QueryContext,
    selection: ProfileSelection,
    points: TimeSeriesQuery,
) -> Result<TimeSeriesPoints, Status> {
    let ask = ProfileQuery {
        selection,
        what: QueryKind::Points(points),
        bounds: validate::default_result_limits(),
    };
    match run_query(executor, reader, ask).await? {
        PartialResult::Points(series) => Ok(series),
        _ => Err(unexpected_result_type()),
    }
}

/// Adds the exemplars of another result to existing points.
fn add_exemplars(series: &mut TimeSeriesPoints, largest: TimeSeriesPoints) {
    for (labels, points) in largest {
        let Some(cells) = series.get_mut(&labels) else { continue };
        for (place, point) in points {
            if let Some(cell) = cells.get_mut(&place) {
                cell.exemplar = point.exemplar;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn point_of_profile_follows_from_its_millisecond() {
        // A chart of ten seconds by steps of fifteen: one point, at its start.
        let (start, end, step) = (1_000_000, 1_010_000, 15_000 * NANOS_PER_MILLI);
        let steps = time_grid(start, end, step);
        let place = |millis: i64, nanos: i64| steps.point_index(millis * NANOS_PER_MILLI + nanos);
        assert_eq!([place(start, 0), place(start, 300_000), place(start, NANOS_PER_MILLI - 1)], [Some(0); 3]);
        assert_eq!([place(start + 1, 0), place(start - 15_000, NANOS_PER_MILLI - 1)], [None; 2]);
        assert_eq!(place(start - 14_999, 0), Some(0));
        assert_eq!(point_millis(steps, 0), start);
        let range = grid_range(steps, end);
        assert_eq!(
            (range.from, range.to),
            ((start - 14_999) * NANOS_PER_MILLI, (start + 1) * NANOS_PER_MILLI)
        );
        // The last millisecond ends as that of a flame graph does.
        assert_eq!(grid_range(super::time_grid(start, start, step), start).to, start * NANOS_PER_MILLI + 1);
    }
}
