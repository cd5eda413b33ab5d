//! Tiers of stored profiles, and windows of time.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// Resolution of stored profiles. A row of a tier above the raw one is the sum of a series' profiles in one
/// bucket. The end of the bucket is its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Tier {
    /// Single profiles.
    #[default]
    #[serde(rename = "raw")]
    Raw,
    /// Buckets of 5 minutes.
    #[serde(rename = "5m")]
    FiveMinutes,
    /// Buckets of an hour.
    #[serde(rename = "1h")]
    OneHour,
    /// Buckets of a day.
    #[serde(rename = "1d")]
    OneDay,
}

/// Text that names no tier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown tier {0:?}, known are raw, 5m, 1h and 1d")]
pub struct UnknownTierError(pub String);

impl Tier {
    /// All tiers, the finest first.
    pub const ALL: [Self; 4] = [Self::Raw, Self::FiveMinutes, Self::OneHour, Self::OneDay];
    /// Tiers with buckets, the finest first.
    pub const DOWNSAMPLED: [Self; 3] = [Self::FiveMinutes, Self::OneHour, Self::OneDay];

    /// Returns whether the tier holds single profiles.
    pub const fn is_raw(&self) -> bool {
        matches!(self, Self::Raw)
    }

    /// Returns the width of a bucket in nanoseconds, 1 for single profiles.
    pub const fn bucket_nanos(self) -> i64 {
        match self {
            Self::Raw => 1,
            Self::FiveMinutes => 300 * NANOS_PER_SECOND,
            Self::OneHour => 3_600 * NANOS_PER_SECOND,
            Self::OneDay => 86_400 * NANOS_PER_SECOND,
        }
    }

    /// Returns the end of the bucket that contains a time, both in Unix nanoseconds.
    pub const fn bucket_end(self, time: i64) -> i64 {
        window_end(time, self.bucket_nanos())
    }

    /// Returns the name of the tier.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::FiveMinutes => "5m",
            Self::OneHour => "1h",
            Self::OneDay => "1d",
        }
    }

    /// Returns the number of the tier on the wire: 0 for raw, then by growing buckets.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the tier with a number on the wire.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tier {
    type Err = UnknownTierError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|tier| tier.name() == text)
            .ok_or_else(|| UnknownTierError(text.to_owned()))
    }
}

/// Returns the end of the window that contains a time, both in Unix nanoseconds. Windows of width `w` are
/// `(b − w, b]` with `b` a multiple of `w` since the Unix epoch. So a profile at a full minute belongs to the
/// minute that it ends, and each time is in exactly one window [INV-20]. The first and the last window are
/// limited by the range of `i64`, and the first one includes `i64::MIN`. A width below 1 counts as 1.
pub const fn window_end(time: i64, width_nanos: i64) -> i64 {
    let width_nanos = if width_nanos < 1 { 1 } else { width_nanos };
    let past_nanos = time.rem_euclid(width_nanos);
    if past_nanos == 0 && time > i64::MIN { time } else { time.saturating_add(width_nanos - past_nanos) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_of_tiers_are_unique() {
        for tier in Tier::ALL {
            assert_eq!(tier.name().parse(), Ok(tier));
            assert_eq!(Tier::from_number(tier.number().into()), Some(tier));
            assert_eq!(serde_json::to_string(&tier).unwrap(), format!("{:?}", tier.name()));
        }
        assert_eq!("2h".parse::<Tier>(), Err(UnknownTierError("2h".to_owned())));
        assert_eq!(Tier::from_number(4), None);
    }

    #[test]
    fn bucket_of_boundary_ends_there_and_coarser_buckets_contain_finer_ones() {
        for time in [i64::MIN, -1, 0, 1, 300_000_000_000, 86_399_999_999_999, 86_400_000_000_001, i64::MAX] {
            assert_eq!(Tier::Raw.bucket_end(time), time.max(i64::MIN + 1));
            for (finer, coarser) in
                [(0, 1), (1, 2), (2, 3)].map(|(a, b): (usize, usize)| (Tier::ALL[a], Tier::ALL[b]))
            {
                let end = finer.bucket_end(time);
                assert_eq!(finer.bucket_end(end), end);
                assert_eq!(coarser.bucket_end(end), coarser.bucket_end(time));
            }
        }
    }
}
