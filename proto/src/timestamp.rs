//! `google.protobuf.Timestamp`: two numbers on the wire, and a text such as `2026-03-04T10:01:00.500Z` in
//! JSON.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Nanoseconds per second.
const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// Seconds per day.
const SECONDS_PER_DAY: i64 = 86_400;
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
        let (year, month, day) = civil_from_days(seconds.div_euclid(SECONDS_PER_DAY));
        let of_day = seconds.rem_euclid(SECONDS_PER_DAY);
        let hour = of_day / 3600;
        let minute = of_day / 60 % 60;
        let second = of_day % 60;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        match self.0.nanos {
            0 => {}
            nanos if nanos % 1_000_000 == 0 => write!(f, ".{:03}", nanos / 1_000_000)?,
            nanos if nanos % 1_000 == 0 => write!(f, ".{:06}", nanos / 1_000)?,
            nanos => write!(f, ".{nanos:09}")?,
        }
        f.write_str("Z")
    }
}

/// Returns the year, month and day of a day number, counted from 1970-01-01. The calculation starts years in
/// March, so that the leap day is the last of a year. It counts in eras of 400 years, which all have the same
/// number of days.
fn civil_from_days(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let of_month = of_year - (153 * from_march + 2) / 5 + 1;
    (year, month, of_month)
}

/// Returns the day number of a date, the inverse of [`civil_from_days`].
fn days_from_civil(year: i64, month: i64, of_month: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * from_march + 2) / 5 + of_month - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Parses the format that [`Rfc3339Timestamp`] writes.
fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let text = text.strip_suffix('Z')?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let shape = b"dddd-dd-ddTdd:dd:dd";
    let digits = whole.as_bytes();
    let fits = |(shape, byte): (&u8, &u8)| if *shape == b'd' { byte.is_ascii_digit() } else { shape == byte };
    if digits.len() != shape.len() || !shape.iter().zip(digits).all(fits) || fraction.len() > 9 {
        return None;
    }
    let number = |from: usize, to: usize| whole[from..to].parse::<i64>().ok();
    let year = number(0, 4)?;
    let month = number(5, 7)?;
    let of_month = number(8, 10)?;
    let hour = number(11, 13)?;
    let minute = number(14, 16)?;
    let second = number(17, 19)?;
    let of_day = hour * 3600 + minute * 60 + second;
    let seconds = days_from_civil(year, month, of_month) * SECONDS_PER_DAY + of_day;
    let is_date = civil_from_days(seconds.div_euclid(SECONDS_PER_DAY)) == (year, month, of_month) && year > 0;
    if !is_date || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let nanos = match fraction {
        "" => 0,
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => format!("{digits:0<9}").parse().ok()?,
        _ => return None,
    };
    Some(Timestamp { seconds, nanos })
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Rfc3339Timestamp(*self))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_rfc3339(&text)
            .ok_or_else(|| de::Error::custom(format!("{text:?} is no moment such as 2026-03-04T10:01:00Z")))
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
    fn every_day_has_one_date() {
        let mut before = civil_from_days(-800_000);
        for number in -800_000..800_000 {
            let this = civil_from_days(number);
            assert_eq!(days_from_civil(this.0, this.1, this.2), number);
            assert!(number == -800_000 || this > before);
            before = this;
        }
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
            "+026-01-01T00:00:00Z",
        ] {
            assert_eq!(parse_rfc3339(bad), None, "{bad}");
        }
    }
}
