//! Accepted stream on which the TLS handshake is still pending.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use athanor_chassis::net::NetStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

/// Stream that runs its TLS handshake on the first read or write.
pub struct LazyTlsStream {
    state: TlsStreamState,
    from: SocketAddr,
}

enum TlsStreamState {
    Agreeing(Box<tokio_rustls::Accept<NetStream>>),
    Open(Box<TlsStream<NetStream>>),
    /// The handshake failed, and its error was returned.
    Refused,
}

impl LazyTlsStream {
    /// Creates a stream that was accepted from the given address.
    pub fn new(agreeing: tokio_rustls::Accept<NetStream>, from: SocketAddr) -> Self {
        Self { state: TlsStreamState::Agreeing(Box::new(agreeing)), from }
    }

    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<io::Result<&mut TlsStream<NetStream>>> {
        if let TlsStreamState::Agreeing(agreeing) = &mut self.state {
            match ready!(Pin::new(&mut **agreeing).poll(context)) {
                Ok(stream) => self.state = TlsStreamState::Open(Box::new(stream)),
                Err(error) => {
                    let from = self.from;
                    tracing::warn!(
                        %from,
                        %error,
                        "rejected connection to the internal port: peers need a certificate of cluster.tls.ca_file"
                    );
                    self.state = TlsStreamState::Refused;
                    return Poll::Ready(Err(error));
                }
            }
        }
        match &mut self.state {
            TlsStreamState::Open(stream) => Poll::Ready(Ok(stream)),
            TlsStreamState::Agreeing(_) | TlsStreamState::Refused => {
                Poll::Ready(Err(io::ErrorKind::NotConnected.into()))
            }
        }
    }
}

impl AsyncRead for LazyTlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = ready!(self.get_mut().poll_open(context))?;
        Pin::new(stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for LazyTlsStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let stream = ready!(self.get_mut().poll_open(context))?;
        Pin::new(stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = ready!(self.get_mut().poll_open(context))?;
        Pin::new(stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().state {
            TlsStreamState::Open(stream) => Pin::new(&mut **stream).poll_shutdown(context),
            // No TLS session exists yet, so there is none to shut down.
            TlsStreamState::Agreeing(_) | TlsStreamState::Refused => Poll::Ready(Ok(())),
        }
    }
}
