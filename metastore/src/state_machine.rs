//! The state machine of the catalogue's group.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use athanor_catalog::{CatalogLogEntry, CatalogState, CommandResult, TenantDocuments};
use athanor_chassis::TenantId;
use athanor_consensus::StateMachine;
use athanor_consensus::replicated::{RestoreContext, StateSnapshot};
use tokio::sync::Notify;

use crate::snapshot_store::StateCopy;

/// The facts, as the log has brought them.
#[derive(Debug, Default)]
pub struct CatalogStateMachine {
    state: CatalogState,
    applied: u64,
    /// Why an entry could not be read.
    halted: Option<String>,
    told: Arc<RevisionWatch>,
}

/// How much is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CatalogSize {
    /// Blocks that are registered.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Names that never register.
    pub condemned: u64,
}

/// The revision of the facts, for those who wait for another one. They wake in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct RevisionWatch {
    revision: AtomicU64,
    changed: Notify,
}

impl RevisionWatch {
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::SeqCst)
    }

    fn publish(&self, revision: u64) {
        if self.revision.swap(revision, Ordering::SeqCst) != revision {
            self.changed.notify_waiters();
        }
    }

    /// Waits until the revision is another one.
    pub(crate) async fn wait_until_not(&self, revision: u64) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.revision() != revision {
                return;
            }
            changed.await;
        }
    }
}

impl CatalogStateMachine {
    /// How much this node knows now.
    pub fn size(&self) -> CatalogSize {
        let blocks = self.state.blocks();
        let add = |size: CatalogSize, bytes: u64| CatalogSize {
            blocks: size.blocks + 1,
            bytes: size.bytes + bytes,
            ..size
        };
        let size = blocks.map(|block| block.bytes).fold(CatalogSize::default(), add);
        CatalogSize { condemned: self.state.tombstones().count() as u64, ..size }
    }

    /// Returns how many settings each tenant keeps, and their bytes.
    pub fn document_sizes(&self) -> Vec<(TenantId, usize, u64)> {
        let size = |(tenant, notes): (&TenantId, &TenantDocuments)| {
            let bytes = notes.iter().map(|(name, note)| (name.len() + note.text.len()) as u64).sum();
            (tenant.clone(), notes.len(), bytes)
        };
        self.state.all_documents().map(size).collect()
    }

    pub(crate) fn state(&self) -> &CatalogState {
        &self.state
    }

    pub(crate) fn revision_watch(&self) -> Arc<RevisionWatch> {
        Arc::clone(&self.told)
    }

    pub(crate) fn copy_state(&self) -> StateCopy {
        StateCopy { index: self.applied, state: self.state.clone() }
    }

    fn replace_state(&mut self, state: CatalogState, applied: u64) {
        self.state = state;
        self.applied = applied;
        self.told.publish(self.state.revision());
    }
}

impl StateMachine for CatalogStateMachine {
    /// None where the entry could not be read; then nobody hears it.
    type Answer = Option<CommandResult>;

    fn apply(&mut self, index: u64, entry: &[u8]) -> Option<CommandResult> {
        match CatalogLogEntry::decode(entry) {
            Ok(CatalogLogEntry { at, command }) => {
                self.applied = index;
                let answer = self.state.apply(at, command);
                self.told.publish(self.state.revision());
                Some(answer)
            }
            // Other voters may know it. Who skipped it would hold other facts than they do.
            Err(error) => {
                self.halted = Some(format!("entry {index} of the catalogue cannot be read: {error}"));
                None
            }
        }
    }

    fn apply_failure(&self) -> Option<String> {
        self.halted.clone()
    }

    fn snapshot(&self) -> StateSnapshot {
        StateSnapshot::from_bytes(self.applied, self.state.encode())
    }

    fn restore(&mut self, RestoreContext { index, bytes, .. }: RestoreContext<'_>) -> Result<(), String> {
        let state = CatalogState::decode(bytes).map_err(|error| error.to_string())?;
        self.replace_state(state, index);
        Ok(())
    }

    fn reset_to(&mut self, index: u64) {
        // No entry makes more than one revision: so those who saw an earlier one see that this is younger.
        self.replace_state(CatalogState::empty_at_revision(index), index);
    }
}
