//! Internal service that other nodes may call before it starts: they receive "unavailable" and retry.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use athanor_chassis::{ErrorCode, Status};
use athanor_cluster::status_codec;
use axum::extract::Request;
use axum::http::Response;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

/// Service slot that is empty until its role has started.
pub struct DeferredService<S>(Arc<OnceLock<S>>);

impl<S> DeferredService<S> {
    /// Starts serving calls with this service.
    pub fn activate(&self, service: S) {
        // A node starts each service once, so the slot is empty.
        let _ = self.0.set(service);
    }
}

impl<S> Default for DeferredService<S> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<S> Clone for DeferredService<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: NamedService> NamedService for DeferredService<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request> for DeferredService<S>
where
    S: Service<Request, Response = Response<Body>, Error = Infallible> + Clone,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match self.0.get() {
            Some(service) => Box::pin(service.clone().call(request)),
            None => {
                let why = "service is not running on this node, or is still starting; retry";
                let refused = status_codec::to_grpc(&Status::new(ErrorCode::Unavailable, why));
                Box::pin(ready(Ok(refused.into_http())))
            }
        }
    }
}
