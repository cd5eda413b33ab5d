//! Routes of the HTTP server.

use std::sync::Arc;

use athanor_chassis::requests::result_budget::ResultBudget;
use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_http_server::connection::fit_budget;
use athanor_http_server::decoded_size::BodyPolicy;
use athanor_http_server::encoding::{CallEncoding, announce_trailers, json_error};
use athanor_http_server::{RequestBudget, unary};
use athanor_proto::grpc::health::v1::HealthCheckRequest;
use athanor_proto::push::v1::{PushRequest, PushResponse};
use athanor_querier::QueryContext;
use axum::Router;
use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, Request, Response, StatusCode, Version};
use axum::routing::{any, get, post};
use tokio::sync::Semaphore;

use crate::http::api::web_policy::{WebPolicy, protect};
use crate::http::{
    admin::compaction, admin::grpc_health, admin::members, admin::operator_pages, admin::shards,
    api::debuginfo, api::diagnostics, api::legacy_api, api::otlp, api::parca, api::samples, api::tables,
    api::tenants, api::trace_response, api::ui, api::web_page, query_caller,
};
use query_caller::QueryCaller;
use rpc_method::{CallAuthorizer, call, sender, with_route_metrics, writer};
use state::{HandlerFuture, HttpState, text};

pub(in crate::http) mod rpc_method;
pub(in crate::http) mod state;

pub use state::HttpServices;

/// Paths about the process. Their responses take no memory from the response budget.
const UNCHARGED_PATHS: [&str; 10] = [
    "/ready",
    "/metrics",
    "/config",
    "/shards",
    "/shards.json",
    "/compaction",
    "/compaction.json",
    "/members",
    "/members.json",
    "/debug/pprof/profile",
];

/// Returns the router with all routes.
pub fn router(door: RequestBudget, services: HttpServices) -> Router {
    let web = services.web.clone();
    let hall = Arc::new(HttpState {
        door,
        services,
        watchers: Arc::new(Semaphore::new(grpc_health::MAX_HEALTH_WATCHERS)),
    });
    let router = Router::new();
    let router = calls(router, &hall);
    let router = plain_routes(router, &hall);
    let router =
        router.fallback_service(with_route_metrics(&hall, "none", any(|| async { legacy_api::not_found() })));
    behind_policy(router, web, &hall)
}

/// Returns the router of the separate OTLP ports, with the OpenTelemetry export routes only.
pub fn otlp_router(door: RequestBudget, services: HttpServices) -> Router {
    let web = services.web.clone();
    let hall = Arc::new(HttpState { door, services, watchers: Arc::new(Semaphore::new(0)) });
    let inner = Arc::clone(&hall);
    let export = any(move |request: Request<Body>| otlp::export(Arc::clone(&inner), request));
    let inner = Arc::clone(&hall);
    let profiles = post(move |request: Request<Body>| otlp::profiles(Arc::clone(&inner), request));
    let router = Router::new()
        .route(otlp::GRPC_EXPORT_PATH, with_route_metrics(&hall, otlp::GRPC_EXPORT_PATH, export))
        .route(otlp::HTTP_EXPORT_PATH, with_route_metrics(&hall, otlp::HTTP_EXPORT_PATH, profiles))
        .fallback_service(with_route_metrics(&hall, "none", any(|| async { legacy_api::not_found() })));
    behind_policy(router, web, &hall)
}

/// Adds the layers that apply to every request.
fn behind_policy(router: Router, web: WebPolicy, hall: &HttpState) -> Router {
    let responses = Arc::clone(&hall.services.responses);
    router.layer(axum::middleware::from_fn(
        move |mut request: axum::extract::Request, next: axum::middleware::Next| {
            let web = web.clone();
            let responses = Arc::clone(&responses);
            async move {
                let version = request.version();
                let trace = trace_response::trace_response(request.headers());
                let opens_page = web_page::opens_page(&request);
                let budget = is_charged(request.uri().path()).then_some(&responses);
                ui::skip_compression_on_loopback(&mut request);
                let response = match web.check(&request) {
                    Ok(()) => civil(request, next).await,
                    Err(status) => json_error(&status),
                };
                let mut response = sendable(response, version, budget);
                if opens_page {
                    response = web_page::show_error_as_page(response);
                }
                trace_response::set_trace_response(&mut response, trace);
                protect(&mut response);
                response
            }
        },
    ))
}

