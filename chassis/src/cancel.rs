//! Whether somebody still waits for what is computed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Looked at between steps of a long computation: once it says so, nobody wants the result. Cheap to clone and to ask.
#[derive(Clone, Debug, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

/// Held by whoever waits. Dropping it stops what is computed for them.
#[derive(Debug)]
pub struct CancelOnDrop(CancelFlag);

impl CancelFlag {
    /// Somebody waits, until they drop what they hold.
    pub fn new_pair() -> (CancelFlag, CancelOnDrop) {
        let stop = CancelFlag::default();
        (stop.clone(), CancelOnDrop(stop))
    }

    /// What becomes true then, for those who know nothing of this crate.
    pub fn atomic_flag(&self) -> &Arc<AtomicBool> {
        &self.0
    }

    /// Whether nobody waits any more.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}
