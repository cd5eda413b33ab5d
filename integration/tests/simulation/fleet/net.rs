//! The network between machines: streams that are slow, mute while their ends are cut off, and reset when a process
//! ends; datagrams that are lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::net::{Net, NetListener, NetStream};
use athanor_chassis::{Clock, Random};
use athanor_profile::encoding::hash;
use bytes::{Buf, Bytes};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::world::{Death, World};

/// Bytes that may be under way in a stream.
const WINDOW: usize = 256 << 10;
/// The fastest that anything arrives.
const LEAST: u64 = 200;

/// All wires of a seed. Cheap to clone.
#[derive(Clone)]
pub struct Wires {
    clock: Clock,
    random: Random,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// From, to.
    cut: BTreeSet<(IpAddr, IpAddr)>,
    /// Microseconds that something may be under way at the most, where that is not as usual.
    slow: BTreeMap<(IpAddr, IpAddr), u64>,
    listeners: BTreeMap<SocketAddr, Arc<Mutex<Backlog>>>,
    pipes: Vec<Arc<Mutex<Pipe>>>,
    /// Machines that lost their power: nobody is told.
    dark: BTreeSet<IpAddr>,
    /// Machines whose process is paused, and until when.
    paused: BTreeMap<IpAddr, Duration>,
}

/// The address of a machine.
pub fn address(machine: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, machine))
}

impl Wires {
    pub fn new(clock: Clock, random: Random) -> Self {
        Self { clock, random, state: Arc::default() }
    }

    /// What one sends does not reach the other.
    pub fn cut(&self, from: IpAddr, to: IpAddr) {
        self.state.lock().cut.insert((from, to));
    }

    /// Whatever goes between these may take so long.
    pub fn slow(&self, from: IpAddr, to: IpAddr, most: Duration) {
        self.state.lock().slow.insert((from, to), most.as_micros() as u64);
    }

    /// What a machine says is said then, and what comes to it is heard then.
    pub fn pause(&self, machine: IpAddr, until: Duration) {
        self.state.lock().paused.insert(machine, until);
    }

    /// From when on a machine says and hears anything: now, where it is not paused.
    pub fn awake(&self, machine: IpAddr) -> Duration {
        let until = self.state.lock().paused.get(&machine).copied().unwrap_or_default();
        until.max(self.clock.monotonic())
    }

    /// All is as it should be; what was lost in streams is sent again.
    pub fn heal(&self) {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        state.cut.clear();
        state.slow.clear();
        for pipe in &state.pipes {
            let again = now + Duration::from_millis(1 + self.random.next_below(400));
            pipe.lock().resend(again);
        }
    }

    /// A process ends. Others are told at once, unless the machine lost its power.
    pub fn end(&self, machine: IpAddr, death: Death) {
        let mut state = self.state.lock();
        state.listeners.retain(|at, _| at.ip() != machine);
        if death == Death::Power {
            state.dark.insert(machine);
        }
        for pipe in &state.pipes {
            let mut pipe = pipe.lock();
            // Its own ends are dead in any case: its ghosts hear and say nothing.
            if pipe.from == machine || pipe.to == machine {
                let told = death == Death::Kill;
                pipe.reader_is_dead |= pipe.to == machine || told;
                pipe.writer_is_dead |= pipe.from == machine || told;
                pipe.wake();
            }
        }
        state.pipes.retain(|pipe| Arc::strong_count(pipe) > 1);
    }

    /// A machine has power again: whoever still writes to what it was is reset.
    pub fn begin(&self, machine: IpAddr) {
        let mut state = self.state.lock();
        state.dark.remove(&machine);
        state.paused.remove(&machine);
        for pipe in &state.pipes {
            let mut pipe = pipe.lock();
            if pipe.from == machine || pipe.to == machine {
                (pipe.reader_is_dead, pipe.writer_is_dead) = (true, true);
                pipe.wake();
            }
        }
    }

    /// Whether anything of that arrives.
    pub fn flows(&self, from: IpAddr, to: IpAddr) -> bool {
        let state = self.state.lock();
        !state.cut.contains(&(from, to)) && !state.dark.contains(&to)
    }

