//! Routes of single RPC methods: the authorizer of a call, the limits of its body, and its handler.

use std::future::Future;
use std::sync::Arc;

use athanor_chassis::{Status, TenantId};
use athanor_distributor::Distributor;
use athanor_http_server::decoded_size::BodyPolicy;
use athanor_http_server::encoding::RefusalCode;
use athanor_http_server::partial_header::PARTIAL_RESPONSE_HEADER;
use athanor_http_server::tenant_header;
use athanor_http_server::unary::{self, CallOutput, RequestIdentity};
use athanor_querier::QueryContext;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use axum::routing::{MethodRouter, any};
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::state::HttpState;
use crate::http::api::diagnostics;
use crate::http::query_caller::QueryCaller;
use crate::telemetry::metrics::RouteRequestGuard;

/// Caller that sends profiles.
#[derive(Clone)]
pub(in crate::http) struct ProfileSender {
    pub(in crate::http) tenant: TenantId,
    pub(in crate::http) distributor: Distributor,
}

/// Authorizer of a call and the limits of its body.
pub(in crate::http) struct CallAuthorizer<C> {
    /// Returns the caller, or the error that rejects the call.
    pub(in crate::http) identify: fn(&HttpState, &HeaderMap) -> Result<C, Status>,
    /// Returns the limits of the caller's body.
    pub(in crate::http) body_policy: fn(&HttpState, &C) -> BodyPolicy,
}

/// Caller of an RPC method, whose queries may be recorded.
pub(in crate::http) trait DiagnosedCaller: RequestIdentity {
    /// Applies `watch` to the context of a reader, to record diagnostics.
    #[must_use]
    fn with_diagnostics(self, _: impl FnOnce(QueryContext) -> QueryContext) -> Self {
        self
    }
}

impl DiagnosedCaller for () {}
impl DiagnosedCaller for TenantId {}
impl DiagnosedCaller for ProfileSender {}
impl DiagnosedCaller for QueryCaller {
    fn with_diagnostics(self, watch: impl FnOnce(QueryContext) -> QueryContext) -> Self {
        Self(watch(self.0))
    }
}

impl RequestIdentity for ProfileSender {
    fn check_length(&self, length: Option<u64>) -> Result<(), Status> {
        self.distributor.check_rate(&self.tenant, length)
    }

    fn on_unread_body(&self, status: &Status) {
        self.distributor.stats().record_request_refusal(&self.tenant, status);
    }
}

impl<C> CallAuthorizer<C> {
    /// Returns the authorizer of a method whose body is a query.
    pub(in crate::http) fn for_query(identify: fn(&HttpState, &HeaderMap) -> Result<C, Status>) -> Self {
        Self { identify, body_policy: |_, _| BodyPolicy::QUERY_BODY }
    }
}

pub(in crate::http) fn writer(hall: &HttpState, headers: &HeaderMap) -> Result<TenantId, Status> {
    tenant_header::parse_writer(headers, hall.door.multitenancy)
}

pub(in crate::http) fn sender(hall: &HttpState, headers: &HeaderMap) -> Result<ProfileSender, Status> {
    let tenant = writer(hall, headers)?;
    Ok(ProfileSender { tenant, distributor: hall.services.distributor()?.clone() })
}

/// Counts requests of a route and their responses.
pub(in crate::http) fn with_route_metrics(
    hall: &HttpState,
    path: &'static str,
    route: MethodRouter,
) -> MethodRouter {
    let counters = hall.services.route_metrics.counters_for(path);
    let clock = hall.door.clock.clone();
    route.layer(axum::middleware::from_fn(
        move |request: axum::extract::Request, next: axum::middleware::Next| {
            let underway = RouteRequestGuard::begin(&counters, &clock);
            async move {
                let response = next.run(request).await;
                let refused = response.extensions().get::<RefusalCode>();
                let code = refused.map_or(response.status().as_u16(), |refused| refused.0.http_status());
                underway.finish(code, response.headers().contains_key(PARTIAL_RESPONSE_HEADER));
                response
            }
        },
    ))
}

/// Adds one RPC method: its authorizer, its body limits and its handler.
pub(in crate::http) fn call<C, I, O, F, Fut>(
    router: Router,
    hall: &Arc<HttpState>,
    path: &'static str,
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
    router.route(path, with_route_metrics(hall, path, rpc_handler(hall, path, authorizer, method)))
}

/// Returns the handler of an RPC method.
pub(in crate::http) fn rpc_handler<C, I, O, F, Fut>(
    hall: &Arc<HttpState>,
    path: &'static str,
    authorizer: &CallAuthorizer<C>,
    method: F,
) -> MethodRouter
where
    C: DiagnosedCaller + Send + 'static,
    I: Message + Default + DeserializeOwned + 'static,
    O: Message + Serialize + 'static,
    F: Fn(Arc<HttpState>, C, I) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<O, Status>> + Send + 'static,
{
    let CallAuthorizer { identify, body_policy } = *authorizer;
    let inner = Arc::clone(hall);
    any(move |request: Request<Body>| async move {
        let hall = Arc::clone(&inner);
        let method = move |caller, message| {
            let response = method(hall, caller, message);
            async move { response.await.map(CallOutput::Message) }
        };
        let who = |headers: &HeaderMap| {
            let watch = |reader| diagnostics::record_if_requested(&inner, reader, headers, path);
            Ok(identify(&inner, headers)?.with_diagnostics(watch))
        };
        unary::handle_call(&inner.door, request, who, |caller| body_policy(&inner, caller), method).await
    })
}
