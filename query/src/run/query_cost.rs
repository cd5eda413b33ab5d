//! Cost estimate of a query on one source, before it runs.

use athanor_profile::ProfileSource;
use athanor_profile::store_interface::source::SourceReadSize;

use super::labels::series_labels;
use super::matched_profiles::MatchedProfiles;
use crate::request::profile_query::{ProfileQueryError, ProfileSelection};
use crate::result::query_cost::{QueryCost, SourceCost};

/// Estimates the reads of a merge of this source. The index of series and profiles is always included: it
/// must be read to find out whether anything is selected.
pub(super) fn estimate_cost(
    picked: &MatchedProfiles,
    selection: &ProfileSelection,
    source: &dyn ProfileSource,
) -> Result<QueryCost, ProfileQueryError> {
    let whole = picked.profiles.iter().all(|profile| selection.time.contains(profile.time));
    let SourceReadSize { is_block, index, rows, names } = source.read_size(&picked.places, whole)?;
    let meant = picked.rows();
    let samples = meant.map(|row| u64::from(row.samples)).sum();
    let size = SourceCost {
        sources: 1,
        series: picked.matched_series().map(|series| series_labels(series).hash()).collect(),
        profiles: picked.rows().map(|row| picked.record_count(row)).fold(0, u64::saturating_add),
        samples,
        index_bytes: index,
        row_bytes: rows,
        name_bytes: names,
    };
    Ok(match is_block {
        true => QueryCost { blocks: size, ..QueryCost::default() },
        false => QueryCost { heads: size, ..QueryCost::default() },
    })
}
