//! Times as clients write them: `now-1h`, `1h`, `20260302`, `1772445600`, `2026-03-02T10:00:00Z`.
//!
//! One grammar serves all APIs, and [`TimeSyntax`] names the API. Each allows a part of the forms, and `Render` all:
//!
//! | form | `Render` | `Ingest` | `CommandLine` |
//! |---|---|---|---|
//! | empty text, the current time | yes | no | no |
//! | `now`, `now-1h30m` | yes | yes | yes |
//! | `now+1h`, `-1h`, `+1h`, `now-1h+5m` | yes | yes | no |
//! | `today`, `midnight`, `noon`, `teatime`, `yesterday`, `tomorrow` in UTC, with or without an offset | yes | no | no |
//! | `20260302`, the beginning of a day in UTC | yes | yes | yes |
//! | day or Unix time with an offset, `20260302-1h` | yes | no | no |
//! | Unix time of up to 11 digits in seconds, 14 in milliseconds, 17 in microseconds, else nanoseconds | yes | yes | yes |
//! | RFC 3339, where time of day, seconds and zone may be missing | yes | no | yes |
//! | `1h30m`, before the end of the range | yes | no | yes |
//! | `_`, `,` and spaces within, all ignored | yes | yes | no |
//! | units of offsets | both | Graphite's words | as in settings, [`parse_duration`] |
//!
//! Spaces within RFC 3339 count. No API takes a day that the calendar lacks, such as the 31st of February.

use chrono::{NaiveDate, NaiveTime};

use super::clock::Timestamp;
use crate::units::parse_duration;

const NANOS_PER_SECOND: i64 = 1_000_000_000;
const NANOS_PER_DAY: i64 = 86_400 * NANOS_PER_SECOND;

/// API that receives a time. It determines the allowed forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSyntax {
    /// Parameters of URLs for people, such as Pyroscope's `/render`: the at-time syntax of Graphite, and the
    /// forms of commands.
    Render,
    /// Parameters of Pyroscope's `/ingest`.
    Ingest,
    /// Arguments of commands.
    CommandLine,
}

/// Absolute time, or time relative to the current one or to the end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeExpression {
    reference: TimeReference,
    offset_nanos: i64,
}

/// Time that an offset refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeReference {
    /// Current time.
    Now,
    /// Beginning of the current day in UTC.
    Midnight,
    /// End of the range that the time begins. The current time, if the time begins none.
    RangeEnd,
    /// Absolute time.
    At(Timestamp),
}

impl TimeExpression {
    /// Parses a time. Returns `None` if the text is no time that the API allows.
    pub fn parse(text: &str, syntax: TimeSyntax) -> Option<Self> {
        match syntax {
            TimeSyntax::CommandLine => parse_argument(text.trim()),
            TimeSyntax::Ingest => parse_at_time(text, syntax),
            // A text that both take means the same in both.
            TimeSyntax::Render => parse_at_time(text, syntax).or_else(|| parse_argument(text.trim())),
        }
    }

    /// Returns the time if the current time is `now`, or `None` if it is outside the range of a timestamp.
    pub fn resolve(self, now: Timestamp) -> Option<Timestamp> {
        self.resolve_start(now, now)
    }

    /// Like [`TimeExpression::resolve`], for the start of a range that ends at `end`.
    pub fn resolve_start(self, now: Timestamp, end: Timestamp) -> Option<Timestamp> {
        let reference = match self.reference {
            TimeReference::Now => now.nanos(),
            TimeReference::Midnight => now.nanos().div_euclid(NANOS_PER_DAY).checked_mul(NANOS_PER_DAY)?,
            TimeReference::RangeEnd => end.nanos(),
            TimeReference::At(time) => time.nanos(),
        };
        reference.checked_add(self.offset_nanos).map(Timestamp::from_nanos)
    }

    fn at(time: Timestamp) -> Self {
        Self { reference: TimeReference::At(time), offset_nanos: 0 }
    }
}

/// Parses an argument of a command.
fn parse_argument(text: &str) -> Option<TimeExpression> {
    if is_number(text) {
        return parse_number(text).map(TimeExpression::at);
    }
    if let Some(rest) = text.strip_prefix("now") {
        let offset_nanos = match rest.strip_prefix('-') {
            Some(span) => -parse_span(span)?,
            None if rest.is_empty() => 0,
            None => return None,
        };
        return Some(TimeExpression { reference: TimeReference::Now, offset_nanos });
    }
    match parse_span(text) {
        Some(span) => Some(TimeExpression { reference: TimeReference::RangeEnd, offset_nanos: -span }),
        None => parse_date_time(text).map(TimeExpression::at),
    }
}

