//! Cancellation of long computations after the caller stopped waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Flag that a long computation checks between steps. Once set, the result is no longer needed. Cheap to
/// clone and to check.
#[derive(Clone, Debug, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

/// Guard of the waiting caller. Dropping it cancels the computation.
#[derive(Debug)]
pub struct CancelOnDrop(CancelFlag);

impl CancelFlag {
    /// Creates a flag and the guard that sets it on drop.
    pub fn new_pair() -> (CancelFlag, CancelOnDrop) {
        let stop = CancelFlag::default();
        (stop.clone(), CancelOnDrop(stop))
    }

    /// Returns the underlying atomic, for code that does not depend on this crate.
    pub fn atomic_flag(&self) -> &Arc<AtomicBool> {
        &self.0
    }

    /// Returns whether the guard was dropped.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}
