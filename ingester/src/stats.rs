//! Statistics of a shard and its flushes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_catalog::ShardId;
use athanor_chassis::observability::histogram::HistogramSnapshot;
use athanor_chassis::{Histogram, Status};
use parking_lot::Mutex;

use crate::delta::cumulative_tracker::DeltaStats;
use crate::head_store::head::HeadSize;

pub mod metrics;

/// Statistics of one shard.
#[derive(Clone, Debug)]
pub struct ShardStats {
    /// ID of the shard.
    pub shard: ShardId,
    /// Size of all unflushed heads.
    pub heads: HeadSize,
    /// Bytes of the head that grows.
    pub head_bytes: u64,
    /// Age of the oldest unflushed head.
    pub oldest: Duration,
    /// Bytes of uploads that wait to be batched.
    pub waiting_bytes: u64,
    /// IDs in the dedup window.
    pub window_ids: u64,
    /// Number of cumulative series with known values.
    pub counting_series: u64,
    /// Bytes of these values in memory.
    pub counting_bytes: u64,
    /// Outcomes of cumulative profiles since this node leads.
    pub counting: DeltaStats,
    /// Acknowledged, unflushed entries that cannot be read.
    pub lost_entries: u64,
    /// Statistics of flushes since the start.
    pub cuts: FlushStats,
    /// Time since the last flush; since the start if there was none.
    pub since_cut: Duration,
}

/// Statistics of flushes since the start.
#[derive(Clone, Debug, Default)]
pub struct FlushStats {
    /// Durations of finished flushes, nanoseconds.
    pub took: HistogramSnapshot,
    /// Number of failed flushes, which are retried.
    pub failed: u64,
    /// Bytes of the written blocks.
    pub bytes: u64,
    /// Samples in the written blocks.
    pub samples: u64,
    /// Number of written objects.
    pub objects: u64,
}

/// Totals of written blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushSummary {
    /// Number of finished flushes, a block each.
    pub blocks: u64,
    /// Samples in the written blocks.
    pub samples: u64,
    /// Bytes of the written blocks.
    pub bytes: u64,
}

/// Counters of a shard's flusher.
#[derive(Debug)]
pub(crate) struct FlushCounters {
    took: Histogram,
    failed: AtomicU64,
    bytes: AtomicU64,
    samples: AtomicU64,
    objects: AtomicU64,
    /// Monotonic time of the last finished flush.
    last: Mutex<Duration>,
    /// Error of the last flush; none after a finished one.
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
        *self.last.lock() = now;
        *self.failure.lock() = None;
    }

    pub(crate) fn failed(&self, why: &Status) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        *self.failure.lock() = Some(why.to_string());
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    pub(crate) fn record_written(&self, bytes: u64, samples: u64, objects: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.samples.fetch_add(samples, Ordering::Relaxed);
        self.objects.fetch_add(objects as u64, Ordering::Relaxed);
    }

    /// Returns the totals written until now.
    pub(crate) fn written(&self) -> FlushSummary {
        let FlushStats { took, bytes, samples, .. } = self.snapshot();
        FlushSummary { blocks: took.buckets.iter().map(|(_, count)| count).sum(), samples, bytes }
    }

    pub(crate) fn last(&self) -> Duration {
        *self.last.lock()
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
