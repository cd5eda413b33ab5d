//! Heatmaps: how many profiles or spans have values of about the same size, over time.
//!
//! Rows lie at equal distances between the least and the largest value of all series; that is known only when all answers
//! are merged. So cells are counted once, here, from the values themselves.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use athanor_chassis::Status;
use athanor_profile::Labels;
use athanor_query::{Ask, Heat, HeatSeries, Partial, Selection, Spot, SpotKey, Steps, What};

use crate::check;
use crate::points::{steps, time_of};
use crate::{Querier, Reader, mixed_up};

mod wire;

/// How many rows there are.
const ROWS: usize = 20;

/// What is counted.
struct HeatmapAsked {
    selection: Selection,
    /// Milliseconds, both ends in it.
    start: i64,
    end: i64,
    /// Nanoseconds.
    step: i64,
    group_by: Vec<String>,
    /// Whether values are those of spans, not of profiles.
    spans: bool,
    /// Whether each cell shows one of its values.
    exemplars: bool,
    /// How many series to show; all if none is given.
    limit: Option<usize>,
}

/// Columns that have the same values of the labels asked for.
#[derive(Debug, PartialEq)]
struct HeatmapOf {
    labels: Labels,
    columns: Vec<Column>,
}

/// What lies between two points in time.
#[derive(Debug, PartialEq)]
struct Column {
    /// Where it ends, in milliseconds.
    time: i64,
    counts: [u64; ROWS],
    /// The largest of each cell, by time.
    exemplars: Vec<(SpotKey, Spot)>,
}

/// Between which values the rows lie.
#[derive(Clone, Copy, Debug)]
struct Rows {
    least: i64,
    largest: i64,
}

impl Querier {
    /// The rows of a heatmap and its series; those with the largest sums where only some are asked for.
    async fn heatmap(
        &self,
        reader: &Reader,
        asked: HeatmapAsked,
    ) -> Result<([f64; ROWS], Vec<HeatmapOf>), Status> {
        let HeatmapAsked { mut selection, start, end, step, group_by, spans, exemplars, limit } = asked;
        let steps = steps(start, end, step);
        selection.time = steps.time();
        let what = What::Heat(Heat { steps, group_by, spans, exemplars });
        let ask = Ask { selection, what, bounds: check::bounds() };
        let Partial::Heat(values) = self.ask(reader, ask).await? else { return Err(mixed_up()) };
        // There are no more columns than values.
        let columns: usize = values.values().map(BTreeMap::len).sum();
        self.make_room(reader, columns * ROWS * size_of::<u64>())?;
        self.compute(move || counted(values, steps, exemplars, limit)).await
    }
}

impl Rows {
    /// From the least value to the largest of all series, also of those that are not shown. Where all are equal, rows lie
    /// at a distance of 1.
    fn of(values: &HeatSeries) -> Rows {
        let all = || values.values().flat_map(BTreeMap::values).map(|spot| spot.value);
        let (least, largest) = (all().min().unwrap_or_default(), all().max().unwrap_or_default());
        Rows { least, largest }
    }

    fn height(self) -> i128 {
        i128::from(self.largest) - i128::from(self.least)
    }

    /// Where each row begins.
    fn edges(self) -> [f64; ROWS] {
        let height = if self.height() == 0 { ROWS as f64 } else { self.height() as f64 };
        std::array::from_fn(|row| self.least as f64 + height * row as f64 / ROWS as f64)
    }

    /// The row of a value. The largest value is in the last row, though that ends there.
    fn row(self, value: i64) -> usize {
        let above = (i128::from(value) - i128::from(self.least)) * ROWS as i128;
        (above / self.height().max(1)).clamp(0, ROWS as i128 - 1) as usize
    }
}

