//! Human-readable sizes and durations: `128MiB`, `1m30s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Number of bytes, written `512B`, `4KiB`, `128MiB`, `1.5GiB`, or with decimal units `10MB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

/// Text that is not a valid size or duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The text is not a size.
    #[error("{0:?} is not a size; write for example 128MiB")]
    Size(String),
    /// The text is not a duration.
    #[error("{0:?} is not a duration; write for example 30s, 5m or 1h30m")]
    Duration(String),
}

const BINARY_UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const DECIMAL_UNITS: [(&str, u64); 4] =
    [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1_000)];
const DURATION_UNITS: [(&str, u128); 8] = [
    ("w", 604_800_000_000_000),
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

// === impl ByteSize ===

impl ByteSize {
    /// Creates a size of `bytes` bytes.
    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Creates a size of `count` times 1024 bytes.
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    /// Creates a size of `count` times 1024² bytes.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// Returns the number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Formats the approximate size for messages: `683MiB`. `Display` writes the exact size for settings.
    pub fn to_approximate_string(self) -> String {
        let (unit, factor) =
            BINARY_UNITS.into_iter().find(|(_, factor)| self.0 >= *factor).unwrap_or(("B", 1));
        let whole = self.0 / factor;
        let tenths = (self.0 % factor) * 10 / factor;
        if whole < 10 && tenths > 0 { format!("{whole}.{tenths}{unit}") } else { format!("{whole}{unit}") }
    }

    /// Returns the number of bytes as `usize`, saturated if it does not fit.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let refused = || UnitError::Size(text.to_owned());
        let (number, unit) = split_number(text.trim());
        let factor = match unit.trim() {
            "" => 1,
            unit => BINARY_UNITS
                .iter()
                .chain(&DECIMAL_UNITS)
                .find(|(name, _)| name.eq_ignore_ascii_case(unit))
                .map(|(_, factor)| *factor)
                .ok_or_else(refused)?,
        };
        let bytes = scale_decimal(number, u128::from(factor)).ok_or_else(refused)?;
        u64::try_from(bytes).map(Self).map_err(|_| refused())
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = BINARY_UNITS
            .into_iter()
            .find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor))
            .unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ByteSizeVisitor;
        impl Visitor<'_> for ByteSizeVisitor {
            type Value = ByteSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as 128MiB")
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(bytes))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(ByteSizeVisitor)
    }
}

// === durations ===

/// Parses `30s`, `1h30m`, `1.5s`, `0`. Units: `w d h m s ms us ns`.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let refused = || UnitError::Duration(text.to_owned());
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut nanos = 0_u128;
    let mut smallest = u128::MAX;
    while !rest.is_empty() {
        let (number, tail) = split_number(rest);
        let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let (_, factor) = DURATION_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refused)?;
        if *factor >= smallest {
            return Err(refused());
        }
        smallest = *factor;
        nanos = nanos.checked_add(scale_decimal(number, *factor).ok_or_else(refused)?).ok_or_else(refused)?;
        rest = tail;
    }
    match u64::try_from(nanos) {
        Ok(nanos) if smallest != u128::MAX => Ok(Duration::from_nanos(nanos)),
        _ => Err(refused()),
    }
}

/// Formats a duration so that [`parse_duration`] reads it back: `1h30m`. Durations over 584 years saturate.
pub fn format_duration(span: Duration) -> String {
    let mut nanos = span.as_nanos().min(u128::from(u64::MAX));
    if nanos == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, factor) in DURATION_UNITS {
        let count = nanos / factor;
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
            nanos %= factor;
        }
    }
    text
}

