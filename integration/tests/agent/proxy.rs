//! Network between the agent and the server, with faults: partitions and lost responses.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

const BUFFER_BYTES: usize = 16 * 1024;

/// State of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkFault {
    /// All bytes pass.
    None,
    /// No byte passes, and connections stay open.
    Partition,
    /// Requests reach the server. Its responses are lost, and the connection ends.
    LostResponses,
}

struct ProxyState {
    upstream: Mutex<SocketAddr>,
    fault: Mutex<NetworkFault>,
    changed: Condvar,
    lost_responses: AtomicU64,
    stopped: AtomicBool,
}

/// TCP proxy with a stable address in front of a server that restarts at other ports.
pub struct Proxy {
    state: Arc<ProxyState>,
    address: SocketAddr,
}

impl Proxy {
    /// Starts a proxy at a free port of an address.
    pub fn start(upstream: SocketAddr, ip: Ipv4Addr) -> Self {
        let listener = TcpListener::bind((ip, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(ProxyState {
            upstream: Mutex::new(upstream),
            fault: Mutex::new(NetworkFault::None),
            changed: Condvar::new(),
            lost_responses: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                if shared.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let state = Arc::clone(&shared);
                thread::spawn(move || client.and_then(|client| forward(&state, client)));
            }
        });
        Self { state, address }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn set_upstream(&self, upstream: SocketAddr) {
        *self.state.upstream.lock() = upstream;
    }

    pub fn set_fault(&self, fault: NetworkFault) {
        *self.state.fault.lock() = fault;
        self.state.changed.notify_all();
    }

    /// Returns the number of responses that were lost so far.
    pub fn lost_responses(&self) -> u64 {
        self.state.lost_responses.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::Relaxed);
        self.set_fault(NetworkFault::None);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

impl ProxyState {
    /// Waits while the network is partitioned. Returns the fault after it.
    fn wait_for_network(&self) -> NetworkFault {
        let mut fault = self.fault.lock();
        while *fault == NetworkFault::Partition && !self.stopped.load(Ordering::Relaxed) {
            self.changed.wait(&mut fault);
        }
        *fault
    }
}

fn forward(state: &Arc<ProxyState>, client: TcpStream) -> io::Result<()> {
    state.wait_for_network();
    let upstream = *state.upstream.lock();
    let server = TcpStream::connect(upstream)?;
    let [client_reader, server_writer] = [client.try_clone()?, server.try_clone()?];
    let requests = Arc::clone(state);
    thread::spawn(move || copy_requests(&requests, client_reader, server_writer));
    copy_responses(state, server, client)
}

fn copy_requests(state: &ProxyState, mut from: TcpStream, mut to: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).unwrap_or(0);
        state.wait_for_network();
        if count == 0 || to.write_all(&buffer[..count]).is_err() {
            return to.shutdown(Shutdown::Both);
        }
    }
}

fn copy_responses(state: &ProxyState, mut from: TcpStream, mut to: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).unwrap_or(0);
        let is_lost = state.wait_for_network() == NetworkFault::LostResponses && count > 0;
        state.lost_responses.fetch_add(u64::from(is_lost), Ordering::Relaxed);
        if count == 0 || is_lost || to.write_all(&buffer[..count]).is_err() {
            from.shutdown(Shutdown::Both)?;
            return to.shutdown(Shutdown::Both);
        }
    }
}
