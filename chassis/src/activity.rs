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
pub enum Activity {
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
static SPENT: [AtomicU64; 9] = [const { AtomicU64::new(0) }; 9];
const OTHER: usize = 8;

thread_local! {
    /// What this thread does, as a place in `SPENT`, and its own time when that was last counted.
    static NOW: Cell<(usize, u64)> = const { Cell::new((OTHER, 0)) };
}

/// Gives the thread back to what it did before, also by a panic.
struct Back(usize);

impl Activity {
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
    pub fn spent(self) -> Duration {
        Duration::from_nanos(SPENT[self as usize].load(Ordering::Relaxed))
    }

    /// What this thread is doing, for threads that help it.
    pub fn here() -> Option<Self> {
        Self::ALL.get(NOW.get().0).copied()
    }

    /// Does work and counts its time. The work must not wait for what this thread itself has to do.
    pub fn measure<R>(self, work: impl FnOnce() -> R) -> R {
        let _back = Back(switch(self as usize));
        work()
    }
}

impl Drop for Back {
    fn drop(&mut self) {
        switch(self.0);
    }
}

/// Counts what this thread did so far, goes on with something else, and tells what it was.
fn switch(to: usize) -> usize {
    let now = nanos(clock_gettime(ClockId::ThreadCPUTime));
    let (before, since) = NOW.replace((to, now));
    SPENT[before].fetch_add(now.saturating_sub(since), Ordering::Relaxed);
    before
}

/// Returns the CPU time of this thread.
pub(crate) fn thread_time() -> Duration {
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
pub fn process_time() -> Duration {
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
        let end = thread_time() + span;
        while thread_time() < end {}
    }

    #[test]
    fn work_inside_work_is_counted_once() {
        let (cut, snapshot) = (Activity::Cut.spent(), Activity::Snapshot.spent());
        let whole = thread_time();
        Activity::Cut.measure(|| {
            burn(Duration::from_millis(4));
            Activity::Snapshot.measure(|| {
                assert_eq!(Activity::here(), Some(Activity::Snapshot));
                burn(Duration::from_millis(8));
            });
            assert_eq!(Activity::here(), Some(Activity::Cut));
        });
        let whole = thread_time() - whole;
        let (cut, snapshot) = (Activity::Cut.spent() - cut, Activity::Snapshot.spent() - snapshot);
        assert!(cut >= Duration::from_millis(4) && snapshot >= Duration::from_millis(8));
        assert!(cut + snapshot <= whole, "{cut:?} and {snapshot:?} are parts of {whole:?}");
        assert_eq!(Activity::here(), None);
    }

    #[test]
    fn a_panic_ends_what_it_ends() {
        let caught = std::panic::catch_unwind(|| Activity::Query.measure(|| panic!("bad")));
        assert!(caught.is_err());
        assert_eq!(Activity::here(), None);
    }
}
