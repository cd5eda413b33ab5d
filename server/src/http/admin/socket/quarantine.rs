//! Operator commands for the quarantine of queries that crashed this process.

use std::sync::Arc;

use athanor_chassis::{ErrorCode, Status};
use athanor_querier::{CrashCause, CrashedQuery, Querier};
use axum::Router;
use axum::routing::{get, post};
use serde_json::{Value, json};

use super::AdminState;
use super::cluster::json_response;

/// Adds the routes of quarantine commands.
pub fn routes(router: Router, state: &Arc<AdminState>) -> Router {
    let listed = Arc::clone(state);
    let cleared = Arc::clone(state);
    let list = get(move || async move { json_response(querier(&listed).map(list)) });
    let clear = post(move || async move { json_response(querier(&cleared).map(clear)) });
    router.route("/quarantine", list).route("/quarantine/clear", clear)
}

fn querier(state: &AdminState) -> Result<&Querier, Status> {
    let message = "this node is not a querier; run the command on a querier";
    state.querier.as_ref().ok_or_else(|| Status::new(ErrorCode::Unimplemented, message))
}

/// Lists the queries that crashed, with the rejected ones first.
fn list(querier: &Querier) -> Value {
    let row = |query: &CrashedQuery| {
        json!({
            "query": format!("{:032x}", query.fingerprint),
            "state": if query.is_rejected { "quarantined" } else { "suspect" },
            "cause": match query.cause {
                CrashCause::Panic => "panic",
                CrashCause::Abort => "abort",
            },
            "crashes": query.crashes,
            "expires_in_seconds": query.expires_in.as_secs(),
        })
    };
    json!({ "queries": querier.crashed_queries().iter().map(row).collect::<Vec<_>>() })
}

/// Clears the quarantine, so that the querier accepts these queries again.
fn clear(querier: &Querier) -> Value {
    json!({ "cleared": querier.clear_quarantine() })
}
