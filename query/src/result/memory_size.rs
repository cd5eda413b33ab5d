//! Approximate memory of the parts of results, for budgets.

use athanor_profile::store_interface::series::BucketCounts;
use athanor_profile::{Labels, ProfileType};

use crate::result::profile_count::ProfileCount;

/// Overhead of a sorted map's entry beside its texts.
pub(crate) const MAP_ENTRY_OVERHEAD_BYTES: usize = 64;
/// Memory of a profile id in a point.
const POINT_PROFILE_BYTES: usize = 32;

pub(crate) fn text_bytes(text: &str) -> usize {
    size_of::<String>() + text.len()
}

pub(crate) fn value_bytes(value: &str) -> usize {
    MAP_ENTRY_OVERHEAD_BYTES + text_bytes(value)
}

pub(crate) fn type_bytes(of: &ProfileType) -> usize {
    let ProfileType { name, value, period } = of;
    [name, &value.kind, &value.unit, &period.kind, &period.unit]
        .into_iter()
        .map(|text| text_bytes(text))
        .sum()
}

pub(crate) fn labels_bytes(of: &Labels) -> usize {
    MAP_ENTRY_OVERHEAD_BYTES + of.len() * 2 * size_of::<String>() + of.text_bytes()
}

/// Returns the memory of the number of profiles of a group.
pub(crate) fn count_bytes(of: &Labels) -> usize {
    labels_bytes(of) + size_of::<ProfileCount>()
}

pub(crate) fn cell_bytes(profiles: usize, downsampled: BucketCounts) -> usize {
    let counts = if downsampled == BucketCounts::default() { 0 } else { size_of::<BucketCounts>() };
    MAP_ENTRY_OVERHEAD_BYTES + profiles * POINT_PROFILE_BYTES + counts
}
