//! Operator commands for retention, the removal of blocks by age.

use std::sync::Arc;

use athanor_catalog::{BlockId, Catalog, CatalogCommand, CommandResult, ExpiredBlock, RetentionPolicy};
use athanor_chassis::{ErrorCode, Status};
use axum::Router;
use axum::extract::Path;
use axum::routing::{get, post};
use serde_json::{Value, json};

use super::AdminState;
use super::cluster::json_response;

/// Adds the routes of retention commands.
pub fn routes(router: Router, state: &Arc<AdminState>) -> Router {
    let [report, force, all, single, confirm] = [(); 5].map(|()| Arc::clone(state));
    router
        .route("/retention", get(move || async move { json_response(status(&report).await) }))
        .route("/retention/apply", post(move || async move { json_response(apply(&force).await) }))
        .route(
            "/retention/restore",
            post(move || async move { json_response(restore(&all, Vec::new()).await) }),
        )
        .route(
            "/retention/restore/{block}",
            post(move |Path(block): Path<String>| async move {
                json_response(match parsed(&block) {
                    Ok(block) => restore(&single, vec![block]).await,
                    Err(status) => Err(status),
                })
            }),
        )
        .route(
            "/retention/confirm-clock",
            post(move || async move { json_response(confirm_clock(&confirm).await) }),
        )
}

fn parsed(block: &str) -> Result<BlockId, Status> {
    block.parse().map_err(|_| {
        let message =
            format!("{block:?} is not a block id; `athanor retention status` lists the expired blocks");
        Status::new(ErrorCode::Invalid, message)
    })
}

/// Reports the catalog's time, the overdue blocks and the blocks that can be restored.
async fn status(state: &AdminState) -> Result<Value, Status> {
    let ages = state
        .overview
        .client
        .block_ages(&state.retention.policy())
        .await
        .map_err(|error| Status::from_error(&error))?;
    let entry = |ExpiredBlock { since, block }: &ExpiredBlock| json!({ "block": block, "expired_at": since.to_string() });
    Ok(json!({
        "catalog_time": ages.time.to_string(),
        "wall_time": state.overview.ways.clock.wall().to_string(),
        "blocks": ages.blocks,
        "overdue": ages.overdue,
        "kept_for_tiers": ages.kept_for_tiers,
        "restorable": ages.restorable,
        "expired_blocks": ages.expired.iter().map(entry).collect::<Vec<_>>(),
    }))
}

/// Expires all overdue blocks, regardless of the maximum share per hour.
async fn apply(state: &AdminState) -> Result<Value, Status> {
    let retention = state.retention.policy();
    let mut expired = 0;
    loop {
        match changed(state, CatalogCommand::ExpireBlocks { retention: retention.clone(), max_percent: None })
            .await?
        {
            0 => return Ok(json!({ "expired": expired })),
            count => expired += count,
        }
    }
}

async fn restore(state: &AdminState, blocks: Vec<BlockId>) -> Result<Value, Status> {
    Ok(json!({ "restored": changed(state, CatalogCommand::RestoreBlocks { blocks }).await? }))
}

/// Advances the catalog's time to this machine's clock.
async fn confirm_clock(state: &AdminState) -> Result<Value, Status> {
    let time = state.overview.client.confirm_clock()?;
    // Expires nothing; the command carries the time.
    let stamp = CatalogCommand::ExpireBlocks { retention: RetentionPolicy::default(), max_percent: Some(0) };
    changed(state, stamp).await?;
    Ok(json!({ "catalog_time": time.to_string() }))
}

/// Proposes a command and returns the number of its changes.
pub(super) async fn changed(state: &AdminState, command: CatalogCommand) -> Result<usize, Status> {
    match state.overview.client.propose(command).await.map_err(|error| Status::from_error(&error))? {
        CommandResult::Changed(count) => Ok(count),
        CommandResult::Refused(refused) => Err(Status::new(ErrorCode::Conflict, refused.to_string())),
        other => {
            Err(Status::new(ErrorCode::Internal, format!("unexpected result of the catalog: {other:?}")))
        }
    }
}
