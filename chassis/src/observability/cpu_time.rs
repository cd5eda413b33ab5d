//! CPU time of this process by activity.
//!
//! Each activity is measured where it runs, with the CPU clock of its thread. A job reads that clock twice,
//! which is cheap compared with its length. Nested activities are subtracted from the outer one, so the parts
//! add up to at most the whole.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Activity to which CPU time is attributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuActivity {
    /// Bodies of requests and responses: decompression, parsing, conversion, compression.
    HttpBody,
    /// Decoding of uploaded profiles.
    Decode,
    /// Construction of batches for the log.
    Batch,
    /// Application of log entries.
    Apply,
    /// Writes to the write-ahead log.
    Wal,
    /// Flushes of heads to blocks.
    Flush,
    /// Snapshots, after which logs are purged.
    Snapshot,
    /// Execution of queries.
    Query,
    /// Merges of blocks.
    Compaction,
    /// Plans of compaction jobs.
    CompactionPlan,
}

/// CPU time by activity, and last that of work without an activity.
static SPENT_CPU_NANOS: [AtomicU64; 11] = [const { AtomicU64::new(0) }; 11];
const OTHER_ACTIVITY_INDEX: usize = 10;

thread_local! {
    /// Activity of this thread as an index into `SPENT_CPU_NANOS`, and its CPU time when that was last
    /// counted.
    static CURRENT_ACTIVITY: Cell<(usize, u64)> = const { Cell::new((OTHER_ACTIVITY_INDEX, 0)) };
}

/// Guard that restores the previous activity of the thread, also after a panic.
struct PreviousActivityGuard(usize);

impl CpuActivity {
    /// All activities, in the order of their counters.
    pub const ALL: [Self; 10] = [
        Self::HttpBody,
        Self::Decode,
        Self::Batch,
        Self::Apply,
        Self::Wal,
        Self::Flush,
        Self::Snapshot,
        Self::Query,
        Self::Compaction,
        Self::CompactionPlan,
    ];

    /// Name of the activity in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HttpBody => "http_body",
            Self::Decode => "decode",
            Self::Batch => "batch",
            Self::Apply => "apply",
            Self::Wal => "wal",
            Self::Flush => "flush",
            Self::Snapshot => "snapshot",
            Self::Query => "query",
            Self::Compaction => "compaction",
            Self::CompactionPlan => "compaction_plan",
        }
    }

    /// Returns the CPU time of the activity so far, on all threads of this process.
    pub fn cpu_time(self) -> Duration {
        Duration::from_nanos(SPENT_CPU_NANOS[self as usize].load(Ordering::Relaxed))
    }

    /// Returns the activity of this thread, for threads that help it.
    pub fn current() -> Option<Self> {
        Self::ALL.get(CURRENT_ACTIVITY.get().0).copied()
    }

    /// Runs work and counts its CPU time. The work must not wait for other work of this thread.
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

/// Counts the CPU time of the current activity, switches to another one, and returns the previous one.
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

/// Returns a number that changes with each tick of the operating system, every few milliseconds. Costs no
/// system call.
pub(crate) fn coarse_tick() -> u64 {
    #[cfg(target_os = "linux")]
    let clock = ClockId::MonotonicCoarse;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    nanos(clock_gettime(clock))
}

/// Returns the CPU time of this process, ended threads included.
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
        let (flush, snapshot) = (CpuActivity::Flush.cpu_time(), CpuActivity::Snapshot.cpu_time());
        let whole = thread_cpu_time();
        CpuActivity::Flush.measure(|| {
            burn(Duration::from_millis(4));
            CpuActivity::Snapshot.measure(|| {
                assert_eq!(CpuActivity::current(), Some(CpuActivity::Snapshot));
                burn(Duration::from_millis(8));
            });
            assert_eq!(CpuActivity::current(), Some(CpuActivity::Flush));
        });
        let whole = thread_cpu_time() - whole;
        let (flush, snapshot) =
            (CpuActivity::Flush.cpu_time() - flush, CpuActivity::Snapshot.cpu_time() - snapshot);
        assert!(flush >= Duration::from_millis(4) && snapshot >= Duration::from_millis(8));
        assert!(flush + snapshot <= whole, "{flush:?} and {snapshot:?} are parts of {whole:?}");
        assert_eq!(CpuActivity::current(), None);
    }

    #[test]
    fn a_panic_ends_what_it_ends() {
        let caught = std::panic::catch_unwind(|| CpuActivity::Query.measure(|| panic!("bad")));
        assert!(caught.is_err());
        assert_eq!(CpuActivity::current(), None);
    }
}
