//! Values over time.

use std::collections::BTreeMap;

use athanor_chassis::Status;
use athanor_profile::Labels;
use athanor_query::{Ask, CallSite, Cell, Partial, Points, Selection, What};

use crate::check::{self, MILLI};
use crate::{Querier, Reader, mixed_up};

mod wire;

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
    pub(crate) call_site: CallSite,
    pub(crate) mean: bool,
}

/// Times in milliseconds and values, by the values of the labels asked for.
pub(crate) type PointSeries = Vec<(Labels, Vec<(i64, f64)>)>;

impl Querier {
    /// Points at start + k·step up to the end: one that would lie later is left out with all that it stands for.
    pub(crate) async fn points(&self, reader: &Reader, asked: PointsAsked) -> Result<PointSeries, Status> {
        let PointsAsked { mut selection, start, end, step, group_by, call_site, mean } = asked;
        let start = start.saturating_mul(MILLI);
        let span = i128::from(end.saturating_mul(MILLI)) - i128::from(start);
        let count = u64::try_from(span / i128::from(step)).unwrap_or_default() + 1;
        let points = Points { start, step, count, group_by, call_site, mean };
        selection.time = points.time();
        let ask = Ask { selection, what: What::Points(points), bounds: check::bounds() };
        let Partial::Points(series) = self.ask(reader, ask).await? else { return Err(mixed_up()) };
        let shown = |points: BTreeMap<u64, Cell>| {
            let at = |place: u64| (i128::from(start) + i128::from(place) * i128::from(step)) as i64;
            let value = |cell: &Cell| if mean { cell.mean() } else { cell.sum as f64 };
            points.iter().map(|(&place, cell)| (at(place).div_euclid(MILLI), value(cell))).collect()
        };
        Ok(series.into_iter().map(|(labels, points)| (labels, shown(points))).collect())
    }
}
