//! What stands before every request.

use std::sync::Arc;

use athanor_chassis::{ByteSize, Clock, Compute};
use tokio::sync::Semaphore;

/// What every request passes.
#[derive(Clone, Debug)]
pub struct Door {
    /// Whether the tenant is told by a header; else everything is one tenant's.
    pub multitenancy: bool,
    /// Room for the bodies of all requests at once, in KiB: as they came, and as they are read.
    pub room: Arc<Semaphore>,
    /// All of that room.
    pub in_flight: ByteSize,
    /// Measures deadlines.
    pub clock: Clock,
    /// Where large bodies are decoded.
    pub compute: Compute,
}

impl Door {
    /// A door with room for so many bytes of bodies at once.
    pub fn new(multitenancy: bool, in_flight: ByteSize, clock: Clock, compute: Compute) -> Self {
        let kibibytes = (in_flight.get() / 1024).clamp(1, Semaphore::MAX_PERMITS as u64) as usize;
        Self { multitenancy, room: Arc::new(Semaphore::new(kibibytes)), in_flight, clock, compute }
    }
}
