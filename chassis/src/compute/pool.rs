//! Threads of a compute pool.
//!
//! Ingest, maintenance and compaction threads take their jobs themselves. [`PoolInner::dispatch`] hands query jobs to
//! threads and wakes jobs that yielded. These keep their thread, so there are more query threads than slots.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use self::slice::CpuSlice;
use super::ComputeError;
use super::fair_queue::{FlowKey, PickedJob};
use super::scheduler::{JobClass, JobScheduler};

pub(super) mod slice;

/// Query threads of one kind beyond one per core: as many jobs may have yielded at once.
const MAX_SUSPENDED_THREADS: usize = 32;

pub(super) type BoxedJob = Box<dyn FnOnce() + Send>;

/// Source of CPU time. Tests use their own.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuClock {
    /// CPU time of the calling thread.
    pub(super) thread_time: fn() -> Duration,
    /// A value that changes every few milliseconds and is cheap to read.
    pub(super) tick: fn() -> u64,
}

/// Query job that waits for a thread, or suspended on its thread.
pub(super) enum QueuedQueryJob {
    Start(BoxedJob),
    Resume(Arc<ResumeSignal>),
}

/// Signal that lets a suspended thread continue.
#[derive(Debug, Default)]
pub(super) struct ResumeSignal {
    is_open: Mutex<bool>,
    opened: Condvar,
}

/// Kind of a thread, which determines its jobs and its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadKind {
    Ingest,
    Maintenance,
    Compaction,
    /// Queries of tenants below their share.
    UrgentQuery,
    /// All other queries.
    Query,
}

/// State that all threads share.
pub(super) struct PoolInner {
    pub(super) clock: CpuClock,
    state: Mutex<PoolState>,
    changed: [Condvar; 5],
    /// Copy of [`JobScheduler::is_pressed`], which running jobs read without the lock.
    pub(super) is_pressed: AtomicBool,
}

pub(super) struct PoolState {
    pub(super) schedule: JobScheduler<QueuedQueryJob>,
    pub(super) is_closed: bool,
    /// Idle ingest threads. The last one is woken first, because the caches of its core are warm.
    parked: Vec<Arc<Condvar>>,
    urgent: QueryThreads,
    others: QueryThreads,
}

/// Threads of one kind of query, and jobs that were handed to them.
struct QueryThreads {
    handed: VecDeque<PickedJob<BoxedJob>>,
    idle: usize,
    threads: usize,
    max_threads: usize,
}

// === impl PoolInner ===

impl PoolInner {
    /// Starts the threads of a pool for `cores` cores.
    pub(super) fn start(cores: usize, clock: CpuClock) -> Result<Arc<Self>, ComputeError> {
        let starts = || QueryThreads {
            handed: VecDeque::new(),
            idle: 0,
            threads: 1,
            max_threads: cores + MAX_SUSPENDED_THREADS,
        };
        let state = PoolState {
            schedule: JobScheduler::new(cores),
            is_closed: false,
            parked: Vec::new(),
            urgent: starts(),
            others: starts(),
        };
        let shared = Arc::new(Self {
            clock,
            state: Mutex::new(state),
            changed: [const { Condvar::new() }; 5],
            is_pressed: AtomicBool::new(false),
        });
        let spawned = (0..cores).try_for_each(|_| {
            shared.spawn(ThreadKind::Ingest)?;
            shared.spawn(ThreadKind::Maintenance)?;
            shared.spawn(ThreadKind::Compaction)
        });
        let spawned = spawned
            .and_then(|()| shared.spawn(ThreadKind::UrgentQuery))
            .and_then(|()| shared.spawn(ThreadKind::Query));
        match spawned {
            Ok(()) => Ok(shared),
            Err(error) => {
                shared.close();
                Err(error)
            }
        }
    }

