//! State machine of the catalog's raft group.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use athanor_catalog::{CatalogLogEntry, CatalogState, CommandResult, TenantDocuments};
use athanor_chassis::TenantId;
use athanor_consensus::StateMachine;
use athanor_consensus::replicated::{RestoreContext, StateSnapshot};
use tokio::sync::Notify;

use crate::snapshot_store::StateCopy;

/// Catalog state as applied from the group's log.
#[derive(Debug, Default)]
pub struct CatalogStateMachine {
    state: CatalogState,
    applied: u64,
    /// Error of an entry that could not be decoded. The voter rejects everything after it.
    apply_failure: Option<String>,
    revisions: Arc<RevisionWatch>,
}

/// Size of the catalog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CatalogSize {
    /// Number of registered blocks.
    pub blocks: u64,
    /// Total bytes of the registered blocks.
    pub bytes: u64,
    /// Number of tombstones: block ids that can never be registered.
    pub tombstones: u64,
}

/// Revision of the catalog state, with notification of changes. Waiters wake in the order of their arrival.
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

    /// Waits until the revision differs from the given one.
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
    /// Returns the size of the catalog at this node's applied index.
    pub fn size(&self) -> CatalogSize {
        CatalogSize {
            blocks: self.state.block_count() as u64,
            bytes: self.state.block_bytes(),
            tombstones: self.state.tombstone_count() as u64,
        }
    }

    /// Returns the number of settings documents per tenant, and their total bytes.
    pub fn document_sizes(&self) -> Vec<(TenantId, usize, u64)> {
        let size = |(tenant, documents): (&TenantId, &TenantDocuments)| {
            let bytes =
                documents.iter().map(|(name, document)| (name.len() + document.text.len()) as u64).sum();
            (tenant.clone(), documents.len(), bytes)
        };
        self.state.all_documents().map(size).collect()
    }

    pub(crate) fn state(&self) -> &CatalogState {
        &self.state
    }

    pub(crate) fn revision_watch(&self) -> Arc<RevisionWatch> {
        Arc::clone(&self.revisions)
    }

    /// Returns a copy of the state. It shares the blocks with the state, so the copy takes no time for them.
    pub(crate) fn copy_state(&self) -> StateCopy {
        StateCopy { index: self.applied, state: self.state.clone() }
    }

    fn replace_state(&mut self, state: CatalogState, applied: u64) {
        self.state = state;
        self.applied = applied;
        self.revisions.publish(self.state.revision());
    }
}

impl StateMachine for CatalogStateMachine {
    /// Result of a command; `None` if the entry could not be decoded, in which case the proposal fails.
    type Answer = Option<CommandResult>;

    fn apply(&mut self, index: u64, entry: &[u8]) -> Option<CommandResult> {
        match CatalogLogEntry::decode(entry) {
            Ok(CatalogLogEntry { time, command }) => {
                self.applied = index;
                let result = self.state.apply(time, command);
                self.revisions.publish(self.state.revision());
                Some(result)
            }
            // Other voters may be able to decode it. A voter that skipped it would diverge from them.
            Err(error) => {
                self.apply_failure =
                    Some(format!("entry {index} of the catalog log cannot be decoded: {error}"));
                None
            }
        }
    }

    fn apply_failure(&self) -> Option<String> {
        self.apply_failure.clone()
    }

    fn snapshot(&self) -> StateSnapshot {
        let copy = self.copy_state();
        StateSnapshot {
            index: copy.index,
            write: Box::new(move || Ok(copy.state.encode())),
            kept: Box::new(|| {}),
        }
    }

    fn restore(&mut self, RestoreContext { index, bytes, .. }: RestoreContext<'_>) -> Result<(), String> {
        let state = CatalogState::decode(bytes).map_err(|error| error.to_string())?;
        self.replace_state(state, index);
        Ok(())
    }

    fn reset_to(&mut self, index: u64) {
        // An entry creates at most one revision. Without an earlier recovery, the index is therefore not
        // below any reported revision.
        self.replace_state(CatalogState::empty_at_revision(index), index);
    }
}
