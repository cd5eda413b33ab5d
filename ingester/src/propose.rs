//! Proposing entries, one at a time.

use std::sync::{Arc, Mutex};

use athanor_chassis::{Code, Status};
use athanor_consensus::Replicated;
use tokio::sync::mpsc;

use crate::heads::Heads;
use crate::machine::{Machine, Proposed, lock};
use crate::prepare::{NewEntry, Prepared, Step};

/// Proposes batches, one at a time.
pub struct Proposer {
    steps: mpsc::Receiver<Step>,
    log: Replicated<Machine>,
    proposed: Arc<Proposed>,
    heads: Arc<Heads>,
    failures: Arc<Mutex<u64>>,
    /// Batches prepared before a failure that must fail as well.
    poisoned: bool,
}

impl Proposer {
    pub(crate) fn new(
        steps: mpsc::Receiver<Step>,
        log: Replicated<Machine>,
        proposed: Arc<Proposed>,
        heads: Arc<Heads>,
        failures: Arc<Mutex<u64>>,
    ) -> Self {
        Self { steps, log, proposed, heads, failures, poisoned: false }
    }

    /// Runs until the preparer is gone.
    pub async fn run(mut self) {
        while let Some(step) = self.steps.recv().await {
            match step {
                Step::Freeze(done, head) => {
                    self.heads.begin(head);
                    // Whoever asked may have left.
                    let _ = done.send(());
                }
                Step::Batch(prepared) => self.propose(*prepared).await,
            }
        }
    }

    async fn propose(&mut self, prepared: Prepared) {
        let Prepared { entry: NewEntry { bytes, batch, head }, waiting } = prepared;
        if batch.is_fresh() {
            self.poisoned = false;
            if !Arc::ptr_eq(&self.heads.current(), &head) {
                self.heads.begin(Arc::clone(&head));
            }
        }
        let applied = if self.poisoned {
            Err(Status::new(Code::Unavailable, "an earlier write to this shard failed; send it again"))
        } else {
            self.proposed.put(batch, head);
            self.log.propose(bytes).await.map(|(_, applied)| applied).map_err(|error| Status::of(&error))
        };
        if applied.is_err() && !self.poisoned {
            self.poisoned = true;
            *lock(&self.failures) += 1;
        }
        waiting.into_iter().for_each(|waiting| waiting.answer(&applied));
    }
}
