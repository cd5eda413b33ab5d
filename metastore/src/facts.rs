//! The state machine of the catalogue's group.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use athanor_catalog::{Answer, Logged, Notes, State};
use athanor_chassis::TenantId;
use athanor_consensus::StateMachine;
use athanor_consensus::replicated::{Restored, Snapshot};
use tokio::sync::Notify;

use crate::shelf::Copy;

/// The facts, as the log has brought them.
#[derive(Debug, Default)]
pub struct Facts {
    state: State,
    applied: u64,
    /// Why an entry could not be read.
    halted: Option<String>,
    told: Arc<Told>,
}

/// How much is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Blocks that are registered.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Names that never register.
    pub condemned: u64,
}

/// The revision of the facts, for those who wait for another one. They wake in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Told {
    revision: AtomicU64,
    changed: Notify,
}

impl Told {
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::SeqCst)
    }

    fn tell(&self, revision: u64) {
        if self.revision.swap(revision, Ordering::SeqCst) != revision {
            self.changed.notify_waiters();
        }
    }

    /// Waits until the revision is another one.
    pub(crate) async fn other_than(&self, revision: u64) {
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

impl Facts {
    /// How much this node knows now.
    pub fn size(&self) -> Size {
        let blocks = self.state.blocks();
        let add =
            |size: Size, bytes: u64| Size { blocks: size.blocks + 1, bytes: size.bytes + bytes, ..size };
        let size = blocks.map(|block| block.bytes).fold(Size::default(), add);
        Size { condemned: self.state.condemned().count() as u64, ..size }
    }

    /// Returns how many settings each tenant keeps, and their bytes.
    pub fn note_sizes(&self) -> Vec<(TenantId, usize, u64)> {
        let size = |(tenant, notes): (&TenantId, &Notes)| {
            let bytes = notes.iter().map(|(name, note)| (name.len() + note.text.len()) as u64).sum();
            (tenant.clone(), notes.len(), bytes)
        };
        self.state.all_notes().map(size).collect()
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn told(&self) -> Arc<Told> {
        Arc::clone(&self.told)
    }

    pub(crate) fn copy(&self) -> Copy {
        Copy { index: self.applied, state: self.state.clone() }
    }

    fn become_state(&mut self, state: State, applied: u64) {
        self.state = state;
        self.applied = applied;
        self.told.tell(self.state.revision());
    }
}

impl StateMachine for Facts {
    /// None where the entry could not be read; then nobody hears it.
    type Answer = Option<Answer>;

    fn apply(&mut self, index: u64, entry: &[u8]) -> Option<Answer> {
        match Logged::decode(entry) {
            Ok(Logged { at, command }) => {
                self.applied = index;
                let answer = self.state.apply(at, command);
                self.told.tell(self.state.revision());
                Some(answer)
            }
            // Other voters may know it. Who skipped it would hold other facts than they do.
            Err(error) => {
                self.halted = Some(format!("entry {index} of the catalogue cannot be read: {error}"));
                None
            }
        }
    }

    fn halted(&self) -> Option<String> {
        self.halted.clone()
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::of(self.applied, self.state.encode())
    }

    fn restore(&mut self, Restored { index, bytes, .. }: Restored<'_>) -> Result<(), String> {
        let state = State::decode(bytes).map_err(|error| error.to_string())?;
        self.become_state(state, index);
        Ok(())
    }

    fn forget(&mut self, index: u64) {
        // No entry makes more than one revision: so those who saw an earlier one see that this is younger.
        self.become_state(State::beginning_at(index), index);
    }
}
