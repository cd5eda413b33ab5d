//! Heatmaps: the number of profiles or spans by time and by value.
//!
//! Row bounds divide the value range of all series linearly or by quantiles. They are known only when all
//! results are merged. So the cells are counted here, from the individual values.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use athanor_chassis::Status;
use athanor_profile::Labels;
use athanor_query::{
    HeatmapQuery, HeatmapValue, HeatmapValueKey, HeatmapValues, PartialResult, ProfileQuery,
    ProfileSelection, QueryKind, TimeGrid,
};

use crate::QueryContext;
use crate::api::points::{grid_range, point_millis, time_grid};
use crate::execute::executor::QueryExecutor;
use crate::execute::fan_out::unexpected_result_type;
use crate::execute::run_query::run_query;
use crate::validate;

mod wire;

pub(crate) use wire::select_heatmap;

/// Maximum number of rows.
const MAX_HEATMAP_ROWS: usize = 20;

/// Parameters of a heatmap query.
struct SelectHeatmapParams {
    selection: ProfileSelection,
    /// Start of the range in milliseconds. Start and end are inclusive.
    start: i64,
    end: i64,
    /// Width of a column in nanoseconds.
    step: i64,
    group_by: Vec<String>,
    /// True if values are those of spans, not of profiles.
    spans: bool,
    /// True if each cell shows one of its values.
    exemplars: bool,
    /// Maximum number of series. None shows all.
    limit: Option<usize>,
    spacing: HeatmapRowSpacing,
}

/// Spacing of the row bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeatmapRowSpacing {
    /// Rows of equal height.
    Linear,
    /// Rows with about the same number of values.
    Quantile,
}

/// Columns with the same values of the grouping labels.
#[derive(Debug, PartialEq)]
struct HeatmapSeriesResult {
    labels: Labels,
    columns: Vec<HeatmapColumn>,
}

/// Counts between two points in time.
#[derive(Debug, PartialEq)]
struct HeatmapColumn {
    /// End of the column, in milliseconds.
    time: i64,
    /// Counts by row. If there are fewer rows, the last counts are zero.
    counts: [u64; MAX_HEATMAP_ROWS],
    /// Largest value of each cell, sorted by time.
    exemplars: Vec<(HeatmapValueKey, HeatmapValue)>,
}

/// Bounds of the rows.
#[derive(Clone, Debug)]
enum HeatmapRowBounds {
    /// Equal rows from the smallest to the largest value.
    Linear { least: i64, largest: i64 },
    /// Lower bounds of the rows, ascending.
    From(Vec<i64>),
}

/// Returns the row bounds of a heatmap and its series. With a limit only the series with the largest sums
/// stay.
async fn heatmap(
    executor: &QueryExecutor,
    reader: &QueryContext,
    asked: SelectHeatmapParams,
) -> Result<(Vec<f64>, Vec<HeatmapSeriesResult>), Status> {
    let SelectHeatmapParams { mut selection, start, end, step, group_by, spans, exemplars, limit, spacing } =
        asked;
    let steps = time_grid(start, end, step);
    selection.time = grid_range(steps, end);
    let what = QueryKind::Heat(HeatmapQuery { steps, group_by, spans, exemplars });
    let ask = ProfileQuery { selection, what, bounds: validate::default_result_limits() };
    let PartialResult::Heat(values) = run_query(executor, reader, ask).await? else {
        return Err(unexpected_result_type());
    };
    // There are at most as many columns as values.
    let columns: usize = values.values().map(BTreeMap::len).sum();
    executor.reserve_memory(reader, columns * (MAX_HEATMAP_ROWS * size_of::<u64>() + size_of::<i64>()))?;
    executor.render_on_pool(reader, move || count_values(values, steps, exemplars, limit, spacing)).await
}

