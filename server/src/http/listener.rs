//! The port: accepts connections, serves each as HTTP/1.1 or HTTP/2, and drains politely.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use athanor_chassis::code::{Code, Coded};
use athanor_chassis::{Clock, Tasks};
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
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

/// What connections take from their process.
pub struct Lasting {
    /// Each connection is one.
    pub tasks: Tasks,
    /// Time.
    pub clock: Clock,
    /// How long requests may take to finish when the server stops.
    pub patience: Duration,
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

/// The next connection, however often the system refuses one.
pub async fn patient<C>(clock: &Clock, mut accept: impl FnMut(&mut Context<'_>) -> Poll<io::Result<C>>) -> C {
    loop {
        match poll_fn(&mut accept).await {
            Ok(connection) => return connection,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection, will try again");
                clock.sleep(BREATHER).await;
            }
        }
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

    /// Serves until `stop`, then listens no more and lets those finish who have begun: until all have, for at most
    /// `patience`, or until there is haste.
    pub async fn serve(self, router: Router, lasting: &Lasting, stop: CancellationToken, haste: &Notify) {
        let connections = self.accept(&router, lasting, &stop).await;
        drop(self.socket);
        let finished = tokio::select! {
            biased;
            () = connections.shutdown() => true,
            () = haste.notified() => false,
            () = lasting.clock.sleep(lasting.patience) => false,
        };
        if !finished {
            tracing::warn!("connections were cut off at the end of the drain");
        }
    }

    /// Accepts connections until `stop`, and gives them.
    pub async fn accept(
        &self,
        router: &Router,
        lasting: &Lasting,
        stop: &CancellationToken,
    ) -> GracefulShutdown {
        let connections = GracefulShutdown::new();
        loop {
            let (stream, _) = tokio::select! {
                biased;
                () = stop.cancelled() => return connections,
                accepted = patient(&lasting.clock, |context| self.socket.poll_accept(context)) => accepted,
            };
            self.connect(stream, router, &lasting.tasks, &connections);
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

#[cfg(test)]
mod tests {
    use athanor_chassis::Timestamp;
    use futures::future::poll_immediate;

    use super::*;

    #[tokio::test]
    async fn a_connection_that_the_system_refuses_is_not_the_last() {
        let (clock, hand) = Clock::manual(Timestamp::EPOCH);
        let mut refusals = 2;
        let accept = |_: &mut Context<'_>| {
            refusals -= 1;
            Poll::Ready(if refusals < 0 {
                Ok("a connection")
            } else {
                Err(io::Error::other("no files left"))
            })
        };
        let mut accepted = std::pin::pin!(patient(&clock, accept));
        for _ in 0..2 {
            assert!(poll_immediate(&mut accepted).await.is_none());
            hand.advance(BREATHER);
        }
        assert_eq!(accepted.await, "a connection");
    }
}
