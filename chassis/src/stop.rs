//! Whether somebody still waits for what is computed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Looked at between steps of a long computation: once it says so, nobody wants the result. Cheap to clone and to ask.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

/// Held by whoever waits. Dropping it stops what is computed for them.
#[derive(Debug)]
pub struct Waiting(Stop);

impl Stop {
    /// Somebody waits, until they drop what they hold.
    pub fn when_left() -> (Stop, Waiting) {
        let stop = Stop::default();
        (stop.clone(), Waiting(stop))
    }

    /// What becomes true then, for those who know nothing of this crate.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.0
    }

    /// Whether nobody waits any more.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}