impl HeatmapRowBounds {
    /// Returns bounds for the values of all series, including hidden ones.
    fn from_values(values: &HeatmapValues, spacing: HeatmapRowSpacing) -> HeatmapRowBounds {
        let all = || values.values().flat_map(BTreeMap::values).map(|spot| spot.value);
        match spacing {
            HeatmapRowSpacing::Linear => HeatmapRowBounds::Linear {
                least: all().min().unwrap_or_default(),
                largest: all().max().unwrap_or_default(),
            },
            HeatmapRowSpacing::Quantile => HeatmapRowBounds::quantile(all().collect()),
        }
    }

    /// Returns quantile bounds: each row begins at the quantile of its index. Equal values are in one row, so
    /// many equal values make fewer rows.
    fn quantile(mut values: Vec<i64>) -> HeatmapRowBounds {
        values.sort_unstable();
        let first = |row: usize| values.get(values.len() * row / MAX_HEATMAP_ROWS).copied();
        let mut edges: Vec<i64> = (0..MAX_HEATMAP_ROWS).filter_map(first).collect();
        edges.dedup();
        HeatmapRowBounds::From(edges)
    }

    /// Returns the lower bounds of all rows. If all values are equal, linear rows have height 1.
    fn edges(&self) -> Vec<f64> {
        match self {
            HeatmapRowBounds::Linear { least, largest } => {
                let height =
                    if least == largest { MAX_HEATMAP_ROWS as f64 } else { height(*least, *largest) as f64 };
                (0..MAX_HEATMAP_ROWS)
                    .map(|row| *least as f64 + height * row as f64 / MAX_HEATMAP_ROWS as f64)
                    .collect()
            }
            HeatmapRowBounds::From(edges) => edges.iter().map(|&edge| edge as f64).collect(),
        }
    }

    /// Returns the row of a value. The largest value is in the last row, although linear rows exclude their
    /// upper bound.
    fn row(&self, value: i64) -> usize {
        match self {
            HeatmapRowBounds::Linear { least, largest } => {
                let above = height(*least, value) * MAX_HEATMAP_ROWS as i128;
                (above / height(*least, *largest).max(1)).clamp(0, MAX_HEATMAP_ROWS as i128 - 1) as usize
            }
            HeatmapRowBounds::From(edges) => edges.partition_point(|edge| *edge <= value).saturating_sub(1),
        }
    }
}

fn height(from: i64, to: i64) -> i128 {
    i128::from(to) - i128::from(from)
}

fn count_values(
    mut values: HeatmapValues,
    steps: TimeGrid,
    exemplars: bool,
    limit: Option<usize>,
    spacing: HeatmapRowSpacing,
) -> (Vec<f64>, Vec<HeatmapSeriesResult>) {
    // A sum of zero is indistinguishable from missing data.
    values.values_mut().for_each(|spots| spots.retain(|_, spot| spot.value != 0));
    values.retain(|_, spots| !spots.is_empty());
    let rows = HeatmapRowBounds::from_values(&values, spacing);
    let mut values: Vec<(Labels, BTreeMap<HeatmapValueKey, HeatmapValue>)> = values.into_iter().collect();
    if let Some(limit) = limit {
        let sum = |(_, spots): &(Labels, BTreeMap<HeatmapValueKey, HeatmapValue>)| {
            Reverse(spots.values().map(|spot| i128::from(spot.value)).sum::<i128>())
        };
        // The sort is stable: of equal sums the first by labels stays.
        values.sort_by_cached_key(sum);
        values.truncate(limit);
    }
    let series = values.into_iter().map(|(labels, spots)| {
        let mut columns: Vec<HeatmapColumn> = Vec::new();
        let mut spots = spots.into_iter().peekable();
        while let Some(place) = spots.peek().map(|(key, _)| key.column) {
            let here = std::iter::from_fn(|| spots.next_if(|(key, _)| key.column == place));
            columns.push(HeatmapColumn::from_values(point_millis(steps, place), here, &rows, exemplars));
        }
        HeatmapSeriesResult { labels, columns }
    });
    (rows.edges(), series.collect())
}

