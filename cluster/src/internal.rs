//! The port for other nodes. Nothing is answered on it to who does not show the secret.

use std::convert::Infallible;

use athanor_chassis::{Code, Status};
use athanor_proto::athanor::internal::v1::raft_server::RaftServer;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::any;
use tonic::server::NamedService;
use tower_service::Service;

use crate::failure;
use crate::secret::Secrets;
use crate::talk::{Answering, FRAME};

/// What the port offers.
#[derive(Default)]
pub struct Services {
    router: Router,
}

impl Services {
    /// Messages of groups.
    #[must_use]
    pub fn raft(self, answering: Answering) -> Self {
        self.with(RaftServer::new(answering).max_decoding_message_size(FRAME))
    }

    /// One more service. The limits of its messages are its own.
    #[must_use]
    pub fn with<S>(self, service: S) -> Self
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

    /// All of it, for who shows the secret.
    pub fn guarded(self, secrets: Secrets) -> Router {
        let nothing =
            || async { refused(&Status::new(Code::Unimplemented, "this node offers no such service")) };
        self.router.fallback(any(nothing)).layer(from_fn_with_state(secrets, admitted))
    }
}

async fn admitted(State(secrets): State<Secrets>, request: Request, next: Next) -> Response<Body> {
    match secrets.admits(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(status) => refused(&status),
    }
}

/// As every client of gRPC understands it.
fn refused(status: &Status) -> Response<Body> {
    failure::to_grpc(status).into_http()
}
