//! Texts that tenants keep: settings of pages, rules. What they say is for whoever reads them.

use std::collections::BTreeMap;

use athanor_chassis::{TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Bounded, Outcome, Refused, State};

/// Most notes of a tenant.
pub const MAX_NOTES: usize = 1_000;
/// Most bytes of a note, its name included.
pub const MAX_NOTE: usize = 64 << 10;
/// Most bytes of all notes of a tenant.
pub const MAX_TENANT_NOTES: usize = 1 << 20;
/// Most bytes of all notes: they are in every snapshot.
pub const MAX_ALL_NOTES: usize = 16 << 20;

/// What a tenant keeps under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// The text.
    pub text: String,
    /// When it was written, by the catalogue's time.
    pub at: Timestamp,
}

/// The notes of a tenant, by name.
pub type Notes = BTreeMap<String, Note>;

fn bytes(notes: &Notes) -> usize {
    notes.iter().map(|(name, note)| name.len() + note.text.len()).sum()
}

impl State {
    /// What a tenant keeps.
    pub fn notes(&self, tenant: &TenantId) -> Notes {
        self.notes.get(tenant).cloned().unwrap_or_default()
    }

    /// Returns what all tenants keep.
    pub fn all_notes(&self) -> impl Iterator<Item = (&TenantId, &Notes)> {
        self.notes.iter()
    }

    /// Writes a note, or forgets it where there is no text, if it says what is expected.
    pub(super) fn note(
        &mut self,
        tenant: TenantId,
        name: String,
        expected: Option<&str>,
        text: Option<String>,
    ) -> Result<Outcome, Refused> {
        let known = self.notes.get(&tenant).and_then(|notes| notes.get(&name));
        let known = known.map(|note| note.text.as_str());
        if known == text.as_deref() {
            return Ok(Outcome::counted(0));
        }
        if known != expected {
            return Err(Refused::NoteChanged { name });
        }
        let Some(text) = text else {
            let of_tenant = self.notes.entry(tenant.clone()).or_default();
            of_tenant.remove(&name);
            if of_tenant.is_empty() {
                self.notes.remove(&tenant);
            }
            return Ok(Outcome::counted(1));
        };
        self.check_note(&tenant, &name, &text)?;
        let note = Note { text, at: self.now };
        self.notes.entry(tenant).or_default().insert(name, note);
        Ok(Outcome::counted(1))
    }

    /// Whether there is room for a note.
    fn check_note(&self, tenant: &TenantId, name: &str, text: &str) -> Result<(), Refused> {
        let too_many = |what, limit| Err(Refused::TooMany { what, limit });
        let seen = name.len() + text.len();
        if seen > MAX_NOTE {
            return Err(Refused::LongNote { seen });
        }
        let of_tenant = self.notes.get(tenant);
        let known = of_tenant.and_then(|notes| notes.get(name));
        let count = of_tenant.map_or(0, BTreeMap::len) + usize::from(known.is_none());
        let before = known.map_or(0, |note| name.len() + note.text.len());
        let grown = |bytes: usize| bytes - before + seen;
        if count > MAX_NOTES {
            return too_many(Bounded::Notes, MAX_NOTES);
        }
        if grown(of_tenant.map_or(0, bytes)) > MAX_TENANT_NOTES {
            return too_many(Bounded::NoteBytes, MAX_TENANT_NOTES);
        }
        if grown(self.notes.values().map(bytes).sum()) > MAX_ALL_NOTES {
            return too_many(Bounded::AllNoteBytes, MAX_ALL_NOTES);
        }
        Ok(())
    }

    pub(super) fn check_notes(&self) -> Result<(), String> {
        for (tenant, notes) in &self.notes {
            if notes.is_empty() || notes.len() > MAX_NOTES || bytes(notes) > MAX_TENANT_NOTES {
                return Err(format!("tenant {tenant} has {} notes of {} bytes", notes.len(), bytes(notes)));
            }
        }
        let all: usize = self.notes.values().map(bytes).sum();
        if all > MAX_ALL_NOTES { Err(format!("there are {all} bytes of notes")) } else { Ok(()) }
    }
}
