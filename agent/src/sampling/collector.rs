//! Collector: drives the source of windows and stores their profiles.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use athanor_agent_ebpf::sampler::{SamplerError, SamplerStats};
use athanor_chassis::compute::ComputeError;
use athanor_chassis::{Backoff, Clock, ComputePool, Random, Status};
use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio_util::sync::CancellationToken;

use super::collector_state::{CollectorState, CollectorStats, SamplerPhase};
use super::labels::LabelSettings;
use super::labels::ProcessLabeler;
use super::sample_source::{SampleSource, StartSource, measure_cpu_time};
use super::uploads::{EncodeProfile, PendingUploads};
use super::window_groups::WindowGroups;
use crate::config::SamplerSettings;
use crate::upload::UploadSink;

/// Length of the first window, so that the first profile is there soon.
const FIRST_WINDOW: Duration = Duration::from_secs(2);
/// Minimum time between two times of handling events.
const MIN_EVENT_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of looking for the kill-switch file while sampling is stopped.
const KILL_SWITCH_INTERVAL: Duration = Duration::from_secs(10);
/// Delays between attempts to start the sampler.
const START_BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(10), Duration::from_secs(300));
/// Lost windows in a row after which the sampler is started once more.
const MAX_LOST_WINDOWS: u32 = 3;

/// Parts that a collector uses.
pub struct CollectorParams {
    /// Clock of windows.
    pub clock: Clock,
    /// Source of profile ids.
    pub random: Random,
    /// Threads for the work of the sampler.
    pub compute: ComputePool,
    /// Destination of profiles.
    pub sink: Arc<dyn UploadSink>,
    /// Starts the source of windows.
    pub start: Arc<StartSource>,
    /// Encoder of profiles.
    pub encode: Arc<EncodeProfile>,
    /// Labels of processes.
    pub labeler: ProcessLabeler,
    /// Settings. Those of labels are in the labeler.
    pub settings: SamplerSettings,
}

/// Collector of the profiles of the host. Cheap to clone.
#[derive(Clone)]
pub struct SamplingCollector {
    shared: Arc<CollectorInner>,
}

struct CollectorInner {
    clock: Clock,
    random: Random,
    compute: ComputePool,
    sink: Arc<dyn UploadSink>,
    start: Arc<StartSource>,
    encode: Arc<EncodeProfile>,
    labeler: Arc<Mutex<ProcessLabeler>>,
    settings: SamplerSettings,
    state: CollectorState,
}

/// Source that a job on a thread of the pool uses at a time.
type SharedSource = Arc<Mutex<Box<dyn SampleSource>>>;

/// Running source with its timers.
struct RunningSource {
    source: SharedSource,
    wake: AsyncFd<OwnedFd>,
    /// Monotonic time of the end of the window.
    window_end: Duration,
    /// Earliest time of handling events.
    next_events: Duration,
    /// Events were left after the last time.
    has_events: bool,
    lost_windows: u32,
}

/// Cause of the next step.
enum Step {
    Stop,
    CloseWindow,
    HandleEvents,
}

/// Cause of the end of a source.
#[derive(PartialEq)]
enum SourceEnd {
    Stop,
    KillSwitch,
    Broken(String),
}

