//! What stands beside queries for the pages that ask them: what a tenant's people have set, rules that they keep, and
//! what this server can do. Settings and rules are notes in the catalogue.

use std::sync::Arc;

use athanor_catalog::{Catalog, CatalogError, Command, Notes, Refused};
use athanor_chassis::{Code, Overrides, Status, TenantId};

mod features;
mod rules;
mod settings;

/// How often a change is tried that others are faster than.
const TRIES: usize = 5;

/// Keeps settings and rules. Cheap to clone.
#[derive(Clone)]
pub struct Companion {
    catalog: Arc<dyn Catalog>,
    overrides: Overrides,
}

impl Companion {
    /// One that keeps what it is given in a catalogue.
    pub fn new(catalog: Arc<dyn Catalog>, overrides: Overrides) -> Self {
        Companion { catalog, overrides }
    }

    async fn notes(&self, tenant: &TenantId) -> Result<Notes, Status> {
        self.catalog.notes(tenant).await.map_err(|error| Status::of(&error))
    }

    /// Refuses a text with which the tenant keeps more bytes than it may, and more than before.
    fn check_quota(
        &self,
        tenant: &TenantId,
        notes: &Notes,
        name: &str,
        text: Option<&str>,
    ) -> Result<(), Status> {
        let size = |name: &str, text: &str| (name.len() + text.len()) as u64;
        let kept: u64 = notes.iter().map(|(name, note)| size(name, &note.text)).sum();
        let replaced = notes.get(name).map_or(0, |note| size(name, &note.text));
        let wanted = kept - replaced + text.map_or(0, |text| size(name, text));
        let limit = self.overrides.of(tenant).max_settings_bytes;
        if wanted <= limit.get().max(kept) {
            return Ok(());
        }
        let message = format!(
            "settings and rules of the tenant have {kept} bytes and would have {wanted}, the limit is {limit} \
             (limits.max_settings_bytes): delete some, with athanor settings delete as administrator, or raise the limit"
        );
        let is_too_long = text.is_some_and(|text| size(name, text) > limit.get());
        Err(Status::new(if is_too_long { Code::Invalid } else { Code::Exhausted }, message))
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
            self.check_quota(tenant, &notes, &name, text.as_deref())?;
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
