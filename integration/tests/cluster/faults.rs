//! A network whose nodes can be cut off from each other.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::net::{Accept, LocalNet, Stream};
use athanor_chassis::{Clock, Net};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Who cannot hear whom, and who listens where.
#[derive(Default)]
pub struct Web {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    owners: BTreeMap<SocketAddr, String>,
    cut: BTreeSet<(String, String)>,
    waiting: Vec<Waker>,
}

impl Web {
    /// Bytes between two nodes wait from now on.
    pub fn cut(&self, a: &str, b: &str) {
        let mut state = self.state.lock().unwrap();
        state.cut.insert((a.to_owned(), b.to_owned()));
        state.cut.insert((b.to_owned(), a.to_owned()));
    }

    /// They flow again, between all.
    pub fn heal(&self) {
        let mut state = self.state.lock().unwrap();
        state.cut.clear();
        state.waiting.drain(..).for_each(Waker::wake);
    }

    fn owner(&self, at: SocketAddr) -> String {
        self.state.lock().unwrap().owners.get(&at).cloned().unwrap_or_default()
    }

    fn flows(&self, from: &str, to: &str, context: &mut Context<'_>) -> bool {
        let mut state = self.state.lock().unwrap();
        if !state.cut.contains(&(from.to_owned(), to.to_owned())) {
            return true;
        }
        state.waiting.push(context.waker().clone());
        false
    }

    fn is_cut(&self, from: &str, to: &str) -> bool {
        self.state.lock().unwrap().cut.contains(&(from.to_owned(), to.to_owned()))
    }
}

/// The network as one node has it.
pub struct FaultNet {
    pub web: Arc<Web>,
    pub name: String,
    pub local: LocalNet,
    pub clock: Clock,
}

#[async_trait]
impl Net for FaultNet {
    async fn listen(&self, at: SocketAddr) -> io::Result<Box<dyn Accept>> {
        let accept = self.local.listen(at).await?;
        self.web.state.lock().unwrap().owners.insert(accept.address(), self.name.clone());
        Ok(accept)
    }

    async fn connect(&self, to: SocketAddr, limit: Duration) -> io::Result<Stream> {
        let there = self.web.owner(to);
        if self.web.is_cut(&self.name, &there) {
            self.clock.sleep(limit).await;
            return Err(io::Error::new(io::ErrorKind::TimedOut, "cut off"));
        }
        let stream = self.local.connect(to, limit).await?;
        Ok(Box::new(Thread { stream, web: Arc::clone(&self.web), here: self.name.clone(), there }))
    }

    async fn resolve(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        self.local.resolve(name).await
    }
}

/// A stream between two nodes, as the one that opened it has it.
struct Thread {
    stream: Stream,
    web: Arc<Web>,
    here: String,
    there: String,
}

impl AsyncRead for Thread {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.web.flows(&self.there, &self.here, context) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Thread {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.web.flows(&self.here, &self.there, context) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// An address of this machine that any port may be had of.
pub const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
