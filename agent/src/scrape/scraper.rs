//! Scraper: runs the schedule, and passes each profile to the sink once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::observability::histogram::HistogramSnapshot;
use athanor_chassis::{Clock, Histogram, Random, TaskGroup};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::scrape_target::ScrapeTarget;
use crate::upload::UploadSink;
use crate::wall_clock::WallClockMonitor;

use super::fetch::{FetchedProfile, ProfileFetcher};
use super::outcome::{ScrapeError, ScrapeErrorKind, ScrapeReport};
use super::profile_upload::{ScrapeIdentity, ScrapedUpload, build_upload};
use super::schedule::{ScheduleCounts, ScrapeOrder, ScrapeSchedule};
use super::target_status::{KindState, TargetStatus};

/// Upper bound of scrapes and stores that run. Each target has one scrape and at most as many stores as kinds.
const MAX_RUNNING_TASKS: usize = 1 << 17;
/// Longest time between two comparisons of the clocks.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Time that profiles which were fetched have to reach the spool at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Parts that a scraper uses.
pub struct ScraperParams {
    /// Clock of intervals and profile times.
    pub clock: Clock,
    /// Source of profile ids.
    pub random: Random,
    /// Source of profiles.
    pub fetcher: Arc<dyn ProfileFetcher>,
    /// Destination of profiles.
    pub sink: Arc<dyn UploadSink>,
    /// Monitor of the wall clock.
    pub wall_clock: Arc<WallClockMonitor>,
}

/// Scraper of all targets. Cheap to clone.
#[derive(Clone)]
pub struct Scraper {
    shared: Arc<ScraperInner>,
}

struct ScraperInner {
    params: ScraperParams,
    state: Mutex<ScraperState>,
    /// Wakes the loop if a scrape became due before the planned time.
    earlier: Notify,
    tasks: TaskGroup,
    stats: ScraperCounters,
}

struct ScraperState {
    schedule: ScrapeSchedule,
    /// Time for which the loop sleeps.
    planned_wake: Duration,
}

struct ScraperCounters {
    durations: Histogram,
    scraped_bytes: AtomicU64,
    rejected_profiles: AtomicU64,
}

/// Counters of a scraper.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScraperStats {
    /// Number of targets by state.
    pub targets: Vec<(KindState, u64)>,
    /// Number of scrapes that run.
    pub running_scrapes: u64,
    /// Number of scrapes that ended.
    pub scrapes: u64,
    /// Number of scrapes that started over 1 s late.
    pub late_scrapes: u64,
    /// Number of scrapes that did not take place.
    pub missed_scrapes: u64,
    /// Number of failed scrapes by reason.
    pub failures: Vec<(ScrapeErrorKind, u64)>,
    /// Durations of scrapes, without the time that targets recorded.
    pub durations: HistogramSnapshot,
    /// Bytes of profiles as scraped.
    pub scraped_bytes: u64,
    /// Number of profiles that the spool rejected.
    pub rejected_profiles: u64,
}

/// Scrape whose result is not reported yet. Dropping it reports a failure, so that a panic does not stop the
/// scrapes of a target.
struct PendingReport {
    shared: Arc<ScraperInner>,
    order: ScrapeOrder,
    started: Duration,
    is_reported: bool,
}

impl Scraper {
    /// Creates a scraper without targets.
    pub fn new(params: ScraperParams) -> Self {
        let state =
            ScraperState { schedule: ScrapeSchedule::new(&params.clock), planned_wake: Duration::ZERO };
        let stats = ScraperCounters {
            durations: Histogram::for_durations(),
            scraped_bytes: AtomicU64::new(0),
            rejected_profiles: AtomicU64::new(0),
        };
        let tasks = TaskGroup::new(params.clock.clone(), MAX_RUNNING_TASKS);
        let state = Mutex::new(state);
        let earlier = Notify::new();
        Self { shared: Arc::new(ScraperInner { params, state, earlier, tasks, stats }) }
    }

    /// Scrapes the targets of the latest list until `stop`. Then it cancels running scrapes and waits for
    /// profiles on their way to the sink.
    pub async fn run(&self, mut targets: watch::Receiver<Arc<Vec<ScrapeTarget>>>, stop: CancellationToken) {
        let shared = &self.shared;
        let clock = &shared.params.clock;
        let mut has_sender = true;
        let mut has_new_list = true;
        while !stop.is_cancelled() {
            if std::mem::take(&mut has_new_list) {
                let list = Arc::clone(&targets.borrow_and_update());
                shared.state.lock().schedule.set_targets(&list, clock.monotonic());
            }
            shared.params.wall_clock.observe();
            let now = clock.monotonic();
            let wake = self.start_due_scrapes(now);
            tokio::select! {
                () = stop.cancelled() => {}
                changed = targets.changed(), if has_sender => {
                    has_sender = changed.is_ok();
                    has_new_list = changed.is_ok();
                }
                () = shared.earlier.notified() => {}
                () = clock.sleep(wake.saturating_sub(now)) => {}
            }
        }
        let no_targets = Arc::new(Vec::new());
        shared.state.lock().schedule.set_targets(&no_targets, clock.monotonic());
        shared.tasks.shutdown(SHUTDOWN_TIMEOUT).await;
    }

