//! Connection to a server. It makes progress only while a request waits for it.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use athanor_chassis::net::NetStream;
use athanor_chassis::{Clock, Net};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;

use super::{Destination, HttpClientError};

/// Size of the read buffer, and thus of the largest response head.
const READ_BUFFER_BYTES: usize = 16 << 10;
const MAX_RESPONSE_HEADERS: usize = 128;

/// Open connection.
pub(super) struct Connection {
    remote: Remote,
    sender: http1::SendRequest<Empty<Bytes>>,
    driver: Driver,
}

/// Protocol state of a connection, which is polled together with the futures that need it.
struct Driver {
    connection: http1::Connection<TokioIo<NetStream>, Empty<Bytes>>,
    is_finished: bool,
}

/// Peer of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Remote {
    /// TCP address.
    Address(SocketAddr),
    /// Unix socket.
    UnixSocket(PathBuf),
}

/// Opens HTTP/1.1 on a stream, inside of TLS if `tls` is set.
pub(super) async fn open_connection(
    remote: Remote,
    stream: NetStream,
    tls: Option<&TlsConnector>,
    server_name: &str,
) -> Result<Connection, HttpClientError> {
    let stream: NetStream = match tls {
        Some(tls) => {
            let name =
                ServerName::try_from(server_name.to_owned()).map_err(HttpClientError::invalid_request)?;
            let stream = tls.connect(name, stream).await;
            let handshake = |source| HttpClientError::TlsHandshake { remote: remote.to_string(), source };
            Box::new(stream.map_err(handshake)?)
        }
        None => stream,
    };
    let (sender, connection) = http1::Builder::new()
        .read_buf_exact_size(Some(READ_BUFFER_BYTES))
        .max_headers(MAX_RESPONSE_HEADERS)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| HttpClientError::protocol(&error))?;
    Ok(Connection { remote, sender, driver: Driver { connection, is_finished: false } })
}

// === impl Connection ===

impl Connection {
    /// Peer of the connection.
    pub(super) fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Sends a request and returns the head of the response.
    pub(super) async fn send(
        &mut self,
        request: Request<Empty<Bytes>>,
    ) -> Result<Response<Incoming>, HttpClientError> {
        let ready = self.driver.drive(self.sender.ready()).await;
        ready.map_err(|error| HttpClientError::protocol(&error))?;
        let response = self.driver.drive(self.sender.send_request(request)).await;
        response.map_err(|error| HttpClientError::protocol(&error))
    }

    /// Polls a future that needs this connection, such as the next part of a body.
    pub(super) async fn drive<F: Future>(&mut self, future: F) -> F::Output {
        self.driver.drive(future).await
    }

    /// Returns whether the connection may carry another request, after the whole response was read. Does not
    /// wait for the server.
    pub(super) async fn is_reusable(&mut self) -> bool {
        let sender = &mut self.sender;
        let is_ready = self.driver.drive(poll_fn(|context| match sender.poll_ready(context) {
            Poll::Ready(result) => Poll::Ready(result.is_ok()),
            Poll::Pending => Poll::Ready(false),
        }));
        is_ready.await && !self.driver.is_finished
    }
}

impl Driver {
    async fn drive<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            // The future reports a failed connection too, with its own error.
            if !self.is_finished && Pin::new(&mut self.connection).poll(context).is_ready() {
                self.is_finished = true;
            }
            future.as_mut().poll(context)
        })
        .await
    }
}

// === impl Remote ===

impl Remote {
    /// Returns all peers of a destination, in order.
    pub(super) fn all_of(destination: &Destination) -> Vec<Self> {
        match destination {
            Destination::Addresses(addresses) => addresses.iter().copied().map(Self::Address).collect(),
            Destination::UnixSocket(path) => vec![Self::UnixSocket(path.clone())],
        }
    }

    /// Returns whether the destination contains this peer.
    pub(super) fn is_in(&self, destination: &Destination) -> bool {
        match (self, destination) {
            (Self::Address(address), Destination::Addresses(addresses)) => addresses.contains(address),
            (Self::UnixSocket(path), Destination::UnixSocket(other)) => path == other,
            _ => false,
        }
    }

    /// Opens a stream.
    pub(super) async fn open(
        &self,
        net: &dyn Net,
        clock: &Clock,
        timeout: Duration,
    ) -> io::Result<NetStream> {
        match self {
            Self::Address(address) => net.connect(*address, timeout).await,
            Self::UnixSocket(path) => match clock.timeout(timeout, UnixStream::connect(path)).await {
                Ok(stream) => Ok(Box::new(stream?)),
                Err(elapsed) => Err(io::Error::new(io::ErrorKind::TimedOut, elapsed.to_string())),
            },
        }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::UnixSocket(path) => path.display().fmt(f),
        }
    }
}
