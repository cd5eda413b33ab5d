//! Number of profiles behind the rows of a part: one each, or those of a bucket in a downsampled tier.

use std::sync::Arc;

use athanor_profile::encoding::hash::ContentHash;
use athanor_profile::store_interface::series::BucketCounts;

use crate::format::columns::TableReader;
use crate::format::error::BlockError;
use crate::format::meta::PROFILES_FILE;
use crate::reader::read::TenantBlock;

impl TenantBlock<'_> {
    /// Returns whether each row adds up the profiles of a bucket.
    pub fn is_downsampled(&self) -> bool {
        !self.block.meta().tier().is_raw()
    }

    /// Opens the table of profiles. It has counts exactly if the tier is downsampled.
    pub(crate) fn profiles_table(&self) -> Result<Arc<TableReader>, BlockError> {
        let table = self.block.open_table(PROFILES_FILE)?;
        if table.columns().counts == self.is_downsampled() {
            return Ok(table);
        }
        let has = if self.is_downsampled() { "has no" } else { "has" };
        let tier = self.block.meta().tier().name();
        Err(BlockError::corrupt(
            PROFILES_FILE,
            format!("the file {has} counts of profiles, its tier is {tier}"),
        ))
    }

    /// Returns the number of profiles in a row with this ID.
    pub(crate) fn record_count(&self, id: ContentHash) -> u64 {
        if self.is_downsampled() { BucketCounts::from_row_id(id).records } else { 1 }
    }

    /// Compares the number of profiles in all rows with `meta.json`.
    pub(crate) fn check_record_count(&self, seen: u64) -> Result<(), BlockError> {
        let expected = self.meta.profile_count();
        if seen == expected {
            return Ok(());
        }
        let why = format!("rows add up {seen} profiles, meta.json lists {expected}");
        Err(BlockError::corrupt(PROFILES_FILE, why))
    }
}
