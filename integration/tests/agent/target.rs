//! Target with two kinds of profiles: each CPU profile has a function of its own, and contentions are counted from the
//! start.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use athanor_chassis::{Clock, Random, Timestamp};
use athanor_integration::server::RESPONSE_DEADLINE;
use parking_lot::Mutex;

use crate::pprof::{CountedProfile, SAMPLE_NANOS};

const NANOS_PER_MILLI: i64 = 1_000_000;

/// CPU profile that the target sent.
#[derive(Clone, Copy, Debug)]
pub struct ServedProfile {
    /// Value in nanoseconds.
    pub value: i64,
    /// Time of the response by the monotonic clock. None if the connection ended before it.
    pub served: Option<Duration>,
}

/// Contentions since the start.
#[derive(Default)]
struct ContentionCount {
    count: u64,
    /// Contentions since the profile before, by the time of each profile in milliseconds.
    increments: BTreeMap<i64, u64>,
    is_frozen: bool,
}

struct TargetState {
    clock: Clock,
    random: Random,
    /// CPU profiles by number.
    profiles: Mutex<BTreeMap<u64, ServedProfile>>,
    next: AtomicU64,
    contentions: Mutex<ContentionCount>,
    /// True if profiles of contentions have a time. Otherwise the agent gives them the time of the scrape.
    has_mutex_times: bool,
    stopped: AtomicBool,
}

/// HTTP server with `/debug/pprof/profile` and `/debug/pprof/mutex`.
pub struct Target {
    state: Arc<TargetState>,
    address: SocketAddr,
}

impl Target {
    /// Starts a target at a free port of an address.
    pub fn start(clock: Clock, random: Random, ip: Ipv4Addr) -> Self {
        Self::listen(clock, random, ip, false)
    }

    /// Starts a target whose profiles of contentions have a time.
    pub fn start_with_mutex_times(clock: Clock, random: Random, ip: Ipv4Addr) -> Self {
        Self::listen(clock, random, ip, true)
    }

    fn listen(clock: Clock, random: Random, ip: Ipv4Addr, has_mutex_times: bool) -> Self {
        let listener = TcpListener::bind((ip, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(TargetState {
            clock,
            random,
            profiles: Mutex::default(),
            next: AtomicU64::new(0),
            contentions: Mutex::default(),
            has_mutex_times,
            stopped: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                if shared.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let state = Arc::clone(&shared);
                thread::spawn(move || client.and_then(|client| state.respond(client)));
            }
        });
        Self { state, address }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the CPU profiles that were sent so far.
    pub fn served_profiles(&self) -> BTreeMap<u64, ServedProfile> {
        self.state.profiles.lock().clone()
    }

    /// Returns the contentions since the profile before, by the time of each profile in milliseconds.
    pub fn contention_increments(&self) -> BTreeMap<i64, u64> {
        self.state.contentions.lock().increments.clone()
    }

    /// Ends the count of contentions and the CPU profiles. Returns the last count.
    pub fn freeze(&self) -> u64 {
        let mut contentions = self.state.contentions.lock();
        contentions.is_frozen = true;
        contentions.count
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

impl TargetState {
    fn respond(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_read_timeout(Some(RESPONSE_DEADLINE))?;
        let mut reader = BufReader::new(client.try_clone()?.take(64 * 1024));
        let mut request = String::new();
        reader.read_line(&mut request)?;
        let mut line = String::new();
        while reader.read_line(&mut line)? > 2 {
            line.clear();
        }
        if request.contains("/debug/pprof/profile") && !self.contentions.lock().is_frozen {
            return self.send_cpu_profile(&mut client);
        }
        if request.contains("/debug/pprof/mutex") {
            let (count, time) = self.count_contentions();
            let body = CountedProfile::mutex(count).encode_pprof(self.has_mutex_times.then_some(time));
            return send(&mut client, "200 OK", &body);
        }
        send(&mut client, "404 Not Found", b"no such profile\n")
    }

    fn send_cpu_profile(&self, client: &mut TcpStream) -> io::Result<()> {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let samples = 1 + self.random.next_below(1000) as i64;
        let value = samples * SAMPLE_NANOS;
        self.profiles.lock().insert(number, ServedProfile { value, served: None });
        let time = number.is_multiple_of(2).then(|| self.clock.wall());
        let body = CountedProfile::cpu(&format!("scraped{number}"), samples).encode_pprof(time);
        send(client, "200 OK", &body)?;
        let served = Some(self.clock.monotonic());
        self.profiles.lock().insert(number, ServedProfile { value, served });
        Ok(())
    }

    /// Returns the contentions so far, and the time of the profile in whole milliseconds, as queries have ranges in
    /// milliseconds.
    fn count_contentions(&self) -> (i64, Timestamp) {
        let mut contentions = self.contentions.lock();
        let millis = self.clock.wall().nanos() / NANOS_PER_MILLI;
        if !contentions.is_frozen {
            let increment = 1 + self.random.next_below(50);
            contentions.count += increment;
            *contentions.increments.entry(millis).or_default() += increment;
        }
        (contentions.count as i64, Timestamp::from_nanos(millis * NANOS_PER_MILLI))
    }
}

fn send(client: &mut TcpStream, status: &str, body: &[u8]) -> io::Result<()> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    client.write_all(head.as_bytes())?;
    client.write_all(body)
}
