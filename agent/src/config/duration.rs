//! Durations in the syntax of Prometheus: `1h30m`, units from large to small, each once.

use std::time::Duration;

/// Units, from the largest, with their milliseconds.
const UNITS: [(&str, u64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];
/// Maximum milliseconds of a duration, those of 2^63 nanoseconds.
const MAX_MILLIS: u64 = i64::MAX as u64 / 1_000_000;

/// Text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a duration; write whole numbers with the units y, w, d, h, m, s and ms from large to small, such as 1m30s"
)]
pub struct DurationError(String);

/// Parses a duration. `0` needs no unit.
///
/// # Errors
///
/// The text has another form, or the duration exceeds 292 years.
pub fn parse_prometheus_duration(text: &str) -> Result<Duration, DurationError> {
    let refused = || DurationError(text.chars().take(100).collect());
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut millis = 0u64;
    while !rest.is_empty() || rest.len() == text.len() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|&end| end > 0).ok_or_else(refused)?;
        let (number, after) = rest.split_at(digits);
        let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let (_, factor) = units.find(|(name, _)| *name == unit).ok_or_else(refused)?;
        let number: u64 = number.parse().map_err(|_| refused())?;
        let added = number.checked_mul(*factor).ok_or_else(refused)?;
        millis = millis.checked_add(added).filter(|&sum| sum <= MAX_MILLIS).ok_or_else(refused)?;
        rest = after;
    }
    Ok(Duration::from_millis(millis))
}

/// Formats a duration so that [`parse_prometheus_duration`] reads it back. Parts of milliseconds are left out.
/// Years and weeks appear only if they are the whole duration.
pub fn format_prometheus_duration(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, factor) in UNITS {
        let count = rest / factor;
        let is_only_exact = matches!(unit, "y" | "w");
        if count > 0 && !(is_only_exact && rest % factor != 0) {
            text.push_str(&format!("{count}{unit}"));
            rest -= count * factor;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_as_prometheus_reads_them() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("15s", 15_000),
            ("1m30s", 90_000),
            ("1h0m5ms", 3_600_005),
            ("1y2w3d", (365 + 14 + 3) * 86_400_000),
            ("500ms", 500),
        ] {
            assert_eq!(parse_prometheus_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in
            ["", "5", "-5s", "1.5s", "1s1m", "1s1s", "s", "1x", "1s ", " 1s", "300y", "99999999999999999999s"]
        {
            assert!(parse_prometheus_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_written_as_prometheus_writes_them() {
        for (seconds, text) in [
            (0, "0s"),
            (60, "1m"),
            (90, "1m30s"),
            (3600, "1h"),
            (90 * 86_400, "90d"),
            (14 * 86_400, "2w"),
            (365 * 86_400, "1y"),
            (365 * 86_400 + 1, "365d1s"),
        ] {
            assert_eq!(format_prometheus_duration(Duration::from_secs(seconds)), text);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9ywdhms. -]{0,12}") {
            if let Ok(duration) = parse_prometheus_duration(&text) {
                let written = format_prometheus_duration(duration);
                prop_assert_eq!(parse_prometheus_duration(&written), Ok(duration));
            }
        }
    }
}
