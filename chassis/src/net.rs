//! Network as an injected dependency: [`LocalNet`] in a process, in-memory streams in a simulation.
//!
//! Streams are ordered bytes. Callers use no other feature: no peer address of an open stream, no options. A
//! partitioned peer is silent, and its stream does not fail. So callers that need an idle timeout bring their
//! own.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use crate::time::clock::Clock;

#[cfg(feature = "test-util")]
pub mod memory;

/// Network that connects to other nodes and accepts their connections.
#[async_trait]
pub trait Net: Send + Sync + 'static {
    /// Listens on an address. Port 0 takes any free port.
    async fn listen(&self, at: SocketAddr) -> io::Result<Box<dyn NetListener>>;

    /// Opens a stream within a time limit.
    async fn connect(&self, to: SocketAddr, limit: Duration) -> io::Result<NetStream>;

    /// Resolves `host:port` to at least one address.
    async fn resolve(&self, name: &str) -> io::Result<Vec<SocketAddr>>;
}

/// Listening socket. Dropping it frees the address and keeps the accepted streams.
pub trait NetListener: Send {
    /// Address on which the listener accepts streams.
    fn local_address(&self) -> SocketAddr;

    /// Accepts the next stream and its peer address. An error concerns one stream or a lack of resources, and
    /// does not end the listener.
    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<(NetStream, SocketAddr)>>;
}

/// Bidirectional stream of bytes.
pub trait ReadWrite: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ReadWrite for S {}

/// Open stream, boxed for any network.
pub type NetStream = Box<dyn ReadWrite>;

/// TCP sockets of this machine.
#[derive(Clone, Debug)]
pub struct LocalNet {
    clock: Clock,
}

impl dyn NetListener {
    /// Awaits [`poll_accept`](NetListener::poll_accept). Cancel-safe: no stream is lost.
    pub async fn accept(&mut self) -> io::Result<(NetStream, SocketAddr)> {
        poll_fn(|context| self.poll_accept(context)).await
    }
}

impl LocalNet {
    /// Creates a TCP network, which measures time limits with `clock`.
    pub fn new(clock: Clock) -> Self {
        Self { clock }
    }
}

#[async_trait]
impl Net for LocalNet {
    #[expect(clippy::disallowed_methods, reason = "one of the places that use sockets")]
    async fn listen(&self, at: SocketAddr) -> io::Result<Box<dyn NetListener>> {
        let socket = TcpListener::bind(at).await?;
        let address = socket.local_addr()?;
        Ok(Box::new(LocalListener { socket, address }))
    }

    #[expect(clippy::disallowed_methods, reason = "one of the places that use sockets")]
    async fn connect(&self, to: SocketAddr, limit: Duration) -> io::Result<NetStream> {
        match self.clock.timeout(limit, TcpStream::connect(to)).await {
            Ok(stream) => Ok(set_no_delay(stream?)),
            Err(elapsed) => Err(io::Error::new(io::ErrorKind::TimedOut, elapsed.to_string())),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "one of the places that use sockets")]
    async fn resolve(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let found: Vec<_> = tokio::net::lookup_host(name).await?.collect();
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name resolves to no address"));
        }
        Ok(found)
    }
}

struct LocalListener {
    socket: TcpListener,
    address: SocketAddr,
}

impl NetListener for LocalListener {
    fn local_address(&self) -> SocketAddr {
        self.address
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<(NetStream, SocketAddr)>> {
        let (stream, from) = ready!(self.socket.poll_accept(context))?;
        Poll::Ready(Ok((set_no_delay(stream), from)))
    }
}

/// Disables Nagle's algorithm, so that a small message does not wait for the next one.
fn set_no_delay(stream: TcpStream) -> NetStream {
    // If the stream closed meanwhile, its next use reports the error.
    let _ = stream.set_nodelay(true);
    Box::new(stream)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::time::clock::Timestamp;

    #[tokio::test]
    async fn streams_are_open_both_ways() {
        let net = LocalNet::new(Clock::system());
        let mut listener = net.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_address();
        assert_ne!(address.port(), 0);
        let (opened, accepted) =
            tokio::join!(net.connect(address, Duration::from_secs(5)), listener.accept());
        let (mut here, (mut there, from)) = (opened.unwrap(), accepted.unwrap());
        assert!(from.ip().is_loopback());
        here.write_all(b"ask").await.unwrap();
        let mut read = [0; 3];
        there.read_exact(&mut read).await.unwrap();
        there.write_all(b"yes").await.unwrap();
        drop((there, listener));
        let mut answer = String::new();
        here.read_to_string(&mut answer).await.unwrap();
        assert_eq!((&read, answer.as_str()), (b"ask", "yes"));
        assert!(net.connect(address, Duration::from_secs(5)).await.is_err(), "the address was let go");
    }

    #[tokio::test]
    async fn an_address_is_taken_once_and_names_stand_for_some() {
        let net = LocalNet::new(Clock::system());
        let listener = net.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let taken = net.listen(listener.local_address()).await.map(drop).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(net.resolve("127.0.0.1:7").await.unwrap(), ["127.0.0.1:7".parse().unwrap()]);
        assert!(net.resolve("localhost").await.is_err(), "a port is part of the name");
    }

    #[tokio::test]
    async fn who_does_not_answer_is_given_up() {
        let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        let net = LocalNet::new(clock);
        // Nobody has this address; a machine without a route to it says so at once.
        let connecting = net.connect("192.0.2.1:9".parse().unwrap(), Duration::from_secs(1));
        let (connected, ()) = tokio::join!(connecting, async { hand.advance(Duration::from_secs(1)) });
        assert!(connected.is_err());
    }
}