/// Parses a duration of a command. Returns nanoseconds.
fn parse_span(text: &str) -> Option<i64> {
    let span = parse_duration(text).ok()?;
    Some(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX))
}

/// Parses a time in the at-time syntax of Graphite.
fn parse_at_time(text: &str, syntax: TimeSyntax) -> Option<TimeExpression> {
    let text: String = text.chars().filter(|c| !matches!(c, '_' | ',' | ' ')).collect();
    let text = text.trim();
    if is_number(text) {
        return parse_number(text).map(TimeExpression::at);
    }
    let sign = text.find(['+', '-']).unwrap_or(text.len());
    let (name, offset) = text.split_at(sign);
    let is_render = syntax == TimeSyntax::Render;
    let of_day = |nanos| Some((TimeReference::Midnight, nanos));
    let (reference, since_reference) = match name {
        "" if offset.is_empty() && !is_render => None,
        "" | "now" => Some((TimeReference::Now, 0)),
        _ if !is_render => None,
        "today" | "midnight" => of_day(0),
        "yesterday" => of_day(-NANOS_PER_DAY),
        "tomorrow" => of_day(NANOS_PER_DAY),
        "noon" => of_day(NANOS_PER_DAY / 2),
        "teatime" => of_day(NANOS_PER_DAY / 24 * 16),
        number if is_number(number) => parse_number(number).map(|time| (TimeReference::At(time), 0)),
        _ => None,
    }?;
    let offset_nanos = parse_offset(offset)?.checked_add(since_reference)?;
    Some(TimeExpression { reference, offset_nanos })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses a day of eight digits, or a Unix time whose unit follows from its number of digits. Eight digits
/// are a day if year, month and day are plausible, and refused if the calendar lacks that day.
fn parse_number(text: &str) -> Option<Timestamp> {
    let number: i64 = text.parse().ok()?;
    let year = number / 10_000;
    let month = number / 100 % 100;
    let day = number % 100;
    if text.len() == 8 && year > 1900 && (1..=12).contains(&month) && (1..=31).contains(&day) {
        let date = NaiveDate::from_ymd_opt(year as i32, month as u32, day as u32)?;
        return to_timestamp(date, NaiveTime::MIN);
    }
    let scale = match text.len() {
        ..=11 => NANOS_PER_SECOND,
        12..=14 => NANOS_PER_SECOND / 1_000,
        15..=17 => NANOS_PER_SECOND / 1_000_000,
        _ => 1,
    };
    number.checked_mul(scale).map(Timestamp::from_nanos)
}

/// Parses an empty text, or parts such as `-1h` and `+30min`. A part without a sign has that of the part
/// before it.
fn parse_offset(text: &str) -> Option<i64> {
    let mut total = 0i64;
    let mut rest = text;
    let mut sign = 1;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('-') {
            sign = -1;
            rest = after;
        } else if let Some(after) = rest.strip_prefix('+') {
            sign = 1;
            rest = after;
        }
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let count: i64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = unit_nanos(&rest[..letters])?;
        total = total.checked_add(count.checked_mul(unit)?.checked_mul(sign)?)?;
        rest = &rest[letters..];
    }
    Some(total)
}

/// Returns the length of a unit of Graphite, in nanoseconds.
fn unit_nanos(text: &str) -> Option<i64> {
    Some(match text {
        "s" | "sec" | "secs" | "second" | "seconds" => NANOS_PER_SECOND,
        "m" | "min" | "mins" | "minute" | "minutes" => 60 * NANOS_PER_SECOND,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600 * NANOS_PER_SECOND,
        "d" | "day" | "days" => NANOS_PER_DAY,
        "w" | "week" | "weeks" => 7 * NANOS_PER_DAY,
        "M" | "mon" | "month" | "months" => 30 * NANOS_PER_DAY,
        "y" | "year" | "years" => 365 * NANOS_PER_DAY,
        _ => return None,
    })
}

