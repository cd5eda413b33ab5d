//! Memory budget and shared context of all requests.

use std::sync::Arc;

use athanor_chassis::memory_budget::{BudgetLimit, MemoryBudget};
use athanor_chassis::requests::tenant_shares::TenantShares;
use athanor_chassis::{ByteSize, Clock, ComputePool, TenantId};

/// Memory budget of request bodies, with the context that request handlers share.
#[derive(Clone, Debug)]
pub struct RequestBudget {
    /// True if a header names the tenant. Otherwise all data belongs to one tenant.
    pub multitenancy: bool,
    /// Budget for the bodies of all requests, both as received and as decoded.
    pub memory: Arc<MemoryBudget>,
    /// Clock for deadlines.
    pub clock: Clock,
    /// Compute pool that decodes large bodies.
    pub compute: ComputePool,
    /// Bytes of the budget that each tenant uses.
    pub shares: Arc<TenantShares>,
    /// Tenant of the request, as soon as it is known.
    pub tenant: Option<TenantId>,
}

impl RequestBudget {
    /// Creates a budget of `in_flight` bytes for all bodies together.
    pub fn new(multitenancy: bool, in_flight: ByteSize, clock: Clock, compute: ComputePool) -> Self {
        let memory =
            MemoryBudget::new(BudgetLimit { limit: in_flight, setting: "max_inflight_request_bytes" });
        let shares = TenantShares::new(in_flight.get());
        Self { multitenancy, memory, clock, compute, shares: Arc::new(shares), tenant: None }
    }

    /// Returns the budget for requests of a tenant, which pays for their memory and CPU time.
    #[must_use]
    pub fn for_tenant(&self, tenant: &TenantId) -> Self {
        let compute = self.compute.for_tenant(tenant);
        Self { compute, tenant: Some(tenant.clone()), ..self.clone() }
    }
}
