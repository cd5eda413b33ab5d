//! Parser of times in URLs: `now-1h`, `20260302`, `1772445600`, `1772445600000`.

/// Nanoseconds per second and per day.
const NANOS_PER_SECOND: i64 = 1_000_000_000;
const NANOS_PER_DAY: i64 = 86_400 * NANOS_PER_SECOND;

/// Parses a time to Unix nanoseconds.
pub(super) fn parse_time_nanos(text: &str, now: i64) -> Option<i64> {
    let text = text.trim();
    if let Some(nanos) = number(text) {
        return Some(nanos);
    }
    let sign = text.find(['+', '-']).unwrap_or(text.len());
    let (reference, offset) = text.split_at(sign);
    let midnight = now.div_euclid(NANOS_PER_DAY) * NANOS_PER_DAY;
    let from = match reference.trim() {
        "" | "now" => now,
        "today" | "midnight" => midnight,
        "yesterday" => midnight - NANOS_PER_DAY,
        "tomorrow" => midnight + NANOS_PER_DAY,
        "noon" => midnight + NANOS_PER_DAY / 2,
        "teatime" => midnight + NANOS_PER_DAY / 24 * 16,
        other => number(other)?,
    };
    from.checked_add(span(offset)?)
}

/// Parses a date of eight digits, or a Unix time whose unit follows from its number of digits.
fn number(text: &str) -> Option<i64> {
    if text.is_empty() || !text.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let value: i64 = text.parse().ok()?;
    if let Some(days) = date(text, value) {
        return days.checked_mul(NANOS_PER_DAY);
    }
    let scale = match text.len() {
        0..=11 => NANOS_PER_SECOND,
        12..=14 => NANOS_PER_SECOND / 1_000,
        15..=17 => NANOS_PER_SECOND / 1_000_000,
        _ => 1,
    };
    value.checked_mul(scale)
}

/// Returns the days since 1970 of `YYYYMMDD`.
fn date(text: &str, value: i64) -> Option<i64> {
    let year = value / 10_000;
    let month = value / 100 % 100;
    let day = value % 100;
    let is_date = text.len() == 8 && year > 1900 && (1..=12).contains(&month) && (1..=31).contains(&day);
    is_date.then(|| {
        // A year that begins in March has its leap day at the end.
        let year = if month <= 2 { year - 1 } else { year };
        let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468
    })
}

/// Parses an empty text, or parts such as `-1h` and `+30min`.
fn span(text: &str) -> Option<i64> {
    let mut total = 0i64;
    let mut rest = text.trim();
    let mut sign = 1;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('-') {
            (sign, rest) = (-1, after.trim_start());
        } else if let Some(after) = rest.strip_prefix('+') {
            (sign, rest) = (1, after.trim_start());
        }
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let count: i64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = unit(&rest[..letters])?;
        total = total.checked_add(count.checked_mul(unit)?.checked_mul(sign)?)?;
        rest = rest[letters..].trim_start();
    }
    Some(total)
}

fn unit(text: &str) -> Option<i64> {
    Some(match text {
        "s" | "sec" | "secs" | "second" | "seconds" => NANOS_PER_SECOND,
        "m" | "min" | "mins" | "minute" | "minutes" => 60 * NANOS_PER_SECOND,
        "h" | "hr" | "hour" | "hours" => 3_600 * NANOS_PER_SECOND,
        "d" | "day" | "days" => NANOS_PER_DAY,
        "w" | "week" | "weeks" => 7 * NANOS_PER_DAY,
        "M" | "mon" | "month" | "months" => 30 * NANOS_PER_DAY,
        "y" | "year" | "years" => 365 * NANOS_PER_DAY,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: i64 = 1_772_445_660 * NANOS_PER_SECOND;

    #[test]
    fn all_ways_to_write_a_time() {
        let seconds = |text: &str| parse_time_nanos(text, NOW).map(|nanos| nanos / NANOS_PER_SECOND);
        for (text, expected) in [
            ("now", 1_772_445_660),
            ("", 1_772_445_660),
            ("now-1h", 1_772_442_060),
            ("now-1h30m", 1_772_440_260),
            ("-1d", 1_772_359_260),
            ("now+1min", 1_772_445_720),
            ("today", 1_772_409_600),
            ("yesterday", 1_772_323_200),
            ("noon", 1_772_452_800),
            ("20260302", 1_772_409_600),
            ("20260302-1h", 1_772_406_000),
            ("19700101", 0),
            ("20240229", 1_709_164_800),
            ("0", 0),
            ("1772445600", 1_772_445_600),
            ("1772445600000", 1_772_445_600),
            ("1772445600000000", 1_772_445_600),
            ("1772445600000000000", 1_772_445_600),
        ] {
            assert_eq!(seconds(text), Some(expected), "{text:?}");
        }
        for refused in ["soon", "now-", "now-1", "now-1x", "1.5", "99999999999999999999", "now-9999999999y"] {
            assert_eq!(parse_time_nanos(refused, NOW), None, "{refused:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(now|today|[0-9]{1,20}|)?([+-][0-9]{0,20}[smhdwMyü]?){0,3}") {
            let _ = parse_time_nanos(&text, NOW);
        }
    }
}