    /// Starts all scrapes that are due. Returns the time of the next ones.
    fn start_due_scrapes(&self, now: Duration) -> Duration {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        let orders = state.schedule.start_due(now);
        let latest = now + CLOCK_CHECK_INTERVAL;
        let wake = state.schedule.next_wake().map_or(latest, |next| next.min(latest));
        state.planned_wake = wake;
        drop(state);
        for order in orders {
            let started = shared.params.clock.monotonic();
            let pending = PendingReport { shared: Arc::clone(shared), order, started, is_reported: false };
            if let Err(error) = shared.tasks.spawn("scrape", pending.scrape()) {
                tracing::error!(%error, "failed to start a scrape");
            }
        }
        wake
    }

    /// Returns the states of all targets.
    pub fn target_statuses(&self) -> Vec<TargetStatus> {
        let clock = &self.shared.params.clock;
        self.shared.state.lock().schedule.statuses(clock.monotonic(), clock.wall())
    }

    /// Returns the counters.
    pub fn stats(&self) -> ScraperStats {
        let state = self.shared.state.lock();
        let states = state.schedule.count_states();
        let ScheduleCounts { scrapes, late, missed, failures } = state.schedule.counts;
        let running_scrapes = state.schedule.running_scrapes() as u64;
        drop(state);
        let counters = &self.shared.stats;
        ScraperStats {
            targets: KindState::ALL.into_iter().zip(states).collect(),
            running_scrapes,
            scrapes,
            late_scrapes: late,
            missed_scrapes: missed,
            failures: ScrapeErrorKind::ALL.into_iter().zip(failures).collect(),
            durations: counters.durations.snapshot(),
            scraped_bytes: counters.scraped_bytes.load(Ordering::Relaxed),
            rejected_profiles: counters.rejected_profiles.load(Ordering::Relaxed),
        }
    }
}

impl PendingReport {
    /// Fetches the profile, makes its upload and stores it.
    async fn scrape(mut self) {
        let fetcher = Arc::clone(&self.shared.params.fetcher);
        let fetched = tokio::select! {
            biased;
            () = self.order.cancel.cancelled() => return,
            fetched = fetcher.fetch(&self.order) => fetched,
        };
        let scraped = match fetched {
            Ok(profile) => self.make_upload(profile),
            Err(error) => {
                self.report(Err(error));
                return;
            }
        };
        let bytes = scraped.upload.body.len() as u64;
        if self.report(Ok(bytes)) {
            self.store(scraped, bytes).await;
        }
    }

    /// Makes the upload. It draws the id, which no later step changes.
    fn make_upload(&self, profile: FetchedProfile) -> ScrapedUpload {
        let ScraperParams { clock, random, .. } = &self.shared.params;
        let length = clock.monotonic().saturating_sub(self.started);
        let identity = ScrapeIdentity { id: random.next_id(), started_at: clock.wall().minus(length) };
        let target = self.order.target.get();
        build_upload(target, self.order.kind(), profile.body, &profile.summary, identity)
    }

    /// Reports the result to the schedule. Returns whether the scrape counts.
    fn report(&mut self, result: Result<u64, ScrapeError>) -> bool {
        self.is_reported = true;
        let clock = &self.shared.params.clock;
        let now = clock.monotonic();
        let duration = now.saturating_sub(self.started);
        let recorded = Duration::from_secs(self.order.seconds.unwrap_or_default().into());
        let report = ScrapeReport { started_at: clock.wall().minus(duration), duration, result };
        let mut state = self.shared.state.lock();
        let counts = state.schedule.finish(self.order.id, &report, now);
        let is_earlier = state.schedule.next_wake().is_some_and(|next| next < state.planned_wake);
        drop(state);
        if counts {
            self.shared.stats.durations.record_duration(duration.saturating_sub(recorded));
        }
        if is_earlier {
            self.shared.earlier.notify_one();
        }
        counts
    }

    /// Passes the upload to the sink. Its memory stays reserved until the spool has it.
    async fn store(&self, scraped: ScrapedUpload, bytes: u64) {
        let ScrapedUpload { upload, reservation } = scraped;
        let stored = self.shared.params.sink.store(upload).await;
        drop(reservation);
        let stats = &self.shared.stats;
        match stored {
            Ok(()) => {
                stats.scraped_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            Err(error) => {
                let rejected = stats.rejected_profiles.fetch_add(1, Ordering::Relaxed) + 1;
                // The first rejection and then ever fewer, since a full spool rejects all.
                if rejected.is_power_of_two() {
                    tracing::warn!(%error, rejected, "failed to spool scraped profiles");
                }
            }
        }
        self.shared.state.lock().schedule.finish_store(&self.order);
    }
}

impl Drop for PendingReport {
    fn drop(&mut self) {
        if !self.is_reported {
            let message = "scrape was aborted by the agent";
            self.report(Err(ScrapeError::new(ScrapeErrorKind::Failed, message)));
        }
    }
}

#[cfg(test)]
#[path = "tests/scraper_tests.rs"]
mod tests;