/// Parses RFC 3339. Time of day, seconds and zone may be missing; the default zone is UTC.
fn parse_date_time(text: &str) -> Option<Timestamp> {
    let (day, rest) = text.split_once(['T', 't', ' ']).unwrap_or((text, ""));
    let (clock, zone) = match rest.find(['Z', 'z', '+', '-']) {
        Some(at) => rest.split_at(at),
        None => (rest, "Z"),
    };
    let local = to_timestamp(parse_date(day)?, parse_time_of_day(clock)?)?;
    local.nanos().checked_sub(parse_zone_nanos(zone)?).map(Timestamp::from_nanos)
}

fn to_timestamp(date: NaiveDate, time: NaiveTime) -> Option<Timestamp> {
    date.and_time(time).and_utc().timestamp_nanos_opt().map(Timestamp::from_nanos)
}

/// Parses a number of exactly `width` digits.
fn parse_digits(text: &str, width: usize) -> Option<u32> {
    (text.len() == width && is_number(text)).then(|| text.parse().ok())?
}

/// Parses `2026-03-02`.
fn parse_date(text: &str) -> Option<NaiveDate> {
    let mut parts = text.split('-');
    let year = parse_digits(parts.next()?, 4)?;
    let month = parse_digits(parts.next()?, 2)?;
    let day = parse_digits(parts.next()?, 2)?;
    let is_whole = parts.next().is_none();
    NaiveDate::from_ymd_opt(year as i32, month, day).filter(|_| is_whole)
}

