//! Location of one tenant's part of a block.

use athanor_catalog::BlockId;
use athanor_chassis::TenantId;
use athanor_storage::path::BlockOwner;

/// Part of a block that belongs to one tenant, with the folder that holds the block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartLocation {
    /// Id of the block.
    pub block: BlockId,
    /// Tenant that owns the part.
    pub tenant: TenantId,
    /// True if the block lies in the tenant's folder, false if it lies in the shared one.
    pub in_tenant_folder: bool,
}

impl PartLocation {
    /// Returns the owner of the folder that holds the block. A tenant's folder is only read for that tenant.
    pub fn folder_owner(&self) -> BlockOwner {
        match self.in_tenant_folder {
            true => BlockOwner::Tenant(self.tenant.clone()),
            false => BlockOwner::Shared,
        }
    }
}
