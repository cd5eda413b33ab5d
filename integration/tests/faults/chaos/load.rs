//! Clients that push all the time, and some who ask.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use athanor_chassis::{Clock, Random};
use parking_lot::{Mutex, MutexGuard};

use crate::chaos::http::post;
use crate::chaos::ledger::{Ledger, SERVICES, Took, Upload};
use crate::chaos::oracle::ask;
use crate::chaos::process::Process;

const CLIENTS: usize = 6;
const WATCHERS: usize = 2;
/// Between two uploads of a client, so that what is asked for stays of a size.
const PACE: Duration = Duration::from_millis(30);
/// Between two tries of an upload, and two questions.
const AGAIN: Duration = Duration::from_millis(50);
/// For an upload, from its first try on. Long: a test that is slow proves nothing.
const PATIENCE: Duration = Duration::from_secs(180);

/// The clients, and what they know together.
pub struct Load {
    clock: Clock,
    distributors: Vec<SocketAddr>,
    queriers: Vec<SocketAddr>,
    ledger: Mutex<Ledger>,
    /// A client has failed.
    broken: AtomicBool,
    pub answers: AtomicUsize,
    pub partial: AtomicUsize,
    pub refused: AtomicUsize,
}

/// Tells the others when a client fails.
struct Watched<'a>(&'a AtomicBool);

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

impl Load {
    pub fn new(clock: Clock, processes: &[Process]) -> Self {
        let of = |role: &str| {
            processes.iter().filter(|process| process.role == role).map(|process| process.address).collect()
        };
        Self {
            clock,
            distributors: of("distributor"),
            queriers: of("querier"),
            ledger: Mutex::default(),
            broken: AtomicBool::new(false),
            answers: AtomicUsize::new(0),
            partial: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
        }
    }

    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock()
    }

    pub fn queriers(&self) -> &[SocketAddr] {
        &self.queriers
    }

    /// In seconds.
    pub fn now(&self) -> u64 {
        self.clock.wall().nanos() as u64 / 1_000_000_000
    }

    /// Fails where a client has.
    pub fn check(&self) {
        assert!(!self.broken.load(Ordering::Relaxed), "a client has failed, see above");
    }

    /// Does something under load. Afterwards nothing is under way.
    #[expect(clippy::disallowed_methods, reason = "a test whose clients wait for servers")]
    pub fn during(&self, random: &Random, work: impl FnOnce()) {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for client in 0..CLIENTS + WATCHERS {
                let (random, stop) = (random.split(), &stop);
                scope.spawn(move || {
                    let _watched = Watched(&self.broken);
                    match client < CLIENTS {
                        true => self.client(&random, stop),
                        false => self.watcher(&random, stop),
                    }
                });
            }
            // Clients end also where the work fails.
            let _stopping = Stopping(&stop);
            work();
        });
        self.check();
    }

    fn is_over(&self, stop: &AtomicBool) -> bool {
        stop.load(Ordering::Relaxed) || self.broken.load(Ordering::Relaxed)
    }

    fn client(&self, random: &Random, stop: &AtomicBool) {
        let mut favourite = random.next_below(self.distributors.len() as u64) as usize;
        while !self.is_over(stop) {
            if random.next_below(20) == 0 {
                favourite = random.next_below(self.distributors.len() as u64) as usize;
            }
            let upload = self.ledger().next(random, self.now());
            self.push(&upload, &mut favourite);
            thread::sleep(PACE);
        }
    }

    /// Sends an upload until it is acknowledged, each time to another distributor.
    fn push(&self, upload: &Upload, favourite: &mut usize) {
        let (path, body) = (upload.path(), upload.body());
        let begun = self.clock.monotonic();
        loop {
            let sent = post(self.distributors[*favourite], &path, "text/plain", &body);
            let acknowledged = self.clock.monotonic();
            let why = match sent {
                Ok(answer) if answer.status == 200 => {
                    return self.ledger().acknowledge(upload, Took { begun, acknowledged });
                }
                Ok(answer) if answer.is_for_later() => format!("{}: {}", answer.status, answer.body),
                Ok(answer) => panic!("{upload:?} is refused with {}: {}", answer.status, answer.body),
                Err(error) => error.to_string(),
            };
            if upload.is_sent_once() && !upload.is_acknowledged() {
                return self.ledger().give_up(upload);
            }
            assert!(acknowledged - begun < PATIENCE, "{upload:?} is not acknowledged: {why}");
            if self.broken.load(Ordering::Relaxed) {
                return;
            }
            self.ledger().retries += 1;
            *favourite = (*favourite + 1) % self.distributors.len();
            thread::sleep(AGAIN);
        }
    }

    /// Asks all the time: never more than was sent, and what is not called partial is never less than what was
    /// acknowledged before.
    fn watcher(&self, random: &Random, stop: &AtomicBool) {
        while !self.is_over(stop) {
            thread::sleep(AGAIN);
            let querier = self.queriers[random.next_below(self.queriers.len() as u64) as usize];
            let service = random.next_below(SERVICES as u64) as usize;
            let (least, _) = self.ledger().bounds(service);
            let Ok(held) = ask(querier, service, self.now()) else {
                self.refused.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let (_, most) = self.ledger().bounds(service);
            let total: i64 = held.values.values().sum();
            let partial = held.partial;
            assert!(
                total <= most && (partial.is_some() || total >= least),
                "service{service} at {querier}: {total} of {least} acknowledged and {most} sent, partial: {partial:?}"
            );
            self.answers.fetch_add(1, Ordering::Relaxed);
            self.partial.fetch_add(usize::from(partial.is_some()), Ordering::Relaxed);
        }
    }
}

struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
