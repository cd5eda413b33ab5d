//! Page settings and recording rules that tenants store in the catalog: list and delete.

use athanor_catalog::{Catalog, CatalogCommand, CommandError, CommandResult, TenantDocuments};
use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_metastore::CatalogStateMachine;
use serde_json::{Value, json};

use super::AdminState;
use super::ranking::LargestRows;

/// Lists the tenants with stored settings, or the settings of one tenant, the largest first.
pub(super) async fn list(state: &AdminState, tenant: Option<&TenantId>) -> Result<Value, Status> {
    let mut ranking = LargestRows::default();
    match tenant {
        Some(tenant) => {
            for (name, note) in notes(state, tenant).await? {
                let bytes = (name.len() + note.text.len()) as u64;
                ranking.add(bytes, json!({ "tenant": tenant.as_str(), "name": name, "bytes": bytes }));
            }
        }
        None => {
            let absent = "this node is not a metastore voter and cannot list tenants; run the command on a metastore, or name a tenant";
            let facts = state.facts.as_ref().ok_or_else(|| Status::new(ErrorCode::Unimplemented, absent))?;
            for (tenant, count, bytes) in facts.with_state_machine(CatalogStateMachine::document_sizes) {
                let row = json!({ "tenant": tenant.as_str(), "settings": count, "bytes": bytes });
                ranking.add(bytes, row);
            }
        }
    }
    Ok(ranking.into_json("settings"))
}

/// Deletes one setting of a tenant, or all of them. Returns the number of deleted settings.
pub(super) async fn delete(
    state: &AdminState,
    tenant: &TenantId,
    name: Option<&str>,
) -> Result<Value, Status> {
    let mut deleted = 0;
    for (found, note) in notes(state, tenant).await? {
        if name.is_some_and(|name| name != found) {
            continue;
        }
        let command = CatalogCommand::PutTenantDocument {
            tenant: tenant.clone(),
            name: found,
            expected: Some(note.text),
            text: None,
        };
        match state.overview.client.propose(command).await.map_err(|error| Status::from_error(&error))? {
            CommandResult::Refused(refused @ CommandError::DocumentChanged { .. }) => {
                return Err(Status::new(ErrorCode::Conflict, refused.to_string()));
            }
            CommandResult::Refused(refused) => {
                return Err(Status::new(ErrorCode::Invalid, refused.to_string()));
            }
            CommandResult::Changed(_)
            | CommandResult::Shard(_)
            | CommandResult::Registered(_)
            | CommandResult::Staged(_)
            | CommandResult::Claimed(_)
            | CommandResult::FailureLimit(_)
            | CommandResult::NotCompared(_) => deleted += 1,
        }
    }
    Ok(json!({ "deleted": deleted }))
}

async fn notes(state: &AdminState, tenant: &TenantId) -> Result<TenantDocuments, Status> {
    state.overview.client.tenant_documents(tenant).await.map_err(|error| Status::from_error(&error))
}
