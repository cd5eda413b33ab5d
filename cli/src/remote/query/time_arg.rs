//! Time arguments in human-readable formats.

use std::str::FromStr;

use athanor_chassis::Timestamp;
use athanor_chassis::time::expression::{TimeExpression, TimeSyntax};

/// Timestamp argument, absolute or relative to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeArg(TimeExpression);

/// Error of a text that is no timestamp.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no time; write now, now-1h30m, 2026-01-31, 2026-01-31T12:00:00Z, or Unix seconds, milli-, micro- or nanoseconds"
)]
pub struct TimeArgError(String);

impl TimeArg {
    /// Returns the timestamp if the current time is `now`. Saturates in the year 1677.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        self.0.resolve(now).unwrap_or(Timestamp::from_nanos(i64::MIN))
    }
}

impl FromStr for TimeArg {
    type Err = TimeArgError;

    fn from_str(text: &str) -> Result<Self, TimeArgError> {
        let time = TimeExpression::parse(text, TimeSyntax::CommandLine);
        time.map(TimeArg).ok_or_else(|| TimeArgError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::format_rfc3339;

    #[test]
    fn moments_are_read_as_people_write_them() {
        let now = Timestamp::from_seconds(1_700_000_000);
        let shown = |text: &str| format_rfc3339(text.parse::<TimeArg>().unwrap().resolve(now).nanos());
        assert_eq!(shown("now"), "2023-11-14T22:13:20.000Z");
        assert_eq!(shown("now-1h30m"), "2023-11-14T20:43:20.000Z");
        assert_eq!(shown("2024-02-29"), "2024-02-29T00:00:00.000Z");
        assert_eq!(shown("2024-02-29T12:34:56.789Z"), "2024-02-29T12:34:56.789Z");
        assert_eq!(shown("2024-03-01 01:30+02:00"), "2024-02-29T23:30:00.000Z");
        assert_eq!(shown("1969-12-31T23:00:00-00:30"), "1969-12-31T23:30:00.000Z");
        for unix in ["1700000000", "1700000000000", "1700000000000000", "1700000000000000000"] {
            assert_eq!(shown(unix), "2023-11-14T22:13:20.000Z");
        }
    }

    #[test]
    fn anything_else_is_no_moment() {
        for text in
            ["", "later", "now+1h", "now-", "2023-02-29", "2024-13-01", "2024-1-1", "2024-01-01T25:00", "-5"]
        {
            assert!(text.parse::<TimeArg>().is_err(), "{text}");
        }
    }
}
