//! Settings of pages and recording rules that tenants keep in the catalogue: which there are, and their deletion.

use athanor_catalog::{Answer, Catalog, Command, Notes, Refused};
use athanor_chassis::{Code, Status, TenantId};
use athanor_metastore::Facts;
use serde_json::{Value, json};

use super::Desk;
use super::ranking::Ranking;

/// Lists the tenants that keep settings, or the settings of one tenant; the largest first.
pub(super) async fn list(desk: &Desk, tenant: Option<&TenantId>) -> Result<Value, Status> {
    let mut ranking = Ranking::default();
    match tenant {
        Some(tenant) => {
            for (name, note) in notes(desk, tenant).await? {
                let bytes = (name.len() + note.text.len()) as u64;
                ranking.add(bytes, json!({ "tenant": tenant.as_str(), "name": name, "bytes": bytes }));
            }
        }
        None => {
            let absent = "this node does not vote in the catalogue; ask a metastore, or name a tenant";
            let facts = desk.facts.as_ref().ok_or_else(|| Status::new(Code::Unimplemented, absent))?;
            for (tenant, count, bytes) in facts.with(Facts::note_sizes) {
                let row = json!({ "tenant": tenant.as_str(), "settings": count, "bytes": bytes });
                ranking.add(bytes, row);
            }
        }
    }
    Ok(ranking.into_json("settings"))
}

/// Deletes one setting of a tenant, or all of them, and says how many.
pub(super) async fn delete(desk: &Desk, tenant: &TenantId, name: Option<&str>) -> Result<Value, Status> {
    let mut deleted = 0;
    for (found, note) in notes(desk, tenant).await? {
        if name.is_some_and(|name| name != found) {
            continue;
        }
        let command =
            Command::Note { tenant: tenant.clone(), name: found, expected: Some(note.text), text: None };
        match desk.overview.client.propose(command).await.map_err(|error| Status::of(&error))? {
            Answer::Refused(refused @ Refused::NoteChanged { .. }) => {
                return Err(Status::new(Code::Conflict, refused.to_string()));
            }
            Answer::Refused(refused) => return Err(Status::new(Code::Invalid, refused.to_string())),
            Answer::Changed(_) | Answer::Shard(_) | Answer::Registered(_) | Answer::Staged(_) => deleted += 1,
        }
    }
    Ok(json!({ "deleted": deleted }))
}

async fn notes(desk: &Desk, tenant: &TenantId) -> Result<Notes, Status> {
    desk.overview.client.notes(tenant).await.map_err(|error| Status::of(&error))
}
