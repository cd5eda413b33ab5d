//! Services and state behind the routes, and the type of their handlers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use athanor_chassis::requests::result_budget::ResultBudget;
use athanor_chassis::{ErrorCode, Status};
use athanor_distributor::Distributor;
use athanor_http_server::RequestBudget;
use athanor_querier::{AdhocProfileService, Querier, TenantSettings};
use athanor_symbolizer::DebuginfoService;
use axum::body::Body;
use axum::http::Response;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::http::AdminAuth;
use crate::http::api::web_policy::WebPolicy;
use crate::lifecycle::readiness::Readiness;
use crate::membership::cluster_overview::ClusterOverview;
use crate::read::tenant_directory::TenantDirectory;
use crate::telemetry::metrics::{MetricsRegistry, RouteMetrics};

/// Services and state that the routes use.
#[derive(Clone)]
pub struct HttpServices {
    /// Distributor of profiles, if this node has the role.
    pub distributor: Option<Distributor>,
    /// Querier, if this node has the role.
    pub querier: Option<Querier>,
    /// Directory of the tenants that have profiles.
    pub tenants: TenantDirectory,
    /// Settings that UI pages store, on nodes that serve queries.
    pub companion: Option<TenantSettings>,
    /// Service for manually uploaded profiles, on nodes that serve queries.
    pub adhoc: Option<AdhocProfileService>,
    /// Debug information service, on nodes that accept profiles.
    pub debuginfo: Option<DebuginfoService>,
    /// Registry of the process metrics.
    pub metrics: Arc<MetricsRegistry>,
    /// Counters of the routes.
    pub route_metrics: Arc<RouteMetrics>,
    /// Readiness state, which load balancers poll.
    pub readiness: Arc<Readiness>,
    /// Token that ends endless streams on shutdown.
    pub stop: CancellationToken,
    /// Effective settings, with secrets masked.
    pub settings: Arc<str>,
    /// Access control of the operator pages.
    pub guard: AdminAuth,
    /// Policy for web pages of other origins.
    pub web: WebPolicy,
    /// Cluster state as this node sees it.
    pub overview: ClusterOverview,
    /// Memory budget of responses that are being sent.
    pub responses: Arc<ResultBudget>,
}

/// Request budget and the services behind it.
pub(crate) struct HttpState {
    pub(in crate::http) door: RequestBudget,
    pub(in crate::http) services: HttpServices,
    /// Permits of health watch streams.
    pub(in crate::http) watchers: Arc<Semaphore>,
}

/// Future of a handler's response.
pub type HandlerFuture = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

impl HttpServices {
    /// Returns the distributor, or an error on nodes without it.
    pub(in crate::http) fn distributor(&self) -> Result<&Distributor, Status> {
        let nobody = || {
            let message =
                "this node is not a distributor; send profiles to a node with target distributor or all";
            Status::new(ErrorCode::Unimplemented, message)
        };
        self.distributor.as_ref().ok_or_else(nobody)
    }

    /// Returns the debug information service, or an error on nodes without it.
    pub(in crate::http) fn debuginfo(&self) -> Result<&DebuginfoService, Status> {
        let nobody = || {
            let message = "this node is not a distributor; send debug information to a node with target distributor or all";
            Status::new(ErrorCode::Unimplemented, message)
        };
        self.debuginfo.as_ref().ok_or_else(nobody)
    }

    /// Returns the querier, or an error on nodes without it.
    pub(in crate::http) fn querier(&self) -> Result<&Querier, Status> {
        self.querier.as_ref().ok_or_else(no_queries)
    }

    /// Returns the tenant settings, or an error on nodes without them.
    pub(in crate::http) fn companion(&self) -> Result<&TenantSettings, Status> {
        self.companion.as_ref().ok_or_else(no_queries)
    }

    /// Returns the service for manually uploaded profiles, or an error on nodes without it.
    pub(in crate::http) fn adhoc(&self) -> Result<&AdhocProfileService, Status> {
        self.adhoc.as_ref().ok_or_else(no_queries)
    }
}

fn no_queries() -> Status {
    let message = "this node is not a querier; send queries to a node with target querier or all";
    Status::new(ErrorCode::Unimplemented, message)
}

/// Returns a response with a complete body.
pub(in crate::http) fn text(content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    let value = axum::http::HeaderValue::from_static(content_type);
    response.headers_mut().insert(axum::http::header::CONTENT_TYPE, value);
    response
}
