//! Time arguments in human-readable formats.

use std::str::FromStr;
use std::time::Duration;

use athanor_chassis::Timestamp;
use athanor_chassis::units::parse_duration;

/// Timestamp argument, absolute or relative to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeArg {
    /// Duration before now.
    Ago(Duration),
    /// Absolute timestamp.
    At(Timestamp),
}

/// Error of a text that is no timestamp.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no time; write now, now-1h30m, 2026-01-31, 2026-01-31T12:00:00Z, or Unix seconds, milli-, micro- or nanoseconds"
)]
pub struct TimeArgError(String);

impl TimeArg {
    /// Returns the timestamp if the current time is `now`.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            TimeArg::Ago(ago) => now.minus(ago),
            TimeArg::At(moment) => moment,
        }
    }
}

impl FromStr for TimeArg {
    type Err = TimeArgError;

    fn from_str(text: &str) -> Result<Self, TimeArgError> {
        let refused = || TimeArgError(text.to_owned());
        let text = text.trim();
        if let Some(rest) = text.strip_prefix("now") {
            let ago = match rest.strip_prefix('-') {
                Some(span) => parse_duration(span).map_err(|_| refused())?,
                None if rest.is_empty() => Duration::ZERO,
                None => return Err(refused()),
            };
            return Ok(TimeArg::Ago(ago));
        }
        let moment = if text.bytes().all(|byte| byte.is_ascii_digit()) { unix(text) } else { date(text) };
        moment.map(TimeArg::At).ok_or_else(refused)
    }
}

/// Parses a Unix time. The number of digits determines the unit, as in older clients.
fn unix(text: &str) -> Option<Timestamp> {
    let number: i64 = text.parse().ok()?;
    let factor = match text.len() {
        ..=11 => 1_000_000_000,
        12..=14 => 1_000_000,
        15..=17 => 1_000,
        _ => 1,
    };
    number.checked_mul(factor).map(Timestamp::from_nanos)
}

/// Parses RFC 3339. Seconds, time of day and time zone are optional; the default zone is UTC.
fn date(text: &str) -> Option<Timestamp> {
    let (day, clock) = text.split_once(['T', 't', ' ']).unwrap_or((text, ""));
    let mut parts = day.split('-');
    let [year, month, of_month] =
        [(4, 9999), (2, 12), (2, 31)].map(|(width, most)| number(parts.next()?, width, most));
    let year = year?;
    let month = month?;
    let of_month = of_month?;
    if parts.next().is_some() || month == 0 || of_month == 0 || of_month > days_of(year, month) {
        return None;
    }
    let (clock, zone) = match clock.find(['Z', 'z', '+', '-']) {
        Some(at) => clock.split_at(at),
        None => (clock, "Z"),
    };
    let seconds = days_since_1970(year, month, of_month) * 86_400 - offset(zone)?;
    let nanos = i128::from(seconds) * 1_000_000_000 + i128::from(of_day(clock)?);
    i64::try_from(nanos).ok().map(Timestamp::from_nanos)
}

fn number(text: &str, width: usize, most: i64) -> Option<i64> {
    let digits = text.len() == width && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && *number <= most)
}

/// Parses `12:00`, `12:00:00` or `12:00:00.123`. Returns nanoseconds.
fn of_day(text: &str) -> Option<i64> {
    if text.is_empty() {
        return Some(0);
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = whole.split(':');
    let hours = number(parts.next()?, 2, 23)?;
    let minutes = number(parts.next()?, 2, 59)?;
    let seconds = parts.next().map_or(Some(0), |text| number(text, 2, 59))?;
    let nanos: i64 = match fraction.len() {
        1..=9 if fraction.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{fraction:0<9}").parse().ok()?
        }
        _ => return None,
    };
    let seconds = hours * 3600 + minutes * 60 + seconds;
    parts.next().is_none().then_some(seconds * 1_000_000_000 + nanos)
}

/// Parses `Z` or `+02:00`. Returns seconds.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    Some(sign * (number(hours, 2, 23)? * 3600 + number(minutes, 2, 59)? * 60))
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

fn days_since_1970(year: i64, month: i64, of_month: i64) -> i64 {
    // Years are counted from March, so that a leap day is the last of its year.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let of_year = (153 * month + 2) / 5 + of_month - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year - 719_468
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
