//! What the processor's time of this process went into.
//!
//! Work is measured where it runs, by the clock of its thread: twice a job, and jobs are long beside that. Work inside
//! other work is taken off the latter, so that the parts add up to no more than the whole.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuActivity {
    /// Bodies of requests and answers: decompressing, parsing, converting, compressing.
    Body,
    /// Walking profiles that were sent.
    Walk,
    /// Making batches of them for the log.
    Prepare,
    /// Applying the log's entries.
    Apply,
    /// Writing the log.
    Log,
    /// Making blocks of heads.
    Cut,
    /// Snapshots, with which logs are cut off.
    Snapshot,
    /// Answering queries.
    Query,
}

/// One for each, and one for work that names none and is not told.
static SPENT_CPU_NANOS: [AtomicU64; 9] = [const { AtomicU64::new(0) }; 9];
const OTHER_ACTIVITY_INDEX: usize = 8;

thread_local! {
    /// What this thread does, as a place in `SPENT_CPU_NANOS`, and its own time when that was last counted.
    static CURRENT_ACTIVITY: Cell<(usize, u64)> = const { Cell::new((OTHER_ACTIVITY_INDEX, 0)) };
}

/// Gives the thread back to what it did before, also by a panic.
struct PreviousActivityGuard(usize);

impl CpuActivity {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Body,
        Self::Walk,
        Self::Prepare,
        Self::Apply,
        Self::Log,
        Self::Cut,
        Self::Snapshot,
        Self::Query,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Body => "body",
            Self::Walk => "walk",
            Self::Prepare => "prepare",
            Self::Apply => "apply",
            Self::Log => "log",
            Self::Cut => "cut",
            Self::Snapshot => "snapshot",
            Self::Query => "query",
        }
    }

    /// The processor's time that went into it so far, on all threads of this process.
    pub fn cpu_time(self) -> Duration {
        Duration::from_nanos(SPENT_CPU_NANOS[self as usize].load(Ordering::Relaxed))
    }

    /// What this thread is doing, for threads that help it.
    pub fn current() -> Option<Self> {
        Self::ALL.get(CURRENT_ACTIVITY.get().0).copied()
    }

    /// Does work and counts its time. The work must not wait for what this thread itself has to do.
    pub fn measure<R>(self, work: impl FnOnce() -> R) -> R {
        let _back = PreviousActivityGuard(switch_activity(self as usize));
        work()
    }
}

impl Drop for PreviousActivityGuard {
    fn drop(&mut self) {
        switch_activity(self.0);
    }
}

/// Counts what this thread did so far, goes on with something else, and tells what it was.
fn switch_activity(to: usize) -> usize {
    let now = nanos(clock_gettime(ClockId::ThreadCPUTime));
    let (before, since) = CURRENT_ACTIVITY.replace((to, now));
    SPENT_CPU_NANOS[before].fetch_add(now.saturating_sub(since), Ordering::Relaxed);
    before
}

/// Returns the CPU time of this thread.
pub(crate) fn thread_cpu_time() -> Duration {
    Duration::from_nanos(nanos(clock_gettime(ClockId::ThreadCPUTime)))
}

/// Returns a number that changes with each tick of the operating system, every few milliseconds. Costs no system call.
pub(crate) fn coarse_tick() -> u64 {
    #[cfg(target_os = "linux")]
    let clock = ClockId::MonotonicCoarse;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    nanos(clock_gettime(clock))
}

/// The processor's time of this process, all of its threads that ever were.
pub fn process_cpu_time() -> Duration {
    Duration::from_nanos(nanos(clock_gettime(ClockId::ProcessCPUTime)))
}

fn nanos(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Burns so much of this thread's own time, whatever else the machine does.
    fn burn(span: Duration) {
        let end = thread_cpu_time() + span;
        while thread_cpu_time() < end {}
    }

    #[test]
    fn work_inside_work_is_counted_once() {
        let (cut, snapshot) = (CpuActivity::Cut.cpu_time(), CpuActivity::Snapshot.cpu_time());
        let whole = thread_cpu_time();
        CpuActivity::Cut.measure(|| {
            burn(Duration::from_millis(4));
            CpuActivity::Snapshot.measure(|| {
                assert_eq!(CpuActivity::current(), Some(CpuActivity::Snapshot));
                burn(Duration::from_millis(8));
            });
            assert_eq!(CpuActivity::current(), Some(CpuActivity::Cut));
        });
        let whole = thread_cpu_time() - whole;
        let (cut, snapshot) =
            (CpuActivity::Cut.cpu_time() - cut, CpuActivity::Snapshot.cpu_time() - snapshot);
        assert!(cut >= Duration::from_millis(4) && snapshot >= Duration::from_millis(8));
        assert!(cut + snapshot <= whole, "{cut:?} and {snapshot:?} are parts of {whole:?}");
        assert_eq!(CpuActivity::current(), None);
    }

    #[test]
    fn a_panic_ends_what_it_ends() {
        let caught = std::panic::catch_unwind(|| CpuActivity::Query.measure(|| panic!("bad")));
        assert!(caught.is_err());
        assert_eq!(CpuActivity::current(), None);
    }
}
