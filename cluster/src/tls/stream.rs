//! A stream that has come, and on which TLS is still to be agreed.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use athanor_chassis::net::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

/// Agrees when it is first read or written.
pub struct Arriving {
    state: State,
    from: SocketAddr,
}

enum State {
    Agreeing(Box<tokio_rustls::Accept<Stream>>),
    Open(Box<TlsStream<Stream>>),
    /// It was told why.
    Refused,
}

impl Arriving {
    /// From where it came.
    pub fn new(agreeing: tokio_rustls::Accept<Stream>, from: SocketAddr) -> Self {
        Self { state: State::Agreeing(Box::new(agreeing)), from }
    }

    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<io::Result<&mut TlsStream<Stream>>> {
        if let State::Agreeing(agreeing) = &mut self.state {
            match ready!(Pin::new(&mut **agreeing).poll(context)) {
                Ok(stream) => self.state = State::Open(Box::new(stream)),
                Err(error) => {
                    let from = self.from;
                    tracing::warn!(
                        %from,
                        %error,
                        "who came to the port for nodes was refused: nodes have certificates of cluster.tls.authorities"
                    );
                    self.state = State::Refused;
                    return Poll::Ready(Err(error));
                }
            }
        }
        match &mut self.state {
            State::Open(stream) => Poll::Ready(Ok(stream)),
            State::Agreeing(_) | State::Refused => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl AsyncRead for Arriving {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = ready!(self.get_mut().poll_open(context))?;
        Pin::new(stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Arriving {
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
            State::Open(stream) => Pin::new(&mut **stream).poll_shutdown(context),
            // Nothing was said yet: there is nothing to end.
            State::Agreeing(_) | State::Refused => Poll::Ready(Ok(())),
        }
    }
}