    pub(super) fn submit(self: &Arc<Self>, class: JobClass, flow: &FlowKey, job: BoxedJob) {
        let mut state = self.lock();
        state.schedule.push(class, flow, QueuedQueryJob::Start(job));
        self.dispatch(&mut state);
        let parked = if class == JobClass::Ingest { state.parked.pop() } else { None };
        // A thread that is woken under the lock would wait for it at once.
        drop(state);
        if let Some(thread) = parked {
            thread.notify_one();
        }
        let background = match class {
            JobClass::Maintenance => Some(ThreadKind::Maintenance),
            JobClass::Compaction => Some(ThreadKind::Compaction),
            JobClass::Ingest | JobClass::Query => None,
        };
        if let Some(kind) = background {
            self.changed(kind).notify_one();
        }
    }

    /// Ends all threads after their running jobs.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let waiting = state.schedule.drain();
        for changed in &self.changed {
            changed.notify_all();
        }
        for thread in state.parked.drain(..) {
            thread.notify_one();
        }
        drop(state);
        for task in waiting {
            if let QueuedQueryJob::Resume(gate) = task {
                gate.open();
            }
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock()
    }

    /// Starts or resumes all query jobs that may run now.
    pub(super) fn dispatch(self: &Arc<Self>, state: &mut PoolState) {
        loop {
            let PoolState { schedule, urgent, others, .. } = &mut *state;
            let starts_urgent = urgent.has_thread();
            let starts_other = others.has_thread();
            let can_run =
                |task: &QueuedQueryJob, has_thread| has_thread || matches!(task, QueuedQueryJob::Resume(_));
            let picked =
                schedule.pop_query(|task| can_run(task, starts_urgent), |task| can_run(task, starts_other));
            let Some(PickedJob { flow, ticket, is_urgent, job }) = picked else { break };
            match job {
                QueuedQueryJob::Resume(gate) => gate.open(),
                QueuedQueryJob::Start(job) => {
                    self.hand_over(state, PickedJob { flow, ticket, is_urgent, job })
                }
            }
        }
        self.is_pressed.store(state.schedule.is_pressed(), Ordering::Relaxed);
    }

    /// Hands a job to an idle thread, or to a new one. If no thread can be started, the job waits.
    fn hand_over(self: &Arc<Self>, state: &mut PoolState, picked: PickedJob<BoxedJob>) {
        let kind = if picked.is_urgent { ThreadKind::UrgentQuery } else { ThreadKind::Query };
        let starts = state.query_threads(kind);
        if starts.idle <= starts.handed.len() {
            if self.spawn(kind).is_err() {
                starts.max_threads = starts.threads;
                let PickedJob { flow, ticket, job, .. } = picked;
                state.schedule.suspend_query(&flow, ticket, Duration::ZERO, QueuedQueryJob::Start(job));
                return;
            }
            starts.threads += 1;
        }
        starts.handed.push_back(picked);
        self.changed(kind).notify_one();
    }

    #[expect(clippy::disallowed_methods, reason = "one of the places that start threads")]
    fn spawn(self: &Arc<Self>, kind: ThreadKind) -> Result<(), ComputeError> {
        let shared = Arc::clone(self);
        let run = move || {
            set_nice(kind.nice());
            match kind {
                ThreadKind::Ingest => shared.run_ingest(),
                ThreadKind::Maintenance => shared.run_maintenance(),
                ThreadKind::Compaction => shared.run_compaction(),
                ThreadKind::UrgentQuery | ThreadKind::Query => shared.run_queries(kind),
            }
        };
        let spawned = std::thread::Builder::new().name(kind.name().to_owned()).spawn(run);
        spawned.map(drop).map_err(|error| ComputeError::NoThreads(error.to_string()))
    }