    /// How long something is under way now.
    pub fn latency(&self, from: IpAddr, to: IpAddr) -> Duration {
        let most = self.state.lock().slow.get(&(from, to)).copied().unwrap_or(3_000);
        Duration::from_micros(LEAST + self.random.next_below(most))
    }

    fn pipe(&self, from: IpAddr, to: IpAddr) -> Arc<Mutex<Pipe>> {
        let pipe = Arc::new(Mutex::new(Pipe::between(from, to)));
        self.state.lock().pipes.push(Arc::clone(&pipe));
        pipe
    }
}

/// One direction of a stream.
struct Pipe {
    from: IpAddr,
    to: IpAddr,
    /// Each with when it arrives; none for what was lost on the way, until the way is open again.
    queue: VecDeque<(Option<Duration>, Bytes)>,
    last: Duration,
    bytes: usize,
    is_ended: bool,
    reader_is_dead: bool,
    writer_is_dead: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn between(from: IpAddr, to: IpAddr) -> Self {
        Self {
            from,
            to,
            queue: VecDeque::new(),
            last: Duration::ZERO,
            bytes: 0,
            is_ended: false,
            reader_is_dead: false,
            writer_is_dead: false,
            reader: None,
            writer: None,
        }
    }

    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }

    fn resend(&mut self, again: Duration) {
        let again = again.max(self.last);
        let lost = self.queue.iter_mut().filter(|(at, _)| at.is_none());
        let mut any = false;
        lost.for_each(|(at, _)| (*at, any) = (Some(again), true));
        if any {
            self.last = again;
            self.wake();
        }
    }
}

/// One end of a stream.
struct End {
    wires: Wires,
    world: World,
    hears: Arc<Mutex<Pipe>>,
    says: Arc<Mutex<Pipe>>,
    /// Rings when the next bytes arrive.
    alarm: Option<(Duration, BoxFuture<'static, ()>)>,
}

impl Drop for End {
    fn drop(&mut self) {
        let mut hears = self.hears.lock();
        hears.writer_is_dead = true;
        hears.wake();
        drop(hears);
        let mut says = self.says.lock();
        says.is_ended = true;
        says.wake();
    }
}

impl AsyncRead for End {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            let now = this.wires.clock.monotonic();
            let machine = this.hears.lock().to;
            let awake = this.wires.awake(machine);
            let mut pipe = this.hears.lock();
            if pipe.reader_is_dead {
                return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
            }
            pipe.reader = Some(context.waker().clone());
            let at = match pipe.queue.front() {
                None if pipe.is_ended => return Poll::Ready(Ok(())),
                None | Some((None, _)) => return Poll::Pending,
                Some((Some(at), _)) if awake > now => awake.max(*at),
                Some((Some(at), _)) => *at,
            };
            if at <= now {
                let Some((_, bytes)) = pipe.queue.front_mut() else { return Poll::Pending };
                let count = bytes.len().min(buffer.remaining());
                buffer.put_slice(&bytes[..count]);
                bytes.advance(count);
                if bytes.is_empty() {
                    pipe.queue.pop_front();
                }
                pipe.bytes -= count;
                pipe.writer.take().into_iter().for_each(Waker::wake);
                return Poll::Ready(Ok(()));
            }
            drop(pipe);
            if this.alarm.as_ref().is_none_or(|(rings, _)| *rings != at) {
                let clock = this.wires.clock.clone();
                this.alarm = Some((at, Box::pin(async move { clock.sleep(at - now).await })));
            }
            let Some((_, alarm)) = &mut this.alarm else { return Poll::Pending };
            if alarm.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            this.alarm = None;
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let (from, to) = {
            let mut pipe = self.says.lock();
            if pipe.writer_is_dead {
                return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
            }
            if pipe.bytes >= WINDOW {
                pipe.writer = Some(context.waker().clone());
                return Poll::Pending;
            }
            (pipe.from, pipe.to)
        };
        let arrives = self.wires.flows(from, to);
        let at = arrives.then(|| self.wires.awake(from) + self.wires.latency(from, to));
        let mut pipe = self.says.lock();
        // In order: behind what is lost nothing arrives.
        let blocked = pipe.queue.back().is_some_and(|(at, _)| at.is_none());
        let at = at.filter(|_| !blocked).map(|at| at.max(pipe.last));
        pipe.last = at.unwrap_or(pipe.last);
        let bytes = &bytes[..bytes.len().min(WINDOW - pipe.bytes)];
        pipe.bytes += bytes.len();
        pipe.queue.push_back((at, Bytes::copy_from_slice(bytes)));
        pipe.reader.take().into_iter().for_each(Waker::wake);
        self.world.tell(format_args!("to {to} {} {:032x} {at:?}", bytes.len(), hash::hash_bytes(bytes)));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.says.lock();
        pipe.is_ended = true;
        pipe.wake();
        Poll::Ready(Ok(()))
    }
}

