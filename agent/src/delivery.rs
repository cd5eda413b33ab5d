//! Delivery of the spool of one server.
//!
//! ```text
//!  spool ─┬─ fresh delta files, first ──────────────┐
//!         ├─ backlog, at most half of the requests ─┼─► requests of a file, in order ─► server
//!         └─ lanes of cumulative files, one each ───┘              │
//!                    ▲                                             ├─ stored: unlink the file
//!                    └──── backoff ◄─── no final response ─────────┤
//!                                   refused/ ◄─── rejected, alone ─┘
//! ```
//!
//! A file is unlinked after the response to its last request. If one of its requests has no final response, the
//! whole file is sent again later, unchanged, and the server dedups what it has stored.
//!
//! While a server fails, a fresh file every few seconds probes whether it recovered, so fresh profiles do not wait
//! for the end of a long backoff. A probe does not wait for earlier ones, which may hang until their timeout. So do
//! cumulative files whose backoff is over. The backlog waits until a request succeeds.

mod compression;
mod connection;
mod file_delivery;
mod outcome;
mod server_health;
mod split;
mod spool_set;
#[cfg(test)]
pub(crate) mod test_server;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::Backoff;
use athanor_chassis::tasks::SpawnError;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::operator::views::ServerView;
use crate::spool::{DeliveryQueue, ServerSnapshot, Spool, SpoolEntry, SpoolRuntime};

pub use connection::{ClientConnection, DeliveryRequest, DeliveryResponse, ServerConnection};
pub use outcome::{ResponseClass, classify_failure};
use server_health::ServerHealth;
pub use spool_set::{SpoolSet, spool_collector};

/// Maximum number of requests with fresh files to one server.
const MAX_FRESH_REQUESTS: usize = 8;
/// Maximum number of requests with files of the backlog, which fresh files never use.
const MAX_BACKLOG_REQUESTS: usize = MAX_FRESH_REQUESTS / 2;
/// Maximum number of requests with files of cumulative profiles, each of another lane.
const MAX_CUMULATIVE_REQUESTS: usize = 4;
/// Maximum number of probes of a failing server. They do not count as other requests, because they may hang until
/// their timeout after the server has recovered.
const MAX_PROBE_REQUESTS: usize = 10;
/// Delays between the attempts to deliver one file.
const RETRY_BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60));
/// Delays after a response that concerns the access to the server and needs an operator.
const ACCESS_BACKOFF: Backoff = Backoff::constant(Duration::from_secs(60));
/// Delays of a file whose method the server does not have, such as OTLP.
const MISSING_METHOD_BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(60), Duration::from_secs(900));
/// Time that a stop waits for the delivery of a spool in memory, which ends with the process.
const MEMORY_STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two attempts of all files during such a stop, because no later attempt may follow.
const MEMORY_STOP_RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum delay that a server may request.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// Delivery of the spool of one server. Cheap to clone.
#[derive(Clone)]
pub struct Delivery {
    shared: Arc<DeliveryInner>,
}

struct DeliveryInner {
    spool: Spool,
    connection: Arc<dyn ServerConnection>,
    runtime: SpoolRuntime,
    health: Mutex<ServerHealth>,
}

/// Bound that a file in flight counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestSlot {
    Fresh,
    Backlog,
    Cumulative,
    /// Delta file that was taken while the server failed.
    Probe,
}

/// Files in flight by slot.
#[derive(Clone, Copy, Debug, Default)]
struct InFlightFiles {
    fresh: usize,
    backlog: usize,
    cumulative: usize,
    probes: usize,
}

/// Stop of the delivery of a spool in memory. Times are monotonic.
#[derive(Clone, Copy, Debug)]
struct MemoryStop {
    ends_at: Duration,
    retry_at: Duration,
}

// === impl MemoryStop ===

impl MemoryStop {
    fn new(now: Duration) -> Self {
        Self { ends_at: now.saturating_add(MEMORY_STOP_TIMEOUT), retry_at: now }
    }

    /// Returns whether all files are due now, and schedules the next time.
    fn is_retry_due(&mut self, now: Duration) -> bool {
        let is_due = self.retry_at <= now;
        if is_due {
            self.retry_at = now.saturating_add(MEMORY_STOP_RETRY_INTERVAL);
        }
        is_due
    }

    fn next_wake(&self) -> Duration {
        self.ends_at.min(self.retry_at)
    }
}

// === impl InFlightFiles ===

impl InFlightFiles {
    fn count_mut(&mut self, slot: RequestSlot) -> &mut usize {
        match slot {
            RequestSlot::Fresh => &mut self.fresh,
            RequestSlot::Backlog => &mut self.backlog,
            RequestSlot::Cumulative => &mut self.cumulative,
            RequestSlot::Probe => &mut self.probes,
        }
    }

    fn delta(&self) -> usize {
        self.fresh + self.backlog + self.probes
    }
}

// === impl Delivery ===

