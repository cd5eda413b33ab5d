//! Names of spool files. A name contains all that eviction and queueing need, so a start reads no file.

use std::fmt;
use std::str::FromStr;

use athanor_chassis::Timestamp;

use crate::upload::{UploadOrder, UploadOrigin};

/// Number of lanes of cumulative uploads. The lane of a series must not change between versions, because the
/// files of an earlier version may wait in the spool.
pub const CUMULATIVE_LANES: u8 = 4;
pub(super) const FILE_SUFFIX: &str = ".spool";
pub(super) const DAMAGED_SUFFIX: &str = ".damaged";

/// Name of a spool file. It contains neither tenant nor labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpoolFileName {
    /// Position in the order of creation.
    pub sequence: u64,
    /// Origin of all uploads in the file.
    pub origin: UploadOrigin,
    /// Order of delivery.
    pub order: OrderClass,
    /// Number of profiles.
    pub profiles: u32,
    /// Latest time of the profiles, in milliseconds since 1970.
    pub time_millis: i64,
}

/// Order of delivery of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OrderClass {
    /// Any order.
    Independent,
    /// In the order of creation among the files of the lane, one at a time. All uploads of a series are in one
    /// lane, so no snapshot overtakes an earlier one.
    Cumulative {
        /// Number of the lane, below [`CUMULATIVE_LANES`].
        lane: u8,
    },
}

/// Failure to parse the name of a spool file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of a spool file")]
pub struct FileNameError(String);

// === impl OrderClass ===

impl OrderClass {
    /// Returns the class of uploads with the given constraint.
    pub fn from_upload(order: UploadOrder) -> Self {
        match order {
            UploadOrder::Independent => Self::Independent,
            UploadOrder::Cumulative(series) => {
                Self::Cumulative { lane: (series % u64::from(CUMULATIVE_LANES)) as u8 }
            }
        }
    }
}

// === impl SpoolFileName ===

impl SpoolFileName {
    /// Returns the latest time of the profiles.
    pub fn time(&self) -> Timestamp {
        Timestamp::from_nanos(self.time_millis.saturating_mul(1_000_000))
    }

    /// Parses the name of a file in quarantine.
    pub fn from_damaged_name(text: &str) -> Result<Self, FileNameError> {
        let name = text.strip_suffix(DAMAGED_SUFFIX).ok_or_else(|| FileNameError(text.to_owned()))?;
        name.parse()
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_suffix(FILE_SUFFIX)?.split('-');
        let sequence = parts.next()?.parse().ok()?;
        let origin = match parts.next()? {
            "scraped" => UploadOrigin::Scraped,
            "received" => UploadOrigin::Received,
            _ => return None,
        };
        let order = match parts.next()? {
            "delta" => OrderClass::Independent,
            lane => {
                let lane = lane.strip_prefix("cumulative")?.parse().ok()?;
                OrderClass::Cumulative { lane: Some(lane).filter(|lane| *lane < CUMULATIVE_LANES)? }
            }
        };
        let profiles = parts.next()?.parse().ok()?;
        let time_millis = u64::from_str_radix(parts.next()?, 16).ok()?.cast_signed();
        let name = Self { sequence, origin, order, profiles, time_millis };
        // One spelling only: a second name of the same number would be a second file.
        (name.to_string() == text).then_some(name)
    }
}

impl fmt::Display for SpoolFileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = match self.origin {
            UploadOrigin::Scraped => "scraped",
            UploadOrigin::Received => "received",
        };
        write!(f, "{:020}-{origin}-", self.sequence)?;
        match self.order {
            OrderClass::Independent => f.write_str("delta")?,
            OrderClass::Cumulative { lane } => write!(f, "cumulative{lane}")?,
        }
        write!(f, "-{}-{:016x}{FILE_SUFFIX}", self.profiles, self.time_millis)
    }
}

impl FromStr for SpoolFileName {
    type Err = FileNameError;

    fn from_str(text: &str) -> Result<Self, FileNameError> {
        Self::parse(text).ok_or_else(|| FileNameError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_as_written_and_sort_by_sequence() {
        let mut names = Vec::new();
        for (sequence, origin) in [(7, UploadOrigin::Scraped), (u64::MAX, UploadOrigin::Received)] {
            for order in [OrderClass::Independent, OrderClass::from_upload(UploadOrder::Cumulative(6))] {
                let time_millis = -(sequence as i64 % 5);
                let name = SpoolFileName { sequence, origin, order, profiles: 3, time_millis };
                assert_eq!(name.to_string().parse(), Ok(name));
                assert_eq!(SpoolFileName::from_damaged_name(&format!("{name}{DAMAGED_SUFFIX}")), Ok(name));
                names.push(name.to_string());
            }
        }
        assert!(names[0] < names[2] && names[1] < names[3]);
        assert_eq!(names[1], "00000000000000000007-scraped-cumulative2-3-fffffffffffffffe.spool");
    }

    #[test]
    fn other_names_are_rejected() {
        for text in [
            "",
            "7-scraped-delta-1-0000000000000000.spool",
            "00000000000000000007-scraped-cumulative4-1-0000000000000000.spool",
            "00000000000000000007-scraped-delta-1-0000000000000000",
            "00000000000000000007-scraped-delta-1-0000000000000000-9.spool",
            "00000000000000000007-taken-delta-1-0000000000000000.spool",
        ] {
            assert!(text.parse::<SpoolFileName>().is_err(), "{text}");
        }
    }
}
