//! RPCs of Parca, and the plain paths under which its gateway accepts the same messages as JSON.

use std::future::Future;
use std::sync::Arc;

use athanor_chassis::{ErrorCode, Status};
use athanor_http_server::decoded_size::BodyPolicy;
use athanor_http_server::encoding::{CallEncoding, UNARY_CONTENT_TYPES};
use athanor_http_server::unary;
use athanor_proto::parca::profilestore::v1alpha1::{WriteRawRequest, WriteRawResponse};
use axum::Router;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Request};
use axum::middleware::map_request;
use axum::routing::any;
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http::routes::rpc_method::{
    CallAuthorizer, DiagnosedCaller, ProfileSender, call, rpc_handler, sender, with_route_metrics,
};
use crate::http::routes::state::HttpState;

/// Error for agents that send Arrow columns. An agent then falls back to its other formats, if it has any.
const ARROW_REFUSAL: &str = "profiles of Parca in Arrow columns are not supported; let the agent send \
OpenTelemetry profiles instead, or use an agent that sends pprof with WriteRaw";

/// Adds the routes of the profile store.
pub(in crate::http) fn routes(router: Router, hall: &Arc<HttpState>) -> Router {
    let router = with_gateway(
        router,
        hall,
        ["/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw", "/profiles/writeraw"],
        &CallAuthorizer {
            identify: sender,
            body_policy: |_, sender| BodyPolicy::raw_profiles(sender.distributor.body_limit(&sender.tenant)),
        },
        |_, sender: ProfileSender, request: WriteRawRequest| async move {
            sender.distributor.write_raw(&sender.tenant, request).await.map(|_| WriteRawResponse {})
        },
    );
    let columns = [
        "/parca.profilestore.v1alpha1.ProfileStoreService/Write",
        "/parca.profilestore.v1alpha1.ProfileStoreService/WriteArrow",
    ];
    // The error is sent before the body is read: the client of the streaming method waits for a response
    // before it sends more.
    let refused = |request: Request<Body>| async {
        match unary::check_request(request, CallEncoding::from_headers, UNARY_CONTENT_TYPES) {
            Ok((encoding, ..)) => encoding.error(&Status::new(ErrorCode::Unimplemented, ARROW_REFUSAL)),
            Err(refused) => *refused,
        }
    };
    columns
        .into_iter()
        .fold(router, |router, path| router.route(path, with_route_metrics(hall, path, any(refused))))
}

/// Adds an RPC method and the plain path of the same method.
pub(in crate::http) fn with_gateway<C, I, O, F, Fut>(
    router: Router,
    hall: &Arc<HttpState>,
    [path, plain]: [&'static str; 2],
    authorizer: &CallAuthorizer<C>,
    method: F,
) -> Router
where
    C: DiagnosedCaller + Send + 'static,
    I: Message + Default + DeserializeOwned + 'static,
    O: Message + Serialize + 'static,
    F: Fn(Arc<HttpState>, C, I) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<O, Status>> + Send + 'static,
{
    let router = call(router, hall, path, authorizer, method.clone());
    let answer = rpc_handler(hall, plain, authorizer, method).layer(map_request(as_json));
    router.route(plain, with_route_metrics(hall, plain, answer))
}

/// Sets the content type to JSON: the gateway treats every body as JSON, whatever the client declares.
async fn as_json(mut request: Request<Body>) -> Request<Body> {
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request
}
