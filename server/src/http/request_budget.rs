//! What stands before every request.

use std::sync::Arc;

use athanor_chassis::tenant_shares::TenantShares;
use athanor_chassis::{ByteSize, Clock, ComputePool, TenantId};
use tokio::sync::Semaphore;

/// What every request passes.
#[derive(Clone, Debug)]
pub struct RequestBudget {
    /// Whether the tenant is told by a header; else everything is one tenant's.
    pub multitenancy: bool,
    /// Room for the bodies of all requests at once, in KiB: as they came, and as they are read.
    pub room: Arc<Semaphore>,
    /// All of that room.
    pub in_flight: ByteSize,
    /// Measures deadlines.
    pub clock: Clock,
    /// Where large bodies are decoded.
    pub compute: ComputePool,
    /// What of the room each tenant has.
    pub shares: Arc<TenantShares>,
    /// Tenant of the request, as soon as it is known.
    pub tenant: Option<TenantId>,
}

impl RequestBudget {
    /// A door with room for so many bytes of bodies at once.
    pub fn new(multitenancy: bool, in_flight: ByteSize, clock: Clock, compute: ComputePool) -> Self {
        let kibibytes = (in_flight.get() / 1024).clamp(1, Semaphore::MAX_PERMITS as u64) as usize;
        let room = Arc::new(Semaphore::new(kibibytes));
        let shares = TenantShares::new(in_flight.get());
        Self { multitenancy, room, in_flight, clock, compute, shares: Arc::new(shares), tenant: None }
    }

    /// Returns the door for requests of a tenant: it pays for their memory and CPU time.
    #[must_use]
    pub fn for_tenant(&self, tenant: &TenantId) -> Self {
        let compute = self.compute.for_tenant(tenant);
        Self { compute, tenant: Some(tenant.clone()), ..self.clone() }
    }
}
