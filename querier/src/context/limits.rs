//! Query limits of tenants. A query of several tenants has the strictest limit of all.

use std::time::Duration;

use athanor_chassis::units::format_duration;
use athanor_chassis::{LimitOverrides, Status, TenantLimits, Timestamp};
use athanor_query::{HeatmapQuery, ProfileQuery, QueryKind, TimeRange, TimeSeriesQuery};

use crate::QueryContext;
use crate::validate::{NANOS_PER_MILLI, invalid_argument};

/// Returns the limits of a request.
pub(crate) fn strictest_limits(overrides: &LimitOverrides, reader: &QueryContext) -> TenantLimits {
    let all = reader.tenants().iter().map(|tenant| (*overrides.for_tenant(tenant)).clone());
    let strictest = all.reduce(|one, other| TenantLimits {
        max_flamegraph_nodes_default: one
            .max_flamegraph_nodes_default
            .min(other.max_flamegraph_nodes_default),
        max_flamegraph_nodes_max: one.max_flamegraph_nodes_max.min(other.max_flamegraph_nodes_max),
        max_query_length: min_present(
            nonzero_duration(one.max_query_length),
            nonzero_duration(other.max_query_length),
        ),
        max_query_lookback: min_present(
            nonzero_duration(one.max_query_lookback),
            nonzero_duration(other.max_query_lookback),
        ),
        max_concurrent_queries: one.max_concurrent_queries.min(other.max_concurrent_queries),
        ..one
    });
    strictest.unwrap_or_default()
}

/// Returns the lead of a query before the requested start: the first point of a grid covers the time before
/// it.
pub(crate) fn grid_lead(ask: &ProfileQuery) -> Duration {
    match &ask.what {
        QueryKind::Points(TimeSeriesQuery { steps, .. }) | QueryKind::Heat(HeatmapQuery { steps, .. }) => {
            // A point ends at the end of its millisecond. The requested start is the beginning of it.
            let named = steps.start.div_euclid(NANOS_PER_MILLI).saturating_mul(NANOS_PER_MILLI);
            let lead = i128::from(named) - i128::from(ask.selection.time.from);
            Duration::from_nanos(u64::try_from(lead).unwrap_or_default())
        }
        _ => Duration::ZERO,
    }
}

/// Returns the time range within the limits, and a warning about the omitted part.
///
/// The lead before the first point of a grid does not count, so that charts of a permitted range are
/// complete. A chart therefore reads up to one step more. A lead longer than the limit counts.
pub(crate) fn clamp_time_range(
    limits: &TenantLimits,
    now: Timestamp,
    mut time: TimeRange,
    lead: Duration,
) -> Result<(TimeRange, Option<String>), Status> {
    let spare = |limit: Duration| if lead <= limit { to_nanos(lead) } else { 0 };
    let mut left_out = None;
    let mut named = time.from;
    if let Some(lookback) = nonzero_duration(limits.max_query_lookback) {
        let first = now.minus(lookback).nanos();
        if time.from.saturating_add(spare(lookback)) < first {
            let lookback = format_duration(lookback);
            left_out = Some(format!("data older than {lookback} is left out (limits.max_query_lookback)"));
            time = TimeRange { from: first, to: time.to.max(first) };
            named = first;
        }
    }
    let Some(length) = nonzero_duration(limits.max_query_length) else { return Ok((time, left_out)) };
    let span = to_nanos(length);
    let text = format_duration(length);
    if left_out.is_none() {
        named = named.saturating_add(spare(length));
    }
    if time.from == i64::MIN || time.to == i64::MAX {
        // The request names no length.
        let to = if time.to == i64::MAX { now.nanos().saturating_add(1) } else { time.to };
        time = TimeRange { from: time.from.max(to.saturating_sub(span)), to };
        named = named.max(time.from);
        left_out = Some(format!("data before the last {text} is left out (limits.max_query_length)"));
    }
    // The requested range includes both ends, so it is one nanosecond longer than their distance.
    let asked = time.to.saturating_sub(named).saturating_sub(1);
    if asked > span {
        let asked = format_duration(Duration::from_nanos(asked.unsigned_abs()));
        return Err(invalid_argument(format!(
            "time range is {asked} long, the limit is {text} (limits.max_query_length); narrow the time range"
        )));
    }
    Ok((time, left_out))
}

fn to_nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Returns a time limit, or none if it is zero, which disables it.
fn nonzero_duration(limit: Option<Duration>) -> Option<Duration> {
    limit.filter(|limit| !limit.is_zero())
}

