//! What stands beside queries for the pages that ask them: what a tenant's people have set, rules that they keep, and
//! what this server can do. Settings and rules are notes in the catalogue.

use std::sync::Arc;

use athanor_catalog::{Catalog, CatalogError, Command, Notes, Refused};
use athanor_chassis::{Code, Status, TenantId};

mod features;
mod rules;
mod settings;

/// How often a change is tried that others are faster than.
const TRIES: usize = 5;

/// Keeps settings and rules. Cheap to clone.
#[derive(Clone)]
pub struct Companion {
    catalog: Arc<dyn Catalog>,
}

impl Companion {
    /// One that keeps what it is given in a catalogue.
    pub fn new(catalog: Arc<dyn Catalog>) -> Self {
        Companion { catalog }
    }

    async fn notes(&self, tenant: &TenantId) -> Result<Notes, Status> {
        self.catalog.notes(tenant).await.map_err(|error| Status::of(&error))
    }

    /// Changes a note to what is made of its text, or of none. Where somebody else changes it meanwhile, it is made of
    /// that. None forgets it.
    async fn change<F>(&self, tenant: &TenantId, name: &str, mut make: F) -> Result<Notes, Status>
    where
        F: FnMut(&Notes, Option<&str>) -> Result<Option<String>, Status>,
    {
        for _ in 0..TRIES {
            let notes = self.notes(tenant).await?;
            let expected = notes.get(name).map(|note| note.text.clone());
            let text = make(&notes, expected.as_deref())?;
            let (tenant_of, name) = (tenant.clone(), name.to_owned());
            match self.catalog.change(Command::Note { tenant: tenant_of, name, expected, text }).await {
                Ok(()) => return self.notes(tenant).await,
                Err(CatalogError::Refused(Refused::NoteChanged { .. })) => {}
                Err(CatalogError::Refused(refused @ Refused::TooMany { .. })) => {
                    return Err(Status::new(Code::Exhausted, refused.to_string()));
                }
                Err(CatalogError::Refused(refused @ Refused::LongNote { .. })) => {
                    return Err(Status::new(Code::Invalid, refused.to_string()));
                }
                Err(error) => return Err(Status::of(&error)),
            }
        }
        let message = format!("others changed {name:?} {TRIES} times meanwhile; try again");
        Err(Status::new(Code::Conflict, message))
    }
}
