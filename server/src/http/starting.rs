//! What is answered before the rest is there: whether it is there. All other requests wait for it.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{Clock, Code, Status};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use axum::routing::get;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;

use super::encoding::json_error;
use super::operations;
use crate::readiness::Readiness;

/// How long a request waits for the start.
const PATIENCE: Duration = Duration::from_secs(30);

/// The routes of a server that starts; `begun` brings those of one that has.
pub fn starting(readiness: Arc<Readiness>, clock: Clock, begun: watch::Receiver<Option<Router>>) -> Router {
    let ready = get(async move || operations::readiness(&readiness));
    let rest = async move |request: Request<Body>| late(begun, clock, request).await;
    Router::new().route("/ready", ready).fallback(rest)
}

async fn late(
    mut begun: watch::Receiver<Option<Router>>,
    clock: Clock,
    request: Request<Body>,
) -> Response<Body> {
    let router = match clock.within(PATIENCE, begun.wait_for(Option::is_some)).await {
        Ok(Ok(router)) => router.clone(),
        Ok(Err(_)) | Err(_) => None,
    };
    let Some(router) = router else {
        return json_error(&Status::new(Code::Unavailable, "this server is still starting; ask again"));
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
    async fn whoever_comes_early_waits_but_for_who_asks_whether_it_is_ready() {
        let (clock, hand) = Clock::manual(Timestamp::EPOCH);
        let (begin, begun) = watch::channel(None);
        let readiness = Arc::new(Readiness::default());
        let first = TowerToHyperService::new(starting(Arc::clone(&readiness), clock, begun));
        let ask = async |path: &str| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            first.call(request).await.unwrap().status()
        };
        assert_eq!(ask("/ready").await, StatusCode::SERVICE_UNAVAILABLE);
        let (mut patient, mut late) = (Box::pin(ask("/there")), Box::pin(ask("/there")));
        assert!(poll_immediate(&mut patient).await.is_none());
        hand.advance(PATIENCE);
        assert_eq!(patient.await, StatusCode::SERVICE_UNAVAILABLE);
        assert!(poll_immediate(&mut late).await.is_none());
        readiness.serve(Box::new(|| Ok(())));
        begin.send_replace(Some(Router::new().route("/there", get(async || "here"))));
        assert_eq!((late.await, ask("/ready").await), (StatusCode::OK, StatusCode::OK));
    }
}