/// Parses an empty text, `12:00`, `12:00:00` or `12:00:00.123`.
fn parse_time_of_day(text: &str) -> Option<NaiveTime> {
    if text.is_empty() {
        return Some(NaiveTime::MIN);
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = whole.split(':');
    let hour = parse_digits(parts.next()?, 2)?;
    let minute = parse_digits(parts.next()?, 2)?;
    let second = parts.next().map_or(Some(0), |text| parse_digits(text, 2))?;
    if parts.next().is_some() || fraction.len() > 9 || !is_number(fraction) {
        return None;
    }
    let nanos = format!("{fraction:0<9}").parse().ok()?;
    NaiveTime::from_hms_nano_opt(hour, minute, second, nanos)
}

/// Parses `Z` or `+02:00`. Returns nanoseconds.
fn parse_zone_nanos(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let hours = parse_digits(hours, 2).filter(|hours| *hours < 24)?;
    let minutes = parse_digits(minutes, 2).filter(|minutes| *minutes < 60)?;
    Some(sign * i64::from(hours * 3600 + minutes * 60) * NANOS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Timelike};
    use proptest::prelude::*;

    use super::TimeSyntax::{CommandLine, Ingest, Render};
    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(1_772_445_660);

    fn parse_nanos(text: &str, syntax: TimeSyntax) -> Option<i64> {
        TimeExpression::parse(text, syntax)?.resolve(NOW).map(Timestamp::nanos)
    }

    fn parse_seconds(text: &str, syntax: TimeSyntax) -> Option<i64> {
        parse_nanos(text, syntax).map(|nanos| nanos / NANOS_PER_SECOND)
    }

    /// A row for each row of the table above: text, seconds, and the APIs that take it.
    #[test]
    fn each_form_is_taken_by_the_apis_of_the_table() {
        let all = [Render, Ingest, CommandLine].as_slice();
        let at_time = [Render, Ingest].as_slice();
        let render = [Render].as_slice();
        let commands = [Render, CommandLine].as_slice();
        for (text, seconds, allowed) in [
            ("", 1_772_445_660, render),
            ("now", 1_772_445_660, all),
            ("now-1h", 1_772_442_060, all),
            ("now-1h30m", 1_772_440_260, all),
            ("now-1h30min", 1_772_440_260, at_time),
            ("now+1min", 1_772_445_720, at_time),
            ("-1d", 1_772_359_260, at_time),
            ("-5m", 1_772_445_360, at_time),
            ("now-1h+5m", 1_772_442_360, at_time),
            ("now + 1d 2s", 1_772_532_062, at_time),
            ("today", 1_772_409_600, render),
            ("yesterday", 1_772_323_200, render),
            ("noon", 1_772_452_800, render),
            ("noon-1h", 1_772_449_200, render),
            ("20260302", 1_772_409_600, all),
            ("20000229", 951_782_400, all),
            ("20240229", 1_709_164_800, all),
            ("19700101", 0, all),
            ("20260302-1h", 1_772_406_000, render),
            ("1772445600-1h", 1_772_442_000, render),
            ("0", 0, all),
            ("20269999", 20_269_999, all),
            ("1772445600", 1_772_445_600, all),
            ("1_772_445_600", 1_772_445_600, at_time),
            ("1772445600000", 1_772_445_600, all),
            ("1772445600000000", 1_772_445_600, all),
            ("1772445600000000000", 1_772_445_600, all),
            ("2024-02-29", 1_709_164_800, commands),
            ("2024-02-29T12:34:56.789Z", 1_709_210_096, commands),
            ("2024-03-01 01:30+02:00", 1_709_249_400, commands),
            ("1969-12-31T23:00:00-00:30", -1_800, commands),
            (" 2024-02-29T12:34Z ", 1_709_210_040, commands),
            ("now-1500ms", 1_772_445_658, commands),
            ("1h30m", 1_772_440_260, commands),
            ("1.5h", 1_772_440_260, commands),
            ("2w", 1_771_236_060, commands),
        ] {
            for syntax in [Render, Ingest, CommandLine] {
                let expected = allowed.contains(&syntax).then_some(seconds);
                assert_eq!(parse_seconds(text, syntax), expected, "{text:?} for {syntax:?}");
            }
        }
    }

    #[test]
    fn duration_counts_back_from_the_end_of_the_range() {
        let end = Timestamp::from_seconds(1_600_000_000);
        let start = |text: &str| {
            let expression = TimeExpression::parse(text, Render).unwrap();
            expression.resolve_start(NOW, end).unwrap().nanos() / NANOS_PER_SECOND
        };
        assert_eq!(start("1h"), 1_599_996_400);
        assert_eq!(start("now-1h"), 1_772_442_060);
        assert_eq!(start("2024-02-29"), 1_709_164_800);
    }

    #[test]
    fn text_that_is_no_time_is_refused_everywhere() {
        for text in [
            "soon",
            "nowish",
            "later",
            "now-",
            "now-1",
            "now-h",
            "now-1x",
            "1.5",
            "-5",
            "2023-02-29",
            "2024-13-01",
            "2024-1-1",
            "2024-01-01T25:00",
            "99999999999999999999",
            "9999999999999999999",
            "now-9999999999y",
            "20260231",
            "20230229",
            "2026-02-31",
            "99991231",
            "2024-01-01T00:00:60Z",
        ] {
            for syntax in [Render, Ingest, CommandLine] {
                assert_eq!(parse_nanos(text, syntax), None, "{text:?} for {syntax:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_time_or_none(
            text in "(now|today|[0-9]{1,20}|)?([-+_, ][0-9]{0,20}[smhdwMyü]?){0,3}",
            now in any::<i64>(),
        ) {
            for syntax in [Render, Ingest, CommandLine] {
                let _ = TimeExpression::parse(&text, syntax).and_then(|time| time.resolve(Timestamp::from_nanos(now)));
            }
        }

        #[test]
        fn text_of_a_command_means_the_same_in_a_url(
            text in "(now-?)?([0-9]{1,20}(w|d|h|m|s|ms|us|ns)?){1,3}|now|20[0-9]{2}-?[0-1][0-9]-?[0-3][0-9]",
        ) {
            if let Some(time) = parse_nanos(&text, CommandLine) {
                prop_assert_eq!(parse_nanos(&text, Render), Some(time));
            }
        }

        #[test]
        fn timestamp_reads_back_in_milliseconds(nanos in any::<i64>()) {
            let millis = nanos / 1_000_000 * 1_000_000;
            prop_assert_eq!(parse_nanos(&Timestamp::from_nanos(millis).to_string(), CommandLine), Some(millis));
        }

        #[test]
        fn full_rfc_3339_is_read_as_chrono_reads_it(
            text in "(16|19|20)[0-9]{2}-[0-1][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{1,9})?(Z|[+-][0-2][0-9]:[0-6][0-9])",
        ) {
            let theirs = DateTime::parse_from_rfc3339(&text).ok();
            // A leap second has no Unix time of its own.
            let theirs = theirs.filter(|time| time.nanosecond() < 1_000_000_000);
            prop_assert_eq!(parse_nanos(&text, CommandLine), theirs.and_then(|time| time.timestamp_nanos_opt()));
        }
    }
}
