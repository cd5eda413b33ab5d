//! Directory of the tenants that have profiles.

use std::collections::BTreeSet;
use std::sync::Arc;

use athanor_catalog::Catalog;
use athanor_chassis::{Status, TenantId};
use athanor_ingester::Ingester;

/// Directory of the tenants with profiles in blocks, or in heads that this node leads. A tenant that is only in heads
/// of other nodes is missing until its first flush. Cheap to clone.
#[derive(Clone)]
pub struct TenantDirectory {
    /// Catalog client, local or remote.
    pub catalog: Arc<dyn Catalog>,
    /// Ingester of this node, if the process has that role.
    pub ingester: Option<Arc<Ingester>>,
}

impl TenantDirectory {
    /// Returns the names of all tenants, ascending.
    pub async fn tenants(&self) -> Result<BTreeSet<TenantId>, Status> {
        // Heads come first: rows that leave them meanwhile are in a block when the catalog is read.
        let in_heads = self.ingester.iter().flat_map(|ingester| ingester.tenants_in_heads());
        let mut tenants: BTreeSet<TenantId> = in_heads.collect();
        tenants.extend(self.catalog.tenants().await.map_err(|error| Status::from_error(&error))?);
        Ok(tenants)
    }
}