impl HeatmapColumn {
    fn from_values(
        time: i64,
        spots: impl Iterator<Item = (HeatmapValueKey, HeatmapValue)>,
        rows: &HeatmapRowBounds,
        exemplars: bool,
    ) -> HeatmapColumn {
        let mut counts = [0; MAX_HEATMAP_ROWS];
        let mut of_cells: [Option<(HeatmapValueKey, HeatmapValue)>; MAX_HEATMAP_ROWS] =
            std::array::from_fn(|_| None);
        for (key, spot) in spots {
            let row = rows.row(spot.value);
            counts[row] += 1;
            // Of equal values the earliest is the exemplar.
            let rank = |(key, spot): &(HeatmapValueKey, HeatmapValue)| {
                (spot.value, Reverse(spot.time), Reverse(key.span), Reverse(key.profile))
            };
            let next = (key, spot);
            if exemplars && of_cells[row].as_ref().is_none_or(|known| rank(known) < rank(&next)) {
                of_cells[row] = Some(next);
            }
        }
        let mut exemplars: Vec<(HeatmapValueKey, HeatmapValue)> = of_cells.into_iter().flatten().collect();
        exemplars.sort_by_key(|(key, spot)| (spot.time, key.span, key.profile));
        HeatmapColumn { time, counts, exemplars }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spots(values: &[(u64, i64)]) -> BTreeMap<HeatmapValueKey, HeatmapValue> {
        let numbered = (0u128..).zip(values);
        let one = |(profile, &(column, value))| {
            (
                HeatmapValueKey { column, profile, span: 0 },
                HeatmapValue { value, time: value, ..HeatmapValue::default() },
            )
        };
        numbered.map(one).collect()
    }

    fn named(name: &str) -> Labels {
        Labels::new([("pod".to_owned(), name.to_owned())])
    }

    #[test]
    fn values_are_counted_in_rows_between_the_least_and_the_largest_of_all_series() {
        let steps = TimeGrid { start: 0, step: 5_000_000, count: 9 };
        let values = HeatmapValues::from([
            (named("a"), spots(&[(0, 160), (0, 166), (2, 279), (2, 280), (1, 0)])),
            (named("b"), spots(&[(0, 200)])),
        ]);
        let (edges, series) = count_values(values.clone(), steps, true, Some(1), HeatmapRowSpacing::Linear);
        assert_eq!((edges[0], edges[1], edges[19]), (160.0, 166.0, 274.0));
        let [a] = &series[..] else { panic!("{series:?}") };
        let cells = |column: &HeatmapColumn| {
            let filled = column.counts.iter().enumerate().filter(|(_, count)| **count > 0);
            let exemplars = column.exemplars.iter().map(|(_, spot)| spot.value).collect::<Vec<_>>();
            (column.time, filled.map(|(row, &count)| (row, count)).collect::<Vec<_>>(), exemplars)
        };
        let shown: Vec<_> = a.columns.iter().map(cells).collect();
        // What is nothing has no column.
        let first = (0, vec![(0, 1), (1, 1)], vec![160, 166]);
        assert_eq!(shown, [first, (10, vec![(19, 2)], vec![280])]);
        let (_, all) = count_values(values, steps, false, None, HeatmapRowSpacing::Linear);
        assert!(
            all.len() == 2 && all.iter().flat_map(|of| &of.columns).all(|column| column.exemplars.is_empty())
        );
    }

    #[test]
    fn rows_hold_any_values() {
        let all = HeatmapValues::from([(named("a"), spots(&[(0, i64::MIN), (0, i64::MAX), (0, -1)]))]);
        let rows = HeatmapRowBounds::from_values(&all, HeatmapRowSpacing::Linear);
        assert_eq!([i64::MIN, -1, 1, i64::MAX].map(|value| rows.row(value)), [0, 9, 10, 19]);
        assert!(rows.edges().is_sorted());
        let equal = HeatmapValues::from([(named("a"), spots(&[(0, 7), (3, 7)]))]);
        let equal = HeatmapRowBounds::from_values(&equal, HeatmapRowSpacing::Linear);
        assert_eq!((equal.row(7), equal.edges()[0], equal.edges()[1]), (0, 7.0, 8.0));
        for spacing in [HeatmapRowSpacing::Linear, HeatmapRowSpacing::Quantile] {
            assert_eq!(HeatmapRowBounds::from_values(&HeatmapValues::new(), spacing).row(0), 0);
        }
        let quantile = HeatmapRowBounds::from_values(&all, HeatmapRowSpacing::Quantile);
        assert_eq!([i64::MIN, -2, -1, i64::MAX].map(|value| quantile.row(value)), [0, 0, 1, 2]);
    }
    /// How many values of all lie in each row, whatever their column.
    fn heights(values: &[i64], spacing: HeatmapRowSpacing) -> (Vec<f64>, Vec<u64>) {
        let placed: Vec<(u64, i64)> = (0..).map(|at| at % 7).zip(values.iter().copied()).collect();
        // Two series share their rows.
        let (one, other) = placed.split_at(placed.len() / 2);
        let all = HeatmapValues::from([(named("a"), spots(one)), (named("b"), spots(other))]);
        let steps = TimeGrid { start: 0, step: 1_000_000, count: 7 };
        let (edges, series) = count_values(all, steps, false, None, spacing);
        let mut heights = vec![0; MAX_HEATMAP_ROWS];
        for column in series.iter().flat_map(|of| &of.columns) {
            heights.iter_mut().zip(column.counts).for_each(|(sum, count)| *sum += count);
        }
        (edges, heights)
    }

    #[test]
    fn one_large_value_leaves_the_others_apart() {
        let mut values: Vec<i64> = (1..=100).collect();
        values[99] = 1_000_000;
        let (_, linear) = heights(&values, HeatmapRowSpacing::Linear);
        assert_eq!((linear[0], linear[MAX_HEATMAP_ROWS - 1]), (99, 1), "all but one lie in one row");
        let (edges, quantile) = heights(&values, HeatmapRowSpacing::Quantile);
        assert_eq!(quantile, [5; MAX_HEATMAP_ROWS]);
        assert_eq!((edges[0], edges[1], edges[19]), (1.0, 6.0, 96.0));
    }

    proptest! {
        /// By the definition, value by value.
        #[test]
        fn rows_of_quantiles_are_as_a_model_has_them(
            values in prop::collection::vec(prop_oneof![1i64..30, -5i64..-1, Just(7), Just(i64::MAX)], 1..200),
        ) {
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let mut begins: Vec<i64> = (0..MAX_HEATMAP_ROWS).map(|row| sorted[row * sorted.len() / MAX_HEATMAP_ROWS]).collect();
            begins.dedup();
            let (edges, heights) = heights(&values, HeatmapRowSpacing::Quantile);
            prop_assert_eq!(&edges, &begins.iter().map(|&edge| edge as f64).collect::<Vec<_>>());
            for (row, &begin) in begins.iter().enumerate() {
                let end = begins.get(row + 1).copied();
                let lies = |value: &&i64| begin <= **value && end.is_none_or(|end| **value < end);
                prop_assert_eq!(heights[row], values.iter().filter(lies).count() as u64, "row {}", row);
            }
            prop_assert_eq!(heights[begins.len()..].iter().sum::<u64>(), 0);
        }

        #[test]
        fn different_values_lie_equally_many_in_each_row(
            values in prop::collection::btree_set(1i64..1_000_000, 20..300),
        ) {
            let values: Vec<i64> = values.into_iter().collect();
            let (edges, heights) = heights(&values, HeatmapRowSpacing::Quantile);
            prop_assert_eq!(edges.len(), MAX_HEATMAP_ROWS);
            let (least, most) = (values.len() / MAX_HEATMAP_ROWS, values.len().div_ceil(MAX_HEATMAP_ROWS));
            prop_assert!(heights.iter().all(|height| (least..=most).contains(&(*height as usize))));
        }
    }
}
