//! Tenant state for user interfaces: settings, recording rules and feature flags. Settings and rules are
//! documents in the catalog.

use std::sync::Arc;

use athanor_catalog::{Catalog, CatalogCommand, CatalogError, CommandError, TenantDocuments};
use athanor_chassis::{ErrorCode, LimitOverrides, Status, TenantId};

mod features;
mod rules;
mod settings;

/// Maximum number of attempts of an update that loses to concurrent ones.
const MAX_UPDATE_ATTEMPTS: usize = 5;

/// Store of settings and rules. Cheap to clone.
#[derive(Clone)]
pub struct TenantSettings {
    catalog: Arc<dyn Catalog>,
    overrides: LimitOverrides,
}

impl TenantSettings {
    /// Creates a store on a catalog.
    pub fn new(catalog: Arc<dyn Catalog>, overrides: LimitOverrides) -> Self {
        TenantSettings { catalog, overrides }
    }

    async fn notes(&self, tenant: &TenantId) -> Result<TenantDocuments, Status> {
        self.catalog.tenant_documents(tenant).await.map_err(|error| Status::from_error(&error))
    }

    /// Rejects a text that makes the tenant exceed its quota, unless it needs no more bytes than before.
    fn check_quota(
        &self,
        tenant: &TenantId,
        notes: &TenantDocuments,
        name: &str,
        text: Option<&str>,
    ) -> Result<(), Status> {
        let size = |name: &str, text: &str| (name.len() + text.len()) as u64;
        let kept: u64 = notes.iter().map(|(name, note)| size(name, &note.text)).sum();
        let replaced = notes.get(name).map_or(0, |note| size(name, &note.text));
        let wanted = kept - replaced + text.map_or(0, |text| size(name, text));
        let limit = self.overrides.for_tenant(tenant).max_settings_bytes;
        if wanted <= limit.get().max(kept) {
            return Ok(());
        }
        let message = format!(
            "settings and rules of the tenant have {kept} bytes and would have {wanted}, the limit is {limit} \
             (limits.max_settings_bytes): delete some, with athanor settings delete as administrator, or raise the limit"
        );
        let is_too_long = text.is_some_and(|text| size(name, text) > limit.get());
        Err(Status::new(if is_too_long { ErrorCode::Invalid } else { ErrorCode::Exhausted }, message))
    }

    /// Updates one document. `make` returns its name and new text from all documents, or no text to delete
    /// it. If the document changed meanwhile, the update is retried. Returns the name, and all documents
    /// after the update.
    async fn update_document<F>(
        &self,
        tenant: &TenantId,
        mut make: F,
    ) -> Result<(String, TenantDocuments), Status>
    where
        F: FnMut(&TenantDocuments) -> Result<(String, Option<String>), Status>,
    {
        let mut last = String::new();
        for _ in 0..MAX_UPDATE_ATTEMPTS {
            let notes = self.notes(tenant).await?;
            let (name, text) = make(&notes)?;
            last.clone_from(&name);
            self.check_quota(tenant, &notes, &name, text.as_deref())?;
            let expected = notes.get(&name).map(|note| note.text.clone());
            let note = CatalogCommand::PutTenantDocument { tenant: tenant.clone(), name, expected, text };
            match self.catalog.apply_command(note).await {
                Ok(()) => return Ok((last, self.notes(tenant).await?)),
                Err(CatalogError::Refused(CommandError::DocumentChanged { .. })) => {}
                Err(CatalogError::Refused(refused @ CommandError::LimitReached { .. })) => {
                    return Err(Status::new(ErrorCode::Exhausted, refused.to_string()));
                }
                Err(CatalogError::Refused(refused @ CommandError::DocumentTooLarge { .. })) => {
                    return Err(Status::new(ErrorCode::Invalid, refused.to_string()));
                }
                Err(error) => return Err(Status::from_error(&error)),
            }
        }
        let message =
            format!("concurrent updates changed {last:?} during {MAX_UPDATE_ATTEMPTS} attempts; retry");
        Err(Status::new(ErrorCode::Conflict, message))
    }
}
