//! Counters of retention.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a retention worker since the start.
#[derive(Debug, Default)]
pub(crate) struct RetentionCounters {
    pub(crate) expired: AtomicU64,
    pub(crate) failed: AtomicU64,
    overdue: AtomicU64,
    kept_for_tiers: AtomicU64,
    restorable: AtomicU64,
}

/// Snapshot of the counters of a retention worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionStats {
    /// Count of blocks from which parts expired.
    pub expired: u64,
    /// Count of rounds that failed.
    pub failed: u64,
    /// Catalog state after the last round. Zero while another node expires blocks.
    pub backlog: RetentionBacklog,
}

/// Blocks that retention waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionBacklog {
    /// Listed blocks with parts past their retention.
    pub overdue: u64,
    /// Listed blocks with parts past their retention that stay because a tier does not hold their rows yet.
    pub kept_for_tiers: u64,
    /// Blocks with expired parts that can be restored.
    pub restorable: u64,
}

impl RetentionCounters {
    /// Replaces the state of the catalog after a round.
    pub(crate) fn set_backlog(&self, backlog: RetentionBacklog) {
        self.overdue.store(backlog.overdue, Ordering::Relaxed);
        self.kept_for_tiers.store(backlog.kept_for_tiers, Ordering::Relaxed);
        self.restorable.store(backlog.restorable, Ordering::Relaxed);
    }

    /// Returns the current counts.
    pub(crate) fn stats(&self) -> RetentionStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RetentionStats {
            expired: read(&self.expired),
            failed: read(&self.failed),
            backlog: RetentionBacklog {
                overdue: read(&self.overdue),
                kept_for_tiers: read(&self.kept_for_tiers),
                restorable: read(&self.restorable),
            },
        }
    }
}
