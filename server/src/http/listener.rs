//! The port: accepts connections, serves each as HTTP/1.1 or HTTP/2, and drains politely.

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

use super::admin_auth::PeerAddress;
use super::connection::{ConnectionService, RequestLimiter, StreamExecutor, WriteTimeout};
use super::log_throttle::LogThrottle;
use super::preface_timeout::PrefaceTimeout;
use super::url_escaping::UrlEscapingStream;

/// A client has so long to show which protocol it speaks, and then to send the head of each request of HTTP/1.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a client of HTTP/2 is asked whether it is still there.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// And how long it has to answer.
const PONG_TIMEOUT: Duration = Duration::from_secs(20);
/// How long to wait after the system refused a connection, for example for want of file descriptors.
const ACCEPT_RETRY_BACKOFF: Duration = Duration::from_millis(50);
/// Clients that are told at once why they are turned away. Others are closed without a word, so that they take no files.
const MAX_CONCURRENT_REJECTIONS: usize = 8;
/// How long it may take to tell who is turned away why.
const REJECTION_TIMEOUT: Duration = Duration::from_secs(1);

/// What is told to who comes when there are as many connections as there may be.
const TOO_MANY_CONNECTIONS_RESPONSE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
content-type: text/plain; charset=utf-8\r\n\r\n\
there are as many connections as there may be (max_connections); come again later\n";

/// A bound port that serves nothing yet.
pub struct HttpListener {
    socket: Box<dyn NetListener>,
}

/// What connections take from their process.
pub struct ConnectionDeps {
    /// Each connection is one.
    pub tasks: TaskGroup,
    /// Time.
    pub clock: Clock,
    /// Connections that are open when this is cancelled are cut off.
    pub enough: CancellationToken,
    /// Room for connections.
    pub room: Arc<Semaphore>,
    /// Open requests of all connections.
    pub requests: Arc<RequestLimiter>,
}

/// A port that cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {wanted}: {source}; --listen chooses another address")]
pub struct ListenerError {
    wanted: String,
    source: io::Error,
}

impl ErrorCodeExt for ListenerError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Unavailable
    }
}

/// The next connection, however often the system refuses one.
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
                    tracing::warn!(%error, times, "cannot accept a connection, will try again");
                }
                clock.sleep(ACCEPT_RETRY_BACKOFF).await;
            }
        }
    }
}

impl HttpListener {
    /// An address that was taken.
    pub fn from_socket(socket: Box<dyn NetListener>) -> Self {
        Self { socket }
    }

    /// Binds the first address of a name that can be had; port 0 takes any free one.
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.socket.local_address()
    }

    /// Serves until `stop`, then listens no more and lets those finish who have begun: until all have, or they are cut
    /// off.
    pub async fn serve(mut self, router: Router, lasting: &ConnectionDeps, stop: CancellationToken) {
        let connections = self.accept(&router, lasting, &stop).await;
        drop(self.socket);
        tokio::select! {
            biased;
            () = connections.shutdown() => {}
            () = lasting.enough.cancelled() => {
                tracing::warn!("connections were cut off: their requests did not finish in time");
            }
        }
    }

    /// Accepts connections until `stop`, and gives them.
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
                Ok(place) => connect((stream, PeerAddress(peer)), place, router, lasting, &connections),
                Err(_) => {
                    if let Some(times) = full.should_log(lasting.clock.monotonic()) {
                        tracing::warn!(
                            times,
                            "connections refused: there are as many as there may be (max_connections)"
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

/// Serves a connection, which keeps its place until it ends.
fn connect(
    (stream, peer): (NetStream, PeerAddress),
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

/// Says why, as far as that goes soon.
fn turn_away(mut stream: NetStream, permit: OwnedSemaphorePermit, lasting: &ConnectionDeps) {
    let clock = lasting.clock.clone();
    // Where there is no room for that either, the connection is closed without a word.
    let _ = lasting.tasks.spawn("turning away", async move {
        let _ = clock.timeout(REJECTION_TIMEOUT, stream.write_all(TOO_MANY_CONNECTIONS_RESPONSE)).await;
        drop((stream, permit));
    });
}

impl fmt::Debug for HttpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("address", &self.address()).finish()
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