fn counted(
    mut values: HeatSeries,
    steps: Steps,
    exemplars: bool,
    limit: Option<usize>,
) -> ([f64; ROWS], Vec<HeatmapOf>) {
    // What adds up to nothing is not told from what is not there.
    values.values_mut().for_each(|spots| spots.retain(|_, spot| spot.value != 0));
    values.retain(|_, spots| !spots.is_empty());
    let rows = Rows::of(&values);
    let mut values: Vec<(Labels, BTreeMap<SpotKey, Spot>)> = values.into_iter().collect();
    if let Some(limit) = limit {
        let sum = |(_, spots): &(Labels, BTreeMap<SpotKey, Spot>)| {
            Reverse(spots.values().map(|spot| i128::from(spot.value)).sum::<i128>())
        };
        // Stable: of equal sums the first by labels stays.
        values.sort_by_cached_key(sum);
        values.truncate(limit);
    }
    let series = values.into_iter().map(|(labels, spots)| {
        let mut columns: Vec<Column> = Vec::new();
        let mut spots = spots.into_iter().peekable();
        while let Some(place) = spots.peek().map(|(key, _)| key.column) {
            let here = std::iter::from_fn(|| spots.next_if(|(key, _)| key.column == place));
            columns.push(Column::of(time_of(steps, place), here, rows, exemplars));
        }
        HeatmapOf { labels, columns }
    });
    (rows.edges(), series.collect())
}

impl Column {
    fn of(time: i64, spots: impl Iterator<Item = (SpotKey, Spot)>, rows: Rows, exemplars: bool) -> Column {
        let mut counts = [0; ROWS];
        let mut of_cells: [Option<(SpotKey, Spot)>; ROWS] = std::array::from_fn(|_| None);
        for (key, spot) in spots {
            let row = rows.row(spot.value);
            counts[row] += 1;
            // Of equal values the earliest.
            let rank = |(key, spot): &(SpotKey, Spot)| {
                (spot.value, Reverse(spot.time), Reverse(key.span), Reverse(key.profile))
            };
            let next = (key, spot);
            if exemplars && of_cells[row].as_ref().is_none_or(|known| rank(known) < rank(&next)) {
                of_cells[row] = Some(next);
            }
        }
        let mut exemplars: Vec<(SpotKey, Spot)> = of_cells.into_iter().flatten().collect();
        exemplars.sort_by_key(|(key, spot)| (spot.time, key.span, key.profile));
        Column { time, counts, exemplars }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spots(values: &[(u64, i64)]) -> BTreeMap<SpotKey, Spot> {
        let numbered = (0u128..).zip(values);
        let one = |(profile, &(column, value))| {
            (SpotKey { column, profile, span: 0 }, Spot { value, time: value, ..Spot::default() })
        };
        numbered.map(one).collect()
    }

    fn named(name: &str) -> Labels {
        Labels::new([("pod".to_owned(), name.to_owned())])
    }

    #[test]
    fn values_are_counted_in_rows_between_the_least_and_the_largest_of_all_series() {
        let steps = Steps { start: 0, step: 5_000_000, count: 9 };
        let values = HeatSeries::from([
            (named("a"), spots(&[(0, 160), (0, 166), (2, 279), (2, 280), (1, 0)])),
            (named("b"), spots(&[(0, 200)])),
        ]);
        let (edges, series) = counted(values.clone(), steps, true, Some(1));
        assert_eq!((edges[0], edges[1], edges[19]), (160.0, 166.0, 274.0));
        let [a] = &series[..] else { panic!("{series:?}") };
        let cells = |column: &Column| {
            let filled = column.counts.iter().enumerate().filter(|(_, count)| **count > 0);
            let exemplars = column.exemplars.iter().map(|(_, spot)| spot.value).collect::<Vec<_>>();
            (column.time, filled.map(|(row, &count)| (row, count)).collect::<Vec<_>>(), exemplars)
        };
        let shown: Vec<_> = a.columns.iter().map(cells).collect();
        // What is nothing has no column.
        let first = (0, vec![(0, 1), (1, 1)], vec![160, 166]);
        assert_eq!(shown, [first, (10, vec![(19, 2)], vec![280])]);
        let (_, all) = counted(values, steps, false, None);
        assert!(
            all.len() == 2 && all.iter().flat_map(|of| &of.columns).all(|column| column.exemplars.is_empty())
        );
    }

    #[test]
    fn rows_hold_any_values() {
        let all = HeatSeries::from([(named("a"), spots(&[(0, i64::MIN), (0, i64::MAX), (0, -1)]))]);
        let rows = Rows::of(&all);
        assert_eq!([i64::MIN, -1, 1, i64::MAX].map(|value| rows.row(value)), [0, 9, 10, 19]);
        assert!(rows.edges().is_sorted());
        let equal = Rows::of(&HeatSeries::from([(named("a"), spots(&[(0, 7), (3, 7)]))]));
        assert_eq!((equal.row(7), equal.edges()[0], equal.edges()[1]), (0, 7.0, 8.0));
        assert_eq!(Rows::of(&HeatSeries::new()).row(0), 0);
    }
}
