//! HTTP listener: accepts connections, serves each as HTTP/1.1 or HTTP/2, and shuts down gracefully.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use athanor_chassis::code::{ErrorCode, ErrorCodeExt};
use athanor_chassis::net::{NetListener, NetStream};
use athanor_chassis::{Clock, Net, TaskGroup};
use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::AsyncWriteExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::connection::PeerAddress;
use crate::connection::{ConnectionService, RequestLimiter, StreamExecutor, WriteTimeout};
use crate::listen::log_throttle::LogThrottle;
use crate::listen::preface_timeout::PrefaceTimeout;
use crate::listen::url_escaping::UrlEscapingStream;

/// Time limit for a client to identify its protocol, and in HTTP/1 to send the head of each request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of HTTP/2 keepalive pings.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Time limit for the response to a ping.
const PONG_TIMEOUT: Duration = Duration::from_secs(20);
/// Delay after the system failed to accept a connection, for example because of the file descriptor limit.
const ACCEPT_RETRY_BACKOFF: Duration = Duration::from_millis(50);
/// Maximum number of rejected clients that concurrently receive an error response. Others are closed at once,
/// so that they occupy no file descriptors.
const MAX_CONCURRENT_REJECTIONS: usize = 8;
/// Time limit of sending the error response to a rejected client.
const REJECTION_TIMEOUT: Duration = Duration::from_secs(1);

/// Response to clients beyond the connection limit.
const TOO_MANY_CONNECTIONS_RESPONSE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
content-type: text/plain; charset=utf-8\r\n\r\n\
the limit of open connections is reached (max_connections); retry later\n";

/// Bound port that accepts no connections yet.
pub struct HttpListener {
    socket: Box<dyn NetListener>,
}

/// Dependencies of connections on their process.
pub struct ConnectionDeps {
    /// Task group in which each connection is a task.
    pub tasks: TaskGroup,
    /// Clock for timeouts.
    pub clock: Clock,
    /// Token that aborts open connections.
    pub enough: CancellationToken,
    /// Permits of connections.
    pub room: Arc<Semaphore>,
    /// Limiter of open requests of all connections.
    pub requests: Arc<RequestLimiter>,
}

/// Error of a port that cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {wanted}: {source}; choose another address with --listen")]
pub struct ListenerError {
    wanted: String,
    source: io::Error,
}

impl ErrorCodeExt for ListenerError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Unavailable
    }
}

/// Accepts the next connection. Retries with a delay as long as the system fails.
pub async fn accept_with_retry<C>(
    clock: &Clock,
    refused: &mut LogThrottle,
    mut accept: impl FnMut(&mut Context<'_>) -> Poll<io::Result<C>>,
) -> C {
    loop {
        match poll_fn(&mut accept).await {
            Ok(connection) => return connection,
            Err(error) => {
                if let Some(times) = refused.should_log(clock.monotonic()) {
                    tracing::warn!(%error, times, "failed to accept a connection, will retry");
                }
                clock.sleep(ACCEPT_RETRY_BACKOFF).await;
            }
        }
    }
}

impl HttpListener {
    /// Wraps a socket that is bound already.
    pub fn from_socket(socket: Box<dyn NetListener>) -> Self {
        Self { socket }
    }

    /// Binds the first available address of a name. Port 0 selects any free port.
    pub async fn bind(net: &dyn Net, wanted: &str) -> Result<Self, ListenerError> {
        let failed = |source| ListenerError { wanted: wanted.to_owned(), source };
        let mut last = None;
        for address in net.resolve(wanted).await.map_err(failed)? {
            match net.listen(address).await {
                Ok(socket) => return Ok(Self::from_socket(socket)),
                Err(error) => last = Some(error),
            }
        }
        Err(failed(last.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into())))
    }

    /// Returns the bound address.
    pub fn address(&self) -> SocketAddr {
        self.socket.local_address()
    }

    /// Serves until `stop`, then closes the port and waits until open requests finish or are aborted.
    pub async fn serve(mut self, router: Router, lasting: &ConnectionDeps, stop: CancellationToken) {
        let connections = self.accept(&router, lasting, &stop).await;
        drop(self.socket);
        tokio::select! {
            biased;
            () = connections.shutdown() => {}
            () = lasting.enough.cancelled() => {
                tracing::warn!("aborted connections, their requests did not finish in time");
            }
        }
    }

    /// Accepts connections until `stop`. Returns the open connections.
    pub async fn accept(
        &mut self,
        router: &Router,
        lasting: &ConnectionDeps,
        stop: &CancellationToken,
    ) -> GracefulShutdown {
        let connections = GracefulShutdown::new();
        let mut refused = LogThrottle::default();
        let mut full = LogThrottle::default();
        let farewells = Arc::new(Semaphore::new(MAX_CONCURRENT_REJECTIONS));
        loop {
            let accept = |context: &mut Context<'_>| self.socket.poll_accept(context);
            let (stream, peer) = tokio::select! {
                biased;
                () = stop.cancelled() => return connections,
                accepted = accept_with_retry(&lasting.clock, &mut refused, accept) => accepted,
            };
            match Arc::clone(&lasting.room).try_acquire_owned() {
                Ok(place) => connect(stream, PeerAddress(peer), place, router, lasting, &connections),
                Err(_) => {
                    if let Some(times) = full.should_log(lasting.clock.monotonic()) {
                        tracing::warn!(
                            times,
                            "refused connections, the limit of open connections is reached (max_connections)"
                        );
                    }
                    if let Ok(permit) = Arc::clone(&farewells).try_acquire_owned() {
                        turn_away(stream, permit, lasting);
                    }
                }
            }
        }
    }
}