fn min_present<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000;

    fn range(from: i64, to: i64) -> TimeRange {
        TimeRange { from, to }
    }

    fn limited(
        length: Option<u64>,
        lookback: Option<u64>,
        time: TimeRange,
    ) -> Result<(i64, i64, bool), String> {
        led(length, lookback, time, 0)
    }

    fn led(
        length: Option<u64>,
        lookback: Option<u64>,
        time: TimeRange,
        lead: u64,
    ) -> Result<(i64, i64, bool), String> {
        let limits = TenantLimits {
            max_query_length: length.map(Duration::from_nanos),
            max_query_lookback: lookback.map(Duration::from_nanos),
            ..TenantLimits::default()
        };
        let within = clamp_time_range(&limits, Timestamp::from_nanos(NOW), time, Duration::from_nanos(lead));
        let (time, left_out) = within.map_err(|status| status.message)?;
        Ok((time.from, time.to, left_out.is_some()))
    }

    #[test]
    fn what_is_older_is_left_out_and_that_is_said() {
        assert_eq!(limited(None, None, range(i64::MIN, i64::MAX)), Ok((i64::MIN, i64::MAX, false)));
        assert_eq!(limited(None, Some(100), range(900, 950)), Ok((900, 950, false)));
        assert_eq!(limited(None, Some(100), range(899, 950)), Ok((900, 950, true)));
        assert_eq!(limited(None, Some(100), range(1, 2)), Ok((900, 900, true)));
        assert_eq!(limited(None, Some(u64::MAX), range(1, 2)), Ok((1, 2, false)));
    }

    #[test]
    fn what_is_longer_is_refused() {
        assert_eq!(limited(Some(100), None, range(1, 102)), Ok((1, 102, false)));
        let refused = limited(Some(100), None, range(1, 103)).unwrap_err();
        assert!(refused.contains("101ns long, the limit is 100ns (limits.max_query_length)"), "{refused}");
        // What is not asked about any more does not count.
        assert_eq!(limited(Some(100), Some(50), range(1, 1000)), Ok((950, 1000, true)));
        assert_eq!(limited(Some(100), None, range(i64::MIN, i64::MAX)), Ok((901, 1001, true)));
        assert_eq!(limited(Some(100), None, range(i64::MIN, 500)), Ok((400, 500, true)));
        assert!(limited(Some(100), None, range(5, i64::MAX)).is_ok_and(|(from, ..)| from == 901));
    }

    #[test]
    fn limits_of_zero_are_off() {
        assert_eq!(limited(Some(0), Some(0), range(1, 900)), Ok((1, 900, false)));
        assert_eq!(limited(Some(0), Some(100), range(1, 950)), Ok((900, 950, true)));
        assert!(limited(Some(100), Some(0), range(1, 900)).is_err());
    }

    #[test]
    fn what_the_first_point_stands_for_does_not_count() {
        // From 500 on, by steps of 10.
        let chart = |to| range(491, to);
        assert_eq!(led(Some(100), Some(500), chart(601), 9), Ok((491, 601, false)));
        assert!(led(Some(100), None, chart(602), 9).unwrap_err().contains("101ns long"));
        assert_eq!(led(None, Some(499), chart(601), 9), Ok((501, 601, true)));
        // But that is no way to read more: here a point stands for more than may be read.
        let wide = range(100, 501);
        assert!(led(Some(100), None, wide, 400).unwrap_err().contains("400ns long"));
        assert_eq!(led(None, Some(399), range(100, 1001), 900), Ok((601, 1001, true)));
        assert_eq!(led(Some(400), Some(399), range(100, 1001), 900), Ok((601, 1001, true)));
    }

    #[test]
    fn only_grids_begin_before_the_time_that_was_named() {
        use athanor_query::{ProfileSelection, ResultLimits, TimeGrid};
        let steps = TimeGrid { start: 101 * NANOS_PER_MILLI - 1, step: 10 * NANOS_PER_MILLI, count: 3 };
        let selection = ProfileSelection { time: steps.time_range(), ..ProfileSelection::default() };
        let lead = |what| {
            grid_lead(&ProfileQuery { selection: selection.clone(), what, bounds: ResultLimits::default() })
        };
        let nine = Duration::from_millis(9);
        assert_eq!(lead(QueryKind::Points(TimeSeriesQuery { steps, ..TimeSeriesQuery::default() })), nine);
        assert_eq!(lead(QueryKind::Heat(HeatmapQuery { steps, ..HeatmapQuery::default() })), nine);
        assert_eq!(lead(QueryKind::LabelNames), Duration::ZERO);
    }
}
