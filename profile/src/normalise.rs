//! What every profile goes through between the client and a shard's head, as pure functions: the distributor
//! applies some before it routes, the shard others when it decodes, and both must agree.
//!
//! * [`series`]: the rules for labels; [`promote`] is their second half, for labels that samples carry, and
//!   [`after_rules`] what holds of those that a tenant's own rules have made.
//! * [`go_names`]: type parameters that Go puts in names, and that differ from call to call; [`is_go_sender`] states from
//!   whom they come.
//! * [`taken_at`]: which time counts; [`is_in_1970`] and [`shown_span`]: which times are none.
//! * [`counts_since_start`]: which values a shard turns into differences.

mod counters;
mod go;
mod series;

pub use counters::{DELTA, counts_since_start};
pub use go::{go_names, is_go_sender};
pub(crate) use go::{has_shapes, is_built_by_go, without_shapes};
pub use series::{
    LabelLimits, LabelsRefused, SERVICE, Series, UNKNOWN_SERVICE, after_rules, is_promoted, promote, series,
};

/// 1971-01-01 UTC in Unix nanoseconds.
const YEAR_1971: i64 = 365 * 24 * 3600 * 1_000_000_000;

/// When a profile was taken: its own time, else that of the request. Old clients wrote microseconds into the
/// field of nanoseconds, which gives a moment in 1970: where the request knows better, that does not count.
pub fn taken_at(profile: i64, request: i64) -> i64 {
    if profile == 0 || (request != 0 && is_in_1970(profile)) { request } else { profile }
}

/// Whether a time, in Unix nanoseconds, lies in 1970: a client wrote it in another unit, or wrote none.
pub fn is_in_1970(time: i64) -> bool {
    (0..YEAR_1971).contains(&time)
}

/// Returns the part of a span of times that can be shown to people: without its beginning in 1970, and none if all of it lies
/// there.
pub fn shown_span((first, last): (i64, i64)) -> Option<(i64, i64)> {
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
            (YEAR_1971 - 1, now, now),
            (YEAR_1971, now, YEAR_1971),
        ] {
            assert_eq!(taken_at(profile, request), taken, "{profile} {request}");
        }
    }

    #[test]
    fn shown_span_leaves_1970_out() {
        let now = 1_772_618_460_000_000_000;
        assert_eq!(shown_span((now, now + 1)), Some((now, now + 1)));
        assert_eq!(shown_span((5, now)), Some((now, now)));
        assert_eq!([shown_span((0, 0)), shown_span((5, YEAR_1971 - 1))], [None; 2]);
        assert_eq!(shown_span((-7, YEAR_1971)), Some((-7, YEAR_1971)));
    }
}
