//! Time arguments in human-readable formats.

use std::str::FromStr;

use athanor_chassis::Timestamp;
use athanor_chassis::time::expression::{TimeExpression, TimeSyntax};

/// Timestamp argument of `--since` and `--until`: absolute, or relative to now or to the end of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeArg(TimeExpression);

/// Error of a text that is not a timestamp.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a time; write 1h30m, now, now-1h30m, 2026-01-31, 2026-01-31T12:00:00Z, or Unix seconds, milliseconds, \
     microseconds or nanoseconds"
)]
pub struct TimeArgError(String);

impl TimeArg {
    /// Returns the timestamp for the end of a range, if the current time is `now`.
    pub fn resolve_end(self, now: Timestamp) -> Timestamp {
        self.resolve_start(now, now)
    }

    /// Returns the timestamp for the start of a range, if the current time is `now` and the range ends at `end`.
    pub fn resolve_start(self, now: Timestamp, end: Timestamp) -> Timestamp {
        self.0.resolve_start(now, end).unwrap_or(Timestamp::from_nanos(i64::MIN))
    }
}

impl FromStr for TimeArg {
    type Err = TimeArgError;

    fn from_str(text: &str) -> Result<Self, TimeArgError> {
        let expression = TimeExpression::parse(text, TimeSyntax::CommandLine);
        expression.map(TimeArg).ok_or_else(|| TimeArgError(text.trim().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::format_rfc3339;

    #[test]
    fn time_in_each_syntax_is_parsed() {
        let now = Timestamp::from_seconds(1_700_000_000);
        let end = Timestamp::from_seconds(1_600_000_000);
        let shown =
            |text: &str| format_rfc3339(text.parse::<TimeArg>().unwrap().resolve_start(now, end).nanos());
        assert_eq!(shown("now"), "2023-11-14T22:13:20.000Z");
        assert_eq!(shown("now-1h30m"), "2023-11-14T20:43:20.000Z");
        assert_eq!(shown("1h30m"), "2020-09-13T10:56:40.000Z");
        let before_now = "1h30m".parse::<TimeArg>().unwrap().resolve_end(now);
        assert_eq!(format_rfc3339(before_now.nanos()), "2023-11-14T20:43:20.000Z");
        assert_eq!(shown("2024-02-29"), "2024-02-29T00:00:00.000Z");
        assert_eq!(shown("2024-02-29T12:34:56.789Z"), "2024-02-29T12:34:56.789Z");
        assert_eq!(shown("2024-03-01 01:30+02:00"), "2024-02-29T23:30:00.000Z");
        assert_eq!(shown("1969-12-31T23:00:00-00:30"), "1969-12-31T23:30:00.000Z");
        for unix in ["1700000000", "1700000000000", "1700000000000000", "1700000000000000000"] {
            assert_eq!(shown(unix), "2023-11-14T22:13:20.000Z");
        }
    }

    #[test]
    fn invalid_time_is_rejected() {
        for text in
            ["", "later", "now+1h", "now-", "2023-02-29", "2024-13-01", "2024-1-1", "2024-01-01T25:00", "-5"]
        {
            assert!(text.parse::<TimeArg>().is_err(), "{text}");
        }
    }
}
