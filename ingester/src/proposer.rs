//! Proposing entries, one at a time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use athanor_chassis::{ErrorCode, Status};
use athanor_consensus::RaftGroup;
use athanor_consensus::log::LogError;
use athanor_consensus::replicated::ProposeError;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::batcher::{DuplicateRequests, NewBatchEntry, PreparedBatch, ProposerStep};
use crate::entry::ShardLogEntry;
use crate::head::Head;
use crate::leader_term::LeaderTerm;
use crate::state_machine::{ShardApplyResult, ShardStateMachine, lock};

/// How long clients are told to wait while the log is full, and while it is busy.
const LOG_FULL_RETRY_AFTER: Duration = Duration::from_secs(10);
const LOG_BUSY_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Proposes batches, one at a time.
pub struct BatchProposer {
    steps: mpsc::Receiver<ProposerStep>,
    log: RaftGroup<ShardStateMachine>,
    reign: Arc<LeaderTerm>,
    /// The reign is over: what is under way may be stored, or not.
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

    /// Runs until the preparer is gone.
    pub async fn run(mut self) {
        while let Some(step) = self.next().await {
            match step {
                ProposerStep::Freeze(done, head) => {
                    let frozen = self.freeze(head).await;
                    // Whoever asked may have left.
                    let _ = done.send(frozen);
                }
                ProposerStep::Batch(prepared) => self.propose(*prepared).await,
                ProposerStep::Nothing(DuplicateRequests { failures, waiting }) => {
                    // It comes behind all that was in flight: what that says is stored by now, or it failed.
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

    /// Has the log say that the generation is over: then, and only then, it may be cut.
    async fn freeze(&mut self, next: Arc<Head>) -> Result<(), Status> {
        let current = self.reign.heads().current();
        if !current.is_empty() && !current.is_closed() {
            let end = ShardLogEntry::end(current.generation()).into();
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
            // What was taken for new and was none has counted nothing, though others were subtracted from it.
            if !self.reign.tracker().finish_batch(token) || applied.is_err() {
                *lock(&self.failures) += 1;
            }
            applied
        };
        waiting.into_iter().for_each(|waiting| waiting.send_results(&applied));
    }

    /// What was prepared when so many proposals had failed builds on what they all said: on its names, or on what it counted.
    /// After another one some of that did not reach the log.
    fn builds_on(&self, failures: u64) -> Result<(), Status> {
        if failures == *lock(&self.failures) {
            return Ok(());
        }
        Err(Status::new(ErrorCode::Unavailable, "an earlier write to this shard failed; send it again"))
    }

    /// What those are told whose proposal failed. If it may be kept yet, the reign is over: the next batch would take its
    /// place among what is to be shown, and its rows would be in no head and in no block, though its ids are known. The
    /// next reign begins behind it in the log, or without it, and reads it back.
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
        "another node leads this shard, or will; whether this was stored is not known here: send it again",
    )
}

/// What those are told whose batch the log did not take.
fn refused(error: &ProposeError) -> Status {
    let status = Status::from_error(error);
    match error {
        ProposeError::Refused(LogError::Full { .. }) => status.with_retry_after(LOG_FULL_RETRY_AFTER),
        ProposeError::Refused(LogError::Busy { .. }) => status.with_retry_after(LOG_BUSY_RETRY_AFTER),
        _ => status,
    }
}
