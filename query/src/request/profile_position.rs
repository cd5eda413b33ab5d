//! Place of a profile in lists that are read page by page.

use athanor_profile::encoding::hash::ContentHash;

/// Place of a profile in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfilePosition {
    /// Timestamp of the profile, Unix nanoseconds.
    pub time: i64,
    /// Record id of the profile.
    pub id: ContentHash,
}

impl Default for ProfilePosition {
    /// Returns the place before all profiles.
    fn default() -> Self {
        ProfilePosition { time: i64::MIN, id: 0 }
    }
}
