//! HTTP server for other nodes. It rejects every request without the cluster secret.

use std::convert::Infallible;

use athanor_chassis::{ErrorCode, Status};
use athanor_proto::athanor::internal::v1::raft_service_server::RaftServiceServer;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::any;
use tonic::server::NamedService;
use tower_service::Service;

use crate::raft_transport::{MAX_FRAME_BYTES, RaftTransportServer};
use crate::secret::ClusterSecrets;
use crate::status_codec;

/// Router of the services on the internal port.
#[derive(Default)]
pub struct InternalRouter {
    router: Router,
}

impl InternalRouter {
    /// Adds the raft transport service.
    #[must_use]
    pub fn with_raft(self, server: RaftTransportServer) -> Self {
        self.with_service(RaftServiceServer::new(server).max_decoding_message_size(MAX_FRAME_BYTES))
    }

    /// Adds one more gRPC service. The service sets its own message limits.
    #[must_use]
    pub fn with_service<S>(self, service: S) -> Self
    where
        S: Service<Request, Response = Response<tonic::body::Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        Self { router: self.router.route_service(&format!("/{}/{{method}}", S::NAME), service) }
    }

    /// Builds the router, which requires the secret for every request.
    pub fn into_router(self, secrets: ClusterSecrets) -> Router {
        let nothing = || async {
            error_response(&Status::new(
                ErrorCode::Unimplemented,
                "this node does not serve the requested service",
            ))
        };
        self.router.fallback(any(nothing)).layer(from_fn_with_state(secrets, require_secret))
    }
}

async fn require_secret(
    State(secrets): State<ClusterSecrets>,
    request: Request,
    next: Next,
) -> Response<Body> {
    match secrets.check_headers(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(status) => error_response(&status),
    }
}

/// Encodes a status as a gRPC response, which every gRPC client understands.
fn error_response(status: &Status) -> Response<Body> {
    status_codec::to_grpc(status).into_http()
}
