//! Part of a block that the cache holds.

use std::sync::Arc;

use athanor_block::{Block, BlockError, TenantBlockSource, TenantMeta};
use athanor_catalog::BlockId;
use athanor_chassis::TenantId;

use crate::part_location::PartLocation;
use crate::sparse_files::SparseBlockFiles;

/// Part of a block that belongs to one tenant, with the data fetched so far. Clones share that data.
#[derive(Clone)]
pub struct CachedBlock {
    pub(crate) location: PartLocation,
    pub(crate) source: TenantBlockSource,
    pub(crate) block: Arc<Block>,
    pub(crate) folder: Arc<SparseBlockFiles>,
}

impl CachedBlock {
    /// Returns the cache key: block id and tenant.
    pub fn key(&self) -> (BlockId, TenantId) {
        (self.location.block, self.location.tenant.clone())
    }

    /// Returns the source from which queries read.
    pub fn source(&self) -> &TenantBlockSource {
        &self.source
    }

    /// Returns true if both share the same fetched data. Another part of the same block and tenant does not.
    pub fn is_same(&self, other: &CachedBlock) -> bool {
        Arc::ptr_eq(&self.folder, &other.folder)
    }

    /// Marks the part as queried. Returns whether an earlier query had used the part.
    pub fn has_earlier_query(&self) -> bool {
        self.folder.has_earlier_query()
    }

    /// Returns the approximate memory of the part, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.source.memory_bytes() + self.folder.fetched_bytes() + self.block.footer_bytes()
    }

    /// Returns the metadata of the tenant's part.
    pub(crate) fn meta(&self) -> Result<TenantMeta, BlockError> {
        Ok(self.block.tenant_block(self.location.tenant.as_str())?.meta.clone())
    }
}
