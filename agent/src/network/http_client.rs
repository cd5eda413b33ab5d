//! HTTP client of scrapes and of discovery.
//!
//! ```text
//!  HttpRequest ─► secrets of files ─► idle connection, or a new one ─► head ─► body within ResponseLimits
//! ```
//!
//! The caller resolves the host. The client connects to the addresses of the request and to no other, and it
//! follows no redirect. It speaks HTTP/1.1 and reads from a connection only during a request, so an idle
//! connection costs no task and no wake-up.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{Clock, Net};
use bytes::{Bytes, BytesMut};
use http::header::{HOST, HeaderValue, USER_AGENT};
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::Empty;
use parking_lot::Mutex;
use tokio_rustls::TlsConnector;

use crate::scrape_target::HttpClientSettings;

mod body_reader;
mod client_secrets;
mod connection;
mod connection_pool;
mod credentials;
mod http_error;
mod secret_files;
mod tls_config;

pub use body_reader::{BodySink, ResponseLimits};
pub use client_secrets::{ClientSecrets, TlsSecrets};
pub use http_error::HttpClientError;

use body_reader::read_body;
use connection::{Connection, Remote, open_connection};
use connection_pool::{ConnectionPool, PoolKey};
use tls_config::TlsConfigCache;

/// Timeout of opening a connection to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const AGENT_NAME: &str = concat!("athanor-agent/", env!("CARGO_PKG_VERSION"));

/// HTTP client with the settings of one job or discoverer. Cheap to clone: clones share connections.
#[derive(Clone)]
pub struct HttpClient {
    shared: Arc<HttpClientInner>,
}

struct HttpClientInner {
    net: Arc<dyn Net>,
    clock: Clock,
    secrets: ClientSecrets,
    tls: TlsConfigCache,
    idle: Mutex<ConnectionPool>,
}

/// GET request.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    /// Absolute URI. Its scheme is `http` or `https`. Its authority is sent as `Host`.
    pub uri: Uri,
    /// Addresses that the client may connect to.
    pub destination: Destination,
    /// Headers, besides those of the settings.
    pub headers: HeaderMap,
    /// Limits of the response.
    pub limits: ResponseLimits,
}

/// Addresses that a request may connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Checked addresses of the host, in the order in which they are tried.
    Addresses(Vec<SocketAddr>),
    /// Path of a Unix socket.
    UnixSocket(PathBuf),
}

/// Status and headers of a response.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    /// Status. Redirects are returned and not followed.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
}

/// Response with its whole body.
#[derive(Clone, Debug)]
pub struct HttpResponse {
    /// Status. Redirects are returned and not followed.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body as sent, with its content encoding.
    pub body: Bytes,
}

// === impl HttpClient ===

impl HttpClient {
    /// Creates a client. Opens no connection and reads no file.
    pub fn new(settings: HttpClientSettings, net: Arc<dyn Net>, clock: Clock) -> Self {
        let idle = Mutex::new(ConnectionPool::default());
        let secrets = ClientSecrets::new(settings);
        let tls = TlsConfigCache::default();
        Self { shared: Arc::new(HttpClientInner { net, clock, secrets, tls, idle }) }
    }

    /// Sends a request and reads the response, within the limits of the request. A connection that the server
    /// closed while it was idle is replaced once.
    ///
    /// # Errors
    ///
    /// A secret file is not readable, the connection failed, or the response exceeded a limit. A response of any
    /// status is not an error.
    pub async fn get(&self, request: HttpRequest) -> Result<HttpResponse, HttpClientError> {
        let mut body = BytesMut::new();
        let ResponseHead { status, headers } = self.get_into(request, &mut body).await?;
        Ok(HttpResponse { status, headers, body: body.freeze() })
    }

    /// Sends a request like [`get`](Self::get) and passes the body, with its content encoding, to a sink.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Self::get), and the rejection of the sink.
    pub async fn get_into(
        &self,
        request: HttpRequest,
        sink: &mut dyn BodySink,
    ) -> Result<ResponseHead, HttpClientError> {
        let timeout = request.limits.total_timeout;
        let exchange = self.exchange(request, sink);
        self.shared.clock.timeout(timeout, exchange).await.map_err(HttpClientError::Timeout)?
    }