/// Serves a connection. Its permit is held until it ends.
fn connect(
    stream: NetStream,
    peer: PeerAddress,
    place: OwnedSemaphorePermit,
    router: &Router,
    lasting: &ConnectionDeps,
    connections: &GracefulShutdown,
) {
    let close = lasting.enough.child_token();
    let mut http = Builder::new(StreamExecutor::new(lasting.clock.clone(), close.clone()));
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    http.http2()
        .timer(TokioTimer::new())
        .adaptive_window(true)
        .max_concurrent_streams(lasting.requests.max_streams())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PONG_TIMEOUT);
    let service = ConnectionService::new(router.clone(), &lasting.requests, peer);
    let stream = WriteTimeout::new(stream, lasting.clock.clone());
    let opening = UrlEscapingStream::new(PrefaceTimeout::new(stream, &lasting.clock, HEAD_TIMEOUT));
    let connection = http.serve_connection(TokioIo::new(opening), service).into_owned();
    let connection = connections.watch(connection);
    let served = lasting.tasks.spawn("connection", async move {
        tokio::select! {
            biased;
            ended = connection => if let Err(error) = ended {
                tracing::debug!(error, "connection ended early");
            },
            () = close.cancelled() => {}
        }
        drop(place);
    });
    if let Err(error) = served {
        tracing::warn!(%error, "connection refused");
    }
}

/// Sends an error response within a short time limit.
fn turn_away(mut stream: NetStream, permit: OwnedSemaphorePermit, lasting: &ConnectionDeps) {
    let clock = lasting.clock.clone();
    // If the task limit is reached as well, the connection is closed without a response.
    let _ = lasting.tasks.spawn("connection rejection", async move {
        let _ = clock.timeout(REJECTION_TIMEOUT, stream.write_all(TOO_MANY_CONNECTIONS_RESPONSE)).await;
        drop((stream, permit));
    });
}

impl fmt::Debug for HttpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpListener").field("address", &self.address()).finish()
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Timestamp;
    use athanor_chassis::net::LocalNet;
    use futures::future::poll_immediate;
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn a_connection_that_the_system_refuses_is_not_the_last() {
        let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        let mut refusals = 2;
        let accept = |_: &mut Context<'_>| {
            refusals -= 1;
            Poll::Ready(if refusals < 0 {
                Ok("a connection")
            } else {
                Err(io::Error::other("no files left"))
            })
        };
        let mut seldom = LogThrottle::default();
        let mut accepted = std::pin::pin!(accept_with_retry(&clock, &mut seldom, accept));
        for _ in 0..2 {
            assert!(poll_immediate(&mut accepted).await.is_none());
            hand.advance(ACCEPT_RETRY_BACKOFF);
        }
        assert_eq!(accepted.await, "a connection");
    }

    async fn first_line(net: &LocalNet, address: SocketAddr) -> String {
        let mut stream = net.connect(address, REJECTION_TIMEOUT).await.unwrap();
        let mut answer = String::new();
        // Whoever is turned away may hear of it before having asked.
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
        let _ = stream.read_to_string(&mut answer).await;
        answer.lines().next().unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn connections_have_a_bound_and_one_that_ends_makes_room() {
        let clock = Clock::system();
        let tasks = TaskGroup::new(clock.clone(), 10);
        let room = Arc::new(Semaphore::new(1));
        let net = LocalNet::new(clock.clone());
        let enough = CancellationToken::new();
        let requests = RequestLimiter::for_clients(10);
        let lasting = ConnectionDeps { tasks, clock, enough, room: Arc::clone(&room), requests };
        let mut listener = HttpListener::bind(&net, "127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.address(), CancellationToken::new());
        let router = Router::new().route("/", axum::routing::get(async || "here"));
        let asking = async {
            let mut idle = net.connect(address, REJECTION_TIMEOUT).await.unwrap();
            while room.available_permits() > 0 {
                tokio::task::yield_now().await;
            }
            let refused = first_line(&net, address).await;
            idle.shutdown().await.unwrap();
            while room.available_permits() == 0 {
                tokio::task::yield_now().await;
            }
            let served = first_line(&net, address).await;
            stop.cancel();
            (refused, served)
        };
        let (_, (refused, served)) = tokio::join!(listener.accept(&router, &lasting, &stop), asking);
        // What was sent by whoever is turned away may take the answer away from them.
        assert!(refused.is_empty() || refused == "HTTP/1.1 503 Service Unavailable", "{refused}");
        assert_eq!(served, "HTTP/1.1 200 OK");
    }
}