/// Failure to read a window.
#[derive(Debug, thiserror::Error)]
enum WindowError {
    #[error("{0}")]
    Sampler(#[from] SamplerError),
    #[error("{0}")]
    Compute(#[from] ComputeError),
}

impl SamplingCollector {
    /// Creates a collector that does not run yet.
    pub fn new(params: CollectorParams) -> Self {
        let CollectorParams { clock, random, compute, sink, start, encode, labeler, settings } = params;
        let (labeler, state) = (Arc::new(Mutex::new(labeler)), CollectorState::default());
        let inner = CollectorInner { clock, random, compute, sink, start, encode, labeler, settings, state };
        Self { shared: Arc::new(inner) }
    }

    /// Replaces the settings of labels. They take effect with the next window.
    pub fn set_label_settings(&self, settings: LabelSettings) {
        self.shared.labeler.lock().set_settings(settings);
    }

    /// Sets the phase of a collector that does not run.
    pub fn set_phase(&self, phase: SamplerPhase) {
        self.shared.state.set_phase(phase);
    }

    /// Returns the counters.
    pub fn stats(&self) -> CollectorStats {
        self.shared.state.snapshot()
    }

    /// Samples until `stop`. Then it stores the last window.
    pub async fn run(self, stop: CancellationToken) {
        let shared = &*self.shared;
        let mut failures = 0;
        while !stop.is_cancelled() {
            if shared.is_killed() {
                if shared.state.set_phase(SamplerPhase::Stopped) {
                    tracing::warn!(
                        "sampling stopped, because the kill-switch file exists or cannot be looked up"
                    );
                }
                shared.pause(KILL_SWITCH_INTERVAL, &stop).await;
                continue;
            }
            let end = match shared.start_source().await {
                Ok(running) => {
                    failures = 0;
                    shared.state.set_phase(SamplerPhase::Running);
                    shared.run_source(running, &stop).await
                }
                Err(problem) => SourceEnd::Broken(problem),
            };
            if let SourceEnd::Broken(problem) = end {
                if shared.state.set_phase(SamplerPhase::Failed(problem.clone())) {
                    tracing::error!(problem, "the host is not sampled");
                }
                let delay = START_BACKOFF.delay(failures, &shared.random);
                failures += 1;
                shared.pause(delay, &stop).await;
            }
        }
    }
}

impl CollectorInner {
    /// Returns whether the kill-switch file exists. A file that cannot be looked up may exist, so it counts.
    fn is_killed(&self) -> bool {
        let file = self.settings.kill_switch_file.as_deref();
        file.is_some_and(|file| file.try_exists().unwrap_or(true))
    }

    async fn pause(&self, time: Duration, stop: &CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.clock.sleep(time) => {}
        }
    }

    async fn start_source(&self) -> Result<RunningSource, String> {
        let start = Arc::clone(&self.start);
        if !matches!(self.state.snapshot().phase, SamplerPhase::Failed(_)) {
            self.state.set_phase(SamplerPhase::Starting);
        }
        let started = self.compute.run(move || start()).await;
        let source = started.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        let no_wake = |error: io::Error| format!("failed to wait for the sampler: {error}");
        let wake = source.wake_fd().map_err(no_wake)?;
        let wake = watch_descriptor(wake).map_err(no_wake)?;
        let now = self.clock.monotonic();
        Ok(RunningSource {
            source: Arc::new(Mutex::new(source)),
            wake,
            window_end: now + FIRST_WINDOW.min(self.settings.window_interval),
            next_events: now,
            has_events: false,
            lost_windows: 0,
        })
    }

    /// Reads windows until `stop`, the kill switch, or too many failures. Each end stores the last window.
    async fn run_source(&self, mut running: RunningSource, stop: &CancellationToken) -> SourceEnd {
        let end = loop {
            match running.next_step(&self.clock, stop).await {
                Step::Stop => break SourceEnd::Stop,
                Step::HandleEvents => {
                    if let Err(error) = self.handle_events(&mut running).await {
                        break SourceEnd::Broken(error.to_string());
                    }
                }
                Step::CloseWindow if self.is_killed() => break SourceEnd::KillSwitch,
                Step::CloseWindow => {
                    running.schedule_window(self.clock.monotonic(), self.settings.window_interval);
                    if let Err(error) = self.store_window(&running.source).await {
                        running.lost_windows += 1;
                        tracing::warn!(%error, "lost a window of samples");
                        if running.lost_windows >= MAX_LOST_WINDOWS {
                            break SourceEnd::Broken(error.to_string());
                        }
                    } else {
                        running.lost_windows = 0;
                    }
                }
            }
        };
        if !matches!(end, SourceEnd::Broken(_))
            && let Err(error) = self.store_window(&running.source).await
        {
            tracing::warn!(%error, "lost the last window of samples");
        }
        let source = running.source;
        // Unloading the programs blocks. If the pool refuses, the caller's copy is dropped instead.
        let _ = self.compute.run(move || drop(source)).await;
        self.state.end_sampler();
        end
    }

    async fn handle_events(&self, running: &mut RunningSource) -> Result<(), ComputeError> {
        let source = Arc::clone(&running.source);
        let handle = move || {
            let mut source = source.lock();
            source.handle_events();
            source.has_events()
        };
        running.has_events = self.compute.run(handle).await?;
        running.next_events = self.clock.monotonic() + MIN_EVENT_INTERVAL;
        Ok(())
    }

    /// Reads a window and stores its profiles.
    async fn store_window(&self, source: &SharedSource) -> Result<(), WindowError> {
        let mut pending = match self.read_window(source).await {
            Ok(pending) => pending,
            Err(error) => {
                self.state.update(|stats| stats.lost_windows += 1);
                return Err(error);
            }
        };
        loop {
            let source = Arc::clone(source);
            let encode = move || {
                let (upload, time) = measure_cpu_time(|| pending.next_upload());
                source.lock().add_cost(time);
                (upload, pending)
            };
            let (upload, rest) = self.compute.run(encode).await?;
            let Some(sampled) = upload else { return Ok(()) };
            pending = rest;
            let profiles = u64::from(sampled.upload.profiles);
            let stored = self.sink.store(sampled.upload).await;
            self.record_store(stored, profiles, sampled.samples);
        }
    }

    async fn read_window(&self, source: &SharedSource) -> Result<PendingUploads, WindowError> {
        let source = Arc::clone(source);
        let labeler = Arc::clone(&self.labeler);
        let encode = Arc::clone(&self.encode);
        let by_thread = self.settings.thread_names;
        let random = self.random.split();
        let read = move || -> Result<WindowRead, SamplerError> {
            let mut locked = source.lock();
            let window = locked.close_window();
            let stats = locked.stats();
            drop(locked);
            let window = window?;
            let mut labeler = labeler.lock();
            let label = || WindowGroups::new(&window, &mut labeler, by_thread);
            let (WindowGroups { groups, dropped }, time) = measure_cpu_time(label);
            source.lock().add_cost(time);
            let labeled = labeler.len() as u64;
            let pending = PendingUploads::new(window, groups, encode, random);
            Ok(WindowRead { pending, stats, dropped, labeled })
        };
        let read = self.compute.run(read).await??;
        self.state.set_sampler_stats(read.stats);
        self.state.update(|stats| {
            stats.windows += 1;
            stats.labeled_processes = read.labeled;
            for (sum, dropped) in stats.samples_dropped.iter_mut().zip(read.dropped) {
                *sum = sum.saturating_add(dropped);
            }
        });
        Ok(read.pending)
    }

    fn record_store(&self, stored: Result<(), Status>, profiles: u64, samples: u64) {
        let Err(error) = stored else {
            self.state.update(|stats| {
                stats.profiles += profiles;
                stats.samples_stored += samples;
            });
            return;
        };
        let mut rejections = 0;
        self.state.update(|stats| {
            stats.rejected_profiles += profiles;
            stats.samples_rejected += samples;
            rejections = stats.rejected_profiles;
        });
        // The first rejection and then ever fewer, since a full spool rejects all.
        if rejections == profiles || (rejections - profiles).ilog2() != rejections.ilog2() {
            tracing::warn!(%error, rejected = rejections, "failed to spool sampled profiles");
        }
    }
}

/// Registers a descriptor with the event loop.
#[expect(deprecated, reason = "the replacement is unsafe; an owned descriptor is valid as long as its value")]
fn watch_descriptor(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}

/// Window that was read, with the counters at its end.
struct WindowRead {
    pending: PendingUploads,
    stats: Arc<SamplerStats>,
    dropped: [u64; super::labels::LabelDrop::ALL.len()],
    labeled: u64,
}

impl RunningSource {
    /// Waits for the cause of the next step.
    async fn next_step(&self, clock: &Clock, stop: &CancellationToken) -> Step {
        let now = clock.monotonic();
        tokio::select! {
            biased;
            () = stop.cancelled() => Step::Stop,
            () = clock.sleep(self.window_end.saturating_sub(now)) => Step::CloseWindow,
            () = self.wait_for_events(clock) => Step::HandleEvents,
        }
    }

    async fn wait_for_events(&self, clock: &Clock) {
        clock.sleep(self.next_events.saturating_sub(clock.monotonic())).await;
        if self.has_events {
            return;
        }
        match self.wake.readable().await {
            // Events that arrive from now on make the descriptor ready again.
            Ok(mut ready) => ready.clear_ready(),
            // Without a descriptor, the end of the window handles events.
            Err(_) => std::future::pending().await,
        }
    }

    /// Sets the end of the next window. Windows that were missed are one long window.
    fn schedule_window(&mut self, now: Duration, interval: Duration) {
        self.window_end += interval;
        if self.window_end <= now {
            self.window_end = now + interval;
        }
    }
}