#[derive(Default)]
struct Backlog {
    waiting: VecDeque<(End, SocketAddr)>,
    waker: Option<Waker>,
}

/// An address that was taken.
struct Taken {
    at: SocketAddr,
    backlog: Arc<Mutex<Backlog>>,
    wires: Wires,
}

impl NetListener for Taken {
    fn local_address(&self) -> SocketAddr {
        self.at
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<(NetStream, SocketAddr)>> {
        let mut backlog = self.backlog.lock();
        backlog.waker = Some(context.waker().clone());
        match backlog.waiting.pop_front() {
            Some((end, from)) => Poll::Ready(Ok((Box::new(end), from))),
            None => Poll::Pending,
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut state = self.wires.state.lock();
        // Another process may have taken it since.
        if state.listeners.get(&self.at).is_some_and(|backlog| Arc::ptr_eq(backlog, &self.backlog)) {
            state.listeners.remove(&self.at);
        }
    }
}

/// The network, as one process has it.
pub struct SimNet {
    pub wires: Wires,
    pub machine: IpAddr,
    pub world: World,
    pub boot: u64,
}

impl SimNet {
    fn dead(&self) -> io::Result<()> {
        match self.world.is_over(self.boot) {
            true => Err(io::Error::other("this process is dead")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Net for SimNet {
    async fn listen(&self, at: SocketAddr) -> io::Result<Box<dyn NetListener>> {
        self.dead()?;
        let at = SocketAddr::new(self.machine, at.port());
        let backlog = Arc::<Mutex<Backlog>>::default();
        let mut state = self.wires.state.lock();
        if state.listeners.contains_key(&at) {
            return Err(ErrorKind::AddrInUse.into());
        }
        state.listeners.insert(at, Arc::clone(&backlog));
        Ok(Box::new(Taken { at, backlog, wires: self.wires.clone() }))
    }

    async fn connect(&self, to: SocketAddr, limit: Duration) -> io::Result<NetStream> {
        self.dead()?;
        let (wires, here, there) = (&self.wires, self.machine, to.ip());
        wires.clock.sleep(wires.awake(here) - wires.clock.monotonic()).await;
        if !wires.flows(here, there) || !wires.flows(there, here) {
            wires.clock.sleep(limit).await;
            return Err(io::Error::new(ErrorKind::TimedOut, "nobody answers"));
        }
        wires.clock.sleep(wires.latency(here, there) + wires.latency(there, here)).await;
        self.dead()?;
        let backlog = wires.state.lock().listeners.get(&to).cloned().ok_or(ErrorKind::ConnectionRefused)?;
        let (said, heard) = (wires.pipe(here, there), wires.pipe(there, here));
        let end = |hears: &Arc<Mutex<Pipe>>, says: &Arc<Mutex<Pipe>>| End {
            wires: wires.clone(),
            world: self.world.clone(),
            hears: Arc::clone(hears),
            says: Arc::clone(says),
            alarm: None,
        };
        let mut backlog = backlog.lock();
        backlog.waiting.push_back((end(&said, &heard), SocketAddr::new(here, 1024)));
        backlog.waker.take().into_iter().for_each(Waker::wake);
        Ok(Box::new(end(&heard, &said)))
    }

    async fn resolve(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let address = name.parse().map_err(|_| io::Error::new(ErrorKind::NotFound, "no such name"))?;
        Ok(vec![address])
    }
}