/// Formats the approximate duration for messages: `90 seconds`, `25 hours`, `3 weeks`, `2 years`. Never
/// rounds up.
pub fn format_approximate_duration(span: Duration) -> String {
    const SPOKEN_UNITS: [(&str, u64); 6] = [
        ("year", 31_536_000),
        ("week", 604_800),
        ("day", 86_400),
        ("hour", 3_600),
        ("minute", 60),
        ("second", 1),
    ];
    let seconds = span.as_secs();
    let exact = |&&(_, length): &&(&str, u64)| seconds == length;
    let (unit, length) = SPOKEN_UNITS
        .iter()
        .find(exact)
        .or_else(|| SPOKEN_UNITS.iter().find(|(_, length)| seconds / length >= 2))
        .unwrap_or(&("second", 1));
    let count = seconds / length;
    if count == 1 { format!("1 {unit}") } else { format!("{count} {unit}s") }
}

/// Serde module for fields of type `Duration`: `#[serde(with = "athanor_chassis::units::duration_text")]`.
pub mod duration_text {
    use super::{Deserialize, Deserializer, Duration, Serializer, de, format_duration, parse_duration};

    /// Writes `1h30m`.
    pub fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_duration(*span))
    }

    /// Parses `1h30m`. A bare number is rejected, because its unit is ambiguous.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_duration(&text).map_err(de::Error::custom)
    }
}

/// Variant of [`duration_text`] for optional fields.
pub mod optional_duration_text {
    use super::{
        Deserialize, Deserializer, Duration, Serialize, Serializer, de, format_duration, parse_duration,
    };

    /// Writes `1h30m`, or nothing.
    pub fn serialize<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        span.map(format_duration).serialize(serializer)
    }

    /// Reads `1h30m`, or nothing.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| parse_duration(&text).map_err(de::Error::custom)).transpose()
    }
}

fn split_number(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()))
}

/// Returns `number`, which may have a fraction, times `factor`, rounded down. Exact, without floating point.
fn scale_decimal(number: &str, factor: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if fraction.is_empty() || fraction.len() > 18 {
        return None;
    }
    let below_one = fraction.parse::<u128>().ok()? * factor / 10_u128.pow(fraction.len() as u32);
    whole.parse::<u128>().ok()?.checked_mul(factor)?.checked_add(below_one)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("4KiB", 4096),
            ("4 MiB", 4 << 20),
            ("1.5GiB", 3 << 29),
            ("10MB", 10_000_000),
            ("2tib", 2 << 40),
        ] {
            assert_eq!(text.parse::<ByteSize>(), Ok(ByteSize::bytes(bytes)), "{text}");
        }
        for text in ["", "MiB", "1.MiB", "-1", "1 parsec", "99999999999TiB"] {
            assert_eq!(text.parse::<ByteSize>(), Err(UnitError::Size(text.to_owned())));
        }
        assert_eq!((ByteSize::mib(128).to_string(), ByteSize::kib(3).get()), ("128MiB".to_owned(), 3072));
        assert_eq!(serde_json::from_str::<ByteSize>("4096").unwrap(), ByteSize::kib(4));
        assert_eq!(ByteSize::kib(1).as_usize(), 1024);
        let about = [716_177_408, 1_048_577, 1_677_722, 1023, 3 << 40]
            .map(|bytes| ByteSize::bytes(bytes).to_approximate_string());
        assert_eq!(about, ["683MiB", "1MiB", "1.6MiB", "1023B", "3TiB"]);
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in [
            ("0", 0),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("7d", 604_800_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "30", "s", "5m5m", "1s1h", "1 fortnight", "99999999w"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(format_duration(Duration::from_millis(90_500)), "1m30s500ms");
        let about = [0, 1, 90, 3600, 90_000, 1_900_000, 63_500_000]
            .map(|seconds| format_approximate_duration(Duration::from_secs(seconds)));
        let expected = ["0 seconds", "1 second", "90 seconds", "1 hour", "25 hours", "3 weeks", "2 years"];
        assert_eq!(about, expected);
    }

    proptest! {
        #[test]
        fn sizes_round_trip(bytes: u64) {
            let size = ByteSize::bytes(bytes);
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }

        #[test]
        fn durations_round_trip(nanos: u64) {
            let span = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_duration(&format_duration(span)), Ok(span));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9.a-zA-Z ]{0,12}") {
            let _ = text.parse::<ByteSize>();
            let _ = parse_duration(&text);
        }
    }
}
