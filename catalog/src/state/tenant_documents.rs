//! Documents of tenants, such as page settings and rules. The catalog does not interpret them.

use std::collections::BTreeMap;

use athanor_chassis::{TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::state::{CatalogState, CommandError, CommandOutcome, LimitedResource};

/// Limit of documents per tenant.
pub const MAX_DOCUMENTS_PER_TENANT: usize = 1_000;
/// Limit of bytes per document, its name included.
pub const MAX_DOCUMENT_BYTES: usize = 64 << 10;
/// Limit of bytes of all documents of a tenant.
pub const MAX_DOCUMENT_BYTES_PER_TENANT: usize = 1 << 20;
/// Limit of bytes of all documents, because every snapshot contains them.
pub const MAX_TOTAL_DOCUMENT_BYTES: usize = 16 << 20;

/// Text that a tenant stores under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantDocument {
    /// Content of the document.
    pub text: String,
    /// Time of the last write, by the catalog's time.
    pub updated_at: Timestamp,
}

/// Documents of one tenant, by name.
pub type TenantDocuments = BTreeMap<String, TenantDocument>;

fn document_bytes(documents: &TenantDocuments) -> usize {
    documents.iter().map(|(name, document)| name.len() + document.text.len()).sum()
}

impl CatalogState {
    /// Returns a copy of a tenant's documents.
    pub fn tenant_documents(&self, tenant: &TenantId) -> TenantDocuments {
        self.documents.get(tenant).map(|documents| TenantDocuments::clone(documents)).unwrap_or_default()
    }

    /// Iterates over the documents of all tenants.
    pub fn all_documents(&self) -> impl Iterator<Item = (&TenantId, &TenantDocuments)> {
        self.documents.iter().map(|(tenant, documents)| (tenant, &**documents))
    }

    /// Writes a document if its current text is the expected one. Without a new text it deletes the document.
    pub(super) fn put_tenant_document(
        &mut self,
        tenant: TenantId,
        name: String,
        expected: Option<&str>,
        text: Option<String>,
    ) -> Result<CommandOutcome, CommandError> {
        let known = self.documents.get(&tenant).and_then(|documents| documents.get(&name));
        let known = known.map(|document| document.text.as_str());
        if known == text.as_deref() {
            return Ok(CommandOutcome::from_count(0));
        }
        if known != expected {
            return Err(CommandError::DocumentChanged { name });
        }
        let Some(text) = text else {
            let of_tenant = self.documents.get_or_default(tenant.clone());
            of_tenant.remove(&name);
            if of_tenant.is_empty() {
                self.documents.remove(&tenant);
            }
            return Ok(CommandOutcome::from_count(1));
        };
        self.check_document_limits(&tenant, &name, &text)?;
        let document = TenantDocument { text, updated_at: self.now };
        self.documents.get_or_default(tenant).insert(name, document);
        Ok(CommandOutcome::from_count(1))
    }

    /// Returns an error if a document would exceed a limit.
    fn check_document_limits(&self, tenant: &TenantId, name: &str, text: &str) -> Result<(), CommandError> {
        let limit_reached = |resource, limit| Err(CommandError::LimitReached { resource, limit });
        let seen = name.len() + text.len();
        if seen > MAX_DOCUMENT_BYTES {
            return Err(CommandError::DocumentTooLarge { seen });
        }
        let of_tenant = self.documents.get(tenant);
        let known = of_tenant.and_then(|documents| documents.get(name));
        let count = of_tenant.map_or(0, |documents| documents.len()) + usize::from(known.is_none());
        let before = known.map_or(0, |document| name.len() + document.text.len());
        let grown = |bytes: usize| bytes - before + seen;
        if count > MAX_DOCUMENTS_PER_TENANT {
            return limit_reached(LimitedResource::Documents, MAX_DOCUMENTS_PER_TENANT);
        }
        if grown(of_tenant.map_or(0, |documents| document_bytes(documents))) > MAX_DOCUMENT_BYTES_PER_TENANT {
            return limit_reached(LimitedResource::DocumentBytes, MAX_DOCUMENT_BYTES_PER_TENANT);
        }
        if grown(self.documents.values().map(|documents| document_bytes(documents)).sum())
            > MAX_TOTAL_DOCUMENT_BYTES
        {
            return limit_reached(LimitedResource::TotalDocumentBytes, MAX_TOTAL_DOCUMENT_BYTES);
        }
        Ok(())
    }

    pub(super) fn check_documents(&self) -> Result<(), String> {
        for (tenant, documents) in self.documents.iter() {
            if documents.is_empty()
                || documents.len() > MAX_DOCUMENTS_PER_TENANT
                || document_bytes(documents) > MAX_DOCUMENT_BYTES_PER_TENANT
            {
                return Err(format!(
                    "tenant {tenant} has {} documents of {} bytes",
                    documents.len(),
                    document_bytes(documents)
                ));
            }
        }
        let all: usize = self.documents.values().map(|documents| document_bytes(documents)).sum();
        if all > MAX_TOTAL_DOCUMENT_BYTES {
            Err(format!("there are {all} bytes of documents"))
        } else {
            Ok(())
        }
    }
}