/// Returns whether the response of a path takes memory from the response budget. Monitoring must work even if queries
/// use the whole budget, and the files of the UI are part of the program.
fn is_charged(path: &str) -> bool {
    !UNCHARGED_PATHS.contains(&path) && !path.starts_with(ui::UI_PATH)
}

/// Prepares a response for sending: reserves memory from a budget and announces its trailers.
fn sendable(
    mut response: Response<Body>,
    version: Version,
    budget: Option<&Arc<ResultBudget>>,
) -> Response<Body> {
    announce_trailers(&mut response, version);
    let Some(budget) = budget else { return response };
    match fit_budget(&mut response, budget) {
        Ok(()) => response,
        Err(status) => {
            let encoding = CallEncoding::from_headers(response.headers());
            encoding.map_or_else(|| json_error(&status), |encoding| encoding.error(&status))
        }
    }
}

/// Rejects HTTP/1.1 requests without exactly one Host header. Adds a text body to error responses that have
/// none.
async fn civil(request: axum::extract::Request, next: axum::middleware::Next) -> Response<Body> {
    let hosts = request.headers().get_all(HOST).iter().count();
    if request.version() == Version::HTTP_11 && hosts != 1 {
        let message = format!("request has {hosts} Host headers, HTTP/1.1 requires exactly one");
        return json_error(&Status::new(ErrorCode::Invalid, message));
    }
    let method = request.method().clone();
    let response = next.run(request).await;
    let accepted = response.headers().get(unary::ACCEPT_POST_HEADER).and_then(|value| value.to_str().ok());
    let words = match response.status() {
        // An outer layer adds the allowed methods to the response later.
        StatusCode::METHOD_NOT_ALLOWED => Some(format!(
            "method {method} is not allowed on this path; the Allow header lists the allowed methods\n"
        )),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            accepted.map(|types| format!("unsupported content type; use one of {types}\n"))
        }
        _ => None,
    };
    match words {
        Some(words) => {
            let headers = response.headers().clone();
            let mut told = text("text/plain; charset=utf-8", words);
            *told.status_mut() = response.status();
            if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
                // Connect clients would take the content type of this error for that of a message.
                told.headers_mut().remove(CONTENT_TYPE);
            }
            told.headers_mut()
                .extend(headers.into_iter().filter(|(name, _)| name.as_ref() != Some(&CONTENT_LENGTH)));
            told
        }
        None => response,
    }
}

/// Adds RPC methods of a service that this node may lack. Parameters: the caller type and its authorizer.
macro_rules! methods {
    ($router:expr, $hall:expr, $caller:ty, $authorizer:expr, $service:ident, $($path:literal => $method:ident),* $(,)?) => {{
        let mut router = $router;
        $(router = call(router, $hall, $path, $authorizer, |hall: Arc<HttpState>, caller: $caller, request| async move {
            hall.services.$service()?.$method(&caller, request).await
        });)*
        router
    }};
}

