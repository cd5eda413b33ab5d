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

    /// Changes a note to what is made of all there are: its name and its text, or none to forget it. Where somebody else
    /// changes it meanwhile, that is made anew. Gives the name, and all notes thereafter.
    async fn change<F>(&self, tenant: &TenantId, mut make: F) -> Result<(String, Notes), Status>
    where
        F: FnMut(&Notes) -> Result<(String, Option<String>), Status>,
    {
        let mut last = String::new();
        for _ in 0..TRIES {
            let notes = self.notes(tenant).await?;
            let (name, text) = make(&notes)?;
            last.clone_from(&name);
            let expected = notes.get(&name).map(|note| note.text.clone());
            let note = Command::Note { tenant: tenant.clone(), name, expected, text };
            match self.catalog.change(note).await {
                Ok(()) => return Ok((last, self.notes(tenant).await?)),
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
        let message = format!("others changed {last:?} {TRIES} times meanwhile; try again");
        Err(Status::new(Code::Conflict, message))
    }
}
