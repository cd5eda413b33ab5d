//! List of tenants, from which the web UI offers a choice.

use std::sync::Arc;

use athanor_chassis::{Status, TenantId};
use athanor_http_server::PeerAddress;
use athanor_http_server::encoding::json_error;
use athanor_http_server::tenant_header::TENANT_HEADER;
use axum::body::Body;
use axum::http::header::WWW_AUTHENTICATE;
use axum::http::{HeaderMap, Request, Response};
use serde_json::{Value, json};

use crate::http::api::ui::is_forwarded;
use crate::http::query_caller;
use crate::http::routes::state::{HandlerFuture, HttpState, text};

/// Path of the list.
pub const TENANTS_PATH: &str = "/athanor/tenants";
/// Maximum number of listed tenants.
const MAX_LISTED_TENANTS: usize = 1_000;

/// `GET /athanor/tenants`: lists the tenants that the request may read. These are the ones in its tenant header. Without
/// the header, administrators get all tenants. Without multitenancy there is one.
pub fn tenants(state: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    let parts = request.into_parts().0;
    Box::pin(async move {
        let peer = parts.extensions.get().copied();
        match may_list_all(&state, &parts.headers, peer).await {
            Ok(lists_all) => match list(&state, &parts.headers, lists_all).await {
                Ok(tenants) => text("application/json", tenants.to_string()),
                Err(status) => json_error(&status),
            },
            Err(refused) => refused,
        }
    })
}

/// Returns whether the list contains tenants that the request does not name.
async fn may_list_all(
    state: &HttpState,
    headers: &HeaderMap,
    peer: Option<PeerAddress>,
) -> Result<bool, Response<Body>> {
    // A proxy sets the tenant of its user, and may forward a token that is not that of this server.
    if !state.door.multitenancy || headers.contains_key(TENANT_HEADER) {
        return Ok(false);
    }
    let auth = &state.services.guard;
    let allowed =
        auth.check_tenant_list_access(headers, peer, is_forwarded(headers), &state.door.compute).await;
    allowed.map_err(|mut refused| {
        // The web UI asks for the token itself. A challenge would open a prompt of the browser.
        refused.headers_mut().remove(WWW_AUTHENTICATE);
        refused
    })
}

async fn list(state: &HttpState, headers: &HeaderMap, lists_all: bool) -> Result<Value, Status> {
    state.services.querier()?;
    Ok(match lists_all {
        true => listing(state.services.tenants.tenants().await?.iter()),
        false => listing(query_caller::parse_reader(headers, state.door.multitenancy)?.tenants().iter()),
    })
}

/// Returns the document of a list of tenants, ascending.
fn listing<'a>(mut tenants: impl Iterator<Item = &'a TenantId>) -> Value {
    let listed: Vec<&str> = tenants.by_ref().take(MAX_LISTED_TENANTS).map(TenantId::as_str).collect();
    json!({ "tenants": listed, "truncated": tenants.next().is_some() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_list_is_truncated() {
        let all: Vec<TenantId> =
            (0..=MAX_LISTED_TENANTS).map(|number| format!("t{number:04}").parse().unwrap()).collect();
        assert_eq!(listing(all[..2].iter()), json!({ "tenants": ["t0000", "t0001"], "truncated": false }));
        for (count, truncated) in [(MAX_LISTED_TENANTS, false), (MAX_LISTED_TENANTS + 1, true)] {
            let document = listing(all[..count].iter());
            assert_eq!(document["tenants"].as_array().unwrap().len(), MAX_LISTED_TENANTS);
            assert_eq!(document["truncated"], truncated, "{count}");
        }
    }
}
