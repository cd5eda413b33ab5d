//! Bound of the sums of one source.

use athanor_profile::call_tree::tree::MAX_MAGNITUDE;
use athanor_profile::{ProfileSource, SourceError};

/// Returns true if no sum over values of some profiles passes 63 bits.
pub(super) fn sums_fit(places: &[u32], source: &dyn ProfileSource) -> Result<bool, SourceError> {
    Ok(source.max_sum(places)?.is_some_and(|sum| sum <= MAX_MAGNITUDE))
}