fn calls(router: Router, hall: &Arc<HttpState>) -> Router {
    let router = call(
        router,
        hall,
        "/push.v1.PusherService/Push",
        &CallAuthorizer {
            identify: sender,
            body_policy: |_, sender| BodyPolicy::profiles(sender.distributor.body_limit(&sender.tenant)),
        },
        |_, sender, request: PushRequest| async move {
            sender.distributor.push(&sender.tenant, request).await.map(|_| PushResponse {})
        },
    );
    let router = methods!(router, hall, QueryCaller, &CallAuthorizer::for_query(reader), querier,
        "/querier.v1.QuerierService/ProfileTypes" => profile_types,
        "/querier.v1.QuerierService/LabelNames" => label_names,
        "/querier.v1.QuerierService/SelectMergeStacktraces" => select_merge_stacktraces,
        "/querier.v1.QuerierService/SelectMergeSpanProfile" => select_merge_span_profile,
        "/querier.v1.QuerierService/SelectMergeProfile" => select_merge_profile,
        "/querier.v1.QuerierService/SelectHeatmap" => select_heatmap,
        "/querier.v1.QuerierService/Diff" => diff,
        "/querier.v1.QuerierService/GetProfileStats" => get_profile_stats,
        "/querier.v1.QuerierService/AnalyzeQuery" => analyze_query,
        "/athanor.v1.ExploreService/Sandwich" => sandwich,
        "/athanor.v1.ExploreService/Graph" => packed_graph,
        "/athanor.v1.ExploreService/Subtree" => subtree,
    );
    let router = samples::route(tables::routes(router, hall), hall);
    let router = uploads(companions(router, hall), hall);
    let router = parca::routes(debuginfo::routes(router, hall), hall);
    let watch = {
        let hall = Arc::clone(hall);
        any(move |request: Request<Body>| grpc_health::watch(hall, request))
    };
    let path = "/grpc.health.v1.Health/Watch";
    let router = router.route(path, with_route_metrics(hall, path, watch));
    call(
        router,
        hall,
        "/grpc.health.v1.Health/Check",
        &CallAuthorizer::for_query(anyone),
        |hall, (), request: HealthCheckRequest| async move { grpc_health::check(&hall, &request.service) },
    )
}

/// Adds services for tenant settings. They require exactly one tenant, because they may write.
fn companions(router: Router, hall: &Arc<HttpState>) -> Router {
    methods!(router, hall, TenantId, &CallAuthorizer::for_query(writer), companion,
        "/settings.v1.SettingsService/Get" => get_settings,
        "/settings.v1.SettingsService/Set" => set_setting,
        "/settings.v1.SettingsService/Delete" => delete_setting,
        "/settings.v1.RecordingRulesService/GetRecordingRule" => get_rule,
        "/settings.v1.RecordingRulesService/ListRecordingRules" => list_rules,
        "/settings.v1.RecordingRulesService/UpsertRecordingRule" => upsert_rule,
        "/settings.v1.RecordingRulesService/DeleteRecordingRule" => delete_rule,
        "/capabilities.v1.FeatureFlagsService/GetFeatureFlags" => feature_flags,
        "/version.v1.Version/Version" => version,
        "/vcs.v1.VCSService/GithubApp" => source_code,
        "/vcs.v1.VCSService/GithubLogin" => source_code,
        "/vcs.v1.VCSService/GithubRefresh" => source_code,
        "/vcs.v1.VCSService/GetFile" => source_code,
        "/vcs.v1.VCSService/GetCommit" => source_code,
        "/vcs.v1.VCSService/GetCommits" => source_code,
    )
}

/// Adds services for manually uploaded profiles, which belong to one tenant.
fn uploads(router: Router, hall: &Arc<HttpState>) -> Router {
    let upload = |hall: &HttpState, _: &QueryCaller| match &hall.services.adhoc {
        Some(adhoc) => BodyPolicy::upload(adhoc.body_limit()),
        None => BodyPolicy::QUERY_BODY,
    };
    let authorizer = CallAuthorizer { identify: owner, body_policy: upload };
    let router = methods!(router, hall, QueryCaller, &authorizer, adhoc,
        "/adhocprofiles.v1.AdHocProfileService/Upload" => upload,
    );
    methods!(router, hall, QueryCaller, &CallAuthorizer::for_query(owner), adhoc,
        "/adhocprofiles.v1.AdHocProfileService/Get" => get_upload,
        "/adhocprofiles.v1.AdHocProfileService/List" => list_uploads,
        "/adhocprofiles.v1.AdHocProfileService/Diff" => diff_uploads,
    )
}

