//! What tenants may ask for. Of several that are read as one, the strictest limit holds.

use std::time::Duration;

use athanor_chassis::units::format_duration;
use athanor_chassis::{ByteSize, Limits, Status, TenantId, Timestamp};
use athanor_query::TimeRange;

use crate::check::invalid;
use crate::{Querier, Reader};

impl Querier {
    /// The limits of whoever asks.
    pub(crate) fn limits(&self, reader: &Reader) -> Limits {
        let all = reader.tenants().iter().map(|tenant| (*self.deps.overrides.of(tenant)).clone());
        let strictest = all.reduce(|one, other| Limits {
            max_flamegraph_nodes_default: one
                .max_flamegraph_nodes_default
                .min(other.max_flamegraph_nodes_default),
            max_flamegraph_nodes_max: one.max_flamegraph_nodes_max.min(other.max_flamegraph_nodes_max),
            max_query_length: least(one.max_query_length, other.max_query_length),
            max_query_lookback: least(one.max_query_lookback, other.max_query_lookback),
            max_concurrent_queries: one.max_concurrent_queries.min(other.max_concurrent_queries),
            ..one
        });
        strictest.unwrap_or_default()
    }

    /// Refuses a question whose blocks hold too much of a tenant.
    pub(crate) fn check_bytes(&self, tenant: &TenantId, bytes: u64) -> Result<(), Status> {
        match self.deps.overrides.of(tenant).max_query_bytes {
            Some(limit) if bytes > limit.get() => {
                let bytes = ByteSize::bytes(bytes);
                Err(invalid(format!(
                    "blocks of the time that is asked about hold {bytes} of tenant {tenant}, the limit is {limit} \
                     (limits.max_query_bytes); ask about a shorter time"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// The time that is asked about, within the limits; and what is left out of it, in words.
pub(crate) fn within(
    limits: &Limits,
    now: Timestamp,
    mut time: TimeRange,
) -> Result<(TimeRange, Option<String>), Status> {
    let mut left_out = None;
    if let Some(lookback) = limits.max_query_lookback {
        let first = now.minus(lookback).nanos();
        if time.from < first {
            let lookback = format_duration(lookback);
            left_out = Some(format!("what is older than {lookback} is left out (limits.max_query_lookback)"));
            time = TimeRange { from: first, to: time.to.max(first) };
        }
    }
    let Some(length) = limits.max_query_length else { return Ok((time, left_out)) };
    let span = i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
    let text = format_duration(length);
    if time.from == i64::MIN || time.to == i64::MAX {
        // Nobody has said how much is wanted.
        let to = if time.to == i64::MAX { now.nanos().saturating_add(1) } else { time.to };
        time = TimeRange { from: time.from.max(to.saturating_sub(span)), to };
        left_out = Some(format!("what is not of the last {text} is left out (limits.max_query_length)"));
    }
    // Both ends are in the range as it was asked for, so that it is a moment longer than their distance.
    let asked = time.to.saturating_sub(time.from).saturating_sub(1);
    if asked > span {
        let asked = format_duration(Duration::from_nanos(asked.unsigned_abs()));
        return Err(invalid(format!(
            "time range is {asked} long, the limit is {text} (limits.max_query_length); ask about a shorter time"
        )));
    }
    Ok((time, left_out))
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
        let limits = Limits {
            max_query_length: length.map(Duration::from_nanos),
            max_query_lookback: lookback.map(Duration::from_nanos),
            ..Limits::default()
        };
        let within = within(&limits, Timestamp::from_nanos(NOW), time);
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
}
