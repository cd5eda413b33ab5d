//! CPU profile of the agent itself, for its own scrapes and for `go tool pprof` on the same host.

use std::net::IpAddr;
use std::sync::Arc;

use athanor_chassis::{ErrorCode, Status};
use athanor_http_server::encoding::json_error;
use athanor_http_server::{PeerAddress, RequestBudget, self_profile};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use axum::routing::get;

/// Returns the route `/debug/pprof/profile`. Only clients of this host may use it, because a profile costs
/// processor time.
pub fn self_profile_router(budget: RequestBudget, own_address: IpAddr) -> Router {
    let budget = Arc::new(budget);
    let profile = move |request: Request<Body>| {
        let budget = Arc::clone(&budget);
        let peer = request.extensions().get::<PeerAddress>().map(|peer| peer.0.ip().to_canonical());
        let is_allowed = peer.is_some_and(|peer| peer.is_loopback() || peer == own_address);
        let query = request.uri().query().unwrap_or_default().to_owned();
        async move {
            let profile = match is_allowed {
                true => self_profile::profile(&query, &budget).await,
                false => Err(foreign_client()),
            };
            match profile {
                Ok(bytes) => Response::new(Body::from(bytes)),
                Err(status) => json_error(&status),
            }
        }
    };
    Router::new().route("/debug/pprof/profile", get(profile))
}

fn foreign_client() -> Status {
    let message = "profiles of the agent are for clients of its own host; request them over loopback";
    Status::new(ErrorCode::PermissionDenied, message)
}
