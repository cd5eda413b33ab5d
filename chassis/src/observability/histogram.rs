//! Histograms with buckets of doubling width.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Lock-free histogram of whole numbers: bytes or nanoseconds.
#[derive(Debug)]
pub struct Histogram {
    /// Upper bound of the first bucket.
    first: u64,
    /// Counts by bucket, and last the count beyond all buckets.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// Snapshot of a histogram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Upper bound (inclusive) and count of each bucket. The last bucket is unbounded.
    pub buckets: Vec<(u64, u64)>,
    /// Sum of all values.
    pub sum: u64,
}

impl Histogram {
    /// Creates a histogram with `buckets` buckets, at most 63, of which the first ends at `first`.
    pub fn with_doubling_buckets(first: u64, buckets: usize) -> Self {
        let counts = (0..=buckets.min(63)).map(|_| AtomicU64::new(0)).collect();
        Self { first: first.max(1), counts, sum: AtomicU64::new(0) }
    }

    /// Histogram of durations: from a tenth of a millisecond to 52 seconds.
    pub fn for_durations() -> Self {
        Self::with_doubling_buckets(100_000, 20)
    }

    /// Histogram of sizes: from 1 KiB to 32 MiB.
    pub fn for_sizes() -> Self {
        Self::with_doubling_buckets(1024, 16)
    }

    /// Adds a value to its bucket.
    pub fn record(&self, value: u64) {
        let last = self.counts.len() - 1;
        let widths = value.div_ceil(self.first).checked_next_power_of_two();
        let bucket = widths.map_or(last, |widths| widths.trailing_zeros() as usize);
        self.counts[bucket.min(last)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Adds a duration in nanoseconds.
    pub fn record_duration(&self, span: Duration) {
        self.record(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Returns the counts so far.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let last = self.counts.len() - 1;
        let end = |bucket: usize| if bucket == last { u64::MAX } else { self.first << bucket };
        let counts = self.counts.iter().enumerate();
        HistogramSnapshot {
            buckets: counts.map(|(bucket, count)| (end(bucket), count.load(Ordering::Relaxed))).collect(),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

impl HistogramSnapshot {
    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_end() {
        let histogram = Histogram::with_doubling_buckets(10, 3);
        for value in [0, 1, 10, 11, 20, 21, 40, 41, u64::from(u32::MAX)] {
            histogram.record(value);
        }
        let spread = histogram.snapshot();
        assert_eq!(spread.buckets, [(10, 3), (20, 2), (40, 2), (u64::MAX, 2)]);
        assert_eq!((spread.count(), spread.sum), (9, 144 + u64::from(u32::MAX)));
        let widest = Histogram::with_doubling_buckets(1, 1);
        widest.record(u64::MAX);
        assert_eq!(widest.snapshot().buckets, [(1, 0), (u64::MAX, 1)]);
    }
}
