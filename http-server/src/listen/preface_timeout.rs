//! Time limit for a connection to identify its protocol.
//!
//! Afterwards each protocol has its own limits: HTTP/1 limits the time of request heads, and HTTP/2 sends
//! pings. Before that no other limit applies.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use athanor_chassis::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Preface that every HTTP/2 client sends first. Other bytes are HTTP/1 or an unknown protocol.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Stream that fails reads if the client does not identify its protocol in time.
pub struct PrefaceTimeout<S> {
    stream: S,
    unknown: Option<PrefaceState>,
}

/// State until the protocol is known.
struct PrefaceState {
    late: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Number of received bytes that match the preface.
    seen: usize,
}

impl<S> PrefaceTimeout<S> {
    /// Wraps a new connection. The time limit starts now.
    pub fn new(stream: S, clock: &Clock, limit: Duration) -> Self {
        let clock = clock.clone();
        let late = Box::pin(async move { clock.sleep(limit).await });
        Self { stream, unknown: Some(PrefaceState { late, seen: 0 }) }
    }
}

impl PrefaceState {
    /// Returns whether the next bytes determine the protocol.
    fn ends_with(&mut self, bytes: &[u8]) -> bool {
        let due = &HTTP2_PREFACE[self.seen..];
        let same = bytes.iter().zip(due).take_while(|(came, due)| came == due).count();
        self.seen += same;
        same < bytes.len() || self.seen == HTTP2_PREFACE.len()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PrefaceTimeout<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(unknown) = &mut this.unknown else {
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        };
        if unknown.late.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "client sent no request in time",
            )));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        if unknown.ends_with(&buffer.filled()[before..]) {
            this.unknown = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PrefaceTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Timestamp;
    use futures::future::poll_immediate;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    /// Whether a client that sends this, and then nothing, is given up.
    async fn is_given_up(sent: &[u8]) -> bool {
        let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        let (mut client, server) = tokio::io::duplex(64);
        let mut opening = PrefaceTimeout::new(server, &clock, LIMIT);
        let mut came = vec![0; sent.len()];
        client.write_all(sent).await.unwrap();
        opening.read_exact(&mut came).await.unwrap();
        assert_eq!(came, sent);
        let mut next = std::pin::pin!(opening.read_u8());
        assert!(poll_immediate(&mut next).await.is_none());
        hand.advance(LIMIT);
        match poll_immediate(&mut next).await {
            Some(read) => read.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut),
            None => false,
        }
    }

    #[tokio::test]
    async fn who_does_not_show_a_protocol_is_given_up() {
        for sent in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n", &HTTP2_PREFACE[..23]] {
            assert!(is_given_up(sent).await, "{sent:?}");
        }
        for sent in [HTTP2_PREFACE, b"G", b"PUT", b"POST / HTTP/1.1\r\n", b"\0"] {
            assert!(!is_given_up(sent).await, "{sent:?}");
        }
    }
}
