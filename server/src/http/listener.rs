//! The port: accepts connections, serves each as HTTP/1.1 or HTTP/2, and drains politely.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use athanor_chassis::code::{Code, Coded};
use athanor_chassis::{Clock, Tasks};
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// A client has so long to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait after the system refused a connection, for example for want of file descriptors.
const BREATHER: Duration = Duration::from_millis(50);

/// A bound port that serves nothing yet.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

/// A port that cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {wanted}: {source}; --listen chooses another address")]
pub struct ListenerError {
    wanted: String,
    source: io::Error,
}

impl Coded for ListenerError {
    fn code(&self) -> Code {
        Code::Unavailable
    }
}

impl Listener {
    /// Binds an address; port 0 takes any free one.
    pub async fn bind(wanted: &str) -> Result<Self, ListenerError> {
        let failed = |source| ListenerError { wanted: wanted.to_owned(), source };
        let socket = TcpListener::bind(wanted).await.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        Ok(Self { socket, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`, then lets those finish who have begun, for at most `patience`.
    pub async fn serve(
        self,
        router: Router,
        tasks: Tasks,
        clock: Clock,
        stop: CancellationToken,
        patience: Duration,
    ) {
        let connections = GracefulShutdown::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => self.connect(stream, &router, &tasks, &connections),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    clock.sleep(BREATHER).await;
                }
            }
        }
        drop(self.socket);
        if clock.within(patience, connections.shutdown()).await.is_err() {
            tracing::warn!("connections were cut off at the end of the drain");
        }
    }

    fn connect(&self, stream: TcpStream, router: &Router, tasks: &Tasks, connections: &GracefulShutdown) {
        // A small answer should not wait for the next one.
        let _ = stream.set_nodelay(true);
        let mut http = Builder::new(TokioExecutor::new());
        http.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
        http.http2().timer(TokioTimer::new()).adaptive_window(true).max_concurrent_streams(1024);
        let service = TowerToHyperService::new(router.clone());
        let connection = http.serve_connection(TokioIo::new(stream), service).into_owned();
        let connection = connections.watch(connection);
        let served = tasks.spawn("connection", async move {
            if let Err(error) = connection.await {
                tracing::debug!(error, "connection ended early");
            }
        });
        if let Err(error) = served {
            tracing::warn!(%error, "connection refused");
        }
    }
}
