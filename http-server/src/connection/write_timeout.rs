//! Stream wrapper that fails if the peer reads no byte for too long.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use athanor_chassis::Clock;
use athanor_chassis::units::format_duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::SEND_TIMEOUT;

/// Stream that fails a write after [`SEND_TIMEOUT`] without a byte read by the peer.
pub struct WriteTimeout<S> {
    stream: S,
    clock: Clock,
    /// Runs while a write waits.
    timer: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<S> WriteTimeout<S> {
    /// Wraps a stream.
    pub fn new(stream: S, clock: Clock) -> Self {
        Self { stream, clock, timer: None }
    }

    /// Returns the result of a write, or an error if the write has waited too long.
    fn limit<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.timer = None;
            return written;
        }
        let clock = &self.clock;
        let timer = self.timer.get_or_insert_with(|| {
            let clock = clock.clone();
            Box::pin(async move { clock.sleep(SEND_TIMEOUT).await })
        });
        timer.as_mut().poll(context).map(|()| {
            let message = format!("the client has read nothing for {}", format_duration(SEND_TIMEOUT));
            Err(io::Error::new(io::ErrorKind::TimedOut, message))
        })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.limit(context, written)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        this.limit(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.stream).poll_shutdown(context);
        this.limit(context, shut)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.limit(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
