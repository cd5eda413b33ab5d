//! What stands before every request.

use std::sync::Arc;

use athanor_chassis::{ByteSize, Clock, Compute};
use tokio::sync::Semaphore;

/// What every request passes.
#[derive(Clone, Debug)]
pub struct Door {
    /// Whether the tenant is told by a header; else everything is one tenant's.
    pub multitenancy: bool,
    /// The largest body, as sent and decompressed.
    pub body_limit: ByteSize,
    /// Room for the bodies of all requests at once, in KiB.
    pub room: Arc<Semaphore>,
    /// Measures deadlines.
    pub clock: Clock,
    /// Where large bodies are decoded.
    pub compute: Compute,
}

impl Door {
    /// A door with room for so many bytes of bodies at once.
    pub fn new(
        multitenancy: bool,
        body_limit: ByteSize,
        in_flight: ByteSize,
        clock: Clock,
        compute: Compute,
    ) -> Self {
        let kibibytes = (in_flight.get() / 1024).clamp(1, Semaphore::MAX_PERMITS as u64) as usize;
        Self { multitenancy, body_limit, room: Arc::new(Semaphore::new(kibibytes)), clock, compute }
    }
}
