//! A network of pipes in memory, of which each can be cut.

use std::collections::BTreeMap;
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

#[derive(Default)]
struct Inside {
    listeners: BTreeMap<SocketAddr, mpsc::Sender<(NetStream, SocketAddr)>>,
    last_port: u16,
    pipes: Vec<Arc<Fault>>,
}

/// What is wrong with a pipe.
#[derive(Default)]
struct Fault {
    broken: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Memory {
    /// Breaks all streams that are open; new ones can be opened.
    pub fn cut(&self) {
        for pipe in self.inside.lock().pipes.drain(..) {
            pipe.broken.store(true, Ordering::SeqCst);
            pipe.wakers.lock().drain(..).for_each(Waker::wake);
        }
    }

    pub fn open_streams(&self) -> usize {
        self.inside.lock().pipes.len()
    }
}

#[async_trait]
impl Net for Memory {
    async fn listen(&self, mut at: SocketAddr) -> io::Result<Box<dyn NetListener>> {
        let mut inside = self.inside.lock();
        if at.port() == 0 {
            inside.last_port += 1;
            at.set_port(inside.last_port);
        }
        let (opened, opening) = mpsc::channel(64);
        inside.listeners.insert(at, opened);
        Ok(Box::new(Listening { address: at, opening }))
    }

    async fn connect(&self, to: SocketAddr, _: Duration) -> io::Result<NetStream> {
        let mut inside = self.inside.lock();
        let Some(listener) = inside.listeners.get(&to) else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        let (here, there) = tokio::io::duplex(PIPE);
        let fault = Arc::new(Fault::default());
        let side = |inner| Box::new(Pipe { inner, fault: Arc::clone(&fault) });
        let (here, there) = (side(here), side(there));
        let refused = |_| io::Error::from(io::ErrorKind::ConnectionRefused);
        listener.try_send((there, to)).map_err(refused)?;
        inside.pipes.push(fault);
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
