//! `google.protobuf.Timestamp`: two numbers on the wire, and a text such as `2026-03-04T10:01:00.500Z` in
//! JSON.

use std::fmt;

use chrono::{DateTime, SecondsFormat};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Nanoseconds per second.
const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// Nanoseconds of the last instant of a second.
const MAX_NANOS_OF_SECOND: u32 = 999_999_999;
/// Range that RFC 3339 can express: years 1 to 9999, in Unix seconds.
const RFC3339_SECONDS_RANGE: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// `google.protobuf.Timestamp`, a point in time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Timestamp {
    /// Seconds since 1970-01-01.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds within that second.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl Timestamp {
    /// Converts nanoseconds since 1970-01-01.
    pub fn from_nanos(nanos: i64) -> Self {
        let of_second = i32::try_from(nanos.rem_euclid(NANOS_PER_SECOND)).expect("less than 10⁹");
        Self { seconds: nanos.div_euclid(NANOS_PER_SECOND), nanos: of_second }
    }
}

/// Formats a timestamp for JSON. A timestamp out of range is clamped to the nearest one in range.
struct Rfc3339Timestamp(Timestamp);

impl fmt::Display for Rfc3339Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.seconds.clamp(*RFC3339_SECONDS_RANGE.start(), *RFC3339_SECONDS_RANGE.end());
        let nanos = u32::try_from(self.0.nanos).unwrap_or_default().min(MAX_NANOS_OF_SECOND);
        let time = DateTime::from_timestamp(seconds, nanos).unwrap_or_default();
        f.write_str(&time.to_rfc3339_opts(SecondsFormat::AutoSi, true))
    }
}

/// Parses the format that [`Rfc3339Timestamp`] writes, and nothing else of RFC 3339: no other zone, no leap
/// second, no more than nine digits of a fraction.
fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let utc = text.strip_suffix('Z')?;
    let (whole, fraction) = utc.split_once('.').unwrap_or((utc, "0"));
    let shape = b"dddd-dd-ddTdd:dd:dd";
    let fits = |(shape, byte): (&u8, &u8)| if *shape == b'd' { byte.is_ascii_digit() } else { shape == byte };
    let is_whole = whole.len() == shape.len() && shape.iter().zip(whole.as_bytes()).all(fits);
    if !is_whole || fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let time = DateTime::parse_from_rfc3339(text).ok()?;
    let nanos = time.timestamp_subsec_nanos();
    let is_in_range = RFC3339_SECONDS_RANGE.contains(&time.timestamp()) && nanos <= MAX_NANOS_OF_SECOND;
    is_in_range.then_some(Timestamp { seconds: time.timestamp(), nanos: nanos as i32 })
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Rfc3339Timestamp(*self))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_rfc3339(&text).ok_or_else(|| {
            de::Error::custom(format!("{text:?} is not an RFC 3339 timestamp such as 2026-03-04T10:01:00Z"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_others_write_them() {
        for (nanos, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400 * NANOS_PER_SECOND + 500_000_000, "2000-02-29T00:00:00.500Z"),
            (1_772_618_461 * NANOS_PER_SECOND + 1_000, "2026-03-04T10:01:01.000001Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
        ] {
            let moment = Timestamp::from_nanos(nanos);
            assert_eq!(serde_json::to_value(moment).expect("text"), text);
            assert_eq!(parse_rfc3339(text), Some(moment));
        }
        let last = Timestamp { seconds: i64::MAX, nanos: 0 };
        assert_eq!(Rfc3339Timestamp(last).to_string(), "9999-12-31T23:59:59Z");
        assert_eq!(
            Rfc3339Timestamp(Timestamp { seconds: i64::MIN, nanos: 0 }).to_string(),
            "0001-01-01T00:00:00Z"
        );
    }

    #[test]
    fn what_is_no_moment_is_not_read() {
        for bad in [
            "",
            "Z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.1234567890Z",
            "2026-01-01T00:00:00.x1Z",
            "2026-01-01T00:00:0éZ",
            "0000-01-01T00:00:00Z",
            "2026-01-01T00:00:60Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+01:00",
            "+026-01-01T00:00:00Z",
        ] {
            assert_eq!(parse_rfc3339(bad), None, "{bad}");
        }
    }
}
