//! Network in memory, for tests: streams between hosts that can be partitioned from each other.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::mpsc;

use super::{Net, NetListener, NetStream};

/// Bytes in flight in one direction of a stream.
const STREAM_BUFFER_BYTES: usize = 64 << 10;
/// Streams that wait for a listener to accept them.
const MAX_WAITING_STREAMS: usize = 64;

/// Network in memory. Cheap to clone: clones are one network. As a [`Net`] it is that of the local host.
#[derive(Clone, Default)]
pub struct MemoryNet {
    state: Arc<Mutex<MemoryNetState>>,
}

/// Network as seen from one host.
#[derive(Clone)]
pub struct MemoryHost {
    net: MemoryNet,
    address: IpAddr,
}

/// Two hosts, in the order of their addresses.
type HostPair = (IpAddr, IpAddr);

#[derive(Default)]
struct MemoryNetState {
    listeners: BTreeMap<SocketAddr, mpsc::Sender<(NetStream, SocketAddr)>>,
    last_port: u16,
    partitions: BTreeSet<HostPair>,
    streams: Vec<(HostPair, Arc<StreamFault>)>,
}

/// Fault that both ends of a stream share.
#[derive(Default)]
struct StreamFault {
    is_broken: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

struct MemoryListener {
    address: SocketAddr,
    opened: mpsc::Receiver<(NetStream, SocketAddr)>,
}

/// One end of a stream.
struct MemoryStream {
    inner: DuplexStream,
    fault: Arc<StreamFault>,
}

impl MemoryNet {
    /// Returns the network as seen from a host.
    pub fn host(&self, address: IpAddr) -> MemoryHost {
        MemoryHost { net: self.clone(), address }
    }

    /// Breaks the streams between two hosts, and rejects new ones.
    pub fn partition(&self, one: IpAddr, other: IpAddr) {
        let pair = host_pair(one, other);
        self.state.lock().partitions.insert(pair);
        self.break_streams_of(|hosts| hosts == pair);
    }

    /// Ends all partitions. Broken streams stay broken.
    pub fn heal(&self) {
        self.state.lock().partitions.clear();
    }

    /// Closes the listeners of a host and breaks its streams.
    pub fn stop_host(&self, host: IpAddr) {
        self.state.lock().listeners.retain(|at, _| at.ip() != host);
        self.break_streams_of(|(one, other)| one == host || other == host);
    }

    /// Breaks all open streams. New ones can be opened.
    pub fn break_streams(&self) {
        self.break_streams_of(|_| true);
    }

    /// Returns the number of streams that were opened and not broken.
    pub fn stream_count(&self) -> usize {
        self.state.lock().streams.len()
    }

    fn break_streams_of(&self, is_affected: impl Fn(HostPair) -> bool) {
        self.state.lock().streams.retain(|(hosts, fault)| {
            let is_broken = is_affected(*hosts);
            if is_broken {
                fault.is_broken.store(true, Ordering::SeqCst);
                fault.wakers.lock().drain(..).for_each(Waker::wake);
            }
            !is_broken
        });
    }
}

fn host_pair(one: IpAddr, other: IpAddr) -> HostPair {
    (one.min(other), one.max(other))
}

#[async_trait]
impl Net for MemoryNet {
    async fn listen(&self, at: SocketAddr) -> io::Result<Box<dyn NetListener>> {
        self.host(Ipv4Addr::LOCALHOST.into()).listen(at).await
    }

    async fn connect(&self, to: SocketAddr, limit: Duration) -> io::Result<NetStream> {
        self.host(Ipv4Addr::LOCALHOST.into()).connect(to, limit).await
    }

    async fn resolve(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        self.host(Ipv4Addr::LOCALHOST.into()).resolve(name).await
    }
}

#[async_trait]
impl Net for MemoryHost {
    async fn listen(&self, mut at: SocketAddr) -> io::Result<Box<dyn NetListener>> {
        let mut state = self.net.state.lock();
        if at.port() == 0 {
            state.last_port += 1;
            at.set_port(state.last_port);
        }
        let (sender, opened) = mpsc::channel(MAX_WAITING_STREAMS);
        state.listeners.insert(at, sender);
        Ok(Box::new(MemoryListener { address: at, opened }))
    }

    async fn connect(&self, to: SocketAddr, _: Duration) -> io::Result<NetStream> {
        let mut state = self.net.state.lock();
        let hosts = host_pair(self.address, to.ip());
        let listener = state.listeners.get(&to).filter(|_| !state.partitions.contains(&hosts));
        let Some(listener) = listener else { return Err(io::ErrorKind::ConnectionRefused.into()) };
        let (here, there) = tokio::io::duplex(STREAM_BUFFER_BYTES);
        let fault = Arc::new(StreamFault::default());
        let here = Box::new(MemoryStream { inner: here, fault: Arc::clone(&fault) });
        let there = Box::new(MemoryStream { inner: there, fault: Arc::clone(&fault) });
        let sent = listener.try_send((there, to));
        sent.map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
        state.streams.push((hosts, fault));
        Ok(here)
    }

    async fn resolve(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![name.parse().map_err(io::Error::other)?])
    }
}

impl NetListener for MemoryListener {
    fn local_address(&self) -> SocketAddr {
        self.address
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<(NetStream, SocketAddr)>> {
        self.opened.poll_recv(context).map(|opened| opened.ok_or(io::ErrorKind::NotConnected.into()))
    }
}

impl StreamFault {
    fn check(&self, context: &Context<'_>) -> io::Result<()> {
        if self.is_broken.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let mut wakers = self.wakers.lock();
        if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            wakers.push(context.waker().clone());
        }
        Ok(())
    }
}

impl AsyncRead for MemoryStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.fault.check(context)?;
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl AsyncWrite for MemoryStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.fault.check(context)?;
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
