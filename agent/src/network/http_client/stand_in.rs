//! HTTP server of tests, which records requests and sends scripted replies.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use athanor_chassis::net::{LocalNet, NetStream};
use athanor_chassis::{Clock, Net, TaskGroup};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

/// Reply to one request.
pub(crate) struct Reply {
    /// Bytes of the response, head included.
    pub(crate) bytes: Vec<u8>,
    /// Next step after the bytes.
    pub(crate) end: ReplyEnd,
}

/// Reaction of a server after a reply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyEnd {
    /// Waits for the next request.
    KeepOpen,
    /// Closes the connection.
    Close,
    /// Sends nothing more and keeps the connection.
    Hang,
    /// Repeats the last byte for ever.
    Repeat,
}

/// Running server. Dropping it ends all connections.
pub(crate) struct StandIn {
    pub(crate) address: SocketAddr,
    state: Arc<StandInState>,
    tasks: TaskGroup,
}

type Handler = dyn Fn(&str) -> Reply + Send + Sync;

struct StandInState {
    handler: Box<Handler>,
    requests: Mutex<Vec<String>>,
    connections: AtomicUsize,
}

impl Reply {
    /// Returns a complete response.
    pub(crate) fn new(status: &str, headers: &str, body: &[u8]) -> Self {
        let mut bytes =
            format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len()).into_bytes();
        bytes.extend_from_slice(body);
        Self { bytes, end: ReplyEnd::KeepOpen }
    }

    /// Returns a JSON response.
    pub(crate) fn json(body: &str) -> Self {
        Self::new("200 OK", "content-type: application/json\r\n", body.as_bytes())
    }

    /// Returns this reply with another end.
    pub(crate) fn then(self, end: ReplyEnd) -> Self {
        Self { end, ..self }
    }
}

impl StandIn {
    /// Starts a server on loopback.
    pub(crate) async fn start(handler: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with_tls(handler, None).await
    }

    /// Starts a server on loopback with TLS.
    pub(crate) async fn start_with_tls(
        handler: impl Fn(&str) -> Reply + Send + Sync + 'static,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        let net = LocalNet::new(Clock::system());
        let mut listener = net.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let server = Self::new(listener.local_address(), handler);
        let (state, tasks) = (Arc::clone(&server.state), server.tasks.clone());
        let accept = async move {
            loop {
                let (stream, _) = poll_fn(|context| listener.poll_accept(context)).await.unwrap();
                let (state, tls) = (Arc::clone(&state), tls.clone());
                let connection = async move {
                    let stream: NetStream = match tls {
                        None => stream,
                        Some(tls) => {
                            let Ok(stream) = tls.accept(stream).await else { return };
                            Box::new(stream)
                        }
                    };
                    state.serve(stream).await;
                };
                tasks.spawn("connection", connection).unwrap();
            }
        };
        server.tasks.spawn("accept", accept).unwrap();
        server
    }

    /// Starts a server on a Unix socket.
    pub(crate) fn start_on_socket(
        path: &Path,
        handler: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = tokio::net::UnixListener::bind(path).unwrap();
        let server = Self::new("127.0.0.1:1".parse().unwrap(), handler);
        let (state, tasks) = (Arc::clone(&server.state), server.tasks.clone());
        let accept = async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let state = Arc::clone(&state);
                tasks.spawn("connection", async move { state.serve(Box::new(stream)).await }).unwrap();
            }
        };
        server.tasks.spawn("accept", accept).unwrap();
        server
    }

    fn new(address: SocketAddr, handler: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        let state = StandInState {
            handler: Box::new(handler),
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
        };
        Self { address, state: Arc::new(state), tasks: TaskGroup::new(Clock::system(), 100) }
    }

    /// Heads of all requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.requests.lock().clone()
    }

    /// Number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }
}

impl StandInState {
    async fn serve(&self, mut stream: NetStream) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        while let Some(request) = read_head(&mut stream).await {
            let reply = (self.handler)(&request);
            self.requests.lock().push(request);
            if stream.write_all(&reply.bytes).await.is_err() || stream.flush().await.is_err() {
                return;
            }
            match reply.end {
                ReplyEnd::KeepOpen => {}
                ReplyEnd::Close => {
                    let _ = stream.shutdown().await;
                    return;
                }
                ReplyEnd::Hang => std::future::pending().await,
                ReplyEnd::Repeat => {
                    let last = vec![*reply.bytes.last().unwrap(); 4096];
                    while stream.write_all(&last).await.is_ok() {}
                    return;
                }
            }
        }
    }
}

async fn read_head(stream: &mut NetStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}
