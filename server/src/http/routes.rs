//! What is where.

use std::future::Future;
use std::sync::Arc;

use athanor_chassis::{Code, Status};
use athanor_distributor::Distributor;
use athanor_proto::debuginfo::v1alpha1::{ShouldInitiateUploadRequest, ShouldInitiateUploadResponse};
use athanor_proto::grpc::health::v1::health_check_response::ServingStatus;
use athanor_proto::grpc::health::v1::{HealthCheckRequest, HealthCheckResponse};
use athanor_proto::push::v1::{PushRequest, PushResponse};
use athanor_querier::{Querier, Reader};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, Response};
use axum::routing::{any, get, post};
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::weight::Admits;
use super::{Door, caller, operations, pages, plain, unary};
use crate::metrics::Metrics;

/// What answers.
#[derive(Clone)]
pub struct Services {
    /// Takes profiles.
    pub distributor: Distributor,
    /// Answers queries.
    pub querier: Querier,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Whether requests are welcome: what a load balancer asks.
    pub ready: Arc<dyn Fn() -> Result<(), Status> + Send + Sync>,
    /// The settings in force, secrets masked.
    pub settings: Arc<str>,
}

/// A door and what lies behind it.
pub(super) struct Hall {
    pub(super) door: Door,
    pub(super) services: Services,
}

/// All routes.
pub fn router(door: Door, services: Services) -> Router {
    let hall = Arc::new(Hall { door, services });
    let router = Router::new();
    let router = calls(router, &hall);
    let router = plain_routes(router, &hall);
    let metrics = Arc::clone(&hall.services.metrics);
    let clock = hall.door.clock.clone();
    router.fallback(|| async { plain::not_found() }).layer(axum::middleware::from_fn(
        move |request: axum::extract::Request, next: axum::middleware::Next| {
            let (metrics, clock) = (Arc::clone(&metrics), clock.clone());
            async move {
                let route = request.extensions().get::<axum::extract::MatchedPath>().cloned();
                let begun = clock.monotonic();
                let response = next.run(request).await;
                let route = route.as_ref().map_or("none", axum::extract::MatchedPath::as_str);
                metrics.answered(route, response.status().as_u16(), clock.monotonic().saturating_sub(begun));
                response
            }
        },
    ))
}

fn calls(router: Router, hall: &Arc<Hall>) -> Router {
    let router = call(
        router,
        hall,
        "/push.v1.PusherService/Push",
        (caller::writer, |hall, tenant| Admits::profiles(hall.services.distributor.body_limit(tenant))),
        |hall, tenant, request: PushRequest| async move {
            hall.services.distributor.push(&tenant, request).await.map(|_| PushResponse {})
        },
    );
    macro_rules! queries {
        ($router:expr, $($name:literal => $method:ident),* $(,)?) => {{
            let mut router = $router;
            $(router = call(router, hall, concat!("/querier.v1.QuerierService/", $name), (caller::reader, |_, _| Admits::QUERY),
                |hall: Arc<Hall>, reader: Reader, request| async move { hall.services.querier.$method(&reader, request).await });)*
            router
        }};
    }
    let router = queries!(router,
        "ProfileTypes" => profile_types,
        "LabelNames" => label_names,
        "LabelValues" => label_values,
        "Series" => series,
        "SelectMergeStacktraces" => select_merge_stacktraces,
        "SelectMergeSpanProfile" => select_merge_span_profile,
        "SelectMergeProfile" => select_merge_profile,
        "SelectSeries" => select_series,
        "SelectHeatmap" => select_heatmap,
        "Diff" => diff,
        "GetProfileStats" => get_profile_stats,
        "AnalyzeQuery" => analyze_query,
    );
    let router = call(
        router,
        hall,
        "/debuginfo.v1alpha1.DebuginfoService/ShouldInitiateUpload",
        (caller::writer, |_, _| Admits::QUERY),
        |_, _, _: ShouldInitiateUploadRequest| async {
            let reason = "this server does not take debug information yet".to_owned();
            Ok(ShouldInitiateUploadResponse { should_initiate_upload: false, reason })
        },
    );
    call(
        router,
        hall,
        "/grpc.health.v1.Health/Check",
        (anyone, |_, _| Admits::QUERY),
        |hall, (), request: HealthCheckRequest| async move { health(&hall, &request.service) },
    )
}

const SERVICES: [&str; 5] = [
    "",
    "push.v1.PusherService",
    "querier.v1.QuerierService",
    "debuginfo.v1alpha1.DebuginfoService",
    "grpc.health.v1.Health",
];

fn health(hall: &Hall, service: &str) -> Result<HealthCheckResponse, Status> {
    if !SERVICES.contains(&service) {
        return Err(Status::new(Code::NotFound, format!("there is no service {service:?}")));
    }
    let ready = (hall.services.ready)().is_ok();
    let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
    Ok(HealthCheckResponse { status: status.into() })
}

/// Some may be asked by anybody.
fn anyone(_: &HeaderMap, _: bool) -> Result<(), Status> {
    Ok(())
}

/// Who calls, and what they may send.
type Entrance<C> = (fn(&HeaderMap, bool) -> Result<C, Status>, fn(&Hall, &C) -> Admits);

/// Adds one method of a service: who may call it, what they may send, and what it does.
fn call<C, I, O, F, Fut>(
    router: Router,
    hall: &Arc<Hall>,
    path: &str,
    (who, admits): Entrance<C>,
    method: F,
) -> Router
where
    C: unary::Caller + Send + 'static,
    I: Message + Default + DeserializeOwned + 'static,
    O: Message + Serialize + 'static,
    F: Fn(Arc<Hall>, C, I) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<O, Status>> + Send + 'static,
{
    let hall = Arc::clone(hall);
    router.route(
        path,
        any(move |request: Request<Body>| async move {
            let multitenancy = hall.door.multitenancy;
            let inner = Arc::clone(&hall);
            let method = move |caller, message| method(inner, caller, message);
            let who = |headers: &HeaderMap| who(headers, multitenancy);
            unary::answer(&hall.door, request, who, |caller| admits(&hall, caller), method).await
        }),
    )
}

fn plain_routes(router: Router, hall: &Arc<Hall>) -> Router {
    let with = |handler: fn(Arc<Hall>, Request<Body>) -> plain::Answering| {
        let hall = Arc::clone(hall);
        move |request: Request<Body>| -> plain::Answering { handler(Arc::clone(&hall), request) }
    };
    router
        .route("/ingest", post(with(plain::ingest)))
        .route("/pyroscope/ingest", post(with(plain::ingest)))
        .route("/pyroscope/render", get(with(plain::render)))
        .route("/pyroscope/render-diff", get(with(plain::render_diff)))
        .route("/", get(with(pages::index)))
        .route("/flamegraph.svg", get(with(pages::flamegraph)))
        .route("/ready", get(with(operations::ready)))
        .route("/metrics", get(with(operations::metrics)))
        .route("/config", get(with(operations::config)))
        .route("/api/v1/status/buildinfo", get(with(operations::build_info)))
        .route("/debug/pprof/profile", get(with(operations::profile)))
}

/// An answer that is ready.
pub(super) fn text(content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    let value = axum::http::HeaderValue::from_static(content_type);
    response.headers_mut().insert(axum::http::header::CONTENT_TYPE, value);
    response
}
