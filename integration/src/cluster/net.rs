//! Simulated network of a test cluster, with partitions, delays and paused nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::net::{LocalNet, NetListener, NetStream};
use athanor_chassis::{Clock, Net};
use bytes::{Buf, Bytes};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Buffer of a delayed stream in each direction, in bytes.
const SLOW_STREAM_BUFFER_BYTES: usize = 64 << 10;
/// Loopback address with port 0: the system chooses a free port.
pub(super) const LOOPBACK_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// State of all links: partitions, delays, paused nodes and the owner of each address.
#[derive(Default)]
pub(super) struct SimulatedNetwork {
    state: Mutex<NetworkState>,
}

#[derive(Default)]
struct NetworkState {
    owners: BTreeMap<SocketAddr, String>,
    cut: BTreeSet<(String, String)>,
    held: BTreeSet<String>,
    slow: BTreeMap<(String, String), Duration>,
    waiting: Vec<Waker>,
}

impl NetworkState {
    fn is_connected(&self, from: &str, to: &str) -> bool {
        let way = (from.to_owned(), to.to_owned());
        !self.cut.contains(&way) && !self.held.contains(from) && !self.held.contains(to)
    }
}

impl SimulatedNetwork {
    pub(super) fn partition(&self, a: &str, b: &str) {
        self.state.lock().cut.extend([(a.to_owned(), b.to_owned()), (b.to_owned(), a.to_owned())]);
    }

    pub(super) fn slow(&self, a: &str, b: &str, delay: Duration) {
        let ways = [(a.to_owned(), b.to_owned()), (b.to_owned(), a.to_owned())];
        self.state.lock().slow.extend(ways.map(|way| (way, delay)));
    }

    pub(super) fn pause(&self, node: &str) {
        self.state.lock().held.insert(node.to_owned());
    }

    pub(super) fn resume(&self, node: &str) {
        let mut state = self.state.lock();
        state.held.remove(node);
        state.waiting.drain(..).for_each(Waker::wake);
    }

    pub(super) fn heal(&self) {
        let mut state = self.state.lock();
        state.cut.clear();
        state.held.clear();
        state.slow.clear();
        state.waiting.drain(..).for_each(Waker::wake);
    }

    fn owner(&self, at: SocketAddr) -> String {
        self.state.lock().owners.get(&at).cloned().unwrap_or_default()
    }

    fn poll_flows(&self, from: &str, to: &str, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.is_connected(from, to) {
            return Poll::Ready(());
        }
        state.waiting.push(context.waker().clone());
        Poll::Pending
    }

    fn is_connected(&self, from: &str, to: &str) -> bool {
        self.state.lock().is_connected(from, to)
    }

    fn delay(&self, from: &str, to: &str) -> Option<Duration> {
        self.state.lock().slow.get(&(from.to_owned(), to.to_owned())).copied()
    }
}

/// Network as seen from one node.
pub(super) struct FaultNet {
    pub(super) web: Arc<SimulatedNetwork>,
    pub(super) name: String,
    pub(super) local: LocalNet,
    pub(super) clock: Clock,
}

#[async_trait]
impl Net for FaultNet {
    async fn listen(&self, at: SocketAddr) -> io::Result<Box<dyn NetListener>> {
        let accept = self.local.listen(at).await?;
        self.web.state.lock().owners.insert(accept.local_address(), self.name.clone());
        Ok(accept)
    }

    async fn connect(&self, to: SocketAddr, limit: Duration) -> io::Result<NetStream> {
        let there = self.web.owner(to);
        if !self.web.is_connected(&self.name, &there) {
            self.clock.sleep(limit).await;
            return Err(io::Error::new(io::ErrorKind::TimedOut, "cut off"));
        }
        let stream = self.local.connect(to, limit).await?;
        let web = Arc::clone(&self.web);
        let clock = self.clock.clone();
        let here = self.name.clone();
        Ok(Box::new(FaultStream {
            stream,
            web,
            clock,
            here,
            there,
            coming: IncomingBytes::Nothing,
            going: None,
        }))
    }

    async fn resolve(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        self.local.resolve(name).await
    }
}

/// Stream between two nodes, as seen from the node that opened it.
struct FaultStream {
    stream: NetStream,
    web: Arc<SimulatedNetwork>,
    clock: Clock,
    here: String,
    there: String,
    coming: IncomingBytes,
    /// Delay that the next outgoing bytes wait for.
    going: Option<BoxFuture<'static, ()>>,
}

/// Received bytes that the reader has not consumed yet.
enum IncomingBytes {
    Nothing,
    Late(Bytes, BoxFuture<'static, ()>),
    Here(Bytes),
}

impl FaultStream {
    fn sleep(&self, delay: Duration) -> BoxFuture<'static, ()> {
        let clock = self.clock.clone();
        Box::pin(async move { clock.sleep(delay).await })
    }
}

impl AsyncRead for FaultStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            ready!(this.web.poll_flows(&this.there, &this.here, context));
            match &mut this.coming {
                IncomingBytes::Nothing => match this.web.delay(&this.there, &this.here) {
                    None => return Pin::new(&mut this.stream).poll_read(context, buffer),
                    Some(delay) => {
                        let mut bytes = vec![0; SLOW_STREAM_BUFFER_BYTES];
                        let mut read = ReadBuf::new(&mut bytes);
                        ready!(Pin::new(&mut this.stream).poll_read(context, &mut read))?;
                        let bytes = Bytes::copy_from_slice(read.filled());
                        this.coming = IncomingBytes::Late(bytes, this.sleep(delay));
                    }
                },
                IncomingBytes::Late(bytes, late) => {
                    ready!(late.as_mut().poll(context));
                    this.coming = IncomingBytes::Here(std::mem::take(bytes));
                }
                IncomingBytes::Here(bytes) => {
                    let count = bytes.len().min(buffer.remaining());
                    buffer.put_slice(&bytes[..count]);
                    bytes.advance(count);
                    if bytes.is_empty() {
                        this.coming = IncomingBytes::Nothing;
                    }
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for FaultStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.web.poll_flows(&this.here, &this.there, context));
        if let Some(delay) = this.web.delay(&this.here, &this.there)
            && this.going.is_none()
        {
            this.going = Some(this.sleep(delay));
        }
        if let Some(going) = &mut this.going {
            ready!(going.as_mut().poll(context));
        }
        let written = ready!(Pin::new(&mut this.stream).poll_write(context, bytes));
        this.going = None;
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
