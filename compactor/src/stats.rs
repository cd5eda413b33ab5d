//! Counters of a compactor.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::Histogram;
use athanor_chassis::observability::histogram::HistogramSnapshot;
use parking_lot::Mutex;

use crate::job::run::JobResult;
use crate::outcome::JobOutcome;

/// Number of buckets of job durations: from a tenth of a second to 30 minutes.
const DURATION_BUCKETS: usize = 15;
const FIRST_BUCKET_NANOS: u64 = 100_000_000;

/// End of a job, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobEnd {
    /// The outputs replaced the parts.
    Finished,
    /// The catalog ended the claim.
    ClaimEnded,
    /// The job failed.
    Failed,
}

/// Key of a count of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobKind {
    /// Level of the outputs.
    pub level: u8,
    /// End of the job.
    pub end: JobEnd,
}

/// Counters of a compactor since the start.
#[derive(Debug)]
pub(crate) struct CompactorCounters {
    jobs: Mutex<BTreeMap<JobKind, u64>>,
    durations: Histogram,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    duplicates: AtomicU64,
}

/// Snapshot of the counters of a compactor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactorStats {
    /// Number of ended jobs by level and end.
    pub jobs: BTreeMap<JobKind, u64>,
    /// Number of running jobs.
    pub running_jobs: u64,
    /// Durations of ended jobs in nanoseconds.
    pub durations: HistogramSnapshot,
    /// Bytes of blocks that finished jobs read from the bucket.
    pub read_bytes: u64,
    /// Bytes of blocks that finished jobs wrote to the bucket.
    pub written_bytes: u64,
    /// Number of duplicate profiles that finished jobs dropped.
    pub duplicates: u64,
}

impl JobEnd {
    /// Returns the end of a job that was claimed.
    pub(crate) fn from_outcome(outcome: &JobOutcome) -> Self {
        match outcome {
            JobOutcome::Finished => Self::Finished,
            JobOutcome::Idle | JobOutcome::ClaimEnded => Self::ClaimEnded,
            JobOutcome::Failed { .. } => Self::Failed,
        }
    }

    /// Name of the end in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::ClaimEnded => "claim_ended",
            Self::Failed => "failed",
        }
    }
}

impl Default for CompactorCounters {
    fn default() -> Self {
        Self {
            jobs: Mutex::default(),
            durations: Histogram::with_doubling_buckets(FIRST_BUCKET_NANOS, DURATION_BUCKETS),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            duplicates: AtomicU64::new(0),
        }
    }
}

impl CompactorCounters {
    /// Counts an ended job.
    pub(crate) fn record_job(&self, level: u8, end: JobEnd, elapsed: Duration) {
        *self.jobs.lock().entry(JobKind { level, end }).or_default() += 1;
        self.durations.record_duration(elapsed);
    }

    /// Counts the rows and bytes of a finished job.
    pub(crate) fn record_result(&self, result: &JobResult) {
        let duplicates = result.dropped.iter().map(|rows| rows.profiles).sum();
        self.read_bytes.fetch_add(result.read_bytes, Ordering::Relaxed);
        self.written_bytes.fetch_add(result.written_bytes, Ordering::Relaxed);
        self.duplicates.fetch_add(duplicates, Ordering::Relaxed);
    }

    /// Returns the current counts.
    pub(crate) fn snapshot(&self, running_jobs: u64) -> CompactorStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CompactorStats {
            jobs: self.jobs.lock().clone(),
            running_jobs,
            durations: self.durations.snapshot(),
            read_bytes: read(&self.read_bytes),
            written_bytes: read(&self.written_bytes),
            duplicates: read(&self.duplicates),
        }
    }
}
