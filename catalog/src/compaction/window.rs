//! Windows of profile time, by level.
//!
//! A window is `(end − width, end]`, as the steps of charts are. Agents align profiles to the minute, and a
//! profile at a boundary belongs to the window that it ends. Ends are multiples of the width since 1970.

use std::time::Duration;

use athanor_chassis::window_end;

/// Level of blocks with one window of 10 minutes.
pub const TEN_MINUTE_LEVEL: u8 = 1;
/// Level of blocks with one window of an hour. Final for tenants with much data.
pub const HOUR_LEVEL: u8 = 2;
/// Level of blocks with one window of a day. Final for all other tenants, and for buckets of 5 minutes.
pub const DAY_LEVEL: u8 = 3;
/// Level of blocks with one window of 30 days. Final for buckets of an hour and of a day.
pub const THIRTY_DAY_LEVEL: u8 = 4;

const NANOS_PER_SECOND: i64 = 1_000_000_000;
const HOUR_NANOS: i64 = 3600 * NANOS_PER_SECOND;
const DAY_NANOS: i64 = 24 * HOUR_NANOS;

/// Returns the width of a level's windows in nanoseconds.
pub const fn window_nanos(level: u8) -> i64 {
    match level {
        0 | TEN_MINUTE_LEVEL => HOUR_NANOS / 6,
        HOUR_LEVEL => HOUR_NANOS,
        DAY_LEVEL => DAY_NANOS,
        _ => 30 * DAY_NANOS,
    }
}

/// Returns the end of the window of a level that contains a time.
pub const fn level_window_end(time: i64, level: u8) -> i64 {
    window_end(time, window_nanos(level))
}

/// Returns the end of the interval of an arrival, by a grid since 1970.
pub fn arrival_interval_end(arrival: i64, width: Duration) -> i64 {
    let width_nanos = i64::try_from(width.as_nanos()).unwrap_or(i64::MAX);
    window_end(arrival, width_nanos.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_end_of_boundary_is_the_boundary() {
        let width = window_nanos(TEN_MINUTE_LEVEL);
        for end in [-2 * width, -width, 0, width, 7 * width] {
            assert_eq!(window_end(end, width), end);
            assert_eq!(window_end(end + 1, width), end + width);
            assert_eq!(window_end(end - width + 1, width), end);
        }
    }

    #[test]
    fn window_end_of_extreme_times_does_not_overflow() {
        for level in 0..=4 {
            assert_eq!(level_window_end(i64::MAX, level), i64::MAX);
            let first = level_window_end(i64::MIN, level);
            assert!(first > i64::MIN && first - i64::MIN <= window_nanos(level));
            assert_eq!(level_window_end(first, level), first);
        }
    }

    #[test]
    fn windows_of_higher_levels_contain_those_of_lower_ones() {
        for time in [i64::MIN, -1, 0, 1, 86_399_999_999_999, 4_102_444_800_000_000_000, i64::MAX] {
            let ends: Vec<i64> = (1..=4).map(|level| level_window_end(time, level)).collect();
            assert!(ends.is_sorted());
            for (level, end) in (1..=4).zip(&ends) {
                assert!(ends.iter().take(level.into()).all(|&lower| level_window_end(lower, level) == *end));
            }
        }
    }
}
