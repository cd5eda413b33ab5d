//! Operator commands for compaction: status, pause, resume, retry of failed parts.

use std::sync::Arc;

use athanor_catalog::{BlockId, CatalogCommand, PartId};
use athanor_chassis::{ErrorCode, Status};
use axum::Router;
use axum::extract::RawQuery;
use axum::routing::{get, post};
use serde_json::{Value, json};

use super::AdminState;
use super::cluster::json_response;
use super::retention::changed;
use super::tenants::RequestParameters;
use crate::http::admin::compaction::compaction_status;

/// Adds the routes of compaction commands.
pub fn routes(router: Router, state: &Arc<AdminState>) -> Router {
    let [status, paused, resumed, retried] = [(); 4].map(|()| Arc::clone(state));
    router
        .route(
            "/compaction",
            get(move || async move { json_response(compaction_status(&status.overview).await) }),
        )
        .route("/compaction/pause", post(move || async move { json_response(pause(&paused, true).await) }))
        .route("/compaction/resume", post(move || async move { json_response(pause(&resumed, false).await) }))
        .route(
            "/compaction/retry",
            post(move |RawQuery(query): RawQuery| async move {
                json_response(match parse_parts(query) {
                    Ok(parts) => retry(&retried, parts).await,
                    Err(status) => Err(status),
                })
            }),
        )
}

async fn pause(state: &AdminState, paused: bool) -> Result<Value, Status> {
    let count = changed(state, CatalogCommand::PauseCompaction { paused }).await?;
    Ok(json!({ "paused": paused, "changed": count > 0 }))
}

/// Releases failed parts, all of them if none is named.
async fn retry(state: &AdminState, parts: Vec<PartId>) -> Result<Value, Status> {
    Ok(json!({ "retried": changed(state, CatalogCommand::RetryParts { parts }).await? }))
}

/// Returns the part that the request names, if it names one.
fn parse_parts(query: Option<String>) -> Result<Vec<PartId>, Status> {
    let given = RequestParameters::read(query);
    let tenant = given.optional_tenant()?;
    let (block, tenant) = match (given.get("block"), tenant) {
        (None, None) => return Ok(Vec::new()),
        (Some(block), Some(tenant)) => (block, tenant),
        _ => return Err(Status::new(ErrorCode::Invalid, "set both block and tenant, or neither")),
    };
    let block: BlockId = block.parse().map_err(|_| {
        let message =
            format!("{block:?} is not a block id; `athanor compaction status` lists the failed parts");
        Status::new(ErrorCode::Invalid, message)
    })?;
    Ok(vec![PartId { block, tenant }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_names_one_part_or_all() {
        let parsed = |query: &str| parse_parts(Some(query.to_owned()));
        assert_eq!(parse_parts(None).unwrap(), []);
        let part = PartId { block: BlockId::from_number(0x1f), tenant: "team-a".parse().unwrap() };
        assert_eq!(parsed("block=1f&tenant=team-a").unwrap(), [part]);
        for query in ["block=1f", "tenant=a", "block=x&tenant=a", "block=1f&tenant="] {
            assert_eq!(parsed(query).unwrap_err().code, ErrorCode::Invalid, "{query}");
        }
    }
}
