//! Pages for operators of the server.

use std::sync::Arc;

use athanor_chassis::Status;
use axum::body::Body;
use axum::http::header::ACCEPT;
use axum::http::{Request, Response};

use crate::http::encoding::json_error;
use crate::http::routes::state::{HandlerFuture, HttpState, text};
use crate::lifecycle::readiness::Readiness;
use crate::telemetry::metrics::MetricsView;

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
    let open_metrics = accepted
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("application/openmetrics-text"));
    let headers = request.headers().clone();
    let peer = request.extensions().get().copied();
    Box::pin(async move {
        let guard = &hall.services.guard;
        let names_tenants = match guard.check_tenant_access(&headers, peer, &hall.door.compute).await {
            Ok(names_tenants) => names_tenants,
            Err(refused) => return refused,
        };
        let view = MetricsView { open_metrics, names_tenants, failed_tokens: guard.failed_tokens() };
        let scrape = Arc::clone(&hall.services.scrape);
        let written = hall.door.compute.run(move || scrape.text(&view)).await;
        let kind = if open_metrics {
            "application/openmetrics-text; version=1.0.0; charset=utf-8"
        } else {
            "text/plain; version=0.0.4; charset=utf-8"
        };
        match written {
            Ok(page) => text(kind, page),
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
        match crate::telemetry::self_profile::profile(request.uri().query().unwrap_or_default(), &hall.door)
            .await
        {
            Ok(bytes) => text("application/octet-stream", bytes),
            Err(status) => json_error(&status),
        }
    })
}
