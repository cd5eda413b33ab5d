//! HTTP connection: the service that hyper calls for each request, and the executor that runs each HTTP/2
//! stream.
//!
//! ```text
//!  stream ─► WriteTimeout ─► PrefaceTimeout ─► UrlEscapingStream ─► hyper ─┬─► ConnectionService ─► router
//!                                                                         └─► StreamExecutor
//! ```
//!
//! `ConnectionService` holds a `RequestSlot` until the response is sent. `StreamExecutor` ends HTTP/2 streams
//! of clients that read nothing.

mod requests;
mod response;
mod send_progress;
mod stream;
mod write_timeout;

use std::convert::Infallible;
use std::future::{Future, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use crate::encoding::{CallEncoding, json_error};

pub use requests::RequestLimiter;
pub use response::{fit_budget, keep_budget};
pub use stream::StreamExecutor;
pub use write_timeout::WriteTimeout;

use requests::ConnectionRequests;
use response::SentBody;

/// Time in which a client must read some bytes. After that its HTTP/2 stream is reset, or the
/// connection is closed if there is no such stream.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(90);

/// Address of the client of a connection, as an extension of its requests.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress(pub SocketAddr);

/// Service of one connection. Admits each request and holds its slot until the response is sent.
#[derive(Clone)]
pub struct ConnectionService {
    router: TowerToHyperService<Router>,
    /// Address of the client, which is added to each request.
    peer: PeerAddress,
    requests: Arc<ConnectionRequests>,
}

impl ConnectionService {
    /// Creates the service of a new connection.
    pub fn new(router: Router, requests: &Arc<RequestLimiter>, peer: PeerAddress) -> Self {
        let requests = Arc::new(ConnectionRequests::new(Arc::clone(requests)));
        Self { router: TowerToHyperService::new(router), peer, requests }
    }
}

impl Service<Request<Incoming>> for ConnectionService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let slot = match self.requests.admit() {
            Ok(slot) => slot,
            Err(status) => {
                let refused = match CallEncoding::from_headers(request.headers()) {
                    Some(encoding) => encoding.error(&status),
                    None => json_error(&status),
                };
                return Box::pin(ready(Ok(SentBody::wrap(refused, None))));
            }
        };
        request.extensions_mut().insert(self.peer);
        let response = self.router.call(request);
        Box::pin(async move { Ok(SentBody::wrap(response.await?, Some(slot))) })
    }
}
