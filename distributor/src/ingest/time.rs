//! Timestamps as SDKs write them. Unix time is in seconds, milliseconds, microseconds or nanoseconds,
//! recognized by the number of digits. A day is `20260304`, an offset from now is `now-1h30m`.

use athanor_chassis::Timestamp;

const NANOS_PER_SECOND: i64 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 24 * 3600;

/// Returns Unix nanoseconds, or `None` if the text is not a time.
pub(crate) fn parse_time(text: &str, now: Timestamp) -> Option<i64> {
    let text: String = text.chars().filter(|c| !matches!(c, '_' | ',' | ' ')).collect();
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return parse_digits(text);
    }
    let offset = text.strip_prefix("now").or_else(|| text.starts_with(['+', '-']).then_some(text))?;
    let (sign, mut rest) = match offset.chars().next() {
        None => return Some(now.nanos()),
        Some('+') => (1, &offset[1..]),
        Some('-') => (-1, &offset[1..]),
        Some(_) => return None,
    };
    let mut seconds = 0i64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let step = number.parse::<i64>().ok()?.checked_mul(unit_seconds(unit)?)?;
        seconds = seconds.checked_add(step)?;
        rest = after;
    }
    now.nanos().checked_add(seconds.checked_mul(sign * NANOS_PER_SECOND)?)
}

fn parse_digits(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    match text.len() {
        8 if parse_day(number).is_some() => parse_day(number),
        13 => number.checked_mul(1_000_000),
        16 => number.checked_mul(1000),
        19 => Some(number),
        _ => number.checked_mul(NANOS_PER_SECOND),
    }
}

/// Returns midnight UTC of a day written `20260304`.
fn parse_day(number: i64) -> Option<i64> {
    let year = number / 10_000;
    let month = number / 100 % 100;
    let day = number % 100;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = *lengths.get(usize::try_from(month - 1).ok()?)?;
    if year <= 1900 || !(1..=length).contains(&day) {
        return None;
    }
    let before = year - 1;
    let years = before * 365 + before / 4 - before / 100 + before / 400;
    let months: i64 = lengths.iter().take(month as usize - 1).sum();
    // Days from January 1 of year 1 to January 1, 1970: 719,162.
    let since_1970 = years + months + day - 1 - 719_162;
    since_1970.checked_mul(SECONDS_PER_DAY * NANOS_PER_SECOND)
}

fn unit_seconds(unit: &str) -> Option<i64> {
    let starts = |prefix| unit.starts_with(prefix);
    Some(match () {
        () if starts("s") => 1,
        () if starts("mon") || starts("M") => 30 * SECONDS_PER_DAY,
        () if starts("m") => 60,
        () if starts("h") => 3600,
        () if starts("d") => SECONDS_PER_DAY,
        () if starts("w") => 7 * SECONDS_PER_DAY,
        () if starts("y") => 365 * SECONDS_PER_DAY,
        () => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_told_apart_by_their_length() {
        let now = Timestamp::from_seconds(1_000_000_000);
        let at = |text| parse_time(text, now);
        let second = 1_772_618_460;
        for text in
            ["1772618460", "1772618460000", "1772618460000000", "1772618460000000000", "1_772_618_460"]
        {
            assert_eq!(at(text), Some(second * NANOS_PER_SECOND), "{text}");
        }
        assert_eq!(at("0"), Some(0));
        assert_eq!(at("20260304"), Some(1_772_582_400 * NANOS_PER_SECOND));
        assert_eq!(at("20000229"), Some(951_782_400 * NANOS_PER_SECOND));
        assert_eq!(at("20269999"), Some(20_269_999 * NANOS_PER_SECOND));
        assert_eq!(at("now"), Some(now.nanos()));
        assert_eq!(at("now-1h30min"), Some(now.nanos() - 5400 * NANOS_PER_SECOND));
        assert_eq!(at("now + 1d 2s"), Some(now.nanos() + 86_402 * NANOS_PER_SECOND));
        assert_eq!(at("-5m"), Some(now.nanos() - 300 * NANOS_PER_SECOND));
        for text in
            ["", "yesterday", "now-1", "now-h", "nowish", "99999999999999999999", "9999999999999999999"]
        {
            assert_eq!(at(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_time_or_none(text in "(now)?[-+0-9a-z_ ]{0,24}") {
            let _ = parse_time(&text, Timestamp::from_nanos(i64::MAX));
        }
    }
}
