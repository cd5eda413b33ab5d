//! Budget of bytes of which no tenant holds more than half, once there is a second tenant.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::TenantId;

/// Returns the share of one tenant in a limit, given the number of tenants.
pub const fn tenant_share(limit: u64, tenants: usize) -> u64 {
    if tenants > 1 { limit / 2 } else { limit }
}

/// Bytes that each tenant holds of a budget.
///
/// A single tenant may hold the whole budget. From the first request of a second tenant until the process
/// ends, each tenant may hold half. So the other tenant always finds a part at once.
#[derive(Debug)]
pub struct TenantShares {
    limit: u64,
    state: Mutex<TenantHoldings>,
}

/// Rejection of bytes that would exceed the share of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareExceededError {
    /// Tenant that exceeds its share.
    pub tenant: TenantId,
    /// Bytes that the tenant holds.
    pub held: u64,
    /// Bytes that the tenant may hold.
    pub share: u64,
}

#[derive(Debug, Default)]
struct TenantHoldings {
    /// Bytes by tenant, without tenants that hold nothing.
    held: BTreeMap<TenantId, u64>,
    first: Option<TenantId>,
    has_second: bool,
}

impl TenantShares {
    /// Creates shares in a budget of `limit` bytes, of which nothing is held.
    pub fn new(limit: u64) -> Self {
        Self { limit, state: Mutex::default() }
    }

    /// Adds bytes to each of these tenants, within its share. A single tenant has no share: the owner of the
    /// budget checks the whole limit.
    pub fn reserve(&self, tenants: &[TenantId], bytes: u64) -> Result<(), ShareExceededError> {
        let mut state = self.state.lock();
        tenants.iter().for_each(|tenant| state.register_tenant(tenant));
        let share = self.share(&state);
        for tenant in tenants {
            let held = state.held.get(tenant).copied().unwrap_or_default();
            if state.has_second && held.saturating_add(bytes) > share {
                return Err(ShareExceededError { tenant: tenant.clone(), held, share });
            }
        }
        state.add(tenants, bytes);
        Ok(())
    }

    /// Adds bytes to each of these tenants, regardless of their shares.
    pub fn reserve_unchecked(&self, tenants: &[TenantId], bytes: u64) {
        self.state.lock().add(tenants, bytes);
    }

    /// Subtracts bytes from each of these tenants.
    pub fn release(&self, tenants: &[TenantId], bytes: u64) {
        let mut state = self.state.lock();
        for tenant in tenants {
            let Some(held) = state.held.get_mut(tenant) else { continue };
            *held = held.saturating_sub(bytes);
            if *held == 0 {
                state.held.remove(tenant);
            }
        }
    }

    /// Returns whether every other tenant holds no more than its share. Registers these tenants.
    pub fn is_free_for(&self, tenants: &[TenantId]) -> bool {
        let mut state = self.state.lock();
        tenants.iter().for_each(|tenant| state.register_tenant(tenant));
        let share = self.share(&state);
        state.held.iter().all(|(tenant, held)| *held <= share || tenants.contains(tenant))
    }

    fn share(&self, state: &TenantHoldings) -> u64 {
        tenant_share(self.limit, if state.has_second { 2 } else { 1 })
    }
}

impl TenantHoldings {
    fn register_tenant(&mut self, tenant: &TenantId) {
        match &self.first {
            None => self.first = Some(tenant.clone()),
            Some(first) => self.has_second |= first != tenant,
        }
    }

    fn add(&mut self, tenants: &[TenantId], bytes: u64) {
        if bytes == 0 {
            return;
        }
        for tenant in tenants {
            let held = self.held.entry(tenant.clone()).or_default();
            *held = held.saturating_add(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenants(names: &[&str]) -> Vec<TenantId> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[test]
    fn tenant_alone_holds_everything_until_a_second_one_comes() {
        let shares = TenantShares::new(100);
        let (a, b) = (tenants(&["a"]), tenants(&["b"]));
        assert_eq!(shares.reserve(&a, 90), Ok(()));
        assert!(!shares.is_free_for(&b), "the first one holds more than half");
        let refused = shares.reserve(&a, 1).unwrap_err();
        assert_eq!((refused.held, refused.share), (90, 50));
        shares.release(&a, 40);
        assert!(shares.is_free_for(&b));
        assert_eq!((shares.reserve(&b, 50), shares.reserve(&a, 1).is_err()), (Ok(()), true));
        shares.release(&b, 50);
        assert!(shares.reserve(&a, 1).is_err(), "the second one may come back at any time");
    }

    #[test]
    fn bytes_of_several_tenants_count_for_each() {
        let shares = TenantShares::new(100);
        let both = tenants(&["a", "b"]);
        assert_eq!(shares.reserve(&both, 30), Ok(()));
        assert_eq!(shares.reserve(&both[..1], 20), Ok(()));
        assert_eq!(shares.reserve(&both, 1).unwrap_err().tenant.as_str(), "a");
        shares.release(&both, 30);
        assert_eq!(shares.reserve(&both[1..], 50), Ok(()));
        shares.release(&both[..1], 20);
        shares.release(&both[1..], 50);
        assert!(shares.state.lock().held.is_empty());
    }
}