    async fn exchange(
        &self,
        request: HttpRequest,
        sink: &mut dyn BodySink,
    ) -> Result<ResponseHead, HttpClientError> {
        let key = PoolKey::new(&request.uri)?;
        let head = self.request_head(&request).await?;
        let tls = self.tls_connector(&key).await?;
        let idle = self.shared.idle.lock().take(&key, &request.destination, self.shared.clock.monotonic());
        if let Some(mut connection) = idle
            && let Ok(response) = connection.send(head.clone()).await
        {
            return self.finish(key, connection, response, sink, &request.limits).await;
        }
        let mut connection = self.connect(&key, &request.destination, tls).await?;
        let response = connection.send(head).await?;
        self.finish(key, connection, response, sink, &request.limits).await
    }

    /// Reads the body and keeps the connection for the next request.
    async fn finish(
        &self,
        key: PoolKey,
        mut connection: Connection,
        response: http::Response<hyper::body::Incoming>,
        sink: &mut dyn BodySink,
        limits: &ResponseLimits,
    ) -> Result<ResponseHead, HttpClientError> {
        let (head, body) = response.into_parts();
        read_body(&mut connection, body, sink, limits, &self.shared.clock).await?;
        if connection.is_reusable().await {
            let now = self.shared.clock.monotonic();
            self.shared.idle.lock().put(key, connection, now);
        }
        Ok(ResponseHead { status: head.status, headers: head.headers })
    }

    async fn connect(
        &self,
        key: &PoolKey,
        destination: &Destination,
        tls: Option<TlsConnector>,
    ) -> Result<Connection, HttpClientError> {
        let server_name = self.shared.secrets.settings().server_name.as_deref().unwrap_or(key.host());
        let mut last_error = HttpClientError::NoAddress { authority: key.authority().to_owned() };
        for remote in Remote::all_of(destination) {
            let stream = match remote.open(&*self.shared.net, &self.shared.clock, CONNECT_TIMEOUT).await {
                Ok(stream) => stream,
                Err(source) => {
                    last_error = HttpClientError::Connect { remote: remote.to_string(), source };
                    continue;
                }
            };
            return open_connection(remote, stream, tls.as_ref(), server_name).await;
        }
        Err(last_error)
    }

    /// Returns the TLS settings, None for plain HTTP. If a file changed, idle connections are closed.
    async fn tls_connector(&self, key: &PoolKey) -> Result<Option<TlsConnector>, HttpClientError> {
        if !key.is_tls() {
            return Ok(None);
        }
        let config = self.shared.tls.load(&self.shared.secrets).await?;
        if config.is_new {
            self.shared.idle.lock().clear();
        }
        Ok(Some(TlsConnector::from(config.config)))
    }

    async fn request_head(&self, request: &HttpRequest) -> Result<Request<Empty<Bytes>>, HttpClientError> {
        let target = request.uri.path_and_query().map_or("/", |target| target.as_str());
        let mut head = Request::get(target).body(Empty::new()).map_err(HttpClientError::invalid_request)?;
        let authority = request.uri.authority().map_or("", |authority| authority.as_str());
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let headers = head.headers_mut();
        headers.insert(HOST, HeaderValue::from_str(host).map_err(HttpClientError::invalid_request)?);
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT_NAME));
        for (name, value) in &request.headers {
            headers.insert(name.clone(), value.clone());
        }
        headers.extend(self.shared.secrets.headers(authority).await?);
        Ok(head)
    }
}

// === impl HttpResponse ===

impl HttpResponse {
    /// Returns the body without its content encoding. Decompresses on the calling thread.
    ///
    /// # Errors
    ///
    /// The encoding is unknown, the body is damaged, or the plain body exceeds `max_plain_bytes`.
    pub fn decode_body(&self, max_plain_bytes: u64) -> Result<Bytes, HttpClientError> {
        body_reader::decode_body(&self.headers, self.body.clone(), max_plain_bytes)
    }
}

#[cfg(test)]
pub(crate) mod stand_in;
#[cfg(test)]
mod tests;
