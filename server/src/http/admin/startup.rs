//! Router of a node that is still starting: it serves readiness, and all other requests wait for the start.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{Clock, ErrorCode, Status};
use athanor_http_server::encoding::json_error;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use axum::routing::get;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;

use crate::http::admin::operator_pages;
use crate::http::api::web_page::{opens_page, show_error_as_page};
use crate::http::api::web_policy::protect;
use crate::lifecycle::readiness::Readiness;

/// Maximum time that a request waits for the start.
const STARTUP_WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the router of a starting node. `begun` delivers the main router after the start.
pub fn startup_router(
    readiness: Arc<Readiness>,
    clock: Clock,
    begun: watch::Receiver<Option<Router>>,
) -> Router {
    let ready = get(async move || operator_pages::readiness(&readiness));
    let rest = async move |request: Request<Body>| wait_for_start(begun, clock, request).await;
    Router::new().route("/ready", ready).fallback(rest)
}

async fn wait_for_start(
    mut begun: watch::Receiver<Option<Router>>,
    clock: Clock,
    request: Request<Body>,
) -> Response<Body> {
    let router = match clock.timeout(STARTUP_WAIT_TIMEOUT, begun.wait_for(Option::is_some)).await {
        Ok(Ok(router)) => router.clone(),
        Ok(Err(_)) | Err(_) => None,
    };
    let Some(router) = router else {
        let error = json_error(&Status::new(ErrorCode::Unavailable, "this server is still starting; retry"));
        let mut response = if opens_page(&request) { show_error_as_page(error) } else { error };
        protect(&mut response);
        return response;
    };
    match TowerToHyperService::new(router).call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Timestamp;
    use axum::http::StatusCode;
    use futures::future::poll_immediate;

    use super::*;

    #[tokio::test]
    async fn early_request_waits_except_readiness() {
        let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        let (begin, begun) = watch::channel(None);
        let readiness = Arc::new(Readiness::default());
        let first = TowerToHyperService::new(startup_router(Arc::clone(&readiness), clock, begun));
        let ask = async |path: &str| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            first.call(request).await.unwrap().status()
        };
        assert_eq!(ask("/ready").await, StatusCode::SERVICE_UNAVAILABLE);
        let (mut patient, mut late) = (Box::pin(ask("/there")), Box::pin(ask("/there")));
        assert!(poll_immediate(&mut patient).await.is_none());
        hand.advance(STARTUP_WAIT_TIMEOUT);
        assert_eq!(patient.await, StatusCode::SERVICE_UNAVAILABLE);
        assert!(poll_immediate(&mut late).await.is_none());
        readiness.serve(Box::new(|| Ok(())));
        begin.send_replace(Some(Router::new().route("/there", get(async || "here"))));
        assert_eq!((late.await, ask("/ready").await), (StatusCode::OK, StatusCode::OK));
    }
}
