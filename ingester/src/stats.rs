//! How a shard fares, in numbers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_catalog::ShardId;
use athanor_chassis::histogram::HistogramSnapshot;
use athanor_chassis::{Histogram, Status};

use crate::cumulative_tracker::DeltaStats;
use crate::state_machine::lock;

/// What is in the heads of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadSize {
    /// About how much memory their profiles take.
    pub bytes: u64,
    /// Records, each one value type of a profile.
    pub profiles: u64,
    /// Series, counted in each head.
    pub series: u64,
}

/// One shard at a moment.
#[derive(Clone, Debug)]
pub struct ShardStats {
    /// Which.
    pub shard: ShardId,
    /// Everything in memory that is in no block yet.
    pub heads: HeadSize,
    /// Bytes of the head that grows.
    pub head_bytes: u64,
    /// How long the oldest of them is in no block.
    pub oldest: Duration,
    /// Bytes of uploads that wait to be batched.
    pub waiting_bytes: u64,
    /// Ids of recent records.
    pub window_ids: u64,
    /// Series whose profiles count since a process began, as far as it is known what they have counted.
    pub counting_series: u64,
    /// Bytes that this takes.
    pub counting_bytes: u64,
    /// What became of such profiles since this node leads.
    pub counting: DeltaStats,
    /// Entries that were acknowledged and cannot be read, and that are in no block.
    pub lost_entries: u64,
    /// What was cut since the start.
    pub cuts: FlushStats,
    /// How long ago the last cut was done; since the start if there was none.
    pub since_cut: Duration,
}

/// What was cut since the start.
#[derive(Clone, Debug, Default)]
pub struct FlushStats {
    /// How long each took that was done, nanoseconds.
    pub took: HistogramSnapshot,
    /// How often one failed, and will be tried again.
    pub failed: u64,
    /// Bytes of the blocks.
    pub bytes: u64,
    /// Samples in them.
    pub samples: u64,
    /// Objects that were written.
    pub objects: u64,
}

/// What a cut wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushSummary {
    /// Blocks.
    pub blocks: u64,
    /// Samples in them.
    pub samples: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The counters of a cutter.
#[derive(Debug)]
pub(crate) struct FlushCounters {
    took: Histogram,
    failed: AtomicU64,
    bytes: AtomicU64,
    samples: AtomicU64,
    objects: AtomicU64,
    /// By the node's monotonic clock.
    last: Mutex<Duration>,
    /// Why the last one failed, until one is done.
    failure: Mutex<Option<String>>,
}

impl FlushCounters {
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            took: Histogram::with_doubling_buckets(1_000_000, 17),
            failed: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            samples: AtomicU64::new(0),
            objects: AtomicU64::new(0),
            last: Mutex::new(now),
            failure: Mutex::default(),
        }
    }

    pub(crate) fn record_flush(&self, took: Duration, now: Duration) {
        self.took.record_duration(took);
        *lock(&self.last) = now;
        *lock(&self.failure) = None;
    }

    pub(crate) fn failed(&self, why: &Status) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        *lock(&self.failure) = Some(why.to_string());
    }

    pub(crate) fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }

    pub(crate) fn record_written(&self, bytes: u64, samples: u64, objects: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.samples.fetch_add(samples, Ordering::Relaxed);
        self.objects.fetch_add(objects as u64, Ordering::Relaxed);
    }

    /// All that was written until now.
    pub(crate) fn written(&self) -> FlushSummary {
        let FlushStats { took, bytes, samples, .. } = self.snapshot();
        FlushSummary { blocks: took.buckets.iter().map(|(_, count)| count).sum(), samples, bytes }
    }

    pub(crate) fn last(&self) -> Duration {
        *lock(&self.last)
    }

    pub(crate) fn snapshot(&self) -> FlushStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FlushStats {
            took: self.took.snapshot(),
            failed: read(&self.failed),
            bytes: read(&self.bytes),
            samples: read(&self.samples),
            objects: read(&self.objects),
        }
    }
}