/// Returns the query context of a single tenant that may read its own data.
fn owner(hall: &HttpState, headers: &HeaderMap) -> Result<QueryCaller, Status> {
    writer(hall, headers).map(|tenant| QueryCaller(QueryContext::for_tenant(tenant)))
}

pub(in crate::http) fn reader(hall: &HttpState, headers: &HeaderMap) -> Result<QueryCaller, Status> {
    query_caller::parse_reader(headers, hall.door.multitenancy).map(QueryCaller)
}

/// Accepts any caller, for methods without authorization.
fn anyone(_: &HttpState, _: &HeaderMap) -> Result<(), Status> {
    Ok(())
}

fn plain_routes(router: Router, hall: &Arc<HttpState>) -> Router {
    type Handler = fn(Arc<HttpState>, Request<Body>) -> HandlerFuture;
    let with = |handler: Handler| {
        let hall = Arc::clone(hall);
        move |request: Request<Body>| -> HandlerFuture { handler(Arc::clone(&hall), request) }
    };
    let writes: [(&'static str, Handler); 3] = [
        ("/ingest", legacy_api::ingest),
        ("/pyroscope/ingest", legacy_api::ingest),
        (otlp::HTTP_EXPORT_PATH, otlp::profiles),
    ];
    let reads: [(&'static str, Handler); 17] = [
        ("/pyroscope/render", legacy_api::render),
        ("/pyroscope/render-diff", legacy_api::render_diff),
        ("/pyroscope/label-values", legacy_api::label_values),
        ("/athanor/export", legacy_api::export),
        (tenants::TENANTS_PATH, tenants::tenants),
        (diagnostics::DIAGNOSTICS_PATH, diagnostics::records),
        ("/query-diagnostics/{id}", diagnostics::record),
        ("/", ui::start),
        ("/ui", ui::without_slash),
        (ui::UI_PATH, ui::file),
        ("/ui/{*path}", ui::file),
        ("/explore", ui::pyroscope_page),
        ("/comparison", ui::pyroscope_page),
        ("/flamegraph.svg", legacy_api::flamegraph),
        ("/ready", operator_pages::ready),
        ("/metrics", operator_pages::metrics),
        ("/api/v1/status/buildinfo", operator_pages::build_info),
    ];
    let guarded: [(&'static str, Handler); 6] = [
        ("/config", operator_pages::config),
        ("/shards", shards::shards),
        ("/shards.json", shards::shards_json),
        ("/compaction", compaction::compaction),
        ("/compaction.json", compaction::compaction_json),
        ("/debug/pprof/profile", operator_pages::profile),
    ];
    let of_clusters: [(&'static str, Handler); 2] =
        [("/members", members::members), ("/members.json", members::members_json)];
    let of_clusters = of_clusters.into_iter().filter(|_| hall.services.overview.company.is_some());
    // Like an RPC method, this route rejects other HTTP methods itself.
    let router = router.route(
        otlp::GRPC_EXPORT_PATH,
        with_route_metrics(hall, otlp::GRPC_EXPORT_PATH, any(with(otlp::export))),
    );
    let writes = writes.map(|(path, handler)| (path, post(with(handler))));
    let reads = reads.map(|(path, handler)| (path, get(with(handler))));
    let behind_the_guard = |handler: Handler| {
        let hall = Arc::clone(hall);
        move |request: Request<Body>| -> HandlerFuture {
            let hall = Arc::clone(&hall);
            Box::pin(async move {
                let peer = request.extensions().get().copied();
                match hall.services.guard.admit(request.headers(), peer, &hall.door.compute).await {
                    Ok(()) => handler(hall, request).await,
                    Err(refused) => refused,
                }
            })
        }
    };
    let guarded = guarded.into_iter().chain(of_clusters);
    let guarded = guarded.map(|(path, handler)| (path, get(behind_the_guard(handler))));
    let all = writes.into_iter().chain(reads).chain(guarded);
    all.fold(router, |router, (path, answer)| router.route(path, with_route_metrics(hall, path, answer)))
}
