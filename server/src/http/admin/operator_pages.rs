//! Pages for operators of the server.

use std::sync::Arc;

use athanor_chassis::observability::metrics_page::MetricsFormat;
use athanor_chassis::{ErrorCode, Status};
use athanor_distributor::metrics::TenantNameDisplay;
use athanor_http_server::encoding::json_error;
use athanor_http_server::self_profile;
use axum::body::Body;
use axum::http::header::ACCEPT;
use axum::http::{Request, Response};

use crate::http::routes::state::{HandlerFuture, HttpState, text};
use crate::lifecycle::readiness::Readiness;

/// `GET /ready`: returns 200 if the node is ready, else the reason.
pub fn ready(hall: Arc<HttpState>, _: Request<Body>) -> HandlerFuture {
    Box::pin(async move { readiness(&hall.services.readiness) })
}

/// Like [`ready`], before the other services have started.
pub fn readiness(readiness: &Readiness) -> Response<Body> {
    match readiness.now() {
        Ok(()) => text("text/plain; charset=utf-8", "ready\n"),
        Err(status) => json_error(&status),
    }
}

/// `GET /metrics`, for Prometheus. If the port is reachable from other machines, only administrators see
/// tenant names.
pub fn metrics(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    let accepted = request.headers().get_all(ACCEPT).iter();
    let format = MetricsFormat::from_accept(accepted.filter_map(|value| value.to_str().ok()));
    let headers = request.headers().clone();
    let peer = request.extensions().get().copied();
    Box::pin(async move {
        let guard = &hall.services.guard;
        let names = match guard.check_tenant_access(&headers, peer, &hall.door.compute).await {
            Ok(true) => TenantNameDisplay::Shown,
            Ok(false) => TenantNameDisplay::Hidden,
            Err(refused) => return refused,
        };
        let metrics = Arc::clone(&hall.services.metrics);
        match hall.door.compute.run(move || metrics.encode(format, names)).await {
            Ok(Ok(page)) => text(format.content_type(), page),
            Ok(Err(error)) => json_error(&Status::new(ErrorCode::Internal, error.to_string())),
            Err(error) => json_error(&Status::from_error(&error)),
        }
    })
}

/// `GET /config`: the effective settings with their sources.
pub fn config(hall: Arc<HttpState>, _: Request<Body>) -> HandlerFuture {
    Box::pin(async move { text("text/plain; charset=utf-8", hall.services.settings.to_string()) })
}

/// `GET /api/v1/status/buildinfo`, from which data sources detect the kind of server.
pub fn build_info(_: Arc<HttpState>, _: Request<Body>) -> HandlerFuture {
    Box::pin(async move {
        let data = serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"), "revision": "", "branch": "", "buildUser": "", "buildDate": "",
            "goVersion": "",
        });
        text("application/json", serde_json::json!({ "status": "success", "data": data }).to_string())
    })
}

/// `GET /debug/pprof/profile?seconds=N`: a CPU profile of this process.
pub fn profile(hall: Arc<HttpState>, request: Request<Body>) -> HandlerFuture {
    Box::pin(async move {
        match self_profile::profile(request.uri().query().unwrap_or_default(), &hall.door).await {
            Ok(bytes) => text("application/octet-stream", bytes),
            Err(status) => json_error(&status),
        }
    })
}