impl Delivery {
    /// Starts the delivery of a spool. It ends with the task group, and unfinished files stay in the spool. That of
    /// a spool in memory ends when the spool is empty, or after 10 s.
    ///
    /// # Errors
    ///
    /// The task group is full or closed.
    pub fn start(
        spool: Spool,
        connection: Arc<dyn ServerConnection>,
        runtime: SpoolRuntime,
    ) -> Result<Self, SpawnError> {
        let name = format!("delivery-{}", spool.server());
        let tasks = runtime.tasks.clone();
        let health = Mutex::new(ServerHealth::default());
        let delivery = Self { shared: Arc::new(DeliveryInner { spool, connection, runtime, health }) };
        tasks.spawn(name, delivery.clone().run(tasks.shutdown_token()))?;
        Ok(delivery)
    }

    /// Returns the spool.
    pub fn spool(&self) -> &Spool {
        &self.shared.spool
    }

    /// Returns the counters and the state of the spool.
    pub fn snapshot(&self) -> ServerSnapshot {
        self.shared.spool.snapshot()
    }

    /// Returns the state of the server and its spool for the pages and commands.
    pub fn view(&self) -> ServerView {
        let snapshot = self.snapshot();
        ServerView {
            name: snapshot.server,
            url: self.shared.connection.address(),
            spool_files: snapshot.spool_files,
            spool_bytes: snapshot.spool_bytes,
            oldest_age_seconds: (snapshot.spool_files > 0).then_some(snapshot.oldest_file_age.as_secs_f64()),
            sent_profiles: snapshot.sent_profiles,
            refused_profiles: snapshot.refused_profiles,
            dropped_profiles: snapshot.dropped_profiles.values().sum(),
            error: self.shared.health.lock().last_error().map(str::to_owned),
        }
    }

    /// Makes all files due now, without waiting for the end of a backoff.
    pub fn drain(&self) {
        self.shared.health.lock().end_delays();
        self.shared.spool.close_pending_files();
        self.shared.spool.end_delays();
    }

    async fn run(self, token: CancellationToken) {
        let clock = self.shared.runtime.clock.clone();
        let mut deliveries = FuturesUnordered::new();
        let mut in_flight = InFlightFiles::default();
        let mut memory_stop: Option<MemoryStop> = None;
        loop {
            if let Some(stop) = &mut memory_stop {
                let now = clock.monotonic();
                if stop.ends_at <= now || self.shared.spool.is_drained() {
                    return;
                }
                if stop.is_retry_due(now) {
                    self.drain();
                }
            }
            while let Some((slot, entry)) = self.take_next(in_flight) {
                *in_flight.count_mut(slot) += 1;
                let delivery = self.clone();
                deliveries.push(async move {
                    delivery.deliver_file(&entry).await;
                    slot
                });
            }
            let stop_wake = memory_stop.as_ref().map(MemoryStop::next_wake);
            let wake_at = self.next_wake().into_iter().chain(stop_wake).min();
            let timer = async {
                match wake_at {
                    Some(at) => clock.sleep(at.saturating_sub(clock.monotonic())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = token.cancelled(), if memory_stop.is_none() => {
                    if !self.shared.spool.is_in_memory() {
                        return;
                    }
                    memory_stop = Some(MemoryStop::new(clock.monotonic()));
                }
                Some(slot) = deliveries.next(), if !deliveries.is_empty() => *in_flight.count_mut(slot) -= 1,
                () = self.shared.spool.files_changed() => {}
                () = timer => {}
            }
        }
    }

    /// Takes the next file to send, if the server and the bounds of its slot allow a request.
    fn take_next(&self, in_flight: InFlightFiles) -> Option<(RequestSlot, SpoolEntry)> {
        let now = self.shared.runtime.clock.monotonic();
        let spool = &self.shared.spool;
        let mut health = self.shared.health.lock();
        if health.is_paused(now) {
            return None;
        }
        let is_failing = health.is_failing();
        let allows_fresh = match is_failing {
            true => in_flight.probes < MAX_PROBE_REQUESTS && health.allows_fresh_probe(now),
            false => in_flight.fresh < MAX_FRESH_REQUESTS,
        };
        if allows_fresh && let Some(entry) = spool.take(DeliveryQueue::Fresh) {
            return Some((health.begin_delta_request(RequestSlot::Fresh, now), entry));
        }
        let allows_cumulative = in_flight.cumulative < MAX_CUMULATIVE_REQUESTS
            && (!is_failing || health.allows_cumulative_probe(now));
        if allows_cumulative && let Some(entry) = spool.take(DeliveryQueue::Cumulative) {
            health.begin_cumulative_request(now);
            return Some((RequestSlot::Cumulative, entry));
        }
        let allows_backlog = match is_failing {
            true => in_flight.delta() == 0 && health.allows_backlog_probe(now),
            false => in_flight.backlog < MAX_BACKLOG_REQUESTS,
        };
        let entry = if allows_backlog { spool.take(DeliveryQueue::Backlog)? } else { return None };
        Some((health.begin_delta_request(RequestSlot::Backlog, now), entry))
    }

    /// Returns the next time at which a file may be taken that may not be taken now.
    fn next_wake(&self) -> Option<Duration> {
        let now = self.shared.runtime.clock.monotonic();
        let spool = &self.shared.spool;
        let delta_due = self.shared.health.lock().next_change(now).filter(|_| !spool.is_idle());
        delta_due.into_iter().chain(spool.next_due()).min()
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("spool", &self.shared.spool).finish()
    }
}
