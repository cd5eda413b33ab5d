//! A connection that has to show soon which protocol it speaks.
//!
//! From then on each protocol looks after itself: HTTP/1 by a limit for heads, HTTP/2 by pings. Before that nobody does.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use athanor_chassis::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What every client of HTTP/2 sends first. Whoever begins otherwise speaks HTTP/1, or nothing that we know.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream whose reader fails where the client does not show its protocol in time.
pub struct PrefaceTimeout<S> {
    stream: S,
    unknown: Option<PrefaceState>,
}

/// What is known before the protocol is.
struct PrefaceState {
    late: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// How much of the preface has come.
    seen: usize,
}

impl<S> PrefaceTimeout<S> {
    /// The client has so long from now on.
    pub fn new(stream: S, clock: &Clock, limit: Duration) -> Self {
        let clock = clock.clone();
        let late = Box::pin(async move { clock.sleep(limit).await });
        Self { stream, unknown: Some(PrefaceState { late, seen: 0 }) }
    }
}

impl PrefaceState {
    /// Whether these bytes, which came next, end the doubt.
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
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client began no request")));
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
