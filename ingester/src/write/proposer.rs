//! Proposer of a shard's entries, one at a time.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{ErrorCode, Status};
use athanor_consensus::RaftGroup;
use athanor_consensus::log::LogError;
use athanor_consensus::replicated::ProposeError;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::head_store::head::Head;
use crate::log::entry::ShardLogEntry;
use crate::log::state_machine::{ShardApplyResult, ShardStateMachine};
use crate::write::batcher::{DuplicateRequests, NewBatchEntry, PreparedBatch, ProposerStep};
use crate::write::leader_term::LeaderTerm;

/// Retry-after of clients while the log is full, and below while it is busy.
const LOG_FULL_RETRY_AFTER: Duration = Duration::from_secs(10);
const LOG_BUSY_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Worker that proposes batches, one at a time.
pub struct BatchProposer {
    steps: mpsc::Receiver<ProposerStep>,
    log: RaftGroup<ShardStateMachine>,
    reign: Arc<LeaderTerm>,
    /// Cancelled when the leader term ends: batches in flight may be stored, or not.
    over: CancellationToken,
    failures: Arc<Mutex<u64>>,
}

impl BatchProposer {
    pub(crate) fn new(
        steps: mpsc::Receiver<ProposerStep>,
        log: RaftGroup<ShardStateMachine>,
        reign: Arc<LeaderTerm>,
        over: CancellationToken,
        failures: Arc<Mutex<u64>>,
    ) -> Self {
        Self { steps, log, reign, over, failures }
    }

    /// Runs until the preparer ends.
    pub async fn run(mut self) {
        while let Some(step) = self.next().await {
            match step {
                ProposerStep::Freeze(done, head) => {
                    let frozen = self.freeze(head).await;
                    // The caller may have disconnected.
                    let _ = done.send(frozen);
                }
                ProposerStep::Batch(prepared) => self.propose(*prepared).await,
                ProposerStep::Nothing(DuplicateRequests { failures, waiting }) => {
                    // All earlier batches are finished: each is stored by now, or it failed.
                    let done = self.builds_on(failures).map(|()| ShardApplyResult::Done);
                    waiting.into_iter().for_each(|waiting| waiting.send_results(&done));
                }
            }
        }
    }

    async fn next(&mut self) -> Option<ProposerStep> {
        tokio::select! {
            biased;
            () = self.over.cancelled() => None,
            step = self.steps.recv() => step,
        }
    }

    /// Logs the end of the generation. Only after that its head may be flushed.
    async fn freeze(&mut self, next: Arc<Head>) -> Result<(), Status> {
        let current = self.reign.heads().current();
        if !current.is_empty() && !current.is_closed() {
            let end = ShardLogEntry::encode_generation_end(current.generation()).into();
            tokio::select! {
                biased;
                () = self.over.cancelled() => return Err(unknown()),
                ended = self.log.propose_relief(end) => drop(ended.map_err(|error| self.failed(&error))?),
            }
        }
        self.reign.heads().start_head(next);
        Ok(())
    }

    async fn propose(&mut self, prepared: PreparedBatch) {
        let PreparedBatch { entry: NewBatchEntry { bytes, batch, head, failures }, waiting } = prepared;
        let applied = if let Err(failed) = self.builds_on(failures) {
            Err(failed)
        } else {
            if batch.is_generation_start() && !Arc::ptr_eq(&self.reign.heads().current(), &head) {
                self.reign.heads().start_head(Arc::clone(&head));
            }
            let token = batch.token;
            self.reign.put(batch, head);
            let applied = tokio::select! {
                biased;
                () = self.over.cancelled() => Err(unknown()),
                proposed = self.log.propose(bytes) => {
                    proposed.map(|(_, applied)| applied).map_err(|error| self.failed(&error))
                }
            };
            // A duplicate that was taken for new has counted nothing, though others were subtracted from it.
            if !self.reign.tracker().finish_batch(token) || applied.is_err() {
                *self.failures.lock() += 1;
            }
            applied
        };
        waiting.into_iter().for_each(|waiting| waiting.send_results(&applied));
    }

    /// Checks that no proposal failed since an entry was prepared. The entry builds on names and values of
    /// earlier ones, and after a failure some of those did not reach the log.
    fn builds_on(&self, failures: u64) -> Result<(), Status> {
        if failures == *self.failures.lock() {
            return Ok(());
        }
        Err(Status::new(ErrorCode::Unavailable, "an earlier write to this shard failed; retry"))
    }

    /// Returns the status for clients of a failed proposal. If the entry may still be stored, the leader term
    /// ends. Otherwise the next batch would replace it as the batch to publish. Its rows would be in no head
    /// and in no block, though its ids are known. The next term starts after it in the log, or without it,
    /// and replays it.
    fn failed(&self, error: &ProposeError) -> Status {
        if matches!(error, ProposeError::Unknown { .. } | ProposeError::NotLeader { .. }) {
            self.over.cancel();
        }
        refused(error)
    }
}

fn unknown() -> Status {
    Status::new(
        ErrorCode::Unavailable,
        "lost leadership of the shard during the write, the profile may be stored or not; retry",
    )
}

/// Returns the status for clients of a batch that the log rejected.
fn refused(error: &ProposeError) -> Status {
    let status = Status::from_error(error);
    match error {
        ProposeError::Refused(LogError::Full { .. }) => status.with_retry_after(LOG_FULL_RETRY_AFTER),
        ProposeError::Refused(LogError::Busy { .. }) => status.with_retry_after(LOG_BUSY_RETRY_AFTER),
        _ => status,
    }
}
