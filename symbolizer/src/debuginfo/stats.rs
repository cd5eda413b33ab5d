//! Statistics of debug information uploads, for operators.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use athanor_chassis::Status;
use parking_lot::Mutex;

/// Maximum number of reasons that are counted by name. The code defines fewer.
const MAX_COUNTED_REASONS: usize = 64;

/// Counters of uploads. They only increase.
#[derive(Debug, Default)]
pub struct DebuginfoCounters {
    begun: AtomicU64,
    finished: AtomicU64,
    invalid: AtomicU64,
    bytes: AtomicU64,
    refused: Mutex<RefusalsByReason>,
}

/// Count of rejected calls by reason.
pub type RefusalsByReason = BTreeMap<&'static str, u64>;

/// Snapshot of the upload counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebuginfoStats {
    /// Count of uploads that were begun.
    pub begun: u64,
    /// Count of uploads finished with a usable file.
    pub finished: u64,
    /// Count of uploads finished with a file that is not of its kind.
    pub invalid: u64,
    /// Bytes of completely received files.
    pub bytes: u64,
    /// Count of rejected calls by reason.
    pub refused: RefusalsByReason,
}

impl DebuginfoCounters {
    pub(super) fn record_started(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn record_received(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn record_finished(&self, is_valid: bool) {
        let counter = if is_valid { &self.finished } else { &self.invalid };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn record_refusal(&self, status: &Status) {
        let mut refused = self.refused.lock();
        let reason = status.metric_reason();
        let known = refused.len() < MAX_COUNTED_REASONS || refused.contains_key(reason);
        *refused.entry(if known { reason } else { "other" }).or_default() += 1;
    }

    pub(super) fn snapshot(&self) -> DebuginfoStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DebuginfoStats {
            begun: read(&self.begun),
            finished: read(&self.finished),
            invalid: read(&self.invalid),
            bytes: read(&self.bytes),
            refused: self.refused.lock().clone(),
        }
    }
}
