//! What tenants may ask for. Of several that are read as one, the strictest limit holds.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::units::format_duration;
use athanor_chassis::{ByteSize, Limits, Status, TenantId, Timestamp};
use athanor_query::{Ask, Heat, Partial, Points, Sizes, TimeRange, What};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::check::{self, MILLI, invalid};
use crate::diagnostics::Scribe;
use crate::{Querier, Reader, mixed_up};
use athanor_chassis::turns::Turn;

impl Querier {
    /// The limits of whoever asks.
    pub(crate) fn limits(&self, reader: &Reader) -> Limits {
        let all = reader.tenants().iter().map(|tenant| (*self.deps.overrides.of(tenant)).clone());
        let strictest = all.reduce(|one, other| Limits {
            max_flamegraph_nodes_default: one
                .max_flamegraph_nodes_default
                .min(other.max_flamegraph_nodes_default),
            max_flamegraph_nodes_max: one.max_flamegraph_nodes_max.min(other.max_flamegraph_nodes_max),
            max_query_length: least(unless_off(one.max_query_length), unless_off(other.max_query_length)),
            max_query_lookback: least(
                unless_off(one.max_query_lookback),
                unless_off(other.max_query_lookback),
            ),
            max_concurrent_queries: one.max_concurrent_queries.min(other.max_concurrent_queries),
            ..one
        });
        strictest.unwrap_or_default()
    }

    /// Refuses a question that would read too much of a tenant. What blocks and heads hold of all its series, `bytes`, is
    /// known at once; only where that is too much, it is found out how much the question means.
    pub(crate) async fn check_bytes(
        &self,
        reader: &Reader,
        (tenant, ask): (&TenantId, &Ask),
        bytes: u64,
        turn: &Turn,
    ) -> Result<(), Status> {
        let limit = self.deps.overrides.of(tenant).max_query_bytes;
        let Some(limit) = limit.filter(|limit| bytes > limit.get() && ask.what != What::Sizes) else {
            return Ok(());
        };
        let selection = ask.selection.clone();
        let sizes = Ask { selection, what: What::Sizes, bounds: check::bounds() };
        let Partial::Sizes(sizes) = self.told(&reader.alone(tenant), sizes, turn).await? else {
            return Err(mixed_up());
        };
        let Sizes { heads, blocks } = &*sizes;
        let bytes = heads.bytes().saturating_add(blocks.bytes());
        if bytes <= limit.get() {
            return Ok(());
        }
        let series = heads.series.union(&blocks.series).count();
        let (profiles, samples) = (heads.profiles + blocks.profiles, heads.samples + blocks.samples);
        Err(invalid(format!(
            "query would read {} of tenant {tenant}, which are {samples} samples in {profiles} profiles of {series} series, \
             the limit is {limit} (limits.max_query_bytes); select fewer series or a shorter time",
            ByteSize::bytes(bytes)
        )))
    }
}

impl Querier {
    /// The answer to a question within a question, whose turn it shares.
    fn told<'a>(
        &'a self,
        reader: &'a Reader,
        ask: Ask,
        turn: &'a Turn,
    ) -> BoxFuture<'a, Result<Partial, Status>> {
        self.gather(reader, Arc::new(ask), turn, Scribe::default()).boxed()
    }
}

/// How long before the time that was named a question begins: the first point of a grid stands for what lies before it.
pub(crate) fn lead(ask: &Ask) -> Duration {
    match &ask.what {
        What::Points(Points { steps, .. }) | What::Heat(Heat { steps, .. }) => {
            // A point ends with its millisecond; what was named is where that begins.
            let named = steps.start.div_euclid(MILLI).saturating_mul(MILLI);
            let lead = i128::from(named) - i128::from(ask.selection.time.from);
            Duration::from_nanos(u64::try_from(lead).unwrap_or_default())
        }
        _ => Duration::ZERO,
    }
}

/// The time that is asked about, within the limits; and what is left out of it, in words.
///
/// What lies before the first point of a grid (`lead`) is not held against who asks: charts of a permitted time show all of
/// it. So a chart reads up to a step more; a step that is longer than a limit counts.
pub(crate) fn within(
    limits: &Limits,
    now: Timestamp,
    mut time: TimeRange,
    lead: Duration,
) -> Result<(TimeRange, Option<String>), Status> {
    let spare = |limit: Duration| if lead <= limit { nanos(lead) } else { 0 };
    let (mut left_out, mut named) = (None, time.from);
    if let Some(lookback) = unless_off(limits.max_query_lookback) {
        let first = now.minus(lookback).nanos();
        if time.from.saturating_add(spare(lookback)) < first {
            let lookback = format_duration(lookback);
            left_out = Some(format!("what is older than {lookback} is left out (limits.max_query_lookback)"));
            time = TimeRange { from: first, to: time.to.max(first) };
            named = first;
        }
    }
    let Some(length) = unless_off(limits.max_query_length) else { return Ok((time, left_out)) };
    let (span, text) = (nanos(length), format_duration(length));
    if left_out.is_none() {
        named = named.saturating_add(spare(length));
    }
    if time.from == i64::MIN || time.to == i64::MAX {
        // Nobody has said how much is wanted.
        let to = if time.to == i64::MAX { now.nanos().saturating_add(1) } else { time.to };
        time = TimeRange { from: time.from.max(to.saturating_sub(span)), to };
        named = named.max(time.from);
        left_out = Some(format!("what is not of the last {text} is left out (limits.max_query_length)"));
    }
    // Both ends are in the range as it was asked for, so that it is a moment longer than their distance.
    let asked = time.to.saturating_sub(named).saturating_sub(1);
    if asked > span {
        let asked = format_duration(Duration::from_nanos(asked.unsigned_abs()));
        return Err(invalid(format!(
            "time range is {asked} long, the limit is {text} (limits.max_query_length); ask about a shorter time"
        )));
    }
    Ok((time, left_out))
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Returns a limit of time, unless it is zero, which turns it off.
fn unless_off(limit: Option<Duration>) -> Option<Duration> {
    limit.filter(|limit| !limit.is_zero())
}

fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
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
        let limits = Limits {
            max_query_length: length.map(Duration::from_nanos),
            max_query_lookback: lookback.map(Duration::from_nanos),
            ..Limits::default()
        };
        let within = within(&limits, Timestamp::from_nanos(NOW), time, Duration::from_nanos(lead));
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
        use athanor_query::{Bounds, Selection, Steps};
        let steps = Steps { start: 101 * MILLI - 1, step: 10 * MILLI, count: 3 };
        let selection = Selection { time: steps.time(), ..Selection::default() };
        let lead = |what| lead(&Ask { selection: selection.clone(), what, bounds: Bounds::default() });
        let nine = Duration::from_millis(9);
        assert_eq!(lead(What::Points(Points { steps, ..Points::default() })), nine);
        assert_eq!(lead(What::Heat(Heat { steps, ..Heat::default() })), nine);
        assert_eq!(lead(What::LabelNames), Duration::ZERO);
    }
}
