//! What came, and what became of it, for whoever runs the server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use athanor_chassis::Status;

/// Reasons that are counted by name; there are fewer.
const MAX_COUNTED_REASONS: usize = 64;

/// Plain numbers that only grow.
#[derive(Debug, Default)]
pub struct DebuginfoCounters {
    begun: AtomicU64,
    finished: AtomicU64,
    invalid: AtomicU64,
    bytes: AtomicU64,
    refused: Mutex<RefusalsByReason>,
}

/// Calls that were refused, by reason.
pub type RefusalsByReason = BTreeMap<&'static str, u64>;

/// The numbers of a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebuginfoStats {
    /// Uploads that were begun.
    pub begun: u64,
    /// Those that were finished, with files that can be used.
    pub finished: u64,
    /// Those that were finished with something else.
    pub invalid: u64,
    /// Bytes of files that were sent whole.
    pub bytes: u64,
    /// Calls that were refused, by reason.
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
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
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
            refused: self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}