    fn run_ingest(self: &Arc<Self>) {
        let wake = Arc::new(Condvar::new());
        let mut state = self.lock();
        loop {
            if let Some((flow, task)) = state.schedule.pop_ingest() {
                // One fewer ingest job waits, so queries may regain their slots.
                self.dispatch(&mut state);
                drop(state);
                let cpu_time = self.measure(|| task.start());
                state = self.lock();
                state.schedule.end_ingest(&flow, cpu_time);
            } else if state.is_closed {
                return;
            } else {
                state.parked.push(Arc::clone(&wake));
                let is_parked =
                    |state: &mut PoolState| state.parked.iter().any(|one| Arc::ptr_eq(one, &wake));
                wake.wait_while(&mut state, is_parked);
            }
        }
    }

    fn run_maintenance(&self) {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.schedule.pop_maintenance() {
                drop(state);
                task.start();
                state = self.lock();
                state.schedule.end_maintenance();
            } else if state.is_closed {
                return;
            } else {
                self.changed(ThreadKind::Maintenance).wait(&mut state);
            }
        }
    }

    fn run_compaction(&self) {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.schedule.pop_compaction() {
                drop(state);
                task.start();
                state = self.lock();
                state.schedule.end_compaction();
            } else if state.is_closed {
                return;
            } else {
                self.changed(ThreadKind::Compaction).wait(&mut state);
            }
        }
    }

    fn run_queries(self: &Arc<Self>, kind: ThreadKind) {
        let mut state = self.lock();
        loop {
            if let Some(PickedJob { flow, ticket, job, .. }) = state.query_threads(kind).handed.pop_front() {
                drop(state);
                slice::run_in_slice(CpuSlice::new(self, flow, ticket), job);
                state = self.lock();
            } else if state.is_closed {
                return;
            } else {
                state.query_threads(kind).idle += 1;
                // A job that found no thread may take this one.
                self.dispatch(&mut state);
                if state.query_threads(kind).handed.is_empty() {
                    self.changed(kind).wait(&mut state);
                }
                state.query_threads(kind).idle -= 1;
            }
        }
    }

    fn changed(&self, kind: ThreadKind) -> &Condvar {
        &self.changed[kind as usize]
    }

    fn measure(&self, work: impl FnOnce()) -> Duration {
        let begun = (self.clock.thread_time)();
        work();
        (self.clock.thread_time)().saturating_sub(begun)
    }
}

impl PoolState {
    fn query_threads(&mut self, kind: ThreadKind) -> &mut QueryThreads {
        if kind == ThreadKind::UrgentQuery { &mut self.urgent } else { &mut self.others }
    }
}

impl QueryThreads {
    fn has_thread(&self) -> bool {
        self.idle > self.handed.len() || self.threads < self.max_threads
    }
}

// === impl QueuedQueryJob, ResumeSignal ===

impl QueuedQueryJob {
    /// Runs a job of a class that does not yield.
    fn start(self) {
        match self {
            Self::Start(job) => job(),
            Self::Resume(gate) => gate.open(),
        }
    }
}

impl ResumeSignal {
    pub(super) fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_one();
    }

    pub(super) fn wait(&self) {
        let mut is_open = self.is_open.lock();
        while !*is_open {
            self.opened.wait(&mut is_open);
        }
    }
}

// === impl ThreadKind ===

impl ThreadKind {
    /// Returns the nice value of these threads. One unit is about a tenth of CPU time. Beside a busy ingest
    /// thread of the same core, a query of a tenant above its share gets a tenth of the core.
    const fn nice(self) -> i32 {
        match self {
            Self::Ingest => 0,
            Self::Maintenance => 5,
            Self::UrgentQuery => 2,
            Self::Query => 10,
            Self::Compaction => 15,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Maintenance => "maintenance",
            Self::Compaction => "compaction",
            Self::UrgentQuery => "query-urgent",
            Self::Query => "query",
        }
    }
}

/// Sets the priority of the calling thread. If that fails, the operating system treats all threads equally.
#[cfg(target_os = "linux")]
fn set_nice(nice: i32) {
    if nice != 0 {
        // On Linux this call applies to the calling thread.
        let _ = rustix::process::setpriority_process(None, nice);
    }
}

#[cfg(not(target_os = "linux"))]
fn set_nice(_: i32) {}
