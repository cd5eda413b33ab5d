//! In-memory state of a shard on its leader. It begins with an entry of the log and never outlives the lead.
//!
//! ```text
//!  entries:   … batches of earlier leaders …  │ Begin │ batches of this one …
//!             replayed from the log ─► heads  │       │ published as they are applied
//! ```

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use athanor_chassis::{Clock, TenantId};
use athanor_profile::encoding::codec::CodecError;
use parking_lot::Mutex;

use crate::delta::cumulative_tracker::{CumulativeTracker, DeltaLimits, batch_updates};
use crate::head_store::generations::ShardHeads;
use crate::head_store::head::Head;
use crate::log::entry::UploadBatch;
use crate::log::generation::LogGeneration;

/// State that exists only while this replica leads the shard: heads, delta tracker, in-flight batch. Dropped
/// on step-down.
#[derive(Debug)]
pub struct LeaderTerm {
    pub(super) heads: ShardHeads,
    /// Tracker of cumulative series.
    pub(super) counters: Arc<CumulativeTracker>,
    pub(super) clock: Clock,
    /// Batch in flight, and its head.
    proposed: Mutex<Option<(UploadBatch, Arc<Head>)>>,
    begun: OnceLock<TermStart>,
    /// Entries that are intact but do not decode as batches.
    pub(super) unreadable: Mutex<Vec<u64>>,
}

/// Start of a leader term.
#[derive(Clone, Copy, Debug)]
pub struct TermStart {
    /// Index of the entry that starts it.
    pub index: u64,
    /// Index up to which rows were in blocks, according to the log.
    pub cut: u64,
    /// Log time at the start.
    pub stamp: u64,
    /// Monotonic time of the node at the start.
    pub at: Duration,
}

/// Leader term that is proposed, until its entry is applied.
#[derive(Debug, Default)]
pub struct PendingTerm(Mutex<Option<(u64, Arc<LeaderTerm>)>>);

impl PendingTerm {
    /// Sets the proposed term and its token.
    pub fn put(&self, token: u64, reign: Arc<LeaderTerm>) {
        *self.0.lock() = Some((token, reign));
    }
    /// Returns the term of a token, if this process proposed it.
    pub fn take(&self, token: u64) -> Option<Arc<LeaderTerm>> {
        self.0.lock().take_if(|(claimed, _)| *claimed == token).map(|(_, reign)| reign)
    }
}

impl LeaderTerm {
    /// Creates a term that has not started.
    pub fn new(clock: Clock, counting: DeltaLimits) -> Self {
        Self {
            heads: ShardHeads::new(),
            counters: Arc::new(CumulativeTracker::new(counting)),
            clock,
            proposed: Mutex::default(),
            begun: OnceLock::new(),
            unreadable: Mutex::default(),
        }
    }
    /// Returns the heads of the term.
    pub fn heads(&self) -> &ShardHeads {
        &self.heads
    }
    /// Returns the tracker of cumulative series.
    pub(crate) fn tracker(&self) -> &Arc<CumulativeTracker> {
        &self.counters
    }
    /// Returns the start of the term; none before its entry is applied.
    pub fn term_start(&self) -> Option<TermStart> {
        self.begun.get().copied()
    }
    /// Counts entries after `range.start` and up to `range.end` that do not decode as batches.
    pub fn unreadable(&self, range: &std::ops::Range<u64>) -> u64 {
        let unreadable = self.unreadable.lock();
        unreadable.iter().filter(|&&index| index > range.start && index <= range.end).count() as u64
    }
    /// Remembers the batch that is about to be proposed.
    pub fn put(&self, batch: UploadBatch, head: Arc<Head>) {
        *self.proposed.lock() = Some((batch, head));
    }

    /// Marks the term as started by an applied entry. Rows up to `cut` are not requested here.
    pub(crate) fn mark_started(&self, index: u64, cut: u64, stamp: u64) {
        self.heads.reset_start(index, cut);
        // No term starts a second time: each has a token of its own.
        let _ = self.begun.set(TermStart { index, cut, stamp, at: self.clock.monotonic() });
    }

    /// Publishes the new records of the batch in flight, if it is the applied one.
    pub(crate) fn publish_batch(&self, index: u64, token: u64, verdicts: &[Vec<bool>]) {
        let proposed = self.proposed.lock().take_if(|(batch, _)| batch.token == token);
        let Some((batch, head)) = proposed else { return };
        if batch.is_generation_start() {
            head.set_start_index(index - 1);
        }
        if head.is_empty() {
            head.set_first_profile_at(self.clock.monotonic());
        }
        if let Err(error) = publish_records(&head, &batch, verdicts) {
            tracing::error!(index, %error, "failed to publish batch, its profiles are missing");
            self.unreadable.lock().push(index);
        }
        if batch.has_delta_records() {
            match batch_updates(&head, index, &batch, verdicts) {
                Ok(changes) => self.counters.apply(token, changes, self.clock.monotonic()),
                Err(error) => {
                    tracing::error!(index, %error, "failed to decode deltas of batch, may count twice");
                }
            }
        }
        head.mark_applied(index);
    }

    /// Closes the head of a generation that has ended.
    pub(crate) fn close(&self, generation: LogGeneration) {
        self.heads.close(generation.token, generation.last);
    }
}

/// Publishes the new records of a batch in a head.
pub(super) fn publish_records(
    head: &Head,
    batch: &UploadBatch,
    verdicts: &[Vec<bool>],
) -> Result<(), CodecError> {
    for (upload, new) in batch.uploads.iter().zip(verdicts) {
        let tenant = parse_tenant(&batch.tenants[upload.tenant as usize].tenant)?;
        head.publish_upload(&tenant, batch, upload, new);
    }
    Ok(())
}

pub(super) fn parse_tenant(name: &str) -> Result<TenantId, CodecError> {
    name.parse().map_err(|_| CodecError { at: 0, why: "invalid tenant name" })
}
