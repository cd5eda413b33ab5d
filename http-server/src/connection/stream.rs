//! Executor of HTTP/2 streams. Ends streams of clients that read nothing.
//!
//! HTTP/2 streams share a connection, and one stream may be stuck while the others work. Dropping the future
//! of a stream resets it. No other mechanism does so while the stream waits for its flow control window.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use athanor_chassis::Clock;
use hyper::rt::Executor;
use hyper_util::rt::TokioExecutor;
use tokio_util::sync::CancellationToken;

use super::SEND_TIMEOUT;
use super::send_progress::SendProgress;

tokio::task_local! {
    static STREAM_PROGRESS: Arc<SendProgress>;
}

/// Executor of the streams of one connection.
#[derive(Clone, Debug)]
pub struct StreamExecutor {
    clock: Clock,
    /// Closes the connection.
    close: CancellationToken,
}

/// Waits for the end of a stall. Restarted while there is progress.
#[derive(Default)]
struct StallTimer {
    sleep: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl StreamExecutor {
    /// Creates the executor of a connection that `close` closes.
    pub fn new(clock: Clock, close: CancellationToken) -> Self {
        Self { clock, close }
    }
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let progress = Arc::new(SendProgress::new(self.clock.clone()));
        let stream = STREAM_PROGRESS.scope(Arc::clone(&progress), stream);
        TokioExecutor::new().execute(run_stream(stream, progress, self.close.clone()));
    }
}

/// Returns the progress of the HTTP/2 stream that is being polled.
pub fn current_progress() -> Option<Arc<SendProgress>> {
    STREAM_PROGRESS.try_with(Arc::clone).ok()
}

/// Runs a stream until its response is sent. Drops it after a stall.
async fn run_stream(stream: impl Future<Output = ()>, progress: Arc<SendProgress>, close: CancellationToken) {
    let mut stream = pin!(Some(stream));
    let mut timer = StallTimer::default();
    poll_fn(|context| {
        if let Some(running) = stream.as_mut().as_pin_mut()
            && running.poll(context).is_ready()
        {
            stream.set(None);
        }
        if progress.is_sent(context) {
            timer = StallTimer::default();
            return if stream.is_none() { Poll::Ready(()) } else { Poll::Pending };
        }
        ready!(timer.poll_stall(context, &progress));
        tracing::debug!(timeout = ?SEND_TIMEOUT, "closed a stream, the client stopped reading");
        if stream.is_none() {
            // The last bytes of a finished stream are stuck, so there is no stream left to reset.
            close.cancel();
        }
        Poll::Ready(())
    })
    .await;
}

