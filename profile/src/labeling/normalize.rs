//! Normalization of profiles between the client and a shard's head, as pure functions. The distributor
//! applies some before routing, the shard others when it decodes. Both must agree.
//!
//! * [`normalize_labels`] applies the rules for labels. [`promote`] applies them to labels of samples, and
//!   [`normalize_relabeled`] to the results of a tenant's relabeling rules.
//! * [`strip_go_shapes`] removes type parameters from Go names, which differ from call to call.
//!   [`is_go_sender`] detects clients that send Go profiles.
//! * [`resolve_profile_time`] chooses the time of a profile. [`is_in_1970`] and [`displayable_range`] exclude
//!   invalid times.
//! * [`find_cumulative_types`] finds the values that a shard converts to differences.

mod counters;
mod go;
mod series;

pub use counters::{DELTA_LABEL, find_cumulative_types};
pub(crate) use go::{has_go_shapes, is_built_by_go, strip_shapes};
pub use go::{is_go_sender, strip_go_shapes};
pub use series::{
    LabelLimits, NormalizedLabels, SERVICE_LABEL, SeriesLabelsError, UNKNOWN_SERVICE, is_promoted,
    normalize_labels, normalize_relabeled, promote,
};

/// Time 1971-01-01 UTC in Unix nanoseconds.
const YEAR_1971_NANOS: i64 = 365 * 24 * 3600 * 1_000_000_000;

/// Returns the time of a profile: its own, or else that of the request. Old clients wrote microseconds into
/// the field of nanoseconds, which results in a time in 1970. The time of the request replaces such a time.
pub fn resolve_profile_time(profile: i64, request: i64) -> i64 {
    if profile == 0 || (request != 0 && is_in_1970(profile)) { request } else { profile }
}

/// Returns whether a time in Unix nanoseconds lies in 1970. Such a time is missing or in a wrong unit.
pub fn is_in_1970(time: i64) -> bool {
    (0..YEAR_1971_NANOS).contains(&time)
}

/// Returns the displayable part of a time range, without a beginning in 1970. Returns `None` if the whole
/// range lies in 1970.
pub fn displayable_range(first: i64, last: i64) -> Option<(i64, i64)> {
    let first = if is_in_1970(first) { last } else { first };
    (!is_in_1970(last)).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_in_1970_gives_way_to_that_of_the_request() {
        let now = 1_772_618_460_000_000_000;
        for (profile, request, taken) in [
            (now, 5, now),
            (now / 1000, now, now),
            (now / 1000, 0, now / 1000),
            (0, now, now),
            (0, 0, 0),
            (-1, now, -1),
            (YEAR_1971_NANOS - 1, now, now),
            (YEAR_1971_NANOS, now, YEAR_1971_NANOS),
        ] {
            assert_eq!(resolve_profile_time(profile, request), taken, "{profile} {request}");
        }
    }

    #[test]
    fn shown_span_leaves_1970_out() {
        let now = 1_772_618_460_000_000_000;
        assert_eq!(displayable_range(now, now + 1), Some((now, now + 1)));
        assert_eq!(displayable_range(5, now), Some((now, now)));
        assert_eq!([displayable_range(0, 0), displayable_range(5, YEAR_1971_NANOS - 1)], [None; 2]);
        assert_eq!(displayable_range(-7, YEAR_1971_NANOS), Some((-7, YEAR_1971_NANOS)));
    }
}
