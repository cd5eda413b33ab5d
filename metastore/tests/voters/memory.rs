//! A network of pipes in memory, where any two nodes can be cut from each other.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::Net;
use athanor_chassis::net::{NetListener, NetStream};
use athanor_cluster::NodeId;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::mpsc;

/// Bytes under way in one direction.
const PIPE: usize = 64 << 10;

/// Cheap to clone; clones are one network.
#[derive(Clone, Default)]
pub struct Memory {
    inside: Arc<Mutex<Inside>>,
}

/// One node's way into it.
pub struct Port {
    memory: Memory,
    node: NodeId,
}

#[derive(Default)]
struct Inside {
    listeners: BTreeMap<SocketAddr, mpsc::Sender<(NetStream, SocketAddr)>>,
    cuts: BTreeSet<(NodeId, NodeId)>,
    pipes: Vec<((NodeId, NodeId), Arc<Fault>)>,
}

/// What is wrong with a pipe.
#[derive(Default)]
struct Fault {
    broken: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

/// Where a node takes calls.
pub fn address(node: NodeId) -> SocketAddr {
    ([127, 0, 0, node as u8], 9095).into()
}

fn node_at(address: SocketAddr) -> NodeId {
    match address {
        SocketAddr::V4(v4) => NodeId::from(v4.ip().octets()[3]),
        SocketAddr::V6(_) => 0,
    }
}

fn pair(one: NodeId, other: NodeId) -> (NodeId, NodeId) {
    (one.min(other), one.max(other))
}

impl Memory {
    pub fn port(&self, node: NodeId) -> Port {
        Port { memory: self.clone(), node }
    }

    /// Two nodes do not reach each other any more.
    pub fn cut(&self, one: NodeId, other: NodeId) {
        let pair = pair(one, other);
        self.inside.lock().cuts.insert(pair);
        self.break_pipes(|between| between == pair);
    }

    /// All reach all.
    pub fn heal(&self) {
        self.inside.lock().cuts.clear();
    }

    /// A node is gone.
    pub fn gone(&self, node: NodeId) {
        self.inside.lock().listeners.remove(&address(node));
        self.break_pipes(|(one, other)| one == node || other == node);
    }

    fn break_pipes(&self, broken: impl Fn((NodeId, NodeId)) -> bool) {
        self.inside.lock().pipes.retain(|(between, pipe)| {
            if broken(*between) {
                pipe.broken.store(true, Ordering::SeqCst);
                pipe.wakers.lock().drain(..).for_each(Waker::wake);
            }
            !broken(*between)
        });
    }
}

#[async_trait]
impl Net for Port {
    async fn listen(&self, at: SocketAddr) -> io::Result<Box<dyn NetListener>> {
        let (opened, opening) = mpsc::channel(64);
        self.memory.inside.lock().listeners.insert(at, opened);
        Ok(Box::new(Listening { address: at, opening }))
    }

    async fn connect(&self, to: SocketAddr, _: Duration) -> io::Result<NetStream> {
        let mut inside = self.memory.inside.lock();
        let between = pair(self.node, node_at(to));
        let listener = inside.listeners.get(&to).filter(|_| !inside.cuts.contains(&between));
        let Some(listener) = listener else { return Err(io::ErrorKind::ConnectionRefused.into()) };
        let (here, there) = tokio::io::duplex(PIPE);
        let fault = Arc::new(Fault::default());
        let side = |inner| Box::new(Pipe { inner, fault: Arc::clone(&fault) });
        let (here, there) = (side(here), side(there));
        let refused = |_| io::Error::from(io::ErrorKind::ConnectionRefused);
        listener.try_send((there, to)).map_err(refused)?;
        inside.pipes.push((between, fault));
        Ok(here)
    }

    async fn resolve(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![name.parse().map_err(io::Error::other)?])
    }
}

struct Listening {
    address: SocketAddr,
    opening: mpsc::Receiver<(NetStream, SocketAddr)>,
}

impl NetListener for Listening {
    fn local_address(&self) -> SocketAddr {
        self.address
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<(NetStream, SocketAddr)>> {
        self.opening.poll_recv(context).map(|opened| opened.ok_or(io::ErrorKind::NotConnected.into()))
    }
}

struct Pipe {
    inner: DuplexStream,
    fault: Arc<Fault>,
}

impl Pipe {
    fn check(&self, context: &Context<'_>) -> io::Result<()> {
        if self.fault.broken.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let mut wakers = self.fault.wakers.lock();
        if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            wakers.push(context.waker().clone());
        }
        Ok(())
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