impl StallTimer {
    /// Returns ready once no chunk was sent for [`SEND_TIMEOUT`].
    fn poll_stall(&mut self, context: &mut Context<'_>, progress: &SendProgress) -> Poll<()> {
        loop {
            let left = SEND_TIMEOUT.saturating_sub(progress.stalled_for());
            if left.is_zero() {
                return Poll::Ready(());
            }
            let clock = progress.clock();
            let sleep = self.sleep.get_or_insert_with(|| {
                let clock = clock.clone();
                Box::pin(async move { clock.sleep(left).await })
            });
            ready!(sleep.as_mut().poll(context));
            self.sleep = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::SocketAddr;
    use std::time::Duration;

    use athanor_chassis::net::{NetListener, NetStream};
    use athanor_chassis::time::clock::ManualClock;
    use athanor_chassis::{TaskGroup, Timestamp};
    use axum::Router;
    use axum::body::Body;
    use axum::http::{Request, Response};
    use axum::routing::get;
    use bytes::Bytes;
    use http_body_util::{BodyExt, Empty};
    use hyper::body::Incoming;
    use hyper::client::conn::http2;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::connection::RequestLimiter;
    use crate::listen::{ConnectionDeps, HttpListener};

    const LARGE_BODY_BYTES: usize = 1 << 20;

    /// Accepts one connection, whose bytes lie in memory.
    struct One(Option<DuplexStream>);

    impl NetListener for One {
        fn local_address(&self) -> SocketAddr {
            SocketAddr::from(([127, 0, 0, 1], 1))
        }

        fn poll_accept(&mut self, _: &mut Context<'_>) -> Poll<io::Result<(NetStream, SocketAddr)>> {
            let address = self.local_address();
            self.0.take().map_or(Poll::Pending, |stream| Poll::Ready(Ok((Box::new(stream), address))))
        }
    }

    /// A server with one connection, and the client's end of it.
    struct Served {
        client: DuplexStream,
        hand: ManualClock,
        room: Arc<Semaphore>,
        requests: Arc<RequestLimiter>,
    }

    fn serve() -> Served {
        let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        let (client, server) = tokio::io::duplex(8 * 1024);
        let (room, requests) = (Arc::new(Semaphore::new(1)), RequestLimiter::for_clients(10));
        let lasting = ConnectionDeps {
            tasks: TaskGroup::new(clock.clone(), 10),
            clock,
            enough: CancellationToken::new(),
            room: Arc::clone(&room),
            requests: Arc::clone(&requests),
        };
        let router = Router::new()
            .route("/large", get(async || Body::from(vec![7; LARGE_BODY_BYTES])))
            .route("/small", get(async || "small"));
        let tasks = lasting.tasks.clone();
        let mut listener = HttpListener::from_socket(Box::new(One(Some(server))));
        let accepting = async move {
            let stop = CancellationToken::new();
            listener.accept(&router, &lasting, &stop).await;
        };
        tasks.spawn("accepting", accepting).unwrap();
        Served { client, hand, room, requests }
    }

    type Sender = http2::SendRequest<Empty<Bytes>>;

    async fn client_of(client: DuplexStream, window: u32) -> Sender {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(window);
        let (sender, connection) = builder.handshake(TokioIo::new(client)).await.unwrap();
        TokioExecutor::new().execute(async move {
            let _ = connection.await;
        });
        sender
    }

    async fn ask(sender: &mut Sender, path: &str) -> Response<Incoming> {
        let request = Request::get(format!("http://a{path}")).body(Empty::new()).unwrap();
        sender.send_request(request).await.unwrap()
    }

    /// Lets time pass until the condition holds, and returns how much passed.
    async fn pass_until(hand: &ManualClock, condition: impl Fn() -> bool) -> Duration {
        let begun = hand.clock().monotonic();
        while !condition() {
            // What is woken runs before more time passes.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            hand.advance(Duration::from_secs(1));
        }
        hand.clock().monotonic() - begun
    }

    #[tokio::test]
    async fn stream_without_progress_is_reset_and_its_connection_serves_on() {
        let Served { client, hand, requests, .. } = serve();
        let mut sender = client_of(client, 100_000).await;
        let unread = ask(&mut sender, "/large").await;
        let small = ask(&mut sender, "/small").await;
        assert_eq!(small.into_body().collect().await.unwrap().to_bytes(), "small");
        assert!(pass_until(&hand, || requests.open() == 0).await >= SEND_TIMEOUT);
        assert!(unread.into_body().collect().await.is_err(), "it was reset");
        let large = ask(&mut sender, "/large").await;
        assert_eq!(large.into_body().collect().await.unwrap().to_bytes().len(), LARGE_BODY_BYTES);
    }

    #[tokio::test]
    async fn connection_whose_last_bytes_are_stuck_is_closed() {
        let Served { client, hand, room, requests } = serve();
        let mut sender = client_of(client, 1).await;
        let unread = ask(&mut sender, "/small").await;
        let is_closed = || room.available_permits() == 1 && requests.open() == 0;
        assert!(pass_until(&hand, is_closed).await >= SEND_TIMEOUT);
        drop(unread);
    }

    #[tokio::test]
    async fn connection_of_http_1_without_progress_is_closed() {
        let Served { mut client, hand, room, requests } = serve();
        client.write_all(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        client.read_u8().await.unwrap();
        let is_closed = || room.available_permits() == 1 && requests.open() == 0;
        assert!(pass_until(&hand, is_closed).await >= SEND_TIMEOUT);
    }
}
