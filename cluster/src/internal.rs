//! The port for other nodes. Nothing is answered on it to who does not show the secret.

use athanor_chassis::Status;
use athanor_proto::athanor::internal::v1::raft_server::RaftServer;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::any;

use crate::failure;
use crate::secret::Secrets;
use crate::talk::Answering;

/// All routes of the port.
pub fn routes(secrets: Secrets, raft: Answering) -> Router {
    let raft = RaftServer::new(raft).max_decoding_message_size(crate::talk::FRAME);
    Router::new()
        .route_service("/athanor.internal.v1.Raft/{method}", raft)
        .fallback(any(|| async { refused(&nothing()) }))
        .layer(from_fn_with_state(secrets, admitted))
}

async fn admitted(State(secrets): State<Secrets>, request: Request, next: Next) -> Response<Body> {
    match secrets.admits(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(status) => refused(&status),
    }
}

fn nothing() -> Status {
    Status::new(athanor_chassis::Code::Unimplemented, "this node does not offer that to other nodes")
}

/// As every client of gRPC understands it.
fn refused(status: &Status) -> Response<Body> {
    failure::to_grpc(status).into_http()
}
