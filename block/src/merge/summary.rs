//! Summary of the rows of merge inputs by window, from the profile headers alone.

use std::collections::BTreeMap;

use athanor_chassis::window_end;

use crate::format::error::BlockError;
use crate::merge::MergeSource;
use crate::merge::plan::parts_by_tenant;
use crate::merge::selection::RowTotals;
use crate::reader::profile_stream::ProfileStream;

/// Rows of merge inputs by tenant and window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowSummary {
    /// Totals by tenant, then by the end of the window as [`window_end`] returns it. Duplicates count.
    pub tenants: BTreeMap<String, BTreeMap<i64, RowTotals>>,
}

/// Sums the rows of each tenant and each window of `window` nanoseconds. Only `profiles.parquet` is read.
pub fn summarize_rows(sources: &[MergeSource], window: i64) -> Result<RowSummary, BlockError> {
    let mut summary = RowSummary::default();
    for (tenant, parts) in parts_by_tenant(sources, None) {
        let mut windows: BTreeMap<i64, RowTotals> = BTreeMap::new();
        for location in parts {
            let part = sources[location.input].block.tenant_block_at(location.tenant);
            let mut profiles = ProfileStream::open(&part)?;
            while let Some(stored) = profiles.next_profile()? {
                windows.entry(window_end(stored.row.time, window)).or_default().add_row(&stored);
            }
        }
        summary.tenants.insert(tenant.to_owned(), windows);
    }
    Ok(summary)
}
